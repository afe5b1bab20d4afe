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
//! refuses to change what it did not look at before, and never deletes Calico's data without being told to.

pub mod cli;
pub mod cluster;
pub mod connectivity;
pub mod doctor;
pub mod install;
pub mod migrate;
pub mod probe;
pub mod rollout;
pub mod status;

/// Who the fields that we write belong to.
pub const FIELD_MANAGER: &str = "tortie";
