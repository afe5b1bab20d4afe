//! An in-memory store that stops before and after each operation, and an executor that decides which task continues.
//!
//! Dropping a future at such a stop is a crash: before the operation it did not happen; after it, its outcome remains
//! unknown. With transactions it behaves like etcd, without them like Kubernetes.

use async_trait::async_trait;
use datastore::{Backend, Batch, Error, KvList, Result, Watch, WatchOptions, Write};
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use model::{Key, KvPair, ListOptions};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The store.
pub(crate) struct Sim {
    entries: Mutex<Entries>,
    has_transactions: bool,
    /// Whether operations stop; only for tests of interleavings.
    stops: bool,
    /// Faults of the next writes.
    faults: Mutex<Vec<Fault>>,
}

/// How a write fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The write does not happen.
    Before,
    /// The write happens, but its answer is lost.
    After,
}

#[derive(Default)]
struct Entries {
    items: BTreeMap<Key, KvPair>,
    revision: u64,
    reads: usize,
    lists: usize,
    writes: usize,
}

/// How many operations the store has executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) reads: usize,
    pub(crate) lists: usize,
    pub(crate) writes: usize,
}

impl Entries {
    fn put(&mut self, entry: &KvPair) -> KvPair {
        self.revision += 1;
        let mut stored = entry.clone();
        stored.set_revision(&self.revision.to_string());
        self.items.insert(entry.key.clone(), stored.clone());
        stored
    }

    fn check(&self, key: &Key, revision: &str) -> Result<()> {
        match self.items.get(key) {
            None => Err(Error::DoesNotExist { key: key.to_string(), reason: String::new() }),
            Some(current) if current.revision != revision => {
                Err(Error::UpdateConflict { key: key.to_string(), existing: None })
            }
            Some(_) => Ok(()),
        }
    }
}

impl Sim {
    pub(crate) fn new(has_transactions: bool, stops: bool) -> Arc<Self> {
        Arc::new(Self { entries: Mutex::default(), has_transactions, stops, faults: Mutex::default() })
    }

    /// All stored entries.
    pub(crate) fn dump(&self) -> BTreeMap<Key, KvPair> {
        self.entries.lock().expect("no panic").items.clone()
    }

    /// Writes or deletes without stopping.
    pub(crate) fn set(&self, key: &Key, entry: Option<KvPair>) {
        let mut entries = self.entries.lock().expect("no panic");
        match entry {
            Some(entry) => drop(entries.put(&entry)),
            None => drop(entries.items.remove(key)),
        }
    }

    /// Makes a later write fail.
    pub(crate) fn fail_next(&self, fault: Fault) {
        self.faults.lock().expect("no panic").push(fault);
    }

    /// Cancels all pending faults.
    pub(crate) fn heal(&self) {
        self.faults.lock().expect("no panic").clear();
    }

    async fn write<T>(&self, operation: impl FnOnce(&mut Entries) -> Result<T> + Send) -> Result<T> {
        let lost = || Error::transient("writing", "the connection broke");
        let outcome = self.operate(|entries| match self.faults.lock().expect("no panic").pop() {
            None => operation(entries),
            Some(Fault::Before) => Err(lost()),
            Some(Fault::After) => operation(entries).and_then(|_| Err(lost())),
        });
        outcome.await
    }

    /// How many operations there were since the last call.
    pub(crate) fn take_counts(&self) -> Counts {
        let mut entries = self.entries.lock().expect("no panic");
        let counts = Counts { reads: entries.reads, lists: entries.lists, writes: entries.writes };
        (entries.reads, entries.lists, entries.writes) = (0, 0, 0);
        counts
    }

    async fn operate<T>(&self, operation: impl FnOnce(&mut Entries) -> T + Send) -> T {
        Stop::new(self.stops).await;
        let outcome = operation(&mut self.entries.lock().expect("no panic"));
        Stop::new(self.stops).await;
        outcome
    }
}

/// A future that is pending once.
struct Stop(bool);

impl Stop {
    fn new(stops: bool) -> Self {
        Self(!stops)
    }
}

impl Future for Stop {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        // Streams of futures only poll those that were woken.
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

#[async_trait]
impl Backend for Sim {
    async fn create(&self, entry: &KvPair) -> Result<KvPair> {
        self.write(|entries| {
            entries.writes += 1;
            if let Some(existing) = entries.items.get(&entry.key) {
                let existing = Some(Box::new(existing.clone()));
                return Err(Error::AlreadyExists { key: entry.key.to_string(), existing });
            }
            Ok(entries.put(entry))
        })
        .await
    }

    async fn write_all(&self, writes: &[Write]) -> Result<Batch> {
        if !self.has_transactions {
            return Ok(Batch::Unsupported);
        }
        self.write(|entries| {
            entries.writes += 1;
            let holds = writes.iter().all(|write| match write {
                Write::Create(_) | Write::Unchanged { revision: None, .. } => {
                    !entries.items.contains_key(write.key())
                }
                Write::Update(KvPair { revision, .. })
                | Write::Delete(KvPair { revision, .. })
                | Write::Unchanged { revision: Some(revision), .. } => {
                    entries.check(write.key(), revision).is_ok()
                }
            });
            if !holds {
                let current = writes.iter().map(|write| entries.items.get(write.key()).cloned());
                return Ok(Batch::Conflict(current.collect()));
            }
            let stored = writes.iter().map(|write| match write {
                Write::Create(entry) | Write::Update(entry) => Some(entries.put(entry)),
                Write::Delete(entry) => {
                    entries.items.remove(&entry.key);
                    None
                }
                Write::Unchanged { .. } => None,
            });
            Ok(Batch::Done(stored.collect()))
        })
        .await
    }

    async fn update(&self, entry: &KvPair) -> Result<KvPair> {
        self.write(|entries| {
            entries.writes += 1;
            entries.check(&entry.key, &entry.revision)?;
            Ok(entries.put(entry))
        })
        .await
    }

    async fn apply(&self, entry: &KvPair) -> Result<KvPair> {
        self.operate(|entries| Ok(entries.put(entry))).await
    }

    async fn delete(&self, key: &Key, revision: Option<&str>) -> Result<KvPair> {
        let missing = || Error::DoesNotExist { key: key.to_string(), reason: String::new() };
        self.write(|entries| {
            entries.writes += 1;
            if let Some(revision) = revision {
                entries.check(key, revision)?;
            }
            entries.items.remove(key).ok_or_else(missing)
        })
        .await
    }

    async fn delete_entry(&self, entry: &KvPair) -> Result<KvPair> {
        self.delete(&entry.key, Some(&entry.revision)).await
    }

    async fn get(&self, key: &Key, _: Option<&str>) -> Result<KvPair> {
        let missing = || Error::DoesNotExist { key: key.to_string(), reason: String::new() };
        self.operate(|entries| {
            entries.reads += 1;
            entries.items.get(key).cloned().ok_or_else(missing)
        })
        .await
    }

    async fn list(&self, list: &ListOptions, _: Option<&str>) -> Result<KvList> {
        self.operate(|entries| {
            entries.lists += 1;
            let items = entries.items.values().filter(|entry| list.matches(&entry.key)).cloned().collect();
            Ok(KvList { items, revision: entries.revision.to_string(), invalid: Vec::new() })
        })
        .await
    }

    async fn watch(&self, list: &ListOptions, _: WatchOptions) -> Result<Watch> {
        Err(Error::NotSupported { operation: "Watch", key: list.to_string(), reason: String::new() })
    }

    async fn clean(&self) -> Result<()> {
        self.operate(|entries| entries.items.clear()).await;
        Ok(())
    }
}

/// A clock that advances on request.
#[derive(Default)]
pub(crate) struct SimClock(Mutex<i64>);

impl SimClock {
    pub(crate) fn advance(&self, seconds: i64) {
        *self.0.lock().expect("no panic") += seconds;
    }
}

impl ipam::Clock for SimClock {
    fn now(&self) -> Timestamp {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        start + SignedDuration::from_secs(*self.0.lock().expect("no panic"))
    }

    fn wait(&self, _: Duration) -> BoxFuture<'static, ()> {
        Box::pin(Stop::new(true))
    }
}

/// Runs a future to its next stop.
pub(crate) fn poll_once<T>(future: &mut BoxFuture<'_, T>) -> Poll<T> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Runs a future to its end.
pub(crate) fn run<T>(mut future: BoxFuture<'_, T>) -> T {
    for _ in 0..1_000_000 {
        if let Poll::Ready(outcome) = poll_once(&mut future) {
            return outcome;
        }
    }
    panic!("it does not end")
}
