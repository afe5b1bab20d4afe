//! Address management's records in a datastore, read completely or not at all.
//!
//! The `ipam` crate makes changes; nothing here writes.

use crate::failure::{Failure, Result};
use ::explain::counted;
use api::{IPPoolSpec, IPReservationSpec};
use client::{Client, InvalidEntry, ListQuery};
use datastore::Backend;
use ipam::{Ipam, default_config};
use ipam_core::{AddressSet, Release, address};
use ipnet::IpNet;
use model::{AllocationBlock, IpamConfig, Key, KvPair, ListOptions, Value};
use std::net::IpAddr;
use std::sync::Arc;

/// How often a write is retried after conflicts before giving up.
pub(super) const ATTEMPTS: usize = 100;

/// Address management's records in one datastore.
#[derive(Clone, Debug)]
pub(super) struct Store {
    client: Client,
}

/// The needed fields of a pool.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub(super) name: String,
    pub(super) cidr: IpNet,
    pub(super) block_size: i64,
    pub(super) disabled: bool,
}

/// Every block, readable or not.
#[derive(Debug)]
pub(super) struct Blocks {
    /// Readable blocks, in the order in which Calico lists them.
    pub(super) entries: Vec<AllocationBlock>,
    /// Unreadable blocks.
    pub(super) invalid: Vec<InvalidEntry>,
}

impl Blocks {
    /// The block that contains an address.
    fn of(self, address: IpAddr) -> Result<Option<AllocationBlock>> {
        self.check_readable(address)?;
        Ok(self.entries.into_iter().find(|block| block.cidr.contains(&address)))
    }

    /// Checks that the address is not in an unreadable block, where it would be neither free nor taken.
    fn check_readable(&self, address: IpAddr) -> Result<()> {
        let holds = |entry: &&InvalidEntry| matches!(&entry.parsed_key, Some(Key::Block { cidr }) if cidr.contains(&address));
        let Some(entry) = self.invalid.iter().find(holds) else { return Ok(()) };
        Err(Failure::new(format!("the block of {address} cannot be read: {}: {}", entry.key, entry.reason)))
    }
}

#[derive(Debug, Default)]
pub(super) struct ReleaseOutcome {
    pub(super) released: usize,
    pub(super) not_allocated: Vec<IpAddr>,
    pub(super) failure: Option<Failure>,
}

impl Store {
    pub(super) fn new(client: &Client) -> Self {
        Self { client: client.clone() }
    }

    pub(super) fn backend(&self) -> &Arc<dyn Backend> {
        self.client.backend()
    }

    /// The settings; the defaults if there are none.
    pub(super) async fn config(&self) -> Result<IpamConfig> {
        Ok(match existing(self.backend().get(&Key::IpamConfig, None).await)? {
            Some(KvPair { value: Value::IpamConfig(config), .. }) => config,
            _ => default_config(),
        })
    }

    /// All pools, by name. An unreadable pool is an error: any answer without it could be wrong.
    pub(super) async fn pools(&self) -> Result<Vec<Pool>> {
        let pools = self.client.resource::<IPPoolSpec>().list(&ListQuery::all()).await?;
        all_readable("IP pool", &pools.invalid)?;
        let pools = pools.items.into_iter().map(|pool| {
            let cidr = pool.spec.cidr.parse().map_err(|reason| {
                Failure::new(format!(
                    "failed to parse IP pool CIDR: IPPool({}): {reason}",
                    pool.metadata.name
                ))
            })?;
            Ok(Pool {
                name: pool.metadata.name,
                cidr: cidr.masked(),
                block_size: pool.spec.block_size,
                disabled: pool.spec.disabled,
            })
        });
        pools.collect()
    }

    /// All reserved addresses.
    pub(super) async fn reservations(&self) -> Result<AddressSet> {
        let reservations = self.client.resource::<IPReservationSpec>().list(&ListQuery::all()).await?;
        all_readable("IP reservation", &reservations.invalid)?;
        let mut nets = Vec::new();
        for reservation in &reservations.items {
            for cidr in &reservation.spec.reserved_cidrs {
                // A plain address is accepted too, as in Calico.
                match api::scalars::IpOrCidr::from(cidr.as_str().trim()).parse() {
                    Ok(network) => nets.push(network.masked()),
                    Err(reason) => {
                        let name = &reservation.metadata.name;
                        tracing::error!(reservation = %name, cidr = %cidr, %reason, "ignoring this reserved range");
                    }
                }
            }
        }
        Ok(nets.into_iter().collect())
    }

    /// All blocks.
    pub(super) async fn blocks(&self) -> Result<Blocks> {
        let found = self.backend().list(&ListOptions::Block { ip_version: None }, None).await;
        let found = found.map_err(|error| Failure::new(format!("failed to list IPAM blocks: {error}")))?;
        let blocks = found.items.into_iter().filter_map(|entry| match entry.value {
            Value::Block(block) => Some(block),
            _ => None,
        });
        let mut entries: Vec<AllocationBlock> = blocks.collect();
        // Datastores order blocks by name as text, not by number.
        entries.sort_by_cached_key(|block| block.cidr.to_string().replace(['.', ':', '/'], "-"));
        Ok(Blocks { entries, invalid: found.invalid })
    }

    /// The block that contains an address, if it exists.
    pub(super) async fn block_of(&self, address: IpAddr) -> Result<Option<AllocationBlock>> {
        for pool in self.pools().await?.iter().filter(|pool| pool.cidr.contains(&address)) {
            let Some(cidr) = address::block_of(address, pool.block_size) else { continue };
            let entry = existing(self.backend().get(&Key::Block { cidr }, None).await)?;
            if let Some(KvPair { value: Value::Block(block), .. }) = entry {
                return Ok(Some(block));
            }
        }
        // No pool, or blocks of another size than the pool has now.
        self.blocks().await?.of(address)
    }

    /// Releases addresses, block by block. A refusal affects one block only; the first one is reported.
    pub(super) async fn release(&self, requests: &[Release]) -> Result<ReleaseOutcome> {
        let outcome = Ipam::new(Arc::clone(self.backend())).release_ips(requests).await?;
        Ok(ReleaseOutcome {
            released: outcome.released.len().saturating_sub(outcome.unallocated.len()),
            not_allocated: outcome.unallocated,
            failure: outcome.failure.map(Failure::from),
        })
    }
}

/// An entry that may be missing.
pub(super) fn existing(outcome: client::Result<KvPair>) -> client::Result<Option<KvPair>> {
    match outcome {
        Ok(entry) => Ok(Some(entry)),
        Err(error) if error.is_does_not_exist() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Checks that every object is readable: an unreadable one might be the one that matters.
pub(super) fn all_readable(what: &str, invalid: &[InvalidEntry]) -> Result<()> {
    let Some(first) = invalid.first() else { return Ok(()) };
    Err(Failure::new(format!(
        "{} cannot be read, so no reliable result is possible; the first is {}: {}",
        counted(invalid.len(), &format!("stored {what}")),
        first.key,
        first.reason
    )))
}
