//! What netfilter does where eBPF programs enforce policy: connections from before the programs, packets that no
//! program has seen, and the host's own NAT.
//!
//! Where programs serve services, no chain of policy is left. Where something else does (kube-proxy), programs see
//! packets before their destinations are translated, so policy is applied to such connections again here, where both
//! ends are known. No other packets go through the chains of policy.

use super::filter::ROUTER_ICMPV6;
use crate::bpf_marks::{
    BYPASS, FALL_THROUGH, KIND, LINUX_ESTABLISHED, MASQUERADE, NAT_OUTGOING, NO_TRACKING, SEEN, SKIP_FIB,
};
use crate::dispatch::Dispatch;
use crate::names::{self, Backend};
use crate::renderer::{
    Renderer, conntrack, interface, jump, local, mark_clear, mark_set, protocol, protocol_number,
};
use crate::tree::{
    Action, Chain, ChainName, Conntrack, End, InterfaceName, InterfacePattern, IpVersion, Match, Protocol,
    RejectWith, Rule, Side, Table, VerdictMap,
};
use ipnet::{Ipv4Net, Ipv6Net};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The device through which the host's own packets to services leave, and to which routes to services lead.
pub const SERVICES_DEVICE: &str = "bpfin.cali";
/// Its other end, where programs choose their backend.
pub const SERVICES_DEVICE_END: &str = "bpfout.cali";

const LINK_LOCAL: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16);
const LINK_LOCAL_V6: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10);

impl Renderer {
    /// The chains of a table that depend only on settings, where eBPF programs enforce policy. They have the same names
    /// as those without programs.
    #[must_use]
    pub fn fixed_chains_beside_bpf(&self, table: Table, version: IpVersion) -> Vec<Chain> {
        // For packets whose destination changed after programs saw them.
        let translated =
            (!self.config().bpf_serves).then(|| Chain::new(names::TRANSLATED, self.forwarded_policy()));
        let own = match table {
            Table::Filter => [
                self.bpf_forward(version),
                self.bpf_input(version),
                self.bpf_output(),
                self.bpf_workload_to_host(version),
            ]
            .into_iter()
            .chain(translated)
            .collect(),
            // Programs handle policy before destination NAT, and that of the host's own packets after it.
            Table::Mangle => vec![
                Chain::new(names::PREROUTING, self.service_mark().into_iter().collect()),
                Chain::new(names::POSTROUTING, self.dscp_marks(version)),
            ],
            Table::Raw => [self.bpf_raw_prerouting(version)]
                .into_iter()
                .chain(self.bpf_untracked_flows(version))
                .collect(),
            Table::Nat => Vec::new(),
        };
        let is_own = |chain: &Chain| own.iter().any(|one| one.name == chain.name);
        let others = self.fixed_chains(table, version).into_iter().filter(|chain| !is_own(chain));
        let others: Vec<Chain> = others.collect();
        others.into_iter().chain(own).map(|chain| self.serving(table, chain)).collect()
    }

    /// A chain as it is where programs serve services.
    fn serving(&self, table: Table, chain: Chain) -> Chain {
        let rules = chain.rules.iter().cloned();
        let rules: Vec<Rule> = match (table, &*chain.name) {
            _ if !self.config().bpf_serves => return chain,
            // Programs checked the source. For an answer to the host it may be a service by now, to which there is no
            // route.
            (Table::Raw, names::PREROUTING) => rules
                .map(|rule| match rule.matches.contains(&Match::ReversePathFailed) {
                    true => {
                        let matches = [mark_clear(SEEN)].into_iter().chain(rule.matches.iter().cloned());
                        Rule { matches: matches.collect(), ..rule }
                    }
                    false => rule,
                })
                .collect(),
            // Backends on other nodes, and a workload that connects to itself, answer to this host.
            (Table::Nat, names::POSTROUTING) => {
                let hidden = Match::Mark { value: MASQUERADE, mask: KIND, negated: false };
                let random_fully = self.config().features.masquerade_random_fully;
                let masquerade = Rule::when([hidden], Action::Masquerade { ports: None, random_fully });
                [masquerade].into_iter().chain(rules).collect()
            }
            _ => return chain,
        };
        Chain::new(chain.name, rules)
    }

    /// The chains without programs, for the time until every interface has its programs. Programs that are already
    /// there must learn what Linux knows, or they would drop packets of older connections.
    #[must_use]
    pub fn fixed_chains_before_bpf(&self, table: Table, version: IpVersion) -> Vec<Chain> {
        let tell = |chain: Chain| {
            let is_told = table == Table::Filter && [names::FORWARD, names::OUTPUT].contains(&&*chain.name);
            let first = is_told.then(|| self.mark_established());
            Chain::new(chain.name, first.into_iter().chain(chain.rules.iter().cloned()).collect())
        };
        self.fixed_chains(table, version).into_iter().map(tell).collect()
    }

    /// Leads to workloads whose interfaces have programs; packets to others are dropped or rejected.
    #[must_use]
    pub fn attached_dispatch(&self, interfaces: &BTreeSet<InterfaceName>) -> Dispatch {
        let unknown =
            Rule::always(self.deny(Table::Filter).into()).comment("To workload without a BPF program");
        let allow = || self.filter_allow();
        match self.backend() {
            Backend::Iptables => {
                let one = |name: &InterfaceName| {
                    Rule::when([interface(Side::Out, InterfacePattern::exact(name.clone()))], allow())
                };
                let rules = interfaces.iter().map(one).chain([unknown]).collect();
                Dispatch { chains: vec![Chain::new(names::TO_ATTACHED, rules)], maps: Vec::new() }
            }
            Backend::Nftables => {
                let lookup = Match::InterfaceMap { side: Side::Out, map: names::TO_ATTACHED.into() };
                let lookup = Rule { matches: vec![lookup], action: None, comments: Vec::new() };
                let target = ChainName::from(names::ATTACHED);
                let entries = interfaces.iter().map(|name| (name.clone(), target.clone())).collect();
                Dispatch {
                    chains: vec![
                        Chain::new(names::ATTACHED, vec![Rule::always(allow())]),
                        Chain::new(names::TO_ATTACHED, vec![lookup, unknown]),
                    ],
                    maps: vec![VerdictMap { name: names::TO_ATTACHED.into(), entries }],
                }
            }
        }
    }

    fn bpf_forward(&self, version: IpVersion) -> Chain {
        let deny = || Action::from(self.deny(Table::Filter));
        let mut rules = vec![
            Rule::when([mark_set(BYPASS)], self.filter_allow()).comment("Pre-approved by BPF programs."),
        ];
        rules.extend(self.workload_interfaces().map(|from| {
            Rule::when([interface(Side::In, from), mark_clear(SEEN)], deny())
                .comment("From workload without BPF seen mark")
        }));
        if version == IpVersion::V6 {
            // Programs let these packets through to the host, and cannot ensure that they go no further.
            rules.extend(ROUTER_ICMPV6.map(|icmp_type| {
                let icmp = Match::Icmp { version, icmp_type, code: None, negated: false };
                Rule::when([protocol_number(58), icmp], deny())
            }));
        }
        let unknown = Match::Conntrack { state: Conntrack::RelatedOrEstablished, negated: true };
        rules.extend([
            Rule::when([mark_set(FALL_THROUGH), unknown], deny())
                .comment("Packets of flows that neither BPF programs nor Linux know."),
            self.mark_established(),
        ]);
        if !self.config().bpf_serves {
            rules.push(
                Rule::when([conntrack(Conntrack::Dnat)], jump(names::TRANSLATED))
                    .comment("Policy for destinations that programs do not see."),
            );
        }
        rules.extend(self.workload_interfaces().map(|to| {
            Rule::when([interface(Side::Out, to)], jump(names::TO_ATTACHED))
                .comment("To workload, check workload is known.")
        }));
        rules.push(Rule::always(jump(names::CIDR_BLOCK)));
        rules.extend(self.workload_interfaces().map(|from| {
            Rule::when([interface(Side::In, from)], self.filter_allow())
                .comment("To workload, mark has already been verified.")
        }));
        rules.extend(self.services_pass());
        Chain::new(names::FORWARD, rules)
    }

    fn bpf_input(&self, version: IpVersion) -> Chain {
        let deny = || Action::from(self.deny(Table::Filter));
        let known = Rule::when(
            [mark_set(FALL_THROUGH), conntrack(Conntrack::RelatedOrEstablished)],
            self.filter_allow(),
        )
        .comment("Accept packets from flows that pre-date BPF.");
        let mut rules = vec![known];
        rules.extend(self.workload_interfaces().map(|from| {
            let unknown = [mark_set(FALL_THROUGH), protocol(Protocol::TCP), interface(Side::In, from)];
            Rule::when(unknown, Action::Reject(RejectWith::TcpReset))
                .comment("REJECT/rst packets from unknown TCP flows.")
        }));
        rules.extend([
            // Such packets begin no connection. A connection that was silent since before Linux tracked any is known
            // only to its socket (for example the agent's own watches). If there is no socket, the kernel itself
            // answers with a reset.
            Rule::when([mark_set(FALL_THROUGH), protocol(Protocol::TCP)], self.filter_allow())
                .comment("TCP flows that only sockets know; others are reset by the kernel."),
            Rule::when([mark_set(FALL_THROUGH)], deny()).comment("Packets from unknown non-TCP flows."),
        ]);
        rules.extend(self.tunnels_to_host(version));
        for pattern in self.workload_interfaces() {
            rules.extend([
                Rule::when([interface(Side::In, pattern.clone()), mark_clear(SEEN)], deny()),
                Rule::when([interface(Side::In, pattern)], Action::Goto(names::WORKLOAD_TO_HOST.into())),
            ]);
        }
        rules.extend(self.services_pass());
        Chain::new(names::INPUT, rules)
    }

    /// Programs mark packets of connections to services of workloads; this marks their connections, too.
    fn service_mark(&self) -> Option<Rule> {
        let mark = self.config().bpf_service_mark;
        let marked = Match::Mark { value: SEEN | mark, mask: SEEN | mark, negated: false };
        let rule = || {
            Rule::when([marked], Action::SetConnectionMark { value: mark, mask: mark })
                .comment("Mark connections with ExtToServiceConnmark")
        };
        (mark != 0).then(rule)
    }

    /// The host's own packets to services' backends.
    fn services_pass(&self) -> Option<Rule> {
        let from = interface(Side::In, InterfacePattern::exact(SERVICES_DEVICE_END));
        let rule = || Rule::when([from], self.filter_allow()).comment("From the host to a service.");
        self.config().bpf_serves.then(rule)
    }

    /// The chain without programs, after rules for the packets that programs marked: the sources of connections that
    /// programs know were checked when those began.
    fn bpf_raw_prerouting(&self, version: IpVersion) -> Chain {
        let direct = Match::Mark { value: NO_TRACKING, mask: KIND, negated: false };
        let first = [
            Rule::when([direct.clone()], Action::NoTrack).comment("Between workloads of this host."),
            Rule::when([direct], Action::Accept),
        ];
        let bypass = self.bypasses_tracking().then(|| {
            let elsewhere =
                Match::LocalAddress { end: End::Destination, limit_interface_out: false, negated: true };
            [
                // Something may change its destination. Then its answers must be tracked, which this mark
                // indicates to programs.
                Rule::when([mark_set(SEEN), local(End::Destination)], Action::SetMark(SKIP_FIB & !SEEN))
                    .comment("Mark traffic towards the host - it is TRACKed"),
                Rule::when([mark_set(SEEN), elsewhere], jump(names::UNTRACKED_FLOWS))
                    .comment("Check if forwarded traffic needs to be TRACKed"),
            ]
        });
        let last = Rule::when([mark_set(BYPASS)], Action::Accept).comment("Pre-approved by BPF programs.");
        let usual = self.raw_prerouting(version);
        let mut rules = usual.rules.to_vec();
        // After the rule that clears the bits that only netfilter uses.
        rules.splice(1..1, first.into_iter().chain(bypass.into_iter().flatten()).chain([last]));
        Chain::new(usual.name.clone(), rules)
    }

    /// Destinations that something else translates must be tracked, so this only applies where programs translate them.
    fn bypasses_tracking(&self) -> bool {
        self.config().bpf_serves && self.config().bpf_bypasses_tracking
    }

    /// Packets that pass through this host and were seen by a program are not tracked, except for what Linux
    /// translates, what only Linux knows, and what the configuration requires.
    fn bpf_untracked_flows(&self, version: IpVersion) -> Option<Chain> {
        let tracked = |from: &InterfacePattern| {
            Rule::when([interface(Side::In, from.clone())], Action::Return)
                .comment(format!("Track interface {}", from.name))
        };
        let link_local = match version {
            IpVersion::V4 => LINK_LOCAL.into(),
            IpVersion::V6 => LINK_LOCAL_V6.into(),
        };
        let link_local = Match::Net { end: End::Destination, net: link_local, negated: false };
        let hidden = |value| Match::Mark { value, mask: KIND, negated: false };
        let rules = || {
            let interfaces = self.config().bpf_tracked_interfaces.iter().map(tracked);
            let marks =
                [mark_set(SKIP_FIB), mark_set(FALL_THROUGH), hidden(MASQUERADE), hidden(NAT_OUTGOING)];
            interfaces
                .chain([Rule::when([link_local], Action::Return).comment("link-local")])
                .chain(marks.map(|mark| Rule::when([mark], Action::Return)))
                .chain([Rule::always(Action::NoTrack)])
                .collect()
        };
        self.bypasses_tracking().then(|| Chain::new(names::UNTRACKED_FLOWS, rules()))
    }

    fn bpf_workload_to_host(&self, version: IpVersion) -> Chain {
        let mut policy = vec![Rule::when([conntrack(Conntrack::RelatedOrEstablished)], self.filter_allow())];
        if !self.config().bpf_serves {
            policy.push(Rule::when([conntrack(Conntrack::Dnat)], jump(names::FROM_WORKLOAD_DISPATCH)));
        }
        self.workload_to_host_by(version, policy)
    }

    fn bpf_output(&self) -> Chain {
        Chain::new(names::OUTPUT, vec![self.mark_established()])
    }

    /// Programs can tell by the mark that Linux knows the connection.
    fn mark_established(&self) -> Rule {
        Rule::when([conntrack(Conntrack::RelatedOrEstablished)], Action::SetMark(LINUX_ESTABLISHED))
            .comment("Mark pre-established flows.")
    }
}
