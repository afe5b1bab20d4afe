//! The objects of an informer, and how each answer of the API changes them. Does no requests and never waits.

use super::{ObjectKey, Taken};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A change of one object. At least one of `old` and `new` is set.
#[derive(Debug, PartialEq)]
pub struct Change<T> {
    /// The key of the object.
    pub key: ObjectKey,
    /// Its previous state.
    pub old: Option<Arc<T>>,
    /// Its new state.
    pub new: Option<Arc<T>>,
}

/// The objects of one kind.
#[derive(Debug)]
pub(super) struct Store<T> {
    objects: HashMap<ObjectKey, Arc<T>>,
    /// While a list is being read: the keys that it has had so far.
    listing: Option<HashSet<ObjectKey>>,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self { objects: HashMap::new(), listing: None }
    }
}

impl<T: PartialEq> Store<T> {
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<T>> {
        self.objects.get(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &Arc<T>)> {
        self.objects.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Begins a list and forgets an unfinished one, which does not prove that anything is gone. If the store is empty,
    /// nothing can be gone, so no keys are recorded.
    pub(super) fn begin_list(&mut self) {
        let known = self.objects.len();
        self.listing = (known > 0).then(|| HashSet::with_capacity(known));
    }

    /// Completes a list: objects that it did not have are gone.
    pub(super) fn end_list(&mut self) -> Vec<Change<T>> {
        let Some(listed) = self.listing.take() else { return Vec::new() };
        let gone: Vec<ObjectKey> =
            self.objects.keys().filter(|key| !listed.contains(*key)).cloned().collect();
        gone.into_iter().filter_map(|key| self.remove(&key)).collect()
    }

    /// Removes all objects.
    pub(super) fn clear(&mut self) -> Vec<Change<T>> {
        self.listing = Some(HashSet::new());
        self.end_list()
    }

    /// Adds or updates an object. Returns `None` if it has not changed.
    pub(super) fn put(&mut self, taken: Taken<T>) -> Option<Change<T>> {
        let Taken { key, object, .. } = taken;
        let old = self.objects.get(&key).cloned();
        let key = match (&old, self.objects.get_key_value(&key)) {
            // One copy of the name is enough.
            (Some(_), Some((known, _))) => known.clone(),
            _ => key,
        };
        if let Some(listed) = &mut self.listing {
            listed.insert(key.clone());
        }
        if old.as_deref() == Some(&object) {
            return None;
        }
        let new = Arc::new(object);
        self.objects.insert(key.clone(), Arc::clone(&new));
        Some(Change { key, old, new: Some(new) })
    }

    /// Removes an object. Returns `None` if it was not known.
    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Change<T>> {
        let (key, old) = self.objects.remove_entry(key)?;
        Some(Change { key, old: Some(old), new: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(name: &str, object: u32) -> Taken<u32> {
        Taken { key: ObjectKey::new("ns", name), revision: String::new(), object }
    }

    fn told(change: Option<Change<u32>>) -> Option<(String, Option<u32>, Option<u32>)> {
        change.map(|change| {
            (change.key.to_string(), change.old.as_deref().copied(), change.new.as_deref().copied())
        })
    }

    #[test]
    fn only_changes_are_reported() {
        let mut store = Store::default();
        assert_eq!(told(store.put(taken("a", 1))), Some(("ns/a".into(), None, Some(1))));
        assert_eq!(told(store.put(taken("a", 1))), None);
        assert_eq!(told(store.put(taken("a", 2))), Some(("ns/a".into(), Some(1), Some(2))));
        assert_eq!(told(store.remove(&ObjectKey::new("ns", "a"))), Some(("ns/a".into(), Some(2), None)));
        assert_eq!(told(store.remove(&ObjectKey::new("ns", "a"))), None);
    }

    #[test]
    fn objects_missing_in_a_complete_list_are_gone() {
        let mut store = Store::default();
        for name in ["a", "b", "c"] {
            store.put(taken(name, 1));
        }
        store.begin_list();
        store.put(taken("a", 1));
        // The list is not completed: nothing is gone.
        store.begin_list();
        store.put(taken("b", 1));
        store.put(taken("d", 4));
        let mut gone: Vec<String> =
            store.end_list().into_iter().map(|change| change.key.to_string()).collect();
        gone.sort();
        assert_eq!(gone, ["ns/a", "ns/c"]);
        assert_eq!(store.len(), 2);
        assert!(store.end_list().is_empty(), "without a list nothing is gone");
    }
}
