//! `tortie migrate from-calico`: the images of a running Calico changed for ours, one node at a time, and back.
//!
//! ```text
//! facts ─► plan ─► refusals, or steps: definitions ─► controllers ─► images of the nodes, updated on deletion only
//!                                      ─► one pod after the other, each waited for ─► Typha ─► the old update strategy
//! ```
//!
//! Nothing is drained and no pod changes its address: data, names on the host and what is in the kernel are shared. What the
//! images were is kept in annotations, which `--back` reads. The plan is made from what is there, so that a run that was cut
//! off goes on where it was.

mod gather;
mod plan;
mod run;

pub use gather::gather;
pub use plan::{Plan, Request, plan};
pub use run::run;

/// Where the images are kept that a workload had before.
pub const PREVIOUS_IMAGES: &str = "tortie.net/previous-images";
/// Where the update strategy is kept that the daemon set had before.
pub const PREVIOUS_STRATEGY: &str = "tortie.net/previous-update-strategy";
