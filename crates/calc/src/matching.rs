//! Finds the selectors that match some labels without trying them all.
//!
//! - [`Code`]: a selector compiled for many evaluations.
//! - [`SelectorIndex`]: selectors by their demands, to find those that could match some labels.
//! - [`ItemIndex`]: endpoints and network sets by their labels, to find those that a selector could match.
//!
//! Both indexes return candidates: all matches are among them, and the caller evaluates each. They know values only by
//! their hash; a collision costs an evaluation and does not change the result.

mod code;
mod item_index;
mod selector_index;

pub(crate) use code::{Code, Labelled};
pub(crate) use item_index::ItemIndex;
pub(crate) use selector_index::{Place, SelectorIndex};

use crate::id_list::IdList;
use crate::slab::RowId;
use crate::symbols::{Symbol, Symbols};
use hashbrown::{DefaultHashBuilder, HashTable};
use selector::Selector;
use std::hash::BuildHasher;

/// The hash function for values; both indexes and demands must share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ValueHasher(DefaultHashBuilder);

impl ValueHasher {
    pub(crate) fn hash(&self, value: &[u8]) -> u64 {
        self.0.hash_one(value)
    }
}

/// What a selector demands of one label: that it is present, or that it has one of some values.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    pub(crate) name: Symbol,
    pub(crate) values: Option<Box<[u64]>>,
}

/// Returns all demands of a selector; `None` if nothing can satisfy it.
pub(crate) fn demands(selector: &Selector, names: &Symbols, hasher: &ValueHasher) -> Option<Vec<Demand>> {
    let restrictions = selector.label_restrictions();
    if restrictions.values().any(|restriction| !restriction.possible_to_satisfy()) {
        return None;
    }
    let mut demands: Vec<Demand> = restrictions
        .into_iter()
        .filter(|(_, restriction)| restriction.must_be_present)
        .filter_map(|(label, restriction)| {
            let values = restriction.must_have_one_of_values.map(|values| {
                let mut hashes: Vec<u64> = values.iter().map(|value| hasher.hash(value.as_bytes())).collect();
                hashes.sort_unstable();
                hashes.dedup();
                hashes.into_boxed_slice()
            });
            Some(Demand { name: names.find(&label)?, values })
        })
        .collect();
    // Fewest values first, which decides between places that are equally good.
    demands.sort_by_key(|demand| demand.values.as_ref().map_or(usize::MAX, |values| values.len()));
    Some(demands)
}

/// Numbers by the hash of a value.
#[derive(Debug)]
pub(crate) struct ByValue<I>(HashTable<(u64, IdList<I>)>);

impl<I> Default for ByValue<I> {
    fn default() -> Self {
        Self(HashTable::new())
    }
}

impl<I: RowId> ByValue<I> {
    pub(crate) fn get(&self, hash: u64) -> &[I] {
        self.0.find(hash, |(have, _)| *have == hash).map_or(&[], |(_, ids)| ids.as_slice())
    }

    pub(crate) fn insert(&mut self, hash: u64, id: I) -> bool {
        self.0
            .entry(hash, |(have, _)| *have == hash, |(have, _)| *have)
            .or_insert_with(|| (hash, IdList::default()))
            .into_mut()
            .1
            .insert(id)
    }

    pub(crate) fn remove(&mut self, hash: u64, id: I) -> bool {
        let Ok(mut entry) = self.0.find_entry(hash, |(have, _)| *have == hash) else { return false };
        let removed = entry.get_mut().1.remove(id);
        if entry.get().1.is_empty() {
            entry.remove();
        }
        removed
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn lists(&self) -> impl Iterator<Item = &[I]> {
        self.0.iter().map(|(_, ids)| ids.as_slice())
    }
}
