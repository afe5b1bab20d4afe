//! What all clones of an [`crate::Ipam`] share, and the facts that decisions are made from.
//!
//! A short-lived process reads the facts of one request at once: settings, pools, reservations, the node and its claims,
//! five reads that wait for each other not at all; then the blocks; then it writes. A long-lived one follows them
//! ([`crate::warm`]) and keeps the blocks that it wrote last. Nothing depends on that being current: a block is written
//! only at the revision that was read, the settings (which cannot be followed) are a condition of the write, and who
//! finds no room looks again before taking a new block.

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

/// How many blocks are read at once.
const READS_AT_ONCE: usize = 32;

/// What clones share.
pub(crate) struct IpamStore {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) lanes: Lanes,
    pub(crate) warm: Option<Warm>,
    /// Blocks as they were last seen; only in a long-lived process.
    blocks: Mutex<BTreeMap<IpNet, Arc<KvPair>>>,
    /// Settings as they were last seen; only in a long-lived process.
    settings: Mutex<Option<Settings>>,
    /// How many blocks this process has claimed.
    claimed: AtomicU64,
}

/// The settings and how well they are known.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) config: IpamConfig,
    /// Their revision; `None` when there are none stored.
    pub(crate) revision: Option<String>,
    /// Whether they were read for an earlier request.
    pub(crate) is_cached: bool,
}

/// What an assignment is decided from.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// For whose requests.
    pub(crate) owner: Owner,
    pub(crate) settings: Settings,
    pub(crate) pools: Arc<Vec<Pool>>,
    pub(crate) reserved: Arc<AddressSet>,
    pub(crate) node_labels: Arc<Labels>,
    /// The owner's claims, read together with the rest; empty where they are followed.
    claims: Arc<BTreeMap<IpVersion, Vec<KvPair>>>,
    /// How many blocks this process had claimed by then.
    claimed_before: u64,
    /// Whether they were read before the request had its turn: others may have claimed blocks meanwhile.
    is_early: bool,
}

impl Facts {
    /// The same, for a request that comes later: a write then checks that the settings still hold.
    pub(crate) fn early(mut self) -> Self {
        self.is_early = true;
        self.settings.is_cached = true;
        self
    }
}

/// All blocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    /// By range; a block that cannot be read is `None`.
    pub(crate) entries: BTreeMap<IpNet, Option<KvPair>>,
    /// Blocks that cannot be read, with what is wrong; their range is not always known.
    pub(crate) unreadable: Vec<InvalidEntry>,
}

impl Blocks {
    /// The blocks that can be read.
    pub(crate) fn readable(&self) -> impl Iterator<Item = (&KvPair, &AllocationBlock)> {
        self.entries.values().flatten().filter_map(|entry| Some((entry, records::block(entry).ok()?)))
    }

    /// The block that an address lies in. An address that may be in a block that cannot be read is neither free nor taken.
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

    /// An entry that may well be missing.
    pub(crate) async fn read(&self, key: &Key) -> Result<Option<KvPair>> {
        Ok(existing(self.backend.get(key, None).await)?)
    }

    /// Blocks, in the order of the question.
    pub(crate) async fn read_blocks(&self, blocks: &[IpNet]) -> Result<Vec<Option<KvPair>>> {
        let reads: Vec<_> = blocks.iter().map(|cidr| self.read_block(*cidr)).collect();
        futures::stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await
    }

    /// The same for blocks that one can do without: one that cannot be read is reported, and `None`.
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

    /// The settings as they are stored; what holds when there are none.
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

    /// The settings for giving addresses and blocks back. Roles of kube-controllers before release 3.30 do not allow to read
    /// them; what is leaked is given back all the same, by the defaults.
    pub(crate) async fn settings_or_defaults(&self) -> Result<Settings> {
        match self.read_settings().await {
            Err(Error::Datastore(datastore::Error::Unauthorized { reason })) => {
                tracing::debug!(reason, "not allowed to read the settings of address management");
                Ok(Settings { config: default_config(), revision: None, is_cached: false })
            }
            outcome => outcome,
        }
    }

    /// The settings, as they were last seen in a long-lived process; a write based on these checks them.
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

    /// This process has claimed a block.
    pub(crate) fn count_claim(&self) {
        self.claimed.fetch_add(1, Ordering::SeqCst);
    }

    /// All pools that make sense, by name.
    pub(crate) async fn pools(&self) -> Result<Arc<Vec<Pool>>> {
        if let Some(pools) = self.warm.as_ref().and_then(Warm::pools) {
            return Ok(pools);
        }
        let found = self.backend.list(&ListOptions::resources(Kind::IPPool), None).await?;
        Ok(Arc::new(read_pools(&found.items, &found.invalid)))
    }

    /// All reserved addresses. One reservation that cannot be read makes all of them unknown.
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
            // Read for this request; but it may have waited for one that claimed a block.
            Some(claims) => {
                let has_claimed = facts.claimed_before != self.claimed.load(Ordering::SeqCst);
                Ok((claims.clone(), facts.is_early || has_claimed))
            }
            None => Ok((self.read_claims(owner, version).await?, false)),
        }
    }

    /// An owner's claims as they are stored.
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
            // One that carries the mark of deletion is as good as gone; whoever makes it again finishes the removal.
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

    /// A block as it was last seen.
    pub(crate) fn cached_block(&self, cidr: &IpNet) -> Option<Arc<KvPair>> {
        lock(&self.blocks).get(cidr).cloned()
    }

    /// Remembers what a block is, or that it is gone.
    pub(crate) fn remember_block(&self, cidr: IpNet, entry: Option<Arc<KvPair>>) {
        let Some(warm) = &self.warm else { return };
        // Only the host's own blocks: there are few of them, and hardly anybody else writes them.
        let is_ours = |entry: &Arc<KvPair>| records::block(entry).is_ok_and(|block| warm.owns(block));
        let mut blocks = lock(&self.blocks);
        match entry.filter(is_ours) {
            Some(entry) => drop(blocks.insert(cidr, entry)),
            None => drop(blocks.remove(&cidr)),
        }
    }
}

/// The lock of a plain value: whoever panicked did not leave it half changed.
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

/// Pools by name. One that makes no sense, or cannot be read, gives out nothing and is reported.
pub(crate) fn read_pools<'a>(
    items: impl IntoIterator<Item = &'a KvPair>,
    invalid: &[InvalidEntry],
) -> Vec<Pool> {
    for entry in invalid {
        tracing::error!(
            key = entry.key,
            reason = entry.reason,
            "this IP pool cannot be read and gives out nothing"
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
                tracing::error!(pool, reason, "this IP pool makes no sense and gives out nothing");
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
