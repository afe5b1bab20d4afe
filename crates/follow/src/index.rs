//! What a feed has told about, as small as it can be kept: for each key the revision that was reported, and nothing of its
//! value. A quarter of a million endpoints are followed by every node, so an entry is a short run of bytes in one
//! common buffer, found by its hash, and not a key of five texts in a map.
//!
//! Order is that of insertion, so that the same history gives the same output.

use hashbrown::HashTable;
use model::feed::{FeedKey, FeedKeyRef};
use std::collections::hash_map::{DefaultHasher, RandomState};
use std::hash::{BuildHasher as _, Hash as _, Hasher as _};

mod codec;

/// Bytes before the key: flags, stamp, length.
const HEADER: usize = 1 + 8 + 4;
const LIVE: u8 = 1;
const DEGRADED: u8 = 2;
const SEEN: u8 = 4;

/// Buffers below this size are not worth tidying.
const SMALL: usize = 64 * 1024;

/// Where an entry stands; good until the index is changed by an insertion or removal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place(usize);

/// The hash of a key; good until the index is changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyHash(u64);

/// Appends a key in the form in which it is looked for.
pub(crate) fn key_of(key: FeedKeyRef<'_>, out: &mut Vec<u8>) {
    codec::encode(key, out);
}

/// What is known about an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// The revision, as [`stamp`] makes it.
    pub(crate) stamp: u64,
    /// Whether what was told was only a substitute for something unreadable.
    pub(crate) degraded: bool,
}

/// Keys and what is known about each.
pub(crate) struct Index {
    buffer: Vec<u8>,
    table: HashTable<usize>,
    hasher: RandomState,
    garbage: usize,
}

impl Index {
    pub(crate) fn new() -> Self {
        Self { buffer: Vec::new(), table: HashTable::new(), hasher: RandomState::new(), garbage: 0 }
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// How many bytes the entries take.
    pub(crate) fn bytes(&self) -> usize {
        self.buffer.capacity() + self.table.allocation_size()
    }

    /// Looks for a key as [`key_of`] writes it. What comes with it is for [`Self::insert`].
    pub(crate) fn find(&self, key: &[u8]) -> (KeyHash, Option<Place>) {
        let buffer = &self.buffer;
        let hash = self.hasher.hash_one(key);
        let found = self.table.find(hash, |offset| key_bytes(buffer, *offset) == key);
        (KeyHash(hash), found.map(|offset| Place(*offset)))
    }

    pub(crate) fn known(&self, Place(offset): Place) -> Known {
        Known { stamp: stamp_at(&self.buffer, offset), degraded: self.buffer[offset] & DEGRADED != 0 }
    }

    /// Notes that the entry is there, with what is now known.
    pub(crate) fn set(&mut self, Place(offset): Place, known: Known) {
        self.buffer[offset] = flags(known.degraded);
        self.buffer[offset + 1..offset + 9].copy_from_slice(&known.stamp.to_le_bytes());
    }

    /// Notes that the entry is there.
    pub(crate) fn touch(&mut self, Place(offset): Place) {
        self.buffer[offset] |= SEEN;
    }

    /// Adds an entry that [`Self::find`] has just not found.
    pub(crate) fn insert(&mut self, key: &[u8], hash: KeyHash, known: Known) {
        let offset = self.buffer.len();
        let length = u32::try_from(key.len()).unwrap_or(u32::MAX);
        self.buffer.push(flags(known.degraded));
        self.buffer.extend_from_slice(&known.stamp.to_le_bytes());
        self.buffer.extend_from_slice(&length.to_le_bytes());
        self.buffer.extend_from_slice(key);
        let (buffer, hasher) = (&self.buffer, &self.hasher);
        self.table.insert_unique(hash.0, offset, |offset| hasher.hash_one(key_bytes(buffer, *offset)));
    }

    fn link(&mut self, offset: usize) {
        let (buffer, hasher) = (&self.buffer, &self.hasher);
        let hash = hasher.hash_one(key_bytes(buffer, offset));
        self.table.insert_unique(hash, offset, |offset| hasher.hash_one(key_bytes(buffer, *offset)));
    }

    pub(crate) fn remove(&mut self, Place(offset): Place) {
        let hash = self.hasher.hash_one(key_bytes(&self.buffer, offset));
        if let Ok(entry) = self.table.find_entry(hash, |found| *found == offset) {
            entry.remove();
        }
        self.buffer[offset] &= !LIVE;
        self.garbage += size_at(&self.buffer, offset);
        self.tidy();
    }

    /// Forgets which entries were seen: a new list begins.
    pub(crate) fn begin(&mut self) {
        let mut offset = 0;
        while offset < self.buffer.len() {
            self.buffer[offset] &= !SEEN;
            offset += size_at(&self.buffer, offset);
        }
    }

    /// Removes and returns the entries that were not seen since [`Self::begin`], or all of them.
    pub(crate) fn take(&mut self, all: bool) -> Vec<FeedKey> {
        let mut gone = Vec::new();
        let mut offset = 0;
        while offset < self.buffer.len() {
            let flags = self.buffer[offset];
            if flags & LIVE != 0 && (all || flags & SEEN == 0) {
                gone.extend(codec::decode(key_bytes(&self.buffer, offset)));
                let hash = self.hasher.hash_one(key_bytes(&self.buffer, offset));
                if let Ok(entry) = self.table.find_entry(hash, |found| *found == offset) {
                    entry.remove();
                }
                self.buffer[offset] &= !LIVE;
                self.garbage += size_at(&self.buffer, offset);
            }
            offset += size_at(&self.buffer, offset);
        }
        self.tidy();
        gone
    }

    /// Closes the gaps once they are the larger part.
    fn tidy(&mut self) {
        if self.table.is_empty() {
            self.buffer = Vec::new();
            self.table = HashTable::new();
            self.garbage = 0;
            return;
        }
        if self.buffer.len() < SMALL || self.garbage * 2 < self.buffer.len() {
            return;
        }
        let old = std::mem::take(&mut self.buffer);
        self.buffer.reserve(old.len() - self.garbage);
        self.table = HashTable::with_capacity(self.table.len());
        self.garbage = 0;
        let mut offset = 0;
        while offset < old.len() {
            let size = size_at(&old, offset);
            if old[offset] & LIVE != 0 {
                let moved = self.buffer.len();
                self.buffer.extend_from_slice(&old[offset..offset + size]);
                self.link(moved);
            }
            offset += size;
        }
    }
}

fn flags(degraded: bool) -> u8 {
    LIVE | SEEN | if degraded { DEGRADED } else { 0 }
}

fn stamp_at(buffer: &[u8], offset: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&buffer[offset + 1..offset + 9]);
    u64::from_le_bytes(bytes)
}

fn size_at(buffer: &[u8], offset: usize) -> usize {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&buffer[offset + 9..offset + HEADER]);
    HEADER + u32::from_le_bytes(bytes) as usize
}

fn key_bytes(buffer: &[u8], offset: usize) -> &[u8] {
    &buffer[offset + HEADER..offset + size_at(buffer, offset)]
}

/// A revision as a number: two revisions of one key that differ have different stamps. Stores count; where a revision
/// is not a number, its hash stands for it.
pub(crate) fn stamp(revision: &str) -> u64 {
    const HASHED: u64 = 1 << 63;
    match revision.parse::<u64>() {
        Ok(number) if number < HASHED => number,
        _ => {
            let mut hasher = DefaultHasher::new();
            revision.hash(&mut hasher);
            hasher.finish() | HASHED
        }
    }
}

#[cfg(test)]
mod tests;
