//! The kernel memory of the entries: each element of a map is one allocation, rounded up to a size class.

use bpf_policy::layout::{ListId, SegmentKey};
use bpf_policy::{Table, Tables};
use std::collections::BTreeSet;

/// `struct htab_elem` before the key, and the word that the map's allocator adds.
const HASH_ELEMENT: usize = 48 + 8;
/// `struct lpm_trie_node` before the data.
const TRIE_NODE: usize = 40;

/// The bytes of all maps.
pub(crate) struct Bytes {
    /// At present.
    pub(crate) whole: usize,
    /// If rows of lists with at most 64 rules had one word instead of sixteen.
    pub(crate) short_rows: usize,
}

impl Bytes {
    pub(crate) fn of(tables: &Tables) -> Self {
        let short: BTreeSet<ListId> = tables
            .segments
            .iter()
            .filter(|(key, segment)| key.segment == 0 && segment.last && segment.rules <= 64)
            .map(|(SegmentKey { list, .. }, _)| *list)
            .collect();
        let others = hash(&tables.addresses, 16, 8)
            + trie(&tables.nets, 16, 8)
            + hash(&tables.pairs, 24, 8)
            + trie(&tables.ports, 12, 4)
            + hash(&tables.rules, 16, 16)
            + hash(&tables.endpoints, 8, 72);
        let whole = others + hash(&tables.rows, 24, 128) + hash(&tables.segments, 16, 904);
        let sized =
            |list: &ListId, long: usize, small: usize| if short.contains(list) { small } else { long };
        let rows = tables.rows.iter().map(|(key, _)| element(24, sized(&key.list, 128, 8)));
        let segments = tables.segments.iter().map(|(key, _)| element(16, sized(&key.list, 904, 64)));
        Self { whole, short_rows: others + rows.sum::<usize>() + segments.sum::<usize>() }
    }
}

fn element(key: usize, value: usize) -> usize {
    allocation(HASH_ELEMENT + key.next_multiple_of(8) + value.next_multiple_of(8))
}

fn hash<K: Ord + Clone, V: PartialEq>(table: &Table<K, V>, key: usize, value: usize) -> usize {
    table.len() * element(key, value)
}

/// In the worst case, each entry needs an intermediate node without a value.
fn trie<K: Ord + Clone, V: PartialEq>(table: &Table<K, V>, data: usize, value: usize) -> usize {
    table.len() * (allocation(TRIE_NODE + data + value) + allocation(TRIE_NODE + data))
}

/// The kernel's sizes of small allocations.
fn allocation(size: usize) -> usize {
    match size {
        0..=64 => size.next_power_of_two(),
        65..=96 => 96,
        129..=192 => 192,
        _ => size.next_power_of_two(),
    }
}
