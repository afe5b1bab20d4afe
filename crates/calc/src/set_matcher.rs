//! The members of sets: matches the selectors of the sets in use with all items, and keeps the result current when
//! either changes.
//!
//! A set that comes into use looks up its candidates by label; an endpoint that changes looks up the selectors that
//! could match it. When the labels of a profile change, only selectors that mention a changed name matter; if there are
//! none, the profile's members are not looked at.

use crate::id_list::IdList;
use crate::labels::LabelSetId;
use crate::matching::{Code, Demand, ItemIndex, Place, SelectorIndex, ValueHasher, demands};
use crate::members::{Member, Members};
use crate::population::{Before, Contribution, Item, ItemId, ParentId, Population, PortProtocol, Put};
use crate::sequencer::{IpSets, SetIndex};
use crate::symbols::Symbol;
use hashbrown::HashMap;
use selector::Selector;

/// Above this number of selectors, each member of a changed profile is matched with all selectors that could match it,
/// instead of each selector with all members.
const FEW_SELECTORS: usize = 4;

#[derive(Debug)]
struct ActiveSet {
    code: Code,
    /// For sets of named ports: the port.
    port: Option<(Box<str>, PortProtocol)>,
    place: Place,
    /// The demand by which its members were looked up; `None` if all items were tried.
    lookup: Lookup,
}

#[derive(Debug)]
enum Lookup {
    Nobody,
    Everybody,
    By(Demand),
}

/// The destination of members: the members themselves, and what the dataplane must learn about them.
#[derive(Debug)]
pub(crate) struct Output<'a> {
    pub(crate) members: &'a mut Members,
    pub(crate) told: &'a mut IpSets,
}

/// How often selectors were evaluated, and how their candidates were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MatcherCounts {
    pub(crate) evaluations_true: u64,
    pub(crate) evaluations_false: u64,
    pub(crate) lookups_by_value: u64,
    pub(crate) lookups_by_name: u64,
    pub(crate) lookups_of_nobody: u64,
    pub(crate) full_scans: u64,
}

/// The selectors of the sets in use, and the matches.
#[derive(Debug)]
pub(crate) struct SetMatcher {
    hasher: ValueHasher,
    selectors: SelectorIndex<SetIndex>,
    items: ItemIndex,
    sets: Vec<Option<ActiveSet>>,
    /// The sets whose selectors mention a label, by the label's name.
    mentions: HashMap<Symbol, IdList<SetIndex>>,
    counts: MatcherCounts,
    /// Buffers that are reused.
    candidates: Vec<ItemId>,
    sets_found: Vec<SetIndex>,
}

impl Default for SetMatcher {
    fn default() -> Self {
        let hasher = ValueHasher::default();
        Self {
            selectors: SelectorIndex::new(hasher.clone()),
            items: ItemIndex::new(hasher.clone()),
            hasher,
            sets: Vec::new(),
            mentions: HashMap::new(),
            counts: MatcherCounts::default(),
            candidates: Vec::new(),
            sets_found: Vec::new(),
        }
    }
}

impl SetMatcher {
    /// The counters of the work that was done.
    pub(crate) fn counts(&self) -> MatcherCounts {
        self.counts
    }

    /// The number of selectors that are found by a label, and of those that are tried with every item.
    pub(crate) fn selector_counts(&self) -> (usize, usize) {
        self.selectors.counts()
    }

    /// Prepares for sets with these selectors, which are about to come into use. This saves work when they are many.
    pub(crate) fn prepare<'a>(
        &mut self,
        selectors: impl Iterator<Item = &'a Selector>,
        population: &Population,
    ) {
        let all: Vec<Vec<Demand>> = selectors
            .filter_map(|selector| demands(selector, &population.labels.names, &self.hasher))
            .collect();
        self.items.prepare(all.iter().map(Vec::as_slice), population);
    }

    /// Starts to maintain a set that comes into use; its members are open and empty.
    pub(crate) fn open(
        &mut self,
        set: SetIndex,
        selector: &Selector,
        port: Option<(&str, PortProtocol)>,
        population: &mut Population,
        output: &mut Output<'_>,
    ) {
        let mentioned = selector.nodes().filter_map(selector::Node::label);
        let unknown: Vec<&str> =
            mentioned.filter(|name| population.labels.names.find(name).is_none()).collect();
        let code = Code::compile(selector, &mut population.labels.names);
        let fresh: Vec<Symbol> =
            unknown.iter().filter_map(|name| population.labels.names.find(name)).collect();
        let demands = demands(selector, &population.labels.names, &self.hasher);
        let place = self.selectors.place_for(demands.as_deref());
        self.selectors.insert(set, &place);
        code.for_each_name(&mut |name| {
            self.mentions.entry(name).or_default().insert(set);
        });
        let lookup = match demands {
            None => Lookup::Nobody,
            Some(demands) => {
                self.items.choose(&demands, &fresh, population).map_or(Lookup::Everybody, Lookup::By)
            }
        };
        let active = ActiveSet { code, port: port.map(|(name, asked)| (name.into(), asked)), place, lookup };

        let mut found = std::mem::take(&mut self.candidates);
        self.look_up(&active.lookup, population, &mut found);
        match &active.lookup {
            Lookup::Nobody => self.counts.lookups_of_nobody += 1,
            Lookup::Everybody => self.counts.full_scans += 1,
            Lookup::By(Demand { values: Some(_), .. }) => self.counts.lookups_by_value += 1,
            Lookup::By(_) => self.counts.lookups_by_name += 1,
        }
        for &id in &found {
            let Some(item) = population.item(id) else { continue };
            if !self.evaluate(&active.code, population, item) {
                continue;
            }
            contribute(set, &active, item.contribution(), output);
            if let Some(item) = population.item_mut(id) {
                item.matches.insert(set);
            }
        }
        self.candidates = found;
        if self.sets.len() <= set.place() {
            self.sets.resize_with(set.place() + 1, || None);
        }
        self.sets[set.place()] = Some(active);
    }

    /// Stops maintaining a set that is no longer used. Its members are dropped elsewhere.
    pub(crate) fn close(&mut self, set: SetIndex, population: &mut Population) {
        let Some(active) = self.sets.get_mut(set.place()).and_then(Option::take) else { return };
        let mut found = std::mem::take(&mut self.candidates);
        self.look_up(&active.lookup, population, &mut found);
        for &id in &found {
            if let Some(item) = population.item_mut(id) {
                item.matches.remove(set);
            }
        }
        self.candidates = found;
        self.selectors.remove(set, &active.place);
        if let Lookup::By(demand) = &active.lookup {
            self.items.release(demand.name);
        }
        active.code.for_each_name(&mut |name| {
            if let Some(sets) = self.mentions.get_mut(&name) {
                sets.remove(set);
                if sets.is_empty() {
                    self.mentions.remove(&name);
                }
            }
        });
        active.code.release(&mut population.labels.names);
    }

    /// Must be called after sets were opened and closed.
    pub(crate) fn tidy(&mut self) {
        self.items.tidy();
    }

    /// Matches an item that was put.
    pub(crate) fn put(&mut self, put: Put, population: &mut Population, output: &mut Output<'_>) {
        match put {
            Put::Same(_) => {}
            Put::New(id) => {
                if let Some(item) = population.item(id) {
                    self.items.add_item(id, population.labels.get(item.labels));
                }
                self.rematch(id, None, population, output);
            }
            Put::Changed(id, before) => {
                let Some(item) = population.item(id) else { return };
                let same_labels = item.labels == before.labels;
                if !same_labels {
                    self.items.remove_item(id, population.labels.get(before.labels));
                    self.items.add_item(id, population.labels.get(item.labels));
                }
                if same_labels && item.parents == before.parents {
                    self.replace_contribution(item, &before, output);
                } else {
                    self.rematch(id, Some(before.contribution()), population, output);
                }
                population.forget(before.labels);
            }
        }
    }

    /// Handles the removal of an item.
    pub(crate) fn removed(
        &mut self,
        id: ItemId,
        item: &Item,
        population: &mut Population,
        output: &mut Output<'_>,
    ) {
        for &set in item.matches.as_slice() {
            self.withdraw(set, item.contribution(), output);
        }
        self.items.remove_item(id, population.labels.get(item.labels));
        population.forget(item.labels);
    }

    /// Handles the new labels of a profile. The old ones are released.
    pub(crate) fn parent_changed(
        &mut self,
        id: ParentId,
        before: LabelSetId,
        population: &mut Population,
        output: &mut Output<'_>,
    ) {
        let Some(parent) = population.parent(id) else { return };
        let (old, new) = (population.labels.get(before), population.labels.get(parent.labels));
        self.items.remove_parent(id, old);
        self.items.add_parent(id, new);
        let mut concerned: Vec<SetIndex> = Vec::new();
        let gone_or_other = old.filter(|(name, value)| new.get(*name) != Some(value)).map(|(name, _)| name);
        let come = new.filter(|(name, _)| old.get(*name).is_none()).map(|(name, _)| name);
        for name in gone_or_other.chain(come) {
            concerned.extend_from_slice(self.mentions.get(&name).map_or(&[], IdList::as_slice));
        }
        concerned.sort_unstable();
        concerned.dedup();
        if !concerned.is_empty() {
            let members = parent.items.as_slice().to_vec();
            if concerned.len() <= FEW_SELECTORS {
                for set in concerned {
                    self.rematch_set(set, &members, population, output);
                }
            } else {
                for item in members {
                    self.rematch(item, None, population, output);
                }
            }
        }
        population.forget(before);
    }

    /// Matches some items again with one set.
    fn rematch_set(
        &mut self,
        set: SetIndex,
        items: &[ItemId],
        population: &mut Population,
        output: &mut Output<'_>,
    ) {
        let Some(active) = self.sets.get_mut(set.place()).and_then(Option::take) else { return };
        for &id in items {
            let Some(item) = population.item(id) else { continue };
            let (was, is) = (item.matches.contains(set), self.evaluate(&active.code, population, item));
            if was == is {
                continue;
            }
            if is {
                contribute(set, &active, item.contribution(), output);
            } else {
                withdraw(set, &active, item.contribution(), output);
            }
            if let Some(item) = population.item_mut(id) {
                if is {
                    item.matches.insert(set)
                } else {
                    item.matches.remove(set)
                };
            }
        }
        self.sets[set.place()] = Some(active);
    }

    /// Matches an item again with every selector that could match it. `before` is its contribution until now, if that
    /// differs from the new one.
    fn rematch(
        &mut self,
        id: ItemId,
        before: Option<Contribution<'_>>,
        population: &mut Population,
        output: &mut Output<'_>,
    ) {
        let Some(item) = population.item(id) else { return };
        let view = population.view(item);
        let mut found = std::mem::take(&mut self.sets_found);
        self.selectors.candidates(view.all(), &mut found);
        let mut counts = self.counts;
        found.retain(|set| {
            let active = self.sets.get(set.place()).and_then(Option::as_ref);
            let matched = active.is_some_and(|active| active.code.matches(&view));
            if matched {
                counts.evaluations_true += 1;
            } else {
                counts.evaluations_false += 1;
            }
            matched
        });
        self.counts = counts;
        let now = item.contribution();
        let before = before.unwrap_or(now);
        // Additions before removals: an address that stays is never reported as removed.
        for &set in &found {
            if !item.matches.contains(set) || before != now {
                self.contribute(set, now, output);
            }
        }
        for &set in item.matches.as_slice() {
            if found.binary_search(&set).is_err() || before != now {
                self.withdraw(set, before, output);
            }
        }
        if item.matches.as_slice() != found.as_slice()
            && let Some(item) = population.item_mut(id)
        {
            item.matches = IdList::from(found.clone());
        }
        self.sets_found = found;
    }

    fn replace_contribution(&self, item: &Item, before: &Before, output: &mut Output<'_>) {
        for &set in item.matches.as_slice() {
            self.contribute(set, item.contribution(), output);
            self.withdraw(set, before.contribution(), output);
        }
    }

    fn look_up(&self, lookup: &Lookup, population: &Population, found: &mut Vec<ItemId>) {
        match lookup {
            Lookup::Nobody => found.clear(),
            Lookup::Everybody => {
                found.clear();
                found.extend(population.items().map(|(id, _)| id));
            }
            Lookup::By(demand) => self.items.candidates(demand, population, found),
        }
    }

    fn evaluate(&mut self, code: &Code, population: &Population, item: &Item) -> bool {
        let matches = code.matches(&population.view(item));
        if matches {
            self.counts.evaluations_true += 1;
        } else {
            self.counts.evaluations_false += 1;
        }
        matches
    }

    fn contribute(&self, set: SetIndex, contribution: Contribution<'_>, output: &mut Output<'_>) {
        if let Some(Some(active)) = self.sets.get(set.place()) {
            contribute(set, active, contribution, output);
        }
    }

    fn withdraw(&self, set: SetIndex, contribution: Contribution<'_>, output: &mut Output<'_>) {
        if let Some(Some(active)) = self.sets.get(set.place()) {
            withdraw(set, active, contribution, output);
        }
    }
}

fn for_each_member(active: &ActiveSet, contribution: Contribution<'_>, mut visit: impl FnMut(Member)) {
    match &active.port {
        None => contribution.for_each_net(|net| visit(Member::Net(net))),
        Some((name, asked)) => contribution.for_each_port(name, *asked, |address, protocol, port| {
            visit(Member::Port(address, protocol, port));
        }),
    }
}

fn contribute(set: SetIndex, active: &ActiveSet, contribution: Contribution<'_>, output: &mut Output<'_>) {
    for_each_member(active, contribution, |member| output.members.add(set, member, output.told));
}

fn withdraw(set: SetIndex, active: &ActiveSet, contribution: Contribution<'_>, output: &mut Output<'_>) {
    for_each_member(active, contribution, |member| output.members.remove(set, member, output.told));
}

#[cfg(test)]
mod tests;
