//! Goldmane: the flows of all nodes, an hour of them, on Calico's own API.
//!
//! ```text
//! nodes ─► FlowCollector ─► Aggregator (flows::Ring under one short lock) ─► snapshots ─► Flows, Statistics
//!                                  │ a turn every 15 seconds
//!                                  └─► streams: each bucket when it is complete, and again when late flows change it
//! ```
//!
//! - [`aggregator`]: ingest, turns, snapshots. [`services`]: answers to questions; [`streams`]: one reader.
//! - `collecting`: what senders send, counted where it stands in their frames.
//! - [`serve`]: connections, mutual TLS with files that are read again. [`figures`]: what is counted.
//! - `losses`: what nodes say they lost, for readers.
//! - [`history`]: more than the hour, in files, where a folder is given.
//! - [`emitter`]: complete flows sent on as lines of JSON.
//! - [`settings`], [`run`], [`cli`]: the process.
//!
//! Promises: a flow counts once, whatever reconnects; questions never stop ingest; a slow reader of a stream misses nothing
//! of the hour and costs next to no memory; what is not counted is counted as dropped, with its reason.
//!
//! It refuses to keep more than it may: keys are bounded, and so are streams.

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

/// What tests and benchmarks reach into, and nothing else may.
#[doc(hidden)]
pub mod for_tests {
    pub use crate::aggregator::{Aggregator, AggregatorOptions, Clock};
    pub use crate::emitter::{EmitterOptions, PostTarget, Progress, emit};
    pub use crate::figures::register;
    pub use crate::run::run;
    pub use crate::serve::serve;
    pub use crate::services::Services;
}
