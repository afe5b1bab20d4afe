//! Rewrites the frames of an HTTP/2 connection (RFC 9113) coming from a client: blocks of header fields are inspected
//! as a whole, everything else is passed on unchanged. Pure: bytes in, bytes out.

use crate::fields;

/// The preface of every connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The length of a frame's header.
const HEAD: usize = 9;
/// The maximum frame size that a server accepts by default, and the most that is buffered here.
const LONGEST: usize = 16_384;

const HEADERS: u8 = 1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// The state of parsing.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    is_begun: bool,
    /// How many bytes of the current frame are still to be passed on.
    passing: usize,
    /// The beginning of a part that is inspected as a whole.
    kept: Vec<u8>,
    /// The input cannot be parsed: everything is passed on, and the server reports the error.
    is_over: bool,
}

impl Frames {
    /// Takes bytes from the client, and appends the bytes for the server.
    pub(crate) fn take(&mut self, mut bytes: &[u8], to: &mut Vec<u8>) {
        while !bytes.is_empty() {
            if self.is_over {
                to.extend_from_slice(bytes);
                return;
            }
            if self.passing > 0 {
                let (now, later) = bytes.split_at(self.passing.min(bytes.len()));
                to.extend_from_slice(now);
                self.passing -= now.len();
                bytes = later;
                continue;
            }
            let wanted = self.wanted();
            let (now, later) = bytes.split_at((wanted - self.kept.len()).min(bytes.len()));
            self.kept.extend_from_slice(now);
            bytes = later;
            if self.kept.len() == self.wanted() {
                self.decide(to);
            }
        }
    }

    /// How many bytes are needed to continue.
    fn wanted(&self) -> usize {
        match self.is_begun {
            false => PREFACE.len(),
            true if self.kept.len() < HEAD => HEAD,
            true if !has_fields(&self.kept) => HEAD,
            true => HEAD + length(&self.kept),
        }
    }

    /// Continues with the buffered bytes, which are as many as wanted.
    fn decide(&mut self, to: &mut Vec<u8>) {
        let kept = std::mem::take(&mut self.kept);
        if !self.is_begun {
            self.is_begun = true;
            self.is_over = kept != PREFACE;
            return to.extend_from_slice(&kept);
        }
        if !has_fields(&kept) {
            self.passing = length(&kept);
            // A block that continues in another frame is passed on unchanged, and so is its rest.
            return to.extend_from_slice(&kept);
        }
        match admitted(&kept) {
            Some(frame) => to.extend_from_slice(&frame),
            None => to.extend_from_slice(&kept),
        }
    }
}

/// Whether a frame's header announces a complete block of header fields. Clients that need this rewriting send a few
/// hundred bytes and so never need a second frame.
fn has_fields(head: &[u8]) -> bool {
    head[3] == HEADERS && head[4] & END_HEADERS != 0 && length(head) <= LONGEST
}

/// The length of the frame's payload.
fn length(head: &[u8]) -> usize {
    head[..3].iter().fold(0, |length, byte| length << 8 | usize::from(*byte))
}

/// The frame with an authority that HTTP allows; `None` if nothing needs to change.
fn admitted(frame: &[u8]) -> Option<Vec<u8>> {
    let (head, mut rest) = frame.split_at_checked(HEAD)?;
    let flags = head[4];
    if flags & PADDED != 0 {
        let (padding, behind) = rest.split_first()?;
        rest = behind.get(..behind.len().checked_sub(usize::from(*padding))?)?;
    }
    let (priority, block) = rest.split_at_checked(if flags & PRIORITY != 0 { 5 } else { 0 })?;
    let block = fields::admit(block)?;
    let payload = priority.len() + block.len();
    if payload > LONGEST {
        return None;
    }
    let mut admitted = Vec::with_capacity(HEAD + payload);
    admitted.extend_from_slice(&u32::try_from(payload).ok()?.to_be_bytes()[1..]);
    admitted.extend([HEADERS, flags & !PADDED]);
    admitted.extend_from_slice(&head[5..]);
    admitted.extend_from_slice(priority);
    admitted.extend_from_slice(&block);
    Some(admitted)
}

#[cfg(test)]
mod tests {
    use super::{Frames, PREFACE};
    use proptest::prelude::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags, 0, 0, 0, 1]);
        frame.extend_from_slice(payload);
        frame
    }

    fn through(pieces: &[&[u8]]) -> Vec<u8> {
        let (mut frames, mut to) = (Frames::default(), Vec::new());
        for piece in pieces {
            frames.take(piece, &mut to);
        }
        to
    }

    fn connection(parts: &[Vec<u8>]) -> Vec<u8> {
        [&[PREFACE.to_vec()], parts].concat().concat()
    }

    #[test]
    fn authorities_are_changed_whatever_surrounds_them() {
        let (bad, good) = (b"\x83\x41\x02/a".as_slice(), b"\x83\x41\x02-a".as_slice());
        let data = frame(0, 1, &[7; 40_000]);
        let settings = frame(4, 0, &[]);
        let priority = [b"\0\0\0\0\x10", bad].concat();
        let padded = [b"\x03", bad, b"\0\0\0"].concat();
        for (sent, expected) in [
            (frame(1, 4, bad), frame(1, 4, good)),
            (frame(1, 4 | 1, bad), frame(1, 4 | 1, good)),
            (frame(1, 4 | 8, &padded), frame(1, 4, good)),
            (frame(1, 4 | 0x20, &priority), frame(1, 4 | 0x20, &[b"\0\0\0\0\x10", good].concat())),
            (frame(1, 4, good), frame(1, 4, good)),
            // Padding longer than the frame is for the server to refuse, and a block in two frames is passed on
            // unchanged.
            (frame(1, 4 | 8, b"\x09\x83"), frame(1, 4 | 8, b"\x09\x83")),
            (frame(1, 0, bad), frame(1, 0, bad)),
        ] {
            let sent = connection(&[settings.clone(), sent, data.clone()]);
            let expected = connection(&[settings.clone(), expected, data.clone()]);
            assert_eq!(through(&[&sent]), expected);
            let bytes: Vec<&[u8]> = sent.chunks(1).collect();
            assert_eq!(through(&bytes), expected, "byte by byte");
        }
        let other = b"GET / HTTP/1.1\r\nHost: /a\r\n\r\n and more".as_slice();
        assert_eq!(through(&[other]), other);
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter_and_nothing_is_lost(
            parts in prop::collection::vec((0_u8..11, any::<u8>(), prop::collection::vec(any::<u8>(), 0..40)), 0..6),
            size in 1_usize..60,
        ) {
            let parts: Vec<Vec<u8>> = parts.iter().map(|(kind, flags, payload)| frame(*kind, *flags, payload)).collect();
            let sent = connection(&parts);
            let whole = through(&[&sent]);
            let pieces: Vec<&[u8]> = sent.chunks(size).collect();
            prop_assert_eq!(through(&pieces), whole);
        }
    }
}
