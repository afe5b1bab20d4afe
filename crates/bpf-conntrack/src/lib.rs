//! Connections that the eBPF dataplane knows: which of them have ended.
//!
//! Programs add entries to `cali_v4_ct4` and `cali_v6_ct4` and never wait; somebody has to take out what is over. Here are
//! the decision, a function of one entry ([`Sweep::decide`]), and the pass over a map that carries it out
//! ([`sweep()`]): entries come in batches, the caller is asked for breath after each, and only what has ended costs a call.
//!
//! It refuses to delete an entry that fell silent and has seen a packet since it was judged, and the stub of a flow that is
//! not its own.

mod liveness;
mod nat;
mod pass;
mod sweep;
mod timeouts;

pub use liveness::{TcpState, tcp_state};
pub use nat::Destinations;
pub use pass::{Paced, sweep};
pub use sweep::{Reason, Report, Sweep, Verdict};
pub use timeouts::Timeouts;

/// Bits of an entry's flags, beside those of [`bpf::layout::conntrack::flags`].
pub mod flags {
    /// The reply goes from the backend's node to the client, so only one direction is seen here.
    pub const DSR_FORWARD: u32 = 0x2;
    /// A node port's packets that were sent on to another node.
    pub const NODE_PORT_FORWARD: u32 = 0x4;
    /// From outside to a backend on this node.
    pub const EXTERNAL_LOCAL: u32 = 0x40;
    /// The host's own source port was changed.
    pub const HOST_PORT_CHANGED: u32 = 0x200;
    /// The backend was chosen by Maglev.
    pub const MAGLEV: u32 = 0x1_0000;
    /// The next packet is answered with a TCP reset.
    pub const SEND_RESET: u32 = 0x2_0000;
}
