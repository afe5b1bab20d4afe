//! The state shared by all clones of an [`crate::Ipam`], and the facts that decisions are based on.
//!
//! A short-lived process reads the facts of one request at once: settings, pools, reservations, the node and its
//! claims, in five concurrent reads; then the blocks; then it writes. A long-lived process watches them
//! ([`crate::warm`]) and caches the blocks that it wrote last. Correctness does not depend on these being current: a
//! block is written only at the revision that was read, the settings (which cannot be watched) are a condition of the
//! write, and a request that finds no room checks again before taking a new block.

use crate::clock::{Clock, wait_before};
use crate::error::{Error, Result};
use crate::lane::Lanes;
use crate::records::{self, block_key, existing};
use crate::warm::Warm;
use api::{IPReservation, Kind, Resource};
use datastore::{Backend, InvalidEntry, KvList};
use futures::{StreamExt as _, TryStreamExt as _};
use ipam_core::pools::{Labels, Pool};
use ipam_core::settings::default_config;
use ipam_core::{AddressSet, Owner};
use ipnet::IpNet;
use model::{AffinityType, AllocationBlock, IpVersion, IpamConfig, Key, KvPair, ListOptions, Value};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// How many blocks are read concurrently.
const READS_AT_ONCE: usize = 32;

/// The state shared by clones.
pub(crate) struct IpamStore {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) lanes: Lanes,
    pub(crate) warm: Option<Warm>,
    /// Blocks as last seen; only in a long-lived process.
    blocks: Mutex<BTreeMap<IpNet, Arc<KvPair>>>,
    /// Settings as last seen; only in a long-lived process.
    settings: Mutex<Option<Settings>>,
    /// How many blocks this process has claimed.
    claimed: AtomicU64,
}

/// The settings, their revision and whether they are cached.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) config: IpamConfig,
    /// The revision of the stored settings; `None` when none are stored.
    pub(crate) revision: Option<String>,
    /// Whether they were read for an earlier request.
    pub(crate) is_cached: bool,
}

/// The facts that an assignment is based on.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// The owner that they apply to.
    pub(crate) owner: Owner,
    pub(crate) settings: Settings,
    pub(crate) pools: Arc<Vec<Pool>>,
    pub(crate) reserved: Arc<AddressSet>,
    pub(crate) node_labels: Arc<Labels>,
    /// The owner's claims, read together with the rest; empty if they are watched.
    claims: Arc<BTreeMap<IpVersion, Vec<KvPair>>>,
    /// How many blocks this process had claimed when they were read.
    claimed_before: u64,
    /// Whether they were read before the request's turn: others may have claimed blocks in the meantime.
    is_early: bool,
}

impl Facts {
    /// The same facts for a later request: a write then checks that the settings are still current.
    pub(crate) fn early(mut self) -> Self {
        self.is_early = true;
        self.settings.is_cached = true;
        self
    }
}

/// All blocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    /// Blocks by range; `None` for a block that cannot be read.
    pub(crate) entries: BTreeMap<IpNet, Option<KvPair>>,
    /// Blocks that cannot be read, with the reason; their range is not always known.
    pub(crate) unreadable: Vec<InvalidEntry>,
}

impl Blocks {
    /// The blocks that can be read.
    pub(crate) fn readable(&self) -> impl Iterator<Item = (&KvPair, &AllocationBlock)> {
        self.entries.values().flatten().filter_map(|entry| Some((entry, records::block(entry).ok()?)))
    }

    /// The block that contains an address. An address that may be in an unreadable block is neither free nor taken.
    pub(crate) fn containing(&self, address: IpAddr) -> Result<Option<IpNet>> {
        let found = self.entries.iter().find(|(cidr, _)| cidr.contains(&address));
        if let Some((cidr, Some(_))) = found {
            return Ok(Some(*cidr));
        }
        let may_hold = |entry: &&InvalidEntry| match &entry.parsed_key {
            Some(Key::Block { cidr }) => cidr.contains(&address),
            _ => true,
        };
        match self.unreadable.iter().find(may_hold) {
            None => Ok(None),
            Some(entry) => {
                let (key, reason) = (entry.key.clone(), entry.reason.clone());
                Err(Error::UnreadableBlock { address, key, reason })
            }
        }
    }
}

impl IpamStore {
    pub(crate) fn new(backend: Arc<dyn Backend>, clock: Arc<dyn Clock>, warm: Option<Warm>) -> Self {
        Self {
            backend,
            clock,
            lanes: Lanes::default(),
            warm,
            blocks: Mutex::default(),
            settings: Mutex::default(),
            claimed: AtomicU64::new(0),
        }
    }

    pub(crate) async fn wait_before(&self, attempt: u32) {
        if let Some(wait) = wait_before(attempt) {
            self.clock.wait(wait).await;
        }
    }

    /// Reads an entry that may be missing.
    pub(crate) async fn read(&self, key: &Key) -> Result<Option<KvPair>> {
        Ok(existing(self.backend.get(key, None).await)?)
    }

    /// Reads blocks, in the order of the ranges.
    pub(crate) async fn read_blocks(&self, blocks: &[IpNet]) -> Result<Vec<Option<KvPair>>> {
        let reads: Vec<_> = blocks.iter().map(|cidr| self.read_block(*cidr)).collect();
        futures::stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await
    }

    /// Reads blocks that are not essential: one that cannot be read is logged, and `None`.
    pub(crate) async fn read_usable_blocks(&self, blocks: &[IpNet]) -> Result<Vec<Option<Option<KvPair>>>> {
        let reads: Vec<_> = blocks.iter().map(|cidr| self.read_usable_block(*cidr)).collect();
        futures::stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await
    }

    async fn read_block(&self, cidr: IpNet) -> Result<Option<KvPair>> {
        self.read(&block_key(cidr)).await
    }

    async fn read_usable_block(&self, cidr: IpNet) -> Result<Option<Option<KvPair>>> {
        match self.read_block(cidr).await {
            Err(Error::Datastore(error @ datastore::Error::Parse { .. })) => {
                tracing::error!(%cidr, %error, "this block cannot be used");
                Ok(None)
            }
            outcome => outcome.map(Some),
        }
    }

    /// The stored settings, or the defaults if there are none.
    pub(crate) async fn read_settings(&self) -> Result<Settings> {
        let entry = self.read(&Key::IpamConfig).await?;
        let revision = entry.as_ref().map(|entry| entry.revision.clone());
        let config = match entry {
            Some(KvPair { value: Value::IpamConfig(config), .. }) => config,
            _ => default_config(),
        };
        let settings = Settings { config, revision, is_cached: false };
        if self.warm.is_some() {
            *lock(&self.settings) = Some(Settings { is_cached: true, ..settings.clone() });
        }
        Ok(settings)
    }

    /// The settings for releasing addresses and blocks. Roles of kube-controllers before release 3.30 are not allowed
    /// to read them; leaked addresses are released all the same, using the defaults.
    pub(crate) async fn settings_or_defaults(&self) -> Result<Settings> {
        match self.read_settings().await {
            Err(Error::Datastore(datastore::Error::Unauthorized { reason })) => {
                tracing::debug!(reason, "not allowed to read the settings of address management");
                Ok(Settings { config: default_config(), revision: None, is_cached: false })
            }
            outcome => outcome,
        }
    }

    /// The settings, as last seen in a long-lived process; a write that is based on cached settings checks them.
    pub(crate) async fn settings(&self) -> Result<Settings> {
        let cached = lock(&self.settings).clone();
        match cached {
            Some(settings) => Ok(settings),
            None => self.read_settings().await,
        }
    }

    /// The facts for a request of this owner for addresses of these IP versions.
    pub(crate) async fn facts(&self, owner: &Owner, versions: &[IpVersion]) -> Result<Facts> {
        let claimed_before = self.claimed.load(Ordering::SeqCst);
        let (settings, pools, reserved, node_labels, claims) = futures::join!(
            self.settings(),
            self.pools(),
            self.reservations(),
            self.node_labels(owner),
            self.claims_ahead(owner, versions),
        );
        Ok(Facts {
            owner: owner.clone(),
            settings: settings?,
            pools: pools?,
            reserved: reserved?,
            node_labels: node_labels?,
            claims: Arc::new(claims?),
            claimed_before,
            is_early: false,
        })
    }

    async fn claims_ahead(
        &self,
        owner: &Owner,
        versions: &[IpVersion],
    ) -> Result<BTreeMap<IpVersion, Vec<KvPair>>> {
        if self.warm.is_some() {
            return Ok(BTreeMap::new());
        }
        let reads: Vec<_> = versions.iter().map(|version| self.read_claims(owner, *version)).collect();
        let claims = futures::future::try_join_all(reads).await?;
        Ok(versions.iter().copied().zip(claims).collect())
    }

    /// Records that this process has claimed a block.
    pub(crate) fn count_claim(&self) {
        self.claimed.fetch_add(1, Ordering::SeqCst);
    }

    /// All valid pools, by name.
    pub(crate) async fn pools(&self) -> Result<Arc<Vec<Pool>>> {
        if let Some(pools) = self.warm.as_ref().and_then(Warm::pools) {
            return Ok(pools);
        }
        let found = self.backend.list(&ListOptions::resources(Kind::IPPool), None).await?;
        Ok(Arc::new(read_pools(&found.items, &found.invalid)))
    }

    /// All reserved addresses. One unreadable reservation makes all of them unknown.
    pub(crate) async fn reservations(&self) -> Result<Arc<AddressSet>> {
        if let Some(reserved) = self.warm.as_ref().and_then(Warm::reservations) {
            return reserved;
        }
        let found = self.backend.list(&ListOptions::resources(Kind::IPReservation), None).await?;
        read_reservations(&found.items, &found.invalid).map(Arc::new)
    }

    async fn node_labels(&self, owner: &Owner) -> Result<Arc<Labels>> {
        if owner.affinity_type == AffinityType::Virtual {
            return Ok(Arc::default());
        }
        if let Some(labels) = self.warm.as_ref().and_then(|warm| warm.node_labels(&owner.host)) {
            return Ok(labels);
        }
        let node = self.backend.get(&Key::resource(Kind::Node, "", &owner.host), None).await?;
        Ok(Arc::new(read_labels(&node)))
    }

    /// An owner's claims, and whether they may be incomplete.
    pub(crate) async fn claims(
        &self,
        owner: &Owner,
        version: IpVersion,
        facts: &Facts,
    ) -> Result<(Vec<KvPair>, bool)> {
        if let Some(claims) = self.warm.as_ref().and_then(|warm| warm.claims(owner, version)) {
            return Ok((claims, true));
        }
        match facts.claims.get(&version) {
            // Read for this request, which may however have waited for another one that claimed a block.
            Some(claims) => {
                let has_claimed = facts.claimed_before != self.claimed.load(Ordering::SeqCst);
                Ok((claims.clone(), facts.is_early || has_claimed))
            }
            None => Ok((self.read_claims(owner, version).await?, false)),
        }
    }

    /// An owner's claims as stored.
    pub(crate) async fn read_claims(&self, owner: &Owner, version: IpVersion) -> Result<Vec<KvPair>> {
        let found = self.backend.list(&claims_of(owner, Some(version)), None).await?;
        tell_unreadable("a claim on a block", &found);
        Ok(found.items)
    }

    /// All blocks of an IP version, or of both.
    pub(crate) async fn all_blocks(&self, ip_version: Option<IpVersion>) -> Result<Blocks> {
        let found = self.backend.list(&ListOptions::Block { ip_version }, None).await?;
        tell_unreadable("a block", &found);
        let mut blocks = Blocks::default();
        for entry in found.items {
            // A block that is marked as deleted counts as gone; the process that creates it again completes the
            // removal.
            let (Key::Block { cidr }, Value::Block(block)) = (&entry.key, &entry.value) else { continue };
            if !block.deleted {
                blocks.entries.insert(*cidr, Some(entry));
            }
        }
        for invalid in found.invalid {
            if let Some(Key::Block { cidr }) = invalid.parsed_key {
                blocks.entries.insert(cidr, None);
            }
            blocks.unreadable.push(invalid);
        }
        Ok(blocks)
    }

    /// A block as last seen.
    pub(crate) fn cached_block(&self, cidr: &IpNet) -> Option<Arc<KvPair>> {
        lock(&self.blocks).get(cidr).cloned()
    }

    /// Caches the state of a block, or that it is gone.
    pub(crate) fn remember_block(&self, cidr: IpNet, entry: Option<Arc<KvPair>>) {
        let Some(warm) = &self.warm else { return };
        // Only the host's own blocks: there are few of them, and other processes hardly ever write them.
        let is_ours = |entry: &Arc<KvPair>| records::block(entry).is_ok_and(|block| warm.owns(block));
        let mut blocks = lock(&self.blocks);
        match entry.filter(is_ours) {
            Some(entry) => drop(blocks.insert(cidr, entry)),
            None => drop(blocks.remove(&cidr)),
        }
    }
}

/// The lock of a plain value: a thread that panicked did not leave it half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The claims of an owner.
pub(crate) fn claims_of(owner: &Owner, ip_version: Option<IpVersion>) -> ListOptions {
    ListOptions::BlockAffinity {
        host: Some(owner.host.clone()),
        affinity_type: Some(owner.affinity_type),
        ip_version,
    }
}

/// Pools by name. A pool that is invalid or unreadable assigns nothing and is logged.
pub(crate) fn read_pools<'a>(
    items: impl IntoIterator<Item = &'a KvPair>,
    invalid: &[InvalidEntry],
) -> Vec<Pool> {
    for entry in invalid {
        tracing::error!(
            key = entry.key,
            reason = entry.reason,
            "this IP pool cannot be read and assigns nothing"
        );
    }
    let mut pools: Vec<Pool> = Vec::new();
    for entry in items {
        let Value::Resource(Resource::IPPool(pool)) = &entry.value else { continue };
        let mut pool = pool.clone();
        pool.set_read_defaults();
        match Pool::read(&pool) {
            Ok(pool) => pools.push(pool),
            Err(reason) => {
                let pool = pool.metadata.name;
                tracing::error!(pool, reason, "this IP pool is invalid and assigns nothing");
            }
        }
    }
    pools.sort_by(|one, other| one.name.cmp(&other.name));
    pools
}

/// All reserved addresses.
///
/// # Errors
/// When a reservation cannot be read: any address could be reserved by it.
pub(crate) fn read_reservations<'a>(
    items: impl IntoIterator<Item = &'a KvPair>,
    invalid: &[InvalidEntry],
) -> Result<AddressSet> {
    if let Some(entry) = invalid.first() {
        let (key, reason) = (entry.key.clone(), entry.reason.clone());
        return Err(Error::Unreadable { what: "an IP reservation", key, reason });
    }
    let mut nets = Vec::new();
    for entry in items {
        let Value::Resource(Resource::IPReservation(reservation)) = &entry.value else { continue };
        nets.extend(reserved_by(reservation));
    }
    Ok(nets.into_iter().collect())
}

fn reserved_by(reservation: &IPReservation) -> Vec<IpNet> {
    let ranges = reservation.spec.reserved_cidrs.iter().filter_map(|cidr| {
        // A lone address is accepted too, as in Calico.
        match api::scalars::IpOrCidr::from(cidr.as_str().trim()).parse() {
            Ok(network) => Some(network.masked()),
            Err(reason) => {
                let name = &reservation.metadata.name;
                tracing::error!(reservation = %name, cidr = %cidr, %reason, "ignoring this reserved range");
                None
            }
        }
    });
    ranges.collect()
}

/// The labels of a node.
pub(crate) fn read_labels(node: &KvPair) -> Labels {
    match &node.value {
        Value::Resource(resource) => resource.metadata().labels.clone(),
        _ => Labels::new(),
    }
}

fn tell_unreadable(what: &str, found: &KvList) {
    for entry in &found.invalid {
        tracing::error!(key = entry.key, reason = entry.reason, "{what} cannot be read");
    }
}
