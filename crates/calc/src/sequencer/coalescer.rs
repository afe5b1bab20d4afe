//! The latest state of each thing of one family, and which of them the dataplane knows.

use messages::ToDataplane;
use std::collections::{BTreeMap, BTreeSet};

/// Pending updates and removals by key. Only the latest one counts, and a removal of something that was never sent is
/// dropped.
#[derive(Debug)]
pub(crate) struct Coalescer<K, V> {
    updates: BTreeMap<K, V>,
    removes: BTreeSet<K>,
    sent: BTreeSet<K>,
}

impl<K, V> Default for Coalescer<K, V> {
    fn default() -> Self {
        Self { updates: BTreeMap::new(), removes: BTreeSet::new(), sent: BTreeSet::new() }
    }
}

impl<K: Ord + Clone, V> Coalescer<K, V> {
    pub(crate) fn update(&mut self, key: K, value: V) {
        self.removes.remove(&key);
        self.updates.insert(key, value);
    }

    pub(crate) fn remove(&mut self, key: &K) {
        self.updates.remove(key);
        if let Some(key) = self.sent.get(key) {
            self.removes.insert(key.clone());
        }
    }

    pub(crate) fn flush_updates(
        &mut self,
        sink: &mut impl FnMut(ToDataplane),
        mut message: impl FnMut(K, V) -> ToDataplane,
    ) {
        for (key, value) in std::mem::take(&mut self.updates) {
            if !self.sent.contains(&key) {
                self.sent.insert(key.clone());
            }
            sink(message(key, value));
        }
    }

    pub(crate) fn flush_removes(
        &mut self,
        sink: &mut impl FnMut(ToDataplane),
        message: impl Fn(K) -> ToDataplane,
    ) {
        for key in std::mem::take(&mut self.removes) {
            self.sent.remove(&key);
            sink(message(key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Coalescer;
    use messages::{ProfileName, ToDataplane};

    fn flush(buffer: &mut Coalescer<ProfileName, u16>) -> Vec<String> {
        let mut out = Vec::new();
        let mut sink = |message| out.push(message);
        buffer.flush_removes(&mut sink, ToDataplane::ProfileRemove);
        buffer.flush_updates(&mut sink, |name, _| ToDataplane::NamespaceRemove(name.text().clone()));
        out.iter()
            .map(|message| match message {
                ToDataplane::ProfileRemove(name) => format!("-{name}"),
                ToDataplane::NamespaceRemove(name) => format!("+{name}"),
                other => format!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn only_the_latest_state_is_sent_and_only_if_it_is_new() {
        let (a, b): (ProfileName, ProfileName) = ("a".into(), "b".into());
        let mut buffer = Coalescer::default();
        buffer.update(a.clone(), 1);
        buffer.update(b.clone(), 1);
        buffer.remove(&b);
        assert_eq!(flush(&mut buffer), ["+a"], "b came and went");

        buffer.remove(&a);
        buffer.update(a.clone(), 2);
        assert_eq!(flush(&mut buffer), ["+a"], "a was only replaced");

        buffer.update(a.clone(), 3);
        buffer.remove(&a);
        buffer.remove(&b);
        assert_eq!(flush(&mut buffer), ["-a"]);
        assert!(flush(&mut buffer).is_empty());
    }
}
