//! The calculation graph: computes from updates of the datastore exactly what this one host must program.
//!
//! ```text
//!  Update ─► graph ─┬─► local endpoints ─► active policies and profiles ─► rules ─► sets in use
//!                   │                                                                │
//!                   ├─► all endpoints and network sets ─► members of those sets ◄────┘
//!                   ├─► endpoint slices ─► members of the sets of services
//!                   ├─► tiers, policies ─► order of policies per endpoint
//!                   └─► network: pools, blocks, hosts ─► routes, tunnels
//!                                   all ─► sequencer ─► Vec<ToDataplane>
//! ```
//!
//! The output depends only on the current state, never on the order in which it arrived. Work is proportional to
//! change: an update costs what it touches. Parts refer to each other by small numbers (places in tables), never by
//! pointers, and nothing is computed twice.
//!
//! It does no IO, has no clock and never waits: the caller decides when to [`CalcGraph::flush`].

mod bytes;
mod graph;
mod id_list;
mod labels;
mod matching;
mod members;
pub mod network;
mod packed;
mod policy;
mod population;
mod rules;
mod sequencer;
mod service_index;
mod set_matcher;
mod slab;
mod stats;
mod symbols;

pub use graph::{CalcGraph, GraphConfig};
pub use sequencer::Sequencer;
pub use stats::Stats;
