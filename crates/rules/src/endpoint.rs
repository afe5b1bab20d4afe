//! The chains of endpoints: connection tracking, limits, tiers of policy, profiles.

use crate::group::TierGroups;
use crate::names::{self, Direction, EndpointChain};
use crate::nflog::{self, Verdict};
use crate::renderer::{
    IPIP, Renderer, UDP, conntrack, interface, jump, mark_clear, one_port, protocol_number,
};
use crate::tree::{
    Action, Chain, ChainName, Conntrack, End, InterfaceName, InterfacePattern, IpVersion, Match, Rule, Side,
    Table,
};
use api::QoSControls;
use ipnet::IpNet;
use messages::ProfileName;
use model::feed::RuleAction;
use std::collections::BTreeMap;

/// The greatest rate and burst of the kernel's limit match.
const MAX_PACKET_RATE: i64 = 10_000;

/// A workload endpoint.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadChains<'a> {
    /// The host's end of its interface.
    pub interface: &'a str,
    /// Whether any packets are allowed.
    pub admin_up: bool,
    /// The tiers, in order.
    pub tiers: &'a [TierGroups],
    /// The profiles, in order.
    pub profiles: &'a [ProfileName],
    /// The limits on its traffic.
    pub qos: Option<&'a QoSControls>,
}

/// The purpose of a chain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Ordinary policy, then profiles.
    Normal,
    /// Before connection tracking.
    Untracked,
    /// Before destination NAT.
    BeforeNat,
    /// Forwarded packets of host endpoints.
    Forward,
}

/// One chain to render.
struct Wanted<'a> {
    table: Table,
    chain: EndpointChain,
    interface: &'a str,
    direction: Direction,
    kind: Kind,
    tiers: &'a [TierGroups],
    profiles: &'a [ProfileName],
    qos: Option<&'a QoSControls>,
    allow: Action,
    failsafe: bool,
    /// Whether packets of tunnels that a workload creates itself are dropped.
    refuse_tunnels: bool,
    /// Whether the policies of a tier are compiled.
    compiled: bool,
}

impl Renderer {
    /// The chains of a workload endpoint in the filter table: to it, from it.
    #[must_use]
    pub fn workload_endpoint_chains(&self, endpoint: &WorkloadChains<'_>) -> [Chain; 2] {
        [(EndpointChain::ToWorkload, Direction::Inbound), (EndpointChain::FromWorkload, Direction::Outbound)]
            .map(|(chain, direction)| {
                if !endpoint.admin_up {
                    let refused =
                        Rule::always(self.deny(Table::Filter).into()).comment("Endpoint admin disabled");
                    return Chain::new(
                        self.backend().endpoint_chain(chain, endpoint.interface),
                        vec![refused],
                    );
                }
                self.endpoint_chain(&Wanted {
                    table: Table::Filter,
                    chain,
                    interface: endpoint.interface,
                    direction,
                    kind: Kind::Normal,
                    tiers: endpoint.tiers,
                    profiles: endpoint.profiles,
                    qos: endpoint.qos,
                    allow: self.filter_allow(),
                    failsafe: false,
                    refuse_tunnels: direction == Direction::Outbound,
                    compiled: self.compiles_policies(),
                })
            })
    }

    /// The chain that sets the mark of an endpoint; only where kube-proxy uses IPVS. For an endpoint without a mark it
    /// is empty.
    #[must_use]
    pub fn set_endpoint_mark_chain(&self, interface: &str, mark: Option<u32>) -> Chain {
        let mask = self.config.marks.endpoint;
        let rules = mark.map(|value| Rule::always(Action::SetMaskedMark { value, mask }));
        let name = self.backend().endpoint_chain(EndpointChain::SetMark, interface);
        Chain::new(name, rules.into_iter().collect())
    }

    /// The chains of a host endpoint in the filter table: to it and from it, for its own and for forwarded packets.
    #[must_use]
    pub fn host_endpoint_filter_chains(
        &self,
        interface: &str,
        tiers: &[TierGroups],
        forward_tiers: &[TierGroups],
        profiles: &[ProfileName],
    ) -> [Chain; 4] {
        let chain = |chain, direction, kind| {
            self.endpoint_chain(&Wanted {
                table: Table::Filter,
                chain,
                interface,
                direction,
                kind,
                tiers: if kind == Kind::Forward { forward_tiers } else { tiers },
                profiles,
                qos: None,
                allow: self.filter_allow(),
                failsafe: kind != Kind::Forward,
                refuse_tunnels: false,
                compiled: false,
            })
        };
        [
            chain(EndpointChain::ToHost, Direction::Outbound, Kind::Normal),
            chain(EndpointChain::FromHost, Direction::Inbound, Kind::Normal),
            chain(EndpointChain::ToHostForward, Direction::Outbound, Kind::Forward),
            chain(EndpointChain::FromHostForward, Direction::Inbound, Kind::Forward),
        ]
    }

    /// The chain of a host endpoint in the mangle table for the host's own packets whose destination was translated.
    /// Allowed packets return, so that other rules in this table still see them.
    #[must_use]
    pub fn host_endpoint_mangle_egress_chain(
        &self,
        interface: &str,
        tiers: &[TierGroups],
        profiles: &[ProfileName],
    ) -> Chain {
        self.endpoint_chain(&Wanted {
            table: Table::Mangle,
            chain: EndpointChain::ToHost,
            interface,
            direction: Direction::Outbound,
            kind: Kind::Normal,
            tiers,
            profiles,
            qos: None,
            allow: Action::Return,
            failsafe: true,
            refuse_tunnels: false,
            compiled: false,
        })
    }

    /// The chain of a host endpoint in the mangle table for policy before destination NAT.
    #[must_use]
    pub fn host_endpoint_mangle_ingress_chain(&self, interface: &str, tiers: &[TierGroups]) -> Chain {
        self.endpoint_chain(&Wanted {
            table: Table::Mangle,
            chain: EndpointChain::FromHost,
            interface,
            direction: Direction::Inbound,
            kind: Kind::BeforeNat,
            tiers,
            profiles: &[],
            qos: None,
            allow: self.mangle_allow(),
            failsafe: true,
            refuse_tunnels: false,
            compiled: false,
        })
    }

    /// The chains of a host endpoint in the raw table, for policy before connection tracking: to it, from it.
    #[must_use]
    pub fn host_endpoint_raw_chains(&self, interface: &str, tiers: &[TierGroups]) -> [Chain; 2] {
        [(EndpointChain::ToHost, Direction::Outbound), (EndpointChain::FromHost, Direction::Inbound)].map(
            |(chain, direction)| {
                self.endpoint_chain(&Wanted {
                    table: Table::Raw,
                    chain,
                    interface,
                    direction,
                    kind: Kind::Untracked,
                    tiers,
                    profiles: &[],
                    qos: None,
                    allow: Action::Accept,
                    failsafe: true,
                    refuse_tunnels: false,
                    compiled: false,
                })
            },
        )
    }

    /// The chain that allows interfaces to use other source addresses than their own.
    #[must_use]
    pub fn rpf_skip_chain(&self, allowed: &BTreeMap<InterfaceName, Vec<IpNet>>, version: IpVersion) -> Chain {
        let rules = allowed.iter().flat_map(|(name, nets)| {
            nets.iter().filter(|net| IpVersion::of(net) == version).map(|net| {
                let from = interface(Side::In, InterfacePattern::exact(name.clone()));
                Rule::when([from, Match::Net { end: End::Source, net: *net, negated: false }], Action::Accept)
            })
        });
        Chain::new(names::RPF_SKIP, rules.collect())
    }

    fn endpoint_chain(&self, wanted: &Wanted<'_>) -> Chain {
        let (config, marks) = (&self.config, &self.config.marks);
        let deny = self.deny(wanted.table);
        let mut rules = Vec::new();
        self.add_packet_rate(wanted, &mut rules);
        if wanted.kind != Kind::Untracked {
            self.add_conntrack(wanted, &mut rules);
        }
        add_connection_limit(wanted, &mut rules);
        if wanted.failsafe {
            rules.push(Rule::always(jump(match wanted.direction {
                Direction::Inbound => names::FAILSAFE_IN,
                Direction::Outbound => names::FAILSAFE_OUT,
            })));
        }
        rules.push(Rule::always(Action::ClearMark(marks.accept | marks.pass)));
        // A tunnel that a workload creates itself would carry packets past its policy.
        if wanted.refuse_tunnels && !config.allow_vxlan_from_workloads {
            rules.push(
                Rule::when(
                    [protocol_number(UDP), one_port(End::Destination, config.vxlan_port)],
                    deny.into(),
                )
                .comment(format!("{} VXLAN encapped packets originating in workloads", deny.as_str())),
            );
        }
        if wanted.refuse_tunnels && !config.allow_ipip_from_workloads {
            rules.push(
                Rule::when([protocol_number(IPIP)], deny.into())
                    .comment(format!("{} IPinIP encapped packets originating in workloads", deny.as_str())),
            );
        }
        for tier in wanted.tiers {
            self.add_tier(wanted, tier, &mut rules);
        }
        if wanted.kind == Kind::Forward && wanted.tiers.is_empty() {
            rules.push(
                Rule::always(Action::SetMark(marks.accept)).comment("Allow forwarded traffic by default"),
            );
            rules.push(Rule::always(Action::Return).comment("Return for accepted forward traffic"));
        }
        if wanted.kind == Kind::Normal {
            self.add_profiles(wanted, &mut rules);
        }
        Chain::new(self.backend().endpoint_chain(wanted.chain, wanted.interface), rules)
    }

    fn add_packet_rate(&self, wanted: &Wanted<'_>, rules: &mut Vec<Rule>) {
        let Some(qos) = wanted.qos else { return };
        let (rate, burst) = match wanted.direction {
            Direction::Inbound => (qos.ingress_packet_rate, qos.ingress_packet_burst),
            Direction::Outbound => (qos.egress_packet_rate, qos.egress_packet_burst),
        };
        if rate == 0 {
            return;
        }
        let mark = self.config.marks.scratch0;
        let direction = wanted.direction.as_str();
        let limit = Action::LimitPacketRate { rate: packet_rate(rate), burst: packet_rate(burst), mark };
        let over = format!("Drop packets over {direction} packet rate limit");
        if self.is_nftables() {
            rules.push(Rule::always(limit).comment(over));
            return;
        }
        let clear = || {
            let comment = format!("Clear {direction} packet rate limit mark");
            Rule::always(Action::ClearMark(mark)).comment(comment)
        };
        let unmarked = Match::Mark { value: mark, mask: mark, negated: true };
        rules.extend([
            clear(),
            Rule::always(limit).comment(format!("Mark packets within {direction} packet rate limit")),
            Rule::when([unmarked], Action::Drop).comment(over),
            clear(),
        ]);
    }

    fn add_conntrack(&self, wanted: &Wanted<'_>, rules: &mut Vec<Rule>) {
        let allow = &wanted.allow;
        let known = || [conntrack(Conntrack::RelatedOrEstablished)];
        if *allow != Action::Accept {
            // The chain to which the packet returns must know that it is allowed.
            rules.push(Rule::when(known(), Action::SetMark(self.config.marks.accept)));
        }
        rules.push(Rule::when(known(), allow.clone()));
        if !self.config.disable_conntrack_invalid_check {
            rules.push(Rule::when([conntrack(Conntrack::Invalid)], self.deny(wanted.table).into()));
        }
    }

    fn add_tier(&self, wanted: &Wanted<'_>, tier: &TierGroups, rules: &mut Vec<Rule>) {
        let marks = &self.config.marks;
        let groups = tier.groups(wanted.direction);
        if groups.is_empty() {
            return;
        }
        rules.push(
            Rule::always(Action::ClearMark(marks.pass)).comment(format!("Start of tier {}", tier.name)),
        );
        let targets = self.policy_targets(wanted, tier);
        let any_enforced = !targets.is_empty();
        for target in targets {
            rules.push(Rule::when([mark_clear(marks.pass)], jump(target)));
            if wanted.kind == Kind::Untracked {
                rules.push(Rule::when([self.accepted()], Action::NoTrack));
            }
            rules.push(Rule::when([self.accepted()], Action::Return).comment("Return if policy accepted"));
        }
        // Ordinary policy follows raw and mangle, so nothing is denied there at the end of a tier.
        if !matches!(wanted.kind, Kind::Normal | Kind::Forward) {
            return;
        }
        let refuses = any_enforced && tier.default_action != RuleAction::Pass;
        if self.config.flow_logs {
            let verdict = if refuses { Verdict::Deny } else { Verdict::Pass };
            let prefix = nflog::tier_prefix(verdict, wanted.direction, &tier.name);
            rules.push(Rule::when([mark_clear(marks.pass)], self.nflog(wanted.direction, prefix)));
        }
        if refuses {
            let deny = self.deny(wanted.table);
            rules.push(Rule::when([mark_clear(marks.pass)], deny.into()).comment(format!(
                "End of tier {}. {} if no policies passed packet",
                tier.name,
                deny.as_str()
            )));
        }
    }

    /// The chains of a tier's policies, in order.
    fn policy_targets(&self, wanted: &Wanted<'_>, tier: &TierGroups) -> Vec<ChainName> {
        if wanted.compiled {
            return tier
                .sequence(wanted.direction)
                .map(|sequence| sequence.chain_name())
                .into_iter()
                .collect();
        }
        let mut targets = Vec::new();
        for group in tier.groups(wanted.direction) {
            match group.is_inlined() {
                true => targets.extend(
                    group.enforced().map(|policy| self.backend().policy_chain(wanted.direction, policy)),
                ),
                false => targets.push(group.chain_name()),
            }
        }
        targets
    }

    fn add_profiles(&self, wanted: &Wanted<'_>, rules: &mut Vec<Rule>) {
        for profile in wanted.profiles {
            rules.push(Rule::always(jump(self.backend().profile_chain(wanted.direction, profile))));
            rules.push(Rule::when([self.accepted()], Action::Return).comment("Return if profile accepted"));
        }
        if self.config.flow_logs {
            let prefix = nflog::no_profile_prefix(wanted.direction);
            rules.push(Rule::always(self.nflog(wanted.direction, prefix)));
        }
        let deny = self.deny(wanted.table);
        rules.push(Rule::always(deny.into()).comment(format!("{} if no profiles matched", deny.as_str())));
    }
}

fn add_connection_limit(wanted: &Wanted<'_>, rules: &mut Vec<Rule>) {
    let Some(qos) = wanted.qos else { return };
    let limit = match wanted.direction {
        Direction::Inbound => qos.ingress_max_connections,
        Direction::Outbound => qos.egress_max_connections,
    };
    if limit != 0 {
        let count = u32::try_from(limit.max(0)).unwrap_or(u32::MAX);
        rules.push(
            Rule::always(Action::LimitConnections { count })
                .comment(format!("Reject connections over {} connection limit", wanted.direction.as_str())),
        );
    }
}

/// Clamps to what the kernel accepts; validation never accepts a value outside of this range.
fn packet_rate(value: i64) -> u32 {
    u32::try_from(value.clamp(1, MAX_PACKET_RATE)).unwrap_or(1)
}
