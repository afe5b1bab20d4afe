//! A backend that stores many new objects in one step.
//!
//! While one transaction is under way, the objects that are ready for the next one wait; so the batches are as large as the
//! store is slow, and a single object waits for nobody. A batch that meets an object that is there already is done
//! over one by one, and no further batches are tried: the input is probably an update.
//!
//! It also remembers the tiers that it saw, because every policy asks for its own. It lives for one command and must not
//! live longer: what it remembers is not looked up again until this command changes it.

use api::Kind;
use async_trait::async_trait;
use datastore::{Backend, KvList, Result, Watch, WatchOptions};
use model::{Key, KvPair, ListOptions};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

/// Most objects in one step. Each may need two conditions, of which etcd takes 128.
const MAX_BATCH: usize = 60;

/// What waits for its turn.
struct Waiting {
    entry: KvPair,
    done: oneshot::Sender<Option<Result<KvPair>>>,
}

/// The backend around another one.
pub(crate) struct Batching {
    inner: Arc<dyn Backend>,
    waiting: Mutex<VecDeque<Waiting>>,
    is_busy: AtomicBool,
    is_off: AtomicBool,
    tiers: Mutex<BTreeMap<String, KvPair>>,
}

impl Batching {
    /// Batches the new objects that go to this backend.
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

    /// Forgets what is about to change.
    fn forget(&self, key: &Key) {
        self.tiers.lock().unwrap_or_else(PoisonError::into_inner).remove(&key.to_string());
    }

    fn take_batch(&self) -> Vec<Waiting> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let count = waiting.len().min(MAX_BATCH);
        waiting.drain(..count).collect()
    }

    /// Works on what waits until nothing does. A waiter that has to do its own work gets `None`.
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
                        // Who does not wait any more needs no answer.
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
        // Others that are ready come first, so that they are in the same batch.
        tokio::task::yield_now().await;
        // Looked at again afterwards: something may have come between the last look and the end of the work.
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
