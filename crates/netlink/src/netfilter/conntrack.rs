//! The connection table: removing the connections of addresses that are gone or have moved, and reading the current
//! ones ([`ConnectionTable`], [`ConnectionEvents`]).
//!
//! A connection belongs to an address when the address is an end of its original or of its reply direction. For a few
//! addresses the kernel is queried for their connections; for many, the table is read once. Nothing here creates or
//! changes a connection.

pub(super) mod entry;
pub(super) mod events;

pub use entry::{Counted, Entry, Tuple};
pub use events::{ConnectionEvent, ConnectionEvents, ConnectionTable};

use super::socket::Socket;
use super::{CONNTRACK, Result, header};
use crate::Family;
use crate::datagram::Request;
use crate::wire::{Attribute, Writer, attributes, split_header};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

const GET: u16 = 1;
const DELETE: u16 = 2;

const ORIGINAL: u16 = 1;
const REPLY: u16 = 2;
const ID: u16 = 12;
const ZONE: u16 = 18;
/// The addresses in a direction.
const ADDRESSES: u16 = 1;
/// The protocol and the ports of a direction.
const TRANSPORT: u16 = 2;
const UDP: u8 = 17;
/// The filter that the kernel applies to a dump (Linux 5.8; older kernels ignore it and return everything).
const FILTER: u16 = 25;
const FILTER_SOURCE: u32 = 1;
const FILTER_DESTINATION: u32 = 2;
/// Up to this many addresses, the kernel's own filtering is less work than reading everything.
const FEW: usize = 4;
/// The flag of an attribute that holds attributes.
const NESTED: u16 = 0x8000;

/// A client of the connection table of one network namespace.
#[derive(Debug)]
pub struct Client {
    socket: Socket,
}

impl Client {
    /// Connects to the table of this thread's network namespace.
    ///
    /// # Errors
    /// When the kernel does not provide a socket.
    pub fn open() -> Result<Self> {
        Ok(Self { socket: Socket::open()? })
    }

    /// Removes all connections of these addresses; returns their number.
    ///
    /// # Errors
    /// When the kernel or the socket fails. A connection that ended by itself in the meantime is not an error.
    pub fn forget(&mut self, addresses: &BTreeSet<IpAddr>) -> Result<usize> {
        let mut forgotten = 0;
        for family in [Family::V4, Family::V6] {
            if addresses.iter().any(|address| Family::of(address) == family) {
                forgotten += self.forget_family(family, addresses)?;
            }
        }
        Ok(forgotten)
    }

    fn forget_family(&mut self, family: Family, addresses: &BTreeSet<IpAddr>) -> Result<usize> {
        let wanted: Vec<IpAddr> =
            addresses.iter().filter(|address| Family::of(address) == family).copied().collect();
        let questions = if wanted.len() <= FEW {
            let each = |address: &IpAddr| {
                let address = *address;
                [ORIGINAL, REPLY].into_iter().flat_map(move |direction| {
                    [FILTER_SOURCE, FILTER_DESTINATION].map(|end| question(family, direction, end, address))
                })
            };
            wanted.iter().flat_map(each).collect()
        } else {
            vec![everything(family)]
        };
        // The same connection may be in the answers to several queries.
        let mut requests = BTreeMap::new();
        for request in questions {
            let found = self.socket.dump("list connections", &request, |_, payload| {
                let (_, rest) = split_header::<4>(payload)?;
                let ours = attributes(rest)
                    .filter(|attribute| matches!(attribute.number, ORIGINAL | REPLY))
                    .any(|direction| ends(&direction).any(|address| addresses.contains(&address)));
                ours.then(|| delete_request(family, rest))
            })?;
            requests.extend(found.into_iter().map(|request| (request.payload.clone(), request)));
        }
        self.carry_out(&requests.into_values().collect::<Vec<_>>())
    }

    /// Removes the UDP flows whose original destination is one of these ports; returns their number. When a port of the
    /// host is newly mapped, existing flows would otherwise keep their old destination.
    ///
    /// # Errors
    /// When the kernel or the socket fails.
    pub fn forget_udp_ports(&mut self, family: Family, ports: &BTreeSet<u16>) -> Result<usize> {
        let requests = self.socket.dump("list connections", &everything(family), |_, payload| {
            let (_, rest) = split_header::<4>(payload)?;
            let original = attributes(rest).find(|attribute| attribute.number == ORIGINAL)?;
            let (protocol, port) = transport(&original)?;
            (protocol == UDP && ports.contains(&port)).then(|| delete_request(family, rest))
        })?;
        self.carry_out(&requests)
    }

    fn carry_out(&mut self, requests: &[Request]) -> Result<usize> {
        let mut forgotten = 0;
        for answer in self.socket.exchange(requests, |_, _| {})? {
            match answer {
                Ok(()) => forgotten += 1,
                Err(refusal) if refusal.is_missing() => {}
                Err(refusal) => {
                    return Err(super::Error::Refused { what: "forget a connection".to_owned(), refusal });
                }
            }
        }
        Ok(forgotten)
    }
}

/// The request for all connections.
fn everything(family: Family) -> Request {
    let writer = Writer::new(&header(family.number(), 0));
    Request { message_type: (CONNTRACK << 8) | GET, flags: 0, payload: writer.finish() }
}

/// The request for the connections with this address at one end of one direction.
fn question(family: Family, direction: u16, end: u32, address: IpAddr) -> Request {
    let mut request = everything(family);
    let mut writer = Writer::new(&request.payload);
    let number = match (family, end) {
        (Family::V4, FILTER_SOURCE) => 1,
        (Family::V4, _) => 2,
        (Family::V6, FILTER_SOURCE) => 3,
        (Family::V6, _) => 4,
    };
    writer.nested(direction, |tuple| {
        tuple.nested(ADDRESSES, |addresses| {
            addresses.address(number, address);
        });
    });
    // The numbers of the directions are also those of their flags.
    writer.nested(FILTER, |filter| {
        filter.u32(direction, end);
    });
    request.payload = writer.finish();
    request
}

/// The protocol and the destination port of a direction.
fn transport(direction: &Attribute<'_>) -> Option<(u8, u16)> {
    let part = direction.attributes().find(|part| part.number == TRANSPORT)?;
    let field = |number| part.attributes().find(|field| field.number == number);
    let port = field(3)?.value.try_into().ok().map(u16::from_be_bytes)?;
    Some((field(1)?.u8()?, port))
}

/// Both addresses of a direction.
fn ends<'a>(direction: &Attribute<'a>) -> impl Iterator<Item = IpAddr> + use<'a> {
    direction
        .attributes()
        .filter(|part| part.number == ADDRESSES)
        .flat_map(|part| part.attributes().filter_map(|address| address.address()))
}

/// The message that removes exactly this connection: its id distinguishes it from a later one between the same ends.
fn delete_request(family: Family, connection: &[u8]) -> Request {
    let mut writer = Writer::new(&header(family.number(), 0));
    for attribute in attributes(connection) {
        match attribute.number {
            ORIGINAL => writer.bytes(ORIGINAL | NESTED, attribute.value),
            ID | ZONE => writer.bytes(attribute.number, attribute.value),
            _ => continue,
        };
    }
    Request { message_type: (CONNTRACK << 8) | DELETE, flags: 0, payload: writer.finish() }
}
