//! The certificate of a server and what it asks of clients, from PEM files that are read again when they change.
//!
//! [`Renewing`] gives the acceptor for the next handshake. Where the changed files cannot be used it says so; whether the
//! door closes then, or the last usable certificate stays, is the server's choice; [`TlsLimits`] says which versions and suites
//! are spoken. It refuses to serve in the clear.

mod any_certificate;
mod files;
mod limits;
mod renewing;

pub use files::{TlsError, TlsFiles};
pub use limits::{ReadLimits, TlsLimits};
pub use renewing::Renewing;
pub use settings::ClientAuth;
