//! The node's own agent: everything on a node except Felix and BGP.
//!
//! - [`startup`]: registers the node before anything else runs; [`autodetect`] chooses its addresses.
//! - [`tunnel`]: the addresses of tunnel devices.
//! - [`services`]: the services that run for as long as the node does: [`condition`], [`tunnel`], [`status`],
//!   [`address_monitor`], [`token_monitor`], and those of other components.
//! - [`flows`]: shows the node's flows.
//! - [`health`], [`shutdown`], [`hostpath`], [`privileged`]: commands for probes, hooks and init containers.
//! - [`supervise`]: `tortie node`, the first process of a node.
//! - [`cli`]: the names of all of these, in both generations of Calico's command lines.
//!
//! Decisions are functions of values, separate from the shell that carries them out. Does not depend on other
//! components: they run as processes of the same program, or are passed in as values.

mod address_monitor;
mod addresses;
mod autodetect;
pub mod cli;
mod condition;
mod context;
mod dump;
mod environment;
mod flows;
mod health;
mod host;
mod hostpath;
mod node_name;
mod privileged;
mod services;
mod shutdown;
mod startup;
mod status;
mod supervise;
mod token_monitor;
mod tunnel;

#[cfg(test)]
mod testing;

pub use context::{Context, ContextError};
pub use environment::VARIABLES;
pub use health::probe;
pub use services::Service;
pub use supervise::end_with_supervisor;

/// Exports for this crate's tests and benchmarks only.
#[doc(hidden)]
pub mod for_tests {
    pub use crate::autodetect::{Facts, Interface, Method, detect};
    pub use crate::host::{Host, HostError, ThisHost};
    pub use crate::tunnel::kind::TunnelKind;
    pub mod condition {
        pub use crate::condition::{READY_PATIENCE, manage, mark_available};
    }
    pub mod health {
        pub use crate::health::{Checks, THRESHOLD, check};
    }
    pub mod hostpath {
        pub use crate::hostpath::run;
    }
    pub mod shutdown {
        pub use crate::shutdown::run;
    }
    pub mod startup {
        pub use crate::startup::{StartupError, run};
    }
    pub mod status {
        pub use crate::status::{run, show};
    }
    pub mod token_monitor {
        pub use crate::token_monitor::run;
    }
    pub mod tunnel {
        pub use crate::tunnel::{run, run_once};
    }
}
