//! Neighbour discovery for IPv6: solicitations, advertisements that answer them, and unsolicited ones.

use crate::error::{Error, Result};
use crate::filter::{Field, only};
use crate::mac::MacAddress;
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_ipv6_add_membership, set_ipv6_drop_membership, set_ipv6_multicast_hops, set_ipv6_multicast_loop,
    set_ipv6_unicast_hops,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};
use socket2::SockRef;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// The group of all hosts on a link.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// The hop limit of packets that have passed no router.
const FROM_THE_LINK: u8 = 255;

/// A request for the hardware address of an IPv6 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Solicitation {
    /// The sender's address; `::` for a sender that checks whether it may use the address.
    pub sender: Ipv6Addr,
    /// The requested address.
    pub target: Ipv6Addr,
}

/// An advertisement without its checksum, which the kernel fills in.
pub type Message = [u8; 32];

/// The address that a message requests; `None` for anything but a solicitation.
#[must_use]
pub fn read_target(message: &[u8]) -> Option<Ipv6Addr> {
    let (header, rest) = message.split_at_checked(8)?;
    let target: [u8; 16] = rest.get(..16)?.try_into().ok()?;
    let target = Ipv6Addr::from(target);
    (header[..2] == [SOLICITATION, 0] && !target.is_multicast()).then_some(target)
}

/// The answer that an address is at `own`, and its destination. A sender without an address cannot be answered
/// directly.
#[must_use]
pub fn answer(asked: &Solicitation, own: MacAddress) -> (Message, Ipv6Addr) {
    if asked.sender.is_unspecified() {
        return (announcement(asked.target, own), ALL_NODES);
    }
    let mut message = announcement(asked.target, own);
    message[4] |= 0x40;
    (message, asked.sender)
}

/// Announces to all hosts that the address is at `own`, overriding what they knew before.
#[must_use]
pub fn announcement(address: Ipv6Addr, own: MacAddress) -> Message {
    let mut message = [0; 32];
    message[0] = ADVERTISEMENT;
    message[4] = 0x20;
    message[8..24].copy_from_slice(&address.octets());
    // An option: the hardware address of the target, in one unit of eight bytes.
    message[24..26].copy_from_slice(&[2, 1]);
    message[26..32].copy_from_slice(&own.0);
    message
}

/// The group to which solicitations for an address are sent.
#[must_use]
pub fn solicited_group(address: Ipv6Addr) -> Ipv6Addr {
    let [.., high, low] = address.segments();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | (high & 0xff), low)
}

/// A socket for solicitations on one device.
#[derive(Debug)]
pub struct Socket {
    socket: OwnedFd,
    device: u32,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Socket {
    /// Opens a socket on the device with this name and number.
    ///
    /// # Errors
    /// When the kernel does not provide one, or the device is gone.
    pub fn open(name: &str, device: u32) -> Result<Self> {
        let failed = |what: &'static str| move |errno| Error::Socket { what: what.to_owned(), errno };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(AddressFamily::INET6, SocketType::RAW, flags, Some(ipproto::ICMPV6))
                .map_err(failed("open a socket for NDP"))?;
        // A message that a router has let through is not trusted: it may come from anywhere.
        let filter = only(&[
            (Field::Device, device),
            (Field::Byte(0), SOLICITATION.into()),
            (Field::HopLimit, FROM_THE_LINK.into()),
        ]);
        let reference = SockRef::from(&socket);
        reference
            .attach_filter(&filter)
            .and_then(|()| reference.bind_device(Some(name.as_bytes())))
            .map_err(|error| Error::socket("bind a socket for NDP to a device", &error))?;
        set_ipv6_unicast_hops(&socket, Some(FROM_THE_LINK))
            .and_then(|()| set_ipv6_multicast_hops(&socket, FROM_THE_LINK.into()))
            .and_then(|()| set_ipv6_multicast_loop(&socket, false))
            .map_err(failed("set up a socket for NDP"))?;
        let opened = Self { socket, device };
        // Anything may have arrived before the filter was in place.
        while opened.receive(&mut [0; 64])?.is_some() {}
        Ok(opened)
    }

    /// Joins a group and receives what is sent to it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn join(&self, group: Ipv6Addr) -> Result<()> {
        set_ipv6_add_membership(&self.socket, &group, self.device)
            .map_err(|errno| Error::Socket { what: format!("join the group {group}"), errno })
    }

    /// Leaves a group.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn leave(&self, group: Ipv6Addr) -> Result<()> {
        set_ipv6_drop_membership(&self.socket, &group, self.device)
            .map_err(|errno| Error::Socket { what: format!("leave the group {group}"), errno })
    }

    /// The next solicitation, if one is waiting. Does not block.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn next(&self) -> Result<Option<Solicitation>> {
        let mut message = [0; 64];
        while let Some((length, sender)) = self.receive(&mut message)? {
            if let Some(target) = read_target(&message[..length]) {
                return Ok(Some(Solicitation { sender, target }));
            }
        }
        Ok(None)
    }

    fn receive(&self, message: &mut [u8; 64]) -> Result<Option<(usize, Ipv6Addr)>> {
        loop {
            match rustix::net::recvfrom(&self.socket, &mut message[..], RecvFlags::empty()) {
                Ok((length, _, sender)) => {
                    let sender = sender.and_then(|sender| SocketAddrV6::try_from(sender).ok());
                    return Ok(Some((length, sender.map_or(Ipv6Addr::UNSPECIFIED, |sender| *sender.ip()))));
                }
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR | Errno::NETDOWN) => {}
                Err(errno) => return Err(Error::Socket { what: "read solicitations".to_owned(), errno }),
            }
        }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// When the kernel does not accept it.
    pub fn send(&self, message: &Message, to: Ipv6Addr) -> Result<()> {
        let to = SocketAddrV6::new(to, 0, 0, self.device);
        rustix::net::sendto(&self.socket, message, SendFlags::empty(), &to)
            .map(|_| ())
            .map_err(|errno| Error::Socket { what: "send an advertisement".to_owned(), errno })
    }
}

#[cfg(test)]
mod tests {
    use super::{ALL_NODES, Solicitation, announcement, answer, read_target, solicited_group};
    use crate::mac::MacAddress;
    use std::net::Ipv6Addr;

    const OWN: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);

    fn address(text: &str) -> Ipv6Addr {
        text.parse().expect("an address")
    }

    fn asked(target: &str) -> Vec<u8> {
        let mut message = vec![135, 0, 0x12, 0x34, 0, 0, 0, 0];
        message.extend(address(target).octets());
        message.extend([1, 1, 2, 0, 0, 0, 0, 1]);
        message
    }

    #[test]
    fn a_solicitation_is_answered_to_its_sender() {
        assert_eq!(read_target(&asked("fd00::2")), Some(address("fd00::2")));
        let asked = Solicitation { sender: address("fe80::1"), target: address("fd00::2") };
        let (message, to) = answer(&asked, OWN);
        let mut expected = vec![136, 0, 0, 0, 0x60, 0, 0, 0];
        expected.extend(address("fd00::2").octets());
        expected.extend([2, 1, 2, 0, 0, 0, 0, 2]);
        assert_eq!((message.to_vec(), to), (expected, address("fe80::1")));
    }

    #[test]
    fn a_sender_without_an_address_is_answered_by_multicast() {
        let asked = Solicitation { sender: Ipv6Addr::UNSPECIFIED, target: address("fd00::2") };
        let (message, to) = answer(&asked, OWN);
        assert_eq!((message[4], to), (0x20, ALL_NODES));
        assert_eq!(message, announcement(address("fd00::2"), OWN));
    }

    #[test]
    fn other_messages_are_not_solicitations() {
        let whole = asked("fd00::2");
        for length in 0..24 {
            assert_eq!(read_target(&whole[..length]), None, "{length} bytes");
        }
        assert_eq!(read_target(&whole[..24]), Some(address("fd00::2")), "options are for others");
        assert_eq!(read_target(&asked("ff02::1")), None);
        for place in [0, 1] {
            let mut message = whole.clone();
            message[place] ^= 1;
            assert_eq!(read_target(&message), None);
        }
        assert_eq!(read_target(&announcement(address("fd00::2"), OWN)), None);
    }

    #[test]
    fn groups_are_by_the_last_three_bytes() {
        assert_eq!(solicited_group(address("2001:db8::12ab:ff00:a")), address("ff02::1:ff00:a"));
        assert_eq!(solicited_group(address("fd00::1234:5678")), address("ff02::1:ff34:5678"));
    }
}
