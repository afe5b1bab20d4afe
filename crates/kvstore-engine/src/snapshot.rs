//! Snapshots in the form that etcd's tools expect: the file's bytes, padded to a multiple of 512, then a SHA-256 of
//! everything before. The server sends them; here are the padding rule and the reverse.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use sha2::{Digest, Sha256};

use super::error::OpenError;

/// Snapshots are padded to a multiple of this before the digest.
pub const SNAPSHOT_BLOCK: u64 = 512;
/// Length of the digest at the end.
pub const SNAPSHOT_DIGEST: u64 = 32;

/// Checks the digest of `snapshot` and writes what it covers to `target`.
pub(super) fn unpack(snapshot: &Path, target: &Path) -> Result<(), OpenError> {
    let bad = |reason: &str| OpenError::NotAStore { path: snapshot.to_owned(), reason: reason.to_owned() };
    let mut source = File::open(snapshot).map_err(OpenError::io("open", snapshot))?;
    let size = source.metadata().map_err(OpenError::io("examine", snapshot))?.len();
    if size % SNAPSHOT_BLOCK != SNAPSHOT_DIGEST {
        return Err(bad("it does not end in a digest; was it cut short?"));
    }
    let mut copy = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(target)
        .map_err(OpenError::io("create", target))?;
    let mut left = size - SNAPSHOT_DIGEST;
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    while left > 0 {
        let length = usize::try_from(left.min(buffer.len() as u64)).unwrap_or(buffer.len());
        let part = &mut buffer[..length];
        source.read_exact(part).map_err(OpenError::io("read", snapshot))?;
        digest.update(&*part);
        copy.write_all(part).map_err(OpenError::io("write", target))?;
        left -= length as u64;
    }
    let mut stored = Vec::new();
    source.take(SNAPSHOT_DIGEST).read_to_end(&mut stored).map_err(OpenError::io("read", snapshot))?;
    if stored[..] != digest.finalize()[..] {
        return Err(bad("its digest does not match its contents"));
    }
    copy.sync_all().map_err(OpenError::io("sync", target))
}

/// Writes `file` as a snapshot.
///
/// # Errors
/// Those of reading `file` and of `sink`, which gets the pieces and the number of bytes remaining after each.
pub fn pack<E: From<io::Error>>(
    mut file: &File,
    mut sink: impl FnMut(Vec<u8>, u64) -> Result<(), E>,
) -> Result<(), E> {
    use std::io::Seek;
    file.rewind()?;
    let size = file.metadata()?.len();
    let total = size.next_multiple_of(SNAPSHOT_BLOCK);
    let mut digest = Sha256::new();
    let mut sent = 0;
    while sent < total {
        let length = usize::try_from((total - sent).min(64 << 10)).unwrap_or(64 << 10);
        let mut part = vec![0; length];
        let stored = usize::try_from((size - sent.min(size)).min(length as u64)).unwrap_or(length);
        file.read_exact(&mut part[..stored])?;
        digest.update(&part);
        sent += length as u64;
        sink(part, total - sent + SNAPSHOT_DIGEST)?;
    }
    sink(digest.finalize().to_vec(), 0)
}
