//! A sink that remembers what it received, and fails the test when that is inconsistent.

use anyhow::{Result, bail};
use datastore::Backend;
use follow::{FeedEvent, FollowedKind, Follower};
use model::feed::{FeedEntry, FeedKey, Status};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A hung feed is a failure, not a hung test run. Nothing is asserted about speed.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the sink has received.
#[derive(Default)]
pub(crate) struct Known {
    /// The existing entries.
    pub(crate) values: BTreeMap<FeedKey, FeedEntry>,
    /// The statuses, in order.
    pub(crate) statuses: Vec<Status>,
    /// Keys that were ever deleted.
    pub(crate) deleted: BTreeSet<FeedKey>,
    /// Violations of the feed's promises.
    pub(crate) complaints: Vec<String>,
}

impl Known {
    /// The labels of the existing global network sets, by name: the revision that a test wrote into them.
    pub(crate) fn sets(&self) -> BTreeMap<String, String> {
        let set = |entry: &FeedEntry| match entry {
            FeedEntry::NetworkSet(name, Some(set)) => {
                Some((name.clone(), set.labels.get("version").unwrap_or_default().to_owned()))
            }
            _ => None,
        };
        self.values.values().filter_map(set).collect()
    }
}

/// The sink; clones share its state.
#[derive(Clone, Default)]
pub(crate) struct Recorder(Arc<Mutex<Known>>);

impl Recorder {
    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the sink has received what it should.
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

impl Recorder {
    /// Follows these kinds and records what arrives.
    pub(crate) fn follow(backend: &Arc<dyn Backend>, kinds: Vec<FollowedKind>) -> (Self, Follower) {
        let (follower, mut events) = follow::follow(backend, kinds);
        let recorder = Self::default();
        let remembering = recorder.clone();
        tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                remembering.known().take(event);
            }
        });
        (recorder, follower)
    }
}

impl Known {
    fn take(&mut self, event: FeedEvent) {
        match event {
            FeedEvent::Entries(entries) => {
                if self.statuses.last().is_none_or(|status| *status == Status::WaitForDatastore) {
                    self.complaints.push(format!("entries while {:?}", self.statuses.last()));
                }
                for entry in entries {
                    let key = entry.key().to_owned();
                    if !entry.is_gone() {
                        self.values.insert(key, entry);
                    } else if self.values.remove(&key).is_some() {
                        self.deleted.insert(key);
                    } else {
                        self.complaints.push(format!("{key} is gone and was never there"));
                    }
                }
            }
            FeedEvent::Status(status) => {
                if self.statuses.last() == Some(&status) {
                    self.complaints.push(format!("{status:?} twice"));
                }
                self.statuses.push(status);
            }
            FeedEvent::Away(_) => {}
        }
    }
}
