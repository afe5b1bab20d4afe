//! Rules by destination port: in a row if there are few, otherwise a tree of chains.
//!
//! The ports of a protocol are split wherever the list of classes that have them changes. Each chain of the tree tests
//! up to [`FAN_OUT`] ranges of ports. A packet moves from chain to chain without returning, and comes back to where it
//! entered the tree, with or without a verdict.

use super::super::split_ports;
use crate::renderer::{goto, protocol_number};
use crate::tree::{Action, Chain, ChainName, End, Match, PortRange, Rule};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Up to this number of rules are tested in turn.
const FEW_RULES: usize = 16;
/// The number of port ranges in one chain of the tree.
const FAN_OUT: usize = 16;
/// A tree with this many times the rules of the list is not built: too many ranges overlap.
const MAX_GROWTH: usize = 4;

/// The ports of one class, sorted and disjoint, and its addresses.
pub(super) struct Entry {
    pub(super) ports: Vec<PortRange>,
    pub(super) sources: Vec<Option<Match>>,
}

fn rule(protocol: u8, ports: Arc<[PortRange]>, source: Option<Match>, then: &Action) -> Rule {
    let ports = Match::Ports { end: End::Destination, ports, negated: false };
    let matches: Vec<Match> = [protocol_number(protocol), ports].into_iter().chain(source).collect();
    Rule::when(matches, then.clone())
}

/// Tests the rules in turn.
pub(super) fn flat(protocol: u8, entries: &[Entry], then: &Action) -> Vec<Rule> {
    let mut rules = Vec::new();
    for entry in entries {
        for ports in split_ports(&entry.ports) {
            let sources = entry.sources.iter().cloned();
            rules.extend(sources.map(|source| rule(protocol, Arc::clone(&ports), source, then)));
        }
    }
    rules
}

/// Builds the tree, if there are enough rules for one, and returns the name of its root and all its chains. `name`
/// names a chain by level and place.
pub(super) fn tree(
    protocol: u8,
    entries: &[Entry],
    then: &Action,
    name: impl Fn(usize, usize) -> ChainName,
) -> Option<(ChainName, Vec<Chain>)> {
    let in_list: usize =
        entries.iter().map(|entry| split_ports(&entry.ports).len() * entry.sources.len()).sum();
    if in_list <= FEW_RULES {
        return None;
    }
    let segments = segments(entries);
    let in_tree: usize = segments
        .iter()
        .map(|(_, classes)| classes.iter().map(|class| entries[*class].sources.len()).sum::<usize>())
        .sum();
    // With one range there is nothing to choose.
    if segments.len() < 2 || in_tree > in_list * MAX_GROWTH {
        return None;
    }
    let mut chains = Vec::new();
    let mut above: Vec<(PortRange, ChainName)> = Vec::new();
    for (place, part) in segments.chunks(FAN_OUT).enumerate() {
        let mut rules = Vec::new();
        for (range, classes) in part {
            for class in classes {
                let sources = entries[*class].sources.iter().cloned();
                rules.extend(sources.map(|source| rule(protocol, [*range].into(), source, then)));
            }
        }
        let covered = PortRange { first: part[0].0.first, last: part[part.len() - 1].0.last };
        above.push((covered, name(0, place)));
        chains.push(Chain::new(name(0, place), rules));
    }
    let mut level = 1;
    while above.len() > 1 {
        let below = std::mem::take(&mut above);
        for (place, part) in below.chunks(FAN_OUT).enumerate() {
            let rules = part
                .iter()
                .map(|(range, chain)| rule(protocol, [*range].into(), None, &goto(chain.clone())))
                .collect();
            let covered = PortRange { first: part[0].0.first, last: part[part.len() - 1].0.last };
            above.push((covered, name(level, place)));
            chains.push(Chain::new(name(level, place), rules));
        }
        level += 1;
    }
    above.pop().map(|(_, root)| (root, chains))
}

/// All ports that any entry has, sorted, and split wherever the entries that have them change.
fn segments(entries: &[Entry]) -> Vec<(PortRange, Vec<usize>)> {
    // At each place: the entries that begin there, and those that ended just before it.
    let mut places: BTreeMap<u32, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
    for (index, entry) in entries.iter().enumerate() {
        for range in &entry.ports {
            places.entry(range.first.into()).or_default().0.push(index);
            places.entry(u32::from(range.last) + 1).or_default().1.push(index);
        }
    }
    let mut all = Vec::new();
    let mut open: BTreeSet<usize> = BTreeSet::new();
    let mut places = places.into_iter().peekable();
    while let Some((first, (begin, end))) = places.next() {
        end.iter().for_each(|index| _ = open.remove(index));
        open.extend(begin);
        let Some((next, _)) = places.peek() else { break };
        if !open.is_empty() {
            let [first, last] = [first, next - 1].map(|port| u16::try_from(port).unwrap_or(u16::MAX));
            all.push((PortRange { first, last }, open.iter().copied().collect()));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::{Entry, PortRange, segments, tree};
    use crate::tree::{Action, ChainName};

    fn entry(list: &[(u16, u16)]) -> Entry {
        let ports = list.iter().map(|&(first, last)| PortRange { first, last }).collect();
        Entry { ports, sources: vec![None] }
    }

    fn name(level: usize, place: usize) -> ChainName {
        format!("{level}-{place}").into()
    }

    #[test]
    fn ports_are_cut_where_classes_change() {
        let entries = [entry(&[(10, 20), (30, 30)]), entry(&[(15, 30)]), entry(&[(65535, 65535)])];
        let shown: Vec<String> = segments(&entries)
            .iter()
            .map(|(range, classes)| format!("{}-{} {classes:?}", range.first, range.last))
            .collect();
        assert_eq!(shown, ["10-14 [0]", "15-20 [0, 1]", "21-29 [1]", "30-30 [0, 1]", "65535-65535 [2]"]);
    }

    #[test]
    fn few_rules_and_overlapping_ranges_get_no_tree() {
        let few: Vec<Entry> = (0..16).map(|port| entry(&[(port, port)])).collect();
        assert!(tree(6, &few, &Action::Drop, name).is_none());
        let nested: Vec<Entry> = (0..100).map(|port| entry(&[(port, 1000 - port)])).collect();
        assert!(tree(6, &nested, &Action::Drop, name).is_none());
    }

    #[test]
    fn a_thousand_ports_are_three_chains_away() {
        let many: Vec<Entry> = (0..1000).map(|port| entry(&[(port, port)])).collect();
        let (root, chains) = tree(6, &many, &Action::Drop, name).expect("a tree");
        assert_eq!(&*root, "2-0");
        assert_eq!(chains.len(), 63 + 4 + 1);
        assert!(chains.iter().all(|chain| chain.rules.len() <= 16));
    }
}
