//! The CNI plugins `calico` and `calico-ipam`: a container gets a device, addresses, routes and an endpoint that policy
//! applies to, and loses them again.
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
//! - [`agent`]: the same work in a long-running process ([`agent::serve`]).
//! - [`execute`]: one call with open connections.
//!
//! A failure is CNI's JSON with a code that stays ([`error::code`]), naming step, object and remedy. ADD leaves nothing
//! behind when it fails; DEL succeeds for what is half-made or long gone. It refuses to guess: an annotation or field
//! that cannot be followed fails the call.

mod add;
mod addresses;
pub mod agent;
mod annotations;
mod assigned;
mod attachment;
mod check;
pub mod config;
pub mod context;
mod dataplane;
mod del;
mod endpoint;
pub mod error;
mod external;
pub mod fault;
mod gates;
mod gc;
#[cfg(test)]
mod histories;
pub mod host;
pub mod identity;
mod ipam;
pub mod journal;
mod labels;
pub mod log;
mod pending;
pub mod request;
mod run;
mod status;
pub mod store;
mod turn;
mod upgrade;
pub mod wait;
pub mod wiring;

pub use cni_protocol::{Outcome, args, result, version};
pub use context::Context;
pub use error::CniError;
pub use host::HostPaths;
pub use request::{Command, Environment, Request};
pub use run::{Program, execute, run_in_process, run_ipam, run_plugin};
pub use store::Store;
