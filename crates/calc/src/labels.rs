//! Sets of labels, packed and shared: the endpoints of one deployment have the same labels, and most labels are never
//! looked at.
//!
//! A set is one run of bytes: for each label the symbol of its name, the length of its value and the value, in the
//! order of the symbols. Values are not symbols: many occur only once (hashes, names of pods), and a value that repeats
//! is mostly part of a set that repeats. Inheritance is handled elsewhere.

use crate::bytes::{Reader, put_bytes, put_number};
use crate::symbols::{Symbol, Symbols};
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;
use std::ops::Range;

/// The number of a set in [`LabelSets`]; the default is the empty set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct LabelSetId(u32);

impl LabelSetId {
    /// The set without labels. It is not reference-counted.
    pub(crate) const EMPTY: Self = Self(0);

    fn place(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug, Default)]
struct Entry {
    bytes: Box<[u8]>,
    references: u32,
}

/// All sets of labels, each kept once with a reference count, and the names of labels.
#[derive(Debug)]
pub(crate) struct LabelSets {
    /// The names of labels. Selectors also hold references here.
    pub(crate) names: Symbols,
    entries: Vec<Entry>,
    free: Vec<LabelSetId>,
    by_content: HashTable<LabelSetId>,
    hasher: DefaultHashBuilder,
    scratch: Vec<(Symbol, Range<usize>)>,
    values: Vec<u8>,
    packed: Vec<u8>,
}

impl Default for LabelSets {
    fn default() -> Self {
        Self {
            names: Symbols::default(),
            entries: vec![Entry::default()],
            free: Vec::new(),
            by_content: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            scratch: Vec::new(),
            values: Vec::new(),
            packed: Vec::new(),
        }
    }
}

impl LabelSets {
    /// Returns the set of these labels, with one more reference.
    pub(crate) fn acquire<'l>(&mut self, labels: impl IntoIterator<Item = (&'l str, &'l str)>) -> LabelSetId {
        self.scratch.clear();
        self.values.clear();
        for (name, value) in labels {
            let start = self.values.len();
            self.values.extend_from_slice(value.as_bytes());
            self.scratch.push((self.names.acquire(name), start..self.values.len()));
        }
        if self.scratch.is_empty() {
            return LabelSetId::EMPTY;
        }
        self.scratch.sort_unstable_by_key(|(symbol, _)| *symbol);
        self.packed.clear();
        for (symbol, value) in &self.scratch {
            put_number(&mut self.packed, symbol.0.into());
            put_bytes(&mut self.packed, self.values.get(value.clone()).unwrap_or_default());
        }

        let hash = self.hasher.hash_one(&*self.packed);
        let entries = &self.entries;
        if let Some(&id) = self.by_content.find(hash, |id| *entries[id.place()].bytes == *self.packed) {
            self.entries[id.place()].references += 1;
            for (symbol, _) in &self.scratch {
                self.names.release(*symbol);
            }
            return id;
        }
        let entry = Entry { bytes: self.packed.as_slice().into(), references: 1 };
        let id = if let Some(id) = self.free.pop() {
            self.entries[id.place()] = entry;
            id
        } else {
            self.entries.push(entry);
            LabelSetId(u32::try_from(self.entries.len() - 1).expect("fewer than four billion sets"))
        };
        let (entries, hasher) = (&self.entries, &self.hasher);
        self.by_content.insert_unique(hash, id, |id| hasher.hash_one(&*entries[id.place()].bytes));
        id
    }

    /// Releases a reference.
    pub(crate) fn release(&mut self, id: LabelSetId) {
        if id == LabelSetId::EMPTY {
            return;
        }
        let Some(entry) = self.entries.get_mut(id.place()) else { return };
        entry.references -= 1;
        if entry.references > 0 {
            return;
        }
        let bytes = std::mem::take(&mut entry.bytes);
        let hash = self.hasher.hash_one(&*bytes);
        if let Ok(found) = self.by_content.find_entry(hash, |other| *other == id) {
            found.remove();
        }
        self.free.push(id);
        for (name, _) in (Labels { bytes: &bytes }) {
            self.names.release(name);
        }
    }

    /// The labels of a set.
    pub(crate) fn get(&self, id: LabelSetId) -> Labels<'_> {
        Labels { bytes: self.entries.get(id.place()).map_or(&[], |entry| &entry.bytes) }
    }

    /// The number of different sets, not counting the empty one.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_content.len()
    }
}

/// The labels of one set, in the order of their names' symbols.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Labels<'a> {
    bytes: &'a [u8],
}

impl<'a> Labels<'a> {
    /// The value of a label.
    #[inline]
    pub(crate) fn get(self, name: Symbol) -> Option<&'a [u8]> {
        let mut reader = Reader(self.bytes);
        while let Some(have) = reader.small() {
            let value = reader.bytes()?;
            if have >= name.0 {
                return (have == name.0).then_some(value);
            }
        }
        None
    }
}

impl<'a> Iterator for Labels<'a> {
    type Item = (Symbol, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let mut reader = Reader(self.bytes);
        let name = Symbol(reader.small()?);
        let value = reader.bytes()?;
        self.bytes = reader.0;
        Some((name, value))
    }
}

#[cfg(test)]
mod tests {
    use super::{LabelSetId, LabelSets};
    use model::feed;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn map(labels: &[(&str, &str)]) -> feed::Labels {
        labels.iter().copied().collect()
    }

    #[test]
    fn equal_labels_are_one_set_and_nothing_stays_behind() {
        let mut sets = LabelSets::default();
        let a = sets.acquire(&map(&[("a", "1"), ("b", "")]));
        assert_eq!(sets.acquire(&map(&[("b", ""), ("a", "1")])), a);
        let c = sets.acquire(&map(&[("a", "2")]));
        assert_ne!(a, c);
        assert_eq!(sets.acquire(&feed::Labels::default()), LabelSetId::EMPTY);
        assert_eq!((sets.len(), sets.names.len()), (2, 2));
        sets.release(a);
        sets.release(LabelSetId::EMPTY);
        assert_eq!(sets.len(), 2, "one reference is left");
        sets.release(a);
        sets.release(c);
        assert_eq!((sets.len(), sets.names.len()), (0, 0));
    }

    proptest! {
        #[test]
        fn absurd_labels_are_found(labels: BTreeMap<String, String>, other: BTreeMap<String, String>) {
            let mut sets = LabelSets::default();
            let first = sets.acquire(&feed::Labels::from(&other));
            let id = sets.acquire(&feed::Labels::from(&labels));
            prop_assert_eq!(first == id, labels == other);
            for (name, value) in &labels {
                let symbol = sets.names.find(name).unwrap();
                prop_assert_eq!(sets.get(id).get(symbol), Some(value.as_bytes()));
            }
            for name in other.keys().filter(|name| !labels.contains_key(*name)) {
                prop_assert_eq!(sets.get(id).get(sets.names.find(name).unwrap()), None);
            }
            prop_assert_eq!(sets.get(id).count(), labels.len());
        }
    }
}
