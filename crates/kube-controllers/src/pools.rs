//! Book-keeping about IP pools and tiers, where Calico's resources are `projectcalico.org/v3` custom resources.
//!
//! - [`pool`]: IP pools: which of several that overlap is open, and deletion that waits for the last block.
//! - [`tier`]: tiers: deletion that waits for the last policy.
//! - [`objects`]: finalizers and conditions, written to exactly the version that was read.
//!
//! In the classic group, and behind Calico's API server, others do this; then there are no such controllers.

pub(crate) mod objects;
pub(crate) mod pool;
pub(crate) mod pool_plan;
pub(crate) mod tier;

pub use pool::PoolController;
pub use tier::TierController;

/// Where these resources are.
pub(crate) const PREFIX: &str = "/apis/projectcalico.org/v3";
