//! Bookkeeping for IP pools and tiers, if Calico's resources are `projectcalico.org/v3` custom resources.
//!
//! - [`pool`]: IP pools: which of several overlapping ones is open, and deletion that waits for the last block.
//! - [`tier`]: tiers: deletion that waits for the last policy.
//! - [`objects`]: finalizers and conditions, written to exactly the version that was read.
//!
//! In the classic group, and behind Calico's API server, other components do this, so these controllers do not run.

pub(crate) mod objects;
pub(crate) mod pool;
pub(crate) mod pool_plan;
pub(crate) mod tier;

pub use pool::PoolController;
pub use tier::TierController;

/// The API path of these resources.
pub(crate) const PREFIX: &str = "/apis/projectcalico.org/v3";
