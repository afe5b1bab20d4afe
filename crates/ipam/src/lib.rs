//! Address management over a datastore: `ipam-core`'s transitions, written by compare-and-swap.
//!
//! [`Ipam`] is what components use: [`Ipam::auto_assign`], [`Ipam::assign_ip`], [`Ipam::release_ips`],
//! [`Ipam::release_by_handle`] and the upkeep of claims on blocks. It speaks only [`datastore::Backend`], so it works the
//! same on etcd, the embedded store and Kubernetes, beside Calico's own nodes.
//!
//! It decides nothing by itself: which pool, which block, which address and what to write is `ipam-core`'s business. It
//! refuses to guess: an entry that cannot be read is an error and never a free address.

mod assign;
mod auto;
mod claims;
mod clock;
mod commit;
mod error;
mod find_block;
mod handles;
mod ipam;
mod lane;
mod machine;
mod records;
mod release;
mod request;
mod specific;
mod store;
mod upkeep;
mod warm;

pub use clock::{Clock, SystemClock};
pub use error::{Error, Result};
pub use ipam::{Ahead, Ipam};
pub use ipam_core::settings::default_config;
pub use machine::machine_handle;
pub use request::{
    AssignIp, Assigned, AutoAssign, Change, EnsureBlock, Expected, IntendedUse, NamespaceLabels, Owner,
    OwnerCheck, OwnerUpdate, PodOwner, Release, Released, Shortfall, WindowsReservation,
};
