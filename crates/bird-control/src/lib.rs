//! Both ends of a BIRD routing daemon's control socket: questions about its peers, its state, its sessions and its routes,
//! and [`server`], which answers as a BIRD does.
//!
//! BIRD answers a line of text with lines that begin with a four-digit code, or with a space for more of the same. It
//! refuses to change anything: only `show` commands are answered, and beside those only [`reload`] is ever asked of a BIRD.

mod connection;
mod peers;
mod reload;
mod routes;
pub mod server;
mod sessions;
mod status;

pub use peers::{Answer, Peer, peers};
pub use reload::reload;
pub use routes::{Route, routes};
pub use sessions::{Session, sessions, type_and_address};
pub use status::{Status, status};

use connection::PATIENCE;
use model::IpVersion;
use std::path::{Path, PathBuf};

/// What separates the parts of an address. In names of BIRD's protocols it is an underscore.
pub(crate) fn separator(version: IpVersion) -> &'static str {
    match version {
        IpVersion::V4 => ".",
        IpVersion::V6 => ":",
    }
}

/// The name of the daemon for this version of IP.
#[must_use]
pub fn daemon(version: IpVersion) -> &'static str {
    match version {
        IpVersion::V4 => "bird",
        IpVersion::V6 => "bird6",
    }
}

/// Where the daemon's socket may be: Calico's place first, then a system's own BIRD.
#[must_use]
pub fn sockets(version: IpVersion, folders: &[impl AsRef<Path>]) -> Vec<PathBuf> {
    folders.iter().map(|folder| folder.as_ref().join(format!("{}.ctl", daemon(version)))).collect()
}

/// The folders that may hold BIRD's sockets.
pub const SOCKET_FOLDERS: [&str; 2] = ["/var/run/calico", "/var/run/bird"];

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum BirdError {
    /// There is no BIRD at any of the sockets.
    #[error("unable to connect to BIRDv{family} socket: {reason}")]
    NotThere {
        /// 4 or 6.
        family: u8,
        /// What the system said about the last socket.
        reason: String,
    },
    /// The question could not be asked.
    #[error("unable to write to BIRD socket: {0}")]
    Write(std::io::Error),
    /// The answer could not be read.
    #[error("{0}")]
    Read(std::io::Error),
    /// No answer in time.
    #[error("no answer from BIRD within {} s", PATIENCE.as_secs())]
    Late,
    /// BIRD does not do it.
    #[error("BIRD refused '{command}': {line}")]
    Refused {
        /// What it was asked for.
        command: String,
        /// Its own words, with their code.
        line: String,
    },
    /// The answer is not one that we know.
    #[error("{0}")]
    Unknown(String),
}
