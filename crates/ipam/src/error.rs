//! What can go wrong with address management, in Calico's classes and wording.

use crate::IntendedUse;
use ipam_core::claim::KeepRefused;
use ipam_core::{NoPool, ReleaseRefused, TakeRefused};
use ipnet::IpNet;
use model::HandleId;
use std::net::IpAddr;
use std::sync::Arc;

/// A result of address management.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The datastore failed.
    #[error(transparent)]
    Datastore(#[from] datastore::Error),
    /// There is no such handle, block or allocation.
    #[error("resource does not exist: {what}{}", because(.reason))]
    DoesNotExist {
        /// What is missing.
        what: String,
        /// More, where there is more to say.
        reason: String,
    },
    /// A release by somebody who knows an older state.
    #[error(transparent)]
    ReleaseRefused(#[from] ReleaseRefused),
    /// A change of owner by somebody who knows an older state, or of an address of somebody else.
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
        /// What was asked for.
        intended_use: IntendedUse,
        /// What the pool allows, separated by blanks.
        allowed: String,
    },
    /// The address is in no pool that gives out addresses.
    #[error("The provided IP address is not in a configured pool\n")]
    NotInPool(IpAddr),
    /// The range is in no pool that gives out addresses.
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
    /// Nodes may not take blocks by themselves.
    #[error("failed to find or claim a block")]
    NoBlock,
    /// An address was not taken.
    #[error(transparent)]
    TakeRefused(#[from] TakeRefused),
    /// A claim on a block was not given up.
    #[error(transparent)]
    KeepRefused(#[from] KeepRefused),
    /// Somebody else has the block that this address lies in.
    #[error("{0} already claimed")]
    BlockClaimed(IpNet),
    /// The handle has as many addresses as it may have.
    #[error("handle {handle} already has {count} allocation(s), cannot allocate more (maxAlloc={limit})")]
    HandleFull {
        /// The handle.
        handle: HandleId,
        /// How many it has.
        count: i64,
        /// How many it may have.
        limit: usize,
    },
    /// The handle has another address, and may have no more.
    #[error(
        "handle {handle} already has IP(s) allocated, cannot assign additional IP {address} (maxAllocPerIPVersion={limit})"
    )]
    HandleHasOtherAddress {
        /// The handle.
        handle: HandleId,
        /// The address that was asked for.
        address: IpAddr,
        /// How many it may have.
        limit: usize,
    },
    /// What is to be kept free does not fit into any block.
    #[error("HostReservedAttr has wrong parameters")]
    BadHostReserved,
    /// The settings contradict themselves.
    #[error("{0}")]
    BadConfig(&'static str),
    /// An entry that the answer depends on cannot be read.
    #[error("{what} cannot be read: {key}: {reason}")]
    Unreadable {
        /// What kind of entry.
        what: &'static str,
        /// The key of the object that the call was about.
        key: String,
        /// What is wrong.
        reason: String,
    },
    /// Whether an address is free is not known.
    #[error("the block of {address} cannot be read: {key}: {reason}")]
    UnreadableBlock {
        /// The address.
        address: IpAddr,
        /// The block.
        key: String,
        /// What is wrong.
        reason: String,
    },
    /// Others were faster, again and again.
    #[error("{0}")]
    TooManyAttempts(&'static str),
    /// Another request of this process wrote for this one too, and failed.
    #[error(transparent)]
    Shared(Arc<Error>),
}

/// What is said after a hundred attempts.
pub(crate) const TOO_MANY_ATTEMPTS: Error =
    Error::TooManyAttempts("Max retries hit - excessive concurrent IPAM requests");

fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(" with error: {reason}") }
}

impl Error {
    pub(crate) fn does_not_exist(what: &dyn ToString, reason: &str) -> Self {
        Self::DoesNotExist { what: what.to_string(), reason: reason.to_owned() }
    }

    /// Whether what was asked about is not there.
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
