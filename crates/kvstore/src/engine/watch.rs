//! Watches. The committer leaves each commit in a small ring and marks the watches it concerns; each stream fetches for itself
//! what its watches need, from the ring or, when it fell behind, from the file. So a slow reader holds no memory but the ring, never
//! blocks a writer, and misses nothing until a compaction takes it away, which it is told.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
};

use bytes::Bytes;
use tokio::sync::Notify;

use super::{
    error::Error,
    index::{Entry, KeyRange},
    log::Record,
    read::{Selection, lock, read},
    shared::Shared,
    types::{Event, EventKind, KeyValue, WatchMessage, WatchRequest},
};

/// Entries looked at per step.
const STEP_ENTRIES: usize = 1000;
/// Bytes of events per message, unless one revision has more.
const STEP_BYTES: usize = 256 << 10;

/// Why a watch was not created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// The chosen id is taken on this stream.
    #[error("mvcc: duplicate watch ID provided on the WatchStream")]
    DuplicateId,
    /// The range ends before it starts.
    #[error("mvcc: watcher range is empty")]
    EmptyRange,
}

/// A commit as the committer hands it over.
pub(super) struct Committed {
    pub(super) slot: usize,
    /// Where `bytes` is in the file.
    pub(super) base: u64,
    pub(super) bytes: Bytes,
    pub(super) entries: Vec<Entry>,
}

/// A commit as the ring keeps it.
struct Commit {
    first: i64,
    last: i64,
    records: Vec<Record>,
    bytes: usize,
}

/// What all streams share; guarded by one lock that is held for short steps only.
#[derive(Default)]
pub(super) struct Hub {
    /// Watches have been told of everything up to this revision.
    dispatched: i64,
    ring: VecDeque<Arc<Commit>>,
    ring_bytes: usize,
    /// Watches by range; many watches of one range cost one comparison.
    groups: BTreeMap<(Bytes, Bytes), Vec<Arc<Watch>>>,
    watches: usize,
    streams: BTreeMap<u64, Arc<Inbox>>,
    next_stream: u64,
    closed: bool,
}

/// One watch. The numbers change only under the hub's lock.
struct Watch {
    id: i64,
    request: WatchRequest,
    inbox: Arc<Inbox>,
    /// The first revision it has not been given.
    next: AtomicI64,
    /// There may be something for it from this revision on; 0 for nothing.
    pending: AtomicI64,
}

/// Which watches of a stream have something to fetch.
#[derive(Default)]
struct Inbox {
    ready: Mutex<VecDeque<i64>>,
    notify: Notify,
}

impl Watch {
    fn range(&self) -> KeyRange<'_> {
        KeyRange::new(&self.request.key, &self.request.range_end)
    }

    fn wants(&self, record: &Record) -> bool {
        match record {
            Record::Put { kv, .. } => !self.request.no_put && self.range().contains(&kv.key),
            Record::Delete { key, .. } => !self.request.no_delete && self.range().contains(key),
            _ => false,
        }
    }

    fn mark(&self, revision: i64) {
        if revision >= self.next.load(Ordering::Relaxed) && self.pending.load(Ordering::Relaxed) == 0 {
            self.pending.store(revision, Ordering::Relaxed);
            lock(&self.inbox.ready).push_back(self.id);
            self.inbox.notify.notify_one();
        }
    }
}

impl Hub {
    pub(super) fn new(revision: i64) -> Self {
        Self { dispatched: revision, ..Self::default() }
    }

    pub(super) fn has_watches(&self) -> bool {
        self.watches > 0
    }

    pub(super) fn watches(&self) -> usize {
        self.watches
    }

    /// A commit that concerns nobody.
    pub(super) fn skip_to(&mut self, revision: i64) {
        self.dispatched = revision;
        if self.watches == 0 {
            self.ring.clear();
            self.ring_bytes = 0;
        }
    }

    /// A commit that may concern somebody.
    pub(super) fn dispatch(&mut self, committed: &Committed, revision: i64, keep_bytes: usize) {
        let records = committed.records();
        for record in &records {
            let (key, revision) = match record {
                Record::Put { kv, .. } => (&kv.key, kv.mod_revision),
                Record::Delete { key, revision, .. } => (key, *revision),
                _ => continue,
            };
            for ((start, end), watches) in &self.groups {
                if KeyRange::new(start, end).contains(key) {
                    watches.iter().for_each(|watch| watch.mark(revision));
                }
            }
        }
        let first = committed.entries.first().map_or(revision, |entry| entry.revision);
        let bytes = committed.bytes.len() + records.len() * size_of::<Record>();
        self.ring.push_back(Arc::new(Commit { first, last: revision, records, bytes }));
        self.ring_bytes += bytes;
        while self.ring_bytes > keep_bytes && self.ring.len() > 1 {
            if let Some(oldest) = self.ring.pop_front() {
                self.ring_bytes -= oldest.bytes;
            }
        }
        self.dispatched = revision;
    }

    /// Ends all streams.
    pub(super) fn close(&mut self) {
        self.closed = true;
        for inbox in self.streams.values() {
            inbox.notify.notify_one();
        }
    }

    /// Commits that hold everything from `from` on, if the ring goes back that far.
    fn recent(&self, from: i64) -> Option<Vec<Arc<Commit>>> {
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
    fn records(&self) -> Vec<Record> {
        let decode = |entry: &Entry| {
            debug_assert_eq!(entry.place.slot(), self.slot);
            let from = usize::try_from(entry.place.offset() - self.base).ok()?;
            let bytes = self.bytes.slice(from..from + entry.length as usize);
            Record::decode(&bytes).ok().map(|(record, _)| record)
        };
        self.entries.iter().filter_map(decode).collect()
    }
}

/// A set of watches with one outlet.
pub struct WatchStream {
    shared: Arc<Shared>,
    number: u64,
    inbox: Arc<Inbox>,
    watches: BTreeMap<i64, Arc<Watch>>,
    next_id: i64,
    progress: bool,
}

impl WatchStream {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        let inbox = Arc::new(Inbox::default());
        let mut hub = lock(&shared.hub);
        let number = hub.next_stream;
        hub.next_stream += 1;
        hub.streams.insert(number, Arc::clone(&inbox));
        drop(hub);
        let shared = Arc::clone(shared);
        Self { shared, number, inbox, watches: BTreeMap::new(), next_id: 0, progress: false }
    }

    /// Opens a watch; returns its id and the store's revision.
    ///
    /// # Errors
    /// When the range is empty or the id is taken.
    pub fn create(&mut self, mut request: WatchRequest) -> Result<(i64, i64), WatchError> {
        if request.key.is_empty() {
            request.key = Bytes::from_static(b"\0");
        }
        if !request.range_end.is_empty() && request.range_end != b"\0"[..] && request.range_end <= request.key
        {
            return Err(WatchError::EmptyRange);
        }
        let id = match request.watch_id {
            0 => {
                while self.watches.contains_key(&self.next_id) {
                    self.next_id += 1;
                }
                self.next_id += 1;
                self.next_id - 1
            }
            id if self.watches.contains_key(&id) => return Err(WatchError::DuplicateId),
            id => id,
        };
        let revision = self.shared.durable.load(Ordering::Acquire);
        let start = if request.start_revision <= 0 { revision + 1 } else { request.start_revision };
        let group = (request.key.clone(), request.range_end.clone());
        let watch = Arc::new(Watch {
            id,
            request,
            inbox: Arc::clone(&self.inbox),
            next: AtomicI64::new(start),
            pending: AtomicI64::new(0),
        });
        self.watches.insert(id, Arc::clone(&watch));
        let mut hub = lock(&self.shared.hub);
        if start <= hub.dispatched {
            watch.mark(start);
        }
        hub.groups.entry(group).or_default().push(watch);
        hub.watches += 1;
        Ok((id, revision))
    }

    /// Closes a watch; says whether there was one.
    pub fn cancel(&mut self, id: i64) -> bool {
        let Some(watch) = self.watches.remove(&id) else { return false };
        self.forget(&mut lock(&self.shared.hub), &watch);
        true
    }

    /// Asks for a [`WatchMessage::Progress`] once all watches of this stream have been given everything there is.
    pub fn request_progress(&mut self) {
        self.progress = true;
        self.inbox.notify.notify_one();
    }

    /// If `id` has been given everything there is: up to which revision.
    #[must_use]
    pub fn synced_revision(&self, id: i64) -> Option<i64> {
        let hub = lock(&self.shared.hub);
        let watch = self.watches.get(&id)?;
        (watch.pending.load(Ordering::Relaxed) == 0).then_some(hub.dispatched)
    }

    /// The next message, or `None` when the store closes. Dropping the future loses nothing.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn next(&mut self) -> Result<Option<WatchMessage>, Error> {
        loop {
            if let Some(message) = self.try_next()? {
                return Ok(Some(message));
            }
            if lock(&self.shared.hub).closed {
                return Ok(None);
            }
            self.inbox.notify.notified().await;
        }
    }

    /// A message that is there already.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn try_next(&mut self) -> Result<Option<WatchMessage>, Error> {
        loop {
            let ready = lock(&self.inbox.ready).pop_front();
            let Some(id) = ready else {
                return Ok(self.take_progress());
            };
            let Some(watch) = self.watches.get(&id).cloned() else { continue };
            if let Some(message) = self.advance(&watch)? {
                if matches!(message, WatchMessage::Compacted { .. }) {
                    self.cancel(id);
                }
                return Ok(Some(message));
            }
        }
    }

    fn take_progress(&mut self) -> Option<WatchMessage> {
        if !self.progress {
            return None;
        }
        let hub = lock(&self.shared.hub);
        // Marks are set under this lock: nothing ready means that all was delivered up to `dispatched`.
        if !lock(&self.inbox.ready).is_empty() {
            return None;
        }
        self.progress = false;
        Some(WatchMessage::Progress { revision: hub.dispatched })
    }

    /// Fetches a step's worth for one watch.
    fn advance(&self, watch: &Arc<Watch>) -> Result<Option<WatchMessage>, Error> {
        let hub = lock(&self.shared.hub);
        let from = watch.pending.load(Ordering::Relaxed);
        let to = hub.dispatched;
        let recent = hub.recent(from);
        drop(hub);
        let (mut events, scanned) = match recent {
            Some(commits) => recent_events(watch, from, to, &commits),
            None => match self.old_events(watch, from, to) {
                Err(Error::Compacted { compact_revision }) => {
                    return Ok(Some(WatchMessage::Compacted { watch_id: watch.id, compact_revision }));
                }
                other => other?,
            },
        };
        if watch.request.prev_kv {
            for event in &mut events {
                event.prev_kv = self.previous(&event.kv)?;
            }
        }
        let hub = lock(&self.shared.hub);
        watch.next.store(scanned + 1, Ordering::Relaxed);
        if scanned < hub.dispatched {
            watch.pending.store(scanned + 1, Ordering::Relaxed);
            lock(&self.inbox.ready).push_back(watch.id);
        } else {
            watch.pending.store(0, Ordering::Relaxed);
        }
        drop(hub);
        if events.is_empty() {
            return Ok(None);
        }
        self.shared.counters.events.fetch_add(events.len() as u64, Ordering::Relaxed);
        Ok(Some(WatchMessage::Events { watch_id: watch.id, revision: scanned, events }))
    }

    /// Events from the file.
    fn old_events(&self, watch: &Watch, from: i64, to: i64) -> Result<(Vec<Event>, i64), Error> {
        let index = read(&self.shared.index);
        if from < index.compacted {
            return Err(Error::Compacted { compact_revision: index.compacted });
        }
        let (entries, scanned) = index.history(from, to, STEP_ENTRIES, STEP_BYTES as u64);
        let selection = Selection { files: index.files.clone(), entries };
        drop(index);
        let records = selection.load(None)?;
        Ok((records.iter().filter(|record| watch.wants(record)).filter_map(event).collect(), scanned))
    }

    fn previous(&self, kv: &KeyValue) -> Result<Option<KeyValue>, Error> {
        match self.shared.view().get(&kv.key, kv.mod_revision - 1) {
            Err(Error::Compacted { .. }) => Ok(None),
            other => other,
        }
    }

    fn forget(&self, hub: &mut Hub, watch: &Arc<Watch>) {
        let group = (watch.request.key.clone(), watch.request.range_end.clone());
        if let Some(watches) = hub.groups.get_mut(&group) {
            watches.retain(|other| !Arc::ptr_eq(other, watch));
            if watches.is_empty() {
                hub.groups.remove(&group);
            }
            hub.watches -= 1;
        }
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        let watches = std::mem::take(&mut self.watches);
        let mut hub = lock(&self.shared.hub);
        for watch in watches.values() {
            self.forget(&mut hub, watch);
        }
        hub.streams.remove(&self.number);
    }
}

/// Events from the ring, and up to which revision it was looked through.
fn recent_events(watch: &Watch, from: i64, to: i64, commits: &[Arc<Commit>]) -> (Vec<Event>, i64) {
    let records = commits.iter().flat_map(|commit| &commit.records);
    let events = records.filter(|record| revision(record) >= from && watch.wants(record)).filter_map(event);
    (events.collect(), commits.last().map_or(to, |commit| commit.last))
}

fn revision(record: &Record) -> i64 {
    match record {
        Record::Put { kv, .. } => kv.mod_revision,
        Record::Delete { revision, .. } => *revision,
        _ => 0,
    }
}

fn event(record: &Record) -> Option<Event> {
    match record {
        Record::Put { kv, .. } => Some(Event { kind: EventKind::Put, kv: kv.clone(), prev_kv: None }),
        Record::Delete { revision, key, .. } => {
            let kv = KeyValue { key: key.clone(), mod_revision: *revision, ..KeyValue::default() };
            Some(Event { kind: EventKind::Delete, kv, prev_kv: None })
        }
        _ => None,
    }
}
