//! Texts that occur in many objects, held once: names of nodes and namespaces, labels of pods that come from one template.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Labels (or annotations) of an object; those of many objects are the same.
pub type Labels = Arc<BTreeMap<Arc<str>, Arc<str>>>;

/// How many entries there are before anything is thrown out.
const FIRST_SWEEP: usize = 1024;

/// The texts and label sets of one informer.
#[derive(Debug)]
pub struct Strings {
    texts: HashSet<Arc<str>>,
    label_sets: HashSet<Labels>,
    next_sweep: usize,
    /// Whether somebody reads the labels of pods: most do not, and a pod's labels may be all its own.
    pub(super) pod_labels: bool,
}

impl Default for Strings {
    fn default() -> Self {
        Self { texts: HashSet::new(), label_sets: HashSet::new(), next_sweep: FIRST_SWEEP, pod_labels: false }
    }
}

impl Strings {
    /// For kinds of which the labels of pods are kept.
    #[must_use]
    pub fn with_pod_labels() -> Self {
        Self { pod_labels: true, ..Self::default() }
    }

    /// The shared copy of a text.
    pub fn share(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        self.sweep();
        let text: Arc<str> = text.into();
        self.texts.insert(Arc::clone(&text));
        text
    }

    /// The shared copy of a set of labels.
    pub fn share_labels(&mut self, labels: BTreeMap<String, String>) -> Labels {
        let labels: BTreeMap<Arc<str>, Arc<str>> =
            labels.into_iter().map(|(name, value)| (self.share(&name), self.share(&value))).collect();
        if let Some(known) = self.label_sets.get(&labels) {
            return Arc::clone(known);
        }
        let labels = Arc::new(labels);
        self.label_sets.insert(Arc::clone(&labels));
        labels
    }

    /// Throws out what nobody else holds, each time the number has doubled.
    fn sweep(&mut self) {
        if self.texts.len() + self.label_sets.len() < self.next_sweep {
            return;
        }
        self.label_sets.retain(|labels| Arc::strong_count(labels) > 1);
        self.texts.retain(|text| Arc::strong_count(text) > 1);
        self.next_sweep = ((self.texts.len() + self.label_sets.len()) * 2).max(FIRST_SWEEP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_and_labels_are_held_once() {
        let mut strings = Strings::default();
        assert!(Arc::ptr_eq(&strings.share("node-1"), &strings.share("node-1")));
        let labels = || BTreeMap::from([("app".to_owned(), "web".to_owned())]);
        let (first, second) = (strings.share_labels(labels()), strings.share_labels(labels()));
        assert!(Arc::ptr_eq(&first, &second));
    }

    #[test]
    fn what_nobody_holds_is_thrown_out() {
        let mut strings = Strings::default();
        let kept = strings.share("kept");
        for number in 0..10 * FIRST_SWEEP {
            strings.share(&number.to_string());
        }
        assert!(strings.texts.len() <= 2 * FIRST_SWEEP, "{}", strings.texts.len());
        assert!(Arc::ptr_eq(&kept, &strings.share("kept")));
    }
}
