//! Matches the selectors of policies with the endpoints of this host.
//!
//! Thousands of policies have the same selector (`all()`, or that of a namespace), so selectors are matched, not
//! policies: each different text is one row with the policies that have it. A row whose labels no local endpoint has is
//! never even compiled.

use super::table::PolicyRef;
use crate::id_list::IdList;
use crate::matching::{Code, Place, SelectorIndex, ValueHasher, demands};
use crate::population::{Item, ItemId, Population};
use crate::slab::{Slab, row_id};
use crate::symbols::Symbols;
use hashbrown::{DefaultHashBuilder, HashTable};
use selector::Selector;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;

/// Up to this many new selectors are tried with every endpoint; if there are more, every endpoint looks up all its
/// selectors.
const FEW: usize = 16;

row_id! {
    /// The number of a selector.
    SelectorRef
}

#[derive(Debug)]
struct SelectorRow {
    text: Box<str>,
    policies: IdList<PolicyRef>,
    /// The local endpoints that it matches.
    matched: IdList<ItemId>,
    code: Option<Box<Code>>,
}

/// The result of matching again.
#[derive(Debug, Default)]
pub(crate) struct Rematched {
    /// Endpoints that other selectors match than before.
    pub(crate) endpoints: BTreeSet<ItemId>,
    /// Selectors that now match some endpoint and did not before, or the other way round.
    pub(crate) selectors: BTreeSet<SelectorRef>,
    /// Endpoints whose labels or profiles changed, whether or not that makes a difference here.
    pub(crate) relabelled: BTreeSet<ItemId>,
}

/// The different selectors of policies, and the local endpoints that they match.
#[derive(Debug)]
pub(crate) struct LocalSelectors {
    rows: Slab<SelectorRow, SelectorRef>,
    by_text: HashTable<SelectorRef>,
    text_hasher: DefaultHashBuilder,
    hasher: ValueHasher,
    index: SelectorIndex<SelectorRef>,
    /// The local endpoints, with the selectors that match them.
    locals: BTreeMap<ItemId, IdList<SelectorRef>>,
    new: BTreeSet<SelectorRef>,
    stale: BTreeSet<ItemId>,
    changes: Rematched,
}

impl Default for LocalSelectors {
    fn default() -> Self {
        let hasher = ValueHasher::default();
        Self {
            rows: Slab::default(),
            by_text: HashTable::new(),
            text_hasher: DefaultHashBuilder::default(),
            index: SelectorIndex::new(hasher.clone()),
            hasher,
            locals: BTreeMap::new(),
            new: BTreeSet::new(),
            stale: BTreeSet::new(),
            changes: Rematched::default(),
        }
    }
}

impl LocalSelectors {
    /// The canonical form of a selector.
    pub(crate) fn text(&self, selector: SelectorRef) -> &str {
        self.rows.get(selector).map_or("", |row| &row.text)
    }

    /// The policies that have a selector.
    pub(crate) fn policies(&self, selector: SelectorRef) -> &[PolicyRef] {
        self.rows.get(selector).map_or(&[], |row| row.policies.as_slice())
    }

    /// The local endpoints that a selector matched at the last matching.
    pub(crate) fn matched(&self, selector: SelectorRef) -> &[ItemId] {
        self.rows.get(selector).map_or(&[], |row| row.matched.as_slice())
    }

    /// The selectors that matched an endpoint at the last matching.
    pub(crate) fn of_endpoint(&self, item: ItemId) -> &[SelectorRef] {
        self.locals.get(&item).map_or(&[], IdList::as_slice)
    }

    /// Returns the row of a selector, which is added if there is none; then a policy must join it.
    pub(crate) fn get_or_add(&mut self, selector: &Selector, names: &mut Symbols) -> SelectorRef {
        let text = selector.canonical();
        let hash = self.text_hasher.hash_one(text);
        let rows = &self.rows;
        if let Some(&found) =
            self.by_text.find(hash, |row| rows.get(*row).is_some_and(|row| *row.text == *text))
        {
            return found;
        }
        let id = self.rows.insert(SelectorRow {
            text: text.into(),
            policies: IdList::default(),
            matched: IdList::default(),
            code: None,
        });
        let (rows, hasher) = (&self.rows, &self.text_hasher);
        self.by_text
            .insert_unique(hash, id, |row| hasher.hash_one(rows.get(*row).map_or("", |row| &row.text)));
        let place = self.place(selector, names);
        if let Place::Present(name) | Place::Values(name, _) = &place {
            names.retain(*name);
        }
        release_names(selector, names);
        self.index.insert(id, &place);
        self.new.insert(id);
        id
    }

    /// Returns the place of a selector: always the same for the same text. The caller releases the references to all
    /// names that it mentions.
    fn place(&self, selector: &Selector, names: &mut Symbols) -> Place {
        for name in selector.nodes().filter_map(selector::Node::label) {
            names.acquire(name);
        }
        match demands(selector, names, &self.hasher) {
            None => Place::Nowhere,
            Some(demands) => match demands.into_iter().next() {
                None => Place::Everywhere,
                Some(demand) => match demand.values {
                    None => Place::Present(demand.name),
                    Some(values) => Place::Values(demand.name, values),
                },
            },
        }
    }

    /// Adds a policy to its selector.
    pub(crate) fn join(&mut self, selector: SelectorRef, policy: PolicyRef) {
        if let Some(row) = self.rows.get_mut(selector) {
            row.policies.insert(policy);
        }
    }

    /// Removes a policy from its selector, and the selector with its last policy.
    pub(crate) fn leave(&mut self, selector: SelectorRef, policy: PolicyRef, names: &mut Symbols) {
        let Some(row) = self.rows.get_mut(selector) else { return };
        row.policies.remove(policy);
        if !row.policies.is_empty() {
            return;
        }
        let Some(row) = self.rows.remove(selector) else { return };
        let hash = self.text_hasher.hash_one(&*row.text);
        if let Ok(entry) = self.by_text.find_entry(hash, |other| *other == selector) {
            entry.remove();
        }
        for item in row.matched.as_slice() {
            if let Some(selectors) = self.locals.get_mut(item) {
                selectors.remove(selector);
            }
        }
        let parsed = Selector::from_canonical(&row.text);
        let place = self.place(&parsed, names);
        self.index.remove(selector, &place);
        if let Place::Present(name) | Place::Values(name, _) = &place {
            names.release(*name);
        }
        release_names(&parsed, names);
        if let Some(code) = row.code {
            code.release(names);
        }
        self.new.remove(&selector);
        self.changes.selectors.remove(&selector);
    }

    /// Notes that a local endpoint is new, or that its labels or profiles changed.
    pub(crate) fn endpoint_changed(&mut self, item: ItemId) {
        self.locals.entry(item).or_default();
        self.stale.insert(item);
    }

    /// Notes that the labels of a profile with these members changed.
    pub(crate) fn parent_changed(&mut self, members: &[ItemId]) {
        if members.len() < self.locals.len() {
            self.stale.extend(members.iter().filter(|item| self.locals.contains_key(*item)));
        } else {
            self.stale.extend(self.locals.keys().filter(|item| members.binary_search(item).is_ok()));
        }
    }

    /// Removes a local endpoint.
    pub(crate) fn endpoint_removed(&mut self, item: ItemId) {
        self.stale.remove(&item);
        self.changes.endpoints.remove(&item);
        for &selector in self.locals.remove(&item).unwrap_or_default().as_slice() {
            if let Some(row) = self.rows.get_mut(selector)
                && row.matched.remove(item)
                && row.matched.is_empty()
            {
                self.changes.selectors.insert(selector);
            }
        }
    }

    /// Matches again whatever changed, and returns the differences.
    pub(crate) fn rematch(&mut self, population: &mut Population) -> Rematched {
        self.changes.relabelled = self.stale.clone();
        let new = std::mem::take(&mut self.new);
        if new.len() > FEW {
            self.stale.extend(self.locals.keys());
        } else {
            for selector in new {
                self.rematch_selector(selector, population);
            }
        }
        for item in std::mem::take(&mut self.stale) {
            self.rematch_endpoint(item, population);
        }
        std::mem::take(&mut self.changes)
    }

    fn rematch_selector(&mut self, selector: SelectorRef, population: &mut Population) {
        let items: Vec<ItemId> =
            self.locals.keys().copied().filter(|item| !self.stale.contains(item)).collect();
        for id in items {
            self.compile(selector, population);
            let Some(item) = population.item(id) else { continue };
            if self.selects(selector, population, item) {
                self.set_match(selector, id, true);
            }
        }
    }

    fn rematch_endpoint(&mut self, id: ItemId, population: &mut Population) {
        let mut found = Vec::new();
        if let Some(item) = population.item(id) {
            self.index.candidates(population.view(item).all(), &mut found);
        }
        for selector in &found {
            self.compile(*selector, population);
        }
        let Some(item) = population.item(id) else { return };
        found.retain(|selector| self.selects(*selector, population, item));
        let before = self.locals.get(&id).cloned().unwrap_or_default();
        for &selector in before.as_slice() {
            if found.binary_search(&selector).is_err() {
                self.set_match(selector, id, false);
            }
        }
        for &selector in &found {
            if !before.contains(selector) {
                self.set_match(selector, id, true);
            }
        }
    }

    fn compile(&mut self, selector: SelectorRef, population: &mut Population) {
        let Some(row) = self.rows.get_mut(selector) else { return };
        if row.code.is_none() {
            let parsed = Selector::from_canonical(&row.text);
            row.code = Some(Box::new(Code::compile(&parsed, &mut population.labels.names)));
        }
    }

    fn selects(&self, selector: SelectorRef, population: &Population, item: &Item) -> bool {
        let code = self.rows.get(selector).and_then(|row| row.code.as_ref());
        code.is_some_and(|code| code.matches(&population.view(item)))
    }

    fn set_match(&mut self, selector: SelectorRef, item: ItemId, matches: bool) {
        let Some(row) = self.rows.get_mut(selector) else { return };
        let was = row.matched.is_empty();
        if matches {
            row.matched.insert(item)
        } else {
            row.matched.remove(item)
        };
        if was != row.matched.is_empty() {
            self.changes.selectors.insert(selector);
        }
        if let Some(selectors) = self.locals.get_mut(&item) {
            if matches {
                selectors.insert(selector)
            } else {
                selectors.remove(selector)
            };
        }
        self.changes.endpoints.insert(item);
    }
}

fn release_names(selector: &Selector, names: &mut Symbols) {
    for name in selector.nodes().filter_map(selector::Node::label) {
        if let Some(symbol) = names.find(name) {
            names.release(symbol);
        }
    }
}
