//! Applies the rules of a BGPFilter to one route.

use bgp::intent::{FilterRule, Operation, PeerType, RouteSource};
use bgp::{Community, InterfacePattern, Prefix, Priority};
use bgp_wire::{AsPath, Asn, Attributes, LargeCommunity, Segment, SegmentKind};
use ipnet::IpNet;

/// The properties of a route that rules examine.
pub(crate) struct Subject<'a> {
    pub(crate) prefix: IpNet,
    /// Whether a peer announced it.
    pub(crate) is_learned: bool,
    /// The outgoing interface.
    pub(crate) interface: Option<&'a str>,
    /// Attributes; local routes have those of an empty announcement.
    pub(crate) attributes: &'a Attributes,
    /// The local preference, which for local routes is derived from the kernel's metric.
    pub(crate) local_preference: Option<u32>,
    /// Whether the session is with a peer in our AS.
    pub(crate) is_internal: bool,
}

/// Returns the index of the first matching rule.
pub(crate) fn first_match(rules: &[FilterRule], subject: &Subject<'_>) -> Option<usize> {
    rules.iter().position(|rule| matches(rule, subject))
}

fn matches(rule: &FilterRule, subject: &Subject<'_>) -> bool {
    let peer_type = |wanted: PeerType| match wanted {
        PeerType::Internal => subject.is_internal,
        PeerType::External => !subject.is_internal,
    };
    let source = |wanted: RouteSource| match wanted {
        RouteSource::RemotePeers => subject.is_learned,
    };
    let interface = |pattern: &InterfacePattern| subject.interface.is_some_and(|name| pattern.matches(name));
    let priority = |wanted: Priority| subject.local_preference == Some(wanted.local_preference());
    rule.peer_type.is_none_or(peer_type)
        && rule.prefix.is_none_or(|prefix| prefix.matches(Prefix::new(subject.prefix)))
        && rule.source.is_none_or(source)
        && rule.interface.as_ref().is_none_or(interface)
        && rule.community.is_none_or(|community| has_community(subject.attributes, community))
        && begins_with(&subject.attributes.as_path, &rule.as_path_prefix)
        && rule.priority.is_none_or(priority)
}

fn has_community(attributes: &Attributes, community: Community) -> bool {
    match community {
        Community::Standard(system, value) => {
            attributes.communities.contains(&bgp_wire::Community::new(system, value))
        }
        Community::Large(system, first, second) => {
            attributes.large_communities.contains(&LargeCommunity { system, first, second })
        }
    }
}

fn begins_with(path: &AsPath, wanted: &[bgp::AsNumber]) -> bool {
    let leading = path
        .segments()
        .iter()
        .take_while(|segment| segment.kind == SegmentKind::Sequence)
        .flat_map(|segment| segment.numbers.iter());
    let mut leading = leading.map(|number| number.0);
    wanted.iter().all(|number| leading.next() == Some(number.0))
}

/// Applies the operations of a rule.
pub(crate) fn change(attributes: &mut Attributes, operations: &[Operation]) {
    for operation in operations {
        match operation {
            Operation::AddCommunity(community) => add_community(attributes, *community),
            Operation::PrependAsPath(numbers) => {
                let numbers = numbers.iter().map(|number| Asn(number.0)).collect();
                let front = Segment { kind: SegmentKind::Sequence, numbers };
                attributes.as_path = in_front(front, &attributes.as_path);
            }
            Operation::SetPriority(priority) => {
                attributes.local_pref = Some(priority.local_preference());
            }
        }
    }
}

/// Prepends numbers to a path, within its first sequence if they fit.
fn in_front(front: Segment, path: &AsPath) -> AsPath {
    let mut segments = path.segments().to_vec();
    match segments.first_mut() {
        Some(first)
            if first.kind == SegmentKind::Sequence && first.numbers.len() + front.numbers.len() <= 255 =>
        {
            first.numbers = front.numbers.iter().chain(first.numbers.iter()).copied().collect();
        }
        _ => segments.insert(0, front),
    }
    AsPath::from_segments(segments)
}

/// Adds a community unless it is already present.
pub(crate) fn add_community(attributes: &mut Attributes, community: Community) {
    if has_community(attributes, community) {
        return;
    }
    match community {
        Community::Standard(system, value) => {
            let mut all = std::mem::take(&mut attributes.communities).into_vec();
            all.push(bgp_wire::Community::new(system, value));
            attributes.communities = all.into();
        }
        Community::Large(system, first, second) => {
            let mut all = std::mem::take(&mut attributes.large_communities).into_vec();
            all.push(LargeCommunity { system, first, second });
            attributes.large_communities = all.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bgp::AsNumber;
    use bgp::intent::{Action, Lengths, Operator, PrefixMatch};

    fn attributes() -> Attributes {
        Attributes {
            as_path: AsPath::sequence([65001, 65002, 65003]),
            local_pref: Some(100),
            communities: Box::new([bgp_wire::Community::new(65000, 1)]),
            large_communities: Box::new([LargeCommunity { system: 1, first: 2, second: 3 }]),
            ..Attributes::default()
        }
    }

    fn check(rule: &FilterRule) -> bool {
        let attributes = attributes();
        let subject = Subject {
            prefix: "10.1.2.0/24".parse().expect("a network"),
            is_learned: true,
            interface: Some("eth0"),
            attributes: &attributes,
            local_preference: attributes.local_pref,
            is_internal: true,
        };
        matches(rule, &subject)
    }

    #[test]
    fn every_condition_counts() {
        let all = FilterRule::all(Action::Accept);
        assert!(check(&all));
        let network = |operator, text: &str, lengths| FilterRule {
            prefix: Some(PrefixMatch { operator, prefix: text.parse().expect("a network"), lengths }),
            ..all.clone()
        };
        let numbers = |numbers: &[u32]| FilterRule {
            as_path_prefix: numbers.iter().map(|number| AsNumber(*number)).collect(),
            ..all.clone()
        };
        let lengths = |min, max| Some(Lengths { min, max });
        for (rule, expected) in [
            (network(Operator::Equal, "10.1.2.0/24", None), true),
            (network(Operator::NotEqual, "10.1.2.0/24", None), false),
            (network(Operator::In, "10.0.0.0/8", None), true),
            (network(Operator::In, "10.0.0.0/8", lengths(25, 32)), false),
            (network(Operator::NotIn, "10.0.0.0/8", lengths(25, 32)), true),
            (network(Operator::NotIn, "11.0.0.0/8", None), true),
            (FilterRule { peer_type: Some(PeerType::Internal), ..all.clone() }, true),
            (FilterRule { peer_type: Some(PeerType::External), ..all.clone() }, false),
            (FilterRule { source: Some(RouteSource::RemotePeers), ..all.clone() }, true),
            (FilterRule { interface: Some(InterfacePattern::new("eth*")), ..all.clone() }, true),
            (FilterRule { interface: Some(InterfacePattern::new("*.cali")), ..all.clone() }, false),
            (FilterRule { community: Some(Community::Standard(65000, 1)), ..all.clone() }, true),
            (FilterRule { community: Some(Community::Standard(65000, 2)), ..all.clone() }, false),
            (FilterRule { community: Some(Community::Large(1, 2, 3)), ..all.clone() }, true),
            (FilterRule { community: Some(Community::Large(1, 2, 4)), ..all.clone() }, false),
            (numbers(&[65001]), true),
            (numbers(&[65001, 65002, 65003]), true),
            (numbers(&[65001, 65002, 65003, 65004]), false),
            (numbers(&[65002]), false),
            (FilterRule { priority: Some(Priority::of_local_preference(100)), ..all.clone() }, true),
            (FilterRule { priority: Some(Priority(1024)), ..all.clone() }, false),
        ] {
            assert_eq!(check(&rule), expected, "{rule:?}");
        }
    }

    #[test]
    fn operations_are_applied_in_order() {
        let mut attributes = attributes();
        change(
            &mut attributes,
            &[
                Operation::AddCommunity(Community::Standard(65000, 1)),
                Operation::AddCommunity(Community::Standard(65000, 7)),
                Operation::AddCommunity(Community::Large(9, 9, 9)),
                Operation::PrependAsPath(vec![AsNumber(1), AsNumber(2)]),
                Operation::SetPriority(Priority(512)),
            ],
        );
        assert_eq!(attributes.as_path, AsPath::sequence([1, 2, 65001, 65002, 65003]));
        assert_eq!(attributes.local_pref, Some(2_147_483_135));
        assert_eq!((attributes.communities.len(), attributes.large_communities.len()), (2, 2));
    }

    #[test]
    fn a_path_that_begins_with_a_set_begins_with_no_number() {
        let set = Segment { kind: SegmentKind::Set, numbers: Box::new([Asn(5)]) };
        let path = AsPath::from_segments([set]);
        assert!(!begins_with(&path, &[AsNumber(5)]));
        assert!(begins_with(&path, &[]));
    }
}
