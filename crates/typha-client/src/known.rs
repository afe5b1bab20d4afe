//! Which entries the consumer has been told, as small as that can be kept: a path, a fingerprint of the value, and whether this
//! snapshot has it. Every node follows a hundred thousand entries, so one is a short run of bytes in a common buffer, found by
//! its hash, and not a text of its own in a map. It keeps no values.

use hashbrown::HashTable;
use std::hash::{BuildHasher as _, RandomState};

/// Bytes before the path: flags, fingerprint, length.
const HEADER: usize = 1 + 8 + 4;
const LIVE: u8 = 1;
const SEEN: u8 = 2;
/// Buffers below this size are not worth tidying.
const SMALL: usize = 64 << 10;

/// What an entry is beside what was known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    /// It was told with the same value.
    Same,
    /// It was not told before, or with another value.
    News,
}

/// The entries.
#[derive(Default)]
pub(crate) struct Known {
    buffer: Vec<u8>,
    table: HashTable<usize>,
    hasher: RandomState,
    /// How many bytes are of entries that are gone.
    garbage: usize,
}

impl Known {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// A new snapshot begins: nothing of it has been seen.
    pub(crate) fn begin(&mut self) {
        let mut offset = 0;
        while offset < self.buffer.len() {
            self.buffer[offset] &= !SEEN;
            offset += size_at(&self.buffer, offset);
        }
    }

    /// An entry is there with this value.
    pub(crate) fn note(&mut self, path: &str, value: &[u8]) -> Noted {
        let fingerprint = self.hasher.hash_one(value).to_le_bytes();
        let hash = self.hasher.hash_one(path.as_bytes());
        let buffer = &mut self.buffer;
        if let Some(&offset) = self.table.find(hash, |offset| path_at(buffer, *offset) == path.as_bytes()) {
            buffer[offset] |= SEEN;
            let stored = &mut buffer[offset + 1..offset + 9];
            if *stored == fingerprint {
                return Noted::Same;
            }
            stored.copy_from_slice(&fingerprint);
            return Noted::News;
        }
        let offset = buffer.len();
        let length = u32::try_from(path.len()).unwrap_or(u32::MAX);
        buffer.push(LIVE | SEEN);
        buffer.extend_from_slice(&fingerprint);
        buffer.extend_from_slice(&length.to_le_bytes());
        buffer.extend_from_slice(&path.as_bytes()[..length as usize]);
        let (buffer, hasher) = (&self.buffer, &self.hasher);
        self.table.insert_unique(hash, offset, |offset| hasher.hash_one(path_at(buffer, *offset)));
        Noted::News
    }

    /// An entry is gone; whether it was there.
    pub(crate) fn remove(&mut self, path: &str) -> bool {
        let (buffer, hash) = (&mut self.buffer, self.hasher.hash_one(path.as_bytes()));
        let found = self.table.find_entry(hash, |offset| path_at(buffer, *offset) == path.as_bytes());
        let Ok(entry) = found else { return false };
        let (offset, _) = entry.remove();
        buffer[offset] &= !LIVE;
        self.garbage += size_at(buffer, offset);
        self.tidy();
        true
    }

    /// The entries that have not been seen since the snapshot began, in the order of their paths.
    pub(crate) fn missing(&self) -> Vec<String> {
        let missing = self.table.iter().filter(|offset| self.buffer[**offset] & SEEN == 0);
        let text = |offset: &usize| String::from_utf8_lossy(path_at(&self.buffer, *offset)).into_owned();
        let mut missing: Vec<String> = missing.map(text).collect();
        missing.sort_unstable();
        missing
    }

    /// Closes the gaps once they are the larger part.
    fn tidy(&mut self) {
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
                let (buffer, hasher) = (&self.buffer, &self.hasher);
                let hash = hasher.hash_one(path_at(buffer, moved));
                self.table.insert_unique(hash, moved, |offset| hasher.hash_one(path_at(buffer, *offset)));
            }
            offset += size;
        }
    }
}

fn size_at(buffer: &[u8], offset: usize) -> usize {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&buffer[offset + 9..offset + HEADER]);
    HEADER + u32::from_le_bytes(bytes) as usize
}

fn path_at(buffer: &[u8], offset: usize) -> &[u8] {
    &buffer[offset + HEADER..offset + size_at(buffer, offset)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Against an ordinary map, with paths so long that gaps are closed now and then.
    fn check(steps: Vec<(u16, u8)>) -> Result<(), TestCaseError> {
        let mut known = Known::default();
        let mut model = BTreeMap::<String, (Vec<u8>, bool)>::new();
        for (number, what) in steps {
            let path = format!("/calico/{number:0>200}");
            match what {
                0 => {
                    known.begin();
                    model.values_mut().for_each(|(_, seen)| *seen = false);
                }
                1..=99 => prop_assert_eq!(known.remove(&path), model.remove(&path).is_some()),
                _ => {
                    let value = vec![what / 100];
                    let before = model.insert(path.clone(), (value.clone(), true));
                    let same = before.is_some_and(|(before, _)| before == value);
                    let expected = if same { Noted::Same } else { Noted::News };
                    prop_assert_eq!(known.note(&path, &value), expected);
                }
            }
            prop_assert_eq!(known.len(), model.len());
        }
        let missing: Vec<String> =
            model.iter().filter(|(_, (_, seen))| !seen).map(|(path, _)| path.clone()).collect();
        prop_assert_eq!(known.missing(), missing);
        Ok(())
    }

    proptest! {
        #[test]
        fn it_is_a_map(steps in proptest::collection::vec((0u16..700, 0u8..=255), 0..3000)) {
            check(steps)?;
        }
    }

    #[test]
    fn an_entry_takes_little_more_than_its_path_and_gaps_are_closed() {
        let mut known = Known::default();
        let path = |number| format!("/calico/v1/host/node-{number:06}/workload/k8s/shop/endpoint/eth0");
        for number in 0..100_000 {
            known.note(&path(number), b"1");
        }
        let each = (known.buffer.len() + known.table.allocation_size()) / 100_000;
        assert!(each < path(0).len() + 26, "{each} bytes");
        for number in 0..90_000 {
            assert!(known.remove(&path(number)));
        }
        assert!(known.buffer.len() < 25_000 * (path(0).len() + HEADER), "{}", known.buffer.len());
        assert!((90_000..100_000).all(|number| known.note(&path(number), b"1") == Noted::Same));
    }
}
