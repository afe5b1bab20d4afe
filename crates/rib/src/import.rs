//! Import of routes announced by a peer: loop detection, impossible next hops, filters.

use crate::DEFAULT_LOCAL_PREFERENCE;
use crate::filter::{self, Subject};
use crate::peer::Peer;
use crate::rib::Identity;
use bgp::intent::{Action, FilterRule};
use bgp_wire::{Attributes, Family, NextHop};
use ipnet::IpNet;
use std::net::IpAddr;

/// Whether an announcement is usable at all, whatever its prefix.
pub(crate) fn is_possible(
    identity: &Identity,
    peer: &Peer,
    attributes: &Attributes,
    next_hop: NextHop,
) -> bool {
    let times = attributes.as_path.count(peer.import.local_as);
    let looped = times > usize::try_from(peer.import.allowed_local_as).unwrap_or(usize::MAX)
        || attributes.originator_id == Some(identity.router_id)
        || attributes.cluster_list.iter().any(|cluster| identity.clusters.contains(cluster));
    !looped && is_a_next_hop(next_hop.address(), peer.import.local_address)
}

fn is_a_next_hop(address: IpAddr, own: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    address != own
        && !address.is_unspecified()
        && !address.is_multicast()
        && !address.is_loopback()
        && !broadcast
}

/// The verdict of a session's filters on a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filtered {
    Rejected,
    /// Accepted, by this rule or because none matched.
    Accepted(Option<usize>),
}

/// Applies the filters of a session.
pub(crate) fn filtered(
    peer: &Peer,
    family: Family,
    prefix: &IpNet,
    attributes: &Attributes,
    interface: Option<&str>,
) -> Filtered {
    let rules = rules(peer, family);
    if rules.is_empty() {
        return Filtered::Accepted(None);
    }
    let subject = Subject {
        prefix: *prefix,
        is_learned: true,
        interface,
        attributes,
        local_preference: attributes.local_pref,
        is_internal: peer.relation.is_internal(),
    };
    match filter::first_match(rules, &subject) {
        Some(place) if rules[place].action == Action::Reject => Filtered::Rejected,
        place => Filtered::Accepted(place),
    }
}

fn rules(peer: &Peer, family: Family) -> &[FilterRule] {
    &peer.import.rules[family.index()]
}

/// The attributes in the form in which they are compared and filtered: with a local preference.
pub(crate) fn complete(attributes: &Attributes) -> Attributes {
    let mut attributes = attributes.clone();
    attributes.local_pref.get_or_insert(DEFAULT_LOCAL_PREFERENCE);
    attributes
}

/// The attributes after the operations of the rule that accepted them.
pub(crate) fn changed(
    peer: &Peer,
    family: Family,
    attributes: &Attributes,
    rule: Option<usize>,
) -> Attributes {
    let mut attributes = attributes.clone();
    if let Some(rule) = rule.and_then(|place| rules(peer, family).get(place)) {
        filter::change(&mut attributes, &rule.operations);
    }
    attributes
}
