//! Bridges two states when only the tables of both are known, as after a restart: an address has only one class, and
//! lists of the old state have no rows for classes of the new one, nor vice versa. So in between, addresses get classes
//! that stand for a pair of an old and a new class, with the rows of both.
//!
//! Not incremental: its cost is proportional to everything that differs.

use crate::evaluate::{class, class_around};
use crate::layout::{ClassId, ListId, RowKey, SegmentKey};
use crate::list::first_eight;
use crate::tables::{Table, Tables};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// For each pair of classes, the class that stands for both.
type Pairs = BTreeMap<(ClassId, ClassId), ClassId>;

/// The classes and rows with which the lists of both states decide as in their own state. Contains only what must be
/// written in addition to the new tables: classes of differing members, and their rows.
#[must_use]
pub fn bridge(old: &Tables, new: &Tables) -> Tables {
    let mut made = Tables::default();
    let mut of_addresses = Pairs::new();
    for address in differing(&old.addresses, &new.addresses) {
        let pair = (class(old, address), class(new, address));
        made.addresses.set(address, stands_for(pair, &mut of_addresses));
    }
    for net in differing(&old.nets, &new.nets) {
        let pair = (class_around(old, net), class_around(new, net));
        made.nets.set(net, stands_for(pair, &mut of_addresses));
    }
    let mut of_pairs = Pairs::new();
    for key in differing(&old.pairs, &new.pairs) {
        let find = |tables: &Tables| tables.pairs.get(&key).copied().unwrap_or_default();
        made.pairs.set(key, stands_for((find(old), find(new)), &mut of_pairs));
    }
    let (before, after) = (lists(old), lists(new));
    for (pairs, dimensions) in [(of_addresses, [0, 1]), (of_pairs, [4, 5])] {
        for ((old_class, new_class), class) in pairs {
            for list in before.difference(&after) {
                copy_rows((old, *list, old_class), class, dimensions, &mut made);
            }
            for list in &after {
                copy_rows((new, *list, new_class), class, dimensions, &mut made);
            }
        }
    }
    made
}

/// The keys whose values differ.
fn differing<K: Ord + Clone>(old: &Table<K, ClassId>, new: &Table<K, ClassId>) -> BTreeSet<K> {
    let keys = old.iter().chain(new.iter()).map(|(key, _)| key);
    keys.filter(|key| old.get(key) != new.get(key)).cloned().collect()
}

fn stands_for(pair: (ClassId, ClassId), pairs: &mut Pairs) -> ClassId {
    if pair.0 == pair.1 {
        return pair.0;
    }
    *pairs.entry(pair).or_insert_with(|| {
        let hash = Sha256::new().chain_update(pair.0.0.to_le_bytes()).chain_update(pair.1.0.to_le_bytes());
        ClassId(first_eight(hash).max(1))
    })
}

fn lists(tables: &Tables) -> BTreeSet<ListId> {
    tables.segments.iter().map(|(SegmentKey { list, .. }, _)| *list).collect()
}

fn copy_rows(
    (from, list, class_of_lists): (&Tables, ListId, ClassId),
    class: ClassId,
    dimensions: [u8; 2],
    made: &mut Tables,
) {
    let end = |segment, dimension| RowKey { list, value: class_of_lists.0, segment, dimension };
    for (key, row) in from.rows.range(end(0, 0), end(u16::MAX, u8::MAX)) {
        if dimensions.contains(&key.dimension) {
            made.rows.set(RowKey { value: class.0, ..*key }, *row);
        }
    }
}
