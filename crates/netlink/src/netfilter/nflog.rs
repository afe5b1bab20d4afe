//! Packets that rules report (`log group N` of nftables, NFLOG of iptables): the start of each packet, and the text of
//! the rule.
//!
//! A group has one reader per network namespace; a second one is refused, and the error names the group. The kernel
//! sends packets in batches, and drops them when they are not read in time. Both the gaps in its numbers and the
//! overruns of the socket are counted. Other groups, and their readers, are not affected.

use super::conntrack::Tuple;
use super::conntrack::events::wait_for;
use super::packet::PacketStart;
use super::socket::Socket;
use super::{Error, Refusal, Result, header};
use crate::datagram::{Received, Request};
use crate::wire::{Writer, attributes, split_header};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// The subsystem, and its messages.
const LOG: u16 = 4;
const PACKET: u16 = 0;
const CONFIGURE: u16 = 1;

/// Attributes of a configuration.
const COMMAND: u16 = 1;
const MODE: u16 = 2;
const BATCH_BYTES: u16 = 3;
const BATCH_TIME: u16 = 4;
const BATCH_PACKETS: u16 = 5;
const FLAGS: u16 = 6;
const BIND: u8 = 1;
const COPY_PACKET: u8 = 2;
const WITH_NUMBERS: u16 = 1;
const WITH_CONNECTION: u16 = 4;

/// Attributes of a packet.
const PAYLOAD: u16 = 9;
const PREFIX: u16 = 10;
const NUMBER: u16 = 12;
const CONNECTION: u16 = 18;
/// The original direction of a connection.
const ORIGINAL: u16 = 1;

/// `EPERM`: the kernel's error for a second reader of a group, too.
const NOT_PERMITTED: i32 = 1;
/// `EAGAIN`: a module was loaded in the meantime.
const AGAIN: i32 = 11;

/// The limits of one batch in bytes and packets, and its longest delay in hundredths of a second.
const MOST_BYTES: u32 = 65_536;
const MOST_PACKETS: u32 = 256;
const LONGEST_WAIT: u32 = 10;
/// The receive buffer; larger than a batch, because the kernel rounds batches up.
const BUFFER: usize = 256 * 1024;
/// The number of bytes copied from each packet.
const COPIED: u32 = 255;
/// Space for packets that wait to be read.
const ROOM: usize = 16 * 1024 * 1024;
/// How many batches are read in one go, so that a flood of packets does not keep us from other work.
const MOST_READS: usize = 64;

/// A packet that a rule reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedPacket<'a> {
    /// The rule's text.
    pub prefix: &'a str,
    /// Its ends and its length.
    pub start: PacketStart,
    /// The original direction of its connection, if the kernel includes it.
    pub original: Option<Tuple>,
}

/// The numbers of packets read and lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NflogCounts {
    /// Batches.
    pub batches: u64,
    /// Packets.
    pub packets: u64,
    /// Packets that the kernel numbered but that never arrived.
    pub lost: u64,
    /// How often the socket overran.
    pub overruns: u64,
    /// Packets that could not be read.
    pub unreadable: u64,
}

/// A reader of one group.
#[derive(Debug)]
pub struct Nflog {
    socket: Socket,
    numbers: Numbers,
    counts: NflogCounts,
    has_connections: bool,
}

impl Nflog {
    /// Reads a group in this thread's network namespace.
    ///
    /// # Errors
    /// When the kernel does not provide a socket, or another process reads the group.
    pub fn open(group: u16) -> Result<Self> {
        let mut socket = Socket::open()?;
        socket.make_receive_room(ROOM);
        socket.make_buffer(BUFFER);
        let what = format!("read packets of NFLOG group {group}");
        let mut has_connections = true;
        let mut outcome = socket.request(&what, configuration(group, WITH_NUMBERS | WITH_CONNECTION));
        if outcome.as_ref().is_err_and(|error| code(error) == Some(AGAIN)) {
            outcome = socket.request(&what, configuration(group, WITH_NUMBERS | WITH_CONNECTION));
        }
        if outcome.as_ref().is_err_and(|error| code(error) == Some(Refusal::UNSUPPORTED)) {
            // The kernel was built without connections in reports.
            has_connections = false;
            outcome = socket.request(&what, configuration(group, WITH_NUMBERS));
        }
        outcome.map_err(|error| match code(&error) {
            Some(code @ (Refusal::BUSY | NOT_PERMITTED)) => {
                let message = "another process may be reading it".to_owned();
                Error::Refused { what, refusal: Refusal { code, message } }
            }
            _ => error,
        })?;
        Ok(Self { socket, numbers: Numbers::default(), counts: NflogCounts::default(), has_connections })
    }

    /// Whether the kernel includes how connections were opened, before their destination was translated.
    #[must_use]
    pub fn has_connections(&self) -> bool {
        self.has_connections
    }

    /// Waits for packets, at most for `at_most`, and passes the waiting ones to `show`.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn wait(&mut self, at_most: Duration, mut show: impl FnMut(&LoggedPacket<'_>)) -> Result<()> {
        wait_for(&self.socket, at_most)?;
        for _ in 0..MOST_READS {
            let (numbers, counts) = (&mut self.numbers, &mut self.counts);
            let outcome = self.socket.look(|message| {
                if message.message_type != (LOG << 8) | PACKET {
                    return;
                }
                counts.packets += 1;
                let (number, packet) = read(message.payload);
                counts.lost += number.map_or(0, |number| numbers.gap(number));
                match packet {
                    Some(packet) => show(&packet),
                    None => counts.unreadable += 1,
                }
            })?;
            match outcome {
                Received::Something => self.counts.batches += 1,
                Received::Overrun => self.counts.overruns += 1,
                Received::Nothing => break,
            }
        }
        Ok(())
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> NflogCounts {
        self.counts
    }
}

impl AsFd for Nflog {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn code(error: &Error) -> Option<i32> {
    error.refusal().map(|refusal| refusal.code)
}

/// The whole configuration in one message, so that it applies from the group's first packet on.
fn configuration(group: u16, flags: u16) -> Request {
    let mut writer = Writer::new(&header(0, group));
    let [a, b, c, d] = COPIED.to_be_bytes();
    writer
        .u8(COMMAND, BIND)
        .bytes(MODE, &[a, b, c, d, COPY_PACKET, 0])
        .u32_be(BATCH_BYTES, MOST_BYTES)
        .u32_be(BATCH_TIME, LONGEST_WAIT)
        .u32_be(BATCH_PACKETS, MOST_PACKETS)
        .u16_be(FLAGS, flags);
    Request { message_type: (LOG << 8) | CONFIGURE, flags: 0, payload: writer.finish() }
}

/// Reads the number of a report, and the packet.
fn read(payload: &[u8]) -> (Option<u32>, Option<LoggedPacket<'_>>) {
    let Some((_, rest)) = split_header::<4>(payload) else { return (None, None) };
    let (mut number, mut prefix, mut start, mut original) = (None, None, None, None);
    for attribute in attributes(rest) {
        match attribute.number {
            NUMBER => number = attribute.u32_be(),
            PREFIX => prefix = attribute.str(),
            PAYLOAD => start = PacketStart::read(attribute.value),
            CONNECTION => {
                let tuple = attribute.attributes().find(|part| part.number == ORIGINAL);
                original = tuple.and_then(|tuple| Tuple::read(&tuple));
            }
            _ => {}
        }
    }
    let packet = prefix.zip(start).map(|(prefix, start)| LoggedPacket { prefix, start, original });
    (number, packet)
}

/// The numbers of reports, which are consecutive unless some were lost.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    next: Option<u32>,
}

impl Numbers {
    /// The number of reports missing between the last one and this one.
    fn gap(&mut self, number: u32) -> u64 {
        let expected = self.next.replace(number.wrapping_add(1)).unwrap_or(number);
        match number.wrapping_sub(expected) {
            // An earlier number: the group was started again.
            gap if gap > u32::MAX / 2 => 0,
            gap => u64::from(gap),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::conntrack::entry::write_tuple;
    use super::*;
    use proptest::prelude::*;

    const PING: [u8; 28] =
        [0x45, 0, 0, 84, 0, 0, 0, 0, 64, 1, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 8, 0, 0, 0, 0, 9, 0, 1];

    fn message(original: Option<&Tuple>) -> Vec<u8> {
        let mut writer = Writer::new(&header(2, 1));
        writer.bytes(1, &[8, 0, 2, 0]).text(PREFIX, "DPI|default").u32_be(NUMBER, 7).bytes(PAYLOAD, &PING);
        if let Some(original) = original {
            writer.nested(CONNECTION, |connection| write_tuple(connection, ORIGINAL, original));
        }
        writer.finish()
    }

    #[test]
    fn a_packet_has_its_rules_text_and_its_connection() {
        let tuple = PacketStart::read(&PING).unwrap().tuple;
        let before = Tuple { dest: "10.96.0.1".parse().unwrap(), ..tuple };
        for original in [None, Some(before)] {
            let bytes = message(original.as_ref());
            let (number, packet) = read(&bytes);
            let packet = packet.unwrap();
            assert_eq!((number, packet.prefix, packet.original), (Some(7), "DPI|default", original));
            assert_eq!((packet.start.length, packet.start.tuple.source_port), (84, 9));
        }
    }

    #[test]
    fn gaps_are_counted() {
        let gaps = |sequence: &[u32]| {
            let mut numbers = Numbers::default();
            sequence.iter().map(|number| numbers.gap(*number)).sum::<u64>()
        };
        assert_eq!(gaps(&[5, 6, 7]), 0);
        assert_eq!(gaps(&[5, 6, 9, 10, 12]), 3);
        assert_eq!(gaps(&[u32::MAX, 0, 2]), 1);
        assert_eq!(gaps(&[100, 0, 1]), 0);
    }

    proptest! {
        #[test]
        fn damaged_reports_do_not_panic(place in 0..200_usize, value in any::<u8>(), end in 0..200_usize) {
            let tuple = PacketStart::read(&PING).unwrap().tuple;
            let mut bytes = message(Some(&tuple));
            let place = place % bytes.len();
            bytes[place] = value;
            let _ = read(&bytes[..end % bytes.len()]);
            let _ = read(&bytes);
        }
    }
}
