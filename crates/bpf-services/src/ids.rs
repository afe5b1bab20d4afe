//! The ids of services, which link frontends to backends in the maps.
//!
//! Two services with one id would overwrite each other's backends, so an id never has more than one owner. A released
//! id is not reused until all others have been: a packet that found a frontend a moment ago must not find another
//! service's backend.

use std::collections::{BTreeMap, BTreeSet};

/// Ids and their owners.
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
    /// Adopts the ids in the maps. An id claimed by two owners is given to neither, and an owner with two ids keeps the
    /// lowest; returns the rejected ids.
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

    /// Reserves all ids up to this one, which may be in use.
    pub(crate) fn avoid(&mut self, id: u32) {
        self.next = self.next.max(id.wrapping_add(1));
    }

    /// The owner's id; a new one if it has none.
    pub(crate) fn of(&mut self, owner: &O) -> u32 {
        if let Some(id) = self.owned.get(owner) {
            return *id;
        }
        // There are 2^32 ids and at most as many owners as the maps' capacity, so one is free.
        while !self.used.insert(self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.owned.insert(owner.clone(), id);
        id
    }

    /// The owner's id, if it has one.
    pub(crate) fn get(&self, owner: &O) -> Option<u32> {
        self.owned.get(owner).copied()
    }

    /// Releases the id of an owner.
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
    fn an_id_has_one_owner_and_is_kept() {
        let mut ids = Ids::default();
        assert_eq!((ids.of(&"a"), ids.of(&"b"), ids.of(&"a")), (0, 1, 0));
        assert_eq!((ids.get(&"b"), ids.get(&"c")), (Some(1), None));
    }

    #[test]
    fn a_released_id_is_not_reused_at_once() {
        let mut ids = Ids::default();
        ids.of(&"a");
        ids.release(&"a");
        assert_eq!(ids.of(&"b"), 1);
        ids.next = u32::MAX;
        assert_eq!((ids.of(&"c"), ids.of(&"d"), ids.of(&"e")), (u32::MAX, 0, 2), "1 is still used");
    }

    #[test]
    fn ids_in_maps_are_adopted_unless_claimed_twice() {
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
