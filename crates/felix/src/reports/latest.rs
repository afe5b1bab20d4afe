//! What is to be written down, the newest of each kept. It is never longer than there are things to say something about,
//! however slowly somebody writes; and who reports never waits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// Values that wait, by what they are about. Cheap to clone.
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
    /// Adds a value; an older one about the same is forgotten.
    pub(crate) fn put(&self, key: K, value: V) {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(key, value);
        self.0.bell.notify_one();
    }

    /// Takes all that waits, as soon as something does. Nothing is lost when this is dropped before it is done.
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
    async fn the_newest_of_each_is_kept() {
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
