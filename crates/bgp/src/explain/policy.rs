//! A node's decisions about a route on a session: the order of [`crate::intent::export`], and the import filters.

use crate::intent::filter::{Action, FilterRule, Operation, PeerType, RouteSource};
use crate::intent::{FamilyIntent, Intent, Session};
use crate::values::{AsNumber, Community, Prefix, Priority};
use std::net::IpAddr;

/// A route between nodes.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) prefix: Prefix,
    pub(super) next_hop: Option<IpAddr>,
    as_path: Vec<AsNumber>,
    communities: Vec<Community>,
    priority: Option<Priority>,
    /// How it was learned; `None` for the node's own.
    learned: Option<Learned>,
}

/// How a route was learned.
#[derive(Clone, Copy, Debug)]
struct Learned {
    internal: bool,
    /// Whether it was learned from a client of this reflector.
    from_client: bool,
}

/// A decision about a route.
pub(super) struct Decision {
    pub(super) route: Option<Route>,
    pub(super) because: String,
}

impl Route {
    /// A block on the node that owns it.
    pub(super) fn own(prefix: Prefix) -> Self {
        let (as_path, communities) = (Vec::new(), Vec::new());
        Self { prefix, next_hop: None, as_path, communities, priority: None, learned: None }
    }

    /// Updates the route after it crossed a session: `back` is the receiver's, `sent` the sender's.
    pub(super) fn learned(&mut self, back: &Session, sent: &Session) {
        if !sent.is_internal() {
            self.as_path.insert(0, sent.local_as);
            // The local preference is not sent to another AS.
            self.priority = None;
        }
        self.learned =
            Some(Learned { internal: back.is_internal(), from_client: back.reflector_client.is_some() });
    }
}

/// Decides about sending a route.
pub(super) fn export(intent: &Intent, family: &FamilyIntent, session: &Session, route: &Route) -> Decision {
    let refuse = |because: String| Decision { route: None, because };
    if let Some(learned) = route.learned
        && learned.internal
        && session.is_internal()
        && !learned.from_client
        && session.reflector_client.is_none()
    {
        return refuse(
            "not passed on: learned within the AS, and neither end is a client of this node".to_owned(),
        );
    }
    if route.as_path.contains(&session.peer_as) && !session.is_internal() {
        return refuse(format!("not passed on: AS {} is in its path", session.peer_as));
    }
    let mut route = route.clone();
    let priority = *route.priority.get_or_insert(family.normal_priority);
    for (filter, rule) in session.export_rules() {
        if matches(rule, session, &route) {
            return match rule.action {
                Action::Reject => refuse(format!("held back by BGPFilter {}", filter.name)),
                Action::Accept => {
                    change(rule, &mut route);
                    Decision {
                        route: Some(route),
                        because: format!("announced by BGPFilter {}", filter.name),
                    }
                }
            };
        }
    }
    let export = &family.export;
    if let Some(pool) = export.withheld.iter().find(|pool| pool.contains(route.prefix)) {
        return refuse(format!("held back: pool {pool} has disableBGPExport"));
    }
    let prefix = route.prefix;
    let rules = export.communities.iter().filter(|rule| rule.prefix.contains(prefix));
    route.communities.extend(rules.flat_map(|rule| &rule.communities));
    let because = match export.own_block(route.prefix, priority, family.normal_priority) {
        Some(true) => "announced: the node's own block".to_owned(),
        Some(false) => {
            return refuse("held back: inside a block of the node, which is announced whole".to_owned());
        }
        None => {
            let pool = export.pools.iter().find(|pool| pool.contains(route.prefix));
            let reflected = || export.reflected().find(|range| range.contains(route.prefix));
            match (export.services.iter().find(|range| range.contains(route.prefix)), pool) {
                (Some(range), _) => format!("announced: in the services' {range}"),
                (None, _) if intent.cluster_id.is_some() && reflected().is_some() => {
                    "passed on: in a service range of the reflector".to_owned()
                }
                (None, Some(pool)) => format!("passed on: in pool {pool}"),
                (None, None) => return refuse("held back: in no pool".to_owned()),
            }
        }
    };
    Decision { route: Some(route), because }
}

/// Decides about accepting a route.
pub(super) fn import(session: &Session, route: &Route) -> Decision {
    let refuse = |because: String| Decision { route: None, because };
    let own: Vec<&AsNumber> = route.as_path.iter().filter(|number| **number == session.local_as).collect();
    if own.len() > session.allowed_local_as as usize {
        return refuse(format!("rejected: the node's own AS {} is in its path", session.local_as));
    }
    let mut route = route.clone();
    for (filter, rule) in session.import_rules() {
        if matches(rule, session, &route) {
            return match rule.action {
                Action::Reject => refuse(format!("rejected by BGPFilter {}", filter.name)),
                Action::Accept => {
                    change(rule, &mut route);
                    Decision { route: Some(route), because: format!("accepted by BGPFilter {}", filter.name) }
                }
            };
        }
    }
    Decision { route: Some(route), because: "accepted".to_owned() }
}

/// Rules on interfaces never match: the route of a block is a blackhole without an interface.
fn matches(rule: &FilterRule, session: &Session, route: &Route) -> bool {
    let of_type = match rule.peer_type {
        None => true,
        Some(PeerType::Internal) => session.is_internal(),
        Some(PeerType::External) => !session.is_internal(),
    };
    of_type
        && rule.prefix.is_none_or(|prefix| prefix.matches(route.prefix))
        && rule.source.is_none_or(|RouteSource::RemotePeers| route.learned.is_some())
        && rule.interface.is_none()
        && rule.community.is_none_or(|community| route.communities.contains(&community))
        && route.as_path.starts_with(&rule.as_path_prefix)
        && rule.priority.is_none_or(|priority| route.priority == Some(priority))
}

fn change(rule: &FilterRule, route: &mut Route) {
    for operation in &rule.operations {
        match operation {
            Operation::AddCommunity(community) => route.communities.push(*community),
            Operation::PrependAsPath(numbers) => drop(route.as_path.splice(0..0, numbers.iter().copied())),
            Operation::SetPriority(priority) => route.priority = Some(*priority),
        }
    }
}
