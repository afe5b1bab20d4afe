//! The order in which a host searches the blocks of a pool, and what it finds.
//!
//! Each host starts at its own index in each pool and goes round once, so that hosts rarely collide. The index is a
//! stable function of host and pool. Pools may have too many blocks to visit them one by one (an IPv6 /48 has 2^74), so
//! whole reserved ranges are skipped and existing blocks are looked up, never enumerated.

use crate::address;
use crate::block::{Block, Owner};
use crate::pools::Pool;
use crate::reservation::AddressSet;
use crate::{cooldown, take};
use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use model::AllocationBlock;
use std::collections::BTreeMap;

/// How long a block is left alone after it was claimed, even if it is empty: two hosts that take the last block from
/// each other would both never use it.
pub const MIN_RECLAIM_AGE: SignedDuration = SignedDuration::from_secs(60);

/// The result of a search for a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A block that does not exist yet.
    Free(IpNet),
    /// A block of this host with room, created by another process in the meantime.
    Ours(IpNet),
    /// No free block; these blocks are empty, belong to others (or have no owner) and may be taken, in this order.
    Reclaimable(Vec<Reclaimable>),
}

/// An empty block of another owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reclaimable {
    /// The block.
    pub cidr: IpNet,
    /// The owner, if there is one.
    pub owner: Option<Owner>,
    /// The sequence number that it must still have.
    pub sequence_number: u64,
}

/// The inputs of a search.
#[derive(Clone, Debug)]
pub struct Search<'a> {
    /// The owner that needs a block.
    pub owner: &'a Owner,
    /// The pools to search, in this order.
    pub pools: &'a [Pool],
    /// All blocks that exist; `None` for a block that cannot be read.
    pub blocks: &'a BTreeMap<IpNet, Option<&'a AllocationBlock>>,
    /// Addresses that are not assigned.
    pub reserved: &'a AddressSet,
    /// How long addresses rest.
    pub cooldown_seconds: i32,
    /// The present time.
    pub now: Timestamp,
}

/// Searches for a block.
#[must_use]
pub fn find(search: &Search<'_>) -> Found {
    let mut reclaimable = Vec::new();
    for pool in search.pools {
        let start = start_index(pool, &search.owner.host, search.now);
        for cidr in Round::new(pool, start, search.reserved) {
            let Some(block) = search.blocks.get(&cidr) else { return Found::Free(cidr) };
            let Some(block) = block else { continue };
            let mut block = (*block).clone();
            cooldown::collect(&mut block, search.cooldown_seconds, search.now);
            let view = Block::new(&block);
            if take::available(&block, search.reserved) == 0 {
                continue;
            }
            let owner = view.owner();
            if owner.as_ref() == Some(search.owner) {
                return Found::Ours(cidr);
            }
            if view.is_empty()
                && is_old_enough(&block, search.now)
                && !(owner.is_none() && view.affinity().is_some())
            {
                reclaimable.push(Reclaimable { cidr, owner, sequence_number: block.sequence_number });
            }
        }
    }
    Found::Reclaimable(reclaimable)
}

fn is_old_enough(block: &AllocationBlock, now: Timestamp) -> bool {
    let Some(claimed) = &block.affinity_claim_time else { return true };
    // An unreadable time is not a reason to keep an empty block forever.
    claimed.parse().map_or(true, |claimed| now.duration_since(claimed) >= MIN_RECLAIM_AGE)
}

/// Existing blocks of a pool in the order in which a host borrows from them.
#[must_use]
pub fn borrowing_order(
    pool: &Pool,
    host: &str,
    blocks: impl IntoIterator<Item = IpNet>,
    now: Timestamp,
) -> Vec<IpNet> {
    let count = block_count(pool);
    let start = start_index(pool, host, now);
    let mut inside: Vec<(u128, IpNet)> = blocks
        .into_iter()
        .filter(|block| block.prefix_len() == pool.block_size)
        .filter_map(|block| Some((index_of(pool, &block)?, block)))
        .map(|(index, block)| (if index >= start { index - start } else { count - start + index }, block))
        .collect();
    inside.sort_unstable();
    inside.into_iter().map(|(_, block)| block).collect()
}

/// The number of blocks of a pool.
#[must_use]
pub fn block_count(pool: &Pool) -> u128 {
    let bits = u32::from(pool.block_size.saturating_sub(pool.cidr.prefix_len()));
    1_u128.checked_shl(bits).unwrap_or(u128::MAX)
}

/// The index at which a host starts. Hosts do not search for the same single address again, so blocks of one address
/// start anywhere.
fn start_index(pool: &Pool, host: &str, now: Timestamp) -> u128 {
    let mut hash = Fnv::new();
    hash.add(host.as_bytes());
    hash.add(&[0]);
    hash.add(pool.cidr.to_string().as_bytes());
    if pool.block_size == pool.cidr.max_prefix_len() {
        hash.add(&now.as_nanosecond().to_le_bytes());
    }
    hash.finish() % block_count(pool)
}

/// The index of a block in its pool.
fn index_of(pool: &Pool, block: &IpNet) -> Option<u128> {
    let base = pool.cidr.contains(block).then(|| address::number(pool.cidr.network()))?;
    Some((address::number(block.network()) - base) >> block_bits(pool))
}

fn block_bits(pool: &Pool) -> u32 {
    u32::from(pool.cidr.max_prefix_len() - pool.block_size)
}

/// All blocks of a pool once, starting at an index, without those that are completely reserved.
struct Round<'a> {
    pool: &'a Pool,
    reserved: &'a AddressSet,
    count: u128,
    next: u128,
    left: u128,
}

impl<'a> Round<'a> {
    fn new(pool: &'a Pool, start: u128, reserved: &'a AddressSet) -> Self {
        let count = block_count(pool);
        Self { pool, reserved, count, next: start % count, left: count }
    }

    fn advance(&mut self, steps: u128) {
        let steps = steps.min(self.left);
        self.left -= steps;
        let to_end = self.count - self.next;
        self.next = if steps >= to_end { steps - to_end } else { self.next + steps };
    }
}

impl Iterator for Round<'_> {
    type Item = IpNet;

    fn next(&mut self) -> Option<IpNet> {
        while self.left > 0 {
            let base = address::number(self.pool.cidr.network());
            let bits = block_bits(self.pool);
            let first = base + (self.next << bits);
            let cidr = address::from_number(first, &self.pool.cidr)
                .and_then(|address| IpNet::new(address, self.pool.block_size).ok())?;
            let Some(last_reserved) = self.reserved.end_of_cover(&cidr) else {
                self.advance(1);
                return Some(cidr);
            };
            // The number of blocks that end within the reserved range, limited to the end of the pool.
            let last_of_block = first + ((1_u128 << bits) - 1);
            let covered = ((last_reserved - last_of_block) >> bits).saturating_add(1);
            self.advance(covered.min(self.count - self.next));
        }
        None
    }
}

/// FNV-1a of 128 bits, with a final mix so that similar names start far apart.
struct Fnv(u128);

impl Fnv {
    fn new() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }

    fn finish(self) -> u128 {
        let mixed = (self.0 ^ (self.0 >> 67)).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        mixed ^ (mixed >> 71)
    }
}

#[cfg(test)]
mod tests;
