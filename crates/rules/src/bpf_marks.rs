//! The bits of a packet's mark by which eBPF programs and netfilter tell each other what they know; Calico's.

/// All of them.
pub(crate) const MASK: u32 = 0x1ff0_0000;
/// A program has seen the packet.
pub(crate) const SEEN: u32 = 0x0100_0000;
/// A program has seen the packet, and nothing is gained by tracking it: it goes from one workload of this host to another.
pub(crate) const NO_TRACKING: u32 = 0x0140_0000;
/// Both ends' policies allow it.
pub(crate) const BYPASS: u32 = 0x0300_0000;
/// The sender is hidden behind this host.
pub(crate) const MASQUERADE: u32 = 0x0360_0000;
/// The way through this host's stack must be taken: somebody else has to see the packet.
pub(crate) const SKIP_FIB: u32 = 0x0110_0000;
/// The sender is hidden outside of the cluster's pools.
pub(crate) const NAT_OUTGOING: u32 = 0x0180_0000;
/// The bits that tell such marks from each other.
pub(crate) const KIND: u32 = 0x03f0_0000;
/// In the middle of a connection that programs do not know.
pub(crate) const FALL_THROUGH: u32 = 0x0500_0000;
/// Netfilter knows the connection.
pub(crate) const LINUX_ESTABLISHED: u32 = 0x0800_0000;
