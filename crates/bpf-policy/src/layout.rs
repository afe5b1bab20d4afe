//! The bytes of the maps according to `docs/ebpf.md` (section "Tables"): one type per key and value, encoded and
//! decoded.
//!
//! Integers are little-endian, addresses and ports in network order. Decoding accepts exactly what encoding writes: a
//! wrong length, or non-zero padding, is not ours. Does not know the meaning of entries.

mod keys;
mod values;

pub use keys::{ListsKey, PairKey, PortKey, RowKey, RuleKey, SegmentKey};
pub use values::{Action, Lists, Row, RuleEntry, Segment};

/// The maximum number of rules in a segment.
pub const SEGMENT_RULES: usize = 1024;
/// The number of words in a row.
pub const ROW_WORDS: usize = SEGMENT_RULES / 64;
/// The number of dimensions.
pub const DIMENSIONS: usize = 6;
/// The maximum number of segments in a list.
pub const MAX_SEGMENTS: usize = 64;
/// The maximum number of tiers and profiles in a list.
pub const MAX_PARTS: usize = 64;
/// The maximum number of segments evaluated for a packet.
pub const MAX_STEPS: usize = MAX_SEGMENTS + MAX_PARTS;

/// The id of a list: a hash of its content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListId(pub u64);

impl ListId {
    /// No list.
    pub const NONE: Self = Self(0);
}

/// The id of a class: a hash of its content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u64);

impl ClassId {
    /// The class of addresses that are in no set.
    pub const NONE: Self = Self(0);
}

/// The property of a packet that a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Dimension {
    /// The class of the source address.
    Source,
    /// The class of the destination address.
    Destination,
    /// Protocol with destination port, or with ICMP type and code.
    Service,
    /// Protocol with source port.
    SourcePort,
    /// The class of destination address, protocol and destination port.
    DestinationPair,
    /// The class of source address, protocol and source port.
    SourcePair,
}

impl Dimension {
    /// All dimensions, in the order of their numbers.
    pub const ALL: [Self; DIMENSIONS] = [
        Self::Source,
        Self::Destination,
        Self::Service,
        Self::SourcePort,
        Self::DestinationPair,
        Self::SourcePair,
    ];

    /// The dimension's number as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The dimension's bit in a mask.
    #[must_use]
    pub const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A key or a value of a map.
pub trait Bytes: Sized {
    /// Appends the encoding.
    fn encode(&self, out: &mut Vec<u8>);

    /// Decodes bytes; `None` if [`Self::encode`] does not write them.
    fn decode(bytes: &[u8]) -> Option<Self>;

    /// The encoding.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }
}

impl Bytes for u64 {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self::from_le_bytes(bytes.try_into().ok()?))
    }
}

impl Bytes for ListId {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        u64::decode(bytes).map(Self)
    }
}

impl Bytes for ClassId {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        u64::decode(bytes).map(Self)
    }
}

impl Bytes for u32 {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self::from_le_bytes(bytes.try_into().ok()?))
    }
}

/// Reads consecutive fields.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(|[byte]: [u8; 1]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u16_be(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn zeros<const N: usize>(&mut self) -> Option<()> {
        (self.take::<N>()? == [0; N]).then_some(())
    }

    fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}
