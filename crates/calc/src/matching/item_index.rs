//! Items by their labels, only for labels that selectors look up.
//!
//! The first selector that looks up a label builds the index for it, once, from all items; after that it is kept
//! current. Labels of profiles are indexed by profile, not by member: a namespace with ten thousand pods is one entry.
//! Unused indexes are kept for a while, because policies come back.

use super::{ByValue, Demand, ValueHasher};
use crate::labels::Labels;
use crate::population::{ItemId, ParentId, Population};
use crate::symbols::Symbol;
use std::collections::{BTreeSet, VecDeque};

/// The number of indexes that are kept although no selector uses them now.
const KEPT: usize = 32;

/// A missing index is worth building if otherwise more than this share of all items (one in so many) must be tried.
const WORTH_AN_INDEX: usize = 16;

#[derive(Debug, Default)]
struct Indexed {
    /// The number of selectors that use it.
    users: usize,
    /// The number of items that have the label themselves.
    entries: usize,
    items: ByValue<ItemId>,
    parents: ByValue<ParentId>,
}

/// Items by their labels.
#[derive(Debug, Default)]
pub(crate) struct ItemIndex {
    hasher: ValueHasher,
    names: Vec<Option<Box<Indexed>>>,
    unused: VecDeque<Symbol>,
}

impl ItemIndex {
    pub(crate) fn new(hasher: ValueHasher) -> Self {
        Self { hasher, ..Self::default() }
    }

    fn get(&self, name: Symbol) -> Option<&Indexed> {
        self.names.get(name.place())?.as_deref()
    }

    /// Adds an item with its own labels.
    pub(crate) fn add_item(&mut self, id: ItemId, labels: Labels<'_>) {
        for (name, value) in labels {
            if let Some(Some(indexed)) = self.names.get_mut(name.place())
                && indexed.items.insert(self.hasher.hash(value), id)
            {
                indexed.entries += 1;
            }
        }
    }

    /// Removes an item, which had these labels of its own.
    pub(crate) fn remove_item(&mut self, id: ItemId, labels: Labels<'_>) {
        for (name, value) in labels {
            if let Some(Some(indexed)) = self.names.get_mut(name.place())
                && indexed.items.remove(self.hasher.hash(value), id)
            {
                indexed.entries -= 1;
            }
        }
    }

    /// Adds a profile with its labels.
    pub(crate) fn add_parent(&mut self, id: ParentId, labels: Labels<'_>) {
        for (name, value) in labels {
            if let Some(Some(indexed)) = self.names.get_mut(name.place()) {
                indexed.parents.insert(self.hasher.hash(value), id);
            }
        }
    }

    /// Removes a profile, which had these labels.
    pub(crate) fn remove_parent(&mut self, id: ParentId, labels: Labels<'_>) {
        for (name, value) in labels {
            if let Some(Some(indexed)) = self.names.get_mut(name.place()) {
                indexed.parents.remove(self.hasher.hash(value), id);
            }
        }
    }

    /// Chooses the demand to look up, builds its index if there is none, and counts one more user of it. Returns `None`
    /// when all items have to be tried. `fresh` are names that no item had until this selector mentioned them.
    pub(crate) fn choose(
        &mut self,
        demands: &[Demand],
        fresh: &[Symbol],
        population: &Population,
    ) -> Option<Demand> {
        let known = demands
            .iter()
            .filter_map(|demand| Some((self.estimate(demand, population)?, demand)))
            .min_by_key(|(estimate, _)| *estimate);
        let unknown = demands.iter().find(|demand| self.get(demand.name).is_none());
        let chosen = match (known, unknown) {
            (Some((estimate, demand)), Some(other)) => {
                let crowded = estimate > 1000 && estimate * WORTH_AN_INDEX > population.item_count();
                // An index on mere presence is not likely to be better than an existing one.
                if crowded && other.values.is_some() { other } else { demand }
            }
            (Some((_, demand)), None) => demand,
            (None, Some(demand)) => demand,
            (None, None) => return None,
        };
        if fresh.contains(&chosen.name) {
            self.add_name(chosen.name);
        } else {
            self.make(&BTreeSet::from([chosen.name]), population);
        }
        if let Some(Some(indexed)) = self.names.get_mut(chosen.name.place()) {
            indexed.users += 1;
        }
        Some(chosen.clone())
    }

    /// Counts one user less of the index for this label.
    pub(crate) fn release(&mut self, name: Symbol) {
        let Some(Some(indexed)) = self.names.get_mut(name.place()) else { return };
        indexed.users -= 1;
        if indexed.users == 0 {
            self.unused.retain(|other| *other != name);
            self.unused.push_back(name);
        }
    }

    /// If there are many unused indexes, drops those that were not used for longest.
    ///
    /// An index may outlive the last mention of its label's name. Then no item has the label either, and if the symbol
    /// is reused for another name, the (empty) index is right for that name.
    pub(crate) fn tidy(&mut self) {
        let names = &self.names;
        self.unused.retain(|name| {
            names.get(name.place()).and_then(Option::as_ref).is_some_and(|indexed| indexed.users == 0)
        });
        while self.unused.len() > KEPT {
            let name = self.unused.pop_front();
            if let Some(slot) = name.and_then(|name| self.names.get_mut(name.place())) {
                *slot = None;
            }
        }
    }

    /// Prepares for many selectors at once: the indexes that they need are built in one pass over all items.
    pub(crate) fn prepare<'a>(
        &mut self,
        all_demands: impl Iterator<Item = &'a [Demand]>,
        population: &Population,
    ) {
        let wanted = all_demands
            .filter(|demands| demands.iter().all(|demand| self.get(demand.name).is_none()))
            .filter_map(|demands| Some(demands.first()?.name))
            .collect();
        self.make(&wanted, population);
    }

    fn add_name(&mut self, name: Symbol) {
        if self.names.len() <= name.place() {
            self.names.resize_with(name.place() + 1, || None);
        }
        if let Some(slot) = self.names.get_mut(name.place()) {
            slot.get_or_insert_default();
        }
    }

    /// Builds the indexes that are missing for these names.
    fn make(&mut self, names: &BTreeSet<Symbol>, population: &Population) {
        let missing: BTreeSet<Symbol> =
            names.iter().copied().filter(|name| self.get(*name).is_none()).collect();
        let Some(last) = missing.last() else { return };
        let mut is_missing = vec![false; last.place() + 1];
        for name in &missing {
            is_missing[name.place()] = true;
            self.add_name(*name);
        }
        let wanted = |(name, _): &(Symbol, &[u8])| is_missing.get(name.place()) == Some(&true);
        for (id, item) in population.items() {
            for (name, value) in population.labels.get(item.labels).filter(wanted) {
                if let Some(Some(indexed)) = self.names.get_mut(name.place()) {
                    indexed.items.insert(self.hasher.hash(value), id);
                    indexed.entries += 1;
                }
            }
        }
        for (id, parent) in population.parents() {
            for (name, value) in population.labels.get(parent.labels).filter(wanted) {
                if let Some(Some(indexed)) = self.names.get_mut(name.place()) {
                    indexed.parents.insert(self.hasher.hash(value), id);
                }
            }
        }
    }

    /// Returns how many items would have to be tried; `None` if there is no index.
    fn estimate(&self, demand: &Demand, population: &Population) -> Option<usize> {
        let indexed = self.get(demand.name)?;
        let members = |parents: &[ParentId]| -> usize {
            // A few are enough for an estimate.
            let sample: usize = parents
                .iter()
                .take(16)
                .filter_map(|parent| population.parent(*parent))
                .map(|parent| parent.items.len())
                .sum();
            if parents.len() > 16 { sample * parents.len() / 16 } else { sample }
        };
        Some(match &demand.values {
            Some(values) => values
                .iter()
                .map(|value| indexed.items.get(*value).len() + members(indexed.parents.get(*value)))
                .sum(),
            None => indexed.entries + indexed.parents.lists().take(16).map(members).sum::<usize>(),
        })
    }

    /// Collects all items that could satisfy a demand that was chosen before, sorted and without duplicates.
    pub(crate) fn candidates(&self, demand: &Demand, population: &Population, out: &mut Vec<ItemId>) {
        out.clear();
        let Some(indexed) = self.get(demand.name) else { return };
        let add_members = |parents: &[ParentId], out: &mut Vec<ItemId>| {
            for parent in parents.iter().filter_map(|parent| population.parent(*parent)) {
                out.extend_from_slice(parent.items.as_slice());
            }
        };
        match &demand.values {
            Some(values) => {
                for value in values {
                    out.extend_from_slice(indexed.items.get(*value));
                    add_members(indexed.parents.get(*value), out);
                }
            }
            None => {
                for items in indexed.items.lists() {
                    out.extend_from_slice(items);
                }
                for parents in indexed.parents.lists() {
                    add_members(parents, out);
                }
            }
        }
        out.sort_unstable();
        out.dedup();
    }
}

#[cfg(test)]
mod tests {
    use super::{ItemIndex, KEPT};
    use crate::matching::{Code, Demand, ValueHasher, demands};
    use crate::population::{ItemId, ItemKey, Population};
    use selector::Selector;
    use std::collections::BTreeMap;

    fn map(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
        labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn numbers(items: &[ItemId]) -> Vec<u32> {
        items.iter().map(|item| item.0).collect()
    }

    fn candidates(
        index: &mut ItemIndex,
        population: &mut Population,
        selector: &str,
    ) -> Option<(Demand, Vec<u32>)> {
        let selector = Selector::parse(selector).unwrap();
        Code::compile(&selector, &mut population.labels.names);
        let demands = demands(&selector, &population.labels.names, &index.hasher).unwrap();
        let chosen = index.choose(&demands, &[], population)?;
        let mut found = Vec::new();
        index.candidates(&chosen, population, &mut found);
        Some((chosen, numbers(&found)))
    }

    #[test]
    fn selectors_find_items_by_their_own_and_inherited_labels() {
        let mut population = Population::default();
        let mut index = ItemIndex::new(ValueHasher::default());
        for (name, labels, profiles) in [
            ("0", map(&[("app", "web")]), vec!["p".into()]),
            ("1", map(&[("app", "db")]), vec!["p".into()]),
            ("2", map(&[("ns", "n")]), vec![]),
        ] {
            population.put(&ItemKey::NetworkSet { name }, &labels.into(), &profiles, &[]);
        }
        let parent = population.get_or_add_parent(&"p".into());
        population.set_parent_labels(parent, &map(&[("ns", "n")]));
        let mut find =
            |selector: &str| candidates(&mut index, &mut population, selector).map(|(_, found)| found);
        assert_eq!(find("app == 'web'"), Some(vec![0]));
        assert_eq!(find("app in {'web', 'db'}"), Some(vec![0, 1]));
        assert_eq!(find("has(app)"), Some(vec![0, 1]));
        assert_eq!(find("ns == 'n'"), Some(vec![0, 1, 2]));
        assert_eq!(
            find("ns == 'n' && app == 'db'"),
            Some(vec![1]),
            "the label with fewer candidates is looked up"
        );
        assert_eq!(find("app == 'none'"), Some(vec![]));
        assert_eq!(find("app != 'web'"), None, "it demands nothing");

        // Items that are added after the index was built are in it, too.
        population.put(&ItemKey::NetworkSet { name: "3" }, &map(&[("app", "web")]).into(), &[], &[]);
        let labels = population.item(ItemId(3)).unwrap().labels;
        index.add_item(ItemId(3), population.labels.get(labels));
        let (chosen, found) = candidates(&mut index, &mut population, "app == 'web'").unwrap();
        assert_eq!(found, [0, 3]);
        index.remove_item(ItemId(0), population.labels.get(population.item(ItemId(0)).unwrap().labels));
        let mut found = Vec::new();
        index.candidates(&chosen, &population, &mut found);
        assert_eq!(numbers(&found), [3]);
    }

    #[test]
    fn unused_indexes_are_dropped_when_there_are_many() {
        let mut population = Population::default();
        let mut index = ItemIndex::new(ValueHasher::default());
        let mut chosen = Vec::new();
        for number in 0..KEPT + 5 {
            let (demand, _) = candidates(&mut index, &mut population, &format!("has(l{number})")).unwrap();
            chosen.push(demand.name);
        }
        index.tidy();
        assert!(chosen.iter().all(|name| index.get(*name).is_some()), "all are in use");
        for name in &chosen {
            index.release(*name);
        }
        index.tidy();
        let kept = chosen.iter().filter(|name| index.get(**name).is_some()).count();
        assert_eq!(kept, KEPT);
        assert!(index.get(chosen[0]).is_none() && index.get(chosen[KEPT]).is_some(), "the oldest go first");
    }
}
