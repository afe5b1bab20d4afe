//! One feed, shared by the task that follows the store and by all connections.

use crate::cache::{Cache, Counts, Input};
use crate::snapshot::{self, Snapshot};
use crate::trail::Crumb;
use model::feed::Status;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use typha_wire::{Position, SyncerType};

/// How long a snapshot is fresh, whatever has changed since.
const FRESH: Duration = Duration::from_secs(1);
/// How many steps are kept for clients that reconnect.
const KEPT_STEPS: usize = 4096;
/// How many bytes of steps are kept.
const KEPT_BYTES: usize = 16 << 20;

/// A feed.
pub struct Feed {
    kind: SyncerType,
    instance: u64,
    largest_message: usize,
    state: Mutex<State>,
    wake: watch::Sender<u64>,
    compressed: tokio::sync::Mutex<Option<Arc<Snapshot>>>,
    plain: tokio::sync::Mutex<Option<Arc<Snapshot>>>,
    snapshot_counts: Mutex<SnapshotCounts>,
}

struct State {
    cache: Cache,
    latest: Arc<Crumb>,
    trail: VecDeque<Arc<Crumb>>,
    trail_bytes: usize,
    was_in_sync: bool,
}

/// Counters about snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotCounts {
    /// How many snapshots were created.
    pub generated: u64,
    /// How many times an existing one was used.
    pub reused: u64,
    /// The size of the last snapshot before compression.
    pub raw_bytes: usize,
    /// The size of the last snapshot after compression.
    pub compressed_bytes: usize,
}

/// How a feed is split into messages.
#[derive(Clone, Copy, Debug)]
pub struct FeedOptions {
    /// Maximum number of changes in a step.
    pub largest_step: usize,
    /// Maximum number of entries in a message of a plain snapshot.
    pub largest_message: usize,
}

impl Default for FeedOptions {
    fn default() -> Self {
        Self { largest_step: 100, largest_message: 100 }
    }
}

impl Feed {
    /// Creates an empty feed. `instance` distinguishes this run of the server from all others.
    #[must_use]
    pub fn new(kind: SyncerType, instance: u64, options: FeedOptions) -> Arc<Self> {
        let first = Crumb::first(Instant::now());
        Arc::new(Self {
            kind,
            instance,
            largest_message: options.largest_message,
            state: Mutex::new(State {
                cache: Cache::new(options.largest_step.min(options.largest_message)),
                latest: Arc::clone(&first),
                trail: VecDeque::from([first]),
                trail_bytes: 0,
                was_in_sync: false,
            }),
            wake: watch::Sender::new(0),
            compressed: tokio::sync::Mutex::default(),
            plain: tokio::sync::Mutex::default(),
            snapshot_counts: Mutex::default(),
        })
    }

    /// The type of the feed.
    #[must_use]
    pub fn kind(&self) -> SyncerType {
        self.kind
    }

    /// The run of the server that this feed belongs to.
    #[must_use]
    pub fn instance(&self) -> u64 {
        self.instance
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes added, changed and removed entries.
    pub fn publish(&self, inputs: impl IntoIterator<Item = Input>) {
        let mut state = self.state();
        let steps = state.cache.apply(inputs);
        let sequence = state.append(steps, Instant::now());
        drop(state);
        self.tell(sequence);
    }

    /// Publishes a new status.
    pub fn set_status(&self, status: Status) {
        let mut state = self.state();
        let step = state.cache.set_status(status);
        let sequence = state.append(step, Instant::now());
        if status == Status::InSync && !state.was_in_sync {
            // The steps of the first reading equal the snapshot. Clients in the middle of them hold them.
            state.was_in_sync = true;
            state.trail = VecDeque::from([Arc::clone(&state.latest)]);
            state.trail_bytes = state.latest.size();
        }
        drop(state);
        self.tell(sequence);
    }

    fn tell(&self, sequence: Option<u64>) {
        let Some(sequence) = sequence else { return };
        self.wake.send_replace(sequence);
        // A snapshot from before the trail would keep all of it alive.
        let oldest = self.state().trail.front().map_or(0, |crumb| crumb.sequence);
        for snapshot in [&self.compressed, &self.plain] {
            if let Ok(mut snapshot) = snapshot.try_lock()
                && snapshot.as_ref().is_some_and(|snapshot| snapshot.crumb.sequence < oldest)
            {
                *snapshot = None;
            }
        }
    }

    /// Notifies of every new step.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.wake.subscribe()
    }

    /// The last step.
    #[must_use]
    pub fn latest(&self) -> Arc<Crumb> {
        Arc::clone(&self.state().latest)
    }

    /// The step at which a reconnecting client is, if everything after it is still available.
    #[must_use]
    pub fn resume(&self, position: Position) -> Option<Arc<Crumb>> {
        if position.instance != self.instance {
            return None;
        }
        let state = self.state();
        let oldest = state.trail.front()?.sequence;
        let place = usize::try_from(position.sequence.checked_sub(oldest)?).ok()?;
        state.trail.get(place).cloned()
    }

    /// A snapshot for a client: the last one while it is fresh, or while what has changed since is small compared with
    /// it.
    pub async fn snapshot(self: &Arc<Self>, compress: bool) -> Arc<Snapshot> {
        let place = if compress { &self.compressed } else { &self.plain };
        let mut place = place.lock().await;
        if let Some(snapshot) = place.as_ref()
            && self.is_fresh(snapshot)
        {
            self.counts_mut().reused += 1;
            return Arc::clone(snapshot);
        }
        let feed = Arc::clone(self);
        let made = tokio::task::spawn_blocking(move || feed.make_snapshot(compress)).await;
        let snapshot = Arc::new(match made {
            Ok(snapshot) => snapshot,
            // Only when the runtime is shutting down: it will never be received.
            Err(_) => self.make_snapshot(compress),
        });
        let mut counts = self.counts_mut();
        counts.generated += 1;
        counts.raw_bytes = snapshot.raw_bytes;
        counts.compressed_bytes = snapshot.bytes();
        drop(counts);
        *place = Some(Arc::clone(&snapshot));
        snapshot
    }

    fn make_snapshot(&self, compress: bool) -> Snapshot {
        let state = self.state();
        let entries: Vec<_> = state.cache.entries().cloned().collect();
        let crumb = Arc::clone(&state.latest);
        drop(state);
        let now = Instant::now();
        if compress {
            snapshot::compressed(crumb, &entries, now)
        } else {
            snapshot::plain(crumb, &entries, self.largest_message, now)
        }
    }

    fn is_fresh(&self, snapshot: &Snapshot) -> bool {
        let latest = self.latest();
        // A snapshot taken before everything was read is of little use.
        let since = latest.offset - snapshot.crumb.offset;
        latest.sequence == snapshot.crumb.sequence
            || (snapshot.time.elapsed() < FRESH && snapshot.crumb.status == Status::InSync)
            || (snapshot.crumb.status == Status::InSync && since < snapshot.raw_bytes as u64 / 16)
    }

    fn counts_mut(&self) -> MutexGuard<'_, SnapshotCounts> {
        self.snapshot_counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counters about snapshots.
    #[must_use]
    pub fn snapshot_counts(&self) -> SnapshotCounts {
        *self.counts_mut()
    }

    /// The number of entries, and the counters of the cache.
    #[must_use]
    pub fn counts(&self) -> (usize, Counts) {
        let state = self.state();
        (state.cache.len(), state.cache.counts())
    }

    /// The current status.
    #[must_use]
    pub fn status(&self) -> Status {
        self.state().cache.status()
    }

    /// All entries as paths and values, for tests and dumps.
    #[must_use]
    pub fn contents(&self) -> Vec<(String, Vec<u8>)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.state().cache.entries().map(|entry| (text(entry.path()), entry.value().to_vec())).collect()
    }
}

impl State {
    fn append(&mut self, steps: impl IntoIterator<Item = crate::cache::Step>, now: Instant) -> Option<u64> {
        let before = self.latest.sequence;
        for step in steps {
            self.latest = self.latest.follow(step, now);
            self.trail_bytes += self.latest.size();
            self.trail.push_back(Arc::clone(&self.latest));
        }
        while self.trail.len() > KEPT_STEPS || (self.trail_bytes > KEPT_BYTES && self.trail.len() > 1) {
            if let Some(crumb) = self.trail.pop_front() {
                // It may have been compressed since it was counted.
                self.trail_bytes = self.trail_bytes.saturating_sub(crumb.size());
            }
        }
        (self.latest.sequence > before).then_some(self.latest.sequence)
    }
}
