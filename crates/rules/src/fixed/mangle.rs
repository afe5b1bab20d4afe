//! The mangle table: policy before destination NAT, policy for the host's own packets after it, DSCP.

use crate::names::{self, sets};
use crate::renderer::{
    Renderer, conntrack, interface, ip_set, jump, mark_not_clear, outside_pools, protocol,
};
use crate::tree::{Action, Chain, Conntrack, End, IpVersion, Protocol, Rule, Side, Table};

impl Renderer {
    pub(super) fn fixed_mangle_chains(&self, version: IpVersion) -> Vec<Chain> {
        vec![
            self.failsafe_in(Table::Mangle, version),
            self.failsafe_out(Table::Mangle, version),
            self.mangle_prerouting(),
            self.mangle_postrouting(version),
        ]
    }

    fn mangle_prerouting(&self) -> Chain {
        let rules = vec![
            Rule::when([conntrack(Conntrack::RelatedOrEstablished)], self.mangle_allow()),
            // Packets that were accepted in the raw table.
            Rule::when([self.accepted()], self.mangle_allow()),
            Rule::always(jump(names::FROM_HOST_ENDPOINT)),
            Rule::when([self.accepted()], self.mangle_allow())
                .comment("Host endpoint policy accepted packet."),
        ];
        Chain::new(names::PREROUTING, rules)
    }

    /// Allowed packets return from here, so that other rules in this table still see them.
    fn mangle_postrouting(&self, version: IpVersion) -> Chain {
        let marks = &self.config.marks;
        let mut rules = self.dscp_marks(version);
        // Forwarded packets are not the host's own.
        rules.push(Rule::when([self.accepted()], Action::Return));
        if self.config.ipvs_support {
            rules.push(Rule::when([mark_not_clear(marks.endpoint)], Action::Return));
        }
        rules.extend([
            Rule::always(Action::ClearMark(marks.cleared())),
            Rule::when([conntrack(Conntrack::Dnat)], jump(names::TO_HOST_ENDPOINT)),
            Rule::when([self.accepted()], Action::Return).comment("Host endpoint policy accepted packet."),
        ]);
        Chain::new(names::POSTROUTING, rules)
    }

    /// The DSCP field of packets that leave.
    pub(super) fn dscp_marks(&self, version: IpVersion) -> Vec<Rule> {
        let mut rules = Vec::new();
        if let Some(dscp) = self.config.istio_ambient_dscp {
            rules.extend(self.workload_interfaces().map(|to| {
                Rule::when(
                    [
                        protocol(Protocol::TCP),
                        conntrack(Conntrack::New),
                        interface(Side::Out, to),
                        ip_set(version, End::Destination, sets::ISTIO_WORKLOADS, false),
                        ip_set(version, End::Source, sets::ISTIO_WORKLOADS, false),
                    ],
                    Action::SetDscp(dscp),
                )
            }));
        }
        rules.push(
            Rule::when(
                [
                    ip_set(version, End::Source, sets::DSCP_SOURCES, false),
                    outside_pools(version),
                    ip_set(version, End::Destination, sets::THIS_HOST, true),
                ],
                jump(names::EGRESS_DSCP),
            )
            .comment("set dscp for traffic leaving cluster."),
        );
        rules
    }
}
