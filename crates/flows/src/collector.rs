//! The connections of one node: verdicts and counters in, flows per interval out.
//!
//! ```text
//! NFLOG ─► verdict ─┐                        ┌─► flush ─► flows of the interval
//!                   ├─► Connections ─► tick ─┤
//! conntrack ─► counted, ended ───────────────┘
//! ```
//!
//! Differences from Calico's collector: traffic is attributed to the verdict in force when it was counted, even when
//! the verdict changes; counters that arrive before their verdict wait for it; a verdict is replaced as a whole, so
//! nothing of an older one remains; connections of host endpoints are reported, too. Bounded: connections that do not
//! fit are counted.
//!
//! Does not look anything up: names come from a [`World`].

mod aggregate;
mod connections;
#[cfg(test)]
mod tests;
mod world;

pub use aggregate::CollectedFlow;
pub use connections::{Before, CollectorCounts, Connections, CountedTraffic, Traffic, Tuple};
pub use world::{End, EndKind, World};
