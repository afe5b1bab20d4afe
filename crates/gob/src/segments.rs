//! The counted pieces of a stream, as bytes arrive.

use crate::{Error, number};
use bytes::{Buf as _, Bytes, BytesMut};

/// Splits a stream into segments. Nothing is reserved for a segment that has not arrived.
#[derive(Debug)]
pub struct Segments {
    buffer: BytesMut,
    limit: usize,
}

impl Segments {
    /// Creates a splitter that refuses segments longer than `limit`.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { buffer: BytesMut::new(), limit }
    }

    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The buffer itself, for a reader that can write into it.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// The number of bytes that wait for the rest of their segment.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.buffer.len()
    }

    /// Returns the next complete segment.
    ///
    /// # Errors
    /// When its length is not a number, zero, or beyond the limit.
    pub fn take(&mut self) -> Result<Option<Bytes>, Error> {
        let Some((size, rest)) = number::split_uint(&self.buffer)? else { return Ok(None) };
        let length = match usize::try_from(size) {
            Ok(0) => return Err(Error::Short),
            Ok(length) if length <= self.limit => length,
            _ => return Err(Error::TooLarge { size, limit: self.limit }),
        };
        if rest.len() < length {
            return Ok(None);
        }
        let head = self.buffer.len() - rest.len();
        self.buffer.advance(head);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_as_bytes_arrive() {
        let mut segments = Segments::new(300);
        let mut stream = vec![2, b'a', b'b'];
        number::put_uint(&mut stream, 200);
        stream.extend([7; 200]);
        let mut found = Vec::new();
        for byte in stream {
            segments.push(&[byte]);
            found.extend(segments.take().unwrap());
        }
        assert_eq!(found, [Bytes::from_static(b"ab"), Bytes::from(vec![7; 200])]);
        assert_eq!(segments.waiting(), 0);
    }

    #[test]
    fn invalid_lengths_are_refused() {
        for (bytes, error) in [
            (vec![0], Error::Short),
            (vec![0xfe, 1, 45], Error::TooLarge { size: 301, limit: 300 }),
            (
                vec![0xf8, 255, 255, 255, 255, 255, 255, 255, 255],
                Error::TooLarge { size: u64::MAX, limit: 300 },
            ),
            (vec![0x90], Error::WideInteger(0x70)),
        ] {
            let mut segments = Segments::new(300);
            segments.push(&bytes);
            assert_eq!(segments.take(), Err(error));
        }
    }

    #[test]
    fn a_long_segment_is_not_reserved_before_it_arrives() {
        let mut segments = Segments::new(1 << 30);
        let mut head = Vec::new();
        number::put_uint(&mut head, 1 << 30);
        segments.push(&head);
        assert_eq!(segments.take(), Ok(None));
        assert!(segments.buffer().capacity() < 1024, "{}", segments.buffer().capacity());
    }
}
