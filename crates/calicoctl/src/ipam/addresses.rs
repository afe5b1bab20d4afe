//! Counts how much room pools have and which nodes own blocks, for `calicoctl analyze`.

use super::store::Store;
use crate::failure::Result;
use ::explain::{Addresses, PoolRoom};
use client::Client;
use ipam_core::{Block, utilisation};
use ipnet::IpNet;
use model::AffinityType;

/// Reads pools and blocks, and counts their addresses.
///
/// # Errors
/// When the datastore cannot be read.
pub(crate) async fn addresses(client: &Client) -> Result<Addresses> {
    let store = Store::new(client);
    let pools: Vec<(String, IpNet)> =
        store.pools().await?.into_iter().map(|pool| (pool.name, pool.cidr)).collect();
    let reservations = store.reservations().await?;
    let blocks = store.blocks().await?;
    let mut found = Addresses::default();
    for usage in utilisation(&pools, &blocks.entries, &reservations) {
        match usage.cidr {
            Some(_) => {
                let room = PoolRoom {
                    capacity: usage.capacity,
                    reserved: usage.reserved,
                    available: usage.available,
                };
                found.pools.insert(usage.name, room);
            }
            None => found.orphans.extend(usage.blocks.iter().map(|block| block.cidr)),
        }
    }
    let node = |block: &Block<'_>| {
        block.owner().filter(|owner| owner.affinity_type == AffinityType::Host).map(|owner| owner.host)
    };
    found.blocks = blocks.entries.iter().map(|block| (block.cidr, node(&Block::new(block)))).collect();
    Ok(found)
}
