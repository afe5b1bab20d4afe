//! Blocks of a history's file: each is a gzip member, so a file can be read by common tools, and each has a checksum.
//!
//! A block contains the times of its start and end, then flows as messages of the API, each preceded by its length.
//! Reading ends at the first damage; everything before it is used.

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use goldmane_api::borrowed::split_message;
use goldmane_api::proto::Flow;
use prost::Message as _;
use std::io::{self, Read as _, Write as _};

/// The maximum size of a block's content: more is treated as damage.
const MOST_BYTES: u64 = 1 << 30;
/// The size of the two times before the flows.
const TIMES: usize = 16;

/// The flows of some period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// When it begins, in seconds since 1970.
    pub start: i64,
    /// When it ends, in seconds since 1970.
    pub end: i64,
    flows: Vec<u8>,
}

impl Block {
    /// Creates an empty block.
    #[must_use]
    pub(crate) fn new(start: i64, end: i64) -> Self {
        Self { start, end, flows: Vec::new() }
    }

    /// Adds a flow.
    pub(crate) fn push_flow(&mut self, flow: &Flow) {
        self.push(&flow.encode_to_vec());
    }

    /// Adds an encoded flow.
    pub(crate) fn push(&mut self, flow: &[u8]) {
        // Cannot fail: a vector grows.
        let _ = prost::encode_length_delimiter(flow.len(), &mut self.flows);
        self.flows.extend_from_slice(flow);
    }

    /// The encoded flows.
    pub(crate) fn flows(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &*self.flows;
        std::iter::from_fn(move || (!rest.is_empty()).then(|| split_message(&mut rest).ok()).flatten())
    }

    /// Encodes the block for a file.
    ///
    /// # Errors
    /// Never, as long as memory can be written to.
    pub(crate) fn encode(&self) -> io::Result<Vec<u8>> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&self.start.to_le_bytes())?;
        encoder.write_all(&self.end.to_le_bytes())?;
        encoder.write_all(&self.flows)?;
        encoder.finish()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (start, rest) = bytes.split_first_chunk::<{ TIMES / 2 }>()?;
        let (end, flows) = rest.split_first_chunk::<{ TIMES / 2 }>()?;
        let (start, end) = (i64::from_le_bytes(*start), i64::from_le_bytes(*end));
        (start < end).then(|| Self { start, end, flows: flows.to_vec() })
    }
}

/// The outcome of reading a file.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The length in bytes of the intact blocks.
    pub valid: usize,
    /// The fault in the rest, if any.
    pub damage: Option<io::Error>,
}

/// Calls `show` for the blocks of a file, up to the first damaged one.
pub(crate) fn read(bytes: &[u8], mut show: impl FnMut(Block)) -> Outcome {
    let mut outcome = Outcome::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        let mut decoder = GzDecoder::new(rest);
        let mut content = Vec::new();
        let decoded = decoder.by_ref().take(MOST_BYTES).read_to_end(&mut content);
        let block = decoded.and_then(|_| {
            Block::decode(&content)
                .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a block of flows"))
        });
        match block {
            Ok(block) => show(block),
            Err(error) => {
                outcome.damage = Some(error);
                break;
            }
        }
        rest = decoder.into_inner();
        outcome.valid = bytes.len() - rest.len();
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block(start: i64, flows: &[Vec<u8>]) -> Block {
        let mut block = Block::new(start, start + 60);
        flows.iter().for_each(|flow| block.push(flow));
        block
    }

    proptest! {
        #[test]
        fn blocks_are_read_back_up_to_the_damage(
            blocks in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..6), 1..5),
            cut in any::<prop::sample::Index>(), flip in any::<prop::sample::Index>(), is_cut: bool,
        ) {
            let blocks: Vec<Block> = (0..).zip(&blocks).map(|(number, flows)| block(number * 60, flows)).collect();
            let mut bytes = Vec::new();
            let mut ends = vec![0];
            for block in &blocks {
                bytes.extend(block.encode().unwrap());
                ends.push(bytes.len());
            }
            let mut found = Vec::new();
            let outcome = read(&bytes, |block| found.push(block));
            prop_assert_eq!((&found, outcome.valid), (&blocks, bytes.len()));
            prop_assert!(outcome.damage.is_none());
            let flows = |block: &Block| block.flows().map(<[u8]>::to_vec).collect::<Vec<_>>();
            for (one, two) in found.iter().zip(&blocks) {
                prop_assert_eq!(flows(one), flows(two));
            }
            // Truncated or damaged at some place.
            let place = if is_cut { cut.index(bytes.len()) } else { flip.index(bytes.len()) };
            if is_cut { bytes.truncate(place) } else { bytes[place] ^= 0x10 }
            let whole = ends.iter().filter(|end| **end <= place).count() - 1;
            let mut found = Vec::new();
            let outcome = read(&bytes, |block| found.push(block));
            // Some bits of a header, such as its time stamp, may change without harm.
            prop_assert!(found.len() >= whole);
            prop_assert!(found.iter().zip(&blocks).all(|(one, two)| one == two));
            prop_assert!(outcome.valid <= bytes.len());
            if is_cut {
                prop_assert_eq!((found.len(), outcome.valid), (whole, ends[whole]));
            }
        }
    }
}
