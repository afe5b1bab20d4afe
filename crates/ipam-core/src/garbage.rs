//! Garbage collection: allocations that are no longer used, idle blocks, nodes that are gone.
//!
//! - [`holder`]: the holder that an allocation names.
//! - [`judge`](mod@judge): whether that holder still exists, with the reason if not.
//! - [`collector`]: the accumulated knowledge: blocks, suspicions and how long they have lasted; returns [`verdicts`].
//! - [`figures`]: how many addresses are in use, borrowed and suspected, by pool and node.
//!
//! [`Collector`] is fed block by block and notified which nodes to examine, so that the cost of an event is
//! proportional to the number of addresses of its node. It has no clock and does no IO: time and the state of the
//! cluster ([`World`]) are arguments. A verdict is a proposal. Before carrying it out, the caller checks with the live
//! cluster again ([`Collector::still_leaked`]) and releases under the guards of handle and sequence number, so that a
//! late verdict has no effect.
//!
//! It does not guess: an address that is not known to be free is in use.

pub mod collector;
pub mod figures;
pub mod holder;
pub mod judge;
pub mod verdicts;

pub use collector::{Collector, Settings};
pub use figures::{Figures, PoolRange};
pub use holder::Holder;
pub use judge::{MachineFact, NodeFact, PodFact, PodState, Reason, World, judge};
pub use verdicts::{GoneNode, IdleBlock, Leak, Verdicts};
