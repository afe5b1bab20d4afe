//! Flow logs: which endpoints communicated, and which policies decided.
//!
//! ```text
//! node:        NFLOG verdicts, conntrack counters ─► collector::Connections ─► flows of an interval ─► Goldmane
//! aggregator:  flows ─► Seen (each once) ─► Ring (buckets of 15 s) ─► Snapshot ─► list, hints, statistics, streams
//! ```
//!
//! - [`key`], [`trace`], [`labels`]: what a flow is. A trace has Calico's text form.
//! - [`nflog`]: parses the prefix of a reported packet; the inverse of `rules::nflog`.
//! - [`collector`]: connections of one node, as a state machine, aggregated into flows per interval.
//! - [`ring`]: the aggregator's memory, compact and bounded; [`Snapshot`]s let queries run beside ingest.
//! - [`pending`]: what staged policies would decide. [`local`]: where a node's flows can be watched.
//! - [`query`]: filters, sorts, pages, hints, statistics.
//! - [`seen`]: counts flows once that a reconnecting sender sends twice.
//!
//! Pure: no IO, no clock, no async. Time comes in as seconds since 1970. The same input gives the same output.

pub mod collector;
pub mod key;
pub mod labels;
pub mod local;
#[cfg(test)]
mod model;
pub mod nflog;
pub mod pending;
pub mod query;
pub mod ring;
pub mod seen;
pub mod trace;

pub use key::{Action, Direction, EndpointType, FlowKey, Peer, Reporter, Service, Text};
pub use labels::Labels;
pub use ring::{Counters, Ring, RingOptions, Snapshot};
pub use trace::{Decider, PolicyHit, PolicyKind, PolicyName, Trace};
