//! Desired and actual state as two maps, and the operations that would make the second equal to the first.
//!
//! A driver reports to a [`Delta`] what should exist and what it read or wrote; the tracker returns the pending
//! operations, in key order. Every call is logarithmic in the size; listing the pending operations costs as much as
//! there are of them, however many entries already agree. An entry that is both desired and present is stored once.
//!
//! Does no IO, attaches no meaning to entries, and never marks an operation as done by itself: the driver reports what
//! it wrote with [`Delta::set_actual`], [`Delta::remove_actual`] or [`Delta::accept`].

mod changes;
mod retry;

pub use changes::Changes;
pub use retry::Retry;

use std::collections::{BTreeMap, BTreeSet};

/// What is known about one key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry<V> {
    /// Desired and present, with the same value.
    Both(V),
    /// Desired only.
    Desired(V),
    /// Present only.
    Actual(V),
    /// Desired with the first value, present with the second.
    Different(V, V),
}

impl<V: Eq> Entry<V> {
    fn of(desired: Option<V>, actual: Option<V>) -> Option<Self> {
        match (desired, actual) {
            (Some(desired), Some(actual)) if desired == actual => Some(Self::Both(desired)),
            (Some(desired), Some(actual)) => Some(Self::Different(desired, actual)),
            (Some(desired), None) => Some(Self::Desired(desired)),
            (None, Some(actual)) => Some(Self::Actual(actual)),
            (None, None) => None,
        }
    }

    fn desired(&self) -> Option<&V> {
        match self {
            Self::Both(value) | Self::Desired(value) | Self::Different(value, _) => Some(value),
            Self::Actual(_) => None,
        }
    }

    fn actual(&self) -> Option<&V> {
        match self {
            Self::Both(value) | Self::Actual(value) | Self::Different(_, value) => Some(value),
            Self::Desired(_) => None,
        }
    }

    fn agrees(&self) -> bool {
        matches!(self, Self::Both(_))
    }
}

/// An operation that would bring one entry to its desired state.
#[derive(Debug, PartialEq, Eq)]
pub enum Operation<'a, K, V> {
    /// Nothing exists under this key.
    Create(&'a K, &'a V),
    /// Another value exists: the desired and the actual value.
    Replace(&'a K, &'a V, &'a V),
    /// A value exists that should not.
    Remove(&'a K, &'a V),
}

/// A desired and an actual map, and the difference between them.
#[derive(Clone, Debug)]
pub struct Delta<K, V> {
    entries: BTreeMap<K, Entry<V>>,
    pending: BTreeSet<K>,
    desired_count: usize,
    actual_count: usize,
}

/// A desired and an actual set, and the difference between them.
pub type SetDelta<K> = Delta<K, ()>;

impl<K, V> Default for Delta<K, V> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), pending: BTreeSet::new(), desired_count: 0, actual_count: 0 }
    }
}

impl<K: Ord + Clone, V: Eq + Clone> Delta<K, V> {
    /// Creates two empty maps.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that `key` should have this value.
    pub fn set_desired(&mut self, key: K, value: V) {
        let actual = self.entries.remove(&key).and_then(|entry| self.take(entry).1);
        self.put(key, Some(value), actual);
    }

    /// Records that `key` should not exist; returns true if a value was desired.
    pub fn remove_desired(&mut self, key: &K) -> bool {
        let Some(entry) = self.entries.remove(key) else { return false };
        let (desired, actual) = self.take(entry);
        self.put(key.clone(), None, actual);
        desired.is_some()
    }

    /// Records that `key` has this value.
    pub fn set_actual(&mut self, key: K, value: V) {
        let desired = self.entries.remove(&key).and_then(|entry| self.take(entry).0);
        self.put(key, desired, Some(value));
    }

    /// Records that `key` does not exist.
    pub fn remove_actual(&mut self, key: &K) {
        if let Some(entry) = self.entries.remove(key) {
            let (desired, _) = self.take(entry);
            self.put(key.clone(), desired, None);
        }
    }

    /// Records that the pending operation on `key` was carried out.
    pub fn accept(&mut self, key: &K) {
        match self.desired(key).cloned() {
            Some(value) => self.set_actual(key.clone(), value),
            None => self.remove_actual(key),
        }
    }

    /// Records that every pending operation was carried out.
    pub fn accept_all(&mut self) {
        for key in std::mem::take(&mut self.pending) {
            self.accept(&key);
        }
    }

    /// Replaces the whole actual state with what was read.
    pub fn replace_actual(&mut self, read: impl IntoIterator<Item = (K, V)>) {
        let mut read: BTreeMap<K, V> = read.into_iter().collect();
        for (key, entry) in std::mem::take(&mut self.entries) {
            let (desired, _) = self.take(entry);
            let actual = read.remove(&key);
            self.put(key, desired, actual);
        }
        for (key, value) in read {
            self.put(key, None, Some(value));
        }
    }

    /// Replaces the whole desired state.
    pub fn replace_desired(&mut self, wanted: impl IntoIterator<Item = (K, V)>) {
        let mut wanted: BTreeMap<K, V> = wanted.into_iter().collect();
        for (key, entry) in std::mem::take(&mut self.entries) {
            let (_, actual) = self.take(entry);
            let desired = wanted.remove(&key);
            self.put(key, desired, actual);
        }
        for (key, value) in wanted {
            self.put(key, Some(value), None);
        }
    }

    /// The desired value of `key`.
    #[must_use]
    pub fn desired(&self, key: &K) -> Option<&V> {
        self.entries.get(key).and_then(Entry::desired)
    }

    /// The actual value of `key`, as far as it was reported.
    #[must_use]
    pub fn actual(&self, key: &K) -> Option<&V> {
        self.entries.get(key).and_then(Entry::actual)
    }

    /// All desired entries, in key order.
    pub fn all_desired(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().filter_map(|(key, entry)| Some((key, entry.desired()?)))
    }

    /// All actual entries, in key order.
    pub fn all_actual(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().filter_map(|(key, entry)| Some((key, entry.actual()?)))
    }

    /// The pending operations, in key order.
    pub fn pending(&self) -> impl Iterator<Item = Operation<'_, K, V>> {
        self.pending.iter().filter_map(|key| match self.entries.get_key_value(key)? {
            (_, Entry::Both(_)) => None,
            (key, Entry::Desired(value)) => Some(Operation::Create(key, value)),
            (key, Entry::Actual(value)) => Some(Operation::Remove(key, value)),
            (key, Entry::Different(desired, actual)) => Some(Operation::Replace(key, desired, actual)),
        })
    }

    /// How many operations are pending.
    #[must_use]
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// Whether both maps are equal.
    #[must_use]
    pub fn is_in_sync(&self) -> bool {
        self.pending.is_empty()
    }

    /// The number of desired entries.
    #[must_use]
    pub fn desired_count(&self) -> usize {
        self.desired_count
    }

    /// The number of actual entries.
    #[must_use]
    pub fn actual_count(&self) -> usize {
        self.actual_count
    }

    /// Splits an entry removed from the map, and updates the counts.
    fn take(&mut self, entry: Entry<V>) -> (Option<V>, Option<V>) {
        let parts = match entry {
            Entry::Both(value) => (Some(value.clone()), Some(value)),
            Entry::Desired(value) => (Some(value), None),
            Entry::Actual(value) => (None, Some(value)),
            Entry::Different(desired, actual) => (Some(desired), Some(actual)),
        };
        self.desired_count -= usize::from(parts.0.is_some());
        self.actual_count -= usize::from(parts.1.is_some());
        parts
    }

    fn put(&mut self, key: K, desired: Option<V>, actual: Option<V>) {
        self.desired_count += usize::from(desired.is_some());
        self.actual_count += usize::from(actual.is_some());
        match Entry::of(desired, actual) {
            None => {
                self.pending.remove(&key);
            }
            Some(entry) => {
                if entry.agrees() {
                    self.pending.remove(&key);
                } else if !self.pending.contains(&key) {
                    self.pending.insert(key.clone());
                }
                self.entries.insert(key, entry);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Delta, Operation, SetDelta};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn each_kind_of_operation() {
        let mut delta = Delta::new();
        delta.set_desired("same", 1);
        delta.set_desired("new", 2);
        delta.set_desired("other", 3);
        delta.replace_actual([("same", 1), ("other", 4), ("old", 5)]);
        let pending: Vec<_> = delta.pending().collect();
        assert_eq!(
            pending,
            [
                Operation::Create(&"new", &2),
                Operation::Remove(&"old", &5),
                Operation::Replace(&"other", &3, &4),
            ]
        );
        delta.accept(&"new");
        delta.accept(&"old");
        assert_eq!((delta.pending_count(), delta.is_in_sync()), (1, false));
        delta.accept_all();
        assert!(delta.is_in_sync());
        assert_eq!((delta.desired_count(), delta.actual_count()), (3, 3));
    }

    #[test]
    fn a_reverted_change_leaves_nothing_pending() {
        let mut set = SetDelta::new();
        set.set_desired(7, ());
        set.accept_all();
        assert!(set.remove_desired(&7));
        assert_eq!(set.pending_count(), 1);
        set.set_desired(7, ());
        assert!(set.is_in_sync());
        assert!(!set.remove_desired(&8));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Desire(u8, u8),
        Undesire(u8),
        Actual(u8, u8),
        Gone(u8),
        Accept(u8),
        ReadAll(Vec<(u8, u8)>),
        WantAll(Vec<(u8, u8)>),
    }

    fn step() -> impl Strategy<Value = Step> {
        let (key, value) = (0..6_u8, 0..3_u8);
        let pairs = prop::collection::vec((key.clone(), value.clone()), 0..6);
        prop_oneof![
            (key.clone(), value.clone()).prop_map(|(k, v)| Step::Desire(k, v)),
            key.clone().prop_map(Step::Undesire),
            (key.clone(), value).prop_map(|(k, v)| Step::Actual(k, v)),
            key.clone().prop_map(Step::Gone),
            key.prop_map(Step::Accept),
            pairs.clone().prop_map(Step::ReadAll),
            pairs.prop_map(Step::WantAll),
        ]
    }

    proptest! {
        /// Whatever is reported in whatever order, the tracker behaves like two plain maps and their difference.
        #[test]
        fn like_two_plain_maps(steps in prop::collection::vec(step(), 0..40)) {
            let mut delta = Delta::new();
            let (mut desired, mut actual) = (BTreeMap::new(), BTreeMap::new());
            for step in steps {
                match step {
                    Step::Desire(k, v) => { delta.set_desired(k, v); desired.insert(k, v); }
                    Step::Undesire(k) => { delta.remove_desired(&k); desired.remove(&k); }
                    Step::Actual(k, v) => { delta.set_actual(k, v); actual.insert(k, v); }
                    Step::Gone(k) => { delta.remove_actual(&k); actual.remove(&k); }
                    Step::Accept(k) => {
                        delta.accept(&k);
                        match desired.get(&k) { Some(v) => actual.insert(k, *v), None => actual.remove(&k) };
                    }
                    Step::ReadAll(all) => { delta.replace_actual(all.clone()); actual = all.into_iter().collect(); }
                    Step::WantAll(all) => { delta.replace_desired(all.clone()); desired = all.into_iter().collect(); }
                }
                let mut expected = Vec::new();
                for k in 0..6_u8 {
                    match (desired.get_key_value(&k), actual.get_key_value(&k)) {
                        (Some((k, d)), None) => expected.push(Operation::Create(k, d)),
                        (None, Some((k, a))) => expected.push(Operation::Remove(k, a)),
                        (Some((k, d)), Some((_, a))) if d != a => expected.push(Operation::Replace(k, d, a)),
                        _ => {}
                    }
                }
                prop_assert_eq!(delta.pending().collect::<Vec<_>>(), expected);
                prop_assert_eq!(delta.all_desired().collect::<Vec<_>>(), desired.iter().collect::<Vec<_>>());
                prop_assert_eq!(delta.all_actual().collect::<Vec<_>>(), actual.iter().collect::<Vec<_>>());
                prop_assert_eq!(delta.desired_count(), desired.len());
                prop_assert_eq!(delta.actual_count(), actual.len());
            }
        }
    }
}
