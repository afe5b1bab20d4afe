//! Decides which chains are wanted: those that are defined and reachable.
//!
//! Chains are defined for every policy, but only those that are reached from one of the kernel's own chains or from a
//! map are programmed. A chain that is referenced but not defined is wanted too, with unknown content: drivers create
//! one that drops. A chain can also be kept, which counts as a reference. References are counted along wanted chains
//! only, so that a group of chains that refer only to each other is not wanted.

use std::collections::{BTreeMap, BTreeSet};

/// The content of a chain's definition. Its targets are computed when the chain becomes wanted or ceases to be; they
/// are not stored, because many chains are defined in layers where nothing ever refers to them.
pub(crate) trait Content {
    /// The type of chain names in this layer.
    type Name: Clone + Ord;

    /// The chains that it leads to, with repetitions.
    fn targets(&self) -> Vec<Self::Name>;
}

/// Defined chains, references between them, and which of them changed.
#[derive(Clone, Debug)]
pub(crate) struct Chains<C: Content> {
    definitions: BTreeMap<C::Name, C>,
    references: BTreeMap<C::Name, usize>,
    dirty: BTreeSet<C::Name>,
    /// Chains that are referenced but not defined.
    undefined: BTreeSet<C::Name>,
    /// Chains that are wanted even without references.
    kept: BTreeSet<C::Name>,
}

impl<C: Content> Default for Chains<C> {
    fn default() -> Self {
        Self {
            definitions: BTreeMap::new(),
            references: BTreeMap::new(),
            dirty: BTreeSet::new(),
            undefined: BTreeSet::new(),
            kept: BTreeSet::new(),
        }
    }
}

/// The desired state of a chain in the kernel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wanted<'a, C> {
    /// The chain with this content.
    Defined(&'a C),
    /// The chain is referenced but not defined.
    Undefined,
    /// No chain.
    No,
}

impl<C: Content> Chains<C> {
    /// Defines a chain, or replaces its definition.
    pub(crate) fn define(&mut self, name: C::Name, content: C) {
        let wanted = self.is_referenced(&name);
        // The new references come first, so that chains that stay referenced do not count as gone.
        if wanted {
            self.undefined.remove(&name);
            self.dirty.insert(name.clone());
            content.targets().iter().for_each(|target| self.reference(target));
        }
        let old = self.definitions.insert(name, content);
        if let Some(old) = old.filter(|_| wanted) {
            old.targets().iter().for_each(|target| self.dereference(target));
        }
    }

    /// Sets whether a chain is wanted for as long as it is defined, even without references.
    pub(crate) fn keep(&mut self, name: &C::Name, keep: bool) {
        match keep {
            true if self.kept.insert(name.clone()) => self.reference(name),
            false if self.kept.remove(name) => self.dereference(name),
            _ => {}
        }
    }

    /// Removes a definition; the chain is no longer kept, either.
    pub(crate) fn undefine(&mut self, name: &C::Name) {
        if let Some(name) = self.kept.take(name) {
            self.dereference(&name);
        }
        let Some((name, old)) = self.definitions.remove_entry(name) else { return };
        if self.is_referenced(&name) {
            self.undefined.insert(name.clone());
            self.dirty.insert(name);
            old.targets().iter().for_each(|target| self.dereference(target));
        }
    }

    /// Adds a reference to this chain.
    pub(crate) fn reference(&mut self, name: &C::Name) {
        if let Some(count) = self.references.get_mut(name) {
            *count += 1;
            return;
        }
        let name = self.known(name);
        self.references.insert(name.clone(), 1);
        self.dirty.insert(name.clone());
        if !self.definitions.contains_key(&name) {
            self.undefined.insert(name.clone());
        }
        for target in self.targets_of(&name) {
            self.reference(&target);
        }
    }

    /// The name as stored with the definition, so that the text is in memory only once.
    fn known(&self, name: &C::Name) -> C::Name {
        self.definitions.get_key_value(name).map_or(name, |(known, _)| known).clone()
    }

    /// Removes a reference to this chain.
    pub(crate) fn dereference(&mut self, name: &C::Name) {
        let Some(count) = self.references.get_mut(name) else { return };
        *count -= 1;
        if *count == 0 {
            self.references.remove(name);
            self.undefined.remove(name);
            self.dirty.insert(name.clone());
            for target in self.targets_of(name) {
                self.dereference(&target);
            }
        }
    }

    fn targets_of(&self, name: &C::Name) -> Vec<C::Name> {
        self.definitions.get(name).map(Content::targets).unwrap_or_default()
    }

    fn is_referenced(&self, name: &C::Name) -> bool {
        self.references.contains_key(name)
    }

    /// The desired state under this name.
    pub(crate) fn wanted(&self, name: &C::Name) -> Wanted<'_, C> {
        match (self.is_referenced(name), self.definitions.get(name)) {
            (true, Some(content)) => Wanted::Defined(content),
            (true, None) => Wanted::Undefined,
            (false, _) => Wanted::No,
        }
    }

    /// The content of a definition, wanted or not.
    pub(crate) fn definition(&self, name: &C::Name) -> Option<&C> {
        self.definitions.get(name)
    }

    /// All definitions that are wanted.
    pub(crate) fn all_wanted(&self) -> impl Iterator<Item = (&C::Name, &C)> {
        self.references.keys().filter_map(|name| self.definitions.get_key_value(name))
    }

    /// The names of chains that are wanted but not defined, in order.
    pub(crate) fn undefined(&self) -> impl Iterator<Item = &C::Name> {
        self.undefined.iter()
    }

    /// How many chains are wanted.
    pub(crate) fn count(&self) -> usize {
        self.references.len()
    }

    /// The chains that may have changed since they were programmed.
    pub(crate) fn dirty(&self) -> &BTreeSet<C::Name> {
        &self.dirty
    }

    /// Marks a chain as changed.
    pub(crate) fn mark(&mut self, name: C::Name) {
        self.dirty.insert(name);
    }

    /// Marks a chain as programmed.
    pub(crate) fn unmark(&mut self, name: &C::Name) {
        self.dirty.remove(name);
    }

    /// Marks all chains as programmed.
    pub(crate) fn clear_dirty(&mut self) {
        self.dirty.clear();
    }

    /// Sorts `names` so that each chain comes after its targets, as far as possible.
    pub(crate) fn targets_first<'a>(&'a self, names: impl IntoIterator<Item = &'a C::Name>) -> Vec<C::Name> {
        let names: BTreeSet<&C::Name> = names.into_iter().collect();
        let (mut visited, mut order) = (BTreeSet::new(), Vec::new());
        for name in &names {
            self.visit(name, &names, &mut visited, &mut order);
        }
        order
    }

    /// The references that close a circle among the wanted chains, as chain and target.
    pub(crate) fn circles(&self) -> Vec<(C::Name, C::Name)> {
        let (mut done, mut found) = (BTreeSet::new(), Vec::new());
        for name in self.references.keys() {
            self.follow(name, &mut Vec::new(), &mut done, &mut found);
        }
        found
    }

    fn follow(
        &self,
        name: &C::Name,
        path: &mut Vec<C::Name>,
        done: &mut BTreeSet<C::Name>,
        found: &mut Vec<(C::Name, C::Name)>,
    ) {
        if done.contains(name) {
            return;
        }
        path.push(name.clone());
        for target in self.targets_of(name) {
            if path.contains(&target) {
                found.push((name.clone(), target));
            } else {
                self.follow(&target, path, done, found);
            }
        }
        path.pop();
        done.insert(name.clone());
    }

    fn visit(
        &self,
        name: &C::Name,
        names: &BTreeSet<&C::Name>,
        visited: &mut BTreeSet<C::Name>,
        order: &mut Vec<C::Name>,
    ) {
        if !visited.insert(name.clone()) {
            return;
        }
        for target in self.targets_of(name) {
            self.visit(&target, names, visited, order);
        }
        if let Some(name) = names.get(name) {
            order.push((*name).clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Chains, Content, Wanted};
    use rules::tree::ChainName;

    #[derive(Debug, PartialEq)]
    struct Leads(u8, Vec<ChainName>);

    impl Content for Leads {
        type Name = ChainName;

        fn targets(&self) -> Vec<ChainName> {
            self.1.clone()
        }
    }

    fn text(name: &str) -> ChainName {
        name.into()
    }

    fn wanted(chains: &Chains<Leads>) -> String {
        chains.references.keys().map(|name| &**name).collect::<Vec<_>>().join(" ")
    }

    fn undefined(chains: &Chains<Leads>) -> String {
        chains.undefined().map(|name| &**name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn only_reachable_chains_are_wanted() {
        let mut chains = Chains::default();
        chains.define(text("policy"), Leads(1, vec![]));
        chains.define(text("endpoint"), Leads(2, vec![text("policy"), text("profile")]));
        assert_eq!((wanted(&chains).as_str(), chains.dirty().len()), ("", 0));
        chains.reference(&text("endpoint"));
        assert_eq!(wanted(&chains), "endpoint policy profile");
        assert_eq!(
            (chains.wanted(&text("profile")), undefined(&chains).as_str()),
            (Wanted::Undefined, "profile")
        );
        assert_eq!(chains.wanted(&text("policy")), Wanted::Defined(&Leads(1, vec![])));
        chains.clear_dirty();
        chains.define(text("endpoint"), Leads(3, vec![text("policy")]));
        assert_eq!(chains.dirty().iter().map(|name| &**name).collect::<Vec<_>>(), ["endpoint", "profile"]);
        assert_eq!((chains.wanted(&text("profile")), undefined(&chains).as_str()), (Wanted::No, ""));
        chains.undefine(&text("policy"));
        assert_eq!(undefined(&chains), "policy");
        chains.define(text("policy"), Leads(1, vec![]));
        assert_eq!(undefined(&chains), "");
        chains.dereference(&text("endpoint"));
        assert_eq!(wanted(&chains), "");
        assert_eq!(chains.definition(&text("policy")), Some(&Leads(1, vec![])));
    }

    #[test]
    fn a_kept_chain_is_wanted_until_its_definition_is_removed() {
        let mut chains = Chains::default();
        chains.define(text("policy"), Leads(1, vec![text("other")]));
        for _ in 0..2 {
            chains.keep(&text("policy"), true);
            assert_eq!(
                (wanted(&chains).as_str(), chains.wanted(&text("policy"))),
                ("other policy", Wanted::Defined(&Leads(1, vec![text("other")])))
            );
        }
        chains.keep(&text("policy"), false);
        assert_eq!(wanted(&chains), "");
        chains.keep(&text("policy"), true);
        chains.reference(&text("policy"));
        chains.keep(&text("policy"), false);
        chains.keep(&text("policy"), false);
        assert_eq!(wanted(&chains), "other policy", "something still leads there");
        chains.keep(&text("policy"), true);
        chains.dereference(&text("policy"));
        chains.clear_dirty();
        chains.undefine(&text("policy"));
        assert_eq!((wanted(&chains).as_str(), undefined(&chains).as_str()), ("", ""));
        assert!(chains.dirty().contains("policy"), "it is removed");
        chains.define(text("policy"), Leads(1, vec![]));
        assert_eq!(wanted(&chains), "", "a new one is not kept");
    }

    #[test]
    fn an_unreachable_circle_is_not_wanted() {
        let mut chains = Chains::default();
        chains.define(text("a"), Leads(1, vec![text("b")]));
        chains.define(text("b"), Leads(2, vec![text("a")]));
        assert_eq!(wanted(&chains), "");
        chains.undefine(&text("a"));
        chains.undefine(&text("nobody"));
        assert_eq!(wanted(&chains), "");
    }

    #[test]
    fn circles_are_found_at_the_step_that_closes_them() {
        let mut chains = Chains::default();
        chains.define(text("a"), Leads(1, vec![text("b"), text("d")]));
        chains.define(text("b"), Leads(2, vec![text("c")]));
        chains.define(text("c"), Leads(3, vec![text("b"), text("d")]));
        chains.define(text("d"), Leads(4, vec![]));
        assert_eq!(chains.circles(), []);
        chains.reference(&text("a"));
        assert_eq!(chains.circles(), [(text("c"), text("b"))]);
        chains.define(text("d"), Leads(4, vec![text("d")]));
        assert_eq!(
            chains.circles(),
            [(text("d"), text("d")), (text("c"), text("b"))].into_iter().rev().collect::<Vec<_>>()
        );
    }

    #[test]
    fn targets_come_first() {
        let mut chains = Chains::default();
        chains.define(text("a"), Leads(1, vec![text("b"), text("c")]));
        chains.define(text("b"), Leads(2, vec![text("c")]));
        chains.define(text("c"), Leads(3, vec![]));
        let names = [text("a"), text("b"), text("c")];
        assert_eq!(chains.targets_first(&names), [text("c"), text("b"), text("a")]);
    }
}
