//! Options of TCP sockets that routing sessions need and no crate sets: keys that sign segments (RFC 2385), and the
//! minimum accepted time to live (RFC 5082).
//!
//! Does not keep keys: only the kernel has them afterwards.

use ipnet::IpNet;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

const TCP_MD5SIG: libc::c_int = 14;
const TCP_MD5SIG_EXT: libc::c_int = 32;
const FLAG_PREFIX: u8 = 1;
const FLAG_DEVICE: u8 = 2;
/// The longest key that the kernel takes.
pub const MAX_KEY: usize = 80;
/// The kernel's `struct tcp_md5sig`: an address in 128 bytes, flags, prefix length, key length, device, key.
const MD5_LENGTH: usize = 128 + 8 + MAX_KEY;

/// Signs all segments to and from the addresses of a network with a key, or stops signing them when the key is empty.
/// On a listening socket it applies to connections from that network. `device` is the link of a link-local address.
///
/// # Errors
/// When the key is too long, or the kernel lacks the option.
pub fn set_md5(socket: &impl AsFd, peers: IpNet, device: Option<u32>, key: &[u8]) -> io::Result<()> {
    if key.len() > MAX_KEY {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a TCP MD5 password has at most 80 bytes"));
    }
    let mut value = [0; MD5_LENGTH];
    match peers.addr() {
        IpAddr::V4(address) => {
            value[..2].copy_from_slice(&2_u16.to_ne_bytes());
            value[4..8].copy_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            value[..2].copy_from_slice(&10_u16.to_ne_bytes());
            value[8..24].copy_from_slice(&address.octets());
        }
    }
    let is_host = peers.prefix_len() == peers.max_prefix_len();
    let mut option = TCP_MD5SIG;
    if !is_host || device.is_some() {
        option = TCP_MD5SIG_EXT;
        value[128] = FLAG_PREFIX;
        value[129] = peers.prefix_len();
    }
    if let Some(device) = device {
        value[128] |= FLAG_DEVICE;
        value[132..136].copy_from_slice(&device.to_ne_bytes());
    }
    let length = u16::try_from(key.len()).unwrap_or_default();
    value[130..132].copy_from_slice(&length.to_ne_bytes());
    value[136..136 + key.len()].copy_from_slice(key);
    match set(socket, libc::IPPROTO_TCP, option, &value) {
        // Without a key there is nothing to remove.
        Err(error) if key.is_empty() && error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        outcome => outcome,
    }
}

/// Drops packets that arrived with a smaller time to live. 0 accepts all.
///
/// # Errors
/// When the kernel refuses.
pub fn set_least_ttl(socket: &impl AsFd, is_v6: bool, least: u8) -> io::Result<()> {
    const IP_MINTTL: libc::c_int = 21;
    const IPV6_MINHOPCOUNT: libc::c_int = 73;
    let (level, option) =
        if is_v6 { (libc::IPPROTO_IPV6, IPV6_MINHOPCOUNT) } else { (libc::IPPROTO_IP, IP_MINTTL) };
    set(socket, level, option, &libc::c_int::from(least).to_ne_bytes())
}

#[expect(unsafe_code, reason = "neither rustix nor socket2 sets these options")]
fn set(socket: &impl AsFd, level: libc::c_int, option: libc::c_int, value: &[u8]) -> io::Result<()> {
    let length = libc::socklen_t::try_from(value.len()).unwrap_or_default();
    // SAFETY: the descriptor is open for as long as it is borrowed, and the kernel reads `length` bytes of `value`, no more.
    let answer =
        unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, value.as_ptr().cast(), length) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
