//! Garbage collection: which allocations nobody uses any more, which blocks stand idle, which nodes are gone.
//!
//! - [`holder`]: who an allocation says it is for.
//! - [`judge`](mod@judge): whether that holder is still there, with the reason when it is not.
//! - [`collector`]: everything known at once: blocks, suspicions and how long they have lasted; [`verdicts`] out.
//! - [`figures`]: how many addresses are in use, borrowed and suspected, by pool and node.
//!
//! [`Collector`] is fed block by block and told which nodes to look at, so that an event costs as much as its node has
//! addresses. It knows no clock and asks nobody: time and the state of the cluster ([`World`]) are arguments. A verdict is
//! a proposal. Whoever carries it out first asks the live cluster again ([`Collector::still_leaked`]) and releases under
//! the guards of handle and sequence number, so that a verdict that came too late does nothing.
//!
//! It refuses to guess: what is not known to be free is in use.

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
