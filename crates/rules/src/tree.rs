//! The rule tree: chains, rules, matches and actions in a form that belongs to no backend. iptables text, nftables text
//! and netlink expressions are made from the same values.
//!
//! The order of matches in a rule, and of rules in a chain, is part of their identity: hashes depend on it. Names of
//! chains are the short ones (`cali-INPUT`); the nftables backend puts the table's name before them
//! ([`crate::nftables::chain_name`]). Names of sets are those of the ipset backend (`cali40s:…`); nftables writes `-` for
//! `:` ([`crate::nftables::set_name`]).
//!
//! Nothing here decides anything, and nothing here knows Calico's policies.

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
    /// All of them, in the order in which packets meet them.
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

/// A chain of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The name.
    pub name: ChainName,
    /// The rules, in order. The same chain can be in several tables, and there are thousands.
    pub rules: Arc<[Rule]>,
}

/// One rule: everything in `matches` must match, then `action` is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// What must match, in order.
    pub matches: Vec<Match>,
    /// What is done; none for a rule whose match decides ([`Match::InterfaceMap`]), and for a chain's comment.
    pub action: Option<Action>,
    /// Notes for people; with the hash they become the rule's comments.
    pub comments: Vec<Text>,
}

/// How a packet is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RejectWith {
    /// The family's port-unreachable message.
    PortUnreachable,
    /// A TCP reset.
    TcpReset,
}

/// How much of a packet is copied to the log, and by which option of iptables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NfLogSize {
    /// `--nflog-size`
    Size(u32),
    /// `--nflog-range`, for programs that do not know the other
    Range(u32),
}

/// What is done with a packet that matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The packet may pass this table.
    Accept,
    /// The packet is gone.
    Drop,
    /// The packet is dropped, and its sender gets an answer.
    Reject(RejectWith),
    /// Back to the chain that jumped here.
    Return,
    /// On in that chain, then back here.
    Jump(ChainName),
    /// On in that chain, and not back here.
    Goto(ChainName),
    /// A line in the kernel's log, beginning with this text and `: `. Level 5 with iptables, info with nftables.
    Log {
        /// The beginning.
        prefix: Text,
    },
    /// A copy to a listener.
    NfLog {
        /// The listener's group.
        group: u16,
        /// The text that goes with it.
        prefix: Text,
        /// How much of the packet.
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
    /// The source becomes the address of the interface that the packet leaves by.
    Masquerade {
        /// Ports to choose from; needs a [`Match::Protocol`] with ports.
        ports: Option<(u16, u16)>,
        /// Whether ports are chosen at random.
        random_fully: bool,
    },
    /// The source becomes this.
    Snat {
        /// The address.
        address: IpAddr,
        /// Ports to choose from; needs a [`Match::Protocol`] with ports.
        ports: Option<(u16, u16)>,
        /// Whether ports are chosen at random.
        random_fully: bool,
    },
    /// The destination becomes this.
    Dnat {
        /// The address.
        address: IpAddr,
        /// The port; none leaves it.
        port: Option<u16>,
    },
    /// The connection is not tracked.
    NoTrack,
    /// Packets over the rate: dropped (nftables). Packets within the rate: marked, so that later rules can drop the others
    /// (iptables, which has no "over").
    LimitPacketRate {
        /// Packets per second.
        rate: u32,
        /// How many at once.
        burst: u32,
        /// The mark for packets within the rate.
        mark: u32,
    },
    /// New TCP connections over so many at once are reset.
    LimitConnections {
        /// How many.
        count: u32,
    },
    /// Writes the DSCP field.
    SetDscp(u8),
    /// Packets of the connection take the flow table `calico` from now on; only nftables.
    FlowOffload,
}

impl Action {
    /// The chain that this goes to, if it goes to one.
    #[must_use]
    pub fn target(&self) -> Option<&ChainName> {
        match self {
            Self::Jump(chain) | Self::Goto(chain) => Some(chain),
            _ => None,
        }
    }
}

impl Rule {
    /// The chain that this goes to, if it goes to one.
    #[must_use]
    pub fn target(&self) -> Option<&ChainName> {
        self.action.as_ref()?.target()
    }
}

impl Chain {
    /// A chain of these rules.
    #[must_use]
    pub fn new(name: impl Into<ChainName>, rules: Vec<Rule>) -> Self {
        Self { name: name.into(), rules: rules.into() }
    }

    /// The chains that rules of this one go to, with repetitions.
    pub fn targets(&self) -> impl Iterator<Item = &ChainName> {
        self.rules.iter().filter_map(Rule::target)
    }

    /// The sets that rules of this one name, with repetitions.
    pub fn ip_sets(&self) -> impl Iterator<Item = &SetName> {
        self.rules.iter().flat_map(|rule| &rule.matches).filter_map(|one| match one {
            Match::IpSet { name, .. } | Match::IpPortSet { name, .. } => Some(name),
            _ => None,
        })
    }

    /// The maps that rules of this one look up, with repetitions.
    pub fn maps(&self) -> impl Iterator<Item = &MapName> {
        self.rules.iter().flat_map(|rule| &rule.matches).filter_map(|one| match one {
            Match::InterfaceMap { map, .. } => Some(map),
            _ => None,
        })
    }
}

/// A map from interface to chain; only nftables. A packet of an interface that is in it goes to the chain for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerdictMap {
    /// The name.
    pub name: MapName,
    /// Interface and chain.
    pub entries: BTreeMap<InterfaceName, ChainName>,
}

/// What is put into one of the kernel's own chains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelChain {
    /// The kernel's chain, such as `FORWARD`.
    pub name: &'static str,
    /// Put at the place that the setting of insertion says.
    pub inserted: Vec<Rule>,
    /// Put at the end, always.
    pub appended: Vec<Rule>,
}
