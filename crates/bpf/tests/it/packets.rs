//! Builds packets byte by byte.

/// An Ethernet header with zero addresses.
fn ethernet(kind: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend(kind.to_be_bytes());
    frame
}

/// An IPv4 packet: options, the fragment field, and the payload.
pub(crate) struct V4<'a> {
    pub(crate) source: [u8; 4],
    pub(crate) destination: [u8; 4],
    pub(crate) protocol: u8,
    pub(crate) id: u16,
    pub(crate) fragment: u16,
    pub(crate) options: &'a [u8],
    pub(crate) payload: &'a [u8],
}

impl V4<'_> {
    /// The packet without an Ethernet header.
    pub(crate) fn packet(&self) -> Vec<u8> {
        assert_eq!(self.options.len() % 4, 0);
        let length = 20 + self.options.len();
        let word = |number: usize| u16::try_from(number).unwrap().to_be_bytes();
        let mut packet = vec![0x40 | u8::try_from(length / 4).unwrap(), 0];
        packet.extend(word(length + self.payload.len()));
        packet.extend(self.id.to_be_bytes());
        packet.extend(self.fragment.to_be_bytes());
        packet.extend([64, self.protocol, 0, 0]);
        packet.extend(self.source);
        packet.extend(self.destination);
        packet.extend(self.options);
        packet.extend(self.payload);
        packet
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        [ethernet(0x0800), self.packet()].concat()
    }
}

/// An IPv6 packet; extension headers are part of the payload, and `next` is the number of the first one.
pub(crate) struct V6<'a> {
    pub(crate) source: [u8; 16],
    pub(crate) destination: [u8; 16],
    pub(crate) next: u8,
    pub(crate) payload: &'a [u8],
}

impl V6<'_> {
    /// The packet without an Ethernet header.
    pub(crate) fn packet(&self) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0];
        packet.extend(u16::try_from(self.payload.len()).unwrap().to_be_bytes());
        packet.extend([self.next, 64]);
        packet.extend(self.source);
        packet.extend(self.destination);
        packet.extend(self.payload);
        packet
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        [ethernet(0x86dd), self.packet()].concat()
    }
}

/// A frame with another EtherType.
pub(crate) fn other(kind: u16) -> Vec<u8> {
    [ethernet(kind), vec![0; 46]].concat()
}

pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const ACK: u8 = 0x10;

pub(crate) fn tcp(source: u16, destination: u16, flags: u8, sequence: u32, acknowledgement: u32) -> Vec<u8> {
    let mut header = Vec::new();
    header.extend(source.to_be_bytes());
    header.extend(destination.to_be_bytes());
    header.extend(sequence.to_be_bytes());
    header.extend(acknowledgement.to_be_bytes());
    header.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    header
}

pub(crate) fn udp(source: u16, destination: u16) -> Vec<u8> {
    let mut header = Vec::new();
    header.extend(source.to_be_bytes());
    header.extend(destination.to_be_bytes());
    header.extend([0, 8, 0, 0]);
    header
}

/// The same eight bytes serve as the start of SCTP, whose header has four more.
pub(crate) fn sctp(source: u16, destination: u16) -> Vec<u8> {
    [udp(source, destination), vec![0; 4]].concat()
}

pub(crate) fn icmp(kind: u8, code: u8, rest: &[u8]) -> Vec<u8> {
    [&[kind, code, 0, 0, 0, 0, 0, 0], rest].concat()
}
