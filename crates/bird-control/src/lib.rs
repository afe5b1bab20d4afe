//! Both ends of a BIRD routing daemon's control socket: queries of its peers, its state, its sessions and its routes,
//! and [`server`], which answers like a BIRD.
//!
//! BIRD answers a line of text with lines that begin with a four-digit code, or with a space if the code is repeated.
//! Does not change anything: the server only answers `show` commands, and the only other command sent to a BIRD is
//! [`reload`].

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

/// The separator between the parts of an address. In names of BIRD's protocols it is replaced by an underscore.
pub(crate) fn separator(version: IpVersion) -> &'static str {
    match version {
        IpVersion::V4 => ".",
        IpVersion::V6 => ":",
    }
}

/// The daemon's name for this IP version.
#[must_use]
pub fn daemon(version: IpVersion) -> &'static str {
    match version {
        IpVersion::V4 => "bird",
        IpVersion::V6 => "bird6",
    }
}

/// The possible paths of the daemon's socket: Calico's first, then that of a system's own BIRD.
#[must_use]
pub fn sockets(version: IpVersion, folders: &[impl AsRef<Path>]) -> Vec<PathBuf> {
    folders.iter().map(|folder| folder.as_ref().join(format!("{}.ctl", daemon(version)))).collect()
}

/// The folders that may contain BIRD's sockets.
pub const SOCKET_FOLDERS: [&str; 2] = ["/var/run/calico", "/var/run/bird"];

/// Why a query failed.
#[derive(Debug, thiserror::Error)]
pub enum BirdError {
    /// There is no BIRD at any of the sockets.
    #[error("unable to connect to BIRDv{family} socket: {reason}")]
    NotThere {
        /// 4 or 6.
        family: u8,
        /// The system's error for the last socket.
        reason: String,
    },
    /// The command could not be sent.
    #[error("unable to write to BIRD socket: {0}")]
    Write(std::io::Error),
    /// The answer could not be read.
    #[error("{0}")]
    Read(std::io::Error),
    /// No answer arrived in time.
    #[error("no answer from BIRD within {} s", PATIENCE.as_secs())]
    Late,
    /// BIRD refused the command.
    #[error("BIRD refused '{command}': {line}")]
    Refused {
        /// The command.
        command: String,
        /// BIRD's own words, with their code.
        line: String,
    },
    /// The answer has an unknown format.
    #[error("{0}")]
    Unknown(String),
}
