//! Protocols and ports of a list: ranges that match the same rules have the same value.
//!
//! For each protocol that a rule names, the ports are split into ranges by the rules' conditions. The value of most of
//! a protocol's ports is stored in the protocol's entry; the other ranges become prefixes. Value 0 stands for all
//! protocols that no rule names.

use super::ListRule;
use crate::conditions::PortConditions;
use crate::layout::{Dimension, ListId, PortKey};
use hashbrown::HashMap;
use std::collections::{BTreeMap, BTreeSet};

/// One bit per rule of the list.
type Bits = Vec<u64>;

/// The values of both dimensions, with the rules that each matches.
#[derive(Default)]
pub(super) struct Values(Vec<(Dimension, Vec<Bits>)>);

impl Values {
    /// Every value except 0, with the rules that it matches.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Dimension, u32, &Bits)> {
        self.0.iter().flat_map(|(dimension, values)| {
            (1..).zip(values).map(move |(value, bits)| (*dimension, value, bits))
        })
    }
}

/// The entries for a list's ports, and their values.
pub(super) fn ports(list: ListId, rules: &[ListRule]) -> (Vec<(PortKey, u32)>, Values) {
    let (mut entries, mut values) = (Vec::new(), Values::default());
    for dimension in [Dimension::Service, Dimension::SourcePort] {
        if !rules.iter().any(|rule| rule.conditions.has(dimension)) {
            continue;
        }
        let mut partition = Partition::new(rules, dimension);
        let named: BTreeSet<u8> = rules
            .iter()
            .filter_map(|rule| rule.conditions.ports(dimension))
            .flat_map(PortConditions::protocols)
            .collect();
        for protocol in named {
            let ranges = partition.ranges(rules, protocol);
            let key = |port, bits| PortKey { list, dimension: dimension as u8, protocol, port, bits };
            let most = most_common(&ranges);
            if most != 0 {
                entries.push((key(0, 0), most));
            }
            for (first, last, value) in ranges.iter().filter(|(_, _, value)| *value != most) {
                prefixes(*first, *last, |port, bits| entries.push((key(port, bits), *value)));
            }
        }
        values.0.push((dimension, partition.values));
    }
    (entries, values)
}

struct Partition {
    dimension: Dimension,
    default: Bits,
    numbers: HashMap<Bits, u32>,
    values: Vec<Bits>,
}

impl Partition {
    fn new(rules: &[ListRule], dimension: Dimension) -> Self {
        let mut default = vec![0; rules.len().div_ceil(64)];
        for (number, rule) in rules.iter().enumerate() {
            if rule.conditions.by_default(dimension) {
                toggle(&mut default, number);
            }
        }
        Self { dimension, default, numbers: HashMap::new(), values: Vec::new() }
    }

    fn value(&mut self, bits: &Bits) -> u32 {
        if *bits == self.default {
            return 0;
        }
        if let Some(value) = self.numbers.get(bits) {
            return *value;
        }
        self.values.push(bits.clone());
        let value = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
        self.numbers.insert(bits.clone(), value);
        value
    }

    /// Splits all ports of a protocol into ranges; adjacent ranges have different values.
    fn ranges(&mut self, rules: &[ListRule], protocol: u8) -> Vec<(u16, u16, u32)> {
        // The ports at which rules start and stop matching.
        let mut changes: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (number, rule) in rules.iter().enumerate() {
            let Some(ports) = rule.conditions.ports(self.dimension) else { continue };
            for (first, last) in ports.of_protocol(protocol) {
                changes.entry(u32::from(*first)).or_default().push(number);
                changes.entry(u32::from(*last) + 1).or_default().push(number);
            }
        }
        let mut bits = vec![0; self.default.len()];
        let mut ranges: Vec<(u16, u16, u32)> = Vec::new();
        changes.entry(0).or_default();
        let starts: Vec<u32> = changes.keys().copied().collect();
        let ends = starts.iter().skip(1).copied().chain([u32::from(u16::MAX) + 1]);
        for ((start, changed), end) in changes.iter().zip(ends) {
            changed.iter().for_each(|number| toggle(&mut bits, *number));
            let (Ok(first), Ok(last)) = (u16::try_from(*start), u16::try_from(end - 1)) else { continue };
            let value = self.value(&bits);
            match ranges.last_mut() {
                Some(before) if before.2 == value => before.1 = last,
                _ => ranges.push((first, last, value)),
            }
        }
        ranges
    }
}

fn toggle(bits: &mut Bits, number: usize) {
    bits[number / 64] ^= 1 << (number % 64);
}

/// The value of the most ports; the lowest if there are several.
fn most_common(ranges: &[(u16, u16, u32)]) -> u32 {
    let mut ports: BTreeMap<u32, u32> = BTreeMap::new();
    for (first, last, value) in ranges {
        *ports.entry(*value).or_default() += u32::from(last - first) + 1;
    }
    let most = ports.values().copied().max().unwrap_or_default();
    ports.iter().find(|(_, count)| **count == most).map_or(0, |(value, _)| *value)
}

/// Splits a range into the fewest prefixes.
fn prefixes(first: u16, last: u16, mut each: impl FnMut(u16, u8)) {
    let (mut next, last) = (u32::from(first), u32::from(last));
    while next <= last {
        let room = (last - next + 1).ilog2();
        let size = room.min(if next == 0 { 16 } else { next.trailing_zeros() });
        let port = u16::try_from(next).unwrap_or(u16::MAX);
        each(port, u8::try_from(16 - size).unwrap_or(16));
        next += 1 << size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_become_the_fewest_prefixes() {
        let of = |first, last| {
            let mut all = Vec::new();
            prefixes(first, last, |port, bits| all.push((port, bits)));
            all
        };
        assert_eq!(of(0, u16::MAX), [(0, 0)]);
        assert_eq!(of(80, 80), [(80, 16)]);
        assert_eq!(of(1, 6), [(1, 16), (2, 15), (4, 15), (6, 16)]);
        assert_eq!(of(u16::MAX, u16::MAX), [(u16::MAX, 16)]);
        assert_eq!(of(1, u16::MAX - 1).len(), 30);
    }
}
