//! What can go wrong between us and the kernel, with the operation and its object in the text.

use rustix::io::Errno;

/// A result of a netlink operation.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The kernel refused.
    #[error("cannot {what}: {}{}", reason(*.errno), detail(.message))]
    Refused {
        /// The operation and its object, such as `add route 10.0.0.1/32 dev cali1`.
        what: String,
        /// Its reason.
        errno: Errno,
        /// Its own words, where it has any.
        message: String,
    },
    /// The socket failed.
    #[error("netlink socket: cannot {what}: {}", reason(*.errno))]
    Socket {
        /// What was attempted.
        what: String,
        /// Why it failed.
        errno: Errno,
    },
    /// An answer that makes no sense.
    #[error("the kernel's answer to '{what}' cannot be read: {reason}")]
    Unreadable {
        /// What was asked.
        what: String,
        /// What is wrong with the answer.
        reason: String,
    },
    /// A dump that never came through undisturbed.
    #[error(
        "cannot {what}: the kernel's tables changed during every one of {attempts} attempts to read them"
    )]
    Restless {
        /// What was asked.
        what: String,
        /// How often.
        attempts: usize,
    },
}

impl Error {
    /// The kernel's reason, where it gave one.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refused { errno, .. } | Self::Socket { errno, .. } => Some(*errno),
            Self::Unreadable { .. } | Self::Restless { .. } => None,
        }
    }

    /// Whether the object is there already.
    #[must_use]
    pub fn is_exists(&self) -> bool {
        self.errno() == Some(Errno::EXIST)
    }

    /// Whether the object, or the device it belongs to, is not there.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(
            self.errno(),
            Some(Errno::NOENT | Errno::NODEV | Errno::SRCH | Errno::NXIO | Errno::ADDRNOTAVAIL)
        )
    }

    /// Whether the kernel does not know this kind of thing.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(self.errno(), Some(Errno::OPNOTSUPP | Errno::AFNOSUPPORT | Errno::PROTONOSUPPORT))
    }

    pub(crate) fn socket(what: &str, error: &std::io::Error) -> Self {
        Self::Socket { what: what.to_owned(), errno: Errno::from_io_error(error).unwrap_or(Errno::IO) }
    }
}

fn reason(errno: Errno) -> String {
    std::io::Error::from(errno).to_string()
}

fn detail(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(" ({message})") }
}
