//! Watches. The committer leaves each commit in a small ring and the watches it concerns are marked (see
//! [`super::hub`]); each stream fetches what its watches need, from the ring or, when it fell behind, from the file. So
//! a slow reader holds no memory but the ring, never blocks a writer, and misses nothing unless a compaction removes
//! it, which is reported.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use bytes::Bytes;

use super::{
    error::Error,
    hub::{Commit, Inbox, STEP_BYTES, Watch, event},
    read::{Selection, lock, read},
    shared::Shared,
    types::{Event, KeyValue, SharedEvent, WatchMessage, WatchRequest},
};

/// Entries examined per step.
const STEP_ENTRIES: usize = 1000;

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

/// A set of watches that share one stream of messages.
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
        let (number, inbox) = lock(&shared.hub).open_stream();
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
        let compacted = read(&self.shared.index).compacted;
        let watch = Arc::new(Watch {
            id,
            request,
            begins_before: (start < compacted).then_some(compacted),
            inbox: Arc::clone(&self.inbox),
            next: AtomicI64::new(start),
            pending: AtomicI64::new(0),
        });
        self.watches.insert(id, Arc::clone(&watch));
        lock(&self.shared.hub).add(watch);
        Ok((id, revision))
    }

    /// Closes a watch; returns whether it existed.
    pub fn cancel(&mut self, id: i64) -> bool {
        let Some(watch) = self.watches.remove(&id) else { return false };
        lock(&self.shared.hub).remove(&watch);
        true
    }

    /// Requests a [`WatchMessage::Progress`] once all watches of this stream have received everything available.
    pub fn request_progress(&mut self) {
        self.progress = true;
    }

    /// The revision up to which `id` has received everything; `None` if events are pending.
    #[must_use]
    pub fn synced_revision(&self, id: i64) -> Option<i64> {
        let watch = self.watches.get(&id)?;
        let mut hub = lock(&self.shared.hub);
        let wake = hub.mark_now();
        let synced = (watch.pending.load(Ordering::Relaxed) == 0).then_some(hub.newest());
        drop(hub);
        wake.wake();
        synced
    }

    /// The next message, or `None` when the store closes. Cancelling the future loses nothing.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn next(&mut self) -> Result<Option<WatchMessage>, Error> {
        loop {
            if let Some(message) = self.try_next()? {
                return Ok(Some(message));
            }
            if !self.inbox.sleep().await {
                return Ok(None);
            }
        }
    }

    /// The next message, if one is available at once.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn try_next(&mut self) -> Result<Option<WatchMessage>, Error> {
        loop {
            let Some(id) = self.inbox.take() else {
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
        let mut hub = lock(&self.shared.hub);
        let wake = hub.mark_now();
        let revision = hub.newest();
        // Marks are set under this lock: nothing ready means that everything up to `revision` was delivered.
        let delivered = self.inbox.is_empty();
        drop(hub);
        wake.wake();
        if !delivered {
            return None;
        }
        self.progress = false;
        Some(WatchMessage::Progress { revision })
    }

    /// Fetches one step of events for a watch.
    fn advance(&self, watch: &Arc<Watch>) -> Result<Option<WatchMessage>, Error> {
        if let Some(compact_revision) = watch.begins_before {
            return Ok(Some(WatchMessage::Compacted { watch_id: watch.id, compact_revision }));
        }
        let hub = lock(&self.shared.hub);
        let from = watch.pending.load(Ordering::Relaxed);
        let to = hub.newest();
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
                let prev_kv = self.previous(&event.kv)?;
                *event = Arc::new(SharedEvent::new(Event { prev_kv, ..Event::clone(event) }));
            }
        }
        let hub = lock(&self.shared.hub);
        watch.next.store(scanned + 1, Ordering::Relaxed);
        // Commits marked meanwhile found this watch already marked; those not marked yet will mark it.
        if scanned < hub.marked() {
            watch.pending.store(scanned + 1, Ordering::Relaxed);
            self.inbox.put_back(watch.id);
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

    /// Reads events from the file.
    fn old_events(&self, watch: &Watch, from: i64, to: i64) -> Result<(Vec<Arc<SharedEvent>>, i64), Error> {
        let index = read(&self.shared.index);
        if from < index.compacted {
            return Err(Error::Compacted { compact_revision: index.compacted });
        }
        let (entries, scanned) = index.history(from, to, STEP_ENTRIES, STEP_BYTES as u64);
        let selection = Selection { files: index.files.clone(), entries };
        drop(index);
        let records = selection.load(None)?;
        let events = records.iter().filter_map(event).filter(|event| watch.wants(event));
        Ok((events.map(|event| Arc::new(SharedEvent::new(event))).collect(), scanned))
    }

    fn previous(&self, kv: &KeyValue) -> Result<Option<KeyValue>, Error> {
        match self.shared.view().get(&kv.key, kv.mod_revision - 1) {
            Err(Error::Compacted { .. }) => Ok(None),
            other => other,
        }
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        let watches = std::mem::take(&mut self.watches);
        let mut hub = lock(&self.shared.hub);
        for watch in watches.values() {
            hub.remove(watch);
        }
        hub.close_stream(self.number);
    }
}

/// Reads events from the ring; also returns the revision up to which it was searched.
fn recent_events(watch: &Watch, from: i64, to: i64, commits: &[Arc<Commit>]) -> (Vec<Arc<SharedEvent>>, i64) {
    let events = commits.iter().flat_map(|commit| &commit.events);
    let wanted = events.filter(|event| event.kv.mod_revision >= from && watch.wants(event));
    (wanted.cloned().collect(), commits.last().map_or(to, |commit| commit.last))
}
