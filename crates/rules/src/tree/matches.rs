//! The conditions of rules: what a packet must have, and the small values that conditions are made of.
//!
//! It refuses to know what is done with a packet that matches.

use super::{InterfaceName, IpVersion, MapName, PortRange, SetName, Text};
use ipnet::IpNet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// One end of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// Where it comes from.
    Source,
    /// Where it goes to.
    Destination,
}

/// The side of the host that an interface is on, for one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The packet came in here.
    In,
    /// The packet leaves here.
    Out,
}

/// An interface by name, or all whose name begins so.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfacePattern {
    /// The name or its beginning.
    pub name: Text,
    /// Whether it is only the beginning.
    pub is_prefix: bool,
}

impl InterfacePattern {
    /// Exactly this interface.
    #[must_use]
    pub fn exact(name: impl Into<InterfaceName>) -> Self {
        Self { name: name.into().text().clone(), is_prefix: false }
    }

    /// All interfaces whose name begins so.
    #[must_use]
    pub fn prefix(name: impl Into<Text>) -> Self {
        Self { name: name.into(), is_prefix: true }
    }

    /// As users write it in settings: a `+` at the end means all that begin so.
    #[must_use]
    pub fn from_setting(text: &str) -> Self {
        match text.strip_suffix('+') {
            Some(prefix) => Self::prefix(prefix),
            None => Self::exact(text),
        }
    }

    /// Whether the interface is meant.
    #[must_use]
    pub fn contains(&self, interface: &str) -> bool {
        if self.is_prefix { interface.starts_with(&*self.name) } else { interface == &*self.name }
    }
}

/// A protocol by number or by the name that rules are written with; the two are different texts, so different rules.
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

    /// The number that goes into a packet.
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

/// What connection tracking says about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Conntrack {
    /// It belongs to a known connection, or is about one.
    RelatedOrEstablished,
    /// It fits no connection and begins none.
    Invalid,
    /// It begins a connection.
    New,
    /// Its destination was translated: a state for iptables, a status bit for nftables.
    Dnat,
}

/// How often something may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate {
    /// How many times.
    pub count: u32,
    /// In which span.
    pub unit: RateUnit,
}

/// A span of time.
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
    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }

    /// Its length.
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
        /// Any other.
        negated: bool,
    },
    /// The interface.
    Interface {
        /// Of which side.
        side: Side,
        /// The names that match.
        pattern: InterfacePattern,
    },
    /// The rule's verdict is looked up by interface; packets of interfaces that are not in the map go on. Only nftables,
    /// and only in a rule without an action.
    InterfaceMap {
        /// Of which side.
        side: Side,
        /// The map.
        map: MapName,
    },
    /// The bits of the mark under the mask.
    Mark {
        /// What they are; 0 means that all are clear.
        value: u32,
        /// Which bits.
        mask: u32,
        /// What they are not.
        negated: bool,
    },
    /// What connection tracking says.
    Conntrack {
        /// The state.
        state: Conntrack,
        /// Any other.
        negated: bool,
    },
    /// An address in a network. A network of one address is written with its length all the same.
    Net {
        /// Of which end.
        end: End,
        /// The network.
        net: IpNet,
        /// Outside of it.
        negated: bool,
    },
    /// Exactly this address, written without a length.
    Address {
        /// Of which end.
        end: End,
        /// The address.
        address: IpAddr,
    },
    /// An address in a set of addresses or networks.
    IpSet {
        /// Of which end.
        end: End,
        /// The set.
        name: SetName,
        /// Not in it.
        negated: bool,
    },
    /// Address, protocol and port of one end in a set of such.
    IpPortSet {
        /// Of which end.
        end: End,
        /// The set.
        name: SetName,
        /// Not in it.
        negated: bool,
    },
    /// Ports; at most fifteen slots, where a range takes two. Needs a [`Match::Protocol`] with ports before it.
    Ports {
        /// Of which end.
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
        /// The code; none for all codes of the type.
        code: Option<u8>,
        /// Any other message than this one; with a code: another type or another code. With a code only iptables gets it.
        negated: bool,
    },
    /// An address of this host.
    LocalAddress {
        /// Of which end.
        end: End,
        /// Only addresses of the interface that the packet leaves by.
        limit_interface_out: bool,
        /// Not such an address.
        negated: bool,
    },
    /// The way back to the packet's source leads through another interface (the packet's mark is honoured).
    ReversePathFailed,
    /// The packet belongs to a connection of IPVS; only iptables.
    Ipvs {
        /// It does not.
        negated: bool,
    },
    /// At most so often, with so many at once; 0 leaves the number to the kernel.
    Limit {
        /// How often.
        rate: Rate,
        /// How many at once.
        burst: u16,
    },
    /// An ARP reply; only in nftables' ARP family.
    ArpReply,
    /// The sender's IP address of an ARP packet; only in nftables' ARP family.
    ArpSource(Ipv4Addr),
}
