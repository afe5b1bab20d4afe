//! Garbage collection of addresses: what `ipam_core::garbage` proposes, carried out after a second look.
//!
//! - [`facts`]: what the caches say about pods, nodes and machines.
//! - [`machines`]: KubeVirt's kinds, where a cluster has them.
//! - [`state`]: everything that is remembered, and how events change it.
//! - [`live`]: the second look, at the API itself.
//! - [`run`]: when to look, and the order in which verdicts are carried out.
//! - [`figures`]: Prometheus figures with Calico's names.
//!
//! An address is released only when the live API confirms that its holder is gone, and then under the guards of handle and
//! sequence number, so that an address that was given to somebody else in the meantime stays theirs. It refuses to work
//! before every cache is complete, and while the datastore is locked.

pub(crate) mod facts;
pub(crate) mod figures;
pub(crate) mod live;
pub(crate) mod machines;
pub(crate) mod run;
pub(crate) mod state;

pub use run::IpamGc;
