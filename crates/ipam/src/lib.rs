//! Address management over a datastore: `ipam-core`'s transitions, written by compare-and-swap.
//!
//! [`Ipam`] is the API for components: [`Ipam::auto_assign`], [`Ipam::assign_ip`], [`Ipam::release_ips`],
//! [`Ipam::release_by_handle`] and the upkeep of claims on blocks. It uses only [`datastore::Backend`], so it works the
//! same on etcd, the embedded store and Kubernetes, alongside Calico's own nodes.
//!
//! It makes no decisions: `ipam-core` decides on pool, block, address and writes. It does not guess: an entry that
//! cannot be read is an error and never a free address.

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
