//! Addresses of devices.

use super::{CREATE, DEL_ADDRESS, EXCLUSIVE, GET_ADDRESS, NEW_ADDRESS, REPLACE};
use crate::Family;
use crate::datagram::Request;
use crate::wire::{Writer, attributes, header_u32, split_header};
use ipnet::IpNet;
use std::fmt;

const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
const LABEL: u16 = 3;
const BROADCAST: u16 = 4;
const FLAGS: u16 = 8;
const NO_DUPLICATE_DETECTION: u32 = 0x02;
const DUPLICATE: u32 = 0x08;
const TENTATIVE: u32 = 0x40;
const SECONDARY: u32 = 0x01;

/// An address of a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// The device.
    pub index: u32,
    /// The address and the length of its network's prefix.
    pub address: IpNet,
    /// Its scope: 0 valid everywhere, 253 on the link, 254 on the host.
    pub scope: u8,
    /// Its label, for IPv4; the kernel uses the device's name.
    pub label: String,
    /// Whether duplicate address detection is skipped.
    pub skip_duplicate_detection: bool,
    /// Whether duplicate address detection has not finished. Read only.
    pub tentative: bool,
    /// Whether another host has the address. Read only.
    pub duplicate: bool,
    /// Whether it is a secondary (IPv4) or temporary (IPv6) address. Read only.
    pub secondary: bool,
}

impl Address {
    /// An address of a device, valid everywhere.
    #[must_use]
    pub fn new(index: u32, address: IpNet) -> Self {
        Self {
            index,
            address,
            scope: 0,
            label: String::new(),
            skip_duplicate_detection: false,
            tentative: false,
            duplicate: false,
            secondary: false,
        }
    }

    /// The family of the address.
    #[must_use]
    pub fn family(&self) -> Family {
        Family::of(&self.address.addr())
    }

    fn payload(&self) -> Vec<u8> {
        let mut writer =
            Writer::new(&header(self.family().number(), self.address.prefix_len(), self.scope, self.index));
        writer.address(LOCAL, self.address.addr()).address(ADDRESS, self.address.addr());
        if let IpNet::V4(net) = self.address
            && net.prefix_len() < 31
        {
            writer.address(BROADCAST, net.broadcast().into());
        }
        if !self.label.is_empty() {
            writer.text(LABEL, &self.label);
        }
        if self.skip_duplicate_detection {
            writer.u32(FLAGS, NO_DUPLICATE_DETECTION);
        }
        writer.finish()
    }

    pub(crate) fn add_request(&self) -> Request {
        Request { message_type: NEW_ADDRESS, flags: CREATE | EXCLUSIVE, payload: self.payload() }
    }

    pub(crate) fn replace_request(&self) -> Request {
        Request { message_type: NEW_ADDRESS, flags: CREATE | REPLACE, payload: self.payload() }
    }

    pub(crate) fn delete_request(&self) -> Request {
        Request { message_type: DEL_ADDRESS, flags: 0, payload: self.payload() }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "address {} of device {}", self.address, self.index)
    }
}

/// `struct ifaddrmsg`.
fn header(family: u8, prefix: u8, scope: u8, index: u32) -> [u8; 8] {
    let [a, b, c, d] = index.to_ne_bytes();
    [family, prefix, 0, scope, a, b, c, d]
}

/// The request for the addresses of one family, of one device, or all.
pub(crate) fn dump_request(family: Option<Family>, index: Option<u32>) -> Request {
    let header = header(family.map_or(0, Family::number), 0, 0, index.unwrap_or_default());
    Request { message_type: GET_ADDRESS, flags: 0, payload: Writer::new(&header).finish() }
}

/// Reads an address; `None` for any other message.
#[must_use]
pub fn read(payload: &[u8]) -> Option<Address> {
    let (header, rest) = split_header::<8>(payload)?;
    let [family, prefix, flags, scope, ..] = *header;
    Family::from_number(family)?;
    let (mut local, mut address, mut label, mut flags) = (None, None, String::new(), u32::from(flags));
    for attribute in attributes(rest) {
        match attribute.number {
            LOCAL => local = attribute.address(),
            ADDRESS => address = attribute.address(),
            LABEL => label = attribute.text().unwrap_or_default(),
            FLAGS => flags = attribute.u32().unwrap_or(flags),
            _ => {}
        }
    }
    // On a point-to-point device the other end is in the attribute without "local".
    let address = IpNet::new(local.or(address)?, prefix).ok()?;
    Some(Address {
        index: header_u32(header, 4),
        address,
        scope,
        label,
        skip_duplicate_detection: flags & NO_DUPLICATE_DETECTION != 0,
        tentative: flags & TENTATIVE != 0,
        duplicate: flags & DUPLICATE != 0,
        secondary: flags & SECONDARY != 0,
    })
}
