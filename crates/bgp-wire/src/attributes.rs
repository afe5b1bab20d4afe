//! Path attributes of the routes in an UPDATE.

use crate::{AsPath, Asn, Community, ExtendedCommunity, LargeCommunity, RouterId};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The type codes of attributes.
pub mod attribute {
    /// ORIGIN.
    pub const ORIGIN: u8 = 1;
    /// AS_PATH.
    pub const AS_PATH: u8 = 2;
    /// NEXT_HOP.
    pub const NEXT_HOP: u8 = 3;
    /// MULTI_EXIT_DISC.
    pub const MED: u8 = 4;
    /// LOCAL_PREF.
    pub const LOCAL_PREF: u8 = 5;
    /// ATOMIC_AGGREGATE.
    pub const ATOMIC_AGGREGATE: u8 = 6;
    /// AGGREGATOR.
    pub const AGGREGATOR: u8 = 7;
    /// COMMUNITIES.
    pub const COMMUNITIES: u8 = 8;
    /// ORIGINATOR_ID.
    pub const ORIGINATOR_ID: u8 = 9;
    /// CLUSTER_LIST.
    pub const CLUSTER_LIST: u8 = 10;
    /// MP_REACH_NLRI.
    pub const MP_REACH: u8 = 14;
    /// MP_UNREACH_NLRI.
    pub const MP_UNREACH: u8 = 15;
    /// EXTENDED COMMUNITIES.
    pub const EXTENDED_COMMUNITIES: u8 = 16;
    /// AS4_PATH.
    pub const AS4_PATH: u8 = 17;
    /// AS4_AGGREGATOR.
    pub const AS4_AGGREGATOR: u8 = 18;
    /// AIGP.
    pub const AIGP: u8 = 26;
    /// LARGE_COMMUNITY.
    pub const LARGE_COMMUNITIES: u8 = 32;
}

/// How the route came into BGP. Lower is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// From an interior protocol, or configured.
    #[default]
    Igp,
    /// From EGP.
    Egp,
    /// Learnt by other means.
    Incomplete,
}

impl Origin {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Igp => 0,
            Self::Egp => 1,
            Self::Incomplete => 2,
        }
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Igp),
            1 => Some(Self::Egp),
            2 => Some(Self::Incomplete),
            _ => None,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Igp => "IGP",
            Self::Egp => "EGP",
            Self::Incomplete => "Incomplete",
        })
    }
}

/// The speaker that formed an aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Aggregator {
    /// Its AS number.
    pub system: Asn,
    /// Its BGP identifier.
    pub id: RouterId,
}

/// An unknown attribute. Only transitive ones are kept; they are passed on with the partial bit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnknownAttribute {
    /// The type code.
    pub code: u8,
    /// The sender's flags, without the extended length bit.
    pub flags: u8,
    /// The value.
    pub value: Box<[u8]>,
}

/// The next hop of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NextHop {
    /// An IPv4 address.
    Ipv4(Ipv4Addr),
    /// An IPv6 address, with the neighbour's link-local address if given. Also for IPv4 routes (RFC 8950).
    Ipv6 {
        /// The global address; for an unnumbered peer the link-local one.
        address: Ipv6Addr,
        /// The additional link-local address.
        link_local: Option<Ipv6Addr>,
    },
}

impl NextHop {
    /// The address that is resolved and compared.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        match self {
            Self::Ipv4(address) => IpAddr::V4(*address),
            Self::Ipv6 { address, .. } => IpAddr::V6(*address),
        }
    }

    /// The link-local address of the next hop, if it has one.
    #[must_use]
    pub fn link_local(&self) -> Option<Ipv6Addr> {
        match self {
            Self::Ipv4(_) => None,
            Self::Ipv6 { address, link_local } => {
                link_local.or_else(|| address.is_unicast_link_local().then_some(*address))
            }
        }
    }
}

impl From<IpAddr> for NextHop {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::Ipv4(address),
            IpAddr::V6(address) => Self::Ipv6 { address, link_local: None },
        }
    }
}

impl fmt::Display for NextHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address().fmt(f)
    }
}

/// The attributes of a route, except the next hop, which is in [`crate::Reach`]. Equal attributes are equal values, so
/// that a table can store each once.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attributes {
    /// ORIGIN.
    pub origin: Origin,
    /// AS_PATH, with the numbers of AS4_PATH restored.
    pub as_path: AsPath,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// LOCAL_PREF. Dropped when received from an external peer.
    pub local_pref: Option<u32>,
    /// ATOMIC_AGGREGATE.
    pub atomic_aggregate: bool,
    /// AGGREGATOR.
    pub aggregator: Option<Aggregator>,
    /// COMMUNITIES, in the order of the sender.
    pub communities: Box<[Community]>,
    /// EXTENDED COMMUNITIES.
    pub extended_communities: Box<[ExtendedCommunity]>,
    /// LARGE_COMMUNITY.
    pub large_communities: Box<[LargeCommunity]>,
    /// ORIGINATOR_ID: the speaker that introduced the route into this AS. Dropped when received from an external peer.
    pub originator_id: Option<RouterId>,
    /// CLUSTER_LIST: the reflectors that passed the route on, the newest first. Dropped when received from an external
    /// peer.
    pub cluster_list: Box<[RouterId]>,
    /// AIGP: the accumulated metric. Dropped when received from an external peer.
    pub aigp: Option<u64>,
    /// Unknown transitive attributes, by type code.
    pub unknown: Box<[UnknownAttribute]>,
}
