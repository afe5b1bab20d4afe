//! Machines that announce their location: gratuitous ARP, and the reverse ARP that QEMU sends when a machine arrives.
//!
//! A [`Listener`] receives what arrives through one device. It sends nothing and takes no frames away from others. Its
//! sockets are bound to the two frame types and not to the device: a filter in the kernel selects the device, so other
//! frames never wake the process.

use crate::error::{Error, Result};
use crate::filter::{Field, only};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RawProtocol, RecvFlags, SocketFlags, SocketType};
use socket2::SockRef;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const ARP: u16 = 0x0806;
const REVERSE_ARP: u16 = 0x8035;
/// The offset of the frame type in an Ethernet header, which ends right after it.
const ETHERTYPE: usize = 12;
const ETHERNET_HEADER: usize = 14;
/// Hardware type, protocol type, two lengths, operation.
const ARP_HEADER: usize = 8;
/// More than any such frame has: addresses have at most 255 bytes, and here six and four.
const LONGEST: usize = 256;
/// How many frames are read in one go, so that a sender that never stops cannot hold us up. More than a socket buffers.
const MOST: usize = 65_536;

/// Whether an Ethernet frame announces a machine: any reverse ARP, and an ARP packet in which the sender asks or
/// answers for its own address.
#[must_use]
pub fn is_announcement(frame: &[u8]) -> bool {
    let Some((header, packet)) = frame.split_at_checked(ETHERNET_HEADER) else { return false };
    match u16::from_be_bytes([header[ETHERTYPE], header[ETHERTYPE + 1]]) {
        REVERSE_ARP => true,
        ARP => asks_for_itself(packet).unwrap_or(false),
        _ => false,
    }
}

/// `None` for a packet that is shorter than its own header claims.
fn asks_for_itself(packet: &[u8]) -> Option<bool> {
    let (header, addresses) = packet.split_at_checked(ARP_HEADER)?;
    let (hardware, protocol) = (usize::from(header[4]), usize::from(header[5]));
    let sender = addresses.get(hardware..hardware + protocol)?;
    let target = addresses.get(2 * hardware + protocol..2 * (hardware + protocol))?;
    Some(protocol > 0 && sender == target)
}

/// Receives announcements that arrive through one device after it was opened.
#[derive(Debug)]
pub struct Listener {
    sockets: [OwnedFd; 2],
}

impl Listener {
    /// Listens to the device with this number, in the network namespace of this thread.
    ///
    /// # Errors
    /// When the kernel does not provide a socket or rejects the filter.
    pub fn open(device: u32) -> Result<Self> {
        Ok(Self { sockets: [open(ARP, device)?, open(REVERSE_ARP, device)?] })
    }

    /// The descriptors to wait on: when one of them is readable, [`Listener::heard`] has news.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(AsFd::as_fd)
    }

    /// Whether there was an announcement since the last call. Does not wait.
    ///
    /// # Errors
    /// When a socket fails.
    pub fn heard(&self) -> Result<bool> {
        let mut heard = false;
        for socket in &self.sockets {
            drain(socket, |frame| heard |= is_announcement(frame))?;
        }
        Ok(heard)
    }
}

fn open(kind: u16, device: u32) -> Result<OwnedFd> {
    let failed = |what: &'static str| move |errno| Error::Socket { what: what.to_owned(), errno };
    let protocol = RawProtocol::new(u32::from(kind.to_be())).map(rustix::net::Protocol::from_raw);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, protocol)
        .map_err(failed("open a socket for frames"))?;
    SockRef::from(&socket)
        .attach_filter(&only(&[(Field::Device, device)]))
        .map_err(|error| Error::socket("choose a device for frames", &error))?;
    // Frames from before the filter may be another device's.
    drain(&socket, |_| {})?;
    Ok(socket)
}

fn drain(socket: &OwnedFd, mut each: impl FnMut(&[u8])) -> Result<()> {
    let mut frame = [0; LONGEST];
    for _ in 0..MOST {
        match rustix::net::recv(socket, &mut frame[..], RecvFlags::empty()) {
            Ok((length, _)) => each(&frame[..length]),
            Err(Errno::AGAIN) => return Ok(()),
            // The device went down or was removed; that is reported once, and the socket remains usable.
            Err(Errno::INTR | Errno::NETDOWN) => {}
            Err(errno) => return Err(Error::Socket { what: "read frames".to_owned(), errno }),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::is_announcement;

    /// A frame with an ARP packet between these addresses.
    fn arp(operation: u8, sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
        let mut frame = vec![0xff; 6];
        frame.extend([2, 0, 0, 0, 0, 1, 0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, operation, 2, 0, 0, 0, 0, 1]);
        frame.extend(sender);
        frame.extend([0; 6]);
        frame.extend(target);
        frame
    }

    #[test]
    fn machines_announce_themselves_by_their_own_address() {
        let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        for operation in [1, 2] {
            assert!(is_announcement(&arp(operation, a, a)));
            assert!(!is_announcement(&arp(operation, a, b)));
        }
        assert!(!is_announcement(&arp(1, [0; 4], a)), "a probe whether the address is in use");
        let mut padded = arp(1, a, a);
        padded.resize(60, 0);
        assert!(is_announcement(&padded), "frames are filled up");
    }

    #[test]
    fn any_reverse_arp_is_an_announcement() {
        let mut frame = vec![0xff; 12];
        frame.extend([0x80, 0x35]);
        assert!(is_announcement(&frame));
        frame.extend([0; 46]);
        assert!(is_announcement(&frame));
    }

    #[test]
    fn truncated_or_damaged_frames_are_not_announcements() {
        let whole = arp(2, [10, 0, 0, 1], [10, 0, 0, 1]);
        for length in 0..whole.len() {
            assert!(!is_announcement(&whole[..length]), "{length} bytes");
        }
        for (place, value) in [(18, 255), (19, 255), (19, 0), (13, 0)] {
            let mut frame = whole.clone();
            frame[place] = value;
            assert!(!is_announcement(&frame), "byte {place} is {value}");
        }
        assert!(!is_announcement(&[0; 64]));
    }
}
