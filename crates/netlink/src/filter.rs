//! Socket filters in the kernel's classic BPF: a packet is received only if all given fields have their values.

use socket2::SockFilter;

/// A field of a packet or of the kernel's metadata about it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Field {
    /// The number of the device that it arrived on.
    Device,
    /// The byte at this offset in what the socket receives.
    Byte(u32),
    /// The hop limit of the IPv6 packet.
    HopLimit,
}

impl Field {
    /// The load instruction and its offset.
    const fn load(self) -> (u16, u32) {
        const WORD: u16 = 0x20;
        const BYTE: u16 = 0x30;
        // Negative offsets are special to the kernel: its metadata, and the network header.
        match self {
            Self::Device => (WORD, (-0x1000_i32 + 8).cast_unsigned()),
            Self::Byte(place) => (BYTE, place),
            Self::HopLimit => (BYTE, (-0x10_0000_i32 + 7).cast_unsigned()),
        }
    }
}

/// A filter that passes packets with all these values, uncut, and drops everything else.
pub(crate) fn only(conditions: &[(Field, u32)]) -> Vec<SockFilter> {
    const EQUAL: u16 = 0x15;
    const TAKE: u16 = 0x06;
    let mut filter = Vec::with_capacity(2 * conditions.len() + 2);
    for (place, (field, value)) in conditions.iter().enumerate() {
        let (load, from) = field.load();
        // Jumps to the last instruction, which drops the packet.
        let otherwise = u8::try_from(2 * (conditions.len() - place) - 1).unwrap_or(u8::MAX);
        filter.push(SockFilter::new(load, 0, 0, from));
        filter.push(SockFilter::new(EQUAL, 0, otherwise, *value));
    }
    filter.push(SockFilter::new(TAKE, 0, 0, u32::MAX));
    filter.push(SockFilter::new(TAKE, 0, 0, 0));
    filter
}
