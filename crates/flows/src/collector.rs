//! The connections of one node: verdicts and counters in, flows per interval out.
//!
//! ```text
//! NFLOG ─► verdict ─┐                        ┌─► flush ─► flows of the interval
//!                   ├─► Connections ─► tick ─┤
//! conntrack ─► counted, ended ───────────────┘
//! ```
//!
//! What differs from Calico's collector: traffic is attributed to the verdict that was in force when it was counted, also
//! when that changes; counters that come before their verdict wait for it; a verdict is taken as a whole, so nothing of an
//! older one remains; connections of host endpoints are reported, too. Bounded: connections that do not fit are counted.
//!
//! It refuses to look anything up: names come from a [`World`].

mod aggregate;
mod connections;
#[cfg(test)]
mod tests;
mod world;

pub use aggregate::CollectedFlow;
pub use connections::{Before, CollectorCounts, Connections, CountedTraffic, Traffic, Tuple};
pub use world::{End, EndKind, World};
