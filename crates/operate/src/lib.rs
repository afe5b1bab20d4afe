//! Operating a cluster: installing the components, inspecting them, and replacing Calico's with them and back.
//!
//! - [`install`]: `tortie install`, `upgrade` and `uninstall`.
//! - [`status`]: `tortie status`: what is running, and its problems.
//! - [`doctor`]: `tortie doctor`: what prevents an installation, on a host and on a cluster.
//! - [`migrate`]: `tortie migrate from-calico`: the swap, node by node, and back.
//! - [`connectivity`]: `tortie connectivity test`: pods that talk to each other under policies; [`probe`]: what runs in them.
//! - [`cluster`]: the few requests that these use.
//! - [`cli`]: the flags.
//!
//! What to do is decided by functions of facts (`plan`, `checks`, `report`); shells gather facts and execute plans.
//! Nothing is changed that was not read before, and Calico's data is never deleted without a request.

pub mod cli;
mod cluster;
mod connectivity;
mod doctor;
mod install;
mod migrate;
pub mod probe;
mod rollout;
mod status;

/// The field manager of our writes.
const FIELD_MANAGER: &str = "tortie";

/// Items that only tests may use.
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
