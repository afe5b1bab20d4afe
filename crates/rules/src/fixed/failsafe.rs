//! Ports that host endpoints never block, so that a mistake in policy does not lock the administrator out.

use crate::config::FailsafePort;
use crate::names;
use crate::renderer::{Renderer, one_port, protocol};
use crate::tree::{Action, Chain, End, IpVersion, Match, Rule, Table};

impl Renderer {
    /// Incoming packets.
    pub(super) fn failsafe_in(&self, table: Table, version: IpVersion) -> Chain {
        let replies = match table {
            Table::Raw => self.config.failsafe_outbound.as_slice(),
            _ => &[],
        };
        let rules = rules(&self.config.failsafe_inbound, replies, End::Source, version);
        Chain::new(names::FAILSAFE_IN, rules)
    }

    /// Outgoing packets.
    pub(super) fn failsafe_out(&self, table: Table, version: IpVersion) -> Chain {
        let replies = match table {
            Table::Raw => self.config.failsafe_inbound.as_slice(),
            _ => &[],
        };
        let rules = rules(&self.config.failsafe_outbound, replies, End::Destination, version);
        Chain::new(names::FAILSAFE_OUT, rules)
    }
}

/// Allows `requests` by destination port. The raw table also sees replies, before connection tracking knows them, so
/// there `replies` of the other direction are allowed by source port. `other_side` is the end to which the ports'
/// networks refer.
fn rules(
    requests: &[FailsafePort],
    replies: &[FailsafePort],
    other_side: End,
    version: IpVersion,
) -> Vec<Rule> {
    let to = requests.iter().map(|port| (End::Destination, port));
    let from = replies.iter().map(|port| (End::Source, port));
    to.chain(from)
        .filter(|(_, port)| port.net.is_none_or(|net| IpVersion::of(&net) == version))
        .map(|(end, port)| {
            let mut matches = vec![protocol(port.protocol), one_port(end, port.port)];
            matches.extend(port.net.map(|net| Match::Net { end: other_side, net, negated: false }));
            Rule::when(matches, Action::Accept)
        })
        .collect()
}
