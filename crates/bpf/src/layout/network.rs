//! `cali_v4_routes`, `cali_v4_fsafes2`, `cali_counters6`, `cali_profiling2` and those of IPv6: routes to addresses,
//! failsafe ports, counters, processing times.

use super::{Family, From, To};
use crate::table::Layout;

/// Bits of [`Route::flags`].
pub mod flags {
    /// Part of a pool.
    pub const IN_POOL: u32 = 0x1;
    /// Part of a pool whose addresses are masqueraded outside.
    pub const NAT_OUTGOING: u32 = 0x2;
    /// A workload's address.
    pub const WORKLOAD: u32 = 0x4;
    /// On this node.
    pub const LOCAL: u32 = 0x8;
    /// A node's address.
    pub const HOST: u32 = 0x10;
    /// An address of a node in this node's subnet.
    pub const SAME_SUBNET: u32 = 0x20;
    /// Reached through a tunnel.
    pub const TUNNELED: u32 = 0x40;
    /// Clients whose answers must return by the path of their requests.
    pub const NO_DIRECT_RETURN: u32 = 0x80;
    /// A service's address: packets to a port that it does not have are dropped.
    pub const DROP: u32 = 0x100;
    /// A service's address: packets to a port that it does not have are rejected.
    pub const REJECT: u32 = 0x200;
    /// The tunnel is a VXLAN.
    pub const VXLAN: u32 = 0x400;
    /// A workload whose packets go through the host's network stack.
    pub const SKIP_REDIRECT: u32 = 0x800;
}

/// A network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteKey<F: Family> {
    /// The number of matching bits.
    pub bits: u32,
    /// The address.
    pub address: F::Address,
}

impl<F: Family> Layout for RouteKey<F> {
    const SIZE: usize = 4 + F::WIDTH;

    fn write(&self, to: &mut [u8]) {
        To(to, 0).put(&self.bits.to_ne_bytes()).put(self.address.as_ref());
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 0);
        Self { bits: from.u32(), address: from.address::<F>() }
    }
}

/// How a network's addresses are reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Route<F: Family> {
    /// A combination of [`flags`].
    pub flags: u32,
    /// The node's address; for a workload of this node, the index of its device in the first four bytes.
    pub next_hop: F::Address,
}

impl<F: Family> Layout for Route<F> {
    const SIZE: usize = 4 + F::WIDTH;

    fn write(&self, to: &mut [u8]) {
        To(to, 0).put(&self.flags.to_ne_bytes()).put(self.next_hop.as_ref());
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 0);
        Self { flags: from.u32(), next_hop: from.address::<F>() }
    }
}

/// This node as other nodes see it, in `bpfp_v4_node` and that of IPv6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Node<F: Family> {
    /// Its address; zero while unknown.
    pub address: F::Address,
    /// The maximum size of an encapsulated packet; 0 for no limit.
    pub room: u32,
}

impl<F: Family> Layout for Node<F> {
    const SIZE: usize = F::WIDTH + 4;

    fn write(&self, to: &mut [u8]) {
        To(to, 0).put(self.address.as_ref()).put(&self.room.to_ne_bytes());
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 0);
        Self { address: from.address::<F>(), room: from.u32() }
    }
}

/// A failsafe port of this host, which is open whatever policy says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FailsafeKey<F: Family> {
    /// The number of matching bits of the other side's address.
    pub bits: u32,
    /// The port.
    pub port: u16,
    /// The protocol.
    pub protocol: u8,
    /// Whether the host opens the connection.
    pub is_out: bool,
    /// The network of the other side.
    pub address: F::Address,
}

impl<F: Family> Layout for FailsafeKey<F> {
    const SIZE: usize = 8 + F::WIDTH;

    fn write(&self, to: &mut [u8]) {
        To(to, 0)
            .put(&(32 + self.bits).to_ne_bytes())
            .put(&self.port.to_ne_bytes())
            .put(&[self.protocol, u8::from(self.is_out)])
            .put(self.address.as_ref());
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 0);
        Self {
            bits: from.u32().saturating_sub(32),
            port: from.u16(),
            protocol: from.u8(),
            is_out: from.u8() & 1 == 1,
            address: from.address::<F>(),
        }
    }
}

/// The counters of a device and a hook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CounterKey {
    /// The device's index.
    pub device: u32,
    /// 0 for ingress, 1 for egress, 2 for XDP.
    pub hook: u32,
}

impl Layout for CounterKey {
    const SIZE: usize = 8;

    fn write(&self, to: &mut [u8]) {
        To(to, 0).put(&self.device.to_ne_bytes()).put(&self.hook.to_ne_bytes());
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 0);
        Self { device: from.u32(), hook: from.u32() }
    }
}

/// The counters of one processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters(pub [u64; 27]);

impl Layout for Counters {
    const SIZE: usize = 216;

    fn write(&self, to: &mut [u8]) {
        let mut to = To(to, 0);
        for count in self.0 {
            to.put(&count.to_ne_bytes());
        }
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 0);
        Self(std::array::from_fn(|_| from.u64()))
    }
}

/// The packets that were timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProfileKey {
    /// The device's index.
    pub device: u32,
    /// 0 and 1 for ingress, 2 and 3 for egress, as policy names directions; odd for packets of known flows.
    pub kind: u32,
}

impl Layout for ProfileKey {
    const SIZE: usize = 8;

    fn write(&self, to: &mut [u8]) {
        To(to, 0).put(&self.device.to_ne_bytes()).put(&self.kind.to_ne_bytes());
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 0);
        Self { device: from.u32(), kind: from.u32() }
    }
}

/// The processing times of one processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The sum, in nanoseconds.
    pub time: u64,
    /// The number of packets.
    pub samples: u64,
}

impl Layout for Profile {
    const SIZE: usize = 16;

    fn write(&self, to: &mut [u8]) {
        To(to, 0).put(&self.time.to_ne_bytes()).put(&self.samples.to_ne_bytes());
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 0);
        Self { time: from.u64(), samples: from.u64() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{V4, V6};
    use super::*;

    #[test]
    fn sizes_are_calicos() {
        assert_eq!((RouteKey::<V4>::SIZE, RouteKey::<V6>::SIZE), (8, 20));
        assert_eq!((Route::<V4>::SIZE, Route::<V6>::SIZE), (8, 20));
        assert_eq!((FailsafeKey::<V4>::SIZE, FailsafeKey::<V6>::SIZE), (12, 24));
        assert_eq!((CounterKey::SIZE, Counters::SIZE), (8, 216));
    }

    #[test]
    fn every_field_has_its_offset() {
        let key = RouteKey::<V4> { bits: 26, address: [10, 0, 0, 64] };
        assert_eq!(key.bytes(), [26, 0, 0, 0, 10, 0, 0, 64]);
        assert_eq!(RouteKey::read(&key.bytes()), key);
        let all =
            flags::IN_POOL | flags::NAT_OUTGOING | flags::WORKLOAD | flags::SAME_SUBNET | flags::TUNNELED;
        let rest = flags::LOCAL | flags::HOST | flags::NO_DIRECT_RETURN | flags::DROP | flags::REJECT;
        assert_eq!(all | rest | flags::VXLAN | flags::SKIP_REDIRECT, 0xfff);
        let route = Route::<V4> { flags: all, next_hop: [10, 0, 0, 1] };
        assert_eq!(route.bytes(), [0x67, 0, 0, 0, 10, 0, 0, 1]);
        assert_eq!(Route::read(&route.bytes()), route);
        let key = FailsafeKey::<V4> { bits: 8, port: 22, protocol: 6, is_out: true, address: [10, 0, 0, 0] };
        assert_eq!(key.bytes(), [40, 0, 0, 0, 22, 0, 6, 1, 10, 0, 0, 0]);
        assert_eq!(FailsafeKey::read(&key.bytes()), key);
        let key = CounterKey { device: 3, hook: 1 };
        assert_eq!(key.bytes(), [3, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(CounterKey::read(&key.bytes()), key);
        let counters = Counters(std::array::from_fn(|place| place as u64));
        assert_eq!(counters.bytes()[26 * 8], 26);
        assert_eq!(Counters::read(&counters.bytes()), counters);
        let key = ProfileKey { device: 3, kind: 2 };
        assert_eq!(key.bytes(), [3, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(ProfileKey::read(&key.bytes()), key);
        let profile = Profile { time: 5, samples: 6 };
        assert_eq!(profile.bytes(), [5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Profile::read(&profile.bytes()), profile);
    }
}
