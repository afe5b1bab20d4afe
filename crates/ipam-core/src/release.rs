//! Releases addresses.
//!
//! A request may state the handle and the sequence number that it expects the address to have. One wrong expectation
//! refuses the whole request: the caller knows an outdated state of the block.

use crate::block::{Block, clean};
use crate::{address, cooldown};
use api::AllocationAttribute;
use api::meta::Time;
use ipnet::IpNet;
use jiff::Timestamp;
use model::{AllocationBlock, HandleId};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// A request to release one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The address.
    pub address: IpAddr,
    /// Release only if this handle holds the address.
    pub handle: Option<HandleId>,
    /// Release only if it was allocated at this sequence number.
    pub sequence_number: Option<u64>,
}

impl Release {
    /// A release whatever the holder of the address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        Self { address, handle: None, sequence_number: None }
    }
}

/// The outcome of a release.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// The addresses that were released, in order.
    pub addresses: Vec<IpAddr>,
    /// Addresses that were already free, or resting.
    pub not_allocated: Vec<IpAddr>,
    /// How many addresses each handle lost.
    pub by_handle: BTreeMap<HandleId, i64>,
}

/// Why a release was refused; the block must then not be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReleaseRefused {
    /// The address is in another block.
    #[error("IP {address} not in block {cidr}")]
    NotInBlock {
        /// The address.
        address: IpAddr,
        /// The block.
        cidr: IpNet,
    },
    /// The address has been allocated again since the caller read it.
    #[error(
        "update conflict: {address}: the given sequence number ({requested}) does not match ({expected}) when attempting to \
         release IP"
    )]
    BadSequenceNumber {
        /// The address.
        address: IpAddr,
        /// The number that the caller expected.
        requested: u64,
        /// The actual number.
        expected: u64,
    },
    /// Another handle holds the address.
    #[error(
        "update conflict: {address}: the given handle ({requested}) does not match ({expected}) when attempting to release IP"
    )]
    BadHandle {
        /// The address.
        address: IpAddr,
        /// The handle that the caller expected.
        requested: HandleId,
        /// The actual handle.
        expected: HandleId,
    },
}

/// Releases addresses of a block. With a cool-down they rest first; without, they are appended to the free queue.
///
/// # Errors
/// When one request is based on an outdated state; then none is carried out.
pub fn release(
    block: &mut AllocationBlock,
    requests: &[Release],
    cooldown_seconds: i32,
    now: Timestamp,
) -> Result<Released, ReleaseRefused> {
    cooldown::collect(block, cooldown_seconds, now);
    // A repeated address counts once, or a handle would lose more than it has.
    let requests: BTreeMap<IpAddr, &Release> =
        requests.iter().map(|request| (request.address, request)).collect();
    let mut released = Released::default();
    let mut ordinals = Vec::new();
    for (address, request) in requests {
        let Some(ordinal) = address::ordinal(&block.cidr, address) else {
            return Err(ReleaseRefused::NotInBlock { address, cidr: block.cidr });
        };
        let expected = crate::block::sequence_number(block, ordinal);
        if let Some(requested) = request.sequence_number.filter(|requested| *requested != expected) {
            return Err(ReleaseRefused::BadSequenceNumber { address, requested, expected });
        }
        let allocation = Block::new(block).allocation(address).filter(|allocation| !allocation.is_resting());
        let Some(allocation) = allocation else {
            released.not_allocated.push(address);
            continue;
        };
        let holder = allocation.handle_id().unwrap_or_default();
        if let Some(requested) = request.handle.as_deref().map(clean)
            && !requested.is_empty()
            && requested != holder
        {
            let (requested, expected) = (requested.into(), holder.into());
            return Err(ReleaseRefused::BadHandle { address, requested, expected });
        }
        if !holder.is_empty() {
            *released.by_handle.entry(holder.into()).or_default() += 1;
        }
        ordinals.push(ordinal);
        released.addresses.push(address);
    }
    rest(block, &ordinals, cooldown_seconds, now);
    Ok(released)
}

/// Releases every address of a block that this handle holds and that (if given) was allocated at this sequence number.
/// Returns how many.
pub fn release_handle(
    block: &mut AllocationBlock,
    handle: &HandleId,
    sequence_number: Option<u64>,
    cooldown_seconds: i32,
    now: Timestamp,
) -> usize {
    cooldown::collect(block, cooldown_seconds, now);
    let ordinals: Vec<usize> = Block::new(block)
        .allocations()
        .filter(|allocation| allocation.is_held_under(handle))
        .filter(|allocation| sequence_number.is_none_or(|wanted| wanted == allocation.sequence_number))
        .map(|allocation| allocation.ordinal)
        .collect();
    rest(block, &ordinals, cooldown_seconds, now);
    ordinals.len()
}

/// Points the addresses to an attribute with the time of their release, and frees what has rested long enough.
fn rest(block: &mut AllocationBlock, ordinals: &[usize], cooldown_seconds: i32, now: Timestamp) {
    if ordinals.is_empty() {
        return;
    }
    let index = block.attributes.len();
    let released_at = Some(Time::new(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()));
    block.attributes.push(AllocationAttribute { released_at, ..AllocationAttribute::default() });
    for ordinal in ordinals {
        if let Some(slot) = block.allocations.get_mut(*ordinal) {
            *slot = Some(index);
            block.sequence_number_for_allocation.insert(ordinal.to_string(), block.sequence_number);
        }
    }
    // Without a cool-down, addresses released now have already rested long enough.
    cooldown::collect(block, cooldown_seconds, now);
}

#[cfg(test)]
mod tests;
