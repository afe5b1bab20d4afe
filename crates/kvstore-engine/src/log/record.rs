//! Records: the contents of a commit. A record is `length u32 | crc32 u32 | tag u8 | fields`, all little-endian, and
//! can be decoded from its bytes alone. Decoding trusts nothing: lengths are checked before they are used.

use bytes::Bytes;

use crate::types::KeyValue;

/// Bytes before the tag.
const PREFIX: usize = PREFIX_BYTES as usize;
const PREFIX_BYTES: u32 = 8;

/// One change, as stored in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A key was written.
    Put {
        /// Position within its revision.
        sub: u32,
        /// The key after the write; its `mod_revision` is the revision.
        kv: KeyValue,
    },
    /// A key was deleted.
    Delete {
        /// The revision.
        revision: i64,
        /// Position within the revision.
        sub: u32,
        /// The key.
        key: Bytes,
    },
    /// First record of a rewritten file: the state that the other records do not hold.
    State {
        /// The store's revision.
        revision: i64,
        /// The last compaction, 0 for none.
        compacted: i64,
    },
    /// A compaction was requested.
    Compact {
        /// The revision of the compaction.
        revision: i64,
    },
    /// A lease was granted.
    LeaseGrant {
        /// The lease's id.
        id: i64,
        /// The granted time in seconds.
        ttl: i64,
    },
    /// A lease ended; the deletion of its keys is in the same commit.
    LeaseRevoke {
        /// The lease's id.
        id: i64,
    },
    /// The quota alarm was raised or cleared.
    Alarm {
        /// Whether it is on.
        active: bool,
    },
}

/// Why bytes are not a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The bytes end before the record does.
    #[error("a record is cut short")]
    Short,
    /// The checksum does not match.
    #[error("a record fails its checksum")]
    Checksum,
    /// The checksum matches but the contents are invalid.
    #[error("a record has an unknown layout")]
    Layout,
}

const PUT: u8 = 1;
const DELETE: u8 = 2;
const STATE: u8 = 3;
const COMPACT: u8 = 4;
const LEASE_GRANT: u8 = 5;
const LEASE_REVOKE: u8 = 6;
const ALARM: u8 = 7;

impl Record {
    /// Appends the record to `out` and returns its length.
    ///
    /// # Panics
    /// If key or value exceed 4 GiB; requests are limited far below that.
    pub fn encode(&self, out: &mut Vec<u8>) -> u32 {
        match self {
            Self::Put { sub, kv } => encode_put(out, *sub, kv),
            Self::Delete { revision, sub, key } => encode_delete(out, *revision, *sub, key),
            Self::State { revision, compacted } => seal(out, STATE, |out| {
                out.extend_from_slice(&revision.to_le_bytes());
                out.extend_from_slice(&compacted.to_le_bytes());
            }),
            Self::Compact { revision } => {
                seal(out, COMPACT, |out| out.extend_from_slice(&revision.to_le_bytes()))
            }
            Self::LeaseGrant { id, ttl } => seal(out, LEASE_GRANT, |out| {
                out.extend_from_slice(&id.to_le_bytes());
                out.extend_from_slice(&ttl.to_le_bytes());
            }),
            Self::LeaseRevoke { id } => {
                seal(out, LEASE_REVOKE, |out| out.extend_from_slice(&id.to_le_bytes()))
            }
            Self::Alarm { active } => seal(out, ALARM, |out| out.push(u8::from(*active))),
        }
    }

    /// Decodes the record at the start of `bytes`; keys and values are slices of it, not copies.
    /// Returns the record and its length.
    ///
    /// # Errors
    /// When the bytes are not a whole, intact record.
    pub fn decode(bytes: &Bytes) -> Result<(Self, usize), RecordError> {
        let prefix = bytes.get(..PREFIX).ok_or(RecordError::Short)?;
        let (length, crc) = prefix.split_at(4);
        let length = u32::from_le_bytes(length.try_into().map_err(|_| RecordError::Short)?) as usize;
        let crc = u32::from_le_bytes(crc.try_into().map_err(|_| RecordError::Short)?);
        let end = PREFIX.checked_add(length).ok_or(RecordError::Short)?;
        let body = bytes.get(PREFIX..end).ok_or(RecordError::Short)?;
        if crc32fast::hash(body) != crc {
            return Err(RecordError::Checksum);
        }
        let mut fields = Fields { bytes, at: PREFIX, end };
        let record = match fields.u8()? {
            PUT => {
                let mod_revision = fields.i64()?;
                let sub = fields.u32()?;
                let create_revision = fields.i64()?;
                let version = fields.i64()?;
                let lease = fields.i64()?;
                let key = fields.blob()?;
                let value = fields.blob()?;
                Self::Put { sub, kv: KeyValue { key, create_revision, mod_revision, version, value, lease } }
            }
            DELETE => Self::Delete { revision: fields.i64()?, sub: fields.u32()?, key: fields.blob()? },
            STATE => Self::State { revision: fields.i64()?, compacted: fields.i64()? },
            COMPACT => Self::Compact { revision: fields.i64()? },
            LEASE_GRANT => Self::LeaseGrant { id: fields.i64()?, ttl: fields.i64()? },
            LEASE_REVOKE => Self::LeaseRevoke { id: fields.i64()? },
            ALARM => Self::Alarm { active: fields.u8()? != 0 },
            _ => return Err(RecordError::Layout),
        };
        if fields.at == end { Ok((record, end)) } else { Err(RecordError::Layout) }
    }
}

/// [`Record::Put`] without building one.
pub(crate) fn encode_put(out: &mut Vec<u8>, sub: u32, kv: &KeyValue) -> u32 {
    seal(out, PUT, |out| {
        out.extend_from_slice(&kv.mod_revision.to_le_bytes());
        out.extend_from_slice(&sub.to_le_bytes());
        out.extend_from_slice(&kv.create_revision.to_le_bytes());
        out.extend_from_slice(&kv.version.to_le_bytes());
        out.extend_from_slice(&kv.lease.to_le_bytes());
        blob(out, &kv.key);
        blob(out, &kv.value);
    })
}

/// [`Record::Delete`] without building one.
pub(crate) fn encode_delete(out: &mut Vec<u8>, revision: i64, sub: u32, key: &[u8]) -> u32 {
    seal(out, DELETE, |out| {
        out.extend_from_slice(&revision.to_le_bytes());
        out.extend_from_slice(&sub.to_le_bytes());
        blob(out, key);
    })
}

fn blob(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("requests are limited far below 4 GiB");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Writes tag and fields, then the length and checksum before them.
fn seal(out: &mut Vec<u8>, tag: u8, fields: impl FnOnce(&mut Vec<u8>)) -> u32 {
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX]);
    out.push(tag);
    fields(out);
    let body = &out[start + PREFIX..];
    let length = u32::try_from(body.len()).expect("requests are limited far below 4 GiB");
    let crc = crc32fast::hash(body);
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    out[start + 4..start + PREFIX].copy_from_slice(&crc.to_le_bytes());
    length + PREFIX_BYTES
}

/// A bounds-checked reader over the body.
struct Fields<'a> {
    bytes: &'a Bytes,
    at: usize,
    end: usize,
}

impl Fields<'_> {
    fn take(&mut self, length: usize) -> Result<std::ops::Range<usize>, RecordError> {
        let next = self.at.checked_add(length).filter(|&next| next <= self.end).ok_or(RecordError::Layout)?;
        let range = self.at..next;
        self.at = next;
        Ok(range)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let range = self.take(N)?;
        self.bytes[range].try_into().map_err(|_| RecordError::Layout)
    }

    fn u8(&mut self) -> Result<u8, RecordError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, RecordError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn i64(&mut self) -> Result<i64, RecordError> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    fn blob(&mut self) -> Result<Bytes, RecordError> {
        let length = self.u32()? as usize;
        let range = self.take(length)?;
        Ok(self.bytes.slice(range))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Record> {
        let kv = KeyValue {
            key: Bytes::from_static(b"k"),
            create_revision: 2,
            mod_revision: 9,
            version: 3,
            value: Bytes::from_static(b"value"),
            lease: -7,
        };
        vec![
            Record::Put { sub: 4, kv },
            Record::Put { sub: 0, kv: KeyValue::default() },
            Record::Delete { revision: 8, sub: 1, key: Bytes::from_static(b"\0\xff") },
            Record::State { revision: i64::MAX, compacted: 0 },
            Record::Compact { revision: 5 },
            Record::LeaseGrant { id: 1, ttl: 60 },
            Record::LeaseRevoke { id: 1 },
            Record::Alarm { active: true },
        ]
    }

    #[test]
    fn records_round_trip_and_flipped_bits_are_detected() {
        for record in samples() {
            let mut out = Vec::new();
            let length = record.encode(&mut out);
            assert_eq!(length as usize, out.len());
            let bytes = Bytes::from(out.clone());
            assert_eq!(Record::decode(&bytes), Ok((record, out.len())));
            for cut in 0..out.len() {
                assert!(Record::decode(&bytes.slice(..cut)).is_err(), "cut at {cut}");
            }
            for bit in 0..out.len() * 8 {
                let mut broken = out.clone();
                broken[bit / 8] ^= 1 << (bit % 8);
                assert!(Record::decode(&broken.into()).is_err(), "bit {bit}");
            }
        }
    }
}
