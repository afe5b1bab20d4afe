//! Claims of whole hosts, pools and ranges; settings; utilisation.

use crate::claims::{Claims, Secured};
use crate::error::{Error, Result, TOO_MANY_ATTEMPTS};
use crate::records::{self, block_key, claimed};
use crate::store::{IpamStore, claims_of};
use api::Kind;
use ipam_core::claim::KeepRefused;
use ipam_core::pools::{self, Pool};
use ipam_core::retry::ATTEMPTS;
use ipam_core::settings;
use ipam_core::{Block, Owner, PoolUsage, utilisation};
use ipnet::IpNet;
use model::{AffinityType, IpVersion, IpamConfig, Key, KvPair, ListOptions, Value};
use std::collections::BTreeSet;

/// Claims of whole hosts, pools and ranges; settings; utilisation.
#[derive(Clone, Copy)]
pub(crate) struct Upkeep<'a>(pub(crate) &'a IpamStore);

impl Upkeep<'_> {
    pub(crate) async fn claim_affinity(
        &self,
        range: IpNet,
        owner: &Owner,
    ) -> Result<(Vec<IpNet>, Vec<IpNet>)> {
        let (mut ours, mut others) = (Vec::new(), Vec::new());
        for cidr in self.blocks_in(range).await? {
            match Claims(self.0).secure(cidr, owner, None, None, None).await? {
                Secured::Ours { .. } => ours.push(cidr),
                Secured::Lost => others.push(cidr),
            }
        }
        Ok((ours, others))
    }

    pub(crate) async fn release_affinity(&self, range: IpNet, host: &str, must_be_empty: bool) -> Result<()> {
        let owner = Owner { affinity_type: AffinityType::Host, host: host.to_owned() };
        let blocks = self.blocks_in(range).await?;
        let config = self.0.read_settings().await?.config;
        for cidr in blocks {
            ignoring_strangers(Claims(self.0).give_up(cidr, &owner, must_be_empty, None, &config).await)?;
        }
        Ok(())
    }

    /// The blocks of a range, according to the pool that contains it.
    async fn blocks_in(&self, range: IpNet) -> Result<impl Iterator<Item = IpNet> + use<>> {
        let all = self.0.pools().await?;
        let enabled = all.iter().filter(|pool| pool.is_enabled);
        let pool = pools::containing(enabled, range.network()).ok_or(Error::RangeNotInPool(range))?;
        range.trunc().subnets(pool.block_size).map_err(|_| Error::RangeTooSmall(range))
    }

    pub(crate) async fn release_block_affinity(&self, cidr: IpNet, must_be_empty: bool) -> Result<()> {
        let Some(entry) = self.0.read(&block_key(cidr)).await? else { return Ok(()) };
        let Some(owner) = Block::new(records::block(&entry)?).owner() else { return Ok(()) };
        let config = self.0.settings_or_defaults().await?.config;
        ignoring_strangers(Claims(self.0).give_up(cidr, &owner, must_be_empty, None, &config).await)
    }

    pub(crate) async fn release_host_affinities(&self, owner: &Owner, must_be_empty: bool) -> Result<()> {
        let config = self.0.settings_or_defaults().await?.config;
        let mut failure = None;
        for version in [IpVersion::V4, IpVersion::V6] {
            for claim in self.0.read_claims(owner, version).await? {
                let Some(cidr) = claimed(&claim) else { continue };
                let outcome = Claims(self.0).give_up(cidr, owner, must_be_empty, None, &config).await;
                if let Err(error) = ignoring_strangers(outcome) {
                    tracing::warn!(%cidr, %owner, %error, "a block was not given up");
                    failure = Some(error);
                }
            }
        }
        failure.map_or(Ok(()), Err)
    }

    pub(crate) async fn release_pool_affinities(&self, pool: IpNet) -> Result<()> {
        let config = self.0.read_settings().await?.config;
        for attempt in 0..ATTEMPTS {
            self.0.wait_before(attempt).await;
            let mut is_done = true;
            // On Kubernetes types are labels, which claims of old releases lack; in etcd each type has its own prefix.
            let types = match self.0.backend.is_kubernetes() {
                true => vec![None],
                false => vec![Some(AffinityType::Host), Some(AffinityType::Virtual)],
            };
            for affinity_type in types {
                let list = ListOptions::BlockAffinity {
                    host: None,
                    affinity_type,
                    ip_version: affinity_type.map(|_| IpVersion::of(&pool)),
                };
                for claim in self.0.backend.list(&list, None).await?.items {
                    let Key::BlockAffinity(key) = &claim.key else { continue };
                    if !pool.contains(&key.cidr.network()) {
                        continue;
                    }
                    let owner = Owner { affinity_type: key.affinity_type, host: key.host.clone() };
                    match Claims(self.0).give_up(key.cidr, &owner, false, None, &config).await {
                        // Another host has it; the next list will include that claim.
                        Err(Error::KeepRefused(KeepRefused::Claimed { .. })) => is_done = false,
                        outcome => ignoring_strangers(outcome)?,
                    }
                }
            }
            if is_done {
                return Ok(());
            }
        }
        Err(TOO_MANY_ATTEMPTS)
    }

    pub(crate) async fn remove_ipam_host(&self, host: &str) -> Result<()> {
        let owner = Owner { affinity_type: AffinityType::Host, host: host.to_owned() };
        for attempt in 0..ATTEMPTS {
            self.0.wait_before(attempt).await;
            self.release_host_affinities(&owner, false).await?;
            let key = Key::IpamHost { host: host.to_owned() };
            let entry = match self.0.backend.get(&key, None).await {
                Ok(entry) => entry,
                // Kubernetes has no such record.
                Err(datastore::Error::NotSupported { .. }) => return Ok(()),
                Err(error) if error.is_does_not_exist() => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            match self.0.backend.delete(&key, Some(&entry.revision)).await {
                Err(error) if error.is_conflict() => {}
                Err(error) if !error.is_does_not_exist() => return Err(error.into()),
                _ => return Ok(()),
            }
        }
        Err(Error::TooManyAttempts("Max retries hit"))
    }

    /// Adds the labels by which claims are listed to claims of very old releases; Kubernetes only.
    pub(crate) async fn upgrade_host(&self, host: &str) -> Result<()> {
        if !self.0.backend.is_kubernetes() {
            return Ok(());
        }
        let every = ListOptions::BlockAffinity { host: None, affinity_type: None, ip_version: None };
        let mut claims = self.0.backend.list(&every, None).await?.items;
        claims.retain(|entry| matches!(&entry.key, Key::BlockAffinity(claim) if claim.host == host));
        if claims.is_empty() {
            return Ok(());
        }
        let mut labelled = BTreeSet::new();
        for affinity_type in [AffinityType::Host, AffinityType::Virtual] {
            let owner = Owner { affinity_type, host: host.to_owned() };
            for version in [IpVersion::V4, IpVersion::V6] {
                let found = self.0.backend.list(&claims_of(&owner, Some(version)), None).await?;
                labelled.extend(found.items.into_iter().map(|entry| entry.key));
            }
        }
        let mut failure = None;
        for entry in claims.iter().filter(|entry| !labelled.contains(&entry.key)) {
            // The labels belong to the form in which this version writes claims.
            match self.0.backend.update(entry).await {
                Ok(_) => tracing::info!(key = %entry.key, "labels added to a claim on a block"),
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or(Ok(()), |error| Err(error.into()))
    }

    pub(crate) async fn set_config(&self, config: &IpamConfig) -> Result<()> {
        settings::check(config).map_err(Error::BadConfig)?;
        for attempt in 0..ATTEMPTS {
            self.0.wait_before(attempt).await;
            let entry = self.0.read(&Key::IpamConfig).await?;
            let outcome = match entry {
                Some(entry) if entry.value == Value::IpamConfig(config.clone()) => return Ok(()),
                Some(entry) => {
                    let changed = KvPair { value: Value::IpamConfig(config.clone()), ..entry };
                    self.0.backend.update(&changed).await
                }
                None if *config == settings::default_config() => return Ok(()),
                None => {
                    let new = KvPair::new(Key::IpamConfig, Value::IpamConfig(config.clone()));
                    self.0.backend.create(&new).await
                }
            };
            match outcome {
                Err(error) if crate::handles::is_lost(&error) => {}
                outcome => return outcome.map(|_| ()).map_err(Error::from),
            }
        }
        Err(TOO_MANY_ATTEMPTS)
    }

    pub(crate) async fn utilization(&self, wanted: &[String]) -> Result<Vec<PoolUsage>> {
        let list = ListOptions::resources(Kind::IPPool);
        let (found, reserved, blocks) =
            futures::join!(self.0.backend.list(&list, None), self.0.reservations(), self.0.all_blocks(None));
        let (found, reserved, blocks) = (found?, reserved?, blocks?);
        if let Some(entry) = found.invalid.first() {
            let (key, reason) = (entry.key.clone(), entry.reason.clone());
            return Err(Error::Unreadable { what: "an IP pool", key, reason });
        }
        let is_wanted = |pool: &Pool| {
            wanted.is_empty()
                || wanted.iter().any(|text| *text == pool.name || *text == pool.cidr.to_string())
        };
        let pools = crate::store::read_pools(&found.items, &[]);
        let pools: Vec<(String, IpNet)> =
            pools.into_iter().filter(is_wanted).map(|pool| (pool.name, pool.cidr)).collect();
        let mut usage = utilisation(&pools, blocks.readable().map(|(_, block)| block), &reserved);
        if !wanted.is_empty() {
            usage.retain(|pool| pool.cidr.is_some());
        }
        Ok(usage)
    }
}

/// Ignores that a block belongs to another owner or does not exist: then it need not be given up.
fn ignoring_strangers(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(Error::KeepRefused(KeepRefused::Claimed { .. }) | Error::DoesNotExist { .. }) => Ok(()),
        outcome => outcome,
    }
}
