//! Address management as pure transitions: records in, changed records or a verdict out.
//!
//! - [`block`]: a block read as addresses and holders, and who owns it.
//! - [`pools`]: which pools a request may use.
//! - [`search`]: in which order a host looks through the blocks of pools, and what it finds.
//! - [`claim`]: how a host becomes the owner of a block and stops being it.
//! - [`mod@take`]: addresses taken, and new blocks.
//! - [`assignment`]: who gets which addresses of which blocks, in which order, within which limits.
//! - [`owner`]: who is recorded as owner of an address.
//! - [`mod@release`]: addresses given back, under the guards of handle and sequence number.
//! - [`cooldown`]: addresses that rest after their release, and the records that nobody refers to any more.
//! - [`handle`]: how many addresses each handle holds.
//! - [`reservation`]: sets of addresses, however large, as ranges.
//! - [`settings`]: the settings that hold without any, and which contradict themselves.
//! - [`retry`]: how often a write is tried, and how long to wait in between.
//! - [`utilisation`]: how full pools and blocks are.
//! - [`structure`]: whether a block contradicts itself, and its repair.
//! - [`garbage`]: which addresses, blocks and nodes nobody uses any more, and why.
//! - [`consistency`]: whether blocks, claims and handles contradict each other, and the safe way back.
//!
//! No IO, no clock, no randomness: time is an argument. Nothing here writes; that is the caller's compare-and-swap loop. Records may come from a datastore that other programs
//! write to, so nothing panics on them and nothing is allocated in proportion to a number that they merely claim.

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

/// Addresses that Windows keeps for itself are under this handle; a block with nothing else counts as empty.
pub const WINDOWS_RESERVED_HANDLE: &str = "windows-reserved-ipam-handle";
