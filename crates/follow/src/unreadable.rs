//! The objects that cannot be read, and why. For logs (each once), health and metrics.

use crate::cache::Note;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The unreadable objects of a feed, shared with the code that reports them. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Unreadable {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    objects: Mutex<BTreeMap<String, String>>,
    total: AtomicU64,
}

impl Unreadable {
    /// Creates an empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The objects that currently cannot be read: the name, and what is wrong where.
    #[must_use]
    pub fn objects(&self) -> BTreeMap<String, String> {
        self.inner.objects.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The number of objects that currently cannot be read.
    #[must_use]
    pub fn count(&self) -> usize {
        self.inner.objects.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// How many times an object became unreadable: a counter that only grows.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.inner.total.load(Ordering::Relaxed)
    }

    /// Records news, and logs them.
    pub(crate) fn take(&self, notes: Vec<Note>) {
        let mut objects = self.inner.objects.lock().unwrap_or_else(PoisonError::into_inner);
        for Note { key, reason } in notes {
            match reason {
                Some(reason) => {
                    tracing::error!(
                        object = %key,
                        %reason,
                        "cannot read this object completely: its last readable policy stays in force, and without one, the \
                         unreadable part denies; any other unreadable field counts as missing"
                    );
                    self.inner.total.fetch_add(1, Ordering::Relaxed);
                    objects.insert(key, reason);
                }
                None => {
                    tracing::info!(object = %key, "this object can be read again, or is gone");
                    objects.remove(&key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_come_and_go_and_are_counted() {
        let unreadable = Unreadable::new();
        let note =
            |key: &str, reason: Option<&str>| Note { key: key.into(), reason: reason.map(str::to_owned) };
        unreadable.take(vec![note("a", Some("x")), note("b", Some("y")), note("a", Some("z"))]);
        assert_eq!(unreadable.clone().objects().get("a").map(String::as_str), Some("z"));
        unreadable.take(vec![note("b", None)]);
        assert_eq!((unreadable.count(), unreadable.total()), (1, 3));
    }
}
