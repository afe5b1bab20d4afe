//! Neighbours: the hardware address of an address, and the tunnel end behind which a hardware address is (FDB).

use super::{APPEND, CREATE, DEL_NEIGHBOUR, GET_NEIGHBOUR, NEW_NEIGHBOUR, REPLACE};
use crate::Family;
use crate::datagram::Request;
use crate::mac::MacAddress;
use crate::wire::{Writer, attributes, header_u32, split_header};
use std::fmt;
use std::net::IpAddr;

const DESTINATION: u16 = 1;
const HARDWARE_ADDRESS: u16 = 2;
const MASTER: u16 = 9;
const FLAG_SELF: u8 = 0x02;
const FLAG_PROXY: u8 = 0x08;
/// `AF_BRIDGE`: the family of forwarding entries.
const FORWARDING: u8 = 7;

/// The state of a neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NeighbourState {
    /// Set by an administrator, and kept.
    #[default]
    Permanent,
    /// Needs no resolution.
    NoArp,
    /// Confirmed.
    Reachable,
    /// To be confirmed at its next use.
    Stale,
    /// Resolution failed.
    Failed,
    /// Another of the kernel's numbers.
    Other(u16),
}

/// An entry of a device's neighbour table or forwarding table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Neighbour {
    /// The device.
    pub index: u32,
    /// Whether it is an entry of the forwarding table of a VXLAN device or bridge.
    pub forwarding: bool,
    /// The neighbour's address; for a forwarding entry, the tunnel end that the hardware address is behind.
    pub address: Option<IpAddr>,
    /// Its hardware address.
    pub mac: Option<MacAddress>,
    /// Its state.
    pub state: NeighbourState,
    /// Whether the host answers in its place.
    pub proxy: bool,
}

impl Neighbour {
    /// A permanent entry of the neighbour table.
    #[must_use]
    pub fn permanent(index: u32, address: IpAddr, mac: MacAddress) -> Self {
        Self {
            index,
            forwarding: false,
            address: Some(address),
            mac: Some(mac),
            state: NeighbourState::Permanent,
            proxy: false,
        }
    }

    /// A permanent entry of a VXLAN device's forwarding table.
    #[must_use]
    pub fn forwarding(index: u32, mac: MacAddress, tunnel_end: IpAddr) -> Self {
        Self {
            index,
            forwarding: true,
            address: Some(tunnel_end),
            mac: Some(mac),
            state: NeighbourState::Permanent,
            proxy: false,
        }
    }

    fn payload(&self) -> Vec<u8> {
        let family = match self.address {
            _ if self.forwarding => FORWARDING,
            Some(address) => Family::of(&address).number(),
            None => 0,
        };
        let flags = if self.forwarding { FLAG_SELF } else { 0 } | if self.proxy { FLAG_PROXY } else { 0 };
        let mut writer = Writer::new(&header(family, self.index, self.state.number(), flags));
        if let Some(address) = self.address {
            writer.address(DESTINATION, address);
        }
        if let Some(mac) = self.mac {
            writer.bytes(HARDWARE_ADDRESS, &mac.0);
        }
        writer.finish()
    }

    pub(crate) fn replace_request(&self) -> Request {
        Request { message_type: NEW_NEIGHBOUR, flags: CREATE | REPLACE, payload: self.payload() }
    }

    pub(crate) fn append_request(&self) -> Request {
        Request { message_type: NEW_NEIGHBOUR, flags: CREATE | APPEND, payload: self.payload() }
    }

    pub(crate) fn delete_request(&self) -> Request {
        Request { message_type: DEL_NEIGHBOUR, flags: 0, payload: self.payload() }
    }
}

impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.forwarding { "forwarding entry" } else { "neighbour" })?;
        if let Some(mac) = self.mac {
            write!(f, " {mac}")?;
        }
        if let Some(address) = self.address {
            write!(f, " at {address}")?;
        }
        write!(f, " of device {}", self.index)
    }
}

impl NeighbourState {
    const fn number(self) -> u16 {
        match self {
            Self::Permanent => 0x80,
            Self::NoArp => 0x40,
            Self::Reachable => 0x02,
            Self::Stale => 0x04,
            Self::Failed => 0x20,
            Self::Other(number) => number,
        }
    }

    const fn from_number(number: u16) -> Self {
        match number {
            0x80 => Self::Permanent,
            0x40 => Self::NoArp,
            0x02 => Self::Reachable,
            0x04 => Self::Stale,
            0x20 => Self::Failed,
            number => Self::Other(number),
        }
    }
}

/// `struct ndmsg`.
fn header(family: u8, index: u32, state: u16, flags: u8) -> [u8; 12] {
    let mut header = [0; 12];
    header[0] = family;
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..10].copy_from_slice(&state.to_ne_bytes());
    header[10] = flags;
    header
}

/// The request for the neighbours of one family, of one device or all.
pub(crate) fn dump_request(family: Family, index: Option<u32>) -> Request {
    const IF_INDEX: u16 = 8;
    let mut writer = Writer::new(&header(family.number(), 0, 0, 0));
    if let Some(index) = index {
        writer.u32(IF_INDEX, index);
    }
    Request { message_type: GET_NEIGHBOUR, flags: 0, payload: writer.finish() }
}

/// The request for the forwarding table of one device. The device is in the header, which is where forwarding
/// dumps look for it.
pub(crate) fn dump_forwarding_request(index: u32) -> Request {
    let header = header(FORWARDING, index, 0, 0);
    Request { message_type: GET_NEIGHBOUR, flags: 0, payload: Writer::new(&header).finish() }
}

/// Reads a neighbour; `None` for any other message.
#[must_use]
pub fn read(payload: &[u8]) -> Option<Neighbour> {
    let (header, rest) = split_header::<12>(payload)?;
    let forwarding = header[0] == FORWARDING;
    if !forwarding {
        Family::from_number(header[0])?;
    }
    let mut neighbour = Neighbour {
        index: header_u32(header, 4),
        forwarding,
        address: None,
        mac: None,
        state: NeighbourState::from_number(u16::from_ne_bytes([header[8], header[9]])),
        proxy: header[10] & FLAG_PROXY != 0,
    };
    for attribute in attributes(rest) {
        match attribute.number {
            DESTINATION => neighbour.address = attribute.address(),
            HARDWARE_ADDRESS => neighbour.mac = MacAddress::from_bytes(attribute.value),
            // A bridge's own entry about one of its ports does not belong to the port.
            MASTER if forwarding && header[10] & FLAG_SELF == 0 => return None,
            _ => {}
        }
    }
    Some(neighbour)
}
