//! A connection to a Goldmane, of either make.

use std::path::PathBuf;
use std::time::Duration;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a silent connection is tried, and how long it may not answer.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// `host:port`, or `unix://` and the path of a socket.
    pub address: String,
    /// The files for TLS; without them the connection is in the clear.
    pub tls: Option<TlsPaths>,
}

/// PEM files, read anew for every connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsPaths {
    /// The authority that signs servers.
    pub authority: PathBuf,
    /// Our certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The server cannot be reached.
    #[error("cannot connect to {address}: {}", daemon::causes(source))]
    Transport {
        /// Where it should be.
        address: String,
        /// What the transport said.
        source: tonic::transport::Error,
    },
}

/// Connects.
///
/// # Errors
/// When a file cannot be read, or the server cannot be reached.
pub async fn connect(target: &Target) -> Result<Channel, ConnectError> {
    let address = &target.address;
    let failed = |source| ConnectError::Transport { address: address.clone(), source };
    let scheme = match (address.starts_with("unix:"), &target.tls) {
        (true, _) => "",
        (false, Some(_)) => "https://",
        (false, None) => "http://",
    };
    let mut endpoint = Endpoint::from_shared(format!("{scheme}{address}"))
        .map_err(failed)?
        .connect_timeout(PATIENCE)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .tcp_nodelay(true);
    if let (Some(tls), false) = (&target.tls, scheme.is_empty()) {
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|source| ConnectError::File { path: path.clone(), source })
        };
        let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
        let config = ClientTlsConfig::new()
            .domain_name(host.trim_matches(['[', ']']))
            .ca_certificate(Certificate::from_pem(read(&tls.authority)?))
            .identity(Identity::from_pem(read(&tls.certificate)?, read(&tls.key)?));
        endpoint = endpoint.tls_config(config).map_err(failed)?;
    }
    endpoint.connect().await.map_err(failed)
}
