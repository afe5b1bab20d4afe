//! Changes by key: the last value reported for a key counts, whatever the order of the reports.

use std::collections::BTreeMap;

/// Changes by key: a new value, or `None` for a withdrawn one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes<K, V>(BTreeMap<K, Option<V>>);

impl<K, V> Default for Changes<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord, V> Changes<K, V> {
    /// Records the desired value of `key`; `None` for no entry.
    pub fn set(&mut self, key: K, value: Option<V>) {
        self.0.insert(key, value);
    }

    /// Returns the change recorded for `key`; `None` if none was recorded.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<Option<&V>> {
        self.0.get(key).map(Option::as_ref)
    }

    /// All changes, in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, Option<&V>)> {
        self.0.iter().map(|(key, value)| (key, value.as_ref()))
    }

    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K, V> IntoIterator for Changes<K, V> {
    type Item = (K, Option<V>);
    type IntoIter = std::collections::btree_map::IntoIter<K, Option<V>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::Changes;

    #[test]
    fn the_last_report_counts() {
        let mut changes = Changes::default();
        assert!(changes.is_empty());
        changes.set("b", Some(1));
        changes.set("a", Some(2));
        changes.set("b", None);
        assert_eq!(changes.get(&"b"), Some(None));
        assert_eq!(changes.get(&"c"), None);
        assert_eq!(changes.into_iter().collect::<Vec<_>>(), [("a", Some(2)), ("b", None)]);
    }
}
