//! `cali_iface4`, `cali_v4_arp2`, `cali_v4_sprefix`, `cali_qos2`, `cali_qos_conn` and those of IPv6: devices, their
//! neighbours, sources and limits.

use super::{Family, From, To};
use crate::table::Layout;

/// Bits of [`Device::flags`].
pub mod flags {
    /// A workload's device.
    pub const WORKLOAD: u32 = 0x1;
    /// Its programs for IPv4 are attached.
    pub const V4_READY: u32 = 0x2;
    /// Its programs for IPv6 are attached.
    pub const V6_READY: u32 = 0x4;
    /// A device of the host.
    pub const HOST: u32 = 0x8;
    /// A bond.
    pub const BOND: u32 = 0x10;
    /// Part of a bond.
    pub const BOND_PART: u32 = 0x20;
    /// A VXLAN tunnel.
    pub const VXLAN: u32 = 0x40;
    /// An IP in IP tunnel.
    pub const IPIP: u32 = 0x80;
    /// A WireGuard tunnel.
    pub const WIREGUARD: u32 = 0x100;
    /// Without Ethernet headers.
    pub const LAYER_3: u32 = 0x200;
    /// Not ours.
    pub const NOT_MANAGED: u32 = 0x400;
}

/// The properties of a device; the key of `cali_iface4` is its index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// A combination of [`flags`].
    pub flags: u32,
    /// Its name, terminated by a zero.
    pub name: [u8; 16],
    /// Indexes in Calico's arrays of programs: XDP policy, ingress and egress for IPv4, the same for IPv6, ingress and
    /// egress filters; -1 for none. Our programs do not use such indexes.
    pub places: [i32; 8],
}

impl Device {
    /// A device without indexes.
    #[must_use]
    pub fn new(name: &str, flags: u32) -> Self {
        let mut bytes = [0; 16];
        // A name has at most 15 bytes; the last byte stays zero.
        for (to, from) in bytes[..15].iter_mut().zip(name.bytes()) {
            *to = from;
        }
        Self { flags, name: bytes, places: [-1; 8] }
    }
}

impl Layout for Device {
    const SIZE: usize = 52;

    fn write(&self, to: &mut [u8]) {
        let mut to = To(to, 0);
        to.put(&self.flags.to_ne_bytes()).put(&self.name);
        for place in self.places {
            to.put(&place.to_ne_bytes());
        }
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 0);
        Self {
            flags: from.u32(),
            name: from.take(),
            places: std::array::from_fn(|_| from.u32().cast_signed()),
        }
    }
}

/// A neighbour of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NeighbourKey<F: Family> {
    /// Its address; zero means any neighbour behind the device.
    pub address: F::Address,
    /// The device's index.
    pub device: u32,
}

impl<F: Family> Layout for NeighbourKey<F> {
    const SIZE: usize = F::WIDTH + 4;

    fn write(&self, to: &mut [u8]) {
        To(to, 0).put(self.address.as_ref()).put(&self.device.to_ne_bytes());
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 0);
        Self { address: from.address::<F>(), device: from.u32() }
    }
}

/// The Ethernet addresses of frames to a neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Neighbour {
    /// Our address.
    pub source: [u8; 6],
    /// The neighbour's address.
    pub destination: [u8; 6],
}

impl Layout for Neighbour {
    const SIZE: usize = 12;

    fn write(&self, to: &mut [u8]) {
        To(to, 0).put(&self.source).put(&self.destination);
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 0);
        Self { source: from.take(), destination: from.take() }
    }
}

/// A network that a workload may send from although it has other addresses; the value of `cali_v4_sprefix` is a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceKey<F: Family> {
    /// The number of matching bits.
    pub bits: u32,
    /// The index of the workload's device.
    pub device: u32,
    /// The network's address.
    pub address: F::Address,
}

impl<F: Family> Layout for SourceKey<F> {
    const SIZE: usize = 8 + F::WIDTH;

    fn write(&self, to: &mut [u8]) {
        To(to, 0)
            .put(&(32 + self.bits).to_ne_bytes())
            .put(&self.device.to_ne_bytes())
            .put(self.address.as_ref());
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 0);
        Self { bits: from.u32().saturating_sub(32), device: from.u32(), address: from.address::<F>() }
    }
}

/// The subject of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LimitKey {
    /// The index of the workload's device.
    pub device: u32,
    /// The limit is for packets to the workload; otherwise for packets from it.
    pub is_ingress: bool,
    /// 4 or 6.
    pub family: u16,
}

impl Layout for LimitKey {
    const SIZE: usize = 8;

    fn write(&self, to: &mut [u8]) {
        To(to, 0)
            .put(&self.device.to_ne_bytes())
            .put(&u16::from(self.is_ingress).to_ne_bytes())
            .put(&self.family.to_ne_bytes());
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 0);
        Self { device: from.u32(), is_ingress: from.u16() != 0, family: from.u16() }
    }
}

/// A token bucket for packets. The kernel's lock in front of it is written as zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketLimit {
    /// Packets per second.
    pub rate: i16,
    /// Packets in a burst.
    pub burst: i16,
    /// The tokens that are left.
    pub tokens: i16,
    /// When the tokens were last updated, in nanoseconds of the monotonic clock.
    pub counted: u64,
}

impl Layout for PacketLimit {
    const SIZE: usize = 24;

    fn write(&self, to: &mut [u8]) {
        To(to, 4)
            .put(&self.rate.to_ne_bytes())
            .put(&self.burst.to_ne_bytes())
            .put(&self.tokens.to_ne_bytes())
            .skip(6)
            .put(&self.counted.to_ne_bytes());
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 4);
        let mut next = || from.u16().cast_signed();
        let (rate, burst, tokens) = (next(), next(), next());
        Self { rate, burst, tokens, counted: from.skip(6).u64() }
    }
}

/// A limit of concurrent connections. The kernel's lock in front of it is written as zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionLimit {
    /// The maximum number; 0 for no limit.
    pub most: u32,
    /// The current number.
    pub count: u32,
}

impl Layout for ConnectionLimit {
    const SIZE: usize = 12;

    fn write(&self, to: &mut [u8]) {
        To(to, 4).put(&self.most.to_ne_bytes()).put(&self.count.to_ne_bytes());
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 4);
        Self { most: from.u32(), count: from.u32() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{V4, V6};
    use super::*;

    #[test]
    fn sizes_are_calicos() {
        assert_eq!((Device::SIZE, Neighbour::SIZE), (52, 12));
        assert_eq!((NeighbourKey::<V4>::SIZE, NeighbourKey::<V6>::SIZE), (8, 20));
        assert_eq!((SourceKey::<V4>::SIZE, SourceKey::<V6>::SIZE), (12, 24));
        assert_eq!((LimitKey::SIZE, PacketLimit::SIZE, ConnectionLimit::SIZE), (8, 24, 12));
    }

    #[test]
    fn every_field_has_its_offset() {
        let device =
            Device::new("cali0123456789abcdef", flags::WORKLOAD | flags::V6_READY | flags::NOT_MANAGED);
        let bytes = device.bytes();
        assert_eq!(bytes[..20], *b"\x05\x04\0\0cali0123456789a\0");
        assert_eq!(bytes[20..], [255; 32]);
        assert_eq!(Device::read(&bytes), device);
        let all = flags::V4_READY | flags::HOST | flags::BOND | flags::BOND_PART | flags::VXLAN | flags::IPIP;
        assert_eq!((all | flags::WIREGUARD | flags::LAYER_3).to_le_bytes(), [0xfa, 3, 0, 0]);

        let key = NeighbourKey::<V4> { address: [10, 0, 0, 1], device: 7 };
        assert_eq!(key.bytes(), [10, 0, 0, 1, 7, 0, 0, 0]);
        assert_eq!(NeighbourKey::read(&key.bytes()), key);
        let value = Neighbour { source: [1; 6], destination: [2; 6] };
        assert_eq!(value.bytes(), [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2]);
        assert_eq!(Neighbour::read(&value.bytes()), value);

        let key = SourceKey::<V4> { bits: 24, device: 7, address: [10, 0, 1, 0] };
        assert_eq!(key.bytes(), [56, 0, 0, 0, 7, 0, 0, 0, 10, 0, 1, 0]);
        assert_eq!(SourceKey::read(&key.bytes()), key);

        let key = LimitKey { device: 7, is_ingress: true, family: 6 };
        assert_eq!(key.bytes(), [7, 0, 0, 0, 1, 0, 6, 0]);
        assert_eq!(LimitKey::read(&key.bytes()), key);
        let value = PacketLimit { rate: 1, burst: 2, tokens: -1, counted: 3 };
        let expected = [0, 0, 0, 0, 1, 0, 2, 0, 255, 255, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(value.bytes(), expected);
        assert_eq!(PacketLimit::read(&value.bytes()), value);
        let value = ConnectionLimit { most: 5, count: 6 };
        assert_eq!(value.bytes(), [0, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0]);
        assert_eq!(ConnectionLimit::read(&value.bytes()), value);
    }
}
