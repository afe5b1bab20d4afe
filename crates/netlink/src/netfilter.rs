//! Netfilter over netlink: nftables tables, IP sets, and the connection table.
//!
//! - [`nft`]: tables, chains, rules, sets and maps as values; one transaction for many changes; dumps of one table.
//! - [`ipset`]: sets of the `ip_set` subsystem, which iptables rules name.
//! - [`conntrack`]: forgetting the connections of an address; reading what there are, and hearing of their ends.
//! - [`nflog`]: packets that rules report; [`packet`]: what their beginnings say.
//! - [`watch`]: who else changes our tables.
//!
//! Like the rest of this crate it blocks, decides nothing and retries no refusal. No program is started. What a refusal
//! means for the objects beside it is for drivers to decide; here each message has its own answer.

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

/// The kernel's no to one message: an error number, which may be one of the `ip_set` subsystem's own, and its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The error number, positive.
    pub code: i32,
    /// The kernel's own words, where it has any.
    pub message: String,
}

impl Refusal {
    /// `ENOENT`: what was named is not there.
    pub const NOT_FOUND: i32 = 2;
    /// `EBUSY`: something still refers to it.
    pub const BUSY: i32 = 16;
    /// `EEXIST`: it is there already.
    pub const EXISTS: i32 = 17;
    /// `EINVAL`: the kernel does not accept such a thing.
    pub const INVALID: i32 = 22;
    /// `EOPNOTSUPP`: the kernel was built without it.
    pub const UNSUPPORTED: i32 = 95;
    /// `ESRCH`.
    const NO_SUCH: i32 = 3;

    /// A refusal without words.
    #[must_use]
    pub fn new(code: i32) -> Self {
        Self { code, message: String::new() }
    }

    /// Whether what was named is not there.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self.code, Self::NOT_FOUND | Self::NO_SUCH)
    }

    /// Whether the refusal has nothing to do with what was asked (memory, permission, interruption), so that the same may be
    /// taken some time later.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        // `EPERM`, `EINTR`, `EAGAIN`, `ENOMEM`, `EACCES`, `ERESTART`, `ENOBUFS`
        [1, 4, 11, 12, 13, 85, 105].contains(&self.code)
    }

    /// Whether something still refers to it.
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

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The kernel refused.
    #[error("cannot {what}: {refusal}")]
    Refused {
        /// What was attempted.
        what: String,
        /// The kernel's number and words.
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
    /// The kernel's refusal, where there is one.
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
