//! The CNI plugins `calico` and `calico-ipam`: give a container a device, addresses, routes and an endpoint that policy
//! applies to, and remove them again.
//!
//! ```text
//! variables, stdin ─► request, config ─► run ─► the agent's socket ─► agent ─┐
//!                                         │ (no agent)                        ▼
//!                                         └──────────────► execute: add │ del │ check │ status │ gc
//!                                                             │
//!            pure: identity, annotations, assigned, endpoint, wiring::plan, result, ipam::host_local
//!            shell: store (datastore, Kubernetes), addresses (IPAM), dataplane (netlink, external), journal
//! ```
//!
//! - [`run_plugin`], [`run_ipam`]: the programs, with everything injected; [`run_in_process`] for `main`.
//! - `agent`: the same work in a long-running process ([`run_agent`]).
//! - `run::execute`: one call with open connections.
//!
//! A failure is CNI's JSON with a stable code ([`error::code`]) and names step, object and remedy. ADD leaves nothing
//! behind when it fails; DEL succeeds for what is incomplete or long gone. The plugins do not guess: an annotation or
//! field that cannot be followed fails the call.

mod add;
mod addresses;
mod agent;
mod annotations;
mod assigned;
mod attachment;
mod check;
mod config;
mod context;
mod dataplane;
mod del;
mod endpoint;
mod error;
mod external;
mod fault;
mod gates;
mod gc;
#[cfg(test)]
mod histories;
mod host;
mod identity;
mod ipam;
mod journal;
mod labels;
mod log;
mod pending;
mod request;
mod run;
mod status;
mod store;
mod turn;
mod upgrade;
mod wait;
mod wiring;

pub use agent::{alone, run as run_agent};
pub use config::NetConf;
pub use host::HostPaths;
pub use request::Environment;
pub use run::{Program, run_in_process, run_ipam, run_plugin};

/// Internals for tests and benchmarks; not for other use.
#[doc(hidden)]
pub mod for_tests {
    pub use crate::agent::{AgentState, bind, serve};
    pub use crate::context::Context;
    #[cfg(feature = "fault-points")]
    pub use crate::fault::{HOLD_VARIABLES, STEPS};
    pub use crate::store::Store;
    pub use crate::wiring::{Pair, Plan, remove};
}
