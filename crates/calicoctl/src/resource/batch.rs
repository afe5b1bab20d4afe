//! A backend wrapper that creates many new objects in one step.
//!
//! While one transaction is in flight, objects for the next one accumulate; so batches grow with the store's latency,
//! and a single object never waits for others. When a batch contains an object that already exists, its objects are
//! created one by one, and no further batches are tried: the input is probably an update.
//!
//! It also caches the tiers that it read, because every policy looks up its tier. It lives for one command and must not
//! live longer: cached tiers are not read again until this command changes them.

use api::Kind;
use async_trait::async_trait;
use datastore::{Backend, KvList, Result, Watch, WatchOptions};
use model::{Key, KvPair, ListOptions};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

/// The maximum number of objects in one step. Each may need two conditions, and etcd accepts 128.
const MAX_BATCH: usize = 60;

/// An object that waits for its batch.
struct Waiting {
    entry: KvPair,
    done: oneshot::Sender<Option<Result<KvPair>>>,
}

pub(crate) struct Batching {
    inner: Arc<dyn Backend>,
    waiting: Mutex<VecDeque<Waiting>>,
    is_busy: AtomicBool,
    is_off: AtomicBool,
    tiers: Mutex<BTreeMap<String, KvPair>>,
}

impl Batching {
    /// Batches the creation of objects in this backend.
    #[must_use]
    pub(crate) fn new(inner: Arc<dyn Backend>) -> Self {
        Self {
            inner,
            waiting: Mutex::default(),
            is_busy: AtomicBool::new(false),
            is_off: AtomicBool::new(false),
            tiers: Mutex::default(),
        }
    }

    fn has_waiting(&self) -> bool {
        !self.waiting.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Drops a cached tier that is about to change.
    fn forget(&self, key: &Key) {
        self.tiers.lock().unwrap_or_else(PoisonError::into_inner).remove(&key.to_string());
    }

    fn take_batch(&self) -> Vec<Waiting> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let count = waiting.len().min(MAX_BATCH);
        waiting.drain(..count).collect()
    }

    /// Creates waiting objects until none are left. A waiter that has to create its object itself gets `None`.
    async fn work(&self) {
        loop {
            let batch = self.take_batch();
            if batch.is_empty() {
                return;
            }
            let (entries, waiting): (Vec<_>, Vec<_>) =
                batch.into_iter().map(|item| (item.entry, item.done)).unzip();
            let outcome = match entries.len() {
                1 => Ok(None),
                _ if self.is_off.load(Ordering::Relaxed) => Ok(None),
                _ => self.inner.create_all(&entries).await,
            };
            let single = entries.len() == 1;
            match outcome {
                Ok(Some(stored)) => {
                    for (done, stored) in waiting.into_iter().zip(stored) {
                        // A receiver that is gone needs no answer.
                        let _ = done.send(Some(Ok(stored)));
                    }
                }
                outcome => {
                    self.is_off.fetch_or(!single, Ordering::Relaxed);
                    if let Err(error) = outcome {
                        tracing::info!(%error, "a batch failed: going on one by one");
                    }
                    for done in waiting {
                        let _ = done.send(None);
                    }
                }
            }
        }
    }
}

#[async_trait]
impl Backend for Batching {
    async fn create(&self, entry: &KvPair) -> Result<KvPair> {
        if self.is_off.load(Ordering::Relaxed) {
            return self.inner.create(entry).await;
        }
        let (done, answer) = oneshot::channel();
        let item = Waiting { entry: entry.clone(), done };
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push_back(item);
        // Let other tasks that are ready enqueue first, so that they join the same batch.
        tokio::task::yield_now().await;
        // Checked again afterwards: an object may have been added between the last check and the end of the work.
        while self.has_waiting() && !self.is_busy.swap(true, Ordering::AcqRel) {
            self.work().await;
            self.is_busy.store(false, Ordering::Release);
        }
        match answer.await {
            Ok(Some(outcome)) => outcome,
            _ => self.inner.create(entry).await,
        }
    }

    async fn create_all(&self, entries: &[KvPair]) -> Result<Option<Vec<KvPair>>> {
        self.inner.create_all(entries).await
    }

    async fn update(&self, entry: &KvPair) -> Result<KvPair> {
        self.forget(&entry.key);
        self.inner.update(entry).await
    }

    async fn update_status(&self, entry: &KvPair) -> Result<KvPair> {
        self.forget(&entry.key);
        self.inner.update_status(entry).await
    }

    async fn apply(&self, entry: &KvPair) -> Result<KvPair> {
        self.forget(&entry.key);
        self.inner.apply(entry).await
    }

    async fn delete(&self, key: &Key, revision: Option<&str>) -> Result<KvPair> {
        self.forget(key);
        self.inner.delete(key, revision).await
    }

    async fn delete_entry(&self, entry: &KvPair) -> Result<KvPair> {
        self.forget(&entry.key);
        self.inner.delete_entry(entry).await
    }

    async fn get(&self, key: &Key, revision: Option<&str>) -> Result<KvPair> {
        let name = key.to_string();
        let is_tier =
            matches!(key, Key::Resource(resource) if resource.kind == Kind::Tier) && revision.is_none();
        if is_tier && let Some(tier) = self.tiers.lock().unwrap_or_else(PoisonError::into_inner).get(&name) {
            return Ok(tier.clone());
        }
        let found = self.inner.get(key, revision).await?;
        if is_tier {
            self.tiers.lock().unwrap_or_else(PoisonError::into_inner).insert(name, found.clone());
        }
        Ok(found)
    }

    async fn list(&self, list: &ListOptions, revision: Option<&str>) -> Result<KvList> {
        self.inner.list(list, revision).await
    }

    async fn watch(&self, list: &ListOptions, options: WatchOptions) -> Result<Watch> {
        self.inner.watch(list, options).await
    }

    async fn ensure_ready(&self) -> Result<()> {
        self.inner.ensure_ready().await
    }

    async fn install(&self) -> Result<()> {
        self.inner.install().await
    }

    async fn store_under_own_name(&self, entry: &KvPair) -> Result<bool> {
        self.inner.store_under_own_name(entry).await
    }

    async fn clean(&self) -> Result<()> {
        self.inner.clean().await
    }

    fn is_kubernetes(&self) -> bool {
        self.inner.is_kubernetes()
    }
}
