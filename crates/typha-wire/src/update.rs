//! One key with its value in the form in which the server keeps and sends it: encoded once, the same bytes in a
//! snapshot and, except for one byte, in a message of changes.

use crate::messages::{Revision, WireUpdate};
use crate::outgoing::put_update;
use gob::number::split_uint;
use std::cell::RefCell;
use std::sync::Arc;

/// The largest buffer kept between encodings.
const LARGEST_SCRATCH: usize = 64 << 10;

thread_local! {
    // The result is allocated once, with its exact size: trimming a hundred thousand buffers would be work for the
    // allocator.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The kind of change to a key, as a number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Change {
    /// The key did not exist before.
    New = 1,
    /// The key existed before.
    Updated = 2,
    /// The key is gone.
    Deleted = 3,
}

/// An encoded update. Its last two bytes are the kind of change and the end of the struct. Clones share the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct EncodedUpdate(Arc<[u8]>);

impl EncodedUpdate {
    /// Encodes a key. An empty value is sent as none: Go's format requires it, and clients treat it as absent.
    #[must_use]
    pub fn new(path: &str, value: Option<&[u8]>, revision: &str, v3_resource_version: &str) -> Self {
        let update = WireUpdate {
            key: path.as_bytes(),
            value: Some(value.unwrap_or_default()),
            revision: Revision::Text(revision.as_bytes()),
            v3_resource_version: v3_resource_version.as_bytes(),
            ttl: 0,
            update_type: u64::from(Change::New as u8),
        };
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.clear();
            put_update(&update, scratch);
            let bytes = scratch[..].into();
            if scratch.capacity() > LARGEST_SCRATCH {
                *scratch = Vec::new();
            }
            Self(bytes)
        })
    }

    /// The path.
    #[must_use]
    #[inline]
    pub fn path(&self) -> &[u8] {
        field(&self.0, 1).map(|(path, _)| path).unwrap_or_default()
    }

    /// The value; empty for none.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        let value = match field(&self.0, 1) {
            Some((_, rest)) => field(rest, 1),
            None => field(&self.0, 2),
        };
        value.map(|(value, _)| value).unwrap_or_default()
    }

    /// Appends it as an element of a message.
    pub fn put(&self, change: Change, out: &mut Vec<u8>) {
        let body = self.0.len() - 2;
        out.extend_from_slice(&self.0[..body]);
        out.extend_from_slice(&[change as u8, 0]);
    }

    /// The size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.len()
    }
}

/// The bytes of a field whose number is `delta` greater than that of the previous one, and the rest; `None` if another
/// field is next.
#[inline]
fn field(input: &[u8], delta: u8) -> Option<(&[u8], &[u8])> {
    let (_, rest) = input.split_first().filter(|(next, _)| **next == delta)?;
    let (length, rest) = split_uint(rest).ok()??;
    rest.split_at_checked(usize::try_from(length).ok()?)
}

impl std::fmt::Debug for EncodedUpdate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        f.debug_struct("EncodedUpdate")
            .field("path", &text(self.path()))
            .field("value", &text(self.value()))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_can_be_read_back() {
        for (path, value) in [
            ("/calico/v1/Ready", "true"),
            ("/a", ""),
            ("", ""),
            ("", "x"),
            (&*"x".repeat(300), &*"y".repeat(70_000)),
        ] {
            let update = EncodedUpdate::new(path, Some(value.as_bytes()), "17", "");
            assert_eq!(update.path(), path.as_bytes());
            assert_eq!(update.value(), value.as_bytes());
            let mut out = Vec::new();
            update.put(Change::Updated, &mut out);
            assert_eq!(out.len(), update.size());
            assert_eq!(out[out.len() - 2..], [2, 0]);
        }
    }
}
