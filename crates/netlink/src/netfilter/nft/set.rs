//! Sets and maps: their keys, their elements, and the encoding of both.

use super::expression::{LIST_ELEMENT, Verdict};
use crate::wire::Writer;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::Arc;

/// The numbers in the names of sets that belong to one rule.
///
/// `nft` leaves them to the kernel, with the name `__set%d`. The kernel then reads the numbers of all sets of the table
/// for each new one, which takes seconds where thousands of rules have several ports. If a number is taken, by another
/// program or by ourselves an hour ago, the kernel refuses the transaction, and the next attempt uses other numbers.
#[derive(Debug)]
pub(super) struct SetNumbers(u32);

impl SetNumbers {
    /// Above those that the kernel assigns, and within its `int`.
    const FIRST: u32 = 1 << 20;
    const LAST: u32 = i32::MAX.cast_unsigned();

    /// Starts at a random number, which most likely no other program uses.
    pub(super) fn random() -> Self {
        let random = RandomState::new().hash_one(std::process::id());
        let within = random % u64::from(Self::LAST - Self::FIRST);
        Self(Self::FIRST + u32::try_from(within).unwrap_or(0))
    }

    /// The next number.
    pub(super) fn take(&mut self) -> u32 {
        let number = self.0;
        self.0 = if number >= Self::LAST { Self::FIRST } else { number + 1 };
        number
    }
}

/// The name of a set that belongs to one rule; listings show its members in the rule itself.
pub(super) fn anonymous_name(number: u32) -> String {
    format!("__set{number}")
}

/// Flags of sets.
pub(super) const FLAG_ANONYMOUS: u32 = 1;
pub(super) const FLAG_CONSTANT: u32 = 2;
pub(super) const FLAG_INTERVAL: u32 = 4;
pub(super) const FLAG_MAP: u32 = 8;
/// The flag of an element that only marks the end of the previous one.
pub(super) const ELEMENT_INTERVAL_END: u32 = 1;
/// The data type of verdicts.
pub(super) const VERDICT_TYPE: u32 = 0xffff_ff00;
/// This many elements fit in one message, whose list may not exceed 64 KiB, even with the longest chain names.
pub(super) const ELEMENTS_PER_MESSAGE: usize = 150;

/// The type of a set's members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyType {
    /// `ipv4_addr`
    Ipv4,
    /// `ipv6_addr`
    Ipv6,
    /// `ipv4_addr . inet_proto . inet_service`
    Ipv4ProtocolPort,
    /// `ipv6_addr . inet_proto . inet_service`
    Ipv6ProtocolPort,
    /// `inet_service`
    Port,
    /// `ifname`
    InterfaceName,
    /// `icmp_type . icmp_code`
    IcmpTypeCode,
    /// `icmpv6_type . icmpv6_code`
    Icmpv6TypeCode,
}

impl KeyType {
    const ALL: [Self; 8] = [
        Self::Ipv4,
        Self::Ipv6,
        Self::Ipv4ProtocolPort,
        Self::Ipv6ProtocolPort,
        Self::Port,
        Self::InterfaceName,
        Self::IcmpTypeCode,
        Self::Icmpv6TypeCode,
    ];

    /// The number by which `nft` identifies the type: six bits for each part.
    pub(super) const fn number(self) -> u32 {
        const PROTOCOL_PORT: u32 = (12 << 6) | 13;
        match self {
            Self::Ipv4 => 7,
            Self::Ipv6 => 8,
            Self::Ipv4ProtocolPort => (7 << 12) | PROTOCOL_PORT,
            Self::Ipv6ProtocolPort => (8 << 12) | PROTOCOL_PORT,
            Self::Port => 13,
            Self::InterfaceName => 41,
            Self::IcmpTypeCode => (14 << 6) | 32,
            Self::Icmpv6TypeCode => (29 << 6) | 33,
        }
    }

    /// The type with this number.
    pub(super) fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// The length of a key: each part is padded to four bytes.
    #[must_use]
    pub const fn length(self) -> usize {
        match self {
            Self::Ipv4 => 4,
            Self::Ipv6 | Self::InterfaceName => 16,
            Self::Ipv4ProtocolPort => 12,
            Self::Ipv6ProtocolPort => 24,
            Self::Port => 2,
            Self::IcmpTypeCode | Self::Icmpv6TypeCode => 8,
        }
    }

    /// The byte order that `nft` records with the set: none for several parts, the host's, or the network's.
    const fn byte_order(self) -> u32 {
        match self {
            Self::Ipv4ProtocolPort | Self::Ipv6ProtocolPort | Self::IcmpTypeCode | Self::Icmpv6TypeCode => 0,
            Self::InterfaceName => 1,
            Self::Ipv4 | Self::Ipv6 | Self::Port => 2,
        }
    }
}

/// A key's bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    length: u8,
    bytes: [u8; 24],
}

impl Key {
    /// A key of these bytes; `None` when there are more than any key has.
    #[must_use]
    pub fn new(value: &[u8]) -> Option<Self> {
        let mut bytes = [0; 24];
        bytes.get_mut(..value.len())?.copy_from_slice(value);
        Some(Self { length: u8::try_from(value.len()).ok()?, bytes })
    }

    /// An address.
    #[must_use]
    pub fn address(address: IpAddr) -> Self {
        let mut bytes = [0; 24];
        let length = match address {
            IpAddr::V4(address) => {
                bytes[..4].copy_from_slice(&address.octets());
                4
            }
            IpAddr::V6(address) => {
                bytes[..16].copy_from_slice(&address.octets());
                16
            }
        };
        Self { length, bytes }
    }

    /// A port.
    #[must_use]
    pub fn port(port: u16) -> Self {
        let mut bytes = [0; 24];
        bytes[..2].copy_from_slice(&port.to_be_bytes());
        Self { length: 2, bytes }
    }

    /// An address with protocol and port.
    #[must_use]
    pub fn address_port(address: IpAddr, protocol: u8, port: u16) -> Self {
        let mut key = Self::address(address);
        let start = usize::from(key.length);
        key.bytes[start] = protocol;
        key.bytes[start + 4..start + 6].copy_from_slice(&port.to_be_bytes());
        key.length += 8;
        key
    }

    /// The type and code of an ICMP message.
    #[must_use]
    pub fn icmp(icmp_type: u8, code: u8) -> Self {
        let mut bytes = [0; 24];
        (bytes[0], bytes[4]) = (icmp_type, code);
        Self { length: 8, bytes }
    }

    /// The name of an interface; `None` when no interface can have that name.
    #[must_use]
    pub fn interface(name: &str) -> Option<Self> {
        if name.is_empty() || name.len() > 15 {
            return None;
        }
        let mut bytes = [0; 24];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Some(Self { length: 16, bytes })
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// The text of a key that is an interface name.
    #[must_use]
    pub fn as_interface(&self) -> Option<&str> {
        let bytes = self.as_bytes();
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        std::str::from_utf8(&bytes[..end]).ok()
    }

    /// The key that follows; `None` after the last one of this length.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        let mut next = self;
        for byte in next.bytes[..usize::from(self.length)].iter_mut().rev() {
            let (value, overflow) = byte.overflowing_add(1);
            *byte = value;
            if !overflow {
                return Some(next);
            }
        }
        None
    }

    /// The key before this; `None` for the first one.
    #[must_use]
    pub fn previous(self) -> Option<Self> {
        let mut previous = self;
        for byte in previous.bytes[..usize::from(self.length)].iter_mut().rev() {
            let (value, overflow) = byte.overflowing_sub(1);
            *byte = value;
            if !overflow {
                return Some(previous);
            }
        }
        None
    }

    /// The last key of this length.
    #[must_use]
    pub fn last(self) -> Self {
        let mut last = self;
        last.bytes[..usize::from(self.length)].fill(0xff);
        last
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("0x")?;
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A named set or map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Its name.
    pub name: Arc<str>,
    /// The type of its members.
    pub key: KeyType,
    /// Whether members are ranges.
    pub interval: bool,
    /// Whether each member has a verdict.
    pub verdicts: bool,
}

/// A member of a set, or an entry of a map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Element {
    /// One key.
    Single(Key),
    /// All keys from the first to the last; only in sets of ranges.
    Range(Key, Key),
    /// A key with its verdict; only in maps.
    Verdict(Key, Verdict),
}

impl Element {
    /// Writes the elements as the kernel stores them: a range is its start and, unless it extends to the last key, an
    /// element that ends it.
    fn write(&self, list: &mut Writer) {
        match self {
            Self::Single(key) => write_element(list, key, 0, None),
            Self::Range(first, last) => {
                write_element(list, first, 0, None);
                if let Some(end) = last.next() {
                    write_element(list, &end, ELEMENT_INTERVAL_END, None);
                }
            }
            Self::Verdict(key, verdict) => write_element(list, key, 0, Some(verdict)),
        }
    }
}

fn write_element(list: &mut Writer, key: &Key, flags: u32, verdict: Option<&Verdict>) {
    list.nested(LIST_ELEMENT, |element| {
        if flags != 0 {
            element.u32_be(3, flags);
        }
        element.nested(1, |data| {
            data.bytes(1, key.as_bytes());
        });
        if let Some(verdict) = verdict {
            verdict.write(element, 2);
        }
    });
}

/// Writes the attribute that holds a list of elements.
pub(super) fn write_elements(writer: &mut Writer, elements: &[Element]) {
    writer.nested(3, |list| elements.iter().for_each(|element| element.write(list)));
}

/// The user data that `nft` stores with a set in order to print its members.
pub(super) fn user_data(key: KeyType, verdicts: bool) -> Vec<u8> {
    let mut notes = vec![0, 4];
    notes.extend_from_slice(&key.byte_order().to_ne_bytes());
    if verdicts {
        notes.extend_from_slice(&[1, 4, 0, 0, 0, 0]);
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::{Key, KeyType};

    #[test]
    fn numbers_of_types_are_those_of_nft() {
        assert_eq!(KeyType::Ipv4ProtocolPort.number(), 0x730d);
        for kind in KeyType::ALL {
            assert_eq!(KeyType::from_number(kind.number()), Some(kind));
        }
        assert_eq!(KeyType::from_number(9), None);
    }

    #[test]
    fn keys_have_successors_and_predecessors() {
        let key = Key::address("10.0.0.255".parse().expect("address"));
        assert_eq!(key.next(), Some(Key::address("10.0.1.0".parse().expect("address"))));
        assert_eq!(key.next().and_then(Key::previous), Some(key));
        let last = Key::address("255.255.255.255".parse().expect("address"));
        assert_eq!((last.next(), key.last()), (None, last));
        assert_eq!(Key::port(0).previous(), None);
        assert_eq!(Key::port(65535).next(), None);
        let named = Key::interface("cali1").expect("name");
        assert_eq!((named.as_bytes().len(), named.as_interface()), (16, Some("cali1")));
        assert_eq!((Key::interface(""), Key::interface("sixteen-letters-")), (None, None));
        assert_eq!(
            Key::address_port("10.0.0.1".parse().expect("address"), 6, 80).as_bytes(),
            [10, 0, 0, 1, 6, 0, 0, 0, 0, 80, 0, 0]
        );
    }
}
