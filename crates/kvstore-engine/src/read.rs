//! Reading: the entries that a request selects, loading their records from the file, filters, order and limits. Readers
//! take the index's lock for a bounded number of keys at a time and never while they access the file, and they see only
//! durable data.

use std::{
    collections::BTreeMap,
    sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use bytes::Bytes;

use super::{
    error::Error,
    index::{Entry, Files, Index, KeyRange},
    log::{Record, read_exact_at},
    types::{KeyValue, RangeRequest, RangeResponse, SortOrder, SortTarget},
};

/// Keys visited each time the lock is held.
pub(super) const CHUNK: usize = 2048;
/// Records closer than this are read together.
const GAP: u64 = 4096;
/// At most this many bytes are read at once.
const RUN: u64 = 1 << 20;

/// Locks for reading; ignores poisoning, so that a panic elsewhere does not spread.
pub(super) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for writing.
pub(super) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Locks.
pub(super) fn lock<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Revisions being read; a compaction waits for those below it before it removes anything.
#[derive(Default)]
pub(super) struct Pins {
    pinned: Mutex<BTreeMap<i64, usize>>,
    released: Condvar,
}

/// Keeps a revision readable while it lives.
pub(super) struct Pin<'a> {
    pins: &'a Pins,
    revision: i64,
}

impl Pins {
    pub(super) fn pin(&self, revision: i64) -> Pin<'_> {
        *lock(&self.pinned).entry(revision).or_default() += 1;
        Pin { pins: self, revision }
    }

    /// Blocks until no reader uses a revision below `revision`.
    pub(super) fn wait_until(&self, revision: i64) {
        let mut pinned = lock(&self.pinned);
        while pinned.keys().next().is_some_and(|&lowest| lowest < revision) {
            pinned = self.released.wait(pinned).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        let mut pinned = lock(&self.pins.pinned);
        if let Some(count) = pinned.get_mut(&self.revision) {
            *count -= 1;
            if *count == 0 {
                pinned.remove(&self.revision);
                self.pins.released.notify_all();
            }
        }
    }
}

/// The commit under construction: its records are not in the file yet.
#[derive(Clone, Copy)]
pub(super) struct Pending<'a> {
    pub(super) slot: usize,
    /// The future offset of `bytes` in the file.
    pub(super) base: u64,
    pub(super) bytes: &'a [u8],
}

impl Pending<'_> {
    fn find(&self, entry: &Entry) -> Option<Bytes> {
        if entry.place.slot() != self.slot {
            return None;
        }
        let from = usize::try_from(entry.place.offset().checked_sub(self.base)?).ok()?;
        let to = from.checked_add(entry.length as usize)?;
        self.bytes.get(from..to).map(Bytes::copy_from_slice)
    }
}

/// Entries collected under one hold of the lock, with the files they were in at that time.
pub(super) struct Selection {
    pub(super) files: Files,
    pub(super) entries: Vec<Entry>,
}

impl Selection {
    /// Loads all records, in the order of `entries`.
    pub(super) fn load(&self, pending: Option<Pending<'_>>) -> Result<Vec<Record>, Error> {
        if let [entry] = self.entries.as_slice() {
            return Ok(vec![load_one(&self.files, entry, pending)?]);
        }
        let mut order: Vec<usize> = (0..self.entries.len()).collect();
        order.sort_unstable_by_key(|&at| {
            let place = self.entries[at].place;
            (place.slot(), place.offset())
        });
        let mut records: Vec<Option<Record>> = vec![None; self.entries.len()];
        let mut rest = order.as_slice();
        while let Some((&first, _)) = rest.split_first() {
            let entry = &self.entries[first];
            if let Some(bytes) = pending.and_then(|pending| pending.find(entry)) {
                records[first] = Some(decode(&bytes)?);
                rest = &rest[1..];
                continue;
            }
            let run = self.run(rest, pending);
            let start = entry.place.offset();
            let last = &self.entries[rest[run - 1]];
            let length = last.place.offset() + u64::from(last.length) - start;
            let bytes = load_bytes(&self.files, entry.place.slot(), start, length)?;
            for &at in &rest[..run] {
                let entry = &self.entries[at];
                let from = usize::try_from(entry.place.offset() - start).unwrap_or(usize::MAX);
                let to = from.saturating_add(entry.length as usize);
                if to > bytes.len() {
                    return Err(Error::Read("records overlap".into()));
                }
                records[at] = Some(decode(&bytes.slice(from..to))?);
            }
            rest = &rest[run..];
        }
        Ok(records.into_iter().flatten().collect())
    }

    /// How many of `order` can be read at once.
    fn run(&self, order: &[usize], pending: Option<Pending<'_>>) -> usize {
        let place = |at: usize| self.entries[order[at]].place;
        let start = place(0);
        let mut end = start.offset() + u64::from(self.entries[order[0]].length);
        let mut run = 1;
        while run < order.len() {
            let next = place(run);
            let length = u64::from(self.entries[order[run]].length);
            let is_pending =
                pending.is_some_and(|pending| next.slot() == pending.slot && next.offset() >= pending.base);
            if is_pending
                || next.slot() != start.slot()
                || next.offset() > end + GAP
                || next.offset() + length > start.offset() + RUN
            {
                break;
            }
            end = next.offset() + length;
            run += 1;
        }
        run
    }
}

/// Loads one record.
pub(super) fn load_one(files: &Files, entry: &Entry, pending: Option<Pending<'_>>) -> Result<Record, Error> {
    if let Some(bytes) = pending.and_then(|pending| pending.find(entry)) {
        return decode(&bytes);
    }
    decode(&load_bytes(files, entry.place.slot(), entry.place.offset(), u64::from(entry.length))?)
}

/// Loads one record that must be a value.
pub(super) fn load_kv(files: &Files, entry: &Entry, pending: Option<Pending<'_>>) -> Result<KeyValue, Error> {
    match load_one(files, entry, pending)? {
        Record::Put { kv, .. } => Ok(kv),
        other => Err(Error::Read(format!("expected a value, found {other:?}").into())),
    }
}

fn load_bytes(files: &Files, slot: usize, offset: u64, length: u64) -> Result<Bytes, Error> {
    let file = files[slot].as_ref().ok_or_else(|| Error::Read("the file is gone".into()))?;
    let length = usize::try_from(length).map_err(|_| Error::Read("a record is too long".into()))?;
    read_exact_at(file, offset, length).map_err(|error| Error::Read(error.to_string().into()))
}

fn decode(bytes: &Bytes) -> Result<Record, Error> {
    Record::decode(bytes).map(|(record, _)| record).map_err(|error| Error::Read(error.to_string().into()))
}

/// A view of the index at one revision.
pub(super) struct View<'a> {
    pub(super) index: &'a RwLock<Index>,
    pub(super) pins: &'a Pins,
    /// The revision that "now" means.
    pub(super) revision: i64,
    pub(super) pending: Option<Pending<'a>>,
}

impl View<'_> {
    /// Checks a requested revision (0 for now) against those available.
    pub(super) fn resolve(&self, requested: i64) -> Result<i64, Error> {
        if requested > self.revision {
            return Err(Error::FutureRevision);
        }
        Ok(if requested <= 0 { self.revision } else { requested })
    }

    /// The value of one key.
    pub(super) fn get(&self, key: &[u8], at: i64) -> Result<Option<KeyValue>, Error> {
        let (files, entry) = {
            let index = read(self.index);
            if at < index.compacted {
                return Err(Error::Compacted { compact_revision: index.compacted });
            }
            let Some(entry) = index.get(key).and_then(|known| known.at(at)) else { return Ok(None) };
            (index.files.clone(), *entry)
        };
        load_kv(&files, &entry, self.pending).map(Some)
    }

    /// Entries of a range, at most `limit` (0 for all), and the total count.
    pub(super) fn select(
        &self,
        range: &KeyRange<'_>,
        at: i64,
        limit: usize,
        count_only: bool,
    ) -> Result<(Vec<Selection>, i64), Error> {
        let _pin = self.pins.pin(at);
        let mut selections = Vec::new();
        let mut count = 0;
        let mut selected = 0;
        let mut after: Option<Box<[u8]>> = None;
        loop {
            let index = read(self.index);
            if at < index.compacted {
                return Err(Error::Compacted { compact_revision: index.compacted });
            }
            let mut entries = Vec::new();
            let last = index.walk(range, after.as_deref(), CHUNK, |_, known| {
                if let Some(entry) = known.at(at) {
                    count += 1;
                    if !count_only && (limit == 0 || selected < limit) {
                        selected += 1;
                        entries.push(*entry);
                    }
                }
            });
            let next = last.map(Box::from);
            if !entries.is_empty() {
                selections.push(Selection { files: index.files.clone(), entries });
            }
            drop(index);
            after = next;
            if after.is_none() {
                return Ok((selections, count));
            }
        }
    }

    /// Values of a range.
    pub(super) fn values(
        &self,
        range: &KeyRange<'_>,
        at: i64,
        limit: usize,
    ) -> Result<(Vec<KeyValue>, i64), Error> {
        let (selections, count) = self.select(range, at, limit, false)?;
        let mut kvs = Vec::with_capacity(selections.iter().map(|selection| selection.entries.len()).sum());
        for selection in selections {
            for record in selection.load(self.pending)? {
                if let Record::Put { kv, .. } = record {
                    kvs.push(kv);
                }
            }
        }
        Ok((kvs, count))
    }

    /// Answers a range request.
    pub(super) fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Error> {
        let at = self.resolve(request.revision)?;
        let range = KeyRange::new(&request.key, &request.range_end);
        if request.count_only {
            let (_, count) = self.select(&range, at, 0, true)?;
            return Ok(RangeResponse { revision: self.revision, count, ..RangeResponse::default() });
        }
        let limit = usize::try_from(request.limit).unwrap_or(0);
        // As in etcd: a target without an order only sorts the entries within the limit.
        let fetch = if limit > 0 && request.reads_only_its_limit() { limit.saturating_add(1) } else { 0 };
        let (selections, count) = self.select(&range, at, fetch, false)?;
        let mut found = Found::new(request, limit);
        for selection in selections {
            for record in selection.load(self.pending)? {
                if let Record::Put { kv, .. } = record {
                    found.add(kv);
                }
            }
            found.cut();
        }
        let (kvs, more) = found.finish();
        Ok(RangeResponse { revision: self.revision, kvs, more, count })
    }
}

/// The intermediate result of a range request. With an order or a filter, and a limit, every value must be examined,
/// but only those are kept that can still be part of the answer.
struct Found<'a> {
    request: &'a RangeRequest,
    limit: usize,
    kvs: Vec<KeyValue>,
}

impl<'a> Found<'a> {
    fn new(request: &'a RangeRequest, limit: usize) -> Self {
        Self { request, limit, kvs: Vec::new() }
    }

    fn add(&mut self, mut kv: KeyValue) {
        if !passes(self.request, &kv) {
            return;
        }
        if self.request.keys_only && self.request.sort_target != SortTarget::Value {
            kv.value = Bytes::new();
        }
        self.kvs.push(kv);
    }

    /// Drops what is beyond the limit already; one more than the limit is kept, to know that there are more. The rest
    /// is in ascending order, which preserves the order among equals.
    fn cut(&mut self) {
        let most = self.limit.saturating_add(1);
        // Rarely enough that sorting does not dominate.
        if self.limit == 0 || self.kvs.len() <= most.saturating_mul(2).saturating_add(CHUNK) {
            return;
        }
        match (self.request.sort_order, self.request.sort_target) {
            (SortOrder::None, SortTarget::Key) => self.kvs.truncate(most),
            (SortOrder::None | SortOrder::Ascend, _) => {
                sort(&mut self.kvs, self.request.sort_target);
                self.kvs.truncate(most);
            }
            (SortOrder::Descend, _) => {
                sort(&mut self.kvs, self.request.sort_target);
                self.kvs.drain(..self.kvs.len() - most);
            }
        }
        // A kept value must not keep the memory of everything that was read with it.
        for kv in &mut self.kvs {
            kv.key = Bytes::copy_from_slice(&kv.key);
            kv.value = Bytes::copy_from_slice(&kv.value);
        }
    }

    fn finish(mut self) -> (Vec<KeyValue>, bool) {
        if self.request.sort_order != SortOrder::None || self.request.sort_target != SortTarget::Key {
            sort(&mut self.kvs, self.request.sort_target);
        }
        if self.request.sort_order == SortOrder::Descend {
            self.kvs.reverse();
        }
        let more = self.limit > 0 && self.kvs.len() > self.limit;
        if more {
            self.kvs.truncate(self.limit);
        }
        if self.request.keys_only {
            self.kvs.iter_mut().for_each(|kv| kv.value = Bytes::new());
        }
        (self.kvs, more)
    }
}

fn passes(request: &RangeRequest, kv: &KeyValue) -> bool {
    let within = |value: i64, min: i64, max: i64| (min == 0 || value >= min) && (max == 0 || value <= max);
    within(kv.mod_revision, request.min_mod_revision, request.max_mod_revision)
        && within(kv.create_revision, request.min_create_revision, request.max_create_revision)
}

fn sort(kvs: &mut [KeyValue], target: SortTarget) {
    match target {
        SortTarget::Key => kvs.sort_by(|a, b| a.key.cmp(&b.key)),
        SortTarget::Version => kvs.sort_by_key(|kv| kv.version),
        SortTarget::Create => kvs.sort_by_key(|kv| kv.create_revision),
        SortTarget::Mod => kvs.sort_by_key(|kv| kv.mod_revision),
        SortTarget::Value => kvs.sort_by(|a, b| a.value.cmp(&b.value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is dropped on the way, the answer equals that of sorting everything at the end.
    #[test]
    fn dropping_early_equals_sorting_at_the_end() {
        let all: Vec<KeyValue> = (0..5 * CHUNK)
            .map(|number| {
                let mixed = (number * 7919) % 1009;
                KeyValue {
                    key: format!("{number:08}").into(),
                    value: format!("{}", mixed % 10).into(),
                    create_revision: (mixed % 7) as i64 + 1,
                    mod_revision: mixed as i64 + 1,
                    version: (mixed % 3) as i64 + 1,
                    lease: 0,
                }
            })
            .collect();
        for order in [SortOrder::None, SortOrder::Ascend, SortOrder::Descend] {
            for target in
                [SortTarget::Key, SortTarget::Version, SortTarget::Create, SortTarget::Mod, SortTarget::Value]
            {
                for (limit, min) in [(1, 0), (1, 500), (17, 500), (CHUNK + 1, 3), (10 * CHUNK, 3), (0, 500)] {
                    let request = RangeRequest {
                        limit: limit as i64,
                        sort_order: order,
                        sort_target: target,
                        min_mod_revision: min,
                        ..RangeRequest::default()
                    };
                    let mut found = Found::new(&request, limit);
                    let mut most_kept = 0;
                    for chunk in all.chunks(CHUNK) {
                        chunk.iter().cloned().for_each(|kv| found.add(kv));
                        found.cut();
                        most_kept = most_kept.max(found.kvs.len());
                    }
                    let mut expected: Vec<_> =
                        all.iter().filter(|kv| passes(&request, kv)).cloned().collect();
                    if order != SortOrder::None || target != SortTarget::Key {
                        sort(&mut expected, target);
                    }
                    if order == SortOrder::Descend {
                        expected.reverse();
                    }
                    let more = limit > 0 && expected.len() > limit;
                    if limit > 0 {
                        expected.truncate(limit);
                    }
                    assert_eq!(found.finish(), (expected, more), "{order:?} {target:?} {limit} {min}");
                    assert!(limit == 0 || most_kept <= 2 * (limit + 1) + CHUNK, "{most_kept} with {limit}");
                }
            }
        }
    }
}
