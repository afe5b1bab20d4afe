//! The conditions of one rule for one IP version, split by dimension so that a packet matches the rule if it matches
//! each dimension's part.
//!
//! A rule means what `rules` renders it to (`rules::policy::conditions` has the cases that were never valid): a deny
//! rule ignores conditions that cannot be read, and any other rule with such a condition matches nothing. "One of these
//! ports or one of these named ports" is an "or" across dimensions; it becomes two mutually exclusive rules. Does not
//! know the members of sets.

mod end;
mod ports;

pub(crate) use end::{Atom, EndConditions};
pub(crate) use ports::{PortConditions, Ranges};

use crate::layout::Dimension;
use api::scalars::Protocol;
use messages::{Rule, RuleEnd};
use model::IpVersion;
use model::feed::RuleAction;

/// Whether packets of a protocol have ports that rules can name.
pub(crate) const fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 6 | 17 | 132)
}

/// The conditions by dimension.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Conditions {
    pub(crate) source: EndConditions,
    pub(crate) destination: EndConditions,
    pub(crate) service: PortConditions,
    pub(crate) source_port: PortConditions,
    pub(crate) destination_pair: EndConditions,
    pub(crate) source_pair: EndConditions,
}

impl Conditions {
    /// Splits a rule into mutually exclusive rules; none if no packet of this IP version can match it.
    pub(crate) fn of(rule: &Rule, version: IpVersion) -> Vec<Self> {
        Self::read(rule, version).unwrap_or_default()
    }

    fn read(rule: &Rule, version: IpVersion) -> Option<Vec<Self>> {
        if rule.ip_version.is_some_and(|only| only != version) {
            return None;
        }
        // For a condition that cannot be read: `Some` to continue without it, `None` to drop the rule.
        let unreadable = || (rule.action == RuleAction::Deny).then_some(());
        let (protocol, icmp) = protocol_and_icmp(rule, version, unreadable)?;
        let not_protocol = match &rule.not_protocol {
            None => None,
            Some(unwanted) => match readable(unwanted) {
                Some(number) => Some(number),
                None => unreadable().map(|()| None)?,
            },
        };
        if protocol.is_some() && protocol == not_protocol {
            return None;
        }
        let not_protocol = not_protocol.filter(|_| protocol.is_none());
        let known_ports = protocol.is_some_and(has_ports);
        let source = EndParts::of(&rule.source, version, known_ports, unreadable)?;
        let destination = EndParts::of(&rule.destination, version, known_ports, unreadable)?;
        let mut all = Vec::new();
        for to in destination.ways() {
            for from in source.ways() {
                let service =
                    PortConditions { protocol, not_protocol, ranges: icmp.intersection(&to.ranges) };
                let source_port = match from.ranges.is_full() {
                    true => PortConditions::default(),
                    false => PortConditions { protocol, not_protocol: None, ranges: from.ranges.clone() },
                };
                if service.ranges.is_empty() || source_port.ranges.is_empty() {
                    continue;
                }
                all.push(Self {
                    source: source.addresses.clone(),
                    destination: destination.addresses.clone(),
                    service,
                    source_port,
                    destination_pair: to.pairs.clone(),
                    source_pair: from.pairs,
                });
            }
        }
        Some(all)
    }

    /// Whether every packet matches.
    pub(crate) fn is_always(&self) -> bool {
        *self == Self::default()
    }

    /// The conditions on addresses, or addresses with ports, in a dimension.
    pub(crate) fn end(&self, dimension: Dimension) -> Option<&EndConditions> {
        match dimension {
            Dimension::Source => Some(&self.source),
            Dimension::Destination => Some(&self.destination),
            Dimension::DestinationPair => Some(&self.destination_pair),
            Dimension::SourcePair => Some(&self.source_pair),
            Dimension::Service | Dimension::SourcePort => None,
        }
    }

    /// The conditions on protocol and ports in a dimension.
    pub(crate) fn ports(&self, dimension: Dimension) -> Option<&PortConditions> {
        match dimension {
            Dimension::Service => Some(&self.service),
            Dimension::SourcePort => Some(&self.source_port),
            _ => None,
        }
    }

    /// Whether there is a condition in a dimension.
    pub(crate) fn has(&self, dimension: Dimension) -> bool {
        let end = self.end(dimension).is_some_and(|end| !end.is_always());
        end || self.ports(dimension).is_some_and(|ports| !ports.is_always())
    }

    /// Whether a value that the list does not mention matches in a dimension.
    pub(crate) fn by_default(&self, dimension: Dimension) -> bool {
        let end = self.end(dimension).is_none_or(|end| end.meets(&|_| false));
        end && self.ports(dimension).is_none_or(|ports| ports.protocol.is_none())
    }

    /// Appends an encoding; different conditions have different encodings.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for end in [&self.source, &self.destination, &self.destination_pair, &self.source_pair] {
            end.encode(out);
        }
        self.service.encode(out);
        self.source_port.encode(out);
    }
}

/// The protocol's number, and the ICMP types and codes as 16-bit ranges. `None` if no packet of this IP version can
/// match.
fn protocol_and_icmp(
    rule: &Rule,
    version: IpVersion,
    unreadable: impl Fn() -> Option<()>,
) -> Option<(Option<u8>, Ranges)> {
    let icmp_number = match version {
        IpVersion::V4 => 1,
        IpVersion::V6 => 58,
    };
    let mut protocol = None;
    if let Some(wanted) = &rule.protocol {
        match readable(wanted) {
            Some(number) => protocol = Some(number),
            None => unreadable()?,
        }
        // The names stand for one IP version each; a number may be meant literally.
        if matches!(wanted, Protocol::Icmp | Protocol::Icmpv6) && protocol != Some(icmp_number) {
            return None;
        }
    }
    let mut ranges = Ranges::full();
    if rule.icmp.is_none() && rule.not_icmp.is_none() {
        return Some((protocol, ranges));
    }
    if *protocol.get_or_insert(icmp_number) != icmp_number {
        return None;
    }
    if let Some(message) = &rule.icmp {
        ranges = ranges.intersection(&Ranges::of_icmp(message));
    }
    if let Some(message) = &rule.not_icmp {
        ranges = ranges.intersection(&Ranges::of_icmp(message).complement());
    }
    Some((protocol, ranges))
}

/// The protocol's number, if it is valid. 0 is not: iptables treats it as all protocols.
fn readable(protocol: &Protocol) -> Option<u8> {
    protocol.number().filter(|number| *number != 0)
}

/// The conditions of one end.
struct EndParts {
    addresses: EndConditions,
    ports: Ranges,
    /// Whether `ports` has to be checked at all.
    by_number: bool,
    not_ports: Ranges,
    named: Vec<Atom>,
    pairs: EndConditions,
}

/// One of the alternatives by which an end's ports can match.
struct Way {
    ranges: Ranges,
    pairs: EndConditions,
}

impl EndParts {
    fn of(
        end: &RuleEnd,
        version: IpVersion,
        known_ports: bool,
        unreadable: impl Fn() -> Option<()>,
    ) -> Option<Self> {
        let ports = Ranges::of(&end.ports);
        let not_ports = Ranges::of(&end.not_ports);
        let mut by_number = !ports.is_empty();
        if !by_number && !end.ports.is_empty() && end.named_port_ip_set_ids.is_empty() {
            return None;
        }
        let mut addresses = EndConditions::default();
        if let Some(nets) = Atom::of_nets(&end.nets, version)? {
            addresses.all.push(nets);
        }
        if let Some(nets) = Atom::of_nets(&end.not_nets, version)? {
            if nets.is_everything() {
                return None;
            }
            addresses.none.push(nets);
        }
        addresses.all.extend(Atom::of_sets(&end.ip_set_ids));
        addresses.none.extend(Atom::of_sets(&end.not_ip_set_ids));
        let mut named: Vec<Atom> = Atom::of_sets(&end.named_port_ip_set_ids).collect();
        let pairs = EndConditions {
            all: Atom::of_sets(&end.ip_port_set_ids).collect(),
            any: Vec::new(),
            none: Atom::of_sets(&end.not_named_port_ip_set_ids).collect(),
        };
        let mut not_ports = not_ports.complement();
        if !known_ports && (by_number || !not_ports.is_full()) {
            unreadable()?;
            if by_number {
                named.clear();
            }
            by_number = false;
            not_ports = Ranges::full();
        }
        Some(Self { addresses: addresses.sorted(), ports, by_number, not_ports, named, pairs })
    }

    fn ways(&self) -> Vec<Way> {
        let way = |ranges: &Ranges, any: &[Atom]| Way {
            ranges: ranges.intersection(&self.not_ports),
            pairs: EndConditions { any: any.to_vec(), ..self.pairs.clone() }.sorted(),
        };
        match (self.by_number, self.named.is_empty()) {
            (false, _) => vec![way(&Ranges::full(), &self.named)],
            (true, true) => vec![way(&self.ports, &[])],
            (true, false) => vec![way(&self.ports, &[]), way(&self.ports.complement(), &self.named)],
        }
    }
}
