//! Networks as keys of a table: eight bytes for IPv4, seventeen for IPv6.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network of one family.
pub(crate) trait Key: Copy + Eq + Ord + Hash {
    /// The key of a network; `None` if it is of the other family.
    fn of(net: IpNet) -> Option<Self>;

    /// The network of the key.
    fn net(self) -> IpNet;

    /// A group of sixteen adjacent networks of one length.
    type Row: Hash;

    /// The row of the network, and its position in it.
    fn row(self) -> (Self::Row, u8);

    /// The networks that contain this address, the most specific one first.
    fn containing(address: IpAddr) -> impl Iterator<Item = Self>;
}

/// An IPv4 network.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct V4 {
    bits: u32,
    length: u8,
}

impl Key for V4 {
    fn of(net: IpNet) -> Option<Self> {
        match net {
            IpNet::V4(net) => Some(Self { bits: net.network().to_bits(), length: net.prefix_len() }),
            IpNet::V6(_) => None,
        }
    }

    fn net(self) -> IpNet {
        IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::from_bits(self.bits), self.length))
    }

    type Row = u64;

    fn row(self) -> (u64, u8) {
        let number = u64::from(self.bits) >> (32 - u32::from(self.length));
        (number >> 4 << 8 | u64::from(self.length), number.to_le_bytes()[0] & 15)
    }

    fn containing(address: IpAddr) -> impl Iterator<Item = Self> {
        let bits = match address {
            IpAddr::V4(address) => Some(address.to_bits()),
            IpAddr::V6(_) => None,
        };
        (0..=32u8).rev().filter_map(move |length| {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            bits.map(|bits| Self { bits: bits & mask, length })
        })
    }
}

/// An IPv6 network. Bytes instead of an integer, which would be aligned to sixteen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct V6 {
    bytes: [u8; 16],
    length: u8,
}

impl Key for V6 {
    fn of(net: IpNet) -> Option<Self> {
        match net {
            IpNet::V6(net) => Some(Self { bytes: net.network().octets(), length: net.prefix_len() }),
            IpNet::V4(_) => None,
        }
    }

    fn net(self) -> IpNet {
        IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::from(self.bytes), self.length))
    }

    type Row = (u128, u8);

    fn row(self) -> ((u128, u8), u8) {
        let bits = u128::from_be_bytes(self.bytes);
        let number = bits.checked_shr(128 - u32::from(self.length)).unwrap_or(0);
        ((number >> 4, self.length), number.to_le_bytes()[0] & 15)
    }

    fn containing(address: IpAddr) -> impl Iterator<Item = Self> {
        let bits = match address {
            IpAddr::V6(address) => Some(address.to_bits()),
            IpAddr::V4(_) => None,
        };
        (0..=128u8).rev().filter_map(move |length| {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            bits.map(|bits| Self { bytes: (bits & mask).to_be_bytes(), length })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_keep_their_size_and_value() {
        assert_eq!((size_of::<V4>(), size_of::<V6>()), (8, 17));
        for text in ["0.0.0.0/0", "10.1.2.0/26", "255.255.255.255/32"] {
            let net: IpNet = text.parse().expect("a network");
            assert_eq!(V4::of(net).map(V4::net), Some(net));
            assert!(V6::of(net).is_none());
        }
        let net: IpNet = "fd00:1::/64".parse().expect("a network");
        assert_eq!(V6::of(net).map(V6::net), Some(net));
    }

    #[test]
    fn an_address_lies_in_one_network_of_each_length() {
        let address: IpAddr = "10.1.2.3".parse().expect("an address");
        let nets: Vec<IpNet> = V4::containing(address).map(V4::net).collect();
        assert_eq!(nets.len(), 33);
        assert!(nets.iter().all(|net| net.contains(&address) && net.trunc() == *net));
        assert_eq!(nets[0].prefix_len(), 32);
        assert_eq!(V6::containing("fd00::1".parse().expect("an address")).count(), 129);
        assert_eq!(V6::containing(address).count(), 0);
    }
}
