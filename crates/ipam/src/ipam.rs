//! [`Ipam`]: the operations of address management.

use crate::auto::AnyAddress;
use crate::clock::{Clock, SystemClock};
use crate::release::Releases;
use crate::specific::OneAddress;
use crate::store::{Facts, IpamStore};
use crate::upkeep::Upkeep;
use crate::warm::Warm;
use crate::{
    AssignIp, Assigned, AutoAssign, EnsureBlock, Owner, OwnerCheck, OwnerUpdate, Release, Released, Result,
};
use api::AllocationAttribute;
use datastore::Backend;
use ipam_core::{IntendedUse, PoolUsage};
use ipnet::IpNet;
use model::{HandleId, IpVersion, IpamConfig};
use std::net::IpAddr;
use std::sync::Arc;

/// What an assignment is decided from, read ahead of it: settings, pools, reservations, the node's labels and its claims.
#[derive(Clone, Debug)]
pub struct Ahead(Facts);

/// Address management in one datastore. Cheap to clone; clones share what is known and what is under way.
#[derive(Clone)]
pub struct Ipam {
    store: Arc<IpamStore>,
}

impl Ipam {
    /// For a short run: reads what it needs, when it needs it.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Self::with_clock(backend, Arc::new(SystemClock))
    }

    /// The same with another clock, for tests.
    #[must_use]
    pub fn with_clock(backend: Arc<dyn Backend>, clock: Arc<dyn Clock>) -> Self {
        Self { store: Arc::new(IpamStore::new(backend, clock, None)) }
    }

    /// For a long run: pools, reservations, the host's claims and its labels are followed by watches, so that an
    /// assignment reads nothing that did not change. Must be called inside a tokio runtime; the watches end with the last
    /// clone.
    #[must_use]
    pub fn warm(backend: Arc<dyn Backend>, host: &str) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let warm = Warm::start(&backend, host);
        Self { store: Arc::new(IpamStore::new(backend, clock, Some(warm))) }
    }

    /// Takes addresses, whichever they are. Fewer than asked for is not an error: see [`Assigned::shortfall`]. After an
    /// error nothing of this call stays taken, as far as the datastore lets us.
    ///
    /// # Errors
    /// When no pool fits, the host may not own more blocks, or the datastore fails.
    pub async fn auto_assign(&self, request: &AutoAssign) -> Result<Assigned> {
        AnyAddress(&self.store).auto_assign(request, None).await
    }

    /// Reads what an assignment for a workload of this host will be decided from, so that a short-lived process can read
    /// it together with other things. Costs nothing where it is known already ([`Ipam::warm`]).
    ///
    /// # Errors
    /// Those of the datastore. An assignment without it reads for itself.
    pub async fn look_ahead(&self, host: &str, versions: &[IpVersion]) -> Result<Ahead> {
        let owner = IntendedUse::Workload.owner(host);
        Ok(Ahead(self.store.facts(&owner, versions).await?.early()))
    }

    /// As [`Ipam::auto_assign`], from what was read ahead. Who else has claimed blocks since then is found out before
    /// another one is claimed, and settings that changed since then are found out by the write.
    ///
    /// # Errors
    /// As [`Ipam::auto_assign`].
    pub async fn auto_assign_after(&self, ahead: Option<Ahead>, request: &AutoAssign) -> Result<Assigned> {
        AnyAddress(&self.store).auto_assign(request, ahead.map(|Ahead(facts)| facts)).await
    }

    /// Takes this address.
    ///
    /// # Errors
    /// [`crate::Error::is_already_exists`] when it is taken; others when it is in no pool or in somebody else's block.
    pub async fn assign_ip(&self, request: &AssignIp) -> Result<()> {
        OneAddress(&self.store).assign_ip(request).await
    }

    /// Gives addresses back. Addresses of one block are released together or, when one request is based on an older state,
    /// not at all; see [`Released::failure`].
    ///
    /// # Errors
    /// When pools or settings cannot be read; then nothing was released.
    pub async fn release_ips(&self, releases: &[Release]) -> Result<Released> {
        Releases(&self.store).release_ips(releases).await
    }

    /// Gives back all addresses of a handle.
    ///
    /// # Errors
    /// [`crate::Error::DoesNotExist`] when there is no such handle.
    pub async fn release_by_handle(&self, handle: &HandleId) -> Result<()> {
        Releases(&self.store).release_by_handle(handle).await
    }

    /// The addresses of a handle.
    ///
    /// # Errors
    /// [`crate::Error::DoesNotExist`] when there is no such handle.
    pub async fn ips_by_handle(&self, handle: &HandleId) -> Result<Vec<IpAddr>> {
        Releases(&self.store).ips_by_handle(handle).await
    }

    /// Who holds an address: its handle and owner attributes. `None` when it is free or rests after its release.
    ///
    /// # Errors
    /// Those of the datastore.
    pub async fn allocation(&self, address: IpAddr) -> Result<Option<AllocationAttribute>> {
        Releases(&self.store).allocation(address).await
    }

    /// Changes who is recorded as owner of an address of a handle (KubeVirt's live migration).
    ///
    /// # Errors
    /// [`crate::Error::OwnerRefused`] when the expected owner is not the present one.
    pub async fn set_owner_attributes(
        &self,
        address: IpAddr,
        handle: &HandleId,
        update: &OwnerUpdate,
        check: &OwnerCheck,
    ) -> Result<()> {
        OneAddress(&self.store).set_owner_attributes(address, handle, update, check).await
    }

    /// Claims all blocks of a range. Returns those that were claimed and those that somebody else has.
    ///
    /// # Errors
    /// When the range is in no pool or smaller than a block.
    pub async fn claim_affinity(&self, range: IpNet, owner: &Owner) -> Result<(Vec<IpNet>, Vec<IpNet>)> {
        Upkeep(&self.store).claim_affinity(range, owner).await
    }

    /// Gives up a host's claims on the blocks of a range.
    ///
    /// # Errors
    /// [`crate::Error::KeepRefused`] when blocks must be empty and one is not.
    pub async fn release_affinity(&self, range: IpNet, host: &str, must_be_empty: bool) -> Result<()> {
        Upkeep(&self.store).release_affinity(range, host, must_be_empty).await
    }

    /// Gives up the claim on exactly this block, whosever it is.
    ///
    /// # Errors
    /// [`crate::Error::KeepRefused`] when it must be empty and is not.
    pub async fn release_block_affinity(&self, block: IpNet, must_be_empty: bool) -> Result<()> {
        Upkeep(&self.store).release_block_affinity(block, must_be_empty).await
    }

    /// Gives up all claims of an owner. Goes on after a failure and tells the last one.
    ///
    /// # Errors
    /// [`crate::Error::KeepRefused`] when blocks must be empty and one is not.
    pub async fn release_host_affinities(&self, owner: &Owner, must_be_empty: bool) -> Result<()> {
        Upkeep(&self.store).release_host_affinities(owner, must_be_empty).await
    }

    /// Gives up all claims on the blocks of a pool.
    ///
    /// # Errors
    /// Those of the datastore.
    pub async fn release_pool_affinities(&self, pool: IpNet) -> Result<()> {
        Upkeep(&self.store).release_pool_affinities(pool).await
    }

    /// Gives up all claims of a host and forgets the host. Its addresses stay taken.
    ///
    /// # Errors
    /// Those of the datastore.
    pub async fn remove_ipam_host(&self, host: &str) -> Result<()> {
        Upkeep(&self.store).remove_ipam_host(host).await
    }

    /// The settings; what holds when there are none. Never writes.
    ///
    /// # Errors
    /// Those of the datastore.
    pub async fn config(&self) -> Result<IpamConfig> {
        Ok(self.store.read_settings().await?.config)
    }

    /// Replaces the settings.
    ///
    /// # Errors
    /// [`crate::Error::BadConfig`] when they contradict themselves.
    pub async fn set_config(&self, config: &IpamConfig) -> Result<()> {
        Upkeep(&self.store).set_config(config).await
    }

    /// How full pools are: these (by name or range), or all of them and the blocks without a pool.
    ///
    /// # Errors
    /// Those of the datastore.
    pub async fn utilization(&self, pools: &[String]) -> Result<Vec<PoolUsage>> {
        Upkeep(&self.store).utilization(pools).await
    }

    /// Has a block of each IP version that is asked for, claiming one where the host has none. Returns the IPv4 and the
    /// IPv6 block.
    ///
    /// # Errors
    /// As [`Ipam::auto_assign`].
    pub async fn ensure_block(&self, request: &EnsureBlock) -> Result<(Option<IpNet>, Option<IpNet>)> {
        AnyAddress(&self.store).ensure_block(request).await
    }

    /// Brings the host's claims into the form of this version (Kubernetes: labels on BlockAffinity objects).
    ///
    /// # Errors
    /// Those of the datastore.
    pub async fn upgrade_host(&self, host: &str) -> Result<()> {
        Upkeep(&self.store).upgrade_host(host).await
    }

    /// Frees addresses of a block that have rested for the whole cool-down. Returns whether there were any.
    ///
    /// # Errors
    /// Those of the datastore, a conflict among them: the block will be looked at again.
    pub async fn collect_rested(&self, block: IpNet) -> Result<bool> {
        Releases(&self.store).collect_rested(block).await
    }
}

impl std::fmt::Debug for Ipam {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ipam")
            .field("kubernetes", &self.store.backend.is_kubernetes())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Callers run these on other threads; a future that cannot go there would be found out by them, far away.
    fn assert_send(ipam: &Ipam, auto: &AutoAssign, named: &AssignIp, block: &EnsureBlock, owner: &Owner) {
        fn is_send<T: Send>(_: T) {}
        is_send(ipam.auto_assign(auto));
        is_send(ipam.assign_ip(named));
        is_send(ipam.release_ips(&[]));
        is_send(ipam.release_by_handle(&"".into()));
        is_send(ipam.ips_by_handle(&"".into()));
        is_send(ipam.ensure_block(block));
        is_send(ipam.release_host_affinities(owner, true));
        is_send(ipam.utilization(&[]));
    }

    #[test]
    fn futures_can_go_to_other_threads() {
        // Compiling is the test.
        let _ = assert_send;
    }
}
