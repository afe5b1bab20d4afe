//! Address management as pure transitions: takes records, returns changed records or a verdict.
//!
//! - [`block`]: a view of a block as addresses and holders, and its owner.
//! - [`pools`]: the pools that a request may use.
//! - [`search`]: the order in which a host searches the blocks of pools, and what it finds.
//! - [`claim`]: how a host becomes the owner of a block and gives it up.
//! - [`mod@take`]: taking addresses, and new blocks.
//! - [`assignment`]: the distribution of addresses: from which blocks, in which order, within which limits.
//! - [`owner`]: the recorded owner of an address.
//! - [`mod@release`]: releasing addresses, under the guards of handle and sequence number.
//! - [`cooldown`]: addresses that rest after their release, and unreferenced attributes.
//! - [`handle`]: how many addresses each handle holds.
//! - [`reservation`]: sets of addresses, however large, as ranges.
//! - [`settings`]: the default settings, and contradictory ones.
//! - [`retry`]: how often a write is attempted, and the pauses in between.
//! - [`utilisation`]: the utilisation of pools and blocks.
//! - [`structure`]: contradictions within a block, and their repair.
//! - [`garbage`]: addresses, blocks and nodes that are no longer used, and why.
//! - [`consistency`]: contradictions between blocks, claims and handles, and the safe repairs.
//!
//! No IO, no clock, no randomness: time is an argument. Nothing here writes; that is the caller's compare-and-swap
//! loop. Records may come from a datastore that other programs write to, so no record causes a panic, and no allocation
//! is proportional to a number that a record merely claims.

pub mod address;
pub mod assignment;
pub mod block;
pub mod claim;
pub mod consistency;
pub mod cooldown;
pub mod garbage;
pub mod handle;
pub mod owner;
pub mod pools;
pub mod release;
pub mod reservation;
pub mod retry;
pub mod search;
pub mod settings;
pub mod structure;
pub mod take;
pub mod utilisation;

pub use block::{Allocation, Block, Owner};
pub use consistency::{Records, Repair};
pub use owner::{OwnerCheck, OwnerRefused, OwnerUpdate, PodOwner};
pub use pools::{IntendedUse, NamespaceLabels, NoPool, Pool};
pub use release::{Release, ReleaseRefused, Released, release, release_handle};
pub use reservation::AddressSet;
pub use take::{Holder, HostReserved, TakeRefused};
pub use utilisation::{BlockUsage, PoolUsage, utilisation};

/// The handle of the addresses that Windows reserves; a block with nothing else counts as empty.
pub const WINDOWS_RESERVED_HANDLE: &str = "windows-reserved-ipam-handle";
