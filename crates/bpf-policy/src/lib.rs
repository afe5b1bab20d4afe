//! Policy as tables for the eBPF dataplane: turns messages into comparable tables, encodes them, and evaluates what
//! they mean.
//!
//! - [`Policies`]: from the messages of the calculation graph to [`Tables`], step by step.
//! - [`layout`]: the bytes of keys and values.
//! - [`bridge`]: tables in which two states hold at once, for the transition between them.
//! - [`evaluate`]: evaluates tables for a packet, as the kernel's program does.
//! - [`RuleTexts`]: names of rules by the ids that programs report.
//!
//! The design and the numbers behind it are in `docs/ebpf.md`. Pure: no IO, no clock, no async. Does not know the
//! kernel, nor anything that is decided before policy is evaluated (connections, failsafes, tunnels).

mod bridge;
mod classes;
mod conditions;
mod evaluate;
pub mod layout;
mod list;
mod members;
mod parts;
mod policies;
mod slab;
mod spec;
mod tables;
mod texts;

pub use bridge::bridge;
pub use evaluate::{MAX_HITS, Outcome, Packet, Verdict, evaluate};
pub use list::{TooLarge, rule_id};
pub use policies::Policies;
pub use tables::{EndpointId, EndpointLists, Table, Tables};
pub use texts::RuleTexts;
