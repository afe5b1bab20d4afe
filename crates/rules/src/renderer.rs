//! The renderer: settings, and small helpers for all rendering.

use crate::config::RulesConfig;
use crate::names::{Backend, sets};
use crate::tree::{
    Action, ChainName, Conntrack, End, InterfacePattern, IpVersion, Match, PortRange, Protocol, RejectWith,
    Rule, Side, Table, Text,
};
use crate::{names, tree::NfLogSize};
use api::{Allowed, Denied};

/// Renders chains from settings and messages.
#[derive(Clone, Debug)]
pub struct Renderer {
    pub(crate) config: RulesConfig,
}

impl Renderer {
    /// A renderer with these settings.
    #[must_use]
    pub fn new(config: RulesConfig) -> Self {
        Self { config }
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &RulesConfig {
        &self.config
    }

    /// The packet filter to render for.
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.config.backend
    }

    pub(crate) fn is_nftables(&self) -> bool {
        self.config.backend == Backend::Nftables
    }

    /// The action for denied packets in a table. The kernel can answer senders only from some places: with iptables
    /// from the filter table, with nftables from anywhere but after routing, where chains of the mangle table may be.
    pub(crate) fn deny(&self, table: Table) -> Denied {
        match (self.config.filter_deny_action, self.backend(), table) {
            (action, _, Table::Filter) | (action, Backend::Nftables, Table::Raw) => action,
            _ => Denied::Drop,
        }
    }

    pub(crate) fn filter_allow(&self) -> Action {
        allow(self.config.filter_allow_action)
    }

    pub(crate) fn mangle_allow(&self) -> Action {
        allow(self.config.mangle_allow_action)
    }

    /// Matches packets that policy allowed.
    pub(crate) fn accepted(&self) -> Match {
        mark_set(self.config.marks.accept)
    }

    pub(crate) fn vxlan(&self, version: IpVersion) -> bool {
        match version {
            IpVersion::V4 => self.config.vxlan_enabled,
            IpVersion::V6 => self.config.vxlan_enabled_v6,
        }
    }

    /// One pattern per prefix of workloads' interfaces.
    pub(crate) fn workload_interfaces(&self) -> impl Iterator<Item = InterfacePattern> + '_ {
        self.config.workload_interface_prefixes.iter().cloned().map(InterfacePattern::prefix)
    }

    pub(crate) fn nflog(&self, direction: names::Direction, prefix: String) -> Action {
        const SIZE: u32 = 80;
        Action::NfLog {
            group: match direction {
                names::Direction::Inbound => 1,
                names::Direction::Outbound => 2,
            },
            prefix: prefix.into(),
            size: match self.config.features.nflog_size {
                true => NfLogSize::Size(SIZE),
                false => NfLogSize::Range(SIZE),
            },
        }
    }
}

impl From<Denied> for Action {
    fn from(action: Denied) -> Self {
        match action {
            Denied::Drop => Self::Drop,
            Denied::Reject => Self::Reject(RejectWith::PortUnreachable),
        }
    }
}

fn allow(action: Allowed) -> Action {
    match action {
        Allowed::Accept => Action::Accept,
        Allowed::Return => Action::Return,
    }
}

impl Rule {
    /// A rule for all packets.
    #[must_use]
    pub fn always(action: Action) -> Self {
        Self { matches: Vec::new(), action: Some(action), comments: Vec::new() }
    }

    /// A rule for packets that match.
    #[must_use]
    pub fn when(matches: impl Into<Vec<Match>>, action: Action) -> Self {
        Self { matches: matches.into(), action: Some(action), comments: Vec::new() }
    }

    /// Adds a comment to a rule.
    #[must_use]
    pub fn comment(mut self, comment: impl Into<Text>) -> Self {
        self.comments.push(comment.into());
        self
    }
}

pub(crate) fn jump(chain: impl Into<ChainName>) -> Action {
    Action::Jump(chain.into())
}

pub(crate) fn goto(chain: impl Into<ChainName>) -> Action {
    Action::Goto(chain.into())
}

pub(crate) const fn mark_set(bit: u32) -> Match {
    Match::Mark { value: bit, mask: bit, negated: false }
}

pub(crate) const fn mark_clear(bits: u32) -> Match {
    Match::Mark { value: 0, mask: bits, negated: false }
}

pub(crate) const fn mark_not_clear(bits: u32) -> Match {
    Match::Mark { value: 0, mask: bits, negated: true }
}

pub(crate) const fn protocol(protocol: Protocol) -> Match {
    Match::Protocol { protocol, negated: false }
}

pub(crate) const fn protocol_number(number: u8) -> Match {
    protocol(Protocol::Number(number))
}

pub(crate) const fn conntrack(state: Conntrack) -> Match {
    Match::Conntrack { state, negated: false }
}

pub(crate) fn interface(side: Side, pattern: InterfacePattern) -> Match {
    Match::Interface { side, pattern }
}

pub(crate) fn one_port(end: End, port: u16) -> Match {
    Match::Ports { end, ports: [PortRange { first: port, last: port }].into(), negated: false }
}

pub(crate) const fn local(end: End) -> Match {
    Match::LocalAddress { end, limit_interface_out: false, negated: false }
}

pub(crate) fn ip_set(version: IpVersion, end: End, id: &str, negated: bool) -> Match {
    Match::IpSet { end, name: names::ip_set(version, id), negated }
}

/// Matches packets to addresses outside of the cluster's pools.
pub(crate) fn outside_pools(version: IpVersion) -> Match {
    ip_set(version, End::Destination, sets::NETWORK_POOLS, true)
}

pub(crate) const UDP: u8 = 17;
pub(crate) const IPIP: u8 = 4;

/// The protocol number of this version's ICMP.
pub(crate) const fn icmp_number(version: IpVersion) -> u8 {
    match version {
        IpVersion::V4 => 1,
        IpVersion::V6 => 58,
    }
}
