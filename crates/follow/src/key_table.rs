//! The set of reported keys, stored compactly: for each key a number that identifies its value, but nothing of the
//! value itself. Every node follows a quarter of a million endpoints, so an entry is a short run of bytes in one shared
//! buffer, found by its hash, instead of a string of its own in a map.
//!
//! Iteration is in insertion order, so that the same history gives the same output. It does not interpret keys.

use hashbrown::HashTable;
use std::hash::{BuildHasher as _, RandomState};

#[cfg(test)]
mod tests;

/// Bytes before the key: flags, stamp, length.
const HEADER: usize = 1 + 8 + 4;
const LIVE: u8 = 1;
const DEGRADED: u8 = 2;
const SEEN: u8 = 4;

/// Smaller buffers are not worth compacting.
const SMALL: usize = 64 * 1024;

/// The position of an entry; valid until the next insertion or removal.
#[derive(Clone, Copy, Debug)]
pub struct Place(usize);

/// The hash of a key; valid until the table is changed.
#[derive(Clone, Copy, Debug)]
pub struct KeyHash(u64);

/// What is known about an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Differs whenever the value does: the revision or the fingerprint.
    pub stamp: u64,
    /// Whether only a substitute for something unreadable was reported.
    pub degraded: bool,
}

/// Keys and what is known about each.
#[derive(Debug, Default)]
pub struct KeyTable {
    buffer: Vec<u8>,
    table: HashTable<usize>,
    hasher: RandomState,
    /// Bytes that belong to removed entries.
    garbage: usize,
}

impl KeyTable {
    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Bytes of memory used by the entries.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.buffer.capacity() + self.table.allocation_size()
    }

    /// A stamp for a value without a revision. Differs between tables.
    #[must_use]
    pub fn fingerprint(&self, value: &[u8]) -> u64 {
        self.hasher.hash_one(value)
    }

    /// Looks up a key. The hash is for [`Self::insert`].
    #[must_use]
    pub fn find(&self, key: &[u8]) -> (KeyHash, Option<Place>) {
        let hash = self.hasher.hash_one(key);
        let found = self.table.find(hash, |offset| key_at(&self.buffer, *offset) == key);
        (KeyHash(hash), found.map(|offset| Place(*offset)))
    }

    /// What was recorded about an entry.
    #[must_use]
    pub fn known(&self, Place(offset): Place) -> Known {
        let mut stamp = [0; 8];
        stamp.copy_from_slice(&self.buffer[offset + 1..offset + 9]);
        Known { stamp: u64::from_le_bytes(stamp), degraded: self.buffer[offset] & DEGRADED != 0 }
    }

    /// Marks an entry as seen and records what is now known.
    pub fn set(&mut self, Place(offset): Place, known: Known) {
        self.buffer[offset] = flags(known.degraded);
        self.buffer[offset + 1..offset + 9].copy_from_slice(&known.stamp.to_le_bytes());
    }

    /// Marks an entry as seen.
    pub fn touch(&mut self, Place(offset): Place) {
        self.buffer[offset] |= SEEN;
    }

    /// Adds an entry that [`Self::find`] has just not found.
    pub fn insert(&mut self, key: &[u8], hash: KeyHash, known: Known) {
        let offset = self.buffer.len();
        let length = u32::try_from(key.len()).unwrap_or(u32::MAX);
        self.buffer.push(flags(known.degraded));
        self.buffer.extend_from_slice(&known.stamp.to_le_bytes());
        self.buffer.extend_from_slice(&length.to_le_bytes());
        self.buffer.extend_from_slice(&key[..length as usize]);
        self.link(offset, hash);
    }

    fn link(&mut self, offset: usize, KeyHash(hash): KeyHash) {
        let (buffer, hasher) = (&self.buffer, &self.hasher);
        self.table.insert_unique(hash, offset, |offset| hasher.hash_one(key_at(buffer, *offset)));
    }

    /// Removes an entry.
    pub fn remove(&mut self, Place(offset): Place) {
        self.unlink(offset);
        self.tidy();
    }

    fn unlink(&mut self, offset: usize) {
        let hash = self.hasher.hash_one(key_at(&self.buffer, offset));
        if let Ok(entry) = self.table.find_entry(hash, |found| *found == offset) {
            entry.remove();
        }
        self.buffer[offset] &= !LIVE;
        self.garbage += size_at(&self.buffer, offset);
    }

    /// Clears all seen marks: a new list begins.
    pub fn begin(&mut self) {
        let mut offset = 0;
        while offset < self.buffer.len() {
            self.buffer[offset] &= !SEEN;
            offset += size_at(&self.buffer, offset);
        }
    }

    /// Removes the entries that were not seen since [`Self::begin`], or all of them, and returns the results of `read`
    /// for their keys.
    pub fn take<T>(&mut self, all: bool, mut read: impl FnMut(&[u8]) -> Option<T>) -> Vec<T> {
        let mut gone = Vec::new();
        let mut offset = 0;
        while offset < self.buffer.len() {
            let flags = self.buffer[offset];
            if flags & LIVE != 0 && (all || flags & SEEN == 0) {
                gone.extend(read(key_at(&self.buffer, offset)));
                self.unlink(offset);
            }
            offset += size_at(&self.buffer, offset);
        }
        self.tidy();
        gone
    }

    /// Compacts the buffer once the gaps are the larger part.
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
        self.buffer.reserve_exact(old.len() - self.garbage);
        self.table = HashTable::with_capacity(self.table.len());
        self.garbage = 0;
        let mut offset = 0;
        while offset < old.len() {
            let size = size_at(&old, offset);
            if old[offset] & LIVE != 0 {
                let moved = self.buffer.len();
                self.buffer.extend_from_slice(&old[offset..offset + size]);
                let hash = self.hasher.hash_one(key_at(&old, offset));
                self.link(moved, KeyHash(hash));
            }
            offset += size;
        }
    }
}

fn flags(degraded: bool) -> u8 {
    LIVE | SEEN | if degraded { DEGRADED } else { 0 }
}

fn size_at(buffer: &[u8], offset: usize) -> usize {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&buffer[offset + 9..offset + HEADER]);
    HEADER + u32::from_le_bytes(bytes) as usize
}

fn key_at(buffer: &[u8], offset: usize) -> &[u8] {
    &buffer[offset + HEADER..offset + size_at(buffer, offset)]
}
