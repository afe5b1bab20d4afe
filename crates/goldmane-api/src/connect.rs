//! A connection to a Goldmane, ours or Calico's.

use std::path::PathBuf;
use std::time::Duration;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

/// How long connecting may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection may be silent before it is probed, and how long the probe may remain unanswered.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// The address of a server, and how to connect to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// `host:port`, or `unix://` followed by the path of a socket.
    pub address: String,
    /// The files for TLS; without them the connection is not encrypted.
    pub tls: Option<TlsPaths>,
}

/// PEM files, read again for every connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsPaths {
    /// The certificate authority of servers.
    pub authority: PathBuf,
    /// Our certificate.
    pub certificate: PathBuf,
    /// The key of our certificate.
    pub key: PathBuf,
}

/// Why no connection could be established.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The server cannot be reached.
    #[error("cannot connect to {address}: {}", daemon::causes(source))]
    Transport {
        /// The server's address.
        address: String,
        /// The transport's error.
        source: tonic::transport::Error,
    },
}

/// Connects to a server.
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
