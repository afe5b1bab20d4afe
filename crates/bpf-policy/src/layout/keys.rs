//! The keys of the maps.

use super::{Bytes, ListId, Reader};
use ipnet::IpNet;
use std::net::IpAddr;

/// The size in bits of the fields before the port in a key of ports: list, dimension, protocol.
const PORT_BASE: u32 = 80;
const PORT_BITS: u8 = 16;

/// An address with protocol and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PairKey {
    /// The address.
    pub address: IpAddr,
    /// The protocol's number.
    pub protocol: u8,
    /// The port.
    pub port: u16,
}

/// A range of ports of a protocol in a list: a prefix of the port's sixteen bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortKey {
    /// The list.
    pub list: ListId,
    /// The dimension's number.
    pub dimension: u8,
    /// The protocol's number.
    pub protocol: u8,
    /// The lowest port of the range.
    pub port: u16,
    /// How many bits of the port are significant: 0 to 16.
    pub bits: u8,
}

/// A segment of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentKey {
    /// The list.
    pub list: ListId,
    /// The index of the segment.
    pub segment: u32,
}

/// A row: the rules of a segment that a value matches in one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey {
    /// The list.
    pub list: ListId,
    /// The value: a class, or the value of the list's port.
    pub value: u64,
    /// The index of the segment.
    pub segment: u16,
    /// The dimension's number.
    pub dimension: u8,
}

/// A rule of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleKey {
    /// The list.
    pub list: ListId,
    /// The index within the whole list.
    pub rule: u32,
}

/// An interface and an IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListsKey {
    /// The interface.
    pub ifindex: u32,
    /// 4 or 6.
    pub family: u32,
}

impl Bytes for IpAddr {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::V4(address) => out.extend(address.octets()),
            Self::V6(address) => out.extend(address.octets()),
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        if let Ok(octets) = <[u8; 4]>::try_from(bytes) {
            return Some(octets.into());
        }
        <[u8; 16]>::try_from(bytes).ok().map(Into::into)
    }
}

impl Bytes for IpNet {
    fn encode(&self, out: &mut Vec<u8>) {
        u32::from(self.prefix_len()).encode(out);
        self.network().encode(out);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (bits, address) = bytes.split_first_chunk::<4>()?;
        let bits = u8::try_from(u32::from_le_bytes(*bits)).ok()?;
        let net = Self::new(IpAddr::decode(address)?, bits).ok()?;
        (net.addr() == net.network()).then_some(net)
    }
}

impl Bytes for PairKey {
    fn encode(&self, out: &mut Vec<u8>) {
        self.address.encode(out);
        out.extend(self.port.to_be_bytes());
        out.extend([self.protocol, 0]);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (address, rest) = bytes.split_at_checked(bytes.len().checked_sub(4)?)?;
        let mut rest = Reader(rest);
        let (port, protocol) = (rest.u16_be()?, rest.u8()?);
        rest.zeros::<1>()?;
        Some(Self { address: IpAddr::decode(address)?, protocol, port })
    }
}

impl Bytes for PortKey {
    fn encode(&self, out: &mut Vec<u8>) {
        (PORT_BASE + u32::from(self.bits)).encode(out);
        self.list.encode(out);
        out.extend([self.dimension, self.protocol]);
        out.extend(self.port.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut bytes = Reader(bytes);
        let bits =
            u8::try_from(bytes.u32()?.checked_sub(PORT_BASE)?).ok().filter(|bits| *bits <= PORT_BITS)?;
        let key = Self {
            bits,
            list: ListId(bytes.u64()?),
            dimension: bytes.u8()?,
            protocol: bytes.u8()?,
            port: bytes.u16_be()?,
        };
        bytes.end()?;
        Some(key)
    }
}

impl Bytes for SegmentKey {
    fn encode(&self, out: &mut Vec<u8>) {
        self.list.encode(out);
        self.segment.encode(out);
        out.extend([0; 4]);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut bytes = Reader(bytes);
        let key = Self { list: ListId(bytes.u64()?), segment: bytes.u32()? };
        bytes.zeros::<4>()?;
        bytes.end()?;
        Some(key)
    }
}

impl Bytes for RowKey {
    fn encode(&self, out: &mut Vec<u8>) {
        self.list.encode(out);
        self.value.encode(out);
        out.extend(self.segment.to_le_bytes());
        out.push(self.dimension);
        out.extend([0; 5]);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut bytes = Reader(bytes);
        let key = Self {
            list: ListId(bytes.u64()?),
            value: bytes.u64()?,
            segment: bytes.u16()?,
            dimension: bytes.u8()?,
        };
        bytes.zeros::<5>()?;
        bytes.end()?;
        Some(key)
    }
}

impl Bytes for RuleKey {
    fn encode(&self, out: &mut Vec<u8>) {
        self.list.encode(out);
        self.rule.encode(out);
        out.extend([0; 4]);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut bytes = Reader(bytes);
        let key = Self { list: ListId(bytes.u64()?), rule: bytes.u32()? };
        bytes.zeros::<4>()?;
        bytes.end()?;
        Some(key)
    }
}

impl Bytes for ListsKey {
    fn encode(&self, out: &mut Vec<u8>) {
        self.ifindex.encode(out);
        self.family.encode(out);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut bytes = Reader(bytes);
        let key = Self { ifindex: bytes.u32()?, family: bytes.u32()? };
        bytes.end()?;
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Debug;

    fn check<T: Bytes + PartialEq + Debug>(key: T, expected: &[u8]) {
        assert_eq!(key.to_bytes(), expected, "{key:?}");
        assert_eq!(T::decode(expected), Some(key));
        assert_eq!(T::decode(&expected[1..]), None, "too short");
    }

    const LIST: ListId = ListId(0x1122_3344_5566_7788);
    const LIST_BYTES: [u8; 8] = [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11];

    fn with_list(before: &[u8], after: &[u8]) -> Vec<u8> {
        [before, &LIST_BYTES, after].concat()
    }

    #[test]
    fn keys_have_the_documented_bytes() {
        let v6: IpAddr = "fd00::1".parse().expect("an address");
        let v6_bytes = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        check(IpAddr::from([10, 1, 2, 3]), &[10, 1, 2, 3]);
        check(v6, &v6_bytes);
        check::<IpNet>("10.1.0.0/16".parse().expect("a network"), &[16, 0, 0, 0, 10, 1, 0, 0]);
        check(IpNet::new(v6, 128).expect("a network"), &[&[128, 0, 0, 0], &v6_bytes[..]].concat());
        check(
            PairKey { address: [10, 1, 2, 3].into(), protocol: 6, port: 0x1f90 },
            &[10, 1, 2, 3, 0x1f, 0x90, 6, 0],
        );
        check(PairKey { address: v6, protocol: 17, port: 53 }, &[&v6_bytes[..], &[0, 53, 17, 0]].concat());
        let port = PortKey { list: LIST, dimension: 2, protocol: 6, port: 0x1f00, bits: 8 };
        check(port, &with_list(&[88, 0, 0, 0], &[2, 6, 0x1f, 0]));
        check(SegmentKey { list: LIST, segment: 3 }, &with_list(&[], &[3, 0, 0, 0, 0, 0, 0, 0]));
        let row = RowKey { list: LIST, value: 0x0102_0304_0506_0708, segment: 0x0a0b, dimension: 4 };
        check(row, &with_list(&[], &[8, 7, 6, 5, 4, 3, 2, 1, 0x0b, 0x0a, 4, 0, 0, 0, 0, 0]));
        check(RuleKey { list: LIST, rule: 1025 }, &with_list(&[], &[1, 4, 0, 0, 0, 0, 0, 0]));
        check(ListsKey { ifindex: 7, family: 6 }, &[7, 0, 0, 0, 6, 0, 0, 0]);
    }

    #[test]
    fn foreign_bytes_are_refused() {
        assert_eq!(IpNet::decode(&[16, 0, 0, 0, 10, 1, 0, 1]), None, "bits behind the prefix");
        assert_eq!(IpNet::decode(&[33, 0, 0, 0, 10, 1, 0, 0]), None, "too long a prefix");
        assert_eq!(PairKey::decode(&[10, 1, 2, 3, 0, 80, 6, 1]), None, "padding");
        assert_eq!(SegmentKey::decode(&with_list(&[], &[3, 0, 0, 0, 0, 0, 0, 1])), None, "padding");
        assert_eq!(PortKey::decode(&with_list(&[97, 0, 0, 0], &[2, 6, 0x1f, 0])), None, "too long a prefix");
        assert_eq!(PortKey::decode(&with_list(&[79, 0, 0, 0], &[2, 6, 0x1f, 0])), None, "too short a prefix");
    }
}
