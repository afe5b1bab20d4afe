//! Garbage collection of addresses: carries out the proposals of `ipam_core::garbage`, after checking them again.
//!
//! - [`facts`]: the state of pods, nodes and machines in the caches.
//! - [`machines`]: KubeVirt's kinds, if a cluster has them.
//! - [`state`]: everything that is remembered, and how events change it.
//! - [`live`]: the second check, against the API itself.
//! - [`run`]: when to check, and the order in which verdicts are carried out.
//! - [`figures`]: Prometheus figures with Calico's names.
//!
//! An address is released only when the live API confirms that its holder is gone, and then guarded by handle and
//! sequence number, so that an address that was reassigned in the meantime is not released. Nothing is collected before
//! every cache is complete, or while the datastore is locked.

pub(crate) mod facts;
pub(crate) mod figures;
pub(crate) mod live;
pub(crate) mod machines;
pub(crate) mod run;
pub(crate) mod state;

pub use run::IpamGc;
