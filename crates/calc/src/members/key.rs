//! Members as numbers: those of IPv4 take 8 bytes, those of IPv6 20, in the order in which sets are written out.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use messages::{IpSetMember, IpSetType};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A member as an ordered number. The meaning of the part beside the address depends on the type of the set.
pub(crate) trait MemberKey: Copy + Ord {
    /// Returns the member, for a set of this type.
    fn member(self, set_type: IpSetType) -> IpSetMember;

    /// For networks: the length of the prefix.
    fn prefix(self) -> u8;

    /// For networks: the network with this shorter prefix that contains this one.
    fn widened(self, prefix: u8) -> Self;

    /// For networks: the greatest key that a network within this one can have.
    fn last_within(self) -> Self;

    /// For networks: whether `other` is equal to this one or lies within it.
    fn contains(self, other: Self) -> bool {
        other.prefix() >= self.prefix() && other.widened(self.prefix()) == self
    }
}

/// An IPv4 address, then the prefix length, or port and protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key4(u64);

/// An IPv6 address, then the prefix length, or port and protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key6([u8; 16], u32);

const REST: u32 = 24;

/// The protocol comes before the port, as in the order of [`IpSetMember`].
fn rest_of_port(protocol: u8, port: u16) -> u32 {
    u32::from(protocol) << 16 | u32::from(port)
}

#[expect(clippy::cast_possible_truncation, reason = "protocol and port are the bits that are kept")]
fn port_of_rest(rest: u32) -> (u8, u16) {
    ((rest >> 16) as u8, rest as u16)
}

impl Key4 {
    pub(crate) fn net(net: Ipv4Net) -> Self {
        Self(u64::from(u32::from(net.addr())) << REST | u64::from(net.prefix_len()))
    }

    pub(crate) fn port(address: Ipv4Addr, protocol: u8, port: u16) -> Self {
        Self(u64::from(u32::from(address)) << REST | u64::from(rest_of_port(protocol, port)))
    }

    #[expect(clippy::cast_possible_truncation, reason = "the address is 32 bits")]
    fn address(self) -> u32 {
        (self.0 >> REST) as u32
    }

    #[expect(clippy::cast_possible_truncation, reason = "the rest is 24 bits")]
    fn rest(self) -> u32 {
        self.0 as u32 & ((1 << REST) - 1)
    }

    fn mask(prefix: u8) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0)
    }
}

impl MemberKey for Key4 {
    fn member(self, set_type: IpSetType) -> IpSetMember {
        let address = Ipv4Addr::from(self.address());
        match set_type {
            IpSetType::Ip => IpSetMember::Ip(address.into()),
            IpSetType::Net => IpSetMember::Net(
                Ipv4Net::new(address, self.prefix()).map_or(IpNet::from(IpAddr::V4(address)), IpNet::V4),
            ),
            IpSetType::IpAndPort => {
                let (protocol, port) = port_of_rest(self.rest());
                IpSetMember::IpAndPort { address: address.into(), protocol, port }
            }
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a prefix is at most 32")]
    fn prefix(self) -> u8 {
        self.rest() as u8
    }

    fn widened(self, prefix: u8) -> Self {
        Self(u64::from(self.address() & Self::mask(prefix)) << REST | u64::from(prefix))
    }

    fn last_within(self) -> Self {
        Self(u64::from(self.address() | !Self::mask(self.prefix())) << REST | 0xff)
    }
}

impl Key6 {
    pub(crate) fn net(net: Ipv6Net) -> Self {
        Self(net.addr().octets(), net.prefix_len().into())
    }

    pub(crate) fn port(address: Ipv6Addr, protocol: u8, port: u16) -> Self {
        Self(address.octets(), rest_of_port(protocol, port))
    }

    fn mask(prefix: u8) -> u128 {
        u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0)
    }
}

impl MemberKey for Key6 {
    fn member(self, set_type: IpSetType) -> IpSetMember {
        let address = Ipv6Addr::from(self.0);
        match set_type {
            IpSetType::Ip => IpSetMember::Ip(address.into()),
            IpSetType::Net => IpSetMember::Net(
                Ipv6Net::new(address, self.prefix()).map_or(IpNet::from(IpAddr::V6(address)), IpNet::V6),
            ),
            IpSetType::IpAndPort => {
                let (protocol, port) = port_of_rest(self.1);
                IpSetMember::IpAndPort { address: address.into(), protocol, port }
            }
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a prefix is at most 128")]
    fn prefix(self) -> u8 {
        self.1 as u8
    }

    fn widened(self, prefix: u8) -> Self {
        Self((u128::from_be_bytes(self.0) & Self::mask(prefix)).to_be_bytes(), prefix.into())
    }

    fn last_within(self) -> Self {
        Self((u128::from_be_bytes(self.0) | !Self::mask(self.prefix())).to_be_bytes(), 0xff)
    }
}
