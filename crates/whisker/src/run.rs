//! The process: settings, the source, the socket.

use crate::access::Access;
use crate::app::{self, ClusterConfig, Options};
use crate::cli::Arguments;
use crate::demo;
use crate::environment::Settings;
use crate::reviews::Reviews;
use crate::source::{Goldmane, Source};
use crate::stored::Policies;
use anyhow::{Context as _, Result, bail};
use client::ClientConfig;
use daemon::log::Log;
use daemon::{Environment, Shutdown};
use goldmane_api::connect::{Target, TlsPaths};
use kube_access::KubeAccess;
use kube_access::cluster::Cluster;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use tls::{ClientAuth, Renewing, TlsFiles};
use tokio::net::TcpListener;

/// Runs until shutdown is requested.
pub(crate) async fn run(
    arguments: &Arguments,
    environment: &(dyn Environment + Send + Sync),
    log: &Log,
    shutdown: Shutdown,
) -> Result<()> {
    let settings = Settings::read(environment)?;
    log.set_screen(settings.log_level.0);
    let files = server_files(&settings)?;
    let token = token(&settings, environment)?;
    let address = address(arguments, &settings, files.is_some()).await?;
    let reviews = reviews(&settings, environment).await?;
    let is_guarded = files.is_some() || token.is_some() || reviews.is_some();
    let access =
        Access::new(token.as_deref(), address.ip().is_loopback() && !is_guarded).with_reviews(reviews);
    let config = ClusterConfig {
        cluster_id: settings.cluster_id.clone(),
        cluster_type: settings.cluster_type.clone(),
        calico_version: settings.calico_version.clone(),
        notifications: settings.notifications.clone(),
        calico_cloud_url: settings.calico_cloud_url.clone(),
    };
    let source: Arc<dyn Source> = if arguments.demo {
        Arc::new(demo::start(shutdown.clone()))
    } else {
        Arc::new(Goldmane::new(target(arguments, &settings)))
    };
    let policies = policies(arguments, environment)?;
    let options = Options { access, policies, page_dir: arguments.page_dir.clone(), config };
    let service = app::service(source, options);
    let certificates = files.map(Renewing::new);
    if let Some(certificates) = &certificates {
        certificates.current_or_last().context("reading the certificate to serve with")?;
    }
    let listener = bind(address).await.with_context(|| format!("listening on {address}"))?;
    let scheme = if certificates.is_some() { "https" } else { "http" };
    tracing::info!("the page is at {scheme}://{}/", listener.local_addr()?);
    crate::serve::serve(listener, certificates, service, shutdown).await;
    Ok(())
}

/// The source of the cluster's policies: the configured datastore, or none if none is configured, because Calico's pod
/// for this server has no right to read one.
fn policies(arguments: &Arguments, environment: &dyn Environment) -> Result<Policies> {
    if arguments.demo {
        return Ok(Policies::fixed(demo::cluster()));
    }
    if environment.variable("DATASTORE_TYPE").is_none_or(|value| value.is_empty()) {
        return Ok(Policies::nowhere(
            "this server has no policies: set DATASTORE_TYPE (and the settings of that datastore) to let it read the cluster's",
        ));
    }
    let config =
        ClientConfig::from_environment(environment).context("reading the settings of the datastore")?;
    Ok(Policies::stored(config))
}

/// Binds an address; all addresses become those of IPv4 if the machine has no IPv6.
async fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(_) if address.ip() == IpAddr::from(Ipv6Addr::UNSPECIFIED) => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        other => other,
    }
}

/// The address to listen on. Without a certificate only this machine is served.
async fn address(arguments: &Arguments, settings: &Settings, has_certificate: bool) -> Result<SocketAddr> {
    let everywhere = || match has_certificate {
        true => SocketAddr::from((Ipv6Addr::UNSPECIFIED, settings.port)),
        false => SocketAddr::from((Ipv4Addr::LOCALHOST, settings.port)),
    };
    let wanted = match (&arguments.listen, settings.host.as_str()) {
        (Some(listen), _) => listen.clone(),
        (None, "") => return Ok(everywhere()),
        (None, host) => match host.parse::<IpAddr>() {
            Ok(address) => SocketAddr::from((address, settings.port)).to_string(),
            Err(_) => format!("{host}:{}", settings.port),
        },
    };
    let mut found = tokio::net::lookup_host(&wanted).await.with_context(|| format!("looking up {wanted}"))?;
    let address = found.next().with_context(|| format!("{wanted} has no address"))?;
    if !has_certificate && !address.ip().is_loopback() {
        bail!(
            "flows are not served in the clear to other machines: listen on loopback instead of {address}, or set \
             SERVER_TLS_CERT_PATH and SERVER_TLS_KEY_PATH"
        );
    }
    Ok(address)
}

fn server_files(settings: &Settings) -> Result<Option<TlsFiles>> {
    let is_set = |path: &Path| !path.as_os_str().is_empty();
    let verifies = is_set(&settings.client_ca_path);
    match (is_set(&settings.server_tls_cert_path), is_set(&settings.server_tls_key_path)) {
        (false, false) if verifies => bail!("WHISKER_CLIENT_CA_PATH needs SERVER_TLS_CERT_PATH and its key"),
        (false, false) => Ok(None),
        (true, true) => Ok(Some(TlsFiles {
            certificate: settings.server_tls_cert_path.clone(),
            key: settings.server_tls_key_path.clone(),
            authorities: settings.client_ca_path.clone(),
            client_auth: if verifies { ClientAuth::RequireAndVerify } else { ClientAuth::None },
            protocols: &["h2", "http/1.1"],
        })),
        _ => bail!("SERVER_TLS_CERT_PATH and SERVER_TLS_KEY_PATH must be set together"),
    }
}

fn token(settings: &Settings, environment: &dyn Environment) -> Result<Option<String>> {
    let path = &settings.token_path;
    if path.as_os_str().is_empty() {
        return Ok(None);
    }
    let text =
        environment.read_file(path).with_context(|| format!("reading the token in {}", path.display()))?;
    let token = text.trim();
    if token.is_empty() {
        bail!("{} holds no token", path.display());
    }
    Ok(Some(token.to_owned()))
}

/// The reviewer of tokens, if enabled.
async fn reviews(
    settings: &Settings,
    environment: &(dyn Environment + Send + Sync),
) -> Result<Option<Reviews>> {
    if !settings.token_review {
        return Ok(None);
    }
    let access = KubeAccess::from_environment(environment).await.context("finding Kubernetes")?;
    let Some(access) = access else {
        bail!(
            "WHISKER_TOKEN_REVIEW needs Kubernetes: set KUBECONFIG, or run in a pod with a service account"
        );
    };
    Ok(Some(Reviews::new(Cluster::new(&access))))
}

fn target(arguments: &Arguments, settings: &Settings) -> Target {
    let tls = (!settings.tls_cert_path.as_os_str().is_empty()).then(|| TlsPaths {
        authority: settings.ca_cert_path.clone(),
        certificate: settings.tls_cert_path.clone(),
        key: settings.tls_key_path.clone(),
    });
    let address = arguments.goldmane.clone().unwrap_or_else(|| settings.goldmane_host.clone());
    Target { address, tls }
}

#[cfg(test)]
mod tests {
    use super::*;
    use daemon::Variables;

    fn settings(variables: &[(&str, &str)]) -> Settings {
        Settings::read(&Variables::new(variables.iter().copied())).unwrap()
    }

    #[tokio::test]
    async fn other_machines_are_served_only_with_a_certificate() {
        for (variables, listen, has_certificate, expected) in [
            (&[][..], None, false, Ok("127.0.0.1:8080")),
            (&[("PORT", "3002")], None, true, Ok("[::]:3002")),
            (&[("HOST", "0.0.0.0")], None, false, Err("not served in the clear")),
            (&[("HOST", "0.0.0.0")], None, true, Ok("0.0.0.0:8080")),
            (&[("HOST", "::1"), ("PORT", "1")], None, false, Ok("[::1]:1")),
            (&[("HOST", "0.0.0.0")], Some("127.0.0.1:9"), false, Ok("127.0.0.1:9")),
            (&[], Some("192.0.2.1:9"), false, Err("not served in the clear")),
        ] {
            let arguments = Arguments { listen: listen.map(str::to_owned), ..Arguments::default() };
            let found = address(&arguments, &settings(variables), has_certificate).await;
            match expected {
                Ok(expected) => assert_eq!(found.unwrap().to_string(), expected),
                Err(reason) => assert!(found.unwrap_err().to_string().contains(reason), "{variables:?}"),
            }
        }
    }

    #[test]
    fn a_certificate_without_its_key_is_a_mistake() {
        assert!(server_files(&settings(&[("SERVER_TLS_CERT_PATH", "/a")])).is_err());
        assert!(server_files(&settings(&[("WHISKER_CLIENT_CA_PATH", "/a")])).is_err());
        assert!(server_files(&settings(&[])).unwrap().is_none());
        let both =
            [("SERVER_TLS_CERT_PATH", "/a"), ("SERVER_TLS_KEY_PATH", "/b"), ("WHISKER_CLIENT_CA_PATH", "/c")];
        let files = server_files(&settings(&both)).unwrap().unwrap();
        assert_eq!(files.client_auth, ClientAuth::RequireAndVerify);
    }

    #[tokio::test]
    async fn tokens_cannot_be_reviewed_without_kubernetes() {
        let ask = async |value: &str| {
            let environment = Variables::new([("WHISKER_TOKEN_REVIEW", value)]);
            reviews(&Settings::read(&environment).unwrap(), &environment).await
        };
        assert!(ask("false").await.unwrap().is_none());
        assert!(ask("true").await.unwrap_err().to_string().contains("needs Kubernetes"));
        assert!(Settings::read(&Variables::new([("WHISKER_TOKEN_REVIEW", "maybe")])).is_err());
    }

    #[test]
    fn a_token_comes_from_its_file() {
        let read = |text: &str| {
            let environment =
                Variables::new([("WHISKER_TOKEN_PATH", "/token")]).with_files([("/token", text)]);
            token(&Settings::read(&environment).unwrap(), &environment)
        };
        assert_eq!(read("secret\n").unwrap().as_deref(), Some("secret"));
        assert!(read(" \n").is_err());
        assert!(token(&settings(&[("WHISKER_TOKEN_PATH", "/no/such/file")]), &Variables::default()).is_err());
    }
}
