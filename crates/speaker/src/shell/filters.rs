//! Socket filters in the kernel's classic BPF: only packets sent on this very link. A router that forwards a packet
//! decreases its time to live, and a distant sender cannot undo that (RFC 5082).

use socket2::SockFilter;

const FULL_TTL: u32 = 255;
/// The offset at which filters find the IP header, which precedes the socket's data.
const NETWORK: u32 = (-0x10_0000_i32).cast_unsigned();
const LOAD_BYTE: u16 = 0x30;
const JUMP_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
const PASS: SockFilter = SockFilter::new(RETURN, 0, 0, u32::MAX);
const DROP: SockFilter = SockFilter::new(RETURN, 0, 0, 0);

/// Packets with the full time to live.
pub(super) fn near(v6: bool) -> [SockFilter; 4] {
    let place = NETWORK + if v6 { 7 } else { 8 };
    [SockFilter::new(LOAD_BYTE, 0, 0, place), SockFilter::new(JUMP_EQUAL, 0, 1, FULL_TTL), PASS, DROP]
}

/// Messages of ICMPv6 of two types, with the full time to live.
pub(super) fn near_messages(types: [u8; 2]) -> [SockFilter; 7] {
    let [one, other] = types.map(u32::from);
    [
        SockFilter::new(LOAD_BYTE, 0, 0, NETWORK + 7),
        SockFilter::new(JUMP_EQUAL, 0, 4, FULL_TTL),
        SockFilter::new(LOAD_BYTE, 0, 0, 0),
        SockFilter::new(JUMP_EQUAL, 1, 0, one),
        SockFilter::new(JUMP_EQUAL, 0, 1, other),
        PASS,
        DROP,
    ]
}
