//! Pages for other programs: health and figures. They never keep Felix from working: a port in use is waited for.

use felix_config::Config;
use telemetry::{Health, Metrics};
use telemetry_server::Address;
use telemetry_server::{Pages, serve_at};
use tls::TlsFiles;
use tokio::task::JoinHandle;

/// The running servers, which end when this value is dropped.
#[derive(Default)]
pub(crate) struct Servers {
    health: Option<(Address, JoinHandle<()>)>,
    metrics: Option<JoinHandle<()>>,
}

impl Servers {
    /// Serves health at the currently configured address.
    pub(crate) fn serve_health(&mut self, config: &Config, health: &Health) {
        let wanted = config
            .health_enabled
            .then(|| address("health", &config.health_host, config.health_port))
            .flatten();
        if self.health.as_ref().map(|(address, _)| address) == wanted.as_ref() {
            return;
        }
        if let Some((_, task)) = self.health.take() {
            task.abort();
        }
        self.health = wanted.map(|address| {
            let pages = Pages { health: Some(health.clone()), metrics: None };
            (address.clone(), tokio::spawn(serve_at(address, pages, None)))
        });
    }

    /// Serves figures if the configuration enables it.
    pub(crate) fn serve_metrics(&mut self, config: &Config, metrics: &Metrics) {
        if !config.prometheus_metrics_enabled {
            return;
        }
        if config.prometheus_process_metrics_enabled {
            telemetry::process::watch(metrics);
        }
        let pages = Pages { health: None, metrics: Some(metrics.clone()) };
        let address = address("metrics", &config.prometheus_metrics_host, config.prometheus_metrics_port);
        self.metrics = address.map(|address| tokio::spawn(serve_at(address, pages, tls_files(config))));
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        let health = self.health.take().map(|(_, task)| task);
        for task in health.into_iter().chain(self.metrics.take()) {
            task.abort();
        }
    }
}

fn address(what: &'static str, host: &str, port: i64) -> Option<Address> {
    match u16::try_from(port) {
        Ok(port) => Some(Address { what, host: host.to_owned(), port }),
        Err(_) => {
            tracing::error!(port, "the port of {what} is out of range; nothing is served there");
            None
        }
    }
}

/// The files for metrics over TLS; either of certificate and key enables it.
fn tls_files(config: &Config) -> Option<TlsFiles> {
    let (certificate, key) = (&config.prometheus_metrics_cert_file, &config.prometheus_metrics_key_file);
    (!certificate.is_empty() || !key.is_empty()).then(|| TlsFiles {
        certificate: certificate.into(),
        key: key.into(),
        authorities: config.prometheus_metrics_ca_file.clone().into(),
        client_auth: config.prometheus_metrics_client_auth.unwrap_or_default(),
        ..TlsFiles::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    async fn get(port: i64, page: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", u16::try_from(port).ok()?)).await.ok()?;
        let request = format!("GET {page} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        let read = tokio::time::timeout(Duration::from_secs(5), stream.read_to_string(&mut answer));
        read.await.ok()?.ok()?;
        Some(answer).filter(|answer| !answer.is_empty())
    }

    async fn answers(port: i64, page: &str) -> String {
        for _ in 0..600 {
            if let Some(answer) = get(port, page).await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("no answer on port {port}");
    }

    #[tokio::test]
    async fn ports_in_use_do_not_block_the_start() {
        let (one, other) = (TcpListener::bind("127.0.0.1:0").await, TcpListener::bind("127.0.0.1:0").await);
        let (one, other) = (one.unwrap(), other.unwrap());
        let port = |listener: &TcpListener| i64::from(listener.local_addr().unwrap().port());
        let config = Config {
            health_enabled: true,
            health_host: "127.0.0.1".into(),
            health_port: port(&one),
            prometheus_metrics_enabled: true,
            prometheus_metrics_host: "127.0.0.1".into(),
            prometheus_metrics_port: port(&other),
            ..Config::default()
        };
        let metrics = Metrics::default();
        metrics.set("felix_resync_state", "State.", 3.0);
        let mut servers = Servers::default();
        // It neither waits nor fails; and repeating the same request changes nothing.
        servers.serve_health(&config, &Health::default());
        servers.serve_metrics(&config, &metrics);
        servers.serve_health(&config, &Health::default());
        drop((one, other));
        assert!(answers(config.health_port, "/liveness").await.starts_with("HTTP/1.1 200"));
        let page = answers(config.prometheus_metrics_port, "/metrics").await;
        assert!(page.ends_with("felix_resync_state 3\n"), "{page}");
    }

    #[tokio::test]
    async fn health_moves_with_its_parameter() {
        let spare = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut config = Config {
            health_enabled: true,
            health_host: "127.0.0.1".into(),
            health_port: i64::from(spare.local_addr().unwrap().port()),
            ..Config::default()
        };
        drop(spare);
        let mut servers = Servers::default();
        servers.serve_health(&config, &Health::default());
        answers(config.health_port, "/readiness").await;
        config.health_enabled = false;
        servers.serve_health(&config, &Health::default());
        assert!(servers.health.is_none());
    }
}
