//! The `ip_set` subsystem: sets that iptables rules refer to.
//!
//! Sets are created, filled, swapped and destroyed by messages, without the `ipset` program. Only the three types that
//! rules are rendered with are supported; sets of other types are listed with the name of their type and without
//! members.

use super::socket::Socket;
use super::{Error, IPSET, Refusal, Result, header};
use crate::Family;
use crate::datagram::Request;
use crate::wire::{Attribute, Writer, attributes, split_header};
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::IpAddr;

const COMMAND_CREATE: u16 = 2;
const COMMAND_DESTROY: u16 = 3;
const COMMAND_FLUSH: u16 = 4;
const COMMAND_SWAP: u16 = 6;
const COMMAND_LIST: u16 = 7;
const COMMAND_ADD: u16 = 9;
const COMMAND_DELETE: u16 = 10;
const COMMAND_TYPE: u16 = 13;

const ATTRIBUTE_PROTOCOL: u16 = 1;
const ATTRIBUTE_NAME: u16 = 2;
/// The type's name, or the second name of a swap.
const ATTRIBUTE_TYPE: u16 = 3;
const ATTRIBUTE_REVISION: u16 = 4;
const ATTRIBUTE_FAMILY: u16 = 5;
const ATTRIBUTE_FLAGS: u16 = 6;
const ATTRIBUTE_DATA: u16 = 7;
const ATTRIBUTE_ENTRIES: u16 = 8;
const ATTRIBUTE_LINE: u16 = 9;
/// Attributes of entries and of headers.
const DATA_ADDRESS: u16 = 1;
const DATA_PREFIX: u16 = 3;
const DATA_PORT: u16 = 4;
const DATA_PROTOCOL: u16 = 7;
const DATA_MAX_ELEMENTS: u16 = 19;
/// The flag of an attribute in network order, which this subsystem requires.
const NETWORK_ORDER: u16 = 0x4000;
/// The protocol version, which every kernel since 2.6.39 speaks.
const PROTOCOL: u8 = 6;
/// Names only, in a list.
const LIST_NAMES: u32 = 1 << 1;
/// Fails when a set of the name exists (`NLM_F_EXCL`).
const EXCLUSIVE: u16 = 0x200;
/// Entries in one message: an IPv6 entry with port takes 48 bytes, and the list has to stay below 64 KiB.
const ENTRIES_PER_MESSAGE: usize = 500;

/// The longest name that a set can have.
pub const MAX_NAME: usize = 31;
/// The set is in use.
pub(super) const ERROR_BUSY: i32 = 4100;
/// The set is referenced.
pub(super) const ERROR_REFERENCED: i32 = 4108;
/// The sets of a swap are of different types.
pub const ERROR_TYPE_MISMATCH: i32 = 4102;
/// The set is full.
pub const ERROR_FULL: i32 = 4352;

/// The text for the subsystem's own error numbers.
pub(super) fn reason(code: i32) -> Option<&'static str> {
    Some(match code {
        4097 => "the kernel uses another version of the ipset protocol",
        4098 => "the kernel does not know this type of set",
        4099 => "there are too many sets",
        ERROR_BUSY => "the set is in use",
        4101 => "a set of the new name exists already",
        ERROR_TYPE_MISMATCH => "the sets are of different types",
        4103 => "it is a member already, or is not one",
        4104 => "a set of networks cannot hold a network of this length",
        4105 => "the netmask is not valid",
        4106 => "the family is not valid",
        4107 => "the set has no timeouts",
        ERROR_REFERENCED => "the set is still referenced",
        4109 => "an IPv4 address was expected",
        4110 => "an IPv6 address was expected",
        ERROR_FULL => "the set is full",
        4353 => "the element matches no member",
        4354 => "the protocol is not valid or missing",
        code if code > 4096 => "the ipset subsystem refused",
        _ => return None,
    })
}

/// The types of sets that rules are rendered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetType {
    /// Addresses.
    HashIp,
    /// Networks.
    HashNet,
    /// Addresses with protocol and port.
    HashIpPort,
}

impl SetType {
    const ALL: [Self; 3] = [Self::HashIp, Self::HashNet, Self::HashIpPort];

    /// The kernel's name of the type.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HashIp => "hash:ip",
            Self::HashNet => "hash:net",
            Self::HashIpPort => "hash:ip,port",
        }
    }

    /// The newest revision that is used, so that the `ipset` programs of older distributions can still print our sets.
    const fn revision(self) -> u8 {
        match self {
            Self::HashIp => 5,
            Self::HashNet => 7,
            Self::HashIpPort => 6,
        }
    }
}

/// The properties of a set other than its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetHeader {
    /// Its type.
    pub set_type: SetType,
    /// Its family.
    pub family: Family,
    /// The maximum number of members.
    pub max_elements: u32,
}

/// A member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Member {
    /// An address.
    Address(IpAddr),
    /// A network; not of length 0, which no set can hold.
    Net(IpNet),
    /// An address with protocol and port.
    AddressPort(IpAddr, u8, u16),
}

impl Member {
    fn write(&self, list: &mut Writer) {
        list.nested(ATTRIBUTE_DATA, |data| {
            let address = match self {
                Self::Address(address) | Self::AddressPort(address, ..) => *address,
                Self::Net(net) => net.network(),
            };
            data.nested(DATA_ADDRESS, |inner| match address {
                IpAddr::V4(address) => {
                    inner.bytes(1 | NETWORK_ORDER, &address.octets());
                }
                IpAddr::V6(address) => {
                    inner.bytes(2 | NETWORK_ORDER, &address.octets());
                }
            });
            match self {
                Self::Address(_) => {}
                Self::Net(net) => {
                    data.u8(DATA_PREFIX, net.prefix_len());
                }
                Self::AddressPort(_, protocol, port) => {
                    data.u16_be(DATA_PORT | NETWORK_ORDER, *port).u8(DATA_PROTOCOL, *protocol);
                }
            }
        });
    }

    fn read(set_type: SetType, data: &Attribute<'_>) -> Option<Self> {
        let (mut address, mut prefix, mut port, mut protocol) = (None, None, None, None);
        for attribute in data.attributes() {
            match attribute.number {
                DATA_ADDRESS => address = attribute.attributes().find_map(|inner| inner.address()),
                DATA_PREFIX => prefix = attribute.u8(),
                DATA_PORT => port = attribute.u16_be(),
                DATA_PROTOCOL => protocol = attribute.u8(),
                _ => {}
            }
        }
        let address = address?;
        Some(match set_type {
            SetType::HashIp => Self::Address(address),
            SetType::HashNet => {
                let host = if address.is_ipv4() { 32 } else { 128 };
                Self::Net(IpNet::new(address, prefix.unwrap_or(host)).ok()?.trunc())
            }
            SetType::HashIpPort => Self::AddressPort(address, protocol?, port?),
        })
    }
}

/// An existing set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetFound {
    /// Its properties; `None` for a type or family that we never create.
    pub header: Option<SetHeader>,
    /// Its members.
    pub members: Vec<Member>,
}

/// A client of the sets of one network namespace.
#[derive(Debug)]
pub struct Client {
    socket: Socket,
    revisions: BTreeMap<(SetType, Family), u8>,
}

impl Client {
    /// Connects to the sets of this thread's network namespace.
    ///
    /// # Errors
    /// When the kernel does not provide a socket.
    pub fn open() -> Result<Self> {
        Ok(Self { socket: Socket::open()?, revisions: BTreeMap::new() })
    }

    /// Creates a set. Fails when one of this name exists.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn create(&mut self, name: &str, header: &SetHeader) -> Result<()> {
        let revision = self.revision(header.set_type, header.family)?;
        let mut writer = start(name)?;
        writer
            .text(ATTRIBUTE_TYPE, header.set_type.as_str())
            .u8(ATTRIBUTE_REVISION, revision)
            .u8(ATTRIBUTE_FAMILY, header.family.number());
        writer.nested(ATTRIBUTE_DATA, |data| {
            data.u32_be(DATA_MAX_ELEMENTS | NETWORK_ORDER, header.max_elements);
        });
        self.socket.request(&format!("create set {name}"), request(COMMAND_CREATE, EXCLUSIVE, writer))
    }

    /// Removes a set that nothing refers to.
    ///
    /// # Errors
    /// The kernel's refusal; [`Refusal::is_busy`] when a rule still refers to it.
    pub fn destroy(&mut self, name: &str) -> Result<()> {
        let writer = start(name)?;
        self.socket.request(&format!("destroy set {name}"), request(COMMAND_DESTROY, 0, writer))
    }

    /// Removes all members of a set.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn flush(&mut self, name: &str) -> Result<()> {
        let writer = start(name)?;
        self.socket.request(&format!("flush set {name}"), request(COMMAND_FLUSH, 0, writer))
    }

    /// Exchanges the contents of two sets in one step; rules that refer to the first set then match the second's
    /// members.
    ///
    /// # Errors
    /// The kernel's refusal; the types must be equal.
    pub fn swap(&mut self, first: &str, second: &str) -> Result<()> {
        check_name(second)?;
        let mut writer = start(first)?;
        writer.text(ATTRIBUTE_TYPE, second);
        self.socket.request(&format!("swap sets {first} and {second}"), request(COMMAND_SWAP, 0, writer))
    }

    /// Adds members; adding an existing member is not an error. Returns the refused members, each with the reason.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn add(&mut self, name: &str, members: &[Member]) -> Result<Vec<(Member, Refusal)>> {
        self.change(COMMAND_ADD, name, members)
    }

    /// Removes members; removing a missing member is not an error. Returns the refused members, each with the reason.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn delete(&mut self, name: &str, members: &[Member]) -> Result<Vec<(Member, Refusal)>> {
        self.change(COMMAND_DELETE, name, members)
    }

    fn change(&mut self, command: u16, name: &str, members: &[Member]) -> Result<Vec<(Member, Refusal)>> {
        check_name(name)?;
        let chunks: Vec<&[Member]> = members.chunks(ENTRIES_PER_MESSAGE).collect();
        let requests =
            chunks.iter().map(|chunk| change_request(command, name, chunk)).collect::<Result<Vec<_>>>()?;
        let answers = self.socket.exchange(&requests, |_, _| {})?;
        let mut refused = Vec::new();
        for (chunk, answer) in chunks.iter().zip(answers) {
            let Err(refusal) = answer else { continue };
            if let [member] = chunk {
                refused.push((*member, refusal));
                continue;
            }
            // The kernel stopped in the middle: try each member by itself, so that only the refused ones are missing.
            let singles = chunk
                .iter()
                .map(|member| change_request(command, name, std::slice::from_ref(member)))
                .collect::<Result<Vec<_>>>()?;
            for (member, answer) in chunk.iter().zip(self.socket.exchange(&singles, |_, _| {})?) {
                refused.extend(answer.err().map(|refusal| (*member, refusal)));
            }
        }
        Ok(refused)
    }

    /// Returns the names of all sets.
    ///
    /// # Errors
    /// When the kernel or the socket fails.
    pub fn names(&mut self) -> Result<Vec<String>> {
        let mut writer = Writer::new(&header(2, 0));
        writer.u8(ATTRIBUTE_PROTOCOL, PROTOCOL).u32_be(ATTRIBUTE_FLAGS | NETWORK_ORDER, LIST_NAMES);
        let request = request(COMMAND_LIST, 0, writer);
        let found = self.socket.dump("list the names of sets", &request, |_, payload| {
            let (_, rest) = split_header::<4>(payload)?;
            attributes(rest).find(|attribute| attribute.number == ATTRIBUTE_NAME)?.text()
        });
        match found {
            Err(Error::Refused { refusal, .. }) if refusal.is_missing() => Ok(Vec::new()),
            found => found,
        }
    }

    /// Reads one set with its members; `None` when no set has this name.
    ///
    /// # Errors
    /// When the kernel or the socket fails.
    pub fn read(&mut self, name: &str) -> Result<Option<SetFound>> {
        let request = request(COMMAND_LIST, 0, start(name)?);
        let parts = self.socket.dump(&format!("list set {name}"), &request, |_, payload| {
            let (_, rest) = split_header::<4>(payload)?;
            Some(read_part(rest))
        });
        let parts = match parts {
            Err(Error::Refused { refusal, .. }) if refusal.is_missing() => return Ok(None),
            parts => parts?,
        };
        // A long set arrives in parts, of which only the first has the header.
        Ok(parts.into_iter().reduce(|mut whole, part| {
            whole.header = whole.header.or(part.header);
            whole.members.extend(part.members);
            whole
        }))
    }

    /// The revision of a type to use with this kernel.
    fn revision(&mut self, set_type: SetType, family: Family) -> Result<u8> {
        if let Some(known) = self.revisions.get(&(set_type, family)) {
            return Ok(*known);
        }
        let mut writer = Writer::new(&header(family.number(), 0));
        writer
            .u8(ATTRIBUTE_PROTOCOL, PROTOCOL)
            .text(ATTRIBUTE_TYPE, set_type.as_str())
            .u8(ATTRIBUTE_FAMILY, family.number());
        let mut newest = 0;
        let answers = self.socket.exchange(&[request(COMMAND_TYPE, 0, writer)], |_, payload| {
            let revision = split_header::<4>(payload).and_then(|(_, rest)| {
                attributes(rest).find(|attribute| attribute.number == ATTRIBUTE_REVISION)?.u8()
            });
            newest = revision.unwrap_or(newest);
        })?;
        if let Some(Err(refusal)) = answers.into_iter().next() {
            return Err(Error::Refused {
                what: format!("query the revisions of set type {}", set_type.as_str()),
                refusal,
            });
        }
        let revision = newest.min(set_type.revision());
        self.revisions.insert((set_type, family), revision);
        Ok(revision)
    }
}

fn read_part(payload: &[u8]) -> SetFound {
    let (mut set_type, mut family, mut max_elements, mut entries) = (None, None, None, None);
    for attribute in attributes(payload) {
        match attribute.number {
            ATTRIBUTE_TYPE => {
                let word = attribute.text();
                set_type = SetType::ALL.into_iter().find(|known| Some(known.as_str()) == word.as_deref());
            }
            ATTRIBUTE_FAMILY => family = attribute.u8().and_then(Family::from_number),
            ATTRIBUTE_DATA => {
                max_elements = attribute
                    .attributes()
                    .find(|data| data.number == DATA_MAX_ELEMENTS)
                    .and_then(|data| data.u32_be());
            }
            ATTRIBUTE_ENTRIES => entries = Some(attribute),
            _ => {}
        }
    }
    let header = set_type.zip(family).zip(max_elements).map(|((set_type, family), max_elements)| SetHeader {
        set_type,
        family,
        max_elements,
    });
    let members = match (set_type, entries) {
        (Some(set_type), Some(entries)) => {
            entries.attributes().filter_map(|entry| Member::read(set_type, &entry)).collect()
        }
        _ => Vec::new(),
    };
    SetFound { header, members }
}

fn change_request(command: u16, name: &str, members: &[Member]) -> Result<Request> {
    let mut writer = start(name)?;
    writer.u32_be(ATTRIBUTE_LINE | NETWORK_ORDER, 1);
    writer.nested(ATTRIBUTE_ENTRIES, |list| members.iter().for_each(|member| member.write(list)));
    Ok(request(command, 0, writer))
}

/// Some commands take an empty name to mean all sets of the machine.
fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(Error::Refused {
            what: format!("name a set '{name}'"),
            refusal: Refusal { code: Refusal::INVALID, message: "names have 1 to 31 bytes".to_owned() },
        });
    }
    Ok(())
}

fn start(name: &str) -> Result<Writer> {
    check_name(name)?;
    let mut writer = Writer::new(&header(2, 0));
    writer.u8(ATTRIBUTE_PROTOCOL, PROTOCOL).text(ATTRIBUTE_NAME, name);
    Ok(writer)
}

fn request(command: u16, flags: u16, writer: Writer) -> Request {
    Request { message_type: (IPSET << 8) | command, flags, payload: writer.finish() }
}
