//! Texts that occur in many objects, stored once: names of nodes and namespaces, labels of pods from the same template.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// A name and its value.
type Pair = (Arc<str>, Arc<str>);

/// Labels (or annotations) of an object, sorted by name, shared between objects. Cheap to clone.
///
/// A sorted list: objects have few labels, and a map's nodes would take several times the space.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels(Arc<[Pair]>);

impl Labels {
    /// Returns the value of a label.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let index = self.0.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        self.0.get(index).map(|(_, value)| &**value)
    }

    /// Whether there is a label with this name.
    #[must_use]
    pub fn contains_key(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The number of labels.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no labels.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Borrow<[Pair]> for Labels {
    fn borrow(&self) -> &[Pair] {
        &self.0
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Labels {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(pairs: I) -> Self {
        // The map sorts, and removes duplicate names.
        let pairs: BTreeMap<&str, &str> = pairs.into_iter().collect();
        Self(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

/// The number of entries at which unused ones are first removed.
const FIRST_SWEEP: usize = 1024;

/// The texts and label sets of one informer.
#[derive(Debug)]
pub struct Strings {
    texts: HashSet<Arc<str>>,
    label_sets: HashSet<Labels>,
    next_sweep: usize,
    /// Whether any controller reads the labels of pods: most do not, and a pod's labels may be unique.
    pub(super) pod_labels: bool,
}

impl Default for Strings {
    fn default() -> Self {
        Self { texts: HashSet::new(), label_sets: HashSet::new(), next_sweep: FIRST_SWEEP, pod_labels: false }
    }
}

impl Strings {
    /// Creates an instance that keeps the labels of pods.
    #[must_use]
    pub fn with_pod_labels() -> Self {
        Self { pod_labels: true, ..Self::default() }
    }

    /// Returns the shared copy of a text.
    pub fn share(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        self.sweep();
        let text: Arc<str> = text.into();
        self.texts.insert(Arc::clone(&text));
        text
    }

    /// Returns the shared copy of a set of labels.
    pub fn share_labels(&mut self, labels: BTreeMap<String, String>) -> Labels {
        let pairs: Vec<Pair> =
            labels.into_iter().map(|(name, value)| (self.share(&name), self.share(&value))).collect();
        if let Some(known) = self.label_sets.get(&pairs[..]) {
            return known.clone();
        }
        let labels = Labels(pairs.into());
        self.label_sets.insert(labels.clone());
        labels
    }

    /// Removes unused entries, each time the number has doubled.
    fn sweep(&mut self) {
        if self.texts.len() + self.label_sets.len() < self.next_sweep {
            return;
        }
        self.label_sets.retain(|labels| Arc::strong_count(&labels.0) > 1);
        self.texts.retain(|text| Arc::strong_count(text) > 1);
        self.next_sweep = ((self.texts.len() + self.label_sets.len()) * 2).max(FIRST_SWEEP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_and_labels_are_stored_once() {
        let mut strings = Strings::default();
        assert!(Arc::ptr_eq(&strings.share("node-1"), &strings.share("node-1")));
        let labels = || BTreeMap::from([("app".to_owned(), "web".to_owned())]);
        let (first, second) = (strings.share_labels(labels()), strings.share_labels(labels()));
        assert!(Arc::ptr_eq(&first.0, &second.0));
    }

    #[test]
    fn labels_are_found_by_name() {
        let labels: Labels = [("b", "2"), ("a", "1"), ("c", ""), ("b", "3")].into_iter().collect();
        assert_eq!(labels.iter().collect::<Vec<_>>(), [("a", "1"), ("b", "3"), ("c", "")]);
        assert_eq!((labels.get("b"), labels.get("c"), labels.get("d")), (Some("3"), Some(""), None));
        assert!(labels.len() == 3 && labels.contains_key("a") && !labels.is_empty());
    }

    #[test]
    fn unused_entries_are_removed() {
        let mut strings = Strings::default();
        let kept = strings.share("kept");
        for number in 0..10 * FIRST_SWEEP {
            strings.share(&number.to_string());
        }
        assert!(strings.texts.len() <= 2 * FIRST_SWEEP, "{}", strings.texts.len());
        assert!(Arc::ptr_eq(&kept, &strings.share("kept")));
    }
}
