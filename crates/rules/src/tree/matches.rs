//! The conditions of rules: what a packet must have, and the small values in conditions.
//!
//! What happens to a packet that matches is not part of this.

use super::{InterfaceName, IpVersion, MapName, PortRange, SetName, Text};
use ipnet::IpNet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// One end of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// The source.
    Source,
    /// The destination.
    Destination,
}

/// The direction in which a packet passes an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The packet came in through it.
    In,
    /// The packet leaves through it.
    Out,
}

/// An interface by name, or all interfaces with a prefix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfacePattern {
    /// The name or prefix.
    pub name: Text,
    /// Whether it is only a prefix.
    pub is_prefix: bool,
}

impl InterfacePattern {
    /// Matches exactly this interface.
    #[must_use]
    pub fn exact(name: impl Into<InterfaceName>) -> Self {
        Self { name: name.into().text().clone(), is_prefix: false }
    }

    /// Matches all interfaces whose name begins with this.
    #[must_use]
    pub fn prefix(name: impl Into<Text>) -> Self {
        Self { name: name.into(), is_prefix: true }
    }

    /// Parses the form in settings: a `+` at the end means all interfaces with this prefix.
    #[must_use]
    pub fn from_setting(text: &str) -> Self {
        match text.strip_suffix('+') {
            Some(prefix) => Self::prefix(prefix),
            None => Self::exact(text),
        }
    }

    /// Whether the interface matches.
    #[must_use]
    pub fn contains(&self, interface: &str) -> bool {
        if self.is_prefix { interface.starts_with(&*self.name) } else { interface == &*self.name }
    }
}

/// A protocol by number, or by its name in rules. Number and name are different texts, so they make different rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// By number.
    Number(u8),
    /// By name, with its number.
    Named(&'static str, u8),
}

impl Protocol {
    /// TCP by name.
    pub const TCP: Self = Self::Named("tcp", 6);
    /// UDP by name.
    pub const UDP: Self = Self::Named("udp", 17);

    /// The number in packets.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Number(number) | Self::Named(_, number) => number,
        }
    }

    /// The name of the protocol if its packets have ports: `tcp`, `udp` or `sctp`.
    #[must_use]
    pub const fn transport(self) -> Option<&'static str> {
        match self.number() {
            6 => Some("tcp"),
            17 => Some("udp"),
            132 => Some("sctp"),
            _ => None,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Named(name, _) => f.write_str(name),
        }
    }
}

/// The states of connection tracking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Conntrack {
    /// The packet belongs to a known connection, or is about one.
    RelatedOrEstablished,
    /// The packet fits no connection and begins none.
    Invalid,
    /// The packet begins a connection.
    New,
    /// The destination was translated: a state for iptables, a status bit for nftables.
    Dnat,
}

/// A rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate {
    /// The number of events.
    pub count: u32,
    /// The period in which they may happen.
    pub unit: RateUnit,
}

/// The period of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RateUnit {
    /// `second`
    Second,
    /// `minute`
    Minute,
    /// `hour`
    Hour,
    /// `day`
    Day,
}

impl RateUnit {
    /// The name of the period.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }

    /// The length of the period.
    #[must_use]
    pub const fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3600,
            Self::Day => 86400,
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, self.unit.as_str())
    }
}

/// One condition on a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// The transport protocol.
    Protocol {
        /// The protocol that packets must have.
        protocol: Protocol,
        /// Any protocol but this.
        negated: bool,
    },
    /// The interface.
    Interface {
        /// The direction.
        side: Side,
        /// The names that match.
        pattern: InterfacePattern,
    },
    /// Looks up the rule's verdict by interface; packets of interfaces that are not in the map continue after the rule.
    /// Only nftables, and only in a rule without an action.
    InterfaceMap {
        /// The direction.
        side: Side,
        /// The map.
        map: MapName,
    },
    /// The bits of the mark under the mask.
    Mark {
        /// Their value; 0 means that all are clear.
        value: u32,
        /// The bits.
        mask: u32,
        /// Any value but this.
        negated: bool,
    },
    /// The state of connection tracking.
    Conntrack {
        /// The state.
        state: Conntrack,
        /// Any state but this.
        negated: bool,
    },
    /// An address in a network. The network is written with its length even if it is a single address.
    Net {
        /// The end of the packet.
        end: End,
        /// The network.
        net: IpNet,
        /// Any address outside of it.
        negated: bool,
    },
    /// Exactly this address, written without a length.
    Address {
        /// The end of the packet.
        end: End,
        /// The address.
        address: IpAddr,
    },
    /// An address in a set of addresses or networks.
    IpSet {
        /// The end of the packet.
        end: End,
        /// The set.
        name: SetName,
        /// Any address that is not in it.
        negated: bool,
    },
    /// Address, protocol and port of one end, in a set of such triples.
    IpPortSet {
        /// The end of the packet.
        end: End,
        /// The set.
        name: SetName,
        /// Any triple that is not in it.
        negated: bool,
    },
    /// Ports; at most fifteen slots, where a range takes two. Needs a [`Match::Protocol`] with ports before it.
    Ports {
        /// The end of the packet.
        end: End,
        /// Any of these. They may overlap.
        ports: Arc<[PortRange]>,
        /// None of these.
        negated: bool,
    },
    /// One destination port, in its plain form. Needs a [`Match::Protocol`] with ports before it.
    DestinationPort(u16),
    /// An ICMP message. Needs a [`Match::Protocol`] of the same version before it.
    Icmp {
        /// ICMP or ICMPv6.
        version: IpVersion,
        /// The type.
        icmp_type: u8,
        /// The code; `None` for all codes of the type.
        code: Option<u8>,
        /// Any other message; with a code: another type or another code. The negation of a code is only for iptables.
        negated: bool,
    },
    /// An address of this host.
    LocalAddress {
        /// The end of the packet.
        end: End,
        /// Only addresses of the interface that the packet leaves by.
        limit_interface_out: bool,
        /// Any address that is not one.
        negated: bool,
    },
    /// The route back to the packet's source uses another interface (with the packet's mark).
    ReversePathFailed,
    /// The packet belongs to a connection of IPVS; only iptables.
    Ipvs {
        /// The packet does not belong to one.
        negated: bool,
    },
    /// At most at this rate, with this burst; 0 leaves the burst to the kernel.
    Limit {
        /// The rate.
        rate: Rate,
        /// The burst.
        burst: u16,
    },
    /// An ARP reply; only in nftables' ARP family.
    ArpReply,
    /// The sender's IP address of an ARP packet; only in nftables' ARP family.
    ArpSource(Ipv4Addr),
}
