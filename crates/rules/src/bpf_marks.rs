//! The bits of a packet's mark with which eBPF programs and netfilter inform each other; they are Calico's.

/// All bits that programs use.
pub(crate) const MASK: u32 = 0x1ff0_0000;
/// A program has seen the packet.
pub(crate) const SEEN: u32 = 0x0100_0000;
/// A program has seen the packet, and it need not be tracked: it goes from one workload of this host to another.
pub(crate) const NO_TRACKING: u32 = 0x0140_0000;
/// The policies of both ends allow it.
pub(crate) const BYPASS: u32 = 0x0300_0000;
/// This host's address replaces the source.
pub(crate) const MASQUERADE: u32 = 0x0360_0000;
/// The packet must go through this host's network stack, because something else has to see it.
pub(crate) const SKIP_FIB: u32 = 0x0110_0000;
/// The source is replaced if the packet leaves the cluster's pools.
pub(crate) const NAT_OUTGOING: u32 = 0x0180_0000;
/// The bits that distinguish such marks.
pub(crate) const KIND: u32 = 0x03f0_0000;
/// The packet belongs to an established connection that programs do not know.
pub(crate) const FALL_THROUGH: u32 = 0x0500_0000;
/// Netfilter knows the connection.
pub(crate) const LINUX_ESTABLISHED: u32 = 0x0800_0000;
