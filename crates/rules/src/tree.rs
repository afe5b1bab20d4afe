//! The rule tree: chains, rules, matches and actions in a form that is independent of backends. iptables text, nftables
//! text and netlink expressions are all derived from it.
//!
//! The order of matches in a rule, and of rules in a chain, is part of their identity: hashes depend on it. Names of
//! chains are the short ones (`cali-INPUT`); the nftables backend adds the table's name
//! ([`crate::nftables::chain_name`]). Names of sets are those of the ipset backend (`cali40s:…`); nftables writes `-`
//! for `:` ([`crate::nftables::set_name`]).
//!
//! The tree makes no decisions and does not know Calico's policies.

mod matches;

pub use matches::{Conntrack, End, InterfacePattern, Match, Protocol, Rate, RateUnit, Side};
pub use messages::{InterfaceName, PortRange, Text};
pub use model::IpVersion;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

messages::name_types! {
    /// The name of a chain, without the table's name before it.
    ChainName;
    /// The name of a set in the kernel, as the ipset backend writes it.
    SetName;
    /// The name of a map from interfaces to chains, without the table's name before it.
    MapName;
}

/// The tables of iptables; in nftables the layers of the one table `calico`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// Before connection tracking.
    Raw,
    /// Before destination NAT and after routing.
    Mangle,
    /// Address translation.
    Nat,
    /// Ordinary policy.
    Filter,
}

impl Table {
    /// All tables, in the order in which packets meet them.
    pub const ALL: [Self; 4] = [Self::Raw, Self::Mangle, Self::Nat, Self::Filter];

    /// The name that iptables uses.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Mangle => "mangle",
            Self::Nat => "nat",
            Self::Filter => "filter",
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One of our chains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The name.
    pub name: ChainName,
    /// The rules, in order. Shared, because the same chain can be in several tables and there are thousands.
    pub rules: Arc<[Rule]>,
}

/// One rule: if everything in `matches` matches, `action` is carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// The conditions, in order.
    pub matches: Vec<Match>,
    /// The action; `None` for a rule whose match decides ([`Match::InterfaceMap`]), and for a chain's comment.
    pub action: Option<Action>,
    /// Notes for people; together with the hash they become the rule's comments.
    pub comments: Vec<Text>,
}

/// The way to reject a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RejectWith {
    /// With the family's port-unreachable message.
    PortUnreachable,
    /// With a TCP reset.
    TcpReset,
}

/// How much of a packet is copied to the log, and with which option of iptables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NfLogSize {
    /// `--nflog-size`
    Size(u32),
    /// `--nflog-range`, for programs that do not support the other option.
    Range(u32),
}

/// The action for a packet that matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// This table allows the packet.
    Accept,
    /// The packet is dropped.
    Drop,
    /// The packet is dropped, and its sender gets a reply.
    Reject(RejectWith),
    /// Returns to the chain that jumped here.
    Return,
    /// Continues in that chain, and then returns here.
    Jump(ChainName),
    /// Continues in that chain, and does not return here.
    Goto(ChainName),
    /// Writes a line to the kernel's log that begins with this text and `: `. Level 5 with iptables, info with
    /// nftables.
    Log {
        /// The prefix of the line.
        prefix: Text,
    },
    /// Copies the packet to a listener.
    NfLog {
        /// The listener's group.
        group: u16,
        /// The text that accompanies the copy.
        prefix: Text,
        /// How much of the packet is copied.
        size: NfLogSize,
    },
    /// Sets these bits of the mark.
    SetMark(u32),
    /// Clears these bits of the mark.
    ClearMark(u32),
    /// Sets the bits under the mask to the value.
    SetMaskedMark {
        /// The value, within the mask.
        value: u32,
        /// The bits.
        mask: u32,
    },
    /// Sets the bits of the connection's mark under the mask to the value; mask 0 means all bits.
    SetConnectionMark {
        /// The value.
        value: u32,
        /// The bits.
        mask: u32,
    },
    /// Copies the packet's mark to the connection; mask 0 means all bits.
    SaveConnectionMark {
        /// The bits.
        mask: u32,
    },
    /// Copies the connection's mark to the packet; mask 0 means all bits.
    RestoreConnectionMark {
        /// The bits.
        mask: u32,
    },
    /// Replaces the source by the address of the interface through which the packet leaves.
    Masquerade {
        /// The ports to choose from; needs a [`Match::Protocol`] with ports.
        ports: Option<(u16, u16)>,
        /// Whether ports are chosen at random.
        random_fully: bool,
    },
    /// Replaces the source.
    Snat {
        /// The address.
        address: IpAddr,
        /// The ports to choose from; needs a [`Match::Protocol`] with ports.
        ports: Option<(u16, u16)>,
        /// Whether ports are chosen at random.
        random_fully: bool,
    },
    /// Replaces the destination.
    Dnat {
        /// The address.
        address: IpAddr,
        /// The port; `None` keeps the packet's.
        port: Option<u16>,
    },
    /// The connection is not tracked.
    NoTrack,
    /// Drops packets above the rate (nftables), or marks packets within the rate, so that later rules can drop the
    /// others (iptables, which has no "over").
    LimitPacketRate {
        /// Packets per second.
        rate: u32,
        /// The burst.
        burst: u32,
        /// The mark for packets within the rate.
        mark: u32,
    },
    /// Resets new TCP connections above this number of simultaneous ones.
    LimitConnections {
        /// The number of connections.
        count: u32,
    },
    /// Writes the DSCP field.
    SetDscp(u8),
    /// Lets the packets of the connection use the flow table `calico` from now on; only nftables.
    FlowOffload,
}

impl Action {
    /// The chain that this leads to, if any.
    #[must_use]
    pub fn target(&self) -> Option<&ChainName> {
        match self {
            Self::Jump(chain) | Self::Goto(chain) => Some(chain),
            _ => None,
        }
    }
}

impl Rule {
    /// The chain that this leads to, if any.
    #[must_use]
    pub fn target(&self) -> Option<&ChainName> {
        self.action.as_ref()?.target()
    }
}

impl Chain {
    /// Creates a chain of these rules.
    #[must_use]
    pub fn new(name: impl Into<ChainName>, rules: Vec<Rule>) -> Self {
        Self { name: name.into(), rules: rules.into() }
    }

    /// The chains that this one's rules lead to, with repetitions.
    pub fn targets(&self) -> impl Iterator<Item = &ChainName> {
        self.rules.iter().filter_map(Rule::target)
    }

    /// The sets that this one's rules name, with repetitions.
    pub fn ip_sets(&self) -> impl Iterator<Item = &SetName> {
        self.rules.iter().flat_map(|rule| &rule.matches).filter_map(|one| match one {
            Match::IpSet { name, .. } | Match::IpPortSet { name, .. } => Some(name),
            _ => None,
        })
    }

    /// The maps that this one's rules look up, with repetitions.
    pub fn maps(&self) -> impl Iterator<Item = &MapName> {
        self.rules.iter().flat_map(|rule| &rule.matches).filter_map(|one| match one {
            Match::InterfaceMap { map, .. } => Some(map),
            _ => None,
        })
    }
}

/// A map from interface to chain; only nftables. Packets of an interface in the map continue in its chain and do not
/// return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerdictMap {
    /// The name.
    pub name: MapName,
    /// Interfaces and their chains.
    pub entries: BTreeMap<InterfaceName, ChainName>,
}

/// The rules for one of the kernel's own chains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelChain {
    /// The kernel's chain, such as `FORWARD`.
    pub name: &'static str,
    /// Rules at the place that the configuration chooses.
    pub inserted: Vec<Rule>,
    /// Rules that are always at the end.
    pub appended: Vec<Rule>,
}
