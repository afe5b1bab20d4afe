//! Felix, the policy agent of a node: it follows the datastore, calculates what this host must do, and has the dataplane
//! do it.
//!
//! ```text
//! datastore ─► follow (tasks) ─► calculation (a thread) ─► dataplane (a thread) ─► kernel
//!                                      │                        │
//!                                 configuration            reports ─► status in the datastore, status files
//! ```
//!
//! - [`cli`]: how it is started.
//! - [`log`], [`servers`]: what it says about itself, and where.
//! - [`startup`]: the configuration it starts with, from environment, file and datastore.
//! - [`calculation`]: the thread between feed and dataplane.
//! - [`figures`]: what the calculation counts, for Prometheus.
//! - [`reports`]: what the dataplane says, written down where others look.
//! - [`flows`]: flow logs, from the kernel's reports to a Goldmane.
//! - [`policysync`]: policies for proxies inside workloads.
//! - [`run`]: all of it together, until a signal or a change of the configuration ends it.
//!
//! Queues between the threads are bounded: a slow kernel slows down the calculation, and that the feed. Nothing is written
//! to the kernel before the feed is in sync. A change of the configuration that needs a new start ends the process with
//! [`daemon::exit::RESTART`]; what is in the kernel stays, and the next Felix takes it over.

mod calculation;
pub mod cli;
mod figures;
mod flows;
mod log;
mod policysync;
mod reports;
mod run;
mod servers;
mod startup;
mod typha;
mod wireguard;

pub use run::{Ended, run};
