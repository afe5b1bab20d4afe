//! Questions to a BIRD routing daemon over its control socket: its peers, its state, its sessions, its routes.
//!
//! BIRD answers a line of text with lines that begin with a four-digit code, or with a space for more of the same. It
//! refuses to change anything: only `show` commands are ever sent.

mod connection;
mod peers;
mod routes;
mod sessions;
mod status;

pub use peers::{Answer, Peer, peers};
pub use routes::{Route, routes};
pub use sessions::{Session, sessions, type_and_address};
pub use status::{Status, status};

use connection::PATIENCE;
use std::path::{Path, PathBuf};

/// Which addresses a daemon, or a table, is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both, in the order in which they are shown.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// 4 or 6.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::V4 => 4,
            Self::V6 => 6,
        }
    }

    /// What separates the parts of an address. In names of BIRD's protocols it is an underscore.
    #[must_use]
    pub fn separator(self) -> &'static str {
        match self {
            Self::V4 => ".",
            Self::V6 => ":",
        }
    }

    /// The name of this family's daemon.
    #[must_use]
    pub fn daemon(self) -> &'static str {
        match self {
            Self::V4 => "bird",
            Self::V6 => "bird6",
        }
    }

    /// Where the daemon's socket may be: Calico's place first, then a system's own BIRD.
    #[must_use]
    pub fn sockets(self, folders: &[impl AsRef<Path>]) -> Vec<PathBuf> {
        folders.iter().map(|folder| folder.as_ref().join(format!("{}.ctl", self.daemon()))).collect()
    }
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
    /// The answer is not one that we know.
    #[error("{0}")]
    Unknown(String),
}
