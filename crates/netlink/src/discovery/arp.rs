//! ARP for IPv4: requests, answers to them, and announcements.

use super::link_address::LinkAddress;
use crate::error::{Error, Result};
use crate::mac::MacAddress;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const ETHERTYPE: u16 = 0x0806;
/// An Ethernet header and an ARP packet of Ethernet and IPv4.
const LENGTH: usize = 42;
/// The beginning of all such packets, after the Ethernet addresses: the types of frame, hardware and protocol, and the
/// lengths of their addresses.
const BEGINNING: [u8; 8] = [0x08, 0x06, 0, 1, 0x08, 0, 6, 4];
const REQUEST: u16 = 1;
const REPLY: u16 = 2;
const BROADCAST: MacAddress = MacAddress([0xff; 6]);

/// A request for the hardware address of an IPv4 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The hardware address of the sender.
    pub sender: MacAddress,
    /// The sender's address; 0.0.0.0 if it has none yet.
    pub sender_address: Ipv4Addr,
    /// The requested address.
    pub target: Ipv4Addr,
}

/// A frame with an ARP packet.
pub type Frame = [u8; LENGTH];

/// Reads a frame; `None` for anything but a request for an IPv4 address on Ethernet.
#[must_use]
pub fn read_request(frame: &[u8]) -> Option<Request> {
    let frame: &Frame = frame.get(..LENGTH)?.try_into().ok()?;
    if frame[12..20] != BEGINNING || u16::from_be_bytes([frame[20], frame[21]]) != REQUEST {
        return None;
    }
    let address = |place: usize| -> Option<Ipv4Addr> {
        Some(<[u8; 4]>::try_from(frame.get(place..place + 4)?).ok()?.into())
    };
    Some(Request {
        sender: MacAddress::from_bytes(&frame[22..28])?,
        sender_address: address(28)?,
        target: address(38)?,
    })
}

/// The answer that the requested address is at `own`.
#[must_use]
pub fn reply(request: &Request, own: MacAddress) -> Frame {
    write(REPLY, (own, request.target), (request.sender, request.sender_address), request.sender)
}

/// Announces to all hosts that the address is at `own`.
#[must_use]
pub fn announcement(address: Ipv4Addr, own: MacAddress) -> Frame {
    write(REQUEST, (own, address), (BROADCAST, address), BROADCAST)
}

fn write(
    operation: u16,
    sender: (MacAddress, Ipv4Addr),
    target: (MacAddress, Ipv4Addr),
    to: MacAddress,
) -> Frame {
    let mut frame = [0; LENGTH];
    let parts: [&[u8]; 8] = [
        &to.0,
        &sender.0.0,
        &BEGINNING,
        &operation.to_be_bytes(),
        &sender.0.0,
        &sender.1.octets(),
        &target.0.0,
        &target.1.octets(),
    ];
    let bytes = parts.into_iter().flatten();
    frame.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
    frame
}

/// A socket for ARP on one device. It does not receive what this host sends.
#[derive(Debug)]
pub struct Socket {
    socket: OwnedFd,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Socket {
    /// Opens a socket on the device with this number.
    ///
    /// # Errors
    /// When the kernel does not provide one, or the device is gone.
    pub fn open(device: u32) -> Result<Self> {
        let failed = |what: &'static str| move |errno| Error::Socket { what: what.to_owned(), errno };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a frame type, nothing is received before the socket is bound.
        let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)
            .map_err(failed("open a socket for ARP"))?;
        rustix::net::bind(&socket, &LinkAddress::new(ETHERTYPE, device))
            .map_err(failed("bind a socket for ARP to a device"))?;
        Ok(Self { socket })
    }

    /// The next request, if one is waiting. Does not block.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn next(&self) -> Result<Option<Request>> {
        let mut frame = [0; 64];
        loop {
            match rustix::net::recv(&self.socket, &mut frame[..], RecvFlags::empty()) {
                Ok((length, _)) => {
                    if let Some(request) = read_request(&frame[..length]) {
                        return Ok(Some(request));
                    }
                }
                Err(Errno::AGAIN) => return Ok(None),
                // The device went down, which is reported once; the socket works again when it comes up.
                Err(Errno::INTR | Errno::NETDOWN) => {}
                Err(errno) => return Err(Error::Socket { what: "read ARP requests".to_owned(), errno }),
            }
        }
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// When the kernel does not accept it.
    pub fn send(&self, frame: &Frame) -> Result<()> {
        rustix::net::send(&self.socket, frame, SendFlags::empty())
            .map(|_| ())
            .map_err(|errno| Error::Socket { what: "send an ARP packet".to_owned(), errno })
    }
}

#[cfg(test)]
mod tests {
    use super::{Request, announcement, read_request, reply};
    use crate::mac::MacAddress;

    const ASKING: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const OWN: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);

    fn request() -> Request {
        Request { sender: ASKING, sender_address: [10, 0, 0, 1].into(), target: [10, 0, 0, 2].into() }
    }

    /// A request as a kernel sends it.
    const ASKED: [u8; 42] = [
        255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1, 8, 6, // Ethernet
        0, 1, 8, 0, 6, 4, 0, 1, // a request
        2, 0, 0, 0, 0, 1, 10, 0, 0, 1, // from
        0, 0, 0, 0, 0, 0, 10, 0, 0, 2, // for
    ];

    #[test]
    fn a_request_is_answered() {
        assert_eq!(read_request(&ASKED), Some(request()));
        let mut padded = ASKED.to_vec();
        padded.resize(60, 0);
        assert_eq!(read_request(&padded), Some(request()));
        let answer = [
            2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 6, 0, 1, 8, 0, 6, 4, 0, 2, //
            2, 0, 0, 0, 0, 2, 10, 0, 0, 2, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1,
        ];
        assert_eq!(reply(&request(), OWN), answer);
        assert_eq!(read_request(&answer), None, "an answer is not a question");
    }

    #[test]
    fn an_announcement_is_a_broadcast_request_for_the_own_address() {
        let frame = announcement([10, 0, 0, 2].into(), OWN);
        assert_eq!(frame[..6], [255; 6]);
        let read = read_request(&frame).expect("it is a request");
        assert_eq!((read.sender, read.sender_address, read.target), (OWN, read.target, [10, 0, 0, 2].into()));
        assert!(crate::announcements::is_announcement(&frame));
    }

    #[test]
    fn other_frames_are_not_requests() {
        for length in 0..ASKED.len() {
            assert_eq!(read_request(&ASKED[..length]), None, "{length} bytes");
        }
        for place in 12..22 {
            let mut frame = ASKED;
            frame[place] ^= 2;
            assert_eq!(read_request(&frame), None, "byte {place}");
        }
    }
}
