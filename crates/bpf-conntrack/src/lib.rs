//! The connections of the eBPF dataplane: which of them have ended.
//!
//! Programs add entries to `cali_v4_ct4` and `cali_v6_ct4` and never wait, so ended ones must be removed from outside.
//! This crate has the decision, a function of one entry ([`Sweep::decide`]), and the pass over a map that executes it
//! ([`sweep()`]): entries are read in batches, the caller may pause after each, and only ended ones cost a system call.
//!
//! Flows that Linux knows from before there were programs become entries by [`Flow`].
//!
//! What programs keep of connections that Linux does not track is removed in the same way ([`sweep_direct`]).
//!
//! Does not delete an idle entry that has seen a packet since it was judged, nor a stub that belongs to another flow.

mod direct;
mod import;
mod liveness;
mod nat;
mod pass;
mod sweep;
mod timeouts;

pub use direct::{Alone, sweep_direct};
pub use import::Flow;
pub use liveness::{TcpState, tcp_state};
pub use nat::Destinations;
pub use pass::{Paced, sweep};
pub use sweep::{Reason, Report, Sweep, Verdict};
pub use timeouts::Timeouts;
