//! Snappy's framing format: an identifier, then chunks that each decompress to at most 64 KiB.
//!
//! A chunk does not depend on earlier ones. So a chunk compressed once can be sent to every client.

use bytes::BytesMut;

mod checksum;

/// The largest decompressed size of a chunk, in bytes.
pub const LARGEST_CHUNK: usize = 65_536;
/// The identifier that a stream begins with.
pub const IDENTIFIER: &[u8; 10] = b"\xff\x06\0\0sNaPpY";

const COMPRESSED: u8 = 0x00;
const STORED: u8 = 0x01;
const IDENTIFIES: u8 = 0xff;
/// Chunk types from here on may be skipped.
const FIRST_SKIPPABLE: u8 = 0x80;
/// The longest body of a chunk: 64 KiB of incompressible data, with the checksum.
const LONGEST_BODY: usize = LARGEST_CHUNK + LARGEST_CHUNK / 6 + 32 + 4;

/// Why a compressed stream is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It does not begin with the identifier.
    #[error("the stream does not begin with snappy's identifier")]
    NoIdentifier,
    /// A chunk of a type that must be understood.
    #[error("a chunk has the unknown type {0:#04x}")]
    UnknownChunk(u8),
    /// A chunk that is too long, too short, or decompresses to more than allowed.
    #[error("a chunk has a wrong length")]
    Length,
    /// The body is not compressed data.
    #[error("a chunk cannot be decompressed")]
    Data,
    /// The checksum does not match the decompressed data.
    #[error("a chunk has a wrong checksum")]
    Checksum,
}

/// Decompresses streams.
#[derive(Debug, Default)]
pub struct Frames {
    buffer: BytesMut,
    identified: bool,
    skip: usize,
}

impl Frames {
    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The number of bytes that wait for the rest of their chunk.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.buffer.len()
    }

    /// Appends the decompressed next chunk. Returns false when it has not arrived completely.
    ///
    /// # Errors
    /// When the stream is malformed.
    pub fn next(&mut self, out: &mut BytesMut) -> Result<bool, FrameError> {
        loop {
            if self.skip > 0 {
                let passed = self.skip.min(self.buffer.len());
                let _ = self.buffer.split_to(passed);
                self.skip -= passed;
                if self.skip > 0 {
                    return Ok(false);
                }
            }
            let Some(&[kind, low, middle, high]) = self.buffer.first_chunk() else { return Ok(false) };
            if !self.identified && kind != IDENTIFIES {
                return Err(FrameError::NoIdentifier);
            }
            let length = usize::from(low) | usize::from(middle) << 8 | usize::from(high) << 16;
            match kind {
                COMPRESSED | STORED if (4..=LONGEST_BODY).contains(&length) => {}
                IDENTIFIES if length == IDENTIFIER.len() - 4 => {}
                FIRST_SKIPPABLE..IDENTIFIES => {
                    let _ = self.buffer.split_to(4);
                    self.skip = length;
                    continue;
                }
                COMPRESSED | STORED | IDENTIFIES => return Err(FrameError::Length),
                other => return Err(FrameError::UnknownChunk(other)),
            }
            if self.buffer.len() < 4 + length {
                return Ok(false);
            }
            let chunk = self.buffer.split_to(4 + length);
            if kind == IDENTIFIES {
                if chunk[..] != IDENTIFIER[..] {
                    return Err(FrameError::NoIdentifier);
                }
                self.identified = true;
                continue;
            }
            let (checksum, body) = chunk[4..].split_first_chunk().ok_or(FrameError::Length)?;
            let start = out.len();
            if kind == STORED {
                if body.len() > LARGEST_CHUNK {
                    return Err(FrameError::Length);
                }
                out.extend_from_slice(body);
            } else {
                decompress(body, out)?;
            }
            if checksum::masked(&out[start..]) != u32::from_le_bytes(*checksum) {
                return Err(FrameError::Checksum);
            }
            return Ok(true);
        }
    }
}

fn decompress(body: &[u8], out: &mut BytesMut) -> Result<(), FrameError> {
    let length = snap::raw::decompress_len(body).map_err(|_| FrameError::Data)?;
    if length > LARGEST_CHUNK {
        return Err(FrameError::Length);
    }
    let start = out.len();
    out.resize(start + length, 0);
    let written =
        snap::raw::Decoder::new().decompress(body, &mut out[start..]).map_err(|_| FrameError::Data)?;
    if written == length { Ok(()) } else { Err(FrameError::Data) }
}

/// Compresses data into chunks.
pub struct Compressor {
    encoder: snap::raw::Encoder,
    scratch: Vec<u8>,
}

impl Default for Compressor {
    fn default() -> Self {
        Self::new()
    }
}

impl Compressor {
    /// Creates a compressor.
    #[must_use]
    pub fn new() -> Self {
        Self { encoder: snap::raw::Encoder::new(), scratch: Vec::new() }
    }

    /// Appends chunks for `bytes`. Data that hardly shrinks is stored uncompressed.
    pub fn put(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for piece in bytes.chunks(LARGEST_CHUNK) {
            self.scratch.resize(snap::raw::max_compress_len(piece.len()), 0);
            let compressed = self.encoder.compress(piece, &mut self.scratch).ok();
            let (kind, body) = match compressed {
                Some(length) if length < piece.len() - piece.len() / 8 => {
                    (COMPRESSED, &self.scratch[..length])
                }
                _ => (STORED, piece),
            };
            let length = u32::try_from(body.len() + 4).unwrap_or(0).to_le_bytes();
            out.extend_from_slice(&[kind, length[0], length[1], length[2]]);
            out.extend_from_slice(&checksum::masked(piece).to_le_bytes());
            out.extend_from_slice(body);
        }
    }
}

/// The chunks of `bytes`, without the identifier.
#[must_use]
pub fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Compressor::new().put(bytes, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decompressed(stream: &[u8], step: usize) -> Result<Vec<u8>, FrameError> {
        let (mut frames, mut out) = (Frames::default(), BytesMut::new());
        for piece in stream.chunks(step) {
            frames.push(piece);
            while frames.next(&mut out)? {}
        }
        Ok(out.to_vec())
    }

    #[test]
    fn there_and_back() {
        let text: Vec<u8> = (0..40_000u32).flat_map(|number| (number / 7).to_le_bytes()).collect();
        let noise: Vec<u8> =
            (0..90_000u64).map(|number| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
        for bytes in [vec![], b"x".to_vec(), text, noise] {
            let mut stream = IDENTIFIER.to_vec();
            stream.extend(compressed(&bytes));
            for step in [1, 100, 1 << 20] {
                assert_eq!(decompressed(&stream, step).as_ref(), Ok(&bytes));
            }
        }
    }

    #[test]
    fn streams_that_are_refused() {
        let good = [&IDENTIFIER[..], &compressed(b"hello hello hello hello hello")].concat();
        assert!(decompressed(&good, 7).is_ok());
        let mut wrong_sum = good.clone();
        wrong_sum[14] ^= 1;
        let mut bomb = IDENTIFIER.to_vec();
        bomb.extend([0, 9, 0, 0, 1, 2, 3, 4, 0x80, 0x80, 0x80, 0x80, 0x08]);
        let long = vec![7; LARGEST_CHUNK + 1];
        let length = u32::try_from(long.len() + 4).unwrap().to_le_bytes();
        let head = [STORED, length[0], length[1], length[2]];
        let stored = [&IDENTIFIER[..], &head, &checksum::masked(&long).to_le_bytes(), &long].concat();
        for (stream, error) in [
            (stored, FrameError::Length),
            (good[10..].to_vec(), FrameError::NoIdentifier),
            (wrong_sum, FrameError::Checksum),
            (bomb, FrameError::Length),
            ([&IDENTIFIER[..], &[0, 255, 255, 255]].concat(), FrameError::Length),
            ([&IDENTIFIER[..], &[1, 3, 0, 0]].concat(), FrameError::Length),
            ([&IDENTIFIER[..], &[2, 8, 0, 0]].concat(), FrameError::UnknownChunk(2)),
        ] {
            assert_eq!(decompressed(&stream, 3), Err(error));
        }
        let padded = [&IDENTIFIER[..], &[0xfe, 3, 0, 0, 9, 9, 9], &good[10..], &IDENTIFIER[..]].concat();
        assert_eq!(decompressed(&padded, 2), decompressed(&good, 2));
    }
}
