//! Operating a cluster: putting the components there, looking at them, and swapping them for Calico's and back.
//!
//! - [`install`]: `tortie install`, `upgrade` and `uninstall`.
//! - [`status`]: `tortie status`: what runs, and what is wrong with it.
//! - [`doctor`]: `tortie doctor`: what stands in the way, on a host and on a cluster.
//! - [`migrate`]: `tortie migrate from-calico`: the swap, node by node, and back.
//! - [`connectivity`]: `tortie connectivity test`: pods that talk to each other under policies; [`probe`]: what runs in them.
//! - [`cluster`]: the few requests that these are made of.
//! - [`cli`]: the flags.
//!
//! What to do is decided by functions of facts (`plan`, `checks`, `report`); shells gather facts and carry plans out. It
//! refuses to change what it did not look at before, and never deletes Calico's data unasked.

pub mod cli;
mod cluster;
mod connectivity;
mod doctor;
mod install;
mod migrate;
pub mod probe;
mod rollout;
mod status;

/// The owner of the fields that we write.
const FIELD_MANAGER: &str = "tortie";

/// What tests reach into, and nothing else may.
#[doc(hidden)]
pub mod for_tests {
    pub use crate::cluster::{Mode, Reference, Target};
    pub use crate::doctor::{Level, check_cluster, gather_cluster};
    pub use crate::install::{How, Record, Removal, install, uninstall, wait};
    pub use crate::migrate::{
        PREVIOUS_IMAGES, PREVIOUS_STRATEGY, Plan, Request, gather as gather_migration, plan,
        run as run_migration,
    };
    pub use crate::status::{gather as gather_status, report};
}
