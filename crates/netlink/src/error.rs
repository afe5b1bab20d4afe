//! Errors of netlink operations; their text names the operation and its object.

use rustix::io::Errno;

/// A result of a netlink operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The kernel refused.
    #[error("cannot {what}: {}{}", reason(*.errno), detail(.message))]
    Refused {
        /// The operation and its object, such as `add route 10.0.0.1/32 dev cali1`.
        what: String,
        /// The kernel's error number.
        errno: Errno,
        /// The kernel's explanation; empty where it gives none.
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
    /// An answer that cannot be decoded.
    #[error("the kernel's answer to '{what}' cannot be read: {reason}")]
    Unreadable {
        /// What was requested.
        what: String,
        /// What is wrong with the answer.
        reason: String,
    },
    /// A dump that was disturbed in every attempt.
    #[error(
        "cannot {what}: the kernel's tables changed during every one of {attempts} attempts to read them"
    )]
    Restless {
        /// What was requested.
        what: String,
        /// The number of attempts.
        attempts: usize,
    },
}

impl Error {
    /// The kernel's error number, if it gave one.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refused { errno, .. } | Self::Socket { errno, .. } => Some(*errno),
            Self::Unreadable { .. } | Self::Restless { .. } => None,
        }
    }

    /// Whether the object exists already.
    #[must_use]
    pub fn is_exists(&self) -> bool {
        self.errno() == Some(Errno::EXIST)
    }

    /// Whether the object, or the device it belongs to, does not exist.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(
            self.errno(),
            Some(Errno::NOENT | Errno::NODEV | Errno::SRCH | Errno::NXIO | Errno::ADDRNOTAVAIL)
        )
    }

    /// Whether the kernel does not support this kind of object or operation.
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
