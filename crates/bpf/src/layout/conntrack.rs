//! `cali_v4_ct4`, `cali_v6_ct4`: the connections known to programs.
//!
//! A flow without NAT has one entry. A flow with NAT has two: the entry under the addresses after NAT holds all state,
//! and a stub under the addresses before NAT holds its key.

pub mod flags;

mod direct;

pub use direct::Direct;

use super::{Family, From, To};
use crate::table::Layout;

/// The two ends of a connection. End A has the lower address, compared as 32-bit words in the processor's order; if
/// both are equal, the lower port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key<F: Family> {
    /// The protocol's number.
    pub protocol: u32,
    /// The address of end A.
    pub address_a: F::Address,
    /// The address of end B.
    pub address_b: F::Address,
    /// The port of end A.
    pub port_a: u16,
    /// The port of end B.
    pub port_b: u16,
}

impl<F: Family> Key<F> {
    /// Returns a packet's key, and whether its source is end B.
    #[must_use]
    pub fn new(protocol: u8, source: (F::Address, u16), destination: (F::Address, u16)) -> (Self, bool) {
        let is_b = (words(&source.0), source.1) >= (words(&destination.0), destination.1);
        let (a, b) = if is_b { (destination, source) } else { (source, destination) };
        let key =
            Self { protocol: u32::from(protocol), address_a: a.0, address_b: b.0, port_a: a.1, port_b: b.1 };
        (key, is_b)
    }
}

fn words(address: &impl AsRef<[u8]>) -> Vec<u32> {
    address
        .as_ref()
        .chunks_exact(4)
        .map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]))
        .collect()
}

impl<F: Family> Layout for Key<F> {
    const SIZE: usize = 8 + 2 * F::WIDTH;

    fn write(&self, to: &mut [u8]) {
        To(to, 0)
            .put(&self.protocol.to_ne_bytes())
            .put(self.address_a.as_ref())
            .put(self.address_b.as_ref())
            .put(&self.port_a.to_ne_bytes())
            .put(&self.port_b.to_ne_bytes());
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 0);
        Self {
            protocol: from.u32(),
            address_a: from.address::<F>(),
            address_b: from.address::<F>(),
            port_a: from.u16(),
            port_b: from.u16(),
        }
    }
}

/// The state of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leg {
    /// Bytes of counted packets.
    pub bytes: u64,
    /// Number of counted packets.
    pub packets: u32,
    /// The TCP sequence number of the SYN, as in the packet.
    pub sequence: u32,
    /// A SYN was seen.
    pub syn: bool,
    /// The other side's SYN was acknowledged.
    pub ack: bool,
    /// A FIN was seen.
    pub fin: bool,
    /// A RST was seen.
    pub rst: bool,
    /// The policy of the end that sends in this direction allowed the flow.
    pub approved: bool,
    /// This direction's sender opened the flow.
    pub opener: bool,
    /// The leg belongs to a workload.
    pub workload: bool,
    /// The device by which packets entered the host; 0 for the host's own.
    pub device: u32,
}

impl Layout for Leg {
    const SIZE: usize = 24;

    fn write(&self, to: &mut [u8]) {
        let bits = [self.syn, self.ack, self.fin, self.rst, self.approved, self.opener, self.workload];
        let bits: u32 = bits.iter().enumerate().map(|(place, bit)| u32::from(*bit) << place).sum();
        To(to, 0)
            .put(&self.bytes.to_ne_bytes())
            .put(&self.packets.to_ne_bytes())
            .put(&self.sequence.to_ne_bytes())
            .put(&bits.to_ne_bytes())
            .put(&self.device.to_ne_bytes());
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 0);
        let (bytes, packets, sequence, bits) = (from.u64(), from.u32(), from.u32(), from.u32());
        let bit = |place: u32| bits >> place & 1 == 1;
        Self {
            bytes,
            packets,
            sequence,
            syn: bit(0),
            ack: bit(1),
            fin: bit(2),
            rst: bit(3),
            approved: bit(4),
            opener: bit(5),
            workload: bit(6),
            device: from.u32(),
        }
    }
}

/// The state of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tracking<F: Family> {
    /// From A to B.
    pub a_to_b: Leg,
    /// From B to A.
    pub b_to_a: Leg,
    /// The node at the other end of the tunnel that service traffic arrived through.
    pub tunnel: F::Address,
    /// The destination before NAT.
    pub original_address: F::Address,
    /// The destination's port before NAT.
    pub original_port: u16,
    /// The source's port before NAT.
    pub original_source_port: u16,
    /// The source before NAT.
    pub original_source: F::Address,
}

/// The kind and content of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<F: Family> {
    /// A flow without NAT.
    Normal(Tracking<F>),
    /// A stub: the key of the entry with the state, and the source's port after NAT if it was changed.
    Forward(Key<F>, u16),
    /// A flow with NAT, under the addresses after NAT.
    Reverse(Tracking<F>),
    /// Written by a newer program; the bytes are not kept.
    Unknown(u8),
}

/// The value of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value<F: Family> {
    /// When a RST was seen; 0 if none was.
    pub rst_seen: u64,
    /// When the last packet was seen, in nanoseconds of the monotonic clock.
    pub last_seen: u64,
    /// A combination of [`flags`].
    pub flags: u32,
    /// The kind and content.
    pub entry: Entry<F>,
}

const ENTRY: usize = 24;

impl<F: Family> Layout for Tracking<F> {
    const SIZE: usize = 2 * Leg::SIZE + 4 + 3 * F::WIDTH;

    fn write(&self, to: &mut [u8]) {
        To(to, 0)
            .put(&self.a_to_b.bytes())
            .put(&self.b_to_a.bytes())
            .put(self.tunnel.as_ref())
            .put(self.original_address.as_ref())
            .put(&self.original_port.to_ne_bytes())
            .put(&self.original_source_port.to_ne_bytes())
            .put(self.original_source.as_ref());
    }

    fn read(from: &[u8]) -> Self {
        let mut from = From(from, 0);
        Self {
            a_to_b: Leg::read(&from.take::<24>()),
            b_to_a: Leg::read(&from.take::<24>()),
            tunnel: from.address::<F>(),
            original_address: from.address::<F>(),
            original_port: from.u16(),
            original_source_port: from.u16(),
            original_source: from.address::<F>(),
        }
    }
}

impl<F: Family> Layout for Value<F> {
    /// 88 and 128 bytes: the C compiler rounds up to a multiple of 8.
    const SIZE: usize = (ENTRY + Tracking::<F>::SIZE).next_multiple_of(8);

    fn write(&self, to: &mut [u8]) {
        let [first, second, third, fourth] = self.flags.to_le_bytes();
        let kind = match self.entry {
            Entry::Normal(_) => 0,
            Entry::Forward(..) => 1,
            Entry::Reverse(_) => 2,
            Entry::Unknown(kind) => kind,
        };
        To(to, 0)
            .put(&self.rst_seen.to_ne_bytes())
            .put(&self.last_seen.to_ne_bytes())
            .put(&[kind, first, third, fourth, 0, 0, 0, second]);
        match &self.entry {
            Entry::Normal(tracking) | Entry::Reverse(tracking) => {
                tracking.write(&mut to[ENTRY..ENTRY + Tracking::<F>::SIZE]);
            }
            Entry::Forward(key, port) => {
                To(to, ENTRY).put(&key.bytes()).put(&port.to_ne_bytes());
            }
            Entry::Unknown(_) => {}
        }
    }

    fn read(from: &[u8]) -> Self {
        let mut fields = From(from, 0);
        let (rst_seen, last_seen) = (fields.u64(), fields.u64());
        let [kind, first, third, fourth, _, _, _, second] = fields.take();
        let tracking = || Tracking::read(&from[ENTRY..ENTRY + Tracking::<F>::SIZE]);
        let entry = match kind {
            0 => Entry::Normal(tracking()),
            1 => {
                let end = ENTRY + Key::<F>::SIZE;
                Entry::Forward(Key::read(&from[ENTRY..end]), From(from, end).u16())
            }
            2 => Entry::Reverse(tracking()),
            other => Entry::Unknown(other),
        };
        Self { rst_seen, last_seen, flags: u32::from_le_bytes([first, second, third, fourth]), entry }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{V4, V6};
    use super::*;

    #[test]
    fn sizes_are_calicos() {
        assert_eq!((Key::<V4>::SIZE, Value::<V4>::SIZE), (16, 88));
        assert_eq!((Key::<V6>::SIZE, Value::<V6>::SIZE), (40, 128));
    }

    #[test]
    fn ends_are_ordered_by_words_in_the_processors_order() {
        // 10.0.0.2 is 0x0200000a, and 10.1.0.1 is 0x0100010a: the last byte is compared first.
        let (key, is_b) = Key::<V4>::new(6, ([10, 0, 0, 2], 1000), ([10, 1, 0, 1], 80));
        assert!(is_b);
        assert_eq!(key.bytes(), [6, 0, 0, 0, 10, 1, 0, 1, 10, 0, 0, 2, 80, 0, 0xe8, 3]);
        let (same, is_b) = Key::<V4>::new(6, ([10, 1, 0, 1], 80), ([10, 0, 0, 2], 1000));
        assert_eq!((same, is_b), (key, false));
        let (ports, is_b) = Key::<V4>::new(17, ([1, 1, 1, 1], 2), ([1, 1, 1, 1], 1));
        assert_eq!((ports.port_a, ports.port_b, is_b), (1, 2, true));
        let (mut low, mut high) = ([0; 16], [0; 16]);
        // Within a word the last byte is the most significant, and the first word is compared first.
        (low[0], high[3], low[4]) = (0xff, 1, 0xff);
        let (key, is_b) = Key::<V6>::new(6, (low, 9), (high, 1));
        assert_eq!((key.address_a, is_b), (low, false));
    }

    #[test]
    fn every_field_of_an_entry_has_its_offset() {
        let leg = Leg {
            bytes: 0x0102,
            packets: 3,
            sequence: 4,
            approved: true,
            workload: true,
            device: 5,
            ..Leg::default()
        };
        let other = Leg { syn: true, ack: true, fin: true, rst: true, opener: true, ..Leg::default() };
        let tracking = Tracking::<V4> {
            a_to_b: leg,
            b_to_a: other,
            tunnel: [1; 4],
            original_address: [2; 4],
            original_port: 0x0303,
            original_source_port: 0x0404,
            original_source: [5; 4],
        };
        let value = Value { rst_seen: 1, last_seen: 2, flags: 0x4433_2211, entry: Entry::Reverse(tracking) };
        let bytes = value.bytes();
        assert_eq!(
            bytes[..24],
            [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 2, 0x11, 0x33, 0x44, 0, 0, 0, 0x22]
        );
        assert_eq!(
            bytes[24..48],
            [2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0x50, 0, 0, 0, 5, 0, 0, 0]
        );
        assert_eq!(bytes[64], 0x2f);
        assert_eq!(bytes[72..], [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4, 4, 5, 5, 5, 5]);
        assert_eq!(Value::read(&bytes), value);

        let wide = Tracking::<V6> {
            tunnel: [1; 16],
            original_address: [2; 16],
            original_port: 0x0303,
            original_source_port: 0x0404,
            original_source: [5; 16],
            ..Tracking::default()
        };
        let value = Value { rst_seen: 0, last_seen: 0, flags: 0, entry: Entry::Normal(wide) };
        let bytes = value.bytes();
        let at = |place: usize| bytes[place];
        assert_eq!(
            [at(71), at(72), at(88), at(104), at(106), at(108), at(123), at(124)],
            [0, 1, 2, 3, 4, 5, 5, 0]
        );
        assert_eq!(Value::read(&bytes), value);

        let (key, _) = Key::<V4>::new(6, ([1; 4], 7), ([2; 4], 8));
        let stub = Value { rst_seen: 0, last_seen: 9, flags: 0, entry: Entry::Forward(key, 0x0a0b) };
        let bytes = stub.bytes();
        assert_eq!(bytes[16], 1);
        assert_eq!((&bytes[24..40], &bytes[40..43]), (&key.bytes()[..], &[0x0b, 0x0a, 0][..]));
        assert_eq!(Value::read(&bytes), stub);
        let mut unknown = bytes;
        unknown[16] = 7;
        assert_eq!(Value::<V4>::read(&unknown).entry, Entry::Unknown(7));
    }
}
