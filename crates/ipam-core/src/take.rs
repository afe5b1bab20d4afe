//! Takes addresses from a block, and creates blocks.
//!
//! Free addresses are taken in the order of the block's queue. An address that the queue lists as free while it has a
//! holder is never assigned, whatever the cause. Reservations apply to addresses that were not requested explicitly;
//! reserved addresses keep their place in the queue.

use crate::WINDOWS_RESERVED_HANDLE;
use crate::block::{Block, Owner};
use crate::reservation::AddressSet;
use crate::{address, pools};
use api::AllocationAttribute;
use api::meta::Time;
use ipnet::IpNet;
use jiff::Timestamp;
use model::{AllocationBlock, HandleId};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Addresses at the ends of each new block that are never assigned to workloads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostReserved {
    /// How many at the start.
    pub start_of_block: usize,
    /// How many at the end.
    pub end_of_block: usize,
    /// The handle that holds them.
    pub handle: HandleId,
    /// The note that Calico stores with them.
    pub note: String,
}

impl HostReserved {
    /// The addresses that a Windows node reserves: network, gateway, DNS and broadcast addresses.
    #[must_use]
    pub fn windows() -> Self {
        Self {
            start_of_block: 3,
            end_of_block: 1,
            handle: WINDOWS_RESERVED_HANDLE.into(),
            note: "windows host rsvd".to_owned(),
        }
    }

    /// The longest prefix length of blocks that have room for more than these; `None` if no block has.
    #[must_use]
    pub fn max_block_size(&self, version: model::IpVersion) -> Option<u8> {
        let count = self.start_of_block.checked_add(self.end_of_block)?;
        let bits = u8::try_from(usize::BITS - count.leading_zeros()).ok()?;
        pools::longest_prefix(version).checked_sub(bits).filter(|size| count > 0 && *size > 0)
    }
}

/// The holder of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// Its handle.
    pub handle: Option<HandleId>,
    /// Its attributes.
    pub attributes: BTreeMap<String, String>,
}

impl Holder {
    fn attribute(&self) -> AllocationAttribute {
        AllocationAttribute {
            handle_id: self.handle.as_ref().map(HandleId::to_string),
            active_owner_attrs: self.attributes.clone(),
            ..AllocationAttribute::default()
        }
    }
}

/// Why an address was not taken; the block must then not be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TakeRefused {
    /// The block belongs to another owner, and only its owner may use it.
    #[error("Block host affinity does not match")]
    NotTheOwner,
    /// The block has no owner, and only owners may use blocks.
    #[error("Attempt to assign from block {0} with no affinity")]
    NoOwner(IpNet),
    /// The address is in another block.
    #[error("IP {address} not in block {cidr}")]
    NotInBlock {
        /// The address.
        address: IpAddr,
        /// The block.
        cidr: IpNet,
    },
    /// The address has a holder, or is resting after its release.
    #[error("resource already exists: {0} with error: Address already assigned in block")]
    AlreadyAssigned(IpAddr),
}

/// A new block. Its sequence number starts at the current time, so that a block that is deleted and created again never
/// repeats one.
#[must_use]
pub fn new_block(
    cidr: IpNet,
    owner: &Owner,
    reserved: Option<&HostReserved>,
    now: Timestamp,
) -> AllocationBlock {
    let cidr = cidr.trunc();
    let size = usize::try_from(address::size(&cidr)).unwrap_or_default();
    let mut block = AllocationBlock {
        cidr,
        affinity: Some(owner.to_string()),
        affinity_claim_time: Some(time(now)),
        allocations: vec![None; size],
        unallocated: (0..size).collect(),
        attributes: Vec::new(),
        sequence_number: u64::try_from(now.as_nanosecond()).unwrap_or_default(),
        sequence_number_for_allocation: BTreeMap::new(),
        deleted: false,
        host_affinity: None,
        extra: Default::default(),
    };
    if let Some(reserved) = reserved {
        let end = size.saturating_sub(reserved.end_of_block);
        let is_usable = |ordinal: &usize| (reserved.start_of_block..end).contains(ordinal);
        block.unallocated.retain(is_usable);
        for (ordinal, slot) in block.allocations.iter_mut().enumerate() {
            *slot = (!is_usable(&ordinal)).then_some(0);
        }
        if block.unallocated.len() < size {
            let attributes = [("note".to_owned(), reserved.note.clone())].into();
            block.attributes.push(Holder { handle: Some(reserved.handle.clone()), attributes }.attribute());
        }
    }
    block
}

/// A time in the form that blocks use.
#[must_use]
pub fn time(now: Timestamp) -> Time {
    Time::new(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Checks that `owner` may take addresses of a block. Without strict affinity every owner may.
///
/// # Errors
/// When the block belongs to another owner.
pub fn check_owner(block: &AllocationBlock, owner: &Owner, strict: bool) -> Result<(), TakeRefused> {
    let affinity = Block::new(block).affinity();
    match affinity {
        _ if !strict => Ok(()),
        Some(affinity) if affinity == owner.to_string() => Ok(()),
        Some(_) => Err(TakeRefused::NotTheOwner),
        None => Err(TakeRefused::NoOwner(block.cidr)),
    }
}

/// How many addresses could be taken.
#[must_use]
pub fn available(block: &AllocationBlock, reserved: &AddressSet) -> usize {
    let is_reserved = reserved.overlaps(&block.cidr);
    let mut seen = vec![false; block.allocations.len()];
    let free = block.unallocated.iter().filter(|ordinal| {
        let is_free = is_free(block, **ordinal) && !seen[**ordinal];
        if is_free {
            seen[**ordinal] = true;
        }
        is_free && !(is_reserved && is_in(block, **ordinal, reserved))
    });
    free.count()
}

/// Takes up to `count` addresses. Each has the prefix length of the block.
pub fn take(block: &mut AllocationBlock, count: usize, holder: &Holder, reserved: &AddressSet) -> Vec<IpNet> {
    let is_reserved = reserved.overlaps(&block.cidr);
    let mut taken = Vec::new();
    let mut index = None;
    let mut left = Vec::with_capacity(block.unallocated.len());
    for ordinal in std::mem::take(&mut block.unallocated) {
        let wanted = taken.len() < count
            && is_free(block, ordinal)
            && !(is_reserved && is_in(block, ordinal, reserved));
        let address = address::at(&block.cidr, ordinal).filter(|_| wanted);
        let net = address.and_then(|address| IpNet::new(address, block.cidr.prefix_len()).ok());
        let Some(net) = net else {
            left.push(ordinal);
            continue;
        };
        let index = *index.get_or_insert_with(|| find_or_add(block, holder));
        allocate(block, ordinal, index);
        taken.push(net);
    }
    block.unallocated = left;
    taken
}

/// Takes a specific address, reserved or not.
///
/// # Errors
/// When it is taken, or in another block.
pub fn take_address(
    block: &mut AllocationBlock,
    address: IpAddr,
    holder: &Holder,
) -> Result<IpNet, TakeRefused> {
    let outside = TakeRefused::NotInBlock { address, cidr: block.cidr };
    let ordinal = address::ordinal(&block.cidr, address).ok_or_else(|| outside.clone())?;
    if !is_free(block, ordinal) {
        return Err(TakeRefused::AlreadyAssigned(address));
    }
    let net = IpNet::new(address, block.cidr.prefix_len()).map_err(|_| outside)?;
    let index = find_or_add(block, holder);
    allocate(block, ordinal, index);
    block.unallocated.retain(|free| *free != ordinal);
    Ok(net)
}

/// The addresses of exactly this holder: same handle, same attributes.
#[must_use]
pub fn held_by(block: &AllocationBlock, holder: &Holder) -> Vec<IpNet> {
    let wanted = holder.attribute();
    let mine = Block::new(block).allocations().filter(|allocation| allocation.attribute == Some(&wanted));
    mine.filter_map(|allocation| IpNet::new(allocation.address, block.cidr.prefix_len()).ok()).collect()
}

fn is_free(block: &AllocationBlock, ordinal: usize) -> bool {
    block.allocations.get(ordinal).is_some_and(Option::is_none)
}

fn is_in(block: &AllocationBlock, ordinal: usize, set: &AddressSet) -> bool {
    address::at(&block.cidr, ordinal).is_some_and(|address| set.contains(address))
}

fn allocate(block: &mut AllocationBlock, ordinal: usize, index: usize) {
    block.allocations[ordinal] = Some(index);
    block.sequence_number_for_allocation.insert(ordinal.to_string(), block.sequence_number);
}

fn find_or_add(block: &mut AllocationBlock, holder: &Holder) -> usize {
    let wanted = holder.attribute();
    block.attributes.iter().position(|attribute| *attribute == wanted).unwrap_or_else(|| {
        block.attributes.push(wanted);
        block.attributes.len() - 1
    })
}

#[cfg(test)]
mod tests;
