//! A view of a block record: which addresses are taken, by which holders, and who owns the block.
//!
//! [`Block`] borrows the stored record and never changes it. A record may be damaged (an allocation without its
//! attribute, a list that is too short). Then the address counts as taken by an unknown holder, or as free, but is
//! never assigned twice.

use crate::{WINDOWS_RESERVED_HANDLE, address};
use api::AllocationAttribute;
use model::{AffinityType, AllocationBlock, HandleId};
use std::fmt;
use std::net::IpAddr;

/// A view of a block record.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a>(&'a AllocationBlock);

/// An address that is taken, or is resting after its release.
#[derive(Clone, Copy, Debug)]
pub struct Allocation<'a> {
    /// Its index in the block.
    pub ordinal: usize,
    /// The address.
    pub address: IpAddr,
    /// The attribute of its holder; `None` in a damaged block.
    pub attribute: Option<&'a AllocationAttribute>,
    /// The block's sequence number at the time of the allocation; 0 if unknown.
    pub sequence_number: u64,
}

/// The owner of a block.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// The type of owner.
    pub affinity_type: AffinityType,
    /// The owner's name.
    pub host: String,
}

impl Owner {
    /// Parses `host:NAME` or `virtual:NAME`.
    #[must_use]
    pub fn parse(affinity: &str) -> Option<Self> {
        let (word, host) = affinity.split_once(':')?;
        let affinity_type = AffinityType::from_word(word).filter(|_| !word.is_empty() && !host.is_empty())?;
        Some(Self { affinity_type, host: host.to_owned() })
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.affinity_type, self.host)
    }
}

impl<'a> Block<'a> {
    /// Views a record.
    #[must_use]
    pub fn new(record: &'a AllocationBlock) -> Self {
        Self(record)
    }

    /// The underlying record.
    #[must_use]
    pub fn record(&self) -> &'a AllocationBlock {
        self.0
    }

    /// The number of addresses of the block.
    #[must_use]
    pub fn capacity(&self) -> u128 {
        address::size(&self.0.cidr)
    }

    /// The owner as stored; very old records have it in another field.
    #[must_use]
    pub fn affinity(&self) -> Option<String> {
        let old = || self.0.host_affinity.as_ref().map(|host| format!("host:{host}"));
        self.0.affinity.clone().or_else(old).filter(|affinity| !affinity.is_empty())
    }

    /// The owner; `None` for a block without one, and for a type of owner that we do not know.
    #[must_use]
    pub fn owner(&self) -> Option<Owner> {
        Owner::parse(&self.affinity()?)
    }

    /// The addresses that are taken or resting, in order.
    pub fn allocations(&self) -> impl Iterator<Item = Allocation<'a>> + use<'a> {
        let record = self.0;
        record.allocations.iter().enumerate().filter_map(move |(ordinal, index)| {
            let index = (*index)?;
            let address = address::at(&record.cidr, ordinal)?;
            let attribute = record.attributes.get(index);
            Some(Allocation {
                ordinal,
                address,
                attribute,
                sequence_number: sequence_number(record, ordinal),
            })
        })
    }

    /// The allocation of an address; `None` when it is free or in another block.
    #[must_use]
    pub fn allocation(&self, address: IpAddr) -> Option<Allocation<'a>> {
        let ordinal = address::ordinal(&self.0.cidr, address)?;
        let index = (*self.0.allocations.get(ordinal)?)?;
        let attribute = self.0.attributes.get(index);
        Some(Allocation { ordinal, address, attribute, sequence_number: sequence_number(self.0, ordinal) })
    }

    /// The addresses that a handle holds.
    pub fn addresses_of(&self, handle: &HandleId) -> impl Iterator<Item = IpAddr> {
        self.allocations()
            .filter(move |allocation| allocation.is_held_under(handle))
            .map(|allocation| allocation.address)
    }

    /// Whether no address of the block is in use. Resting addresses and addresses of unrecorded holders are in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.allocations.iter().flatten().all(|index| {
            let attribute = self.0.attributes.get(*index);
            attribute.and_then(|attribute| attribute.handle_id.as_deref()).is_some_and(is_windows_handle)
        })
    }
}

impl<'a> Allocation<'a> {
    /// The handle, cleaned of remnants of a faulty migration.
    #[must_use]
    pub fn handle_id(&self) -> Option<&'a str> {
        self.attribute.and_then(|attribute| attribute.handle_id.as_deref()).map(clean)
    }

    /// Whether the address is held under a handle.
    #[must_use]
    pub fn is_held_under(&self, handle: &HandleId) -> bool {
        self.handle_id() == Some(clean(handle))
    }

    /// An attribute of the current owner.
    #[must_use]
    pub fn owner_attribute(&self, name: &str) -> Option<&'a str> {
        self.attribute?.active_owner_attrs.get(name).map(String::as_str)
    }

    /// Whether the address was released and is resting.
    #[must_use]
    pub fn is_resting(&self) -> bool {
        self.attribute.is_some_and(|attribute| attribute.released_at.is_some())
    }

    /// Whether the address is one that Windows reserves.
    #[must_use]
    pub fn is_windows_reserved(&self) -> bool {
        self.handle_id().is_some_and(is_windows_handle)
    }
}

/// Removes from a handle the carriage return, and what follows it, that a faulty migration from another IPAM wrote.
#[must_use]
pub fn clean_handle(handle: &HandleId) -> HandleId {
    clean(handle).into()
}

pub(crate) fn clean(handle_id: &str) -> &str {
    handle_id.split('\r').next().unwrap_or_default()
}

pub(crate) fn is_windows_handle(handle_id: &str) -> bool {
    handle_id.eq_ignore_ascii_case(WINDOWS_RESERVED_HANDLE)
}

pub(crate) fn sequence_number(record: &AllocationBlock, ordinal: usize) -> u64 {
    record.sequence_number_for_allocation.get(&ordinal.to_string()).copied().unwrap_or_default()
}

/// Records a change of a block: increments its sequence number and returns the old one, which is that of the change.
pub fn advance(block: &mut AllocationBlock) -> u64 {
    let before = block.sequence_number;
    block.sequence_number = before.wrapping_add(1);
    before
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A block of four addresses: a, b, b and c hold them.
    pub(crate) fn full_block() -> AllocationBlock {
        serde_json::from_str(
            r#"{"cidr":"10.0.0.0/30","affinity":"host:n1","allocations":[0,1,1,2],"unallocated":[],"attributes":[
                {"handle_id":"a","secondary":{"node":"n1"}},{"handle_id":"b\r\neth0"},{"handle_id":"c"}],
                "sequenceNumber":7,"sequenceNumberForAllocation":{"0":1,"1":2,"2":2,"3":3},"deleted":false}"#,
        )
        .expect("a block")
    }

    #[test]
    fn a_block_shows_its_holders() {
        let record = full_block();
        let block = Block::new(&record);
        let holders: Vec<_> = block.allocations().map(|a| (a.address.to_string(), a.handle_id())).collect();
        assert_eq!(
            holders,
            [
                ("10.0.0.0".to_owned(), Some("a")),
                ("10.0.0.1".to_owned(), Some("b")),
                ("10.0.0.2".to_owned(), Some("b")),
                ("10.0.0.3".to_owned(), Some("c")),
            ]
        );
        let held: Vec<String> = block.addresses_of(&"b".into()).map(|address| address.to_string()).collect();
        assert_eq!(held, ["10.0.0.1", "10.0.0.2"]);
        let first = block.allocation("10.0.0.0".parse().expect("an address")).expect("an allocation");
        assert_eq!((first.owner_attribute("node"), first.sequence_number), (Some("n1"), 1));
        assert!(block.allocation("10.0.0.4".parse().expect("an address")).is_none());
        assert_eq!(block.owner().map(|owner| owner.to_string()).as_deref(), Some("host:n1"));
        assert!(!block.is_empty());
    }

    #[test]
    fn only_windows_addresses_leave_a_block_empty() {
        let mut record = full_block();
        for attribute in &mut record.attributes {
            attribute.handle_id = Some("Windows-Reserved-IPAM-Handle".to_owned());
        }
        assert!(Block::new(&record).is_empty());
        record.allocations[2] = Some(9);
        assert!(!Block::new(&record).is_empty(), "a holder that is not recorded is a holder");
    }

    #[test]
    fn owners_are_read_strictly() {
        for (text, owner) in [
            ("host:n1", Some(("host", "n1"))),
            ("virtual:load-balancer", Some(("virtual", "load-balancer"))),
            ("host:a:b", Some(("host", "a:b"))),
            ("host:", None),
            (":n1", None),
            ("n1", None),
            ("other:n1", None),
        ] {
            let parsed = Owner::parse(text);
            let parts = parsed.as_ref().map(|owner| (owner.affinity_type.as_str(), owner.host.as_str()));
            assert_eq!(parts, owner, "{text}");
        }
        let mut record = full_block();
        record.affinity = None;
        record.host_affinity = Some("old".to_owned());
        assert_eq!(Block::new(&record).affinity().as_deref(), Some("host:old"));
    }
}
