//! Selectors by their demands: each is under the one label (and values) that has the fewest other selectors. An item
//! looks only under the labels that it has.

use super::{ByValue, Demand, ValueHasher};
use crate::id_list::IdList;
use crate::slab::RowId;
use crate::symbols::Symbol;

/// The place of a selector.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// None: nothing can satisfy it.
    Nowhere,
    /// Tried with every item: it demands nothing that could be looked up.
    Everywhere,
    /// Under a label that must be there.
    Present(Symbol),
    /// Under a label that must have one of these values.
    Values(Symbol, Box<[u64]>),
}

#[derive(Debug)]
struct UnderName<I> {
    present: IdList<I>,
    by_value: ByValue<I>,
}

impl<I: RowId> Default for UnderName<I> {
    fn default() -> Self {
        Self { present: IdList::default(), by_value: ByValue::default() }
    }
}

/// Selectors by their demands. `I` is the type of their numbers.
#[derive(Debug)]
pub(crate) struct SelectorIndex<I> {
    hasher: ValueHasher,
    /// By the symbol of the label. No selector is under most labels.
    names: Vec<Option<Box<UnderName<I>>>>,
    everywhere: IdList<I>,
    len: usize,
}

impl<I: RowId> SelectorIndex<I> {
    pub(crate) fn new(hasher: ValueHasher) -> Self {
        Self { hasher, names: Vec::new(), everywhere: IdList::default(), len: 0 }
    }

    /// Returns the best place for a selector with these demands, given the selectors that are in the index now.
    pub(crate) fn place_for(&self, demands: Option<&[Demand]>) -> Place {
        let Some(demands) = demands else { return Place::Nowhere };
        let crowd = |demand: &Demand| {
            let under = self.names.get(demand.name.place()).and_then(Option::as_ref);
            let standing = under.map_or(0, |under| match &demand.values {
                None => under.present.len(),
                Some(values) => values.iter().map(|value| under.by_value.get(*value).len()).sum(),
            });
            (demand.values.is_none(), standing)
        };
        match demands.iter().min_by_key(|demand| crowd(demand)) {
            None => Place::Everywhere,
            Some(Demand { name, values: None }) => Place::Present(*name),
            Some(Demand { name, values: Some(values) }) => Place::Values(*name, values.clone()),
        }
    }

    pub(crate) fn insert(&mut self, id: I, place: &Place) {
        self.len += 1;
        match place {
            Place::Nowhere => {}
            Place::Everywhere => {
                self.everywhere.insert(id);
            }
            Place::Present(name) => {
                self.under(*name).present.insert(id);
            }
            Place::Values(name, values) => {
                let under = self.under(*name);
                for value in values {
                    under.by_value.insert(*value, id);
                }
            }
        }
    }

    fn under(&mut self, name: Symbol) -> &mut UnderName<I> {
        if self.names.len() <= name.place() {
            self.names.resize_with(name.place() + 1, || None);
        }
        self.names[name.place()].get_or_insert_default()
    }

    /// Removes a selector from its place.
    pub(crate) fn remove(&mut self, id: I, place: &Place) {
        self.len -= 1;
        let name = match place {
            Place::Nowhere => return,
            Place::Everywhere => {
                self.everywhere.remove(id);
                return;
            }
            Place::Present(name) | Place::Values(name, _) => *name,
        };
        let Some(slot) = self.names.get_mut(name.place()) else { return };
        let Some(under) = slot else { return };
        match place {
            Place::Values(_, values) => {
                for value in values {
                    under.by_value.remove(*value, id);
                }
            }
            _ => {
                under.present.remove(id);
            }
        }
        if under.present.is_empty() && under.by_value.is_empty() {
            *slot = None;
        }
    }

    /// Collects the selectors that could match these labels, sorted and without duplicates.
    pub(crate) fn candidates<'a>(&self, labels: impl Iterator<Item = (Symbol, &'a [u8])>, out: &mut Vec<I>) {
        out.clear();
        out.extend_from_slice(self.everywhere.as_slice());
        for (name, value) in labels {
            let Some(Some(under)) = self.names.get(name.place()) else { continue };
            out.extend_from_slice(under.present.as_slice());
            if !under.by_value.is_empty() {
                out.extend_from_slice(under.by_value.get(self.hasher.hash(value)));
            }
        }
        if !out.is_sorted() || out.len() > 1 {
            out.sort_unstable();
            out.dedup();
        }
    }

    /// The number of selectors that can be looked up, and of those that must be tried with every item.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.len - self.everywhere.len(), self.everywhere.len())
    }
}

#[cfg(test)]
mod tests {
    use super::{Place, SelectorIndex};
    use crate::labels::LabelSets;
    use crate::matching::{Code, ValueHasher, demands};
    use selector::Selector;

    const SELECTORS: [&str; 9] = [
        "a == 'x'",
        "a == 'y'",
        "a in {'x', 'z'} && has(b)",
        "has(a)",
        "has(b) && !has(a)",
        "all()",
        "a != 'x'",
        "a == 'x' && a == 'y'",
        "a == 'x' || b == 'x'",
    ];

    #[test]
    fn labels_find_the_selectors_that_could_match_and_few_others() {
        let (hasher, mut sets) = (ValueHasher::default(), LabelSets::default());
        let mut index = SelectorIndex::new(hasher.clone());
        let mut places: Vec<Place> = Vec::new();
        for (id, text) in (0..).zip(SELECTORS) {
            let selector = Selector::parse(text).unwrap();
            Code::compile(&selector, &mut sets.names);
            let place = index.place_for(demands(&selector, &sets.names, &hasher).as_deref());
            index.insert(id, &place);
            places.push(place);
        }
        assert_eq!(index.counts(), (6, 3));
        let mut candidates = |index: &SelectorIndex<u32>, labels: &[(&str, &str)]| {
            let labels: model::feed::Labels = labels.iter().copied().collect();
            let id = sets.acquire(&labels);
            let mut found = Vec::new();
            index.candidates(sets.get(id), &mut found);
            found.into_iter().map(|id| SELECTORS[id as usize]).collect::<Vec<_>>()
        };
        let everywhere = ["all()", "a != 'x'", "a == 'x' || b == 'x'"];
        assert_eq!(candidates(&index, &[]), everywhere);
        assert_eq!(candidates(&index, &[("a", "y"), ("c", "x")])[..2], ["a == 'y'", "has(a)"]);
        assert_eq!(candidates(&index, &[("b", "x")])[..1], ["has(b) && !has(a)"]);
        assert_eq!(candidates(&index, &[("a", "z")])[..2], ["a in {'x', 'z'} && has(b)", "has(a)"]);
        for (id, place) in (0..).zip(&places) {
            index.remove(id, place);
        }
        assert_eq!((index.counts(), candidates(&index, &[("a", "x"), ("b", "x")]).len()), ((0, 0), 0));
    }

    #[test]
    fn selectors_spread_over_the_labels_that_they_demand() {
        let (hasher, mut sets) = (ValueHasher::default(), LabelSets::default());
        let mut index = SelectorIndex::<u32>::new(hasher.clone());
        for id in 0..10 {
            let selector = Selector::parse(&format!("app == 'v{id}' && ns == 'n'")).unwrap();
            Code::compile(&selector, &mut sets.names);
            let place = index.place_for(demands(&selector, &sets.names, &hasher).as_deref());
            index.insert(id, &place);
        }
        let id = sets.acquire([("ns", "n")]);
        let mut found = Vec::new();
        index.candidates(sets.get(id), &mut found);
        assert!(
            found.len() <= 1,
            "ten selectors do not all stand under the label that they share: {found:?}"
        );
    }
}
