//! The node's own agent: everything on a node beside Felix and BGP.
//!
//! - [`startup`]: registers the node before anything else runs; [`autodetect`] chooses its addresses.
//! - [`tunnel`]: the addresses of tunnel devices.
//! - [`services`]: what runs for as long as the node does: [`condition`], [`tunnel`], [`status`], [`address_monitor`],
//!   [`token_monitor`], and services of others.
//! - [`flows`]: shows the node's flows.
//! - [`health`], [`shutdown`], [`hostpath`], [`privileged`]: commands of probes, hooks and init containers.
//! - [`supervise`]: `tortie node`, the first process of a node.
//! - [`cli`]: the names of all of these, in both generations of Calico's command lines.
//!
//! Decisions are functions of values, beside the shell that carries them out. It refuses to depend on other components:
//! they run as processes of the same program, or come in as values.

pub mod address_monitor;
mod addresses;
pub mod autodetect;
pub mod cli;
pub mod condition;
pub mod context;
pub mod dump;
pub mod environment;
pub mod flows;
pub mod health;
pub mod host;
pub mod hostpath;
pub mod node_name;
pub mod privileged;
pub mod services;
pub mod shutdown;
pub mod startup;
pub mod status;
pub mod supervise;
pub mod token_monitor;
pub mod tunnel;

#[cfg(test)]
mod testing;

pub use context::{Context, ContextError};
