//! Address families, AS numbers, router ids and prefixes.

use ipnet::IpNet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

/// The families whose unicast routes are exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4 unicast (1/1).
    Ipv4,
    /// IPv6 unicast (2/1).
    Ipv6,
}

impl Family {
    /// Both, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::Ipv4, Self::Ipv6];

    /// The family of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::Ipv4 } else { Self::Ipv6 }
    }

    /// The family of a prefix.
    #[must_use]
    pub fn of_prefix(prefix: &IpNet) -> Self {
        match prefix {
            IpNet::V4(_) => Self::Ipv4,
            IpNet::V6(_) => Self::Ipv6,
        }
    }

    /// The address family identifier.
    #[must_use]
    pub fn afi(self) -> u16 {
        match self {
            Self::Ipv4 => 1,
            Self::Ipv6 => 2,
        }
    }

    /// The subsequent address family identifier: unicast.
    #[must_use]
    pub fn safi(self) -> u8 {
        1
    }

    /// The family of the two identifiers; `None` if it is not supported here.
    #[must_use]
    pub fn from_numbers(afi: u16, safi: u8) -> Option<Self> {
        match (afi, safi) {
            (1, 1) => Some(Self::Ipv4),
            (2, 1) => Some(Self::Ipv6),
            _ => None,
        }
    }

    /// The index in an array with one value per family.
    #[must_use]
    pub fn index(self) -> usize {
        match self {
            Self::Ipv4 => 0,
            Self::Ipv6 => 1,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        })
    }
}

/// An AS number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Asn(pub u32);

impl Asn {
    /// The number as two bytes; AS_TRANS if it needs four.
    #[must_use]
    pub fn two_bytes(self) -> u16 {
        u16::try_from(self.0).unwrap_or(crate::AS_TRANS)
    }

    /// Whether the number is for private use (RFC 6996).
    #[must_use]
    pub fn is_private(self) -> bool {
        matches!(self.0, 64512..=65534 | 4_200_000_000..=4_294_967_294)
    }
}

impl fmt::Display for Asn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The identifier of a speaker, or of a reflector's cluster: four bytes, written as an IPv4 address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouterId(pub u32);

impl From<Ipv4Addr> for RouterId {
    fn from(address: Ipv4Addr) -> Self {
        Self(u32::from(address))
    }
}

impl FromStr for RouterId {
    type Err = std::net::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.parse::<Ipv4Addr>()?.into())
    }
}

impl fmt::Display for RouterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv4Addr::from(self.0).fmt(f)
    }
}

impl fmt::Debug for RouterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Identifies one of several paths of a prefix (RFC 7911). 0 where paths have no identifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u32);

/// A prefix in an UPDATE. Bits beyond the prefix length are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nlri {
    /// The destination.
    pub prefix: IpNet,
    /// The path, if the sender announces several.
    pub path: PathId,
}

impl Nlri {
    /// A prefix without a path identifier.
    #[must_use]
    pub fn new(prefix: IpNet) -> Self {
        Self { prefix: prefix.trunc(), path: PathId::default() }
    }

    /// The family of the prefix.
    #[must_use]
    pub fn family(&self) -> Family {
        Family::of_prefix(&self.prefix)
    }
}

impl From<IpNet> for Nlri {
    fn from(prefix: IpNet) -> Self {
        Self::new(prefix)
    }
}
