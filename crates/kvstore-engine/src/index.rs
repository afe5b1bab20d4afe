//! The index in memory: for each key its revisions and where in the file their records are; for watches the same
//! entries in order of revision. Values stay in the file (and the page cache). It holds no lock and does no I/O:
//! callers guard it, and read records after releasing the lock.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
    ops::Bound,
    sync::Arc,
};

use smallvec::SmallVec;

/// The location of a record: which of the two files, and the offset in it. Both exist while the file is rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(u64);

impl Place {
    const SECOND: u64 = 1 << 63;

    pub(super) fn new(slot: usize, offset: u64) -> Self {
        Self(offset | if slot == 1 { Self::SECOND } else { 0 })
    }

    pub(super) fn slot(self) -> usize {
        usize::from(self.0 & Self::SECOND != 0)
    }

    pub(super) fn offset(self) -> u64 {
        self.0 & !Self::SECOND
    }
}

/// One revision of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) revision: i64,
    /// Position within the revision; the top bit marks a deletion.
    sub: u32,
    /// Length of the record.
    pub(super) length: u32,
    pub(super) place: Place,
}

impl Entry {
    const DELETED: u32 = 1 << 31;

    pub(super) fn new(revision: i64, sub: u32, deleted: bool, length: u32, place: Place) -> Self {
        Self { revision, sub: sub | if deleted { Self::DELETED } else { 0 }, length, place }
    }

    pub(super) fn deleted(&self) -> bool {
        self.sub & Self::DELETED != 0
    }

    pub(super) fn sub(&self) -> u32 {
        self.sub & !Self::DELETED
    }

    /// The identity of an entry, by which entries are ordered.
    pub(super) fn id(&self) -> (i64, u32) {
        (self.revision, self.sub())
    }
}

/// All revisions of one key that are not compacted away.
#[derive(Debug, Clone, Default)]
pub(super) struct KeyEntry {
    /// Of the newest revision; 0 after a deletion.
    pub(super) create_revision: i64,
    /// Of the newest revision; 0 after a deletion.
    pub(super) version: i64,
    pub(super) entries: SmallVec<[Entry; 1]>,
}

impl KeyEntry {
    /// The entry that was current at `revision`, if the key existed then.
    pub(super) fn at(&self, revision: i64) -> Option<&Entry> {
        // Usually the newest one is requested.
        self.entries.iter().rev().find(|entry| entry.revision <= revision).filter(|entry| !entry.deleted())
    }
}

/// A range of keys with etcd's rules for `range_end`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyRange<'a> {
    start: &'a [u8],
    end: End<'a>,
}

/// Start and end for an ordered map.
type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum End<'a> {
    Single,
    Before(&'a [u8]),
    Open,
}

impl<'a> KeyRange<'a> {
    pub(super) fn new(key: &'a [u8], range_end: &'a [u8]) -> Self {
        let end = match range_end {
            [] => End::Single,
            [0] => End::Open,
            end => End::Before(end),
        };
        Self { start: key, end }
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        match self.end {
            End::Single => key == self.start,
            End::Before(end) => key >= self.start && key < end,
            End::Open => key >= self.start,
        }
    }

    /// Bounds for an ordered map, continuing after `after`; `None` when empty.
    fn bounds(&self, after: Option<&'a [u8]>) -> Option<Bounds<'a>> {
        let start = after.map_or(Bound::Included(self.start), Bound::Excluded);
        let end = match self.end {
            End::Single if after.is_some() => return None,
            End::Single => Bound::Included(self.start),
            End::Before(end) if end <= after.unwrap_or(self.start) => return None,
            End::Before(end) => Bound::Excluded(end),
            End::Open => Bound::Unbounded,
        };
        Some((start, end))
    }
}

/// The files that entries point into.
pub(super) type Files = [Option<Arc<File>>; 2];

/// The whole index.
#[derive(Default)]
pub(super) struct Index {
    keys: BTreeMap<Box<[u8]>, KeyEntry>,
    /// Entries from the last compaction on, by revision.
    history: VecDeque<Entry>,
    pub(super) files: Files,
    /// The file that is appended to.
    pub(super) slot: usize,
    /// Bytes of all records that entries point to.
    pub(super) live_bytes: u64,
    /// The last compaction, 0 for none. Guarded with the entries so that a reader sees both from one moment.
    pub(super) compacted: i64,
}

impl Index {
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&KeyEntry> {
        self.keys.get(key)
    }

    /// Adds the newest revision of a key.
    pub(super) fn push(&mut self, key: &[u8], entry: Entry, create_revision: i64, version: i64) {
        self.update(key, |_, _| (entry, create_revision, version));
    }

    /// Adds the newest revision of a key. `make` gets the key's creation revision and version so far (0 if it does not
    /// exist) and returns the entry and their new values. Returns the two old values. Takes one search, where reading
    /// and then adding takes two.
    pub(super) fn update(
        &mut self,
        key: &[u8],
        make: impl FnOnce(i64, i64) -> (Entry, i64, i64),
    ) -> (i64, i64) {
        let known = self.keys.get_mut(key);
        let before = known.as_ref().map_or((0, 0), |known| (known.create_revision, known.version));
        let (entry, create_revision, version) = make(before.0, before.1);
        self.live_bytes += u64::from(entry.length);
        self.history.push_back(entry);
        if let Some(known) = known {
            known.create_revision = create_revision;
            known.version = version;
            known.entries.push(entry);
        } else {
            let entries = SmallVec::from_slice(&[entry]);
            self.keys.insert(key.into(), KeyEntry { create_revision, version, entries });
        }
        before
    }

    /// Removes the newest revision of a key, because its commit failed.
    pub(super) fn pop(&mut self, key: &[u8], create_revision: i64, version: i64) {
        let Some(known) = self.keys.get_mut(key) else { return };
        known.create_revision = create_revision;
        known.version = version;
        if let Some(entry) = known.entries.pop() {
            self.live_bytes -= u64::from(entry.length);
            while self.history.back().is_some_and(|last| last.id() >= entry.id()) {
                self.history.pop_back();
            }
        }
        if known.entries.is_empty() {
            self.keys.remove(key);
        }
    }

    /// Sorts the history after a file was loaded: a rewritten file is in order of keys.
    pub(super) fn sort_history(&mut self) {
        self.history.make_contiguous().sort_unstable_by_key(Entry::id);
    }

    /// Visits keys of a range in order, at most `limit`; if it stopped there, returns the last key seen.
    pub(super) fn walk<'k>(
        &'k self,
        range: &KeyRange<'k>,
        after: Option<&'k [u8]>,
        limit: usize,
        mut visit: impl FnMut(&'k [u8], &'k KeyEntry),
    ) -> Option<&'k [u8]> {
        let bounds = range.bounds(after)?;
        for (seen, (key, entry)) in (1..).zip(self.keys.range::<[u8], _>(bounds)) {
            visit(key, entry);
            if seen == limit {
                return Some(key);
            }
        }
        None
    }

    /// Entries from revision `from` to `to`, whole revisions only, up to about `limit` entries and `bytes` bytes of
    /// records; and the revision up to which they are complete.
    pub(super) fn history(&self, from: i64, to: i64, limit: usize, bytes: u64) -> (Vec<Entry>, i64) {
        let start = self.history.partition_point(|entry| entry.revision < from);
        let mut found: Vec<Entry> = Vec::new();
        let mut size = 0;
        for entry in self.history.range(start..).take_while(|entry| entry.revision <= to) {
            let last = found.last().map_or(entry.revision, |last| last.revision);
            if (found.len() >= limit || size >= bytes) && last != entry.revision {
                return (found, last);
            }
            size += u64::from(entry.length);
            found.push(*entry);
        }
        (found, to)
    }

    /// Compacts up to `limit` keys after `after`; returns where to continue. Keeps each key's newest entry at or before
    /// `revision`, except a deletion, which is kept only if its revision is exactly `revision`, because a watch may
    /// still start there.
    pub(super) fn prune(&mut self, revision: i64, after: Option<&[u8]>, limit: usize) -> Option<Box<[u8]>> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut emptied = Vec::new();
        let mut seen = 0;
        let mut last = None;
        for (key, known) in self.keys.range_mut::<[u8], _>((start, Bound::Unbounded)) {
            let old = known.entries.partition_point(|entry| entry.revision <= revision);
            let newest_stays = old > 0 && {
                let newest = &known.entries[old - 1];
                !newest.deleted() || newest.revision == revision
            };
            let gone = if newest_stays { old - 1 } else { old };
            for entry in known.entries.drain(..gone) {
                self.live_bytes -= u64::from(entry.length);
            }
            if gone > 0 {
                known.entries.shrink_to_fit();
            }
            if known.entries.is_empty() {
                emptied.push(key.clone());
            }
            seen += 1;
            if seen == limit {
                last = Some(key.clone());
                break;
            }
        }
        for key in emptied {
            self.keys.remove(&key);
        }
        last
    }

    /// Drops the history before `revision`.
    pub(super) fn forget_history(&mut self, revision: i64) {
        let keep = self.history.partition_point(|entry| entry.revision < revision);
        self.history.drain(..keep);
        if self.history.capacity() > 4 * self.history.len() + 1024 {
            self.history.shrink_to_fit();
        }
    }

    /// Points entries of up to `limit` keys after `after` from the other file into the current one; returns where to
    /// continue.
    pub(super) fn relocate(
        &mut self,
        moved: &[Moved],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Option<Box<[u8]>> {
        let slot = self.slot;
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut seen = 0;
        for (key, known) in self.keys.range_mut::<[u8], _>((start, Bound::Unbounded)) {
            for entry in &mut known.entries {
                Moved::apply(moved, entry, slot);
            }
            seen += 1;
            if seen == limit {
                return Some(key.clone());
            }
        }
        None
    }

    /// [`Index::relocate`] for the history, from position `from`; returns where to continue.
    pub(super) fn relocate_history(&mut self, moved: &[Moved], from: i64, limit: usize) -> Option<i64> {
        let slot = self.slot;
        let start = self.history.partition_point(|entry| entry.revision < from);
        let mut seen = 0;
        for entry in self.history.range_mut(start..) {
            Moved::apply(moved, entry, slot);
            seen += 1;
            if seen > limit {
                return Some(entry.revision);
            }
        }
        None
    }
}

/// The new location of a record in a rewritten file. Lists of these are sorted by id.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moved {
    pub(super) id: (i64, u32),
    pub(super) offset: u64,
}

impl Moved {
    fn apply(moved: &[Self], entry: &mut Entry, slot: usize) {
        if entry.place.slot() == slot {
            return;
        }
        if let Ok(found) = moved.binary_search_by_key(&entry.id(), |moved| moved.id) {
            entry.place = Place::new(slot, moved[found].offset);
        }
    }
}
