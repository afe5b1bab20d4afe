//! A sink that remembers what it was told, and fails the test when it is told nonsense.

use anyhow::{Result, bail};
use async_trait::async_trait;
use model::feed::{Change, FeedValue, Status, Update};
use model::{Key, V1Key};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A hung feed is a failure, not a hung test run. Nothing is asserted about speed.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the sink knows.
#[derive(Default)]
pub(crate) struct Known {
    /// Values that are there.
    pub(crate) values: BTreeMap<Key, FeedValue>,
    /// The statuses, in order.
    pub(crate) statuses: Vec<Status>,
    /// Keys that were ever deleted.
    pub(crate) deleted: BTreeSet<Key>,
    /// What should not have happened.
    pub(crate) complaints: Vec<String>,
}

impl Known {
    /// The labels of the global network sets that are there, by name: the revision that a test wrote into them.
    pub(crate) fn sets(&self) -> BTreeMap<String, String> {
        let set = |(key, value): (&Key, &FeedValue)| match (key, value) {
            (Key::V1(V1Key::NetworkSet { name }), FeedValue::NetworkSet(set)) => {
                Some((name.clone(), set.labels.get("version").cloned().unwrap_or_default()))
            }
            _ => None,
        };
        self.values.iter().filter_map(set).collect()
    }
}

/// The sink; clones see the same.
#[derive(Clone, Default)]
pub(crate) struct Recorder(Arc<Mutex<Known>>);

impl Recorder {
    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the sink knows what it should.
    pub(crate) async fn wait(&self, what: &str, is_there: impl Fn(&Known) -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            {
                let known = self.known();
                if !known.complaints.is_empty() {
                    bail!("{what}: {:?}", known.complaints);
                }
                if is_there(&known) {
                    return Ok(());
                }
                if Instant::now() > deadline {
                    bail!("{what} did not happen; statuses {:?}; sets {:?}", known.statuses, known.sets());
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn wait_in_sync(&self) -> Result<()> {
        self.wait("being in sync", |known| known.statuses.last() == Some(&Status::InSync)).await
    }
}

#[async_trait]
impl syncer::Sink for Recorder {
    async fn updates(&mut self, updates: Vec<Update>) {
        let mut known = self.known();
        if known.statuses.last().is_none_or(|status| *status == Status::WaitForDatastore) {
            let complaint = format!("updates while {:?}", known.statuses.last());
            known.complaints.push(complaint);
        }
        for update in updates {
            let was_there = known.values.contains_key(&update.key);
            let is_right = match update.change {
                Change::New => !was_there && update.value.is_some(),
                Change::Updated => was_there && update.value.is_some(),
                Change::Deleted => was_there && update.value.is_none(),
            };
            if !is_right {
                let complaint = format!("{:?} of {} although there: {was_there}", update.change, update.key);
                known.complaints.push(complaint);
            }
            match update.value {
                Some(value) => _ = known.values.insert(update.key, value),
                None => {
                    known.values.remove(&update.key);
                    known.deleted.insert(update.key);
                }
            }
        }
    }

    async fn status(&mut self, status: Status) {
        let mut known = self.known();
        if known.statuses.last() == Some(&status) {
            known.complaints.push(format!("{status:?} twice"));
        }
        known.statuses.push(status);
    }
}
