//! Releases addresses: individually, conditional on handle and sequence number, or all addresses of a handle.
//!
//! A handle is released as a whole: its blocks and the handle itself in one write if the store can do that, otherwise
//! the blocks first. A block that the handle names is written even if it has none of its addresses: another process may
//! have counted up the handle and be about to write that block, and must notice that it changed.

use crate::claims::Claims;
use crate::error::{Error, Result, TOO_MANY_ATTEMPTS};
use crate::handles::{Changes, HandleCounts, changed, is_lost};
use crate::records::{self, block_key, blocks_of, existing, handle_key, with_block};
use crate::request::Released;
use crate::store::{IpamStore, Settings, read_labels};
use api::{AllocationAttribute, Kind};
use datastore::{Batch, Write};
use futures::StreamExt as _;
use ipam_core::assignment::order::is_unselected;
use ipam_core::block::advance;
use ipam_core::block::clean_handle;
use ipam_core::retry::ATTEMPTS;
use ipam_core::{Block, Release, cooldown, handle, pools};
use ipnet::IpNet;
use model::{AffinityType, AllocationBlock, HandleId, Key, KvPair};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// How many blocks are processed concurrently.
const AT_ONCE: usize = 16;

/// Above this number of blocks one list is cheaper than reading each.
const LIST_BEYOND: usize = 32;

/// The outcome of a write.
enum Written {
    /// The write was carried out; this is the stored entry, if there is one.
    Done(Option<KvPair>),
    /// The block was not as expected; this is its current entry.
    Changed(Option<KvPair>),
}

/// Requests for one block.
struct Group {
    cidr: IpNet,
    block: Option<KvPair>,
    requests: Vec<Release>,
}

/// Releases addresses, and finds addresses by handle.
#[derive(Clone, Copy)]
pub(crate) struct Releases<'a>(pub(crate) &'a IpamStore);

impl Releases<'_> {
    pub(crate) async fn release_ips(&self, releases: &[Release]) -> Result<Released> {
        let mut outcome = Released::default();
        if releases.is_empty() {
            return Ok(outcome);
        }
        let (settings, groups) =
            futures::join!(self.0.settings_or_defaults(), self.group_by_block(releases, &mut outcome));
        let (settings, groups) = (&settings?, groups?);
        let writes: Vec<_> = groups
            .iter()
            .map(|group| self.release_from_block(group.cidr, group.block.clone(), &group.requests, settings))
            .collect();
        let results: Vec<Result<Vec<IpAddr>>> =
            futures::stream::iter(writes).buffered(AT_ONCE).collect().await;
        for (result, group) in results.into_iter().zip(&groups) {
            match result {
                Ok(unallocated) => {
                    outcome.unallocated.extend(unallocated);
                    outcome.released.extend(group.requests.iter().cloned());
                }
                Err(error) => {
                    tracing::warn!(%error, "addresses were not released");
                    outcome.failure.get_or_insert(error);
                }
            }
        }
        Ok(outcome)
    }

    /// Groups requests by block. Addresses in no block are not allocated.
    async fn group_by_block(&self, releases: &[Release], outcome: &mut Released) -> Result<Vec<Group>> {
        let pools = self.0.pools().await?;
        let mut by_block: BTreeMap<IpNet, Vec<Release>> = BTreeMap::new();
        let mut elsewhere = Vec::new();
        for release in releases {
            let pool = pools::containing(pools.iter(), release.address);
            match pool.and_then(|pool| pool.block_of(release.address)) {
                Some(cidr) => by_block.entry(cidr).or_default().push(release.clone()),
                None => elsewhere.push(release.clone()),
            }
        }
        let mut groups = Vec::new();
        if by_block.len() <= LIST_BEYOND {
            let ranges: Vec<IpNet> = by_block.keys().copied().collect();
            let blocks = self.0.read_usable_blocks(&ranges).await?;
            for ((cidr, requests), block) in by_block.into_iter().zip(blocks) {
                match block.flatten() {
                    Some(block) => groups.push(Group { cidr, block: Some(block), requests }),
                    // Missing or unreadable: the list shows which.
                    None => elsewhere.extend(requests),
                }
            }
        } else {
            elsewhere.extend(by_block.into_values().flatten());
        }
        if elsewhere.is_empty() {
            return Ok(groups);
        }
        // In no pool, or in a block of a different size than the pool's current one.
        let mut all = self.0.all_blocks(None).await?;
        let mut found: BTreeMap<IpNet, Vec<Release>> = BTreeMap::new();
        for release in elsewhere {
            match all.containing(release.address) {
                Ok(Some(cidr)) => found.entry(cidr).or_default().push(release),
                Ok(None) => {
                    outcome.unallocated.push(release.address);
                    outcome.released.push(release);
                }
                Err(error) => drop(outcome.failure.get_or_insert(error)),
            }
        }
        for (cidr, requests) in found {
            let block = all.entries.remove(&cidr).flatten();
            groups.push(Group { cidr, block, requests });
        }
        Ok(groups)
    }

    /// Releases addresses of one block. Returns those that were not allocated.
    async fn release_from_block(
        &self,
        cidr: IpNet,
        mut entry: Option<KvPair>,
        requests: &[Release],
        settings: &Settings,
    ) -> Result<Vec<IpAddr>> {
        for attempt in 0..ATTEMPTS {
            self.0.wait_before(attempt).await;
            let Some(current) = &entry else {
                return Ok(requests.iter().map(|request| request.address).collect());
            };
            let mut block = records::block(current)?.clone();
            let seconds = settings.config.ip_cooldown_seconds;
            let released = ipam_core::release(&mut block, requests, seconds, self.0.clock.now())?;
            if released.addresses.is_empty() {
                return Ok(released.not_allocated);
            }
            let write = written(current, block);
            let changes: BTreeMap<HandleId, Changes> = released
                .by_handle
                .iter()
                .map(|(handle, count)| (handle.clone(), [(cidr, -count)].into()))
                .collect();
            match self.write_release(&write, changes).await? {
                Written::Done(stored) => {
                    self.0.remember_block(cidr, stored.map(Arc::new));
                    self.after_release(&write).await;
                    return Ok(released.not_allocated);
                }
                Written::Changed(current) => {
                    self.0.remember_block(cidr, None);
                    entry = current;
                }
            }
        }
        Err(TOO_MANY_ATTEMPTS)
    }

    /// Writes a block from which addresses were released, and counts down the handles.
    async fn write_release(&self, write: &Write, changes: BTreeMap<HandleId, Changes>) -> Result<Written> {
        // Read before the block is written: their counts then include what is released now.
        let reads: Vec<_> = changes.keys().map(|handle| self.read_handle(handle)).collect();
        let entries = futures::future::try_join_all(reads).await?;
        let mut writes = vec![write.clone()];
        for ((handle, changes), entry) in changes.iter().zip(&entries) {
            writes.extend(changed(handle, entry.as_ref(), changes)?);
        }
        match self.0.backend.write_all(&writes).await? {
            Batch::Done(stored) => return Ok(Written::Done(stored.into_iter().next().flatten())),
            Batch::Conflict(current) => return Ok(Written::Changed(current.into_iter().next().flatten())),
            Batch::Unsupported => {}
        }
        let outcome = match write {
            Write::Delete(entry) => self.0.backend.delete_entry(entry).await.map(|_| None),
            Write::Update(entry) | Write::Create(entry) => self.0.backend.update(entry).await.map(Some),
            Write::Unchanged { .. } => Ok(None),
        };
        let stored = match outcome {
            Ok(stored) => stored,
            Err(error) if is_lost(&error) => return Ok(Written::Changed(self.0.read(write.key()).await?)),
            Err(error) => return Err(error.into()),
        };
        let downs =
            changes.into_iter().zip(entries).map(|((handle, changes), entry)| (handle, entry, changes));
        HandleCounts(self.0).count_down(downs.collect()).await;
        Ok(Written::Done(stored))
    }

    async fn read_handle(&self, handle: &HandleId) -> Result<Option<KvPair>> {
        self.0.read(&handle_key(handle)).await
    }

    pub(crate) async fn release_by_handle(&self, handle: &HandleId) -> Result<()> {
        let id = &clean_handle(handle);
        let key = handle_key(id);
        for attempt in 0..ATTEMPTS {
            self.0.wait_before(attempt).await;
            let is_first = attempt == 0;
            let (settings, entry) = futures::join!(self.settings_for_release(is_first), self.0.read(&key));
            let (settings, Some(entry)) = (settings?, entry?) else {
                if attempt > 0 {
                    // Another process completed what we had begun.
                    return Ok(());
                }
                return Err(Error::does_not_exist(&key, ""));
            };
            let ranges = blocks_of(records::handle(&entry)?);
            let blocks = self.blocks_for_release(&ranges, is_first).await?;
            let mut writes = Vec::with_capacity(ranges.len() + 1);
            for (cidr, block) in ranges.iter().zip(&blocks) {
                writes.push(self.release_handle_in(*cidr, block.as_deref(), id, &settings)?);
            }
            let stored = self.write_handle_release(&entry, &ranges, &mut writes, &settings).await?;
            let is_done = stored.is_some();
            let mut stored = stored.unwrap_or_default().into_iter();
            for cidr in &ranges {
                self.0.remember_block(*cidr, stored.next().flatten().map(Arc::new));
            }
            if is_done {
                for write in writes.iter().take(ranges.len()) {
                    self.after_release(write).await;
                }
                return Ok(());
            }
        }
        Err(Error::TooManyAttempts("Hit max retries"))
    }

    /// The settings: as last seen, if the write can check that they are still current.
    async fn settings_for_release(&self, is_first: bool) -> Result<Settings> {
        if is_first && !self.0.backend.is_kubernetes() {
            self.0.settings().await
        } else {
            self.0.settings_or_defaults().await
        }
    }

    /// Blocks: as last seen, for a first attempt; the write checks whether they are still current.
    async fn blocks_for_release(&self, ranges: &[IpNet], is_first: bool) -> Result<Vec<Option<Arc<KvPair>>>> {
        let cached: Vec<Option<Arc<KvPair>>> = ranges.iter().map(|cidr| self.0.cached_block(cidr)).collect();
        if is_first && cached.iter().all(Option::is_some) {
            return Ok(cached);
        }
        let read = self.0.read_blocks(ranges).await?;
        Ok(read.into_iter().map(|block| block.map(Arc::new)).collect())
    }

    /// Corrects a handle that counts addresses it does not have.
    pub(crate) async fn drop_unfounded(&self, id: &HandleId) -> Result<()> {
        let Some(entry) = self.0.read(&handle_key(id)).await? else { return Ok(()) };
        for cidr in blocks_of(records::handle(&entry)?) {
            HandleCounts(self.0).reconcile(id, cidr).await?;
        }
        Ok(())
    }

    /// The write that removes a handle's addresses from a block.
    fn release_handle_in(
        &self,
        cidr: IpNet,
        entry: Option<&KvPair>,
        id: &HandleId,
        settings: &Settings,
    ) -> Result<Write> {
        let Some(entry) = entry else { return Ok(Write::Unchanged { key: block_key(cidr), revision: None }) };
        let mut block = records::block(entry)?.clone();
        let seconds = settings.config.ip_cooldown_seconds;
        ipam_core::release_handle(&mut block, id, None, seconds, self.0.clock.now());
        Ok(written(entry, block))
    }

    /// Writes blocks without a handle's addresses (`all`), and the handle without these blocks, which is added to them.
    /// Returns the stored blocks; `None` when the write lost against a concurrent one.
    async fn write_handle_release(
        &self,
        entry: &KvPair,
        ranges: &[IpNet],
        all: &mut Vec<Write>,
        settings: &Settings,
    ) -> Result<Option<Vec<Option<KvPair>>>> {
        let record = records::handle(entry)?;
        let mut left = record.clone();
        left.block
            .retain(|text, _| text.parse::<IpNet>().map_or(true, |cidr| !ranges.contains(&cidr.trunc())));
        let last = if handle::is_empty(&left) {
            Write::Delete(entry.clone())
        } else {
            Write::Update(KvPair { value: model::Value::IpamHandle(left), ..entry.clone() })
        };
        all.push(last);
        if settings.is_cached {
            all.push(Write::Unchanged { key: Key::IpamConfig, revision: settings.revision.clone() });
        }
        match self.0.backend.write_all(all).await? {
            Batch::Done(stored) => return Ok(Some(stored)),
            Batch::Conflict(_) => return Ok(None),
            Batch::Unsupported => {}
        }
        if settings.is_cached {
            // Too large for one step: the settings cannot be a condition, so they must be current.
            return Ok(None);
        }
        let mut stored = Vec::with_capacity(all.len());
        for write in all.iter() {
            let outcome = match write {
                Write::Delete(entry) => existing(self.0.backend.delete_entry(entry).await).map(|_| None),
                Write::Update(entry) | Write::Create(entry) => self.0.backend.update(entry).await.map(Some),
                Write::Unchanged { .. } => Ok(None),
            };
            match outcome {
                Ok(entry) => stored.push(entry),
                Err(error) if is_lost(&error) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(stored))
    }

    /// Takes an empty block from a node that the block's pool no longer selects. A failure does not fail the release.
    async fn after_release(&self, write: &Write) {
        let Write::Update(entry) = write else { return };
        let outcome = match records::block(entry) {
            Ok(block) => self.ensure_consistent_affinity(block).await,
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            tracing::warn!(key = %entry.key, %error, "could not determine whether the block still belongs to its owner");
        }
    }

    async fn ensure_consistent_affinity(&self, block: &AllocationBlock) -> Result<()> {
        let view = Block::new(block);
        let (Some(owner), true) = (view.owner(), view.is_empty()) else { return Ok(()) };
        if owner.affinity_type != AffinityType::Host {
            return Ok(());
        }
        let node_key = Key::resource(Kind::Node, "", &owner.host);
        let (pools, node) = futures::join!(self.0.pools(), self.0.read(&node_key));
        let Some(node) = node? else { return Ok(()) };
        if !is_unselected(block.cidr, &pools?, &read_labels(&node))? {
            return Ok(());
        }
        let config = self.0.read_settings().await?.config;
        match Claims(self.0).give_up(block.cidr, &owner, true, None, &config).await {
            Err(Error::KeepRefused(_) | Error::DoesNotExist { .. }) => Ok(()),
            outcome => outcome,
        }
    }

    pub(crate) async fn ips_by_handle(&self, handle: &HandleId) -> Result<Vec<IpAddr>> {
        let id = &clean_handle(handle);
        let Some(entry) = self.0.read(&handle_key(id)).await? else {
            return Err(Error::does_not_exist(&handle_key(id), ""));
        };
        self.addresses_of(&entry, id).await
    }

    /// The addresses of a handle, given the handle's entry.
    pub(crate) async fn addresses_of(&self, entry: &KvPair, id: &HandleId) -> Result<Vec<IpAddr>> {
        let ranges = blocks_of(records::handle(entry)?);
        let mut addresses = BTreeSet::new();
        for block in self.0.read_blocks(&ranges).await?.iter().flatten() {
            addresses.extend(Block::new(records::block(block)?).addresses_of(id));
        }
        Ok(addresses.into_iter().collect())
    }

    pub(crate) async fn allocation(&self, address: IpAddr) -> Result<Option<AllocationAttribute>> {
        let Some(entry) = self.block_containing(address).await? else { return Ok(None) };
        let block = records::block(&entry)?;
        let allocation = Block::new(block).allocation(address).filter(|allocation| !allocation.is_resting());
        Ok(allocation.map(|allocation| AllocationAttribute {
            handle_id: allocation.handle_id().map(str::to_owned),
            ..allocation.attribute.cloned().unwrap_or_default()
        }))
    }

    /// The block that contains an address, if there is one.
    pub(crate) async fn block_containing(&self, address: IpAddr) -> Result<Option<KvPair>> {
        let pools = self.0.pools().await?;
        let cidr = pools::containing(pools.iter(), address).and_then(|pool| pool.block_of(address));
        if let Some(cidr) = cidr
            && let Some(entry) = self.0.read(&block_key(cidr)).await?
        {
            return Ok(Some(entry));
        }
        let mut all = self.0.all_blocks(None).await?;
        let cidr = all.containing(address)?;
        Ok(cidr.and_then(|cidr| all.entries.remove(&cidr).flatten()))
    }

    pub(crate) async fn collect_rested(&self, cidr: IpNet) -> Result<bool> {
        let (settings, entry) = {
            let key = block_key(cidr);
            let (settings, entry) = futures::join!(self.0.read_settings(), self.0.read(&key));
            (settings?, entry?)
        };
        let Some(entry) = entry else { return Ok(false) };
        let mut block = records::block(&entry)?.clone();
        if !cooldown::collect(&mut block, settings.config.ip_cooldown_seconds, self.0.clock.now()) {
            return Ok(false);
        }
        self.0.remember_block(cidr, None);
        match written(&entry, block) {
            Write::Update(entry) => drop(self.0.backend.update(&entry).await?),
            _ => drop(existing(self.0.backend.delete_entry(&entry).await)?),
        }
        Ok(true)
    }
}

/// The write of a block that changed: an empty block without an owner is deleted.
fn written(entry: &KvPair, mut block: AllocationBlock) -> Write {
    let view = Block::new(&block);
    if view.is_empty() && view.affinity().is_none() {
        return Write::Delete(entry.clone());
    }
    advance(&mut block);
    Write::Update(with_block(entry, block))
}
