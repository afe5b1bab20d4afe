//! The hash of the store's contents, computed exactly as etcd does, so that two stores with the same history can be
//! compared whatever program keeps them. Not used for the file's integrity.

use super::{
    error::Error,
    index::{Entry, KeyRange},
    log::Record,
    read::{CHUNK, Selection, read},
    shared::Shared,
    types::KeyValue,
};

/// The hash up to a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashKv {
    /// The hash.
    pub hash: u32,
    /// The store's current revision.
    pub revision: i64,
    /// The revision that was hashed.
    pub hash_revision: i64,
    /// The last compaction, 0 for none.
    pub compact_revision: i64,
}

/// Hashes the history up to `revision` (0 for now).
pub(super) fn hash(shared: &Shared, revision: i64) -> Result<HashKv, Error> {
    let view = shared.view();
    let at = view.resolve(revision)?;
    let _pin = shared.pins.pin(at);
    let compact_revision = read(&shared.index).compacted;
    if (revision > 0 && revision <= compact_revision) || at < compact_revision {
        return Err(Error::Compacted { compact_revision });
    }
    // Hashing goes by revision, so the walk must end before reading starts; files seen on the way are kept open.
    let mut files = read(&shared.index).files.clone();
    let mut entries: Vec<Entry> = Vec::new();
    // Kept by the compaction but not current at `at`. etcd includes them only when nothing at all is current.
    let mut replaced: Vec<Entry> = Vec::new();
    let mut alive = false;
    let everything = KeyRange::new(&[], b"\0");
    let mut after: Option<Box<[u8]>> = None;
    loop {
        let index = read(&shared.index);
        let last = index.walk(&everything, after.as_deref(), CHUNK, |_, known| {
            let until = known.entries.partition_point(|entry| entry.revision <= at);
            let current = known.entries[..until].last().filter(|entry| !entry.deleted());
            alive |= current.is_some();
            for entry in &known.entries[..until] {
                if entry.revision > compact_revision || current.is_some_and(|last| last == entry) {
                    entries.push(*entry);
                } else if !entry.deleted() {
                    replaced.push(*entry);
                }
            }
        });
        for (kept, seen) in files.iter_mut().zip(&index.files) {
            *kept = kept.take().or_else(|| seen.clone());
        }
        after = last.map(Box::from);
        if after.is_none() {
            break;
        }
    }
    if !alive {
        entries.append(&mut replaced);
    }
    entries.sort_unstable_by_key(Entry::id);
    let mut crc = Castagnoli::new();
    crc.update(b"key");
    let mut bytes = Vec::new();
    for chunk in entries.chunks(CHUNK) {
        let selection = Selection { files: files.clone(), entries: chunk.to_vec() };
        for record in selection.load(None)? {
            bytes.clear();
            match &record {
                Record::Put { sub, kv } => {
                    revision_bytes(&mut bytes, kv.mod_revision, *sub);
                    message(&mut bytes, kv);
                }
                Record::Delete { revision, sub, key } => {
                    revision_bytes(&mut bytes, *revision, *sub);
                    bytes.push(b't');
                    message(&mut bytes, &KeyValue { key: key.clone(), ..KeyValue::default() });
                }
                _ => {}
            }
            crc.update(&bytes);
        }
    }
    Ok(HashKv { hash: crc.finish(), revision: view.revision, hash_revision: at, compact_revision })
}

fn revision_bytes(out: &mut Vec<u8>, revision: i64, sub: u32) {
    out.extend_from_slice(&revision.to_be_bytes());
    out.push(b'_');
    out.extend_from_slice(&i64::from(sub).to_be_bytes());
}

/// etcd's stored form of a key: the protobuf message without empty and zero fields.
fn message(out: &mut Vec<u8>, kv: &KeyValue) {
    let varint = |out: &mut Vec<u8>, mut value: u64| {
        while value >= 0x80 {
            out.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        out.push(value.to_le_bytes()[0]);
    };
    let blob = |out: &mut Vec<u8>, tag: u8, bytes: &[u8]| {
        if !bytes.is_empty() {
            out.push(tag);
            varint(out, bytes.len() as u64);
            out.extend_from_slice(bytes);
        }
    };
    let number = |out: &mut Vec<u8>, tag: u8, value: i64| {
        if value != 0 {
            out.push(tag);
            varint(out, value.cast_unsigned());
        }
    };
    blob(out, 0x0a, &kv.key);
    number(out, 0x10, kv.create_revision);
    number(out, 0x18, kv.mod_revision);
    number(out, 0x20, kv.version);
    blob(out, 0x2a, &kv.value);
    number(out, 0x30, kv.lease);
}

/// CRC-32C. Table-driven; speed does not matter here.
struct Castagnoli(u32);

impl Castagnoli {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut byte = 0_u32;
        while byte < 256 {
            let mut value = byte;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 { (value >> 1) ^ 0x82f6_3b78 } else { value >> 1 };
                bit += 1;
            }
            table[byte as usize] = value;
            byte += 1;
        }
        table
    };

    fn new() -> Self {
        Self(!0)
    }

    fn update(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            let low = (self.0 & 0xff) as usize ^ byte as usize;
            self.0 = Self::TABLE[low] ^ (self.0 >> 8);
        }
    }

    fn finish(self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_matches_the_published_check_value() {
        let mut crc = Castagnoli::new();
        crc.update(b"1234");
        crc.update(b"56789");
        assert_eq!(crc.finish(), 0xe306_9283);
    }
}
