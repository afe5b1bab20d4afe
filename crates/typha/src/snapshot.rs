//! The entire contents of a feed, as the bytes that a new client gets. Created once for all clients that connect while
//! it is fresh.

use crate::trail::Crumb;
use bytes::Bytes;
use rustix::fs::{MemfdFlags, SealFlags};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use typha_wire::outgoing::{STREAM_HEAD, kvs_segment, segment};
use typha_wire::schema;
use typha_wire::snappy::{Compressor, IDENTIFIER, LARGEST_CHUNK};
use typha_wire::{Change, Compression, EncodedUpdate, Message};

/// Maximum number of entries in a message of a compressed snapshot.
const COMPRESSED_MESSAGE: usize = 1000;
/// The approximate number of bytes written at once.
const PIECE: usize = 256 << 10;

/// A snapshot as bytes.
#[derive(Debug)]
pub struct Snapshot {
    /// The step after which it was created: sending continues from there.
    pub crumb: Arc<Crumb>,
    /// When it was created.
    pub time: Instant,
    /// The bytes, in pieces.
    pub pieces: Vec<Bytes>,
    /// The number of entries.
    pub entries: usize,
    /// The size before compression, in bytes.
    pub raw_bytes: usize,
    file: OnceLock<Option<OwnedFd>>,
}

impl Snapshot {
    /// Creates a snapshot of these pieces.
    #[must_use]
    pub fn new(
        crumb: Arc<Crumb>,
        time: Instant,
        pieces: Vec<Bytes>,
        entries: usize,
        raw_bytes: usize,
    ) -> Self {
        Self { crumb, time, pieces, entries, raw_bytes, file: OnceLock::new() }
    }

    /// The same bytes as an immutable file in memory. The kernel puts its pages into sockets without copying, whereas
    /// it would copy the pieces once for each client and hold the copies until the client has read them. Created for
    /// the first client that can use it, which takes a millisecond for some MiB; `None` where the kernel has no such
    /// files.
    pub fn file(&self) -> Option<&OwnedFd> {
        let make = || {
            let made = sealed(&self.pieces);
            if let Err(error) = &made {
                tracing::debug!(%error, "there is no file in memory for a snapshot; it is sent in pieces");
            }
            made.ok()
        };
        self.file.get_or_init(make).as_ref()
    }

    /// The number of bytes to send.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }
}

/// A whole compressed stream: definitions, entries, and the final message.
#[must_use]
pub fn compressed(crumb: Arc<Crumb>, entries: &[EncodedUpdate], time: Instant) -> Snapshot {
    let mut writer = Writer { out: IDENTIFIER.to_vec(), compressor: Compressor::new(), ..Writer::default() };
    writer.raw.extend_from_slice(&STREAM_HEAD);
    writer.raw.extend_from_slice(&schema::definitions(&[schema::DECODER_RESTART]));
    for batch in entries.chunks(COMPRESSED_MESSAGE) {
        writer.message(&kvs(batch));
    }
    let end = Message::DecoderRestart {
        message: "End of compressed snapshot.".to_owned(),
        compression: Ok(Compression::Snappy),
    };
    writer.message(&segment(&end));
    writer.finish();
    let Writer { pieces, raw_bytes, .. } = writer;
    Snapshot::new(crumb, time, pieces, entries.len(), raw_bytes)
}

/// Messages for a stream that already has all definitions.
#[must_use]
pub(crate) fn plain(crumb: Arc<Crumb>, entries: &[EncodedUpdate], largest: usize, time: Instant) -> Snapshot {
    let mut pieces = Vec::new();
    let mut piece = Vec::new();
    for batch in entries.chunks(largest.max(1)) {
        piece.extend(kvs(batch));
        if piece.len() >= PIECE {
            pieces.push(Bytes::from(std::mem::take(&mut piece)));
        }
    }
    if !piece.is_empty() {
        pieces.push(piece.into());
    }
    let raw_bytes = pieces.iter().map(Bytes::len).sum();
    Snapshot::new(crumb, time, pieces, entries.len(), raw_bytes)
}

/// Creates a sealed file in memory with these bytes.
fn sealed(pieces: &[Bytes]) -> std::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(rustix::fs::memfd_create("typha-snapshot", flags)?);
    for piece in pieces {
        file.write_all(piece)?;
    }
    rustix::fs::fcntl_add_seals(
        &file,
        SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL,
    )?;
    Ok(file.into())
}

fn kvs(entries: &[EncodedUpdate]) -> Vec<u8> {
    let mut body = Vec::with_capacity(entries.iter().map(EncodedUpdate::size).sum());
    entries.iter().for_each(|entry| entry.put(Change::New, &mut body));
    kvs_segment(entries.len(), &body)
}

/// Compresses on the fly: a snapshot is never entirely in memory uncompressed.
#[derive(Default)]
struct Writer {
    raw: Vec<u8>,
    out: Vec<u8>,
    pieces: Vec<Bytes>,
    compressor: Compressor,
    raw_bytes: usize,
}

impl Writer {
    fn message(&mut self, bytes: &[u8]) {
        self.raw.extend_from_slice(bytes);
        let whole = self.raw.len() - self.raw.len() % LARGEST_CHUNK;
        self.compress(whole);
    }

    fn finish(&mut self) {
        self.compress(self.raw.len());
        if !self.out.is_empty() {
            self.pieces.push(std::mem::take(&mut self.out).into());
        }
    }

    fn compress(&mut self, length: usize) {
        for chunk in self.raw[..length].chunks(LARGEST_CHUNK) {
            self.compressor.put(chunk, &mut self.out);
            if self.out.len() >= PIECE {
                self.out.shrink_to_fit();
                self.pieces.push(std::mem::take(&mut self.out).into());
            }
        }
        self.raw.drain(..length);
        self.raw_bytes += length;
    }
}
