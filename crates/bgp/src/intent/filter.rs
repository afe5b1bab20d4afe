//! A BGPFilter as typed rules. The first matching rule decides; if none matches, the session's next filter is applied.

use crate::values::{AsNumber, Community, InterfacePattern, Prefix, Priority};
use model::IpVersion;
use std::fmt;

/// The name of a BGPFilter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilterName(pub String);

impl fmt::Display for FilterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A BGPFilter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Its name.
    pub name: FilterName,
    /// Rules for received IPv4 routes.
    pub import_v4: Vec<FilterRule>,
    /// Rules for sent IPv4 routes.
    pub export_v4: Vec<FilterRule>,
    /// Rules for received IPv6 routes.
    pub import_v6: Vec<FilterRule>,
    /// Rules for sent IPv6 routes.
    pub export_v6: Vec<FilterRule>,
}

impl Filter {
    /// The rules for received routes of a family.
    #[must_use]
    pub fn import(&self, version: IpVersion) -> &[FilterRule] {
        match version {
            IpVersion::V4 => &self.import_v4,
            IpVersion::V6 => &self.import_v6,
        }
    }

    /// The rules for sent routes of a family.
    #[must_use]
    pub fn export(&self, version: IpVersion) -> &[FilterRule] {
        match version {
            IpVersion::V4 => &self.export_v4,
            IpVersion::V6 => &self.export_v6,
        }
    }
}

/// A rule. It matches a route that meets every condition that is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterRule {
    /// The action for a matching route.
    pub action: Action,
    /// Matches only sessions of this type.
    pub peer_type: Option<PeerType>,
    /// The network of the route.
    pub prefix: Option<PrefixMatch>,
    /// The source of the route.
    pub source: Option<RouteSource>,
    /// The interface of the route. A route without one does not match.
    pub interface: Option<InterfacePattern>,
    /// A community of the route.
    pub community: Option<Community>,
    /// The beginning of the AS path; empty for any. The path is a sequence: a set at its beginning does not match.
    pub as_path_prefix: Vec<AsNumber>,
    /// The priority of the route, derived from its local preference. A route without one does not match.
    pub priority: Option<Priority>,
    /// Changes to a matching route, in order. Only with [`Action::Accept`].
    pub operations: Vec<Operation>,
}

impl FilterRule {
    /// A rule that matches every route.
    #[must_use]
    pub fn all(action: Action) -> Self {
        Self {
            action,
            peer_type: None,
            prefix: None,
            source: None,
            interface: None,
            community: None,
            as_path_prefix: Vec::new(),
            priority: None,
            operations: Vec::new(),
        }
    }
}

/// The action for a matching route. Both are final: no later filter and no export policy is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The route passes.
    Accept,
    /// The route is rejected.
    Reject,
}

/// Whether the ends of a session are in the same AS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerType {
    /// In different ASes.
    External,
    /// In the same AS.
    Internal,
}

/// A condition on the network of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixMatch {
    /// The comparison.
    pub operator: Operator,
    /// The network to compare with.
    pub prefix: Prefix,
    /// The range of lengths for `In` and `NotIn`. A network is never equal to a range of lengths: with lengths, `Equal`
    /// matches nothing and `NotEqual` everything, as in BIRD.
    pub lengths: Option<Lengths>,
}

impl PrefixMatch {
    /// Whether the network of a route meets the condition.
    #[must_use]
    pub fn matches(&self, route: Prefix) -> bool {
        let inside = || {
            self.prefix.contains(route) && self.lengths.is_none_or(|lengths| lengths.contain(route.length()))
        };
        match self.operator {
            Operator::In => inside(),
            Operator::NotIn => !inside(),
            Operator::Equal => self.lengths.is_none() && self.prefix == route,
            Operator::NotEqual => self.lengths.is_some() || self.prefix != route,
        }
    }
}

/// The comparison of networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// The same network.
    Equal,
    /// A different network.
    NotEqual,
    /// Inside the network, or the same.
    In,
    /// Neither inside the network nor the same.
    NotIn,
}

/// A range of prefix lengths, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// The shortest length.
    pub min: u8,
    /// The longest length. If it is less than `min`, the range is empty.
    pub max: u8,
}

impl Lengths {
    /// Whether a length is in the range.
    #[must_use]
    pub fn contain(self, length: u8) -> bool {
        (self.min..=self.max).contains(&length)
    }
}

/// The source of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteSource {
    /// Another BGP speaker.
    RemotePeers,
}

/// A change to a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Adds a community.
    AddCommunity(Community),
    /// Puts these numbers before the AS path, in this order.
    PrependAsPath(Vec<AsNumber>),
    /// Sets the priority, by the local preference.
    SetPriority(Priority),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_of_routes() {
        use Operator::{Equal, In, NotEqual, NotIn};
        let long = Some(Lengths { min: 20, max: 24 });
        for (operator, lengths, route, expected) in [
            (Equal, None, "44.0.0.0/16", true),
            (Equal, None, "44.0.0.0/24", false),
            (NotEqual, None, "44.0.0.0/16", false),
            (NotEqual, None, "44.0.1.0/24", true),
            (In, None, "44.0.1.0/24", true),
            (In, None, "44.0.0.0/16", true),
            (In, None, "44.0.0.0/8", false),
            (NotIn, None, "45.0.0.0/16", true),
            (In, long, "44.0.1.0/24", true),
            (In, long, "44.0.1.0/25", false),
            (In, long, "44.0.0.0/16", false),
            (NotIn, long, "44.0.0.0/16", true),
            (NotIn, long, "44.0.1.0/24", false),
            (In, Some(Lengths { min: 24, max: 20 }), "44.0.1.0/24", false),
            // The results of BIRD 1.6 and 2 for `net = [ 44.0.0.0/16{20,24} ]`.
            (Equal, long, "44.0.1.0/24", false),
            (Equal, long, "44.0.0.0/16", false),
            (NotEqual, long, "44.0.1.0/24", true),
            (NotEqual, long, "44.0.0.0/16", true),
        ] {
            let condition = PrefixMatch { operator, prefix: "44.0.0.0/16".parse().unwrap(), lengths };
            assert_eq!(
                condition.matches(route.parse().unwrap()),
                expected,
                "{operator:?} {lengths:?} on {route}"
            );
        }
    }
}
