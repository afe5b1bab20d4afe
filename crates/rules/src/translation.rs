//! Chains of the nat table that change with pools and endpoints, and two small chains of other tables whose rules are
//! lists of addresses: DSCP marks, and ranges of services that must not be routed any further.

use crate::names::{self, sets};
use crate::renderer::{Renderer, interface, ip_set, outside_pools, protocol};
use crate::tree::{Action, Chain, End, IpVersion, Match, Protocol, RejectWith, Rule, Side};
use api::ServiceLoopAction;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// A DSCP mark for packets from an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DscpRule {
    /// The source.
    pub source: IpAddr,
    /// The value, at most 63.
    pub value: u8,
}

impl Renderer {
    /// Source NAT for packets that leave the cluster. It is not `active` if no pool requires it.
    #[must_use]
    pub fn nat_outgoing_chain(&self, active: bool, version: IpVersion) -> Chain {
        let mut rules = Vec::new();
        if active {
            if let Some(range) = self.config.nat_port_range {
                for one in [Protocol::TCP, Protocol::UDP] {
                    rules.push(self.nat_outgoing_rule(
                        Some(one),
                        self.nat_action(Some(range), version),
                        version,
                    ));
                    // A packet for which no port is free goes out unchanged, not with an arbitrary port.
                    rules.push(self.nat_outgoing_rule(Some(one), Action::Return, version));
                }
            }
            rules.push(self.nat_outgoing_rule(None, self.nat_action(None, version), version));
        }
        Chain::new(names::NAT_OUTGOING, rules)
    }

    fn nat_action(&self, ports: Option<(u16, u16)>, version: IpVersion) -> Action {
        let features = &self.config.features;
        let address = self.config.nat_outgoing_address;
        match address.filter(|address| address.is_ipv6() == (version == IpVersion::V6)) {
            Some(address) => Action::Snat { address, ports, random_fully: features.snat_random_fully },
            None => Action::Masquerade { ports, random_fully: features.masquerade_random_fully },
        }
    }

    fn nat_outgoing_rule(&self, only: Option<Protocol>, action: Action, version: IpVersion) -> Rule {
        let mut matches =
            vec![ip_set(version, End::Source, sets::MASQUERADED_POOLS, false), outside_pools(version)];
        if self.config.nat_outgoing_exclude_hosts {
            matches.push(ip_set(version, End::Destination, sets::ALL_HOSTS, true));
        }
        matches.extend(only.map(protocol));
        matches.extend(self.config.nat_outgoing_interface.clone().map(|to| interface(Side::Out, to)));
        Rule::when(matches, action)
    }

    /// The chains of floating addresses: from the address that others use to the endpoint's own, sorted by external
    /// address. An endpoint that connects to itself by its floating address sees that address as the source; the first
    /// one if it has several.
    #[must_use]
    pub fn floating_address_chains(
        &self,
        by_external: &BTreeMap<IpAddr, IpAddr>,
        version: IpVersion,
    ) -> [Chain; 2] {
        let own = |address: &IpAddr| address.is_ipv6() == (version == IpVersion::V6);
        let mut external: Vec<_> = by_external
            .iter()
            .filter(|(external, internal)| own(external) && own(internal))
            .map(|(external, internal)| (external.to_string(), external, internal))
            .collect();
        // As in Calico, the order is that of the texts.
        external.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        let mut back = BTreeMap::new();
        for (_, external, internal) in &external {
            back.entry(internal.to_string()).or_insert((**internal, **external));
        }
        let destination = |address| Match::Address { end: End::Destination, address };
        let dnat = external
            .iter()
            .map(|(_, external, internal)| {
                Rule::when([destination(**external)], Action::Dnat { address: **internal, port: None })
            })
            .collect();
        let random_fully = self.config.features.snat_random_fully;
        let snat = back
            .into_values()
            .map(|(internal, external)| {
                Rule::when(
                    [destination(internal), Match::Address { end: End::Source, address: internal }],
                    Action::Snat { address: external, ports: None, random_fully },
                )
            })
            .collect();
        [Chain::new(names::FIP_DNAT, dnat), Chain::new(names::FIP_SNAT, snat)]
    }

    /// Ranges of services that must not be routed any further: a packet to one of them that no service handled would
    /// come back from the router that learnt the range from this host.
    #[must_use]
    pub fn service_loop_chain(&self, ranges: &[IpNet], version: IpVersion) -> Chain {
        let action = match self.config.service_loop_prevention {
            ServiceLoopAction::Drop => Some(Action::Drop),
            ServiceLoopAction::Reject => Some(Action::Reject(RejectWith::PortUnreachable)),
            ServiceLoopAction::Disabled => None,
        };
        let mut rules = Vec::new();
        if let Some(action) = action {
            let mut texts: Vec<_> = ranges
                .iter()
                .filter(|net| IpVersion::of(net) == version)
                .map(|net| (net.to_string(), *net))
                .collect();
            texts.sort_unstable();
            rules.extend(texts.into_iter().map(|(_, net)| {
                Rule::when([Match::Net { end: End::Destination, net, negated: false }], action.clone())
            }));
        }
        Chain::new(names::CIDR_BLOCK, rules)
    }

    /// DSCP marks of packets that leave the cluster; values above 63 do not fit into the field and are left out.
    #[must_use]
    pub fn egress_dscp_chain(&self, marks: &[DscpRule], version: IpVersion) -> Chain {
        let mut texts: Vec<_> = marks
            .iter()
            .filter(|mark| mark.value < 64 && mark.source.is_ipv6() == (version == IpVersion::V6))
            .map(|mark| (mark.source.to_string(), *mark))
            .collect();
        texts.sort_unstable();
        let rules = texts.into_iter().map(|(_, DscpRule { source, value })| {
            Rule::when([Match::Address { end: End::Source, address: source }], Action::SetDscp(value))
        });
        Chain::new(names::EGRESS_DSCP, rules.collect())
    }
}
