//! Whether a flow with state has ended: by its protocol, its TCP state, and its age.

use crate::sweep::Reason;
use crate::timeouts::Timeouts;
use bpf::layout::Family;
use bpf::layout::conntrack::{Tracking, flags};

/// How long residual packets after a reset keep an entry at most.
pub(crate) const AFTER_RESET: u64 = 120 * 1_000_000_000;

/// The state of a TCP connection as seen by programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpState {
    /// Both sides have sent a FIN.
    Closed,
    /// One side has sent a RST.
    Reset,
    /// The handshake is complete.
    Established,
    /// Any earlier state.
    SynSent,
}

/// The state of a TCP connection.
#[must_use]
pub fn tcp_state<F: Family>(tracking: &Tracking<F>, bits: u32) -> TcpState {
    let (there, back) = (&tracking.a_to_b, &tracking.b_to_a);
    let sees_one_side = bits & flags::DIRECT_RETURN != 0;
    if there.fin && back.fin || sees_one_side && (there.fin || back.fin) {
        TcpState::Closed
    } else if there.rst || back.rst {
        TcpState::Reset
    } else if there.syn && there.ack && back.syn && back.ack {
        TcpState::Established
    } else {
        TcpState::SynSent
    }
}

/// The reason why the flow has ended, if it has.
pub(crate) fn ended<F: Family>(
    timeouts: &Timeouts,
    protocol: u32,
    age: u64,
    rst_seen: u64,
    bits: u32,
    tracking: &Tracking<F>,
) -> Option<Reason> {
    let after = |timeout: u64, reason: Reason| (age > timeout).then_some(reason);
    match protocol {
        6 => {
            let (there, back) = (&tracking.a_to_b, &tracking.b_to_a);
            let sees_one_side = bits & flags::DIRECT_RETURN != 0;
            let is_reset = there.rst || back.rst;
            let is_closed = there.fin && back.fin || sees_one_side && (there.fin || back.fin);
            let is_established = there.syn && there.ack && back.syn && back.ack || sees_one_side;
            let reset = if is_reset { after(timeouts.tcp_reset_seen, Reason::Reset) } else { None };
            let closed = if is_closed { after(timeouts.tcp_fins_seen, Reason::Closed) } else { None };
            reset.or(closed).or_else(|| match is_established {
                true if rst_seen != 0 && age > AFTER_RESET => Some(Reason::AfterReset),
                true => after(timeouts.tcp_established, Reason::Established),
                false => after(timeouts.tcp_syn_sent, Reason::NotEstablished),
            })
        }
        1 | 58 => after(timeouts.icmp, Reason::Icmp),
        17 => after(timeouts.udp, Reason::Udp),
        _ => after(timeouts.generic, Reason::Generic),
    }
}
