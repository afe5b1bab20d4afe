//! Netfilter over netlink: nftables tables, IP sets, and the connection table.
//!
//! - [`nft`]: tables, chains, rules, sets and maps as values; one transaction for many changes; dumps of one table.
//! - [`ipset`]: sets of the `ip_set` subsystem, which iptables rules name.
//! - [`conntrack`]: removing the connections of an address; reading the table, and receiving its events.
//! - [`nflog`]: packets that rules report; [`packet`]: parsing the start of a packet.
//! - [`watch`]: changes of our tables by other programs.
//!
//! Like the rest of this crate it blocks, makes no decisions, does not retry refusals and starts no programs. Drivers
//! decide what a refusal means for the objects beside it; here each message has its own answer.

pub mod conntrack;
pub mod ipset;
pub mod nflog;
pub mod nft;
pub mod packet;
pub mod socket;
pub mod watch;

pub use crate::datagram::Request;
pub use socket::{Batch, BatchRefused, Socket};

use std::fmt;

/// Subsystems of netfilter, the upper byte of a message's type.
pub(crate) const CONNTRACK: u16 = 1;
pub(crate) const IPSET: u16 = 6;
pub(crate) const NFTABLES: u16 = 10;

/// The header that every netfilter message begins with: family, version 0, and a resource of the subsystem.
pub(crate) const fn header(family: u8, resource: u16) -> [u8; 4] {
    let [high, low] = resource.to_be_bytes();
    [family, 0, high, low]
}

/// The kernel's refusal of one message: an error number, possibly one of the `ip_set` subsystem's own, and an
/// explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The error number, positive.
    pub code: i32,
    /// The kernel's explanation; empty where it gives none.
    pub message: String,
}

impl Refusal {
    /// `ENOENT`: the named object does not exist.
    pub const NOT_FOUND: i32 = 2;
    /// `EBUSY`: the object is still referenced.
    pub const BUSY: i32 = 16;
    /// `EEXIST`: the object exists already.
    pub const EXISTS: i32 = 17;
    /// `EINVAL`: the kernel does not accept such an object.
    pub const INVALID: i32 = 22;
    /// `EOPNOTSUPP`: the kernel was built without this feature.
    pub const UNSUPPORTED: i32 = 95;
    /// `ESRCH`.
    const NO_SUCH: i32 = 3;

    /// A refusal without an explanation.
    #[must_use]
    pub fn new(code: i32) -> Self {
        Self { code, message: String::new() }
    }

    /// Whether the named object does not exist.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self.code, Self::NOT_FOUND | Self::NO_SUCH)
    }

    /// Whether the refusal has nothing to do with the request (memory, permission, interruption), so that the same
    /// request may be accepted later.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        // `EPERM`, `EINTR`, `EAGAIN`, `ENOMEM`, `EACCES`, `ERESTART`, `ENOBUFS`
        [1, 4, 11, 12, 13, 85, 105].contains(&self.code)
    }

    /// Whether the object is still referenced.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self.code, Self::BUSY | ipset::ERROR_BUSY | ipset::ERROR_REFERENCED)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match ipset::reason(self.code) {
            Some(reason) => f.write_str(reason)?,
            None => std::io::Error::from_raw_os_error(self.code).fmt(f)?,
        }
        if self.message.is_empty() { Ok(()) } else { write!(f, " ({})", self.message) }
    }
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The kernel refused.
    #[error("cannot {what}: {refusal}")]
    Refused {
        /// What was attempted.
        what: String,
        /// The kernel's error number and explanation.
        refusal: Refusal,
    },
    /// The socket failed.
    #[error("netfilter socket: cannot {what}: {reason}")]
    Socket {
        /// What was attempted.
        what: String,
        /// The reason, in one sentence.
        reason: String,
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
    /// The kernel's refusal, if there is one.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused { refusal, .. } => Some(refusal),
            Self::Socket { .. } | Self::Unreadable { .. } | Self::Restless { .. } => None,
        }
    }

    pub(crate) fn socket(what: &str, error: &std::io::Error) -> Self {
        Self::Socket { what: what.to_owned(), reason: error.to_string() }
    }
}

/// A result of a netfilter operation.
pub type Result<T> = std::result::Result<T, Error>;
