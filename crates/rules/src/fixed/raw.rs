//! The raw table: source addresses of workloads, policy before connection tracking, packets that are not tracked.

use crate::names;
use crate::renderer::{Renderer, interface, jump, mark_clear, mark_set, one_port, protocol};
use crate::tree::{
    Action, Chain, End, InterfaceName, InterfacePattern, IpVersion, Match, Protocol, Rule, Side, Table,
};
use std::net::{IpAddr, Ipv4Addr};

impl Renderer {
    pub(super) fn fixed_raw_chains(&self, version: IpVersion) -> Vec<Chain> {
        let mut chains = vec![
            self.failsafe_in(Table::Raw, version),
            self.failsafe_out(Table::Raw, version),
            self.raw_prerouting(version),
        ];
        // Without WireGuard, nothing jumps to this chain, and there is no bit for it to set.
        if self.config.marks.wireguard != 0 {
            chains.push(self.wireguard_incoming_mark());
        }
        chains.push(self.raw_output(version));
        chains
    }

    pub(super) fn raw_prerouting(&self, version: IpVersion) -> Chain {
        let marks = &self.config.marks;
        let mut rules = self.raw_beginning(version);
        let from_workload = marks.scratch0;
        rules.extend(
            self.workload_interfaces()
                .map(|from| Rule::when([interface(Side::In, from)], Action::SetMark(from_workload))),
        );
        rules.push(Rule::when([mark_set(from_workload)], jump(names::RPF_SKIP)));
        if self.config.openstack.is_some() && version == IpVersion::V4 {
            // A virtual machine that requests its address does not have one yet. Policy still applies to the packet.
            rules.push(Rule::when(
                [
                    protocol(Protocol::UDP),
                    Match::Address { end: End::Source, address: IpAddr::V4(Ipv4Addr::UNSPECIFIED) },
                    one_port(End::Source, 68),
                    one_port(End::Destination, 67),
                ],
                Action::Accept,
            ));
        }
        rules.extend([
            Rule::when([mark_set(from_workload), Match::ReversePathFailed], self.deny(Table::Raw).into()),
            Rule::when([mark_clear(from_workload)], jump(names::FROM_HOST_ENDPOINT)),
            Rule::when([self.accepted()], Action::Accept),
        ]);
        Chain::new(names::PREROUTING, rules)
    }

    /// The first rules in the raw table's `PREROUTING`.
    pub(super) fn raw_beginning(&self, version: IpVersion) -> Vec<Rule> {
        let marks = &self.config.marks;
        // Other rules may come first and leave bits behind.
        let mut rules = vec![Rule::always(Action::ClearMark(marks.cleared()))];
        let wireguard = [&self.config.wireguard, &self.config.wireguard_v6]
            .iter()
            .any(|one| one.enabled && !one.interface.is_empty());
        if wireguard && self.config.wireguard_encrypt_host_traffic && marks.wireguard != 0 {
            rules.push(Rule::always(jump(names::WIREGUARD_INCOMING_MARK)));
        }
        rules.extend(self.untracked_vxlan(version));
        rules
    }

    fn raw_output(&self, version: IpVersion) -> Chain {
        let mut rules = vec![
            Rule::always(Action::ClearMark(self.config.marks.cleared())),
            Rule::always(jump(names::TO_HOST_ENDPOINT)),
        ];
        rules.extend(self.untracked_vxlan(version));
        rules.push(Rule::when([self.accepted()], Action::Accept));
        Chain::new(names::OUTPUT, rules)
    }

    /// VXLAN uses a different source port in each direction, so tracking would only see unanswered connections.
    fn untracked_vxlan(&self, version: IpVersion) -> Option<Rule> {
        let matches = [protocol(Protocol::UDP), Match::DestinationPort(self.config.vxlan_port)];
        self.vxlan(version).then(|| Rule::when(matches, Action::NoTrack))
    }

    /// Marks packets from other hosts, so that the reverse path check assumes that answers leave through WireGuard's
    /// device.
    fn wireguard_incoming_mark(&self) -> Chain {
        let config = &self.config;
        let own = ["lo".into(), config.wireguard.interface.clone(), config.wireguard_v6.interface.clone()]
            .into_iter()
            .filter(|name: &InterfaceName| !name.is_empty())
            .map(InterfacePattern::exact);
        let mut rules: Vec<_> = own
            .chain(self.workload_interfaces())
            .map(|from| Rule::when([interface(Side::In, from)], Action::Return))
            .collect();
        rules.push(Rule::always(Action::SetMark(config.marks.wireguard)));
        Chain::new(names::WIREGUARD_INCOMING_MARK, rules)
    }
}
