//! The utilisation of pools and blocks.
//!
//! "In use" and "reserved" may overlap (an address that was taken before it was reserved); "available" is what is
//! neither. Capacity and reserved addresses of a pool cover its whole range, including parts without blocks.

use crate::address;
use crate::block::Block;
use crate::reservation::AddressSet;
use ipnet::IpNet;
use model::AllocationBlock;

/// The utilisation of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockUsage {
    /// The block.
    pub cidr: IpNet,
    /// The number of its addresses.
    pub capacity: u128,
    /// How many of them are taken or resting.
    pub in_use: u128,
    /// How many are reserved.
    pub reserved: u128,
    /// How many can be assigned.
    pub available: u128,
}

/// The utilisation of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolUsage {
    /// The pool's name.
    pub name: String,
    /// Its range; `None` for the blocks that belong to no pool, where only [`PoolUsage::blocks`] is filled in.
    pub cidr: Option<IpNet>,
    /// The number of its addresses.
    pub capacity: u128,
    /// How many of them are taken or resting.
    pub in_use: u128,
    /// How many are reserved.
    pub reserved: u128,
    /// How many can be assigned.
    pub available: u128,
    /// Its blocks, in the order they were given.
    pub blocks: Vec<BlockUsage>,
}

/// The name for blocks without a pool.
pub const ORPHANED: &str = "orphaned allocation blocks";

/// The usage of pools (name and range), in their order, followed by blocks without a pool.
#[must_use]
pub fn utilisation<'a>(
    pools: &[(String, IpNet)],
    blocks: impl IntoIterator<Item = &'a AllocationBlock>,
    reserved: &AddressSet,
) -> Vec<PoolUsage> {
    let row = |name: &str, cidr| PoolUsage {
        name: name.to_owned(),
        cidr,
        capacity: 0,
        in_use: 0,
        reserved: 0,
        available: 0,
        blocks: Vec::new(),
    };
    let mut usage: Vec<PoolUsage> = pools.iter().map(|(name, cidr)| row(name, Some(*cidr))).collect();
    let mut orphans = row(ORPHANED, None);
    for block in blocks {
        let pool =
            usage.iter_mut().find(|pool| pool.cidr.is_some_and(|pool| address::overlap(&pool, &block.cidr)));
        pool.unwrap_or(&mut orphans).blocks.push(block_usage(block, reserved));
    }
    for pool in &mut usage {
        let Some(cidr) = pool.cidr else { continue };
        let unusable = reserved.with(pool.blocks.iter().map(|block| block.cidr));
        pool.capacity = address::size(&cidr);
        pool.reserved = reserved.count_within(&cidr);
        pool.available = pool.capacity.saturating_sub(unusable.count_within(&cidr));
        for block in &pool.blocks {
            pool.in_use = pool.in_use.saturating_add(block.in_use);
            pool.available = pool.available.saturating_add(block.available);
        }
    }
    usage.push(orphans);
    usage
}

fn block_usage(block: &AllocationBlock, reserved: &AddressSet) -> BlockUsage {
    let capacity = Block::new(block).capacity();
    let free = block.unallocated.len() as u128;
    let available = if reserved.overlaps(&block.cidr) {
        let addresses = block.unallocated.iter().filter_map(|ordinal| address::at(&block.cidr, *ordinal));
        addresses.filter(|address| !reserved.contains(*address)).count() as u128
    } else {
        free
    };
    BlockUsage {
        cidr: block.cidr,
        capacity,
        in_use: capacity.saturating_sub(free),
        reserved: reserved.count_within(&block.cidr),
        available,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn net(text: &str) -> IpNet {
        text.parse().expect("a range")
    }

    /// A block with these ordinals free.
    fn block(cidr: &str, free: &[usize]) -> AllocationBlock {
        let mut block: AllocationBlock =
            serde_json::from_str(&format!(r#"{{"cidr":"{cidr}","attributes":[{{}}]}}"#)).expect("a block");
        let size = usize::try_from(address::size(&block.cidr)).expect("a small block");
        block.unallocated = free.to_vec();
        block.allocations = (0..size).map(|ordinal| (!free.contains(&ordinal)).then_some(0)).collect();
        block
    }

    #[test]
    fn pools_blocks_and_orphans() {
        let pools = [("one".to_owned(), net("10.0.0.0/24")), ("two".to_owned(), net("fd00::/64"))];
        let blocks = [
            block("10.0.0.0/30", &[2, 3]),
            block("10.0.0.8/30", &[0, 1, 2, 3]),
            block("192.168.0.0/31", &[1]),
            block("fd99::/127", &[]),
        ];
        // The first block is partly reserved; 128 addresses have no block.
        let reserved: AddressSet =
            ["10.0.0.0/31", "10.0.0.3/32", "10.0.0.128/25"].map(net).into_iter().collect();
        let usage = utilisation(&pools, &blocks, &reserved);
        let figures: Vec<_> = usage
            .iter()
            .map(|pool| {
                (
                    pool.name.as_str(),
                    pool.capacity,
                    pool.in_use,
                    pool.reserved,
                    pool.available,
                    pool.blocks.len(),
                )
            })
            .collect();
        assert_eq!(
            figures,
            [
                ("one", 256, 2, 131, 1 + 4 + 120, 2),
                ("two", 1 << 64, 0, 0, 1 << 64, 0),
                (ORPHANED, 0, 0, 0, 0, 2),
            ]
        );
        let first = &usage[0].blocks[0];
        assert_eq!((first.capacity, first.in_use, first.reserved, first.available), (4, 2, 3, 1));
        assert_eq!(usage[2].blocks[1].in_use, 2, "a block of IPv6 without a pool is seen too");
    }

    proptest! {
        #[test]
        fn figures_agree_with_counting_addresses(
            reserved in prop::collection::vec((0..64_usize, 26..=32_u8), 0..5),
            frees in prop::collection::vec(prop::collection::btree_set(0..8_usize, 0..=8), 0..5),
        ) {
            let pool = net("10.0.0.0/26");
            let blocks: Vec<AllocationBlock> = frees
                .iter()
                .enumerate()
                .map(|(place, free)| {
                    let cidr = format!("10.0.0.{}/29", place * 8);
                    block(&cidr, &free.iter().copied().collect::<Vec<_>>())
                })
                .collect();
            let nets: Vec<IpNet> = reserved
                .iter()
                .map(|(offset, length)| IpNet::new(address::at(&pool, *offset).expect("inside"), *length).expect("a range").trunc())
                .collect();
            let usage = utilisation(&[("pool".to_owned(), pool)], &blocks, &nets.iter().copied().collect());
            let (mut in_use, mut reserved, mut available) = (0, 0, 0);
            for ordinal in 0..64 {
                let address = address::at(&pool, ordinal).expect("inside");
                let is_reserved = nets.iter().any(|net| net.contains(&address));
                let is_used = frees.get(ordinal / 8).is_some_and(|free| !free.contains(&(ordinal % 8)));
                in_use += u128::from(is_used);
                reserved += u128::from(is_reserved);
                available += u128::from(!is_used && !is_reserved);
            }
            let seen = &usage[0];
            prop_assert_eq!((seen.in_use, seen.reserved, seen.available), (in_use, reserved, available));
        }
    }
}
