//! The start of a packet: its ends, its protocol, its length.
//!
//! Reads only as much as the report of a packet carries. Truncated or malformed parts read as absent, never as wrong.

use super::conntrack::Tuple;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const TCP: u8 = 6;
const UDP: u8 = 17;
const DCCP: u8 = 33;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;
const ICMP: u8 = 1;
const ICMP_V6: u8 = 58;

/// How many IPv6 headers are skipped before the protocol; the kernel itself sends no packet with more.
const MOST_HEADERS: usize = 8;

/// The content of the start of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketStart {
    /// Its ends. Fragments after the first have no ports.
    pub tuple: Tuple,
    /// The length of the whole packet in bytes, even if only its start was captured.
    pub length: u32,
}

impl PacketStart {
    /// Reads the start of a packet of either family.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        match bytes.first()? >> 4 {
            4 => v4(bytes),
            6 => v6(bytes),
            _ => None,
        }
    }
}

fn v4(bytes: &[u8]) -> Option<PacketStart> {
    let (header, _) = bytes.split_first_chunk::<20>()?;
    let header_length = usize::from(header[0] & 0xf) * 4;
    if header_length < header.len() {
        return None;
    }
    let address = |at: usize| Some(IpAddr::from(Ipv4Addr::from(*header.get(at..)?.first_chunk::<4>()?)));
    let is_first = u16::from_be_bytes([header[6], header[7]]) & 0x1fff == 0;
    let transport = bytes.get(header_length..).filter(|_| is_first).unwrap_or_default();
    let (source_port, dest_port) = ports(header[9], transport);
    let length = u32::from(u16::from_be_bytes([header[2], header[3]]));
    let tuple =
        Tuple { source: address(12)?, dest: address(16)?, protocol: header[9], source_port, dest_port };
    Some(PacketStart { tuple, length })
}

fn v6(bytes: &[u8]) -> Option<PacketStart> {
    let (header, mut rest) = bytes.split_first_chunk::<40>()?;
    let address = |at: usize| Some(IpAddr::from(Ipv6Addr::from(*header.get(at..)?.first_chunk::<16>()?)));
    let mut protocol = header[6];
    for _ in 0..MOST_HEADERS {
        let length = match (protocol, rest) {
            // Hop by hop, routing, destination: the length is in units of 8 bytes, without the first.
            (0 | 43 | 60, [_, length, ..]) => (usize::from(*length) + 1) * 8,
            // Authentication: the length is in units of 4 bytes, without the first two.
            (51, [_, length, ..]) => (usize::from(*length) + 2) * 4,
            (44, [_, _, high, low, ..]) => {
                if u16::from_be_bytes([*high, *low]) & 0xfff8 != 0 {
                    // Not the first fragment: what follows is not a protocol header.
                    protocol = rest[0];
                    rest = &[];
                    break;
                }
                8
            }
            _ => break,
        };
        protocol = rest[0];
        rest = rest.get(length..).unwrap_or_default();
    }
    let (source_port, dest_port) = ports(protocol, rest);
    let length = 40 + u32::from(u16::from_be_bytes([header[4], header[5]]));
    let tuple = Tuple { source: address(8)?, dest: address(24)?, protocol, source_port, dest_port };
    Some(PacketStart { tuple, length })
}

/// The ports of a protocol that has them; for ICMP the id, and type and code. 0 if absent.
fn ports(protocol: u8, transport: &[u8]) -> (u16, u16) {
    let pair = |at: usize| {
        let bytes = transport.get(at..).and_then(|rest| rest.first_chunk::<2>());
        bytes.map_or(0, |bytes| u16::from_be_bytes(*bytes))
    };
    match protocol {
        TCP | UDP | DCCP | SCTP | UDP_LITE => (pair(0), pair(2)),
        ICMP => (if is_query(transport, &[0, 8, 13, 14, 15, 16, 17, 18]) { pair(4) } else { 0 }, pair(0)),
        ICMP_V6 => (if is_query(transport, &[128, 129]) { pair(4) } else { 0 }, pair(0)),
        _ => (0, 0),
    }
}

/// Whether an ICMP message is of a type that has an id.
fn is_query(message: &[u8], types: &[u8]) -> bool {
    message.first().is_some_and(|kind| types.contains(kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn v4_packet(protocol: u8, fragment: u16, transport: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0x05, 0xdc, 0, 0];
        packet.extend(fragment.to_be_bytes());
        packet.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend(transport);
        packet
    }

    fn v6_packet(next: u8, rest: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 100, next, 64];
        for last in [1, 2] {
            packet.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        }
        packet.extend(rest);
        packet
    }

    /// The protocol and the ports.
    fn seen(packet: &[u8]) -> (u8, u16, u16) {
        let start = PacketStart::read(packet).unwrap();
        (start.tuple.protocol, start.tuple.source_port, start.tuple.dest_port)
    }

    #[test]
    fn ports_of_protocols() {
        let ports = [0x9c, 0x40, 0, 80];
        for protocol in [TCP, UDP, SCTP, DCCP] {
            assert_eq!(seen(&v4_packet(protocol, 0x4000, &ports)), (protocol, 40_000, 80));
            assert_eq!(seen(&v6_packet(protocol, &ports)), (protocol, 40_000, 80));
        }
        assert_eq!(seen(&v4_packet(ICMP, 0, &[8, 0, 0, 0, 0x12, 0x34])), (ICMP, 0x1234, 0x0800));
        assert_eq!(seen(&v4_packet(ICMP, 0, &[3, 1, 0, 0, 0x12, 0x34])), (ICMP, 0, 0x0301));
        assert_eq!(seen(&v6_packet(ICMP_V6, &[128, 0, 0, 0, 0x12, 0x34])), (ICMP_V6, 0x1234, 0x8000));
        assert_eq!(seen(&v4_packet(47, 0, &ports)), (47, 0, 0));
        let start = PacketStart::read(&v4_packet(TCP, 0, &ports)).unwrap();
        assert_eq!(start.length, 1500, "the whole packet's");
        assert_eq!((start.tuple.source, start.tuple.dest), ([10, 0, 0, 1].into(), [10, 0, 0, 2].into()));
        assert_eq!(PacketStart::read(&v6_packet(TCP, &ports)).unwrap().length, 140);
    }

    #[test]
    fn only_the_first_fragment_has_ports() {
        let ports = [0x9c, 0x40, 0, 80];
        assert_eq!(seen(&v4_packet(TCP, 0x2000, &ports)), (TCP, 40_000, 80));
        assert_eq!(seen(&v4_packet(TCP, 0x2001, &ports)), (TCP, 0, 0));
        let first = [&[TCP, 0, 0, 1, 0, 0, 0, 7][..], &ports].concat();
        assert_eq!(seen(&v6_packet(44, &first)), (TCP, 40_000, 80));
        let second = [&[TCP, 0, 0, 9, 0, 0, 0, 7][..], &ports].concat();
        assert_eq!(seen(&v6_packet(44, &second)), (TCP, 0, 0));
    }

    #[test]
    fn ipv6_headers_are_skipped() {
        let hop = [&[60, 0, 0, 0, 0, 0, 0, 0][..], &[TCP, 1], &[0; 14], &[0x9c, 0x40, 0, 80]].concat();
        assert_eq!(seen(&v6_packet(0, &hop)), (TCP, 40_000, 80));
        let authenticated = [&[TCP, 4][..], &[0; 22], &[0x9c, 0x40, 0, 80]].concat();
        assert_eq!(seen(&v6_packet(51, &authenticated)), (TCP, 40_000, 80));
        // An endless chain of headers.
        assert_eq!(seen(&v6_packet(0, &[0; 200])).0, 0);
    }

    proptest! {
        #[test]
        fn nothing_is_read_beyond_the_end(bytes in prop::collection::vec(any::<u8>(), 0..120), kind in 0..3usize) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = [*first, 0x45, 0x60][kind];
            }
            let whole = PacketStart::read(&bytes);
            prop_assert!(whole.is_none() || bytes.len() >= 20);
            for end in 0..bytes.len() {
                let _ = PacketStart::read(&bytes[..end]);
            }
        }
    }
}
