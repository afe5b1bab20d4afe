//! Builds packets that no socket sends by itself, and parses those that raw sockets receive.

/// The checksum of the Internet protocols.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = 0;
    for pair in bytes.chunks(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

/// An ICMP request, with room for the data of a timestamp request. The kernel computes ICMPv6's checksum.
pub(crate) fn icmp(icmp_type: u8, code: u8, identifier: u16) -> Vec<u8> {
    let mut packet = vec![icmp_type, code, 0, 0];
    packet.extend(identifier.to_be_bytes());
    packet.extend([0; 14]);
    let sum = checksum(&packet);
    packet[2..4].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// The first packet of an SCTP association.
pub(crate) fn sctp_init(source: u16, destination: u16) -> Vec<u8> {
    let mut packet = Vec::new();
    packet.extend(source.to_be_bytes());
    packet.extend(destination.to_be_bytes());
    // No verification tag yet, and the checksum, which is filled in below.
    packet.extend([0; 8]);
    // INIT, no flags, 20 bytes: tag, window, streams out and in, first sequence number.
    packet.extend([1, 0, 0, 20]);
    packet.extend(1_u32.to_be_bytes());
    packet.extend(65_536_u32.to_be_bytes());
    packet.extend([0, 1, 0, 1]);
    packet.extend(1_u32.to_be_bytes());
    let sum = crc32c(&packet);
    packet[8..12].copy_from_slice(&sum.to_le_bytes());
    packet
}

/// The checksum of SCTP.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

/// The part of a packet after its IP header: raw IPv4 sockets receive the header, too.
pub(crate) fn payload(packet: &[u8], v6: bool) -> &[u8] {
    let header = if v6 { 0 } else { packet.first().map_or(0, |byte| usize::from(byte & 0xf) * 4) };
    packet.get(header..).unwrap_or_default()
}

/// The value that identifies a probe's packet: the source port, the ICMP identifier, or the first bytes. For UDP the
/// first bytes of the datagram, because ports may be translated on the way.
pub(crate) fn tag(protocol: u8, payload: &[u8]) -> Option<u16> {
    let place = match protocol {
        1 | 58 => 4,
        17 => 8,
        _ => 0,
    };
    let bytes = payload.get(place..place + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

#[cfg(test)]
mod tests {
    use super::{checksum, crc32c, icmp, payload, tag};

    #[test]
    fn checksums_match_published_examples() {
        // From RFC 1071 and RFC 3720.
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(checksum(&icmp(8, 0, 7)), 0);
    }

    #[test]
    fn tags_are_found_for_each_protocol() {
        let mut packet = vec![0x45];
        packet.resize(20, 0);
        packet.extend(icmp(8, 0, 4711));
        assert_eq!(tag(1, payload(&packet, false)), Some(4711));
        assert_eq!(tag(6, &[0x30, 0x39, 0, 53]), Some(12345));
        assert_eq!(tag(17, &[0, 0, 0, 53, 0, 10, 0, 0, 0x30, 0x39]), Some(12345));
        assert_eq!(tag(6, &[1]), None);
    }
}
