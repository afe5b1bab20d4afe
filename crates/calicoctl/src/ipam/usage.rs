//! The use of each pool, block by block, with owners: values for a map, a page or a description.

use super::store::Store;
use crate::failure::Result;
use client::Client;
use ipam_core::utilisation;
use ipnet::IpNet;
use std::collections::BTreeMap;

/// A pool and its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolUse {
    /// The pool's name; empty for blocks that are in no pool.
    pub(crate) name: String,
    /// The pool's range.
    pub(crate) cidr: Option<IpNet>,
    /// The prefix length of its blocks.
    pub(crate) block_size: u8,
    pub(crate) disabled: bool,
    pub(crate) capacity: u128,
    pub(crate) in_use: u128,
    pub(crate) reserved: u128,
    pub(crate) available: u128,
    /// Ordered by address.
    pub(crate) blocks: Vec<BlockUse>,
}

/// An existing block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockUse {
    pub(crate) cidr: IpNet,
    /// The owning node or virtual owner; empty if the block has no owner.
    pub(crate) owner: String,
    pub(crate) capacity: u128,
    pub(crate) in_use: u128,
    pub(crate) reserved: u128,
}

/// All readable pools and blocks, and the unreadable blocks.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    pub(crate) pools: Vec<PoolUse>,
    /// Key and reason.
    pub(crate) unreadable: Vec<(String, String)>,
}

/// Reads pools, reservations and blocks.
pub(crate) async fn load(client: &Client) -> Result<Usage> {
    let store = Store::new(client);
    let pools = store.pools().await?;
    let reservations = store.reservations().await?;
    let blocks = store.blocks().await?;
    let owners: BTreeMap<IpNet, &str> = blocks
        .entries
        .iter()
        .map(|block| (block.cidr, owner(block.affinity.as_deref().or(block.host_affinity.as_deref()))))
        .collect();
    let ranges: Vec<(String, IpNet)> = pools.iter().map(|pool| (pool.name.clone(), pool.cidr)).collect();
    let mut usage = Usage::default();
    for found in utilisation(&ranges, &blocks.entries, &reservations) {
        let pool = pools.iter().find(|pool| Some(pool.cidr) == found.cidr && pool.name == found.name);
        let mut blocks: Vec<BlockUse> = found
            .blocks
            .iter()
            .map(|block| BlockUse {
                cidr: block.cidr,
                owner: owners.get(&block.cidr).copied().unwrap_or_default().to_owned(),
                capacity: block.capacity,
                in_use: block.in_use,
                reserved: block.reserved,
            })
            .collect();
        if found.cidr.is_none() && blocks.is_empty() {
            continue;
        }
        blocks.sort_by_key(|block| block.cidr);
        let size = blocks.first().map(|block| block.cidr.prefix_len());
        let block_size =
            pool.and_then(|pool| u8::try_from(pool.block_size).ok()).or(size).unwrap_or_default();
        usage.pools.push(PoolUse {
            name: found.name,
            cidr: found.cidr,
            block_size,
            disabled: pool.is_some_and(|pool| pool.disabled),
            capacity: found.capacity,
            in_use: found.in_use,
            reserved: found.reserved,
            available: found.available,
            blocks,
        });
    }
    usage.unreadable = blocks.invalid.into_iter().map(|entry| (entry.key, entry.reason)).collect();
    Ok(usage)
}

/// The owner's name without its type prefix.
fn owner(affinity: Option<&str>) -> &str {
    let affinity = affinity.unwrap_or_default();
    affinity.split_once(':').map_or(affinity, |(_, name)| name)
}

impl PoolUse {
    /// The pool's name and range, for display.
    pub(crate) fn title(&self) -> String {
        match &self.cidr {
            Some(cidr) => format!("{} {cidr}", self.name),
            None => "blocks in no pool".to_owned(),
        }
    }

    /// How many blocks the pool can have.
    pub(crate) fn places(&self) -> Option<u128> {
        let bits = self.block_size.checked_sub(self.cidr?.prefix_len())?;
        1_u128.checked_shl(u32::from(bits))
    }
}

/// A share as a whole percentage; any use counts as at least 1.
pub(crate) fn percent(number: u128, whole: u128) -> u128 {
    if whole == 0 || number == 0 { 0 } else { (number.saturating_mul(100) / whole).max(1) }
}
