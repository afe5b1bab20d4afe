//! Values to be written, of which the newest for each key is kept. The number of values is bounded by the number of
//! keys, however slow the writer is; and the sender never waits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// Waiting values by key. Cheap to clone.
pub(crate) struct Latest<K, V>(Arc<Shared<K, V>>);

struct Shared<K, V> {
    waiting: Mutex<BTreeMap<K, V>>,
    bell: Notify,
}

impl<K, V> Default for Latest<K, V> {
    fn default() -> Self {
        Self(Arc::new(Shared { waiting: Mutex::new(BTreeMap::new()), bell: Notify::new() }))
    }
}

impl<K, V> Clone for Latest<K, V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Ord, V> Latest<K, V> {
    /// Adds a value; it replaces an older one with the same key.
    pub(crate) fn put(&self, key: K, value: V) {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(key, value);
        self.0.bell.notify_one();
    }

    /// Takes all waiting values, as soon as there are any. Nothing is lost when this future is dropped before it
    /// completes.
    pub(crate) async fn take(&self) -> BTreeMap<K, V> {
        loop {
            let waiting = std::mem::take(&mut *self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            if !waiting.is_empty() {
                return waiting;
            }
            self.0.bell.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Latest;

    #[tokio::test]
    async fn the_newest_value_of_each_key_is_kept() {
        let latest = Latest::default();
        for number in 0..1000 {
            latest.put(number % 3, number);
        }
        assert_eq!(latest.take().await, [(0, 999), (1, 997), (2, 998)].into());
        let waiting = tokio::spawn({
            let latest = latest.clone();
            async move { latest.take().await }
        });
        tokio::task::yield_now().await;
        latest.put(7, 1);
        assert_eq!(waiting.await.unwrap(), [(7, 1)].into());
    }
}
