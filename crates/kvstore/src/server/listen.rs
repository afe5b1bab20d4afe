//! The server's listeners: TCP and unix sockets, plain or with TLS. A unix socket gets its name only once its
//! permissions admit its owner alone. Only accepts connections; protocols are handled elsewhere.

use std::{fmt, io, path::PathBuf, str::FromStr, sync::Arc};

use rustix::net::sockopt;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
};
use tokio_rustls::TlsAcceptor;

use super::certificate::Tls;

/// An address in the syntax of etcd's flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// `http://host:port` or `https://host:port`.
    Tcp {
        /// Host and port.
        address: String,
        /// Whether it is `https`.
        tls: bool,
    },
    /// `unix:///path` or `unixs:///path`.
    Unix {
        /// The socket.
        path: PathBuf,
        /// Whether it is `unixs`.
        tls: bool,
    },
}

/// Why a text is not an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an address to listen on: {reason}")]
pub struct EndpointError {
    text: String,
    reason: &'static str,
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = |reason| EndpointError { text: text.to_owned(), reason };
        let (scheme, rest) =
            text.split_once("://").ok_or_else(|| bad("it needs http://, https:// or unix://"))?;
        let tls = matches!(scheme, "https" | "unixs");
        match scheme {
            "http" | "https" => {
                let address = rest.trim_end_matches('/');
                let port = address.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
                match port {
                    Some(Ok(_)) if !address.contains('/') => {
                        Ok(Self::Tcp { address: address.to_owned(), tls })
                    }
                    _ => Err(bad("it needs a host and a port, and no path")),
                }
            }
            "unix" | "unixs" if rest.is_empty() => Err(bad("it needs a path")),
            "unix" | "unixs" => Ok(Self::Unix { path: rest.into(), tls }),
            _ => Err(bad("it needs http://, https:// or unix://")),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { address, tls } => write!(f, "http{}://{address}", if *tls { "s" } else { "" }),
            Self::Unix { path, tls } => write!(f, "unix{}://{}", if *tls { "s" } else { "" }, path.display()),
        }
    }
}

/// A connection of any kind.
pub(super) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// A bound endpoint.
pub(super) struct Listener {
    socket: Socket,
    tls: Option<Arc<Tls>>,
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    pub(super) async fn bind(endpoint: &Endpoint, certificates: Option<&Arc<Tls>>) -> io::Result<Self> {
        let (socket, tls) = match endpoint {
            Endpoint::Tcp { address, tls } => (Socket::Tcp(TcpListener::bind(address).await?), *tls),
            Endpoint::Unix { path, tls } => {
                (Socket::Unix(daemon::sockets::listen(path, 0o600)?, path.clone()), *tls)
            }
        };
        let missing = || io::Error::other("it needs --cert-file and --key-file");
        let tls = if tls { Some(certificates.cloned().ok_or_else(missing)?) } else { None };
        Ok(Self { socket, tls })
    }

    /// The address it is bound to, with the port that the system chose.
    pub(super) fn endpoint(&self) -> io::Result<Endpoint> {
        let tls = self.tls.is_some();
        Ok(match &self.socket {
            Socket::Tcp(listener) => Endpoint::Tcp { address: listener.local_addr()?.to_string(), tls },
            Socket::Unix(_, path) => Endpoint::Unix { path: path.clone(), tls },
        })
    }

    pub(super) async fn accept(&self) -> io::Result<(Box<dyn Connection>, Option<TlsAcceptor>)> {
        let connection: Box<dyn Connection> = match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                keep_alive(&stream)?;
                Box::new(stream)
            }
            Socket::Unix(listener, _) => Box::new(listener.accept().await?.0),
        };
        let acceptor = self.tls.as_ref().map(|tls| tls.acceptor()).transpose().map_err(io::Error::other)?;
        Ok((connection, acceptor))
    }
}

/// Enables TCP keepalive, so that the system detects that the peer is gone, as Go does for etcd; HTTP/2 pings would
/// cost something
/// with each frame.
fn keep_alive(stream: &tokio::net::TcpStream) -> io::Result<()> {
    const PAUSE: std::time::Duration = std::time::Duration::from_secs(15);
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PAUSE)?;
    sockopt::set_tcp_keepintvl(stream, PAUSE)?;
    Ok(sockopt::set_tcp_keepcnt(stream, 9)?)
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Socket::Unix(_, path) = &self.socket {
            // Another process may have removed it already.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_parse_like_etcds() {
        for (text, same) in [
            ("http://127.0.0.1:2379", true),
            ("https://[::1]:1", true),
            ("unix:///run/x.sock", true),
            ("unixs://relative", true),
            ("http://localhost:2379/", false),
        ] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint.to_string() == text, same, "{text}");
        }
        for text in
            ["127.0.0.1:2379", "http://127.0.0.1", "http://a:b", "http://a:1/x", "unix://", "ftp://a:1"]
        {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }
}
