//! Sets of labels: sorted `key=value` strings, shared by the flows that have them.

use crate::key::Text;
use hashbrown::HashSet;
use std::cmp::Ordering;
use std::sync::Arc;

/// A set of labels, sorted and without duplicates. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Labels(Arc<[Text]>);

impl Default for Labels {
    fn default() -> Self {
        Self(Arc::from([]))
    }
}

impl<T: AsRef<str>> FromIterator<T> for Labels {
    fn from_iter<I: IntoIterator<Item = T>>(texts: I) -> Self {
        let mut texts: Vec<Text> = texts.into_iter().map(|text| Text::from(text.as_ref())).collect();
        texts.sort_unstable();
        texts.dedup();
        Self(texts.into())
    }
}

impl Labels {
    /// The labels, sorted.
    #[must_use]
    pub fn texts(&self) -> &[Text] {
        &self.0
    }

    /// The labels that both sets contain.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        if self == other {
            return self.clone();
        }
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut both = Vec::new();
        while let (Some(one), Some(two)) = (left.peek(), right.peek()) {
            match one.cmp(two) {
                Ordering::Less => drop(left.next()),
                Ordering::Greater => drop(right.next()),
                Ordering::Equal => {
                    both.push(Arc::clone(one));
                    left.next();
                    right.next();
                }
            }
        }
        Self(both.into())
    }

    /// Whether these labels, in the sender's order, are exactly this set.
    pub(crate) fn is<'a>(&self, texts: impl ExactSizeIterator<Item = &'a [u8]>) -> bool {
        texts.len() == self.0.len() && texts.zip(self.0.iter()).all(|(text, mine)| text == mine.as_bytes())
    }
}

/// Interns sets, so that equal sets share memory.
#[derive(Debug, Default)]
pub(crate) struct LabelSets(HashSet<Labels>);

impl LabelSets {
    /// Returns the shared copy of a set.
    pub(crate) fn shared(&mut self, labels: &Labels) -> Labels {
        self.0.get_or_insert_with(labels, Labels::clone).clone()
    }

    /// Drops the sets that are no longer used elsewhere.
    pub(crate) fn sweep(&mut self) {
        self.0.retain(|labels| Arc::strong_count(&labels.0) > 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn intersection_agrees_with_a_set_type(one in "[a-f]{0,6}", two in "[a-f]{0,6}") {
            let set = |text: &str| text.chars().map(String::from).collect::<BTreeSet<_>>();
            let labels = |text: &str| set(text).iter().collect::<Labels>();
            let expected: Labels = set(&one).intersection(&set(&two)).collect();
            prop_assert_eq!(labels(&one).intersection(&labels(&two)), expected);
        }
    }

    #[test]
    fn equal_sets_share_memory_until_unused() {
        let mut sets = LabelSets::default();
        let one = sets.shared(&["b=1", "a=1"].iter().collect());
        let two = sets.shared(&["a=1", "b=1", "a=1"].iter().collect());
        assert!(Arc::ptr_eq(&one.0, &two.0) && one.texts().len() == 2);
        drop((one, two));
        sets.sweep();
        assert!(sets.0.is_empty());
    }
}
