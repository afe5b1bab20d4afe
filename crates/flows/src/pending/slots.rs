//! Values by key, each with a number by which other values refer to it.
//!
//! A number may be requested before its value exists. A number is reused only after its key was removed, and the
//! calculation's messages remove a key only after everything that refers to it.

use hashbrown::HashMap;
use std::hash::Hash;

/// The number of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Slot(usize);

#[derive(Debug)]
pub(super) struct Slots<K, V> {
    places: HashMap<K, usize>,
    values: Vec<V>,
    free: Vec<usize>,
}

impl<K, V> Default for Slots<K, V> {
    fn default() -> Self {
        Self { places: HashMap::new(), values: Vec::new(), free: Vec::new() }
    }
}

impl<K: Clone + Eq + Hash, V: Default> Slots<K, V> {
    /// Returns the number of a key, allocating one if necessary.
    pub(super) fn slot(&mut self, key: &K) -> Slot {
        if let Some(place) = self.places.get(key) {
            return Slot(*place);
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.values.push(V::default());
            self.values.len() - 1
        });
        self.places.insert(key.clone(), place);
        Slot(place)
    }

    /// Returns the number of a key that exists.
    pub(super) fn find(&self, key: &K) -> Option<Slot> {
        self.places.get(key).copied().map(Slot)
    }

    /// Returns the value of a key for modification.
    pub(super) fn value(&mut self, key: &K) -> &mut V {
        let Slot(place) = self.slot(key);
        &mut self.values[place]
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&V> {
        self.values.get(slot.0)
    }

    pub(super) fn remove(&mut self, key: &K) {
        if let Some(place) = self.places.remove(key) {
            self.values[place] = V::default();
            self.free.push(place);
        }
    }
}
