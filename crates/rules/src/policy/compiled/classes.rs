//! The conditions of a rule that can be a lookup: protocol and destination ports (its class), and the other side's
//! addresses.

use super::super::conditions::{Conditions, EndConditions};
use crate::names::Direction;
use crate::tree::{PortRange, Protocol};
use ipnet::IpNet;
use messages::{IpSetId, Rule};
use std::collections::BTreeSet;

/// Protocol and destination ports, which are sorted and disjoint. Without ports, any port matches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Class {
    pub(super) protocol: Option<u8>,
    pub(super) ports: Vec<PortRange>,
}

/// Addresses of the other side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sources {
    /// All addresses.
    pub(super) any: bool,
    pub(super) nets: BTreeSet<IpNet>,
    /// Sets, by their ids.
    pub(super) sets: BTreeSet<IpSetId>,
}

impl Sources {
    pub(super) fn extend(&mut self, other: Self) {
        self.any |= other.any;
        self.nets.extend(other.nets);
        self.sets.extend(other.sets);
    }
}

impl Conditions {
    /// Returns the class and addresses of a rule that has no other conditions.
    pub(super) fn class(self, rule: &Rule, direction: Direction) -> Option<(Class, Sources)> {
        if self.has_more_than_protocol() {
            return None;
        }
        let (near, far, far_rule) = match direction {
            Direction::Inbound => (&self.destination, &self.source, &rule.source),
            Direction::Outbound => (&self.source, &self.destination, &rule.destination),
        };
        let only_lists = |end: &EndConditions| !end.has_negation_or_port_sets();
        let is_lookup = only_lists(near)
            && only_lists(far)
            && self.source.ports.is_empty()
            && near.nets.is_empty()
            && near.sets.is_empty();
        // Any of the networks must match, but all of the sets.
        let sources = match (far.nets.as_slice(), far_rule.ip_set_ids.as_slice()) {
            _ if !is_lookup => return None,
            ([], []) => Sources { any: true, ..Sources::default() },
            (nets, []) if nets.iter().any(|net| net.prefix_len() == 0) => {
                Sources { any: true, ..Sources::default() }
            }
            (nets, []) => Sources { nets: nets.iter().copied().collect(), ..Sources::default() },
            ([], [id]) => Sources { sets: BTreeSet::from([id.clone()]), ..Sources::default() },
            _ => return None,
        };
        let class = Class {
            protocol: self.protocol.map(Protocol::number),
            ports: apart(self.destination.ports.clone()),
        };
        Some((class, sources))
    }
}

/// Returns the same ports sorted, with adjacent and overlapping ranges merged.
fn apart(mut ports: Vec<PortRange>) -> Vec<PortRange> {
    ports.sort_unstable();
    let mut all: Vec<PortRange> = Vec::new();
    for range in ports {
        match all.last_mut() {
            Some(last) if range.first <= last.last.saturating_add(1) => last.last = last.last.max(range.last),
            _ => all.push(range),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::{PortRange, apart};

    #[test]
    fn ports_are_in_order_and_apart() {
        let ranges = |list: &[(u16, u16)]| -> Vec<PortRange> {
            list.iter().map(|&(first, last)| PortRange { first, last }).collect()
        };
        for (given, expected) in [
            (&[][..], &[][..]),
            (&[(80, 80), (22, 22)], &[(22, 22), (80, 80)]),
            (&[(80, 90), (85, 100), (101, 101), (103, 103)], &[(80, 101), (103, 103)]),
            (&[(0, 65535), (5, 6)], &[(0, 65535)]),
            (&[(65535, 65535), (65535, 65535)], &[(65535, 65535)]),
        ] {
            assert_eq!(apart(ranges(given)), ranges(expected));
        }
    }
}
