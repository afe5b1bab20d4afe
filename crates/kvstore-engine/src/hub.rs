//! Shared by commits and watch streams: a ring of recent commits, and which watches they concern.
//!
//! The committer leaves each commit in the ring. If a herald runs, it marks watches in rounds: it wakes every stream
//! concerned by the commits since the previous round, and begins the next round once those streams have responded. So
//! watches are notified of each commit at once while there is time for that, and of several commits with one message
//! when there is not: more writes make messages longer, not more numerous. Without a herald every commit is a round of
//! its own.
//!
//! Nothing here waits for a stream that does not respond: a stream that is not being read is not asleep, and is not
//! counted.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::Notify;

use super::{
    index::{Entry, KeyRange},
    log::Record,
    read::lock,
    shared::Shared,
    types::{Event, EventKind, KeyValue, SharedEvent, WatchRequest},
};

/// Bytes of events per message, unless one revision has more.
pub(super) const STEP_BYTES: usize = 256 << 10;
/// How long a round waits for the streams it woke: a runtime that is held up delays no watches but its own.
const PATIENCE: Duration = Duration::from_millis(5);

/// A commit as the committer hands it over.
pub(super) struct Committed {
    pub(super) slot: usize,
    /// The offset of `bytes` in the file.
    pub(super) base: u64,
    pub(super) bytes: Bytes,
    pub(super) entries: Vec<Entry>,
}

/// A commit as the ring keeps it.
pub(super) struct Commit {
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) events: Vec<Arc<SharedEvent>>,
    bytes: usize,
}

/// The state shared by all streams; guarded by one lock that is only held briefly.
#[derive(Default)]
pub(super) struct Hub {
    /// Watches have been marked for everything up to this revision.
    marked: i64,
    /// The newest revision that was handed over.
    newest: i64,
    ring: VecDeque<Arc<Commit>>,
    ring_bytes: usize,
    /// Watches by range; many watches of one range cost one comparison.
    groups: BTreeMap<(Bytes, Bytes), Vec<Arc<Watch>>>,
    watches: usize,
    streams: BTreeMap<u64, Arc<Inbox>>,
    next_stream: u64,
    /// Notifies the herald of commits, while there is one.
    herald: Option<Arc<Notify>>,
    closed: bool,
}

/// One watch. The numbers change only under the hub's lock.
pub(super) struct Watch {
    pub(super) id: i64,
    pub(super) request: WatchRequest,
    /// The compaction before which the watch begins. The watch is refused, as by etcd, even while the ring still has
    /// the requested events: whether other watches exist must not decide.
    pub(super) begins_before: Option<i64>,
    pub(super) inbox: Arc<Inbox>,
    /// The first revision not delivered to it yet.
    pub(super) next: AtomicI64,
    /// There may be events for it from this revision on; 0 for none.
    pub(super) pending: AtomicI64,
}

/// The watches of a stream that have something to fetch.
#[derive(Default)]
pub(super) struct Inbox {
    waiting: Mutex<Waiting>,
    notify: Notify,
}

#[derive(Default)]
struct Waiting {
    ready: VecDeque<i64>,
    /// Whether the stream's reader sleeps: then it must be woken, and will respond.
    asleep: bool,
    /// The round that woke it, until it has responded.
    round: Option<Arc<Round>>,
    closed: bool,
}

/// Held by the woken streams; dropping the last reference ends the round.
struct Round(Arc<Notify>);

impl Drop for Round {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// Streams to be woken, which is done without holding the hub's lock.
#[derive(Default)]
#[must_use]
pub(super) struct Wake(Vec<Arc<Inbox>>);

impl Wake {
    pub(super) fn wake(self) {
        for inbox in self.0 {
            inbox.notify.notify_one();
        }
    }
}

impl Inbox {
    /// The next watch with something to fetch.
    pub(super) fn take(&self) -> Option<i64> {
        lock(&self.waiting).ready.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.waiting).ready.is_empty()
    }

    /// Records that this watch is not done yet.
    pub(super) fn put_back(&self, id: i64) {
        lock(&self.waiting).ready.push_back(id);
    }

    /// Sleeps until there may be something to fetch; returns false once the store has closed.
    pub(super) async fn sleep(&self) -> bool {
        {
            let mut waiting = lock(&self.waiting);
            if !waiting.ready.is_empty() {
                return true;
            }
            if waiting.closed {
                return false;
            }
            waiting.asleep = true;
        }
        let _asleep = Asleep(self);
        self.notify.notified().await;
        true
    }
}

/// Marks a reader as asleep. Dropped when it wakes up or is cancelled.
struct Asleep<'a>(&'a Inbox);

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        let mut waiting = lock(&self.0.waiting);
        waiting.asleep = false;
        let round = waiting.round.take();
        drop(waiting);
        drop(round);
    }
}

impl Watch {
    fn range(&self) -> KeyRange<'_> {
        KeyRange::new(&self.request.key, &self.request.range_end)
    }

    pub(super) fn wants(&self, event: &Event) -> bool {
        let unwanted = match event.kind {
            EventKind::Put => self.request.no_put,
            EventKind::Delete => self.request.no_delete,
        };
        !unwanted && self.range().contains(&event.kv.key)
    }

    /// Records that there are events between these revisions for watches of this range.
    fn mark(&self, first: i64, last: i64, round: Option<&Arc<Round>>, wake: &mut Wake) {
        let next = self.next.load(Ordering::Relaxed);
        if last < next || self.pending.load(Ordering::Relaxed) != 0 {
            return;
        }
        self.pending.store(first.max(next), Ordering::Relaxed);
        let mut waiting = lock(&self.inbox.waiting);
        waiting.ready.push_back(self.id);
        if std::mem::take(&mut waiting.asleep) {
            waiting.round = round.cloned();
            wake.0.push(Arc::clone(&self.inbox));
        }
    }
}

impl Hub {
    pub(super) fn new(revision: i64) -> Self {
        Self { marked: revision, newest: revision, ..Self::default() }
    }

    pub(super) fn has_watches(&self) -> bool {
        self.watches > 0
    }

    pub(super) fn watches(&self) -> usize {
        self.watches
    }

    /// The newest revision that was handed over.
    pub(super) fn newest(&self) -> i64 {
        self.newest
    }

    /// The revision up to which watches have been marked.
    pub(super) fn marked(&self) -> i64 {
        self.marked
    }

    /// Records a commit that concerns no watch.
    pub(super) fn skip_to(&mut self, revision: i64) -> Wake {
        let wake = self.mark(None);
        self.newest = revision;
        self.marked = revision;
        if self.watches == 0 {
            self.ring.clear();
            self.ring_bytes = 0;
        }
        wake
    }

    /// Records a commit that may concern watches.
    pub(super) fn dispatch(&mut self, committed: &Committed, revision: i64, keep_bytes: usize) -> Wake {
        let first = committed.entries.first().map_or(revision, |entry| entry.revision);
        let events = committed.events();
        // The events' encoded form takes as much again.
        let bytes = 2 * committed.bytes.len() + events.len() * size_of::<SharedEvent>();
        self.ring.push_back(Arc::new(Commit { first, last: revision, events, bytes }));
        self.ring_bytes += bytes;
        self.newest = revision;
        let mut wake = match &self.herald {
            Some(herald) => {
                herald.notify_one();
                Wake::default()
            }
            None => self.mark(None),
        };
        while self.ring_bytes > keep_bytes && self.ring.len() > 1 {
            // A commit leaves the ring only after the watches it concerns are marked.
            if self.ring.front().is_some_and(|oldest| oldest.last > self.marked) {
                wake = self.mark(None);
            }
            if let Some(oldest) = self.ring.pop_front() {
                self.ring_bytes -= oldest.bytes;
            }
        }
        wake
    }

    /// Marks the watches that the commits since the last call concern.
    fn mark(&mut self, round: Option<&Arc<Round>>) -> Wake {
        let mut wake = Wake::default();
        let fresh = self.ring.partition_point(|commit| commit.last <= self.marked);
        if fresh < self.ring.len() {
            for ((start, end), watches) in &self.groups {
                let range = KeyRange::new(start, end);
                let events = self.ring.range(fresh..).flat_map(|commit| &commit.events);
                let mut concerned =
                    events.filter(|event| range.contains(&event.kv.key)).map(|event| event.kv.mod_revision);
                let Some(first) = concerned.next() else { continue };
                let last = concerned.next_back().unwrap_or(first);
                for watch in watches {
                    watch.mark(first, last, round, &mut wake);
                }
            }
        }
        self.marked = self.newest;
        wake
    }

    /// Marks the remaining watches at once, for a caller that cannot wait for the round.
    pub(super) fn mark_now(&mut self) -> Wake {
        self.mark(None)
    }

    /// Ends all streams.
    pub(super) fn close(&mut self) -> Wake {
        self.closed = true;
        if let Some(herald) = &self.herald {
            herald.notify_one();
        }
        let streams: Vec<_> = self.streams.values().cloned().collect();
        for inbox in &streams {
            lock(&inbox.waiting).closed = true;
        }
        Wake(streams)
    }

    /// Opens a stream: returns its number and its inbox.
    pub(super) fn open_stream(&mut self) -> (u64, Arc<Inbox>) {
        let inbox = Arc::new(Inbox::default());
        lock(&inbox.waiting).closed = self.closed;
        let number = self.next_stream;
        self.next_stream += 1;
        self.streams.insert(number, Arc::clone(&inbox));
        (number, inbox)
    }

    pub(super) fn close_stream(&mut self, number: u64) {
        self.streams.remove(&number);
    }

    /// Adds a watch. Its reader is awake, since it makes this call.
    pub(super) fn add(&mut self, watch: Arc<Watch>) {
        let start = watch.next.load(Ordering::Relaxed);
        if start <= self.marked {
            watch.mark(start, start, None, &mut Wake::default());
        }
        let group = (watch.request.key.clone(), watch.request.range_end.clone());
        self.groups.entry(group).or_default().push(watch);
        self.watches += 1;
    }

    pub(super) fn remove(&mut self, watch: &Arc<Watch>) {
        let group = (watch.request.key.clone(), watch.request.range_end.clone());
        if let Some(watches) = self.groups.get_mut(&group) {
            watches.retain(|other| !Arc::ptr_eq(other, watch));
            if watches.is_empty() {
                self.groups.remove(&group);
            }
            self.watches -= 1;
        }
    }

    /// Commits with everything from `from` on, if the ring reaches back that far.
    pub(super) fn recent(&self, from: i64) -> Option<Vec<Arc<Commit>>> {
        if self.ring.front().is_none_or(|oldest| oldest.first > from) {
            return None;
        }
        let start = self.ring.partition_point(|commit| commit.last < from);
        let mut bytes = 0;
        let enough = |commit: &&Arc<Commit>| {
            let more = bytes < STEP_BYTES;
            bytes += commit.bytes;
            more
        };
        Some(self.ring.range(start..).take_while(enough).cloned().collect())
    }
}

impl Committed {
    fn events(&self) -> Vec<Arc<SharedEvent>> {
        let decode = |entry: &Entry| {
            debug_assert_eq!(entry.place.slot(), self.slot);
            let from = usize::try_from(entry.place.offset() - self.base).ok()?;
            let bytes = self.bytes.slice(from..from + entry.length as usize);
            let (record, _) = Record::decode(&bytes).ok()?;
            Some(Arc::new(SharedEvent::new(event(&record)?)))
        };
        self.entries.iter().filter_map(decode).collect()
    }
}

/// The event that watches get for a record.
pub(super) fn event(record: &Record) -> Option<Event> {
    match record {
        Record::Put { kv, .. } => Some(Event { kind: EventKind::Put, kv: kv.clone(), prev_kv: None }),
        Record::Delete { revision, key, .. } => {
            let kv = KeyValue { key: key.clone(), mod_revision: *revision, ..KeyValue::default() };
            Some(Event { kind: EventKind::Delete, kv, prev_kv: None })
        }
        _ => None,
    }
}

/// The herald's registration in the hub, for as long as it runs.
struct Place<'a>(&'a Shared);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut hub = lock(&self.0.hub);
        hub.herald = None;
        let wake = hub.mark(None);
        drop(hub);
        wake.wake();
    }
}

/// Wakes watches for commits until the store closes. Ends at once if another herald runs.
pub(super) async fn herald(shared: Arc<Shared>) {
    let commits = Arc::new(Notify::new());
    {
        let mut hub = lock(&shared.hub);
        if hub.herald.is_some() || hub.closed {
            return;
        }
        hub.herald = Some(Arc::clone(&commits));
    }
    let _place = Place(&shared);
    loop {
        let come = Arc::new(Notify::new());
        let wake = {
            let round = Arc::new(Round(Arc::clone(&come)));
            let mut hub = lock(&shared.hub);
            if hub.closed {
                return;
            }
            hub.mark(Some(&round))
        };
        wake.wake();
        // A stream that has not responded by now is late through its own fault.
        let _ = tokio::time::timeout(PATIENCE, come.notified()).await;
        commits.notified().await;
    }
}
