//! The numbers of services: whose backends are which in the map.
//!
//! Two services with one number would overwrite each other's backends, so a number has one owner, always. A number that was
//! given back is not used again until all others were: a packet that found a frontend a moment ago must not find another
//! service's backend.

use std::collections::{BTreeMap, BTreeSet};

/// Numbers and their owners.
#[derive(Clone, Debug)]
pub(crate) struct Ids<O> {
    owned: BTreeMap<O, u32>,
    used: BTreeSet<u32>,
    next: u32,
}

impl<O> Default for Ids<O> {
    fn default() -> Self {
        Self { owned: BTreeMap::new(), used: BTreeSet::new(), next: 0 }
    }
}

impl<O: Ord + Clone> Ids<O> {
    /// Takes over what maps have. A number that two owners claim is left to neither, and an owner with two numbers keeps
    /// the lowest; the numbers that were left are named.
    pub(crate) fn adopt(&mut self, claims: impl IntoIterator<Item = (u32, O)>) -> BTreeSet<u32> {
        let mut owners: BTreeMap<u32, BTreeSet<O>> = BTreeMap::new();
        for (id, owner) in claims {
            owners.entry(id).or_default().insert(owner);
        }
        let mut left = BTreeSet::new();
        for (id, owners) in owners {
            self.avoid(id);
            let mut owners = owners.into_iter();
            match (owners.next(), owners.next()) {
                (Some(owner), None) if !self.owned.contains_key(&owner) && self.used.insert(id) => {
                    self.owned.insert(owner, id);
                }
                _ => {
                    left.insert(id);
                }
            }
        }
        left
    }

    /// Numbers up to this one are in use by somebody, known or not.
    pub(crate) fn avoid(&mut self, id: u32) {
        self.next = self.next.max(id.wrapping_add(1));
    }

    /// The owner's number; a new one if it has none.
    pub(crate) fn of(&mut self, owner: &O) -> u32 {
        if let Some(id) = self.owned.get(owner) {
            return *id;
        }
        // There are 2^32 numbers and at most as many owners as maps have room for, so one is free.
        while !self.used.insert(self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.owned.insert(owner.clone(), id);
        id
    }

    /// The owner's number, if it has one.
    pub(crate) fn get(&self, owner: &O) -> Option<u32> {
        self.owned.get(owner).copied()
    }

    /// The owner is gone.
    pub(crate) fn release(&mut self, owner: &O) {
        if let Some(id) = self.owned.remove(owner) {
            self.used.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_one_owner_and_is_kept() {
        let mut ids = Ids::default();
        assert_eq!((ids.of(&"a"), ids.of(&"b"), ids.of(&"a")), (0, 1, 0));
        assert_eq!((ids.get(&"b"), ids.get(&"c")), (Some(1), None));
    }

    #[test]
    fn a_number_that_was_given_back_is_not_used_at_once() {
        let mut ids = Ids::default();
        ids.of(&"a");
        ids.release(&"a");
        assert_eq!(ids.of(&"b"), 1);
        ids.next = u32::MAX;
        assert_eq!((ids.of(&"c"), ids.of(&"d"), ids.of(&"e")), (u32::MAX, 0, 2), "1 is still used");
    }

    #[test]
    fn what_maps_have_is_taken_over_unless_two_claim_it() {
        let mut ids = Ids::default();
        let left = ids.adopt([(3, "a"), (3, "a"), (7, "b"), (7, "c"), (9, "d"), (11, "d")]);
        assert_eq!(left, BTreeSet::from([7, 11]));
        assert_eq!(
            (ids.get(&"a"), ids.get(&"b"), ids.get(&"c"), ids.get(&"d")),
            (Some(3), None, None, Some(9))
        );
        assert_eq!((ids.of(&"b"), ids.of(&"c")), (12, 13), "neither 7 nor 11 is given to anyone");
    }
}
