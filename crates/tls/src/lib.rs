//! The certificate of a server and its demands on clients, from PEM files that are read again when they change.
//!
//! [`Renewing`] supplies the acceptor for the next handshake. It reports changed files that cannot be used; whether the
//! server then rejects clients or keeps the last usable certificate is the server's choice. [`TlsLimits`] restricts
//! versions and suites. [`Door`] accepts connections for servers that speak HTTP/2 or HTTP/1. It never serves in the
//! clear if files are configured.

mod any_certificate;
mod door;
mod files;
mod limits;
mod renewing;
mod stream;

pub use door::Door;
pub use files::{TlsError, TlsFiles};
pub use limits::{ReadLimits, TlsLimits};
pub use renewing::Renewing;
pub use settings::ClientAuth;
pub use stream::Stream;
