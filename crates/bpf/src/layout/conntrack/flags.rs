//! Bits of [`Value::flags`](super::Value).

/// The workload's address is masqueraded.
pub const NAT_OUTGOING: u32 = 0x1;
/// Forwarded to the node of the backend, which answers the client itself.
pub const DIRECT_RETURN: u32 = 0x2;
/// Forwarded to the node of the backend through a tunnel.
pub const NODE_PORT_FORWARD: u32 = 0x4;
/// Packets go through the host's stack.
pub const SKIP_FIB: u32 = 0x8;
/// Between two workloads of this node, past Linux's connection tracking. Ours: Calico has this bit in reserve.
pub const DIRECT: u32 = 0x20;
/// From a client outside the cluster to a backend of this node.
pub const EXTERNAL_LOCAL: u32 = 0x40;
/// From the host to a service, through `bpfout.cali`.
pub const VIA_NAT_INTERFACE: u32 = 0x80;
/// The source is end B.
pub const SOURCE_IS_B: u32 = 0x100;
/// The port of the host's end was changed because another flow used it.
pub const HOST_PORT_CHANGED: u32 = 0x200;
/// The source is masqueraded as the node: the client is the backend itself, or the backend is on another node.
pub const MASQUERADE: u32 = 0x400;
/// From the host to a node port with a backend of this node.
pub const NODE_PORT_LOOP: u32 = 0x800;
/// From the host to a node port with a backend elsewhere.
pub const NODE_PORT_REMOTE: u32 = 0x1000;
/// The client is one whose answers must return by the path of its requests.
pub const NO_DIRECT_RETURN: u32 = 0x2000;
/// Not forwarded directly into the workload's namespace.
pub const SKIP_PEER: u32 = 0x4000;
/// Packets get the workload's DSCP.
pub const SET_DSCP: u32 = 0x8000;
/// The backend was chosen by the Maglev table.
pub const MAGLEV: u32 = 0x1_0000;
/// The next packet is answered with a RST.
pub const SEND_RESET: u32 = 0x2_0000;
/// Counted towards the limit of connections to the workload.
pub const LIMIT_INGRESS: u32 = 0x4_0000;
/// Refused, because the workload has too many connections.
pub const LIMIT_REFUSED: u32 = 0x8_0000;
/// Counted towards the limit of connections from the workload.
pub const LIMIT_EGRESS: u32 = 0x10_0000;
/// No longer counted.
pub const LIMIT_ENDED: u32 = 0x20_0000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_has_calicos_bit() {
        let flags = [
            (NAT_OUTGOING, 0),
            (DIRECT_RETURN, 1),
            (NODE_PORT_FORWARD, 2),
            (SKIP_FIB, 3),
            (DIRECT, 5),
            (EXTERNAL_LOCAL, 6),
            (VIA_NAT_INTERFACE, 7),
            (SOURCE_IS_B, 8),
            (HOST_PORT_CHANGED, 9),
            (MASQUERADE, 10),
            (NODE_PORT_LOOP, 11),
            (NODE_PORT_REMOTE, 12),
            (NO_DIRECT_RETURN, 13),
            (SKIP_PEER, 14),
            (SET_DSCP, 15),
            (MAGLEV, 16),
            (SEND_RESET, 17),
            (LIMIT_INGRESS, 18),
            (LIMIT_REFUSED, 19),
            (LIMIT_EGRESS, 20),
            (LIMIT_ENDED, 21),
        ];
        for (flag, bit) in flags {
            assert_eq!(flag, 1 << bit);
        }
    }
}
