//! Policy as tables for the eBPF dataplane: messages in, comparable tables out; their bytes; and the evaluator that says what
//! they mean.
//!
//! - [`Policies`]: from the messages of the calculation graph to [`Tables`], step by step.
//! - [`layout`]: the bytes of keys and values.
//! - [`bridge`]: tables in which two states hold at once, for the way from one to the other.
//! - [`evaluate`]: what tables say about a packet, as the program in the kernel works it out.
//! - [`RuleTexts`]: names of rules by the numbers that programs tell.
//!
//! The design and the numbers behind it are in `docs/ebpf.md`. Pure: no IO, no clock, no async. It refuses to know the kernel,
//! and what the path of a packet decides before policy is asked (connections, failsafes, tunnels).

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
