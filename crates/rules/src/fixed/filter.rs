//! The filter table: `cali-INPUT`, `cali-FORWARD`, `cali-OUTPUT`, and workloads' packets to the host.

use crate::names::{self, sets};
use crate::renderer::{
    IPIP, Renderer, UDP, conntrack, goto, interface, ip_set, jump, local, mark_clear, mark_not_clear,
    one_port, protocol, protocol_number,
};
use crate::tree::{Action, Chain, Conntrack, End, IpVersion, Match, Protocol, Rule, Side, Table};
use api::{Denied, EndpointToHost};
use std::net::IpAddr;

/// ICMPv6 messages that a router must see whatever policy says: multicast listeners (130 to 132), router solicitation
/// (133), neighbour solicitation and advertisement (135, 136).
pub(super) const ROUTER_ICMPV6: [u8; 6] = [130, 131, 132, 133, 135, 136];

impl Renderer {
    pub(super) fn fixed_filter_chains(&self, version: IpVersion) -> Vec<Chain> {
        let mut chains = vec![
            self.filter_forward(version),
            self.filter_input(version),
            self.workload_to_host(version),
            self.failsafe_in(Table::Filter, version),
        ];
        if self.config.ipvs_support {
            chains.push(self.forward_check(version));
        }
        chains.extend([self.filter_output(version), self.failsafe_out(Table::Filter, version)]);
        if self.config.ipvs_support {
            chains.push(self.forward_endpoint_mark());
        }
        chains
    }

    /// Packets of tunnels that end at this host.
    pub(super) fn tunnels_to_host(&self, version: IpVersion) -> Vec<Rule> {
        let (config, deny) = (&self.config, self.deny(Table::Filter));
        let mut rules = Vec::new();
        if version == IpVersion::V4 && config.ipip_enabled {
            rules.push(
                Rule::when(
                    [
                        protocol_number(IPIP),
                        ip_set(version, End::Source, sets::ALL_HOSTS, false),
                        local(End::Destination),
                    ],
                    self.filter_allow(),
                )
                .comment("Allow IPIP packets from Calico hosts"),
            );
            rules.push(
                Rule::when([protocol_number(IPIP)], deny.into())
                    .comment(format!("{} IPIP packets from non-Calico hosts", deny.as_str())),
            );
        }
        if self.vxlan(version) {
            let to_us = |source: Option<Match>| {
                let port = one_port(End::Destination, config.vxlan_port);
                let start = [protocol_number(UDP), port].into_iter();
                start.chain(source).chain([local(End::Destination)]).collect::<Vec<_>>()
            };
            let known = ip_set(version, End::Source, sets::ALL_VXLAN, false);
            rules.push(
                Rule::when(to_us(Some(known)), self.filter_allow())
                    .comment(format!("Allow IPv{version} VXLAN packets from allowed hosts")),
            );
            // For IPv4 this drops whatever the setting is; for IPv6 it follows the setting.
            let deny = if version == IpVersion::V4 { Denied::Drop } else { deny };
            let word = deny.as_str();
            rules.push(
                Rule::when(to_us(None), deny.into())
                    .comment(format!("{word} IPv{version} VXLAN packets from non-allowed hosts")),
            );
        }
        rules.extend(self.wireguard_port(version).map(|port| {
            Rule::when(
                [protocol_number(UDP), one_port(End::Destination, port), local(End::Destination)],
                self.filter_allow(),
            )
            .comment(format!("Allow incoming IPv{version} Wireguard packets"))
        }));
        rules
    }

    fn filter_input(&self, version: IpVersion) -> Chain {
        let (config, marks) = (&self.config, &self.config.marks);
        let mut rules = self.tunnels_to_host(version);
        if config.ipvs_support {
            rules.extend([
                Rule::always(Action::ClearMark(marks.endpoint)),
                Rule::always(jump(names::FORWARD_CHECK)),
                Rule::when([mark_not_clear(marks.endpoint)], Action::Return),
            ]);
        }
        rules.extend(
            self.workload_interfaces()
                .map(|from| Rule::when([interface(Side::In, from)], goto(names::WORKLOAD_TO_HOST))),
        );
        rules.extend([
            Rule::when([self.accepted()], self.filter_allow()),
            Rule::always(Action::ClearMark(marks.cleared())),
            Rule::always(jump(names::FROM_HOST_ENDPOINT)),
            Rule::when([self.accepted()], self.filter_allow())
                .comment("Host endpoint policy accepted packet."),
        ]);
        Chain::new(names::INPUT, rules)
    }

    fn workload_to_host(&self, version: IpVersion) -> Chain {
        self.workload_to_host_by(version, vec![Rule::always(jump(names::FROM_WORKLOAD_DISPATCH))])
    }

    /// `policy` comes between the exceptions and the configured action for these packets.
    pub(super) fn workload_to_host_by(&self, version: IpVersion, policy: Vec<Rule>) -> Chain {
        let mut rules = Vec::new();
        if version == IpVersion::V6 {
            rules.extend(ROUTER_ICMPV6.map(|icmp_type| {
                Rule::when(
                    [protocol_number(58), Match::Icmp { version, icmp_type, code: None, negated: false }],
                    self.filter_allow(),
                )
            }));
        }
        if let Some(openstack) = self.config.openstack {
            if let (IpVersion::V4, Some((address @ IpAddr::V4(_), port))) = (version, openstack.metadata) {
                rules.push(Rule::when(
                    [
                        protocol(Protocol::TCP),
                        Match::Address { end: End::Destination, address },
                        one_port(End::Destination, port),
                    ],
                    self.filter_allow(),
                ));
            }
            let (dhcp_client, dhcp_server) = match version {
                IpVersion::V4 => (68, 67),
                IpVersion::V6 => (546, 547),
            };
            rules.push(Rule::when(
                [
                    protocol(Protocol::UDP),
                    one_port(End::Source, dhcp_client),
                    one_port(End::Destination, dhcp_server),
                ],
                self.filter_allow(),
            ));
            rules.push(Rule::when(
                [protocol(Protocol::UDP), one_port(End::Destination, 53)],
                self.filter_allow(),
            ));
        }
        rules.extend(policy);
        let action = match self.config.endpoint_to_host_action {
            EndpointToHost::Drop => Action::Drop,
            EndpointToHost::Accept => Action::Accept,
            EndpointToHost::Return => Action::Return,
        };
        rules.push(Rule::always(action).comment("Configured DefaultEndpointToHostAction"));
        Chain::new(names::WORKLOAD_TO_HOST, rules)
    }

    fn filter_forward(&self, version: IpVersion) -> Chain {
        let mut rules: Vec<Rule> = self.flow_offload(version).into_iter().collect();
        rules.extend(self.forwarded_policy());
        rules.push(Rule::always(jump(names::CIDR_BLOCK)));
        Chain::new(names::FORWARD, rules)
    }

    /// This comes before dispatch, whose chains accept known connections for good. A connection in the flow table skips
    /// `FORWARD` and `POSTROUTING` for the rest of its life, so endpoints that need rules there are excluded.
    pub(super) fn flow_offload(&self, version: IpVersion) -> Option<Rule> {
        let matches = [
            conntrack(Conntrack::RelatedOrEstablished),
            ip_set(version, End::Source, sets::NO_FLOW_OFFLOAD, true),
            ip_set(version, End::Destination, sets::NO_FLOW_OFFLOAD, true),
        ];
        (self.is_nftables() && self.config.flow_offload)
            .then(|| Rule::when(matches, Action::FlowOffload).comment("Offload established Calico flows."))
    }

    /// The policies of the workloads at both ends.
    pub(super) fn workload_policy(&self) -> impl Iterator<Item = Rule> {
        self.workload_interfaces().flat_map(|pattern| {
            [
                Rule::when([interface(Side::In, pattern.clone())], jump(names::FROM_WORKLOAD_DISPATCH)),
                Rule::when([interface(Side::Out, pattern)], jump(names::TO_WORKLOAD_DISPATCH)),
            ]
        })
    }

    /// Policy of both ends for forwarded packets.
    pub(super) fn forwarded_policy(&self) -> Vec<Rule> {
        let marks = &self.config.marks;
        let mut rules = vec![
            // The accept bit stays: it is the verdict of the raw and mangle tables.
            Rule::always(Action::ClearMark(marks.cleared() & !marks.accept)),
            Rule::when([mark_clear(marks.accept)], jump(names::FROM_HOST_ENDPOINT_FORWARD)),
        ];
        rules.extend(self.workload_policy());
        rules.push(Rule::always(jump(names::TO_HOST_ENDPOINT_FORWARD)));
        rules
    }

    fn filter_output(&self, version: IpVersion) -> Chain {
        let (config, marks) = (&self.config, &self.config.marks);
        let mut rules = vec![Rule::when([self.accepted()], self.filter_allow())];
        if config.ipvs_support {
            rules.push(Rule::when([mark_not_clear(marks.endpoint)], goto(names::FORWARD_ENDPOINT_MARK)));
        }
        // The host may always reach its own workloads.
        rules.extend(
            self.workload_interfaces().map(|to| Rule::when([interface(Side::Out, to)], Action::Return)),
        );
        if version == IpVersion::V4 && config.ipip_enabled {
            rules.push(
                Rule::when(
                    [
                        protocol_number(IPIP),
                        ip_set(version, End::Destination, sets::ALL_HOSTS, false),
                        local(End::Source),
                    ],
                    self.filter_allow(),
                )
                .comment("Allow IPIP packets to other Calico hosts"),
            );
        }
        if self.vxlan(version) {
            rules.push(
                Rule::when(
                    [
                        protocol_number(UDP),
                        one_port(End::Destination, config.vxlan_port),
                        local(End::Source),
                        ip_set(version, End::Destination, sets::ALL_VXLAN, false),
                    ],
                    self.filter_allow(),
                )
                .comment(format!("Allow IPv{version} VXLAN packets to other allowed hosts")),
            );
        }
        rules.extend(self.wireguard_port(version).map(|port| {
            Rule::when(
                [protocol_number(UDP), one_port(End::Destination, port), local(End::Source)],
                self.filter_allow(),
            )
            .comment(format!("Allow outgoing IPv{version} Wireguard packets"))
        }));
        rules.extend([
            Rule::always(Action::ClearMark(marks.cleared())),
            // The interface of a packet whose destination was translated is not known yet, so its policy is applied in
            // mangle `POSTROUTING`.
            Rule::when(
                [Match::Conntrack { state: Conntrack::Dnat, negated: true }],
                jump(names::TO_HOST_ENDPOINT),
            ),
            Rule::when([self.accepted()], self.filter_allow())
                .comment("Host endpoint policy accepted packet."),
        ]);
        Chain::new(names::OUTPUT, rules)
    }

    fn wireguard_port(&self, version: IpVersion) -> Option<u16> {
        let wireguard = match version {
            IpVersion::V4 => &self.config.wireguard,
            IpVersion::V6 => &self.config.wireguard_v6,
        };
        wireguard.enabled.then_some(wireguard.port)
    }
}
