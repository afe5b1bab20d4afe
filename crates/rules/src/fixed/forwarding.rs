//! Forwarded packets where kube-proxy uses IPVS: they go through `INPUT` and `OUTPUT`, never through `FORWARD`.
//!
//! `INPUT` knows the interface through which they came and marks them with its endpoint; `OUTPUT` applies the policy of
//! that endpoint by the mark.

use crate::names::{self, sets};
use crate::policy::split_ports;
use crate::renderer::{Renderer, conntrack, goto, interface, ip_set, jump, protocol};
use crate::tree::{Action, Chain, Conntrack, End, IpVersion, Match, Protocol, Rule, Side};

impl Renderer {
    /// Marks packets that will be forwarded.
    pub(super) fn forward_check(&self, version: IpVersion) -> Chain {
        // A packet of a known connection to a service's address may be an answer to a process on the host.
        let mut rules = vec![Rule::when([conntrack(Conntrack::RelatedOrEstablished)], Action::Return)];
        for ports in split_ports(&self.config.node_port_ranges) {
            rules.extend([Protocol::TCP, Protocol::UDP].map(|one| {
                Rule::when(
                    [
                        protocol(one),
                        Match::Ports { end: End::Destination, ports: ports.clone(), negated: false },
                        ip_set(version, End::Destination, sets::THIS_HOST, false),
                    ],
                    goto(names::SET_ENDPOINT_MARK),
                )
                .comment("To kubernetes NodePort service")
            }));
        }
        rules.push(
            Rule::when(
                [ip_set(version, End::Destination, sets::THIS_HOST, true)],
                jump(names::SET_ENDPOINT_MARK),
            )
            .comment("To kubernetes service"),
        );
        Chain::new(names::FORWARD_CHECK, rules)
    }

    /// Applies policy to packets that are marked as forwarded.
    pub(super) fn forward_endpoint_mark(&self) -> Chain {
        let marks = &self.config.marks;
        let ours = Match::Mark { value: marks.non_calico_endpoint, mask: marks.endpoint, negated: true };
        let mut rules = vec![Rule::when([ours], jump(names::FROM_ENDPOINT_MARK))];
        rules.extend(
            self.workload_interfaces()
                .map(|to| Rule::when([interface(Side::Out, to)], jump(names::TO_WORKLOAD_DISPATCH))),
        );
        rules.extend([
            Rule::always(jump(names::TO_HOST_ENDPOINT_FORWARD)),
            // A tunnel copies the mark to the outer packet, which is not forwarded.
            Rule::always(Action::ClearMark(marks.endpoint)),
            Rule::when([self.accepted()], self.filter_allow()).comment("Policy explicitly accepted packet."),
        ]);
        Chain::new(names::FORWARD_ENDPOINT_MARK, rules)
    }
}
