//! The HTTP client below everything that talks to the API server: how its connections are opened, and how a connection
//! to a vanished peer is detected.
//!
//! A watch only listens, so a server that vanishes (a machine without power, a firewall that forgot the connection) is
//! as silent as one without news. The kernel probes the peer's kernel instead (TCP keepalive), which wakes no process,
//! and drops a connection after the same time as Kubernetes' own clients do (30 s of silence and 15 s for an answer). A
//! connection whose data is never acknowledged is dropped after the same time.
//!
//! A configured proxy is refused with the error of the underlying library: there is no way through one.

use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::ConfigExt as _;
use std::time::Duration;
use tower::ServiceBuilder;

/// When a silent connection is probed, and when it is dropped.
#[derive(Clone, Copy)]
struct Silence {
    /// The silence before the first probe.
    quiet: Duration,
    /// The time between two probes.
    pause: Duration,
    /// The silence after which the connection is dropped.
    limit: Duration,
}

const SILENCE: Silence =
    Silence { quiet: Duration::from_secs(30), pause: Duration::from_secs(5), limit: Duration::from_secs(45) };

/// Creates a client of this configuration.
///
/// # Errors
/// When the configuration is invalid.
pub(super) fn client(config: kube::Config) -> Result<kube::Client, kube::Error> {
    client_with(config, SILENCE)
}

fn client_with(mut config: kube::Config, silence: Silence) -> Result<kube::Client, kube::Error> {
    // The library's own retries repeat writes that may have been carried out, and for minutes.
    config.default_retry = false;
    if config.proxy_url.is_some() {
        return kube::Client::try_from(config);
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(silence.quiet));
    tcp.set_keepalive_interval(Some(silence.pause));
    // With this limit the kernel does not count probes.
    tcp.set_tcp_user_timeout(Some(silence.limit));
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_write_timeout(config.write_timeout);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(Into::into)
        .service(Client::builder(TokioExecutor::new()).build(connector));
    Ok(kube::Client::new(service, config.default_namespace))
}

#[cfg(test)]
mod tests {
    use super::{Silence, client_with};
    use anyhow::{Context as _, Result};
    use http::Request;
    use http_body_util::BodyExt as _;
    use kube::client::Body;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::time::Duration;
    use testkit::network::Namespace;

    /// Shorter than in production, so that the test does not take long.
    const SOON: Silence = Silence {
        quiet: Duration::from_secs(1),
        pause: Duration::from_secs(1),
        limit: Duration::from_secs(2),
    };

    /// A watch is established, then the wire between both ends is cut: neither end is told that the connection is over.
    #[test]
    fn a_watch_whose_server_vanishes_ends() -> Result<()> {
        let id = std::process::id();
        let (near, far) = (Namespace::new(&format!("kw{id}n"))?, Namespace::new(&format!("kw{id}f"))?);
        near.batch(&format!(
            "link add w0 type veth peer name w0 netns {}\naddress add 192.0.2.1/24 dev w0\nlink set w0 up",
            far.name()
        ))?;
        far.batch("address add 192.0.2.2/24 dev w0\nlink set w0 up")?;
        let listener = far.run(|| TcpListener::bind("192.0.2.2:80"))??;
        let server = std::thread::spawn(move || -> Result<std::net::TcpStream> {
            let (mut stream, _) = listener.accept()?;
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") {
                stream.read_exact(&mut byte)?;
                request.push(byte[0]);
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n")?;
            // Kept open: closing a socket would be noticed.
            Ok(stream)
        });
        near.run(|| -> Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let config = kube::Config::new("http://192.0.2.2:80".parse()?);
                let client = client_with(config, SOON)?;
                let request = Request::get("/api/v1/pods?watch=true").body(Body::empty())?;
                let mut body = client.send(request).await?.into_body();
                let first = body.frame().await.context("the answer has no body")??;
                assert_eq!(first.into_data().ok().as_deref(), Some(&b"{}"[..]));
                far.batch("link set w0 down")?;
                let next = tokio::time::timeout(Duration::from_secs(60), body.frame()).await;
                let next = next.context("the vanished server was not detected")?;
                assert!(next.is_some_and(|frame| frame.is_err()), "the end of a watch is an error");
                Ok(())
            })
        })??;
        drop(server.join().map_err(|_| anyhow::anyhow!("the server failed"))??);
        Ok(())
    }
}
