//! The announcement of a prefix to a peer.
//!
//! The verdict is cheap and computed for every prefix; the announcement is built once for all routes that share
//! attributes, verdict and kind of peer.

use crate::peer::{Export, Peer, Relation};
use crate::policy::Policy;
use crate::route::{Announcement, Route};
use crate::{filter, filter::Subject};
use bgp::intent::{Action, NextHop as NextHopMode};
use bgp::{Prefix, Priority};
use bgp_wire::{Attributes, Community, Family, NextHop};
use ipnet::IpNet;
use smallvec::SmallVec;

/// Why a route is announced, as far as the announcement depends on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Verdict {
    /// The rule of a filter that accepted it.
    rule: Option<usize>,
    /// The rules that add communities to it.
    communities: SmallVec<[u16; 4]>,
}

/// The best route of a prefix, and its sender.
pub(crate) struct Offer<'a> {
    pub(crate) prefix: &'a IpNet,
    pub(crate) family: Family,
    pub(crate) route: &'a Route,
    /// The outgoing interface.
    pub(crate) interface: Option<&'a str>,
    /// The peer that sent it; `None` for a local route.
    pub(crate) sender: Option<&'a Peer>,
}

impl Offer<'_> {
    /// The priority: from the local preference, or from the kernel's metric.
    fn priority(&self, normal: Priority) -> Priority {
        match self.route {
            Route::Bgp(route) => route.priority(),
            Route::Host { metric: Some(metric), .. } => Priority(*metric),
            Route::Host { .. } | Route::Originated | Route::Gateway { .. } | Route::Direct(_) => normal,
        }
    }

    /// The verdict for peers of this kind; `None` if they do not get the route.
    pub(crate) fn judge(&self, to: &Export, policy: &Policy) -> Option<Verdict> {
        let is_internal = to.relation.is_internal();
        if let Some(sender) = self.sender {
            let reflected = sender.relation.cluster().or(to.relation.cluster()).is_some();
            if is_internal && sender.relation.is_internal() && !reflected {
                return None;
            }
        }
        let attributes = self.route.as_bgp().map(|route| &route.announcement.attributes);
        if attributes.is_some_and(|attributes| is_kept_back(&attributes.communities, is_internal)) {
            return None;
        }
        let priority = self.priority(policy.normal);
        let rules = &to.rules[self.family.index()];
        if !rules.is_empty() {
            let none = Attributes::default();
            let attributes = attributes.unwrap_or(&none);
            let subject = Subject {
                prefix: *self.prefix,
                is_learned: self.sender.is_some(),
                interface: self.interface,
                attributes,
                local_preference: Some(priority.local_preference()),
                is_internal,
            };
            if let Some(place) = filter::first_match(rules, &subject) {
                let accepted = rules[place].action == Action::Accept;
                return accepted.then(|| Verdict { rule: Some(place), communities: SmallVec::new() });
            }
        }
        self.judge_by_policy(policy, priority, is_internal)
    }

    fn judge_by_policy(&self, policy: &Policy, priority: Priority, is_internal: bool) -> Option<Verdict> {
        let export = &policy.export;
        let network = Prefix::new(*self.prefix);
        let inside = |nets: &[Prefix]| nets.iter().any(|net| net.contains(network));
        let over = |patterns: &[bgp::InterfacePattern]| {
            self.interface.is_some_and(|name| patterns.iter().any(|pattern| pattern.matches(name)))
        };
        if inside(&export.withheld) || (is_internal && over(&export.tunnels)) || over(&export.local) {
            return None;
        }
        let announced = match export.own_block(network, priority, policy.normal) {
            Some(answer) => answer,
            None => {
                inside(&export.services)
                    || export.reflected().any(|net| net.contains(network))
                    || inside(&export.pools)
            }
        };
        announced.then(|| {
            let rules = export.communities.iter().enumerate();
            let lying_in = rules.filter(|(_, rule)| rule.prefix.contains(network));
            let communities = lying_in.filter_map(|(place, _)| u16::try_from(place).ok()).collect();
            Verdict { rule: None, communities }
        })
    }

    /// Builds the announcement for peers of this kind.
    pub(crate) fn build(&self, to: &Export, policy: &Policy, verdict: &Verdict) -> Announcement {
        let mut attributes = match self.route {
            Route::Bgp(route) => route.announcement.attributes.clone(),
            _ => Attributes {
                local_pref: Some(self.priority(policy.normal).local_preference()),
                ..Attributes::default()
            },
        };
        if let Some(rule) = verdict.rule.and_then(|place| to.rules[self.family.index()].get(place)) {
            filter::change(&mut attributes, &rule.operations);
        }
        for place in &verdict.communities {
            let rule = policy.export.communities.get(usize::from(*place));
            for community in rule.iter().flat_map(|rule| &rule.communities) {
                filter::add_community(&mut attributes, *community);
            }
        }
        match to.relation {
            Relation::External => self.leave_system(to, &mut attributes),
            Relation::Internal | Relation::Client(_) => self.reflect(to, &mut attributes),
        }
        Announcement { attributes, next_hop: self.next_hop(to) }
    }

    /// Towards another AS: removes internal attributes and prepends to the path.
    fn leave_system(&self, to: &Export, attributes: &mut Attributes) {
        attributes.as_path = attributes.as_path.without_confederation().prepended(to.local_as, 1);
        attributes.local_pref = None;
        attributes.originator_id = None;
        attributes.cluster_list = Box::default();
        attributes.aigp = None;
        if self.sender.is_some() {
            attributes.med = None;
        }
        if attributes.extended_communities.iter().any(|community| !community.is_transitive()) {
            let all = std::mem::take(&mut attributes.extended_communities);
            attributes.extended_communities =
                all.iter().copied().filter(|community| community.is_transitive()).collect();
        }
    }

    /// Within the AS: reflects an internal route (RFC 4456).
    fn reflect(&self, to: &Export, attributes: &mut Attributes) {
        let Some(sender) = self.sender.filter(|sender| sender.relation.is_internal()) else { return };
        attributes.originator_id.get_or_insert(sender.router_id);
        let mut list = std::mem::take(&mut attributes.cluster_list).into_vec();
        let (from, into) = (sender.relation.cluster(), to.relation.cluster());
        list.splice(0..0, from);
        // Between two clusters, both are added.
        list.splice(0..0, into.filter(|cluster| from != Some(*cluster)));
        attributes.cluster_list = list.into();
    }

    fn next_hop(&self, to: &Export) -> NextHop {
        let own = to.own[self.family.index()];
        match (self.route, to.next_hop, to.relation.is_internal()) {
            (_, NextHopMode::Itself, _) => own,
            (Route::Bgp(route), NextHopMode::Keep, _) | (Route::Bgp(route), NextHopMode::Auto, true) => {
                route.announcement.next_hop
            }
            // A gateway of the host's own table is announced to internal peers, which have their own route to it.
            (Route::Host { gateway: Some(gateway), .. }, _, true) if !is_link_local(*gateway) => {
                (*gateway).into()
            }
            _ => own,
        }
    }
}

fn is_link_local(address: std::net::IpAddr) -> bool {
    match address {
        std::net::IpAddr::V4(address) => address.is_link_local(),
        std::net::IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// Whether well-known communities withhold a route from a peer.
fn is_kept_back(communities: &[Community], is_internal: bool) -> bool {
    communities.iter().any(|community| match *community {
        Community::NO_ADVERTISE => true,
        Community::NO_EXPORT | Community::NO_EXPORT_SUBCONFED => !is_internal,
        _ => false,
    })
}
