//! One connection of the kernel's table, as the kernel reports it.

use crate::Family;
#[cfg(test)]
use crate::wire::Writer;
use crate::wire::{Attribute, attributes, split_header};
use std::net::IpAddr;

const ORIGINAL: u16 = 1;
const REPLY: u16 = 2;
const STATUS: u16 = 3;
const PROTOCOL_STATE: u16 = 4;
const COUNTERS_ORIGINAL: u16 = 9;
const COUNTERS_REPLY: u16 = 10;
const ID: u16 = 12;
const ADDRESSES: u16 = 1;
const TRANSPORT: u16 = 2;

const SEEN_REPLY: u32 = 1 << 1;
const SOURCE_TRANSLATED: u32 = 1 << 4;
const DEST_TRANSLATED: u32 = 1 << 5;
/// The TCP states from which on no more packets are expected.
const TIME_WAIT: u8 = 7;

/// The two ends of one direction. For ICMP the ports are the id, and type and code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tuple {
    /// The source address.
    pub source: IpAddr,
    /// The destination address.
    pub dest: IpAddr,
    /// The protocol number.
    pub protocol: u8,
    /// The source port.
    pub source_port: u16,
    /// The destination port.
    pub dest_port: u16,
}

impl Tuple {
    /// Reads the attributes of a direction.
    pub(crate) fn read(direction: &Attribute<'_>) -> Option<Self> {
        let part = |number| direction.attributes().find(|part| part.number == number);
        let (mut source, mut dest) = (None, None);
        for address in part(ADDRESSES)?.attributes() {
            match address.number {
                1 | 3 => source = address.address(),
                2 | 4 => dest = address.address(),
                _ => {}
            }
        }
        let (mut protocol, mut source_port, mut dest_port) = (None, 0, 0);
        for field in part(TRANSPORT)?.attributes() {
            let number = || field.u16_be().unwrap_or(0);
            let byte = || u16::from(field.u8().unwrap_or(0));
            match field.number {
                1 => protocol = field.u8(),
                2 | 4 | 7 => source_port = number(),
                3 => dest_port = number(),
                5 | 8 => dest_port |= byte() << 8,
                6 | 9 => dest_port |= byte(),
                _ => {}
            }
        }
        let (source, dest) = (source?, dest?);
        (Family::of(&source) == Family::of(&dest)).then_some(())?;
        Some(Self { source, dest, protocol: protocol?, source_port, dest_port })
    }
}

/// Counts of packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// How many packets.
    pub packets: u64,
    /// How many bytes they had.
    pub bytes: u64,
}

impl Counted {
    fn read(attribute: &Attribute<'_>) -> Self {
        let field = |number| {
            attribute.attributes().find(|field| field.number == number).and_then(|field| field.u64_be())
        };
        Self { packets: field(1).unwrap_or(0), bytes: field(2).unwrap_or(0) }
    }
}

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The id that distinguishes it from a later one between the same ends.
    pub id: u32,
    /// The original direction, as its initiator sees it.
    pub original: Tuple,
    /// The reply direction: the addresses after translation.
    pub reply: Tuple,
    /// The kernel's status bits.
    pub status: u32,
    /// The state of a TCP connection.
    pub tcp_state: Option<u8>,
    /// The counts of the original and the reply direction, if the kernel counts.
    pub counted: Option<(Counted, Counted)>,
}

impl Entry {
    /// Reads a message about a connection, after its netlink header.
    #[must_use]
    pub fn read(payload: &[u8]) -> Option<Self> {
        let (_, rest) = split_header::<4>(payload)?;
        let (mut original, mut reply, mut counted_original, mut counted_reply) = (None, None, None, None);
        let (mut id, mut status, mut tcp_state) = (0, 0, None);
        for attribute in attributes(rest) {
            match attribute.number {
                ORIGINAL => original = Tuple::read(&attribute),
                REPLY => reply = Tuple::read(&attribute),
                STATUS => status = attribute.u32_be().unwrap_or(0),
                PROTOCOL_STATE => tcp_state = read_tcp_state(&attribute),
                COUNTERS_ORIGINAL => counted_original = Some(Counted::read(&attribute)),
                COUNTERS_REPLY => counted_reply = Some(Counted::read(&attribute)),
                ID => id = attribute.u32_be().unwrap_or(0),
                _ => {}
            }
        }
        let counted = match (counted_original, counted_reply) {
            (None, None) => None,
            (original, reply) => Some((original.unwrap_or_default(), reply.unwrap_or_default())),
        };
        Some(Self { id, original: original?, reply: reply?, status, tcp_state, counted })
    }

    /// Whether its destination was translated.
    #[must_use]
    pub fn is_dest_translated(&self) -> bool {
        self.status & DEST_TRANSLATED != 0
    }

    /// Whether its source was translated.
    #[must_use]
    pub fn is_source_translated(&self) -> bool {
        self.status & SOURCE_TRANSLATED != 0
    }

    /// Whether the other end answered.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.status & SEEN_REPLY != 0
    }

    /// Whether no more packets are expected: a TCP connection that both ends closed, or one that was reset.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.tcp_state.is_some_and(|state| state >= TIME_WAIT)
    }

    /// Its ends as policy sees them: the original source, and the destination after translation.
    #[must_use]
    pub fn as_filtered(&self) -> Tuple {
        if !self.is_dest_translated() {
            return self.original;
        }
        // The ICMP values in the place of ports differ between request and reply.
        let has_ports = !matches!(self.original.protocol, 1 | 58);
        Tuple {
            dest: self.reply.source,
            dest_port: if has_ports { self.reply.source_port } else { self.original.dest_port },
            ..self.original
        }
    }
}

fn read_tcp_state(attribute: &Attribute<'_>) -> Option<u8> {
    let tcp = attribute.attributes().find(|part| part.number == 1)?;
    tcp.attributes().find(|field| field.number == 1)?.u8()
}

/// A message as the kernel writes it, for tests.
#[cfg(test)]
pub(crate) fn written(entry: &Entry) -> Vec<u8> {
    let mut writer = Writer::new(&[2, 0, 0, 0]);
    for (number, tuple) in [(ORIGINAL, &entry.original), (REPLY, &entry.reply)] {
        write_tuple(&mut writer, number, tuple);
    }
    writer.u32_be(STATUS, entry.status).u32_be(ID, entry.id);
    if let Some(state) = entry.tcp_state {
        writer.nested(PROTOCOL_STATE, |info| {
            info.nested(1, |tcp| {
                tcp.u8(1, state).u8(2, 7);
            });
        });
    }
    if let Some((original, reply)) = entry.counted {
        for (number, counted) in [(COUNTERS_ORIGINAL, original), (COUNTERS_REPLY, reply)] {
            writer.nested(number, |inner| {
                inner.u64_be(1, counted.packets).u64_be(2, counted.bytes);
            });
        }
    }
    writer.finish()
}

/// A direction as the kernel writes it.
#[cfg(test)]
pub(crate) fn write_tuple(writer: &mut Writer, number: u16, tuple: &Tuple) {
    let first = if tuple.source.is_ipv4() { 1 } else { 3 };
    writer.nested(number, |direction| {
        direction.nested(ADDRESSES, |addresses| {
            addresses.address(first, tuple.source).address(first + 1, tuple.dest);
        });
        direction.nested(TRANSPORT, |transport| {
            transport.u8(1, tuple.protocol);
            let [kind, code] = tuple.dest_port.to_be_bytes();
            match tuple.protocol {
                1 => transport.u16_be(4, tuple.source_port).u8(5, kind).u8(6, code),
                58 => transport.u16_be(7, tuple.source_port).u8(8, kind).u8(9, code),
                _ => transport.u16_be(2, tuple.source_port).u16_be(3, tuple.dest_port),
            };
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tuples() -> impl Strategy<Value = Tuple> {
        let address = prop_oneof![
            (any::<[u8; 4]>(), any::<[u8; 4]>())
                .prop_map(|(one, two)| (IpAddr::from(one), IpAddr::from(two))),
            (any::<[u8; 16]>(), any::<[u8; 16]>())
                .prop_map(|(one, two)| (IpAddr::from(one), IpAddr::from(two))),
        ];
        let protocol = prop::sample::select(vec![1_u8, 6, 17, 58, 132, 47]);
        (address, protocol, any::<u16>(), any::<u16>()).prop_map(
            |((source, dest), protocol, source_port, dest_port)| Tuple {
                source,
                dest,
                protocol,
                source_port,
                dest_port,
            },
        )
    }

    fn entries() -> impl Strategy<Value = Entry> {
        let counted = || (any::<u64>(), any::<u64>()).prop_map(|(packets, bytes)| Counted { packets, bytes });
        let counted = prop::option::of((counted(), counted()));
        (any::<u32>(), tuples(), tuples(), any::<u32>(), prop::option::of(0..12_u8), counted).prop_map(
            |(id, original, reply, status, tcp_state, counted)| Entry {
                id,
                original,
                reply,
                status,
                tcp_state,
                counted,
            },
        )
    }

    proptest! {
        #[test]
        fn written_entries_read_back(entry in entries()) {
            prop_assert_eq!(Entry::read(&written(&entry)), Some(entry));
        }

        #[test]
        fn truncated_or_damaged_entries_never_read_beyond_the_end(
            entry in entries(), place in 0..300_usize, value in any::<u8>(),
        ) {
            let whole = written(&entry);
            for end in 0..whole.len() {
                let _ = Entry::read(&whole[..end]);
            }
            let mut damaged = whole.clone();
            let place = place % damaged.len();
            damaged[place] = value;
            let _ = Entry::read(&damaged);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Entry::read(&bytes);
        }
    }

    #[test]
    fn policy_sees_the_destination_after_translation() {
        let tuple = |source: &str, source_port, dest: &str, dest_port, protocol| Tuple {
            source: source.parse().unwrap(),
            dest: dest.parse().unwrap(),
            protocol,
            source_port,
            dest_port,
        };
        let mut entry = Entry {
            id: 1,
            original: tuple("10.0.0.1", 40_000, "10.96.0.1", 80, 6),
            // The source was translated, too.
            reply: tuple("10.0.0.2", 8080, "10.9.0.1", 50_000, 6),
            status: DEST_TRANSLATED | SOURCE_TRANSLATED | SEEN_REPLY,
            tcp_state: Some(3),
            counted: None,
        };
        assert_eq!(entry.as_filtered(), tuple("10.0.0.1", 40_000, "10.0.0.2", 8080, 6));
        assert!(entry.is_answered() && entry.is_source_translated() && !entry.is_over());
        entry.tcp_state = Some(TIME_WAIT);
        entry.status = SOURCE_TRANSLATED;
        assert_eq!(entry.as_filtered(), entry.original);
        assert!(entry.is_over() && !entry.is_answered());
        let ping = Entry {
            original: tuple("10.0.0.1", 7, "10.96.0.1", 0x0800, 1),
            reply: tuple("10.0.0.2", 7, "10.0.0.1", 0, 1),
            status: DEST_TRANSLATED,
            ..entry
        };
        assert_eq!(ping.as_filtered(), tuple("10.0.0.1", 7, "10.0.0.2", 0x0800, 1));
    }
}
