//! The errors of address management, in Calico's classes and wording.

use crate::IntendedUse;
use ipam_core::claim::KeepRefused;
use ipam_core::{NoPool, ReleaseRefused, TakeRefused};
use ipnet::IpNet;
use model::HandleId;
use std::net::IpAddr;
use std::sync::Arc;

/// A result of address management.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of address management.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The datastore failed.
    #[error(transparent)]
    Datastore(#[from] datastore::Error),
    /// The handle, block or allocation does not exist.
    #[error("resource does not exist: {what}{}", because(.reason))]
    DoesNotExist {
        /// What is missing.
        what: String,
        /// An explanation, or empty.
        reason: String,
    },
    /// A release that is based on an outdated state.
    #[error(transparent)]
    ReleaseRefused(#[from] ReleaseRefused),
    /// A change of owner that is based on an outdated state, or concerns an address of another owner.
    #[error(transparent)]
    OwnerRefused(#[from] ipam_core::OwnerRefused),
    /// No pool can be used.
    #[error(transparent)]
    NoPool(#[from] NoPool),
    /// The address is in a pool that may not be used for this.
    #[error(
        "IP address {address} is in IP pool \"{pool}\", which is not allowed for use \"{intended_use}\" (allowedUses: [{allowed}])"
    )]
    UseNotAllowed {
        /// The address.
        address: IpAddr,
        /// Its pool.
        pool: String,
        /// The use that was requested.
        intended_use: IntendedUse,
        /// The uses that the pool allows, separated by blanks.
        allowed: String,
    },
    /// The address is in no pool that assigns addresses.
    #[error("The provided IP address is not in a configured pool\n")]
    NotInPool(IpAddr),
    /// The range is in no pool that assigns addresses.
    #[error("The requested CIDR ({0}) is not within any configured pools.")]
    RangeNotInPool(IpNet),
    /// The range is smaller than a block.
    #[error("The requested CIDR ({0}) is smaller than the minimum.")]
    RangeTooSmall(IpNet),
    /// The host may not own more blocks.
    #[error("cannot allocate new block due to per host block limit")]
    BlockLimit,
    /// There is no free block, and none could be reclaimed.
    #[error("No Free Blocks")]
    NoFreeBlocks,
    /// Nodes may not allocate blocks by themselves.
    #[error("failed to find or claim a block")]
    NoBlock,
    /// An address was not taken.
    #[error(transparent)]
    TakeRefused(#[from] TakeRefused),
    /// A claim on a block was not given up.
    #[error(transparent)]
    KeepRefused(#[from] KeepRefused),
    /// Another owner has the block of this address.
    #[error("{0} already claimed")]
    BlockClaimed(IpNet),
    /// The handle already has as many addresses as it may have.
    #[error("handle {handle} already has {count} allocation(s), cannot allocate more (maxAlloc={limit})")]
    HandleFull {
        /// The handle.
        handle: HandleId,
        /// How many addresses it has.
        count: i64,
        /// How many addresses it may have.
        limit: usize,
    },
    /// The handle has a different address, and may not have more.
    #[error(
        "handle {handle} already has IP(s) allocated, cannot assign additional IP {address} (maxAllocPerIPVersion={limit})"
    )]
    HandleHasOtherAddress {
        /// The handle.
        handle: HandleId,
        /// The requested address.
        address: IpAddr,
        /// How many addresses it may have.
        limit: usize,
    },
    /// The range to keep free does not fit into any block.
    #[error("HostReservedAttr has wrong parameters")]
    BadHostReserved,
    /// The settings contradict each other.
    #[error("{0}")]
    BadConfig(&'static str),
    /// An entry that the answer depends on cannot be read.
    #[error("{what} cannot be read: {key}: {reason}")]
    Unreadable {
        /// The kind of entry.
        what: &'static str,
        /// The key of the entry.
        key: String,
        /// What is wrong.
        reason: String,
    },
    /// It is unknown whether an address is free.
    #[error("the block of {address} cannot be read: {key}: {reason}")]
    UnreadableBlock {
        /// The address.
        address: IpAddr,
        /// The key of the block.
        key: String,
        /// What is wrong.
        reason: String,
    },
    /// The operation kept losing against concurrent writes.
    #[error("{0}")]
    TooManyAttempts(&'static str),
    /// A request of this process that wrote on behalf of this one, too, has failed.
    #[error(transparent)]
    Shared(Arc<Error>),
}

/// The error after a hundred attempts.
pub(crate) const TOO_MANY_ATTEMPTS: Error =
    Error::TooManyAttempts("Max retries hit - excessive concurrent IPAM requests");

fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(" with error: {reason}") }
}

impl Error {
    pub(crate) fn does_not_exist(what: &dyn ToString, reason: &str) -> Self {
        Self::DoesNotExist { what: what.to_string(), reason: reason.to_owned() }
    }

    /// Whether the requested object does not exist.
    #[must_use]
    pub fn is_does_not_exist(&self) -> bool {
        match self {
            Self::DoesNotExist { .. } => true,
            Self::Datastore(error) => error.is_does_not_exist(),
            Self::Shared(error) => error.is_does_not_exist(),
            Self::OwnerRefused(refused) => refused.is_not_assigned(),
            _ => false,
        }
    }

    /// Whether the address is taken.
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        match self {
            Self::TakeRefused(TakeRefused::AlreadyAssigned(_)) => true,
            Self::Datastore(error) => error.is_already_exists(),
            Self::Shared(error) => error.is_already_exists(),
            _ => false,
        }
    }

    /// Whether the caller, or a write, was based on an older state.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        match self {
            Self::Datastore(error) => error.is_conflict(),
            Self::Shared(error) => error.is_conflict(),
            Self::ReleaseRefused(refused) => !matches!(refused, ReleaseRefused::NotInBlock { .. }),
            Self::OwnerRefused(refused) => refused.is_conflict(),
            _ => false,
        }
    }

    /// Whether the same call may succeed later without any change.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Datastore(error) => error.is_transient(),
            Self::Shared(error) => error.is_transient(),
            Self::TooManyAttempts(_) => true,
            _ => false,
        }
    }
}

/// For the typed client, whose errors are the datastore's.
impl From<Error> for datastore::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Datastore(error) => error,
            error if error.is_transient() => Self::transient("address management", error),
            error => Self::permanent("address management", error),
        }
    }
}
