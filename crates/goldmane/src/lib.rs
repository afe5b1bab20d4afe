//! Goldmane: collects an hour of flows from all nodes and serves them on Calico's own API.
//!
//! ```text
//! nodes ─► FlowCollector ─► Aggregator (flows::Ring under one short lock) ─► snapshots ─► Flows, Statistics
//!                                  │ a turn every 15 seconds
//!                                  └─► streams: each bucket when it is complete, and again when late flows change it
//! ```
//!
//! - [`aggregator`]: ingest, turns, snapshots. [`services`]: answers queries; [`streams`]: one reader.
//! - `collecting`: receives flows and counts them in place in their frames.
//! - [`serve`]: connections, mutual TLS with files that are reloaded. [`figures`]: what is counted.
//! - `losses`: what nodes report as lost, for readers.
//! - [`history`]: more than the hour, in files, if a folder is configured.
//! - [`emitter`]: sends complete flows as lines of JSON.
//! - [`settings`], [`run`], [`cli`]: the process.
//!
//! Guarantees: a flow counts once, whatever reconnects; queries never stop ingest; a slow reader of a stream misses
//! nothing of the hour and costs next to no memory; flows that are not counted are counted as dropped, by reason.
//!
//! Bounded: keys and streams are limited.

mod aggregator;
pub mod cli;
mod collecting;
mod emitter;
mod figures;
mod history;
mod losses;
mod policy_figures;
mod run;
mod serve;
mod services;
mod settings;
mod streams;

pub use settings::{Settings, VARIABLES};

/// Items for tests and benchmarks only.
#[doc(hidden)]
pub mod for_tests {
    pub use crate::aggregator::{Aggregator, AggregatorOptions, Clock};
    pub use crate::emitter::{EmitterOptions, PostTarget, Progress, emit};
    pub use crate::figures::register;
    pub use crate::run::run;
    pub use crate::serve::serve;
    pub use crate::services::Services;
}
