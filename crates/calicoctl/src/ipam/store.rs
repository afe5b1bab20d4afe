//! Address management's records in a datastore: read, and changed by compare-and-swap over `ipam-core`'s transitions.
//!
//! The same on etcd, the embedded store and Kubernetes: everything goes through the backend's keys. A write that lost
//! against somebody else starts over with what they wrote, a hundred times at most, as in Calico. It refuses to allocate.

use crate::failure::{Failure, Result};
use api::{BlockAffinityState, IPPoolSpec, IPReservationSpec, NodeSpec, VMAddressPersistence};
use client::{Client, InvalidEntry, ListQuery};
use datastore::Backend;
use futures::StreamExt as _;
use ipam_core::{AddressSet, Block, Owner, Release, address, handle};
use ipnet::IpNet;
use jiff::Timestamp;
use model::{AllocationBlock, BlockAffinityKey, IpamConfig, Key, KvPair, ListOptions, Value};
use selector::Selector;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// How often a write is tried against others before giving up.
pub(super) const ATTEMPTS: usize = 100;

/// What is said then.
const TOO_MANY_ATTEMPTS: &str = "Max retries hit - excessive concurrent IPAM requests";

/// How many blocks are worked on at once.
const AT_ONCE: usize = 16;

/// Address management's records in one datastore.
#[derive(Clone, Debug)]
pub(super) struct Store {
    client: Client,
}

/// What is needed of a pool.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub(super) name: String,
    pub(super) cidr: IpNet,
    pub(super) block_size: i64,
    pub(super) node_selector: String,
    pub(super) disabled: bool,
}

/// All blocks.
#[derive(Debug)]
pub(super) struct Blocks {
    /// Those that can be read, in the order in which Calico lists them.
    pub(super) entries: Vec<AllocationBlock>,
    /// Those that cannot.
    pub(super) invalid: Vec<InvalidEntry>,
}

impl Blocks {
    /// The block that an address lies in.
    fn of(self, address: IpAddr) -> Result<Option<AllocationBlock>> {
        self.check_readable(address)?;
        Ok(self.entries.into_iter().find(|block| block.cidr.contains(&address)))
    }

    /// An address of a block that cannot be read is neither free nor taken.
    fn check_readable(&self, address: IpAddr) -> Result<()> {
        let holds = |entry: &&InvalidEntry| matches!(&entry.parsed_key, Some(Key::Block { cidr }) if cidr.contains(&address));
        let Some(entry) = self.invalid.iter().find(holds) else { return Ok(()) };
        Err(Failure::new(format!("the block of {address} cannot be read: {}: {}", entry.key, entry.reason)))
    }
}

/// What a release did.
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

    /// The settings; what holds when there are none.
    pub(super) async fn config(&self) -> Result<IpamConfig> {
        Ok(match existing(self.backend().get(&Key::IpamConfig, None).await)? {
            Some(KvPair { value: Value::IpamConfig(config), .. }) => config,
            _ => default_config(),
        })
    }

    /// All pools, by name. A pool that cannot be read is an error: nothing true can be said without it.
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
                node_selector: pool.spec.node_selector.as_str().to_owned(),
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
                // A lone address is accepted too, as in Calico.
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
        // Datastores order blocks by their names as text, not by number.
        entries.sort_by_cached_key(|block| block.cidr.to_string().replace(['.', ':', '/'], "-"));
        Ok(Blocks { entries, invalid: found.invalid })
    }

    /// The block that an address lies in, where there is one.
    pub(super) async fn block_of(&self, address: IpAddr) -> Result<Option<AllocationBlock>> {
        for pool in self.pools().await?.iter().filter(|pool| pool.cidr.contains(&address)) {
            let Some(cidr) = address::block_of(address, pool.block_size) else { continue };
            if let Some((_, block)) = self.read_block(&cidr).await? {
                return Ok(Some(block));
            }
        }
        // No pool, or blocks of another size than the pool has today.
        self.blocks().await?.of(address)
    }

    async fn read_block(&self, cidr: &IpNet) -> Result<Option<(KvPair, AllocationBlock)>> {
        let entry = existing(self.backend().get(&Key::Block { cidr: *cidr }, None).await)?;
        Ok(entry.and_then(|entry| match &entry.value {
            Value::Block(block) => Some((entry.clone(), block.clone())),
            _ => None,
        }))
    }

    /// Releases addresses, block by block. A refusal concerns one block only; the first one is told.
    pub(super) async fn release(&self, requests: Vec<Release>) -> Result<ReleaseOutcome> {
        let config = self.config().await?;
        let pools = self.pools().await?;
        let mut outcome = ReleaseOutcome::default();
        let by_block = self.group_by_block(requests, &mut outcome).await?;
        let (config, pools) = (&config, &pools);
        let results: Vec<_> =
            futures::stream::iter(by_block)
                .map(|(cidr, requests)| async move {
                    self.release_from_block(&cidr, &requests, config, pools).await
                })
                .buffered(AT_ONCE)
                .collect()
                .await;
        for result in results {
            match result {
                Ok((released, not_allocated)) => {
                    outcome.released += released;
                    outcome.not_allocated.extend(not_allocated);
                }
                Err(failure) => drop(outcome.failure.get_or_insert(failure)),
            }
        }
        Ok(outcome)
    }

    /// Sorts requests by the block that they are about. Addresses in no block are not allocated.
    async fn group_by_block(
        &self,
        requests: Vec<Release>,
        outcome: &mut ReleaseOutcome,
    ) -> Result<BTreeMap<IpNet, Vec<Release>>> {
        let mut by_block: BTreeMap<IpNet, Vec<Release>> = BTreeMap::new();
        if let [request] = requests.as_slice() {
            match self.block_of(request.address).await? {
                Some(block) => drop(by_block.insert(block.cidr, requests)),
                None => outcome.not_allocated.push(request.address),
            }
            return Ok(by_block);
        }
        let blocks = self.blocks().await?;
        let ranges: BTreeMap<IpAddr, IpNet> =
            blocks.entries.iter().map(|block| (block.cidr.network(), block.cidr)).collect();
        for request in requests {
            let block = ranges.range(..=request.address).next_back().map(|(_, cidr)| *cidr);
            match block.filter(|cidr| cidr.contains(&request.address)) {
                Some(cidr) => by_block.entry(cidr).or_default().push(request),
                None => match blocks.check_readable(request.address) {
                    Ok(()) => outcome.not_allocated.push(request.address),
                    Err(failure) => drop(outcome.failure.get_or_insert(failure)),
                },
            }
        }
        Ok(by_block)
    }

    async fn release_from_block(
        &self,
        cidr: &IpNet,
        requests: &[Release],
        config: &IpamConfig,
        pools: &[Pool],
    ) -> Result<(usize, Vec<IpAddr>)> {
        for _ in 0..ATTEMPTS {
            let Some((mut entry, mut block)) = self.read_block(cidr).await? else {
                return Ok((0, requests.iter().map(|request| request.address).collect()));
            };
            let cooldown = config.ip_cooldown_seconds;
            let released = ipam_core::release(&mut block, requests, cooldown, Timestamp::now())?;
            if released.addresses.is_empty() {
                return Ok((0, released.not_allocated));
            }
            let view = Block::new(&block);
            let is_deleted = view.is_empty() && view.affinity().is_none();
            let outcome = if is_deleted {
                self.backend().delete_entry(&entry).await
            } else {
                block.sequence_number += 1;
                entry.value = Value::Block(block.clone());
                self.backend().update(&entry).await
            };
            match outcome {
                Err(error) if error.is_conflict() || error.is_does_not_exist() => continue,
                outcome => outcome?,
            };
            for (handle_id, count) in &released.by_handle {
                // The addresses are free; a handle that still counts them is a small leak and no reason to fail.
                if let Err(failure) = self.decrement_handle(handle_id, cidr, *count).await {
                    tracing::warn!(handle_id, %cidr, %failure, "could not take the released addresses off their handle");
                }
            }
            if !is_deleted && let Err(failure) = self.ensure_consistent_affinity(&block, pools).await {
                tracing::warn!(%cidr, %failure, "could not tell whether the block still belongs to its owner");
            }
            return Ok((released.addresses.len(), released.not_allocated));
        }
        Err(Failure::new(TOO_MANY_ATTEMPTS))
    }

    async fn decrement_handle(&self, handle_id: &str, cidr: &IpNet, count: i64) -> Result<()> {
        let key = Key::IpamHandle { handle_id: handle_id.to_owned() };
        for _ in 0..ATTEMPTS {
            let Some(mut entry) = existing(self.backend().get(&key, None).await)? else { return Ok(()) };
            let Value::IpamHandle(record) = &mut entry.value else { return Ok(()) };
            let missing = handle::decrement(record, cidr, count);
            if missing > 0 {
                tracing::warn!(handle_id, %cidr, missing, "the handle had counted fewer addresses than were released");
            }
            let outcome = if handle::is_empty(record) {
                self.backend().delete_entry(&entry).await
            } else {
                self.backend().update(&entry).await
            };
            match outcome {
                Err(error) if error.is_conflict() => {}
                outcome => return Ok(existing(outcome).map(|_| ())?),
            }
        }
        Err(Failure::new(TOO_MANY_ATTEMPTS))
    }

    /// Takes an empty block from a node that the block's pool no longer selects.
    async fn ensure_consistent_affinity(&self, block: &AllocationBlock, pools: &[Pool]) -> Result<()> {
        let view = Block::new(block);
        let (Some(owner), true) = (view.owner(), view.is_empty()) else { return Ok(()) };
        let Some(pool) = pools.iter().find(|pool| pool.cidr.contains(&block.cidr.network())) else {
            return Ok(());
        };
        if pool.node_selector.is_empty() {
            return Ok(());
        }
        let node = match self.client.resource::<NodeSpec>().get("", &owner.host).await {
            Ok(node) => node,
            Err(error) if error.is_does_not_exist() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if Selector::parse(&pool.node_selector)?.evaluate(&node.metadata.labels) {
            return Ok(());
        }
        for _ in 0..ATTEMPTS {
            match self.try_release_empty_block(&block.cidr, &owner).await {
                Err(error) if error.is_conflict() => {}
                outcome => return Ok(outcome?),
            }
        }
        Err(Failure::new(TOO_MANY_ATTEMPTS))
    }

    /// Deletes an owner's block and claim, in an order that can be continued wherever it stops.
    async fn try_release_empty_block(&self, cidr: &IpNet, owner: &Owner) -> client::Result<()> {
        let (host, affinity_type) = (owner.host.clone(), owner.affinity_type);
        let key = Key::BlockAffinity(BlockAffinityKey { cidr: *cidr, host, affinity_type });
        let Some(mut claim) = existing(self.backend().get(&key, None).await)? else { return Ok(()) };
        let Some(entry) = existing(self.backend().get(&Key::Block { cidr: *cidr }, None).await)? else {
            return Ok(());
        };
        let Value::Block(block) = &entry.value else { return Ok(()) };
        let view = Block::new(block);
        if view.owner().as_ref() != Some(owner) || !view.is_empty() {
            return Ok(());
        }
        if let Value::BlockAffinity(affinity) = &mut claim.value {
            affinity.state = BlockAffinityState::PendingDeletion;
        }
        let claim = self.backend().update(&claim).await?;
        existing(self.backend().delete_entry(&entry).await)?;
        existing(self.backend().delete_entry(&claim).await)?;
        Ok(())
    }
}

/// The settings that hold when there are none.
pub(super) fn default_config() -> IpamConfig {
    IpamConfig {
        auto_allocate_blocks: true,
        kubevirt_vm_address_persistence: Some(VMAddressPersistence::Enabled),
        ..IpamConfig::default()
    }
}

/// An entry that may well be missing.
pub(super) fn existing(outcome: client::Result<KvPair>) -> client::Result<Option<KvPair>> {
    match outcome {
        Ok(entry) => Ok(Some(entry)),
        Err(error) if error.is_does_not_exist() => Ok(None),
        Err(error) => Err(error),
    }
}

/// An object that cannot be read may be the one that matters: then nothing is said at all.
pub(super) fn all_readable(what: &str, invalid: &[InvalidEntry]) -> Result<()> {
    let Some(first) = invalid.first() else { return Ok(()) };
    let count = invalid.len();
    Err(Failure::new(format!(
        "{count} stored {what}(s) cannot be read, so that nothing certain can be said; the first is {}: {}",
        first.key, first.reason
    )))
}
