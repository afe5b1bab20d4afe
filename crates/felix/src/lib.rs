//! Felix, the policy agent of a node: it follows the datastore, calculates what this host must do, and has the
//! dataplane carry it out.
//!
//! ```text
//! datastore ─► follow (tasks) ─► calculation (a thread) ─► dataplane (a thread) ─► kernel
//!                                      │                        │
//!                                 configuration            reports ─► status in the datastore, status files
//! ```
//!
//! - [`cli`]: the command line.
//! - [`log`], [`servers`]: its log, and its pages for health and figures.
//! - [`startup`]: the initial configuration, from environment, file and datastore.
//! - [`calculation`]: the thread between feed and dataplane.
//! - [`figures`]: the counters of the calculation, for Prometheus.
//! - [`reports`]: writes the dataplane's reports where other programs read them.
//! - [`flows`]: flow logs, from the kernel's reports to a Goldmane.
//! - [`policysync`]: policies for proxies inside workloads.
//! - [`run`]: runs all of it together, until a signal or a change of the configuration ends it.
//!
//! Queues between the threads are bounded: a slow kernel slows down the calculation, which slows down the feed. Nothing
//! is written to the kernel before the feed is in sync. A change of the configuration that requires a restart ends the
//! process with [`daemon::exit::RESTART`]; the kernel's state remains, and the next Felix takes it over.

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
