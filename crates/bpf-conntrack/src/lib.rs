//! Connections that the eBPF dataplane knows: which of them have ended.
//!
//! Programs add entries to `cali_v4_ct4` and `cali_v6_ct4` and never wait; somebody has to take out what is over. Here are
//! the decision, a function of one entry ([`Sweep::decide`]), and the pass over a map that carries it out
//! ([`sweep()`]): entries come in batches, the caller is asked for breath after each, and only what has ended costs a call.
//!
//! Flows that Linux knows from before there were programs become entries by [`Flow`].
//!
//! What programs keep beside the entries of connections that Linux does not track goes in the same way ([`sweep_direct`]).
//!
//! It refuses to delete an entry that fell silent and has seen a packet since it was judged, and the stub of a flow that is
//! not its own.

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
