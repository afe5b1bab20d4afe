//! A filter on what clients send, for one quirk of older Go clients: etcdctl 3.4 puts a whole URL
//! (`http://127.0.0.1:2379`) or a socket's path into HTTP/2's `:authority`, which Go servers accept and our HTTP/2
//! library refuses as malformed. Nothing here uses the authority, so invalid characters are replaced by valid ones of
//! the same length, both plain and in Huffman coding: no other byte of the connection changes, and header compression
//! stays in step.
//!
//! It reads just enough of frames (RFC 9113) and header blocks (RFC 7541) to find that one value. Anything that it does
//! not understand, HTTP/1.1 included, passes through untouched.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER: usize = 9;
const HEADERS: u8 = 1;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// Longer header blocks are passed on unread; the library has a limit of the same size.
const LONGEST_BLOCK: usize = 16 << 10;
/// Read size while a header block arrives in pieces.
const PIECE: usize = 1 << 10;

/// A connection whose incoming bytes are filtered.
pub(super) struct Authority<S> {
    inner: S,
    judge: Judge,
    /// Bytes that could not be judged yet, or were judged while the reader had no room for them.
    held: Vec<u8>,
    /// The number of bytes of `held` that may be passed on.
    released: usize,
    ended: bool,
}

/// The position in the stream of frames.
#[derive(Debug, Clone, Copy)]
enum Judge {
    Preface,
    Frame,
    /// This many bytes of the frame are irrelevant.
    Skip(usize),
    /// Not HTTP/2.
    Pass,
}

impl<S> Authority<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner, judge: Judge::Preface, held: Vec::new(), released: 0, ended: false }
    }
}

impl Judge {
    /// Cleans where necessary; returns how many bytes may be passed on.
    fn judge(&mut self, bytes: &mut [u8]) -> usize {
        let mut released = 0;
        loop {
            let rest = &mut bytes[released..];
            match *self {
                Self::Pass => return bytes.len(),
                Self::Preface => {
                    let known = rest.len().min(PREFACE.len());
                    if rest[..known] != PREFACE[..known] {
                        *self = Self::Pass;
                    } else if known == PREFACE.len() {
                        released += known;
                        *self = Self::Frame;
                    } else {
                        return released;
                    }
                }
                Self::Skip(0) => *self = Self::Frame,
                Self::Skip(left) => {
                    if rest.is_empty() {
                        return released;
                    }
                    let now = left.min(rest.len());
                    released += now;
                    *self = Self::Skip(left - now);
                }
                Self::Frame => {
                    let Some(&[a, b, c, kind, flags, ..]) = rest.get(..FRAME_HEADER) else { return released };
                    let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                    if kind != HEADERS || length > LONGEST_BLOCK {
                        released += FRAME_HEADER;
                        *self = Self::Skip(length);
                        continue;
                    }
                    let Some(payload) = rest.get_mut(FRAME_HEADER..FRAME_HEADER + length) else {
                        return released;
                    };
                    let front = usize::from(flags & PADDED != 0) + if flags & PRIORITY != 0 { 5 } else { 0 };
                    if let Some(block) = payload.get_mut(front..) {
                        clean_block(block);
                    }
                    released += FRAME_HEADER + length;
                }
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Authority<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.released > 0 {
                let length = out.remaining().min(this.released);
                out.put_slice(&this.held[..length]);
                this.held.drain(..length);
                this.released -= length;
                return Poll::Ready(Ok(()));
            }
            if this.ended {
                return Poll::Ready(Ok(()));
            }
            if this.held.is_empty() {
                // The common case: read straight into the reader's buffer and judge there.
                let before = out.filled().len();
                ready!(Pin::new(&mut this.inner).poll_read(cx, out))?;
                let fresh = &mut out.filled_mut()[before..];
                if fresh.is_empty() {
                    this.ended = true;
                    return Poll::Ready(Ok(()));
                }
                let released = this.judge.judge(fresh);
                this.held.extend_from_slice(&fresh[released..]);
                out.set_filled(before + released);
                if released > 0 {
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            // A header block arrives in pieces: collect it.
            let mut chunk = [0; PIECE];
            let mut read = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut this.inner).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                // No more bytes will follow those held back.
                this.ended = true;
                this.released = this.held.len();
            } else {
                this.held.extend_from_slice(read.filled());
                this.released = this.judge.judge(&mut this.held);
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Authority<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

/// Finds the authority in a header block and cleans it; public for the fuzzer through [`super::clean_header_block`].
pub(super) fn clean_block(block: &mut [u8]) {
    let mut at = 0;
    while let Some(&first) = block.get(at) {
        let (prefix, literal) = match first {
            0x80.. => (7, false),
            0x40.. => (6, true),
            0x20.. => (5, false),
            _ => (4, true),
        };
        let Some((name, next)) = integer(block, at, prefix) else { return };
        at = next;
        if !literal {
            continue;
        }
        if name == 0 {
            let Some((_, end)) = string(block, at) else { return };
            at = end;
        }
        let Some((start, end)) = string(block, at) else { return };
        let huffman = block[at] & 0x80 != 0;
        at = end;
        // 1 is `:authority` in the static table.
        if name == 1 {
            let value = &mut block[start..end];
            if huffman { clean_huffman(value) } else { clean_plain(value) }
        }
    }
}

/// Decodes an integer with a prefix of this many bits; returns it and the position after it.
fn integer(block: &[u8], at: usize, prefix: u32) -> Option<(usize, usize)> {
    let mask = (1 << prefix) - 1;
    let mut value = usize::from(*block.get(at)?) & mask;
    let mut at = at + 1;
    if value == mask {
        for shift in [0, 7, 14] {
            let byte = *block.get(at)?;
            at += 1;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some((value, at));
            }
        }
        return None;
    }
    Some((value, at))
}

/// The start and the end of the string at `at`.
fn string(block: &[u8], at: usize) -> Option<(usize, usize)> {
    let (length, start) = integer(block, at, 7)?;
    let end = start.checked_add(length)?;
    (end <= block.len()).then_some((start, end))
}

fn clean_plain(value: &mut [u8]) {
    if let Some(colon) = value.windows(3).position(|three| three == b"://") {
        value[colon] = b'j';
    }
    value.iter_mut().filter(|byte| **byte == b'/').for_each(|byte| *byte = b'-');
}

/// The characters of the shorter Huffman codes, in code order; the longer codes do not occur in addresses.
const CODES: [(usize, usize, &[u8]); 4] = [
    (5, 0, b"012aceiost"),
    (6, 0x14, b" %-./3456789=A_bdfghlmnpru"),
    (7, 0x5c, b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
    (8, 0xf8, b"&*,;XZ"),
];
const COLON: usize = 0x5c;
const J: usize = 0x74;
const SLASH: usize = 0x18;
const DASH: usize = 0x16;

fn clean_huffman(value: &mut [u8]) {
    let mut at = 0;
    let mut symbols: Vec<(usize, u8)> = Vec::new();
    while let Some((symbol, length)) = symbol(value, at) {
        symbols.push((at, symbol));
        at += length;
    }
    if let Some(three) = symbols.windows(3).find(|three| three.iter().map(|it| it.1).eq(*b"://")) {
        flip(value, three[0].0, 7, COLON ^ J);
    }
    for (at, _) in symbols.iter().filter(|(_, symbol)| *symbol == b'/') {
        flip(value, *at, 6, SLASH ^ DASH);
    }
}

/// The character at a bit, and the length of its code; `None` at the end and for codes that are not in the table.
fn symbol(value: &[u8], at: usize) -> Option<(u8, usize)> {
    CODES.iter().find_map(|&(length, first, characters)| {
        let code = bits(value, at, length)?;
        let symbol = characters.get(code.checked_sub(first)?)?;
        Some((*symbol, length))
    })
}

fn bits(value: &[u8], at: usize, length: usize) -> Option<usize> {
    (at..at + length).try_fold(0, |code, bit| {
        let byte = value.get(bit / 8)?;
        Some(code << 1 | usize::from(byte >> (7 - bit % 8) & 1))
    })
}

fn flip(value: &mut [u8], at: usize, length: usize, mask: usize) {
    for bit in 0..length {
        if mask >> (length - 1 - bit) & 1 == 1 {
            value[(at + bit) / 8] ^= 1 << (7 - (at + bit) % 8);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    fn huffman(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        let mut used = 8;
        for byte in text.bytes() {
            let find = |(length, first, set): &(usize, usize, &[u8])| {
                set.iter().position(|it| *it == byte).map(|index| (*length, first + index))
            };
            let (length, code) = CODES.iter().find_map(find).unwrap();
            for bit in (0..length).rev() {
                if used == 8 {
                    out.push(0xff);
                    used = 0;
                }
                if code >> bit & 1 == 0 {
                    *out.last_mut().unwrap() &= !(1 << (7 - used));
                }
                used += 1;
            }
        }
        out
    }

    fn literal(value: &[u8], coded: bool) -> Vec<u8> {
        // Two indexed fields, the authority, then a field with its own name.
        let mut block = vec![0x83, 0x86, 0x41, u8::try_from(value.len()).unwrap() | u8::from(coded) << 7];
        block.extend_from_slice(value);
        block.extend_from_slice(b"\x00\x03a/b\x03c/d");
        block
    }

    #[test]
    fn huffman_codes_match_the_rfc() {
        // RFC 7541, C.4.1.
        assert_eq!(huffman("www.example.com"), b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff");
    }

    #[test]
    fn only_the_authority_changes() {
        for (given, cleaned) in [
            ("http://127.0.0.1:2379", "httpj--127.0.0.1:2379"),
            ("https://localhost:1", "httpsj--localhost:1"),
            ("/run/x/tortie.sock", "-run-x-tortie.sock"),
            ("127.0.0.1:2379", "127.0.0.1:2379"),
            ("", ""),
        ] {
            let mut block = literal(given.as_bytes(), false);
            clean_block(&mut block);
            assert_eq!(block, literal(cleaned.as_bytes(), false), "{given}");
            let mut block = literal(&huffman(given), true);
            clean_block(&mut block);
            assert_eq!(block, literal(&huffman(cleaned), true), "{given}");
            assert!(cleaned.is_empty() || cleaned.parse::<http::uri::Authority>().is_ok());
        }
    }

    #[test]
    fn broken_blocks_pass_unchanged() {
        for block in
            [&b"\x41"[..], b"\x41\xff\xff\xff\xff\x00", b"\x41\x7f", b"\x00\x05a", b"\x7f\x80\x80\x80\x80"]
        {
            let mut cleaned = block.to_vec();
            clean_block(&mut cleaned);
            assert_eq!(cleaned, block);
        }
    }

    #[tokio::test]
    async fn frames_are_found_in_pieces_of_any_size() {
        let frame = |kind: u8, payload: &[u8]| {
            let mut frame = vec![0, 0, u8::try_from(payload.len()).unwrap(), kind, 0, 0, 0, 0, 1];
            frame.extend_from_slice(payload);
            frame
        };
        let stream = |authority: &str| {
            let block = literal(authority.as_bytes(), false);
            [PREFACE, &frame(4, &[0; 6]), &frame(1, &block), &frame(0, b"http://x"), &frame(1, &block)]
                .concat()
        };
        let (given, expected) = (stream("http://a:1"), stream("httpj--a:1"));
        for step in [1, 2, 7, 30, 1000] {
            let mut builder = tokio_test_io(&given, step);
            let mut read = Vec::new();
            builder.read_to_end(&mut read).await.unwrap();
            assert_eq!(read, expected, "step {step}");
        }
        let plain = b"POST /v3/kv/range HTTP/1.1\r\nhost: http://x\r\n\r\n";
        let mut read = Vec::new();
        tokio_test_io(plain, 3).read_to_end(&mut read).await.unwrap();
        assert_eq!(read, plain);
    }

    /// Delivers `bytes` in pieces of `step`.
    fn tokio_test_io(bytes: &[u8], step: usize) -> impl AsyncRead + Unpin + use<> {
        struct Pieces(std::collections::VecDeque<Vec<u8>>);
        impl AsyncRead for Pieces {
            fn poll_read(
                mut self: Pin<&mut Self>,
                _: &mut Context<'_>,
                out: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                if let Some(mut piece) = self.0.pop_front() {
                    let rest = piece.split_off(piece.len().min(out.remaining()));
                    out.put_slice(&piece);
                    if !rest.is_empty() {
                        self.0.push_front(rest);
                    }
                }
                Poll::Ready(Ok(()))
            }
        }
        Authority::new(Pieces(bytes.chunks(step).map(<[u8]>::to_vec).collect()))
    }
}
