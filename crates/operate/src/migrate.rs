//! `tortie migrate from-calico`: replaces the images of a running Calico with ours, one node at a time, and back.
//!
//! ```text
//! facts ─► plan ─► refusals, or steps: definitions ─► controllers ─► images of the nodes, updated on deletion only
//!                                      ─► one pod after the other, each waited for ─► Typha ─► the old update strategy
//! ```
//!
//! Nothing is drained and no pod changes its address: data, names on the host and kernel state are shared. The previous
//! images are kept in annotations, which `--back` reads. The plan is computed from the current state, so that an
//! interrupted run continues where it stopped.

mod gather;
mod plan;
mod run;

pub use gather::gather;
pub use plan::{Plan, Request, plan};
pub use run::run;

/// Annotation: the images that a workload had before.
pub const PREVIOUS_IMAGES: &str = "tortie.net/previous-images";
/// Annotation: the update strategy that the daemon set had before.
pub const PREVIOUS_STRATEGY: &str = "tortie.net/previous-update-strategy";
