//! What a selector needs to know about an object: the value of a label, by name.
//!
//! Inheritance (labels that an endpoint takes from its profiles) is an implementation of [`Labels`] provided by the
//! caller; nothing here merges label maps.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;

/// A set of labels that can be looked up by name.
pub trait Labels {
    /// The value of label `key`, or `None` if the object does not have that label.
    fn get(&self, key: &str) -> Option<&str>;
}

impl<L: Labels + ?Sized> Labels for &L {
    fn get(&self, key: &str) -> Option<&str> {
        (**self).get(key)
    }
}

impl<V: AsRef<str>> Labels for BTreeMap<String, V> {
    fn get(&self, key: &str) -> Option<&str> {
        BTreeMap::get(self, key).map(AsRef::as_ref)
    }
}

impl<V: AsRef<str>, S: BuildHasher> Labels for HashMap<String, V, S> {
    fn get(&self, key: &str) -> Option<&str> {
        HashMap::get(self, key).map(AsRef::as_ref)
    }
}

/// Pairs are searched from the front, so the first of two entries with the same name wins.
impl<K: AsRef<str>, V: AsRef<str>> Labels for [(K, V)] {
    fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(name, _)| name.as_ref() == key).map(|(_, value)| value.as_ref())
    }
}

impl<K: AsRef<str>, V: AsRef<str>, const N: usize> Labels for [(K, V); N] {
    fn get(&self, key: &str) -> Option<&str> {
        Labels::get(self.as_slice(), key)
    }
}

impl<K: AsRef<str>, V: AsRef<str>> Labels for Vec<(K, V)> {
    fn get(&self, key: &str) -> Option<&str> {
        Labels::get(self.as_slice(), key)
    }
}

/// No labels at all.
impl Labels for () {
    fn get(&self, _key: &str) -> Option<&str> {
        None
    }
}
