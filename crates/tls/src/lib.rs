//! The certificate of a server and what it asks of clients, from PEM files that are read again when they change.
//!
//! [`Renewing`] gives the acceptor for the next handshake. Where the changed files cannot be used it says so; whether the
//! door closes then, or the last usable certificate stays, is the server's choice; [`TlsLimits`] says which versions and suites
//! are spoken. [`Door`] takes connections with them, for servers that speak HTTP/2 or HTTP/1 behind it. It refuses to serve in
//! the clear where there are files.

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
