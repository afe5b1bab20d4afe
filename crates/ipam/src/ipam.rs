//! [`Ipam`]: the operations of address management.
//!
//! Their futures are boxed: an async function is compiled again into every crate that awaits it, with all that it awaits.

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
use futures::FutureExt as _;
use futures::future::BoxFuture;
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
    pub fn auto_assign<'a>(&'a self, request: &'a AutoAssign) -> BoxFuture<'a, Result<Assigned>> {
        async move { AnyAddress(&self.store).auto_assign(request, None).await }.boxed()
    }

    /// Reads what an assignment for a workload of this host will be decided from, so that a short-lived process can read
    /// it together with other things. Costs nothing where it is known already ([`Ipam::warm`]).
    ///
    /// # Errors
    /// Those of the datastore. An assignment without it reads for itself.
    pub fn look_ahead<'a>(
        &'a self,
        host: &'a str,
        versions: &'a [IpVersion],
    ) -> BoxFuture<'a, Result<Ahead>> {
        async move {
            let owner = IntendedUse::Workload.owner(host);
            Ok(Ahead(self.store.facts(&owner, versions).await?.early()))
        }
        .boxed()
    }

    /// As [`Ipam::auto_assign`], from what was read ahead. Who else has claimed blocks since then is found out before
    /// another one is claimed, and settings that changed since then are found out by the write.
    ///
    /// # Errors
    /// As [`Ipam::auto_assign`].
    pub fn auto_assign_after<'a>(
        &'a self,
        ahead: Option<Ahead>,
        request: &'a AutoAssign,
    ) -> BoxFuture<'a, Result<Assigned>> {
        async move { AnyAddress(&self.store).auto_assign(request, ahead.map(|Ahead(facts)| facts)).await }
            .boxed()
    }

    /// Takes this address.
    ///
    /// # Errors
    /// [`crate::Error::is_already_exists`] when it is taken; others when it is in no pool or in somebody else's block.
    pub fn assign_ip<'a>(&'a self, request: &'a AssignIp) -> BoxFuture<'a, Result<()>> {
        async move { OneAddress(&self.store).assign_ip(request).await }.boxed()
    }

    /// Gives addresses back. Addresses of one block are released together or, when one request is based on an older state,
    /// not at all; see [`Released::failure`].
    ///
    /// # Errors
    /// When pools or settings cannot be read; then nothing was released.
    pub fn release_ips<'a>(&'a self, releases: &'a [Release]) -> BoxFuture<'a, Result<Released>> {
        async move { Releases(&self.store).release_ips(releases).await }.boxed()
    }

    /// Gives back all addresses of a handle.
    ///
    /// # Errors
    /// [`crate::Error::DoesNotExist`] when there is no such handle.
    pub fn release_by_handle<'a>(&'a self, handle: &'a HandleId) -> BoxFuture<'a, Result<()>> {
        async move { Releases(&self.store).release_by_handle(handle).await }.boxed()
    }

    /// The addresses of a handle.
    ///
    /// # Errors
    /// [`crate::Error::DoesNotExist`] when there is no such handle.
    pub fn ips_by_handle<'a>(&'a self, handle: &'a HandleId) -> BoxFuture<'a, Result<Vec<IpAddr>>> {
        async move { Releases(&self.store).ips_by_handle(handle).await }.boxed()
    }

    /// Who holds an address: its handle and owner attributes. `None` when it is free or rests after its release.
    ///
    /// # Errors
    /// Those of the datastore.
    pub fn allocation<'a>(&'a self, address: IpAddr) -> BoxFuture<'a, Result<Option<AllocationAttribute>>> {
        async move { Releases(&self.store).allocation(address).await }.boxed()
    }

    /// Changes who is recorded as owner of an address of a handle (KubeVirt's live migration).
    ///
    /// # Errors
    /// [`crate::Error::OwnerRefused`] when the expected owner is not the present one.
    pub fn set_owner_attributes<'a>(
        &'a self,
        address: IpAddr,
        handle: &'a HandleId,
        update: &'a OwnerUpdate,
        check: &'a OwnerCheck,
    ) -> BoxFuture<'a, Result<()>> {
        async move { OneAddress(&self.store).set_owner_attributes(address, handle, update, check).await }
            .boxed()
    }

    /// Claims all blocks of a range. Returns those that were claimed and those that somebody else has.
    ///
    /// # Errors
    /// When the range is in no pool or smaller than a block.
    pub fn claim_affinity<'a>(
        &'a self,
        range: IpNet,
        owner: &'a Owner,
    ) -> BoxFuture<'a, Result<(Vec<IpNet>, Vec<IpNet>)>> {
        async move { Upkeep(&self.store).claim_affinity(range, owner).await }.boxed()
    }

    /// Gives up a host's claims on the blocks of a range.
    ///
    /// # Errors
    /// [`crate::Error::KeepRefused`] when blocks must be empty and one is not.
    pub fn release_affinity<'a>(
        &'a self,
        range: IpNet,
        host: &'a str,
        must_be_empty: bool,
    ) -> BoxFuture<'a, Result<()>> {
        async move { Upkeep(&self.store).release_affinity(range, host, must_be_empty).await }.boxed()
    }

    /// Gives up the claim on exactly this block, whosever it is.
    ///
    /// # Errors
    /// [`crate::Error::KeepRefused`] when it must be empty and is not.
    pub fn release_block_affinity<'a>(
        &'a self,
        block: IpNet,
        must_be_empty: bool,
    ) -> BoxFuture<'a, Result<()>> {
        async move { Upkeep(&self.store).release_block_affinity(block, must_be_empty).await }.boxed()
    }

    /// Gives up all claims of an owner. Goes on after a failure and tells the last one.
    ///
    /// # Errors
    /// [`crate::Error::KeepRefused`] when blocks must be empty and one is not.
    pub fn release_host_affinities<'a>(
        &'a self,
        owner: &'a Owner,
        must_be_empty: bool,
    ) -> BoxFuture<'a, Result<()>> {
        async move { Upkeep(&self.store).release_host_affinities(owner, must_be_empty).await }.boxed()
    }

    /// Gives up all claims on the blocks of a pool.
    ///
    /// # Errors
    /// Those of the datastore.
    pub fn release_pool_affinities<'a>(&'a self, pool: IpNet) -> BoxFuture<'a, Result<()>> {
        async move { Upkeep(&self.store).release_pool_affinities(pool).await }.boxed()
    }

    /// Gives up all claims of a host and forgets the host. Its addresses stay taken.
    ///
    /// # Errors
    /// Those of the datastore.
    pub fn remove_ipam_host<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<()>> {
        async move { Upkeep(&self.store).remove_ipam_host(host).await }.boxed()
    }

    /// The settings; what holds when there are none. Never writes.
    ///
    /// # Errors
    /// Those of the datastore.
    pub fn config<'a>(&'a self) -> BoxFuture<'a, Result<IpamConfig>> {
        async move { Ok(self.store.read_settings().await?.config) }.boxed()
    }

    /// Replaces the settings.
    ///
    /// # Errors
    /// [`crate::Error::BadConfig`] when they contradict themselves.
    pub fn set_config<'a>(&'a self, config: &'a IpamConfig) -> BoxFuture<'a, Result<()>> {
        async move { Upkeep(&self.store).set_config(config).await }.boxed()
    }

    /// How full pools are: these (by name or range), or all of them and the blocks without a pool.
    ///
    /// # Errors
    /// Those of the datastore.
    pub fn utilization<'a>(&'a self, pools: &'a [String]) -> BoxFuture<'a, Result<Vec<PoolUsage>>> {
        async move { Upkeep(&self.store).utilization(pools).await }.boxed()
    }

    /// Has a block of each IP version that is asked for, claiming one where the host has none. Returns the IPv4 and the
    /// IPv6 block.
    ///
    /// # Errors
    /// As [`Ipam::auto_assign`].
    pub fn ensure_block<'a>(
        &'a self,
        request: &'a EnsureBlock,
    ) -> BoxFuture<'a, Result<(Option<IpNet>, Option<IpNet>)>> {
        async move { AnyAddress(&self.store).ensure_block(request).await }.boxed()
    }

    /// Brings the host's claims into the form of this version (Kubernetes: labels on BlockAffinity objects).
    ///
    /// # Errors
    /// Those of the datastore.
    pub fn upgrade_host<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<()>> {
        async move { Upkeep(&self.store).upgrade_host(host).await }.boxed()
    }

    /// Frees addresses of a block that have rested for the whole cool-down. Returns whether there were any.
    ///
    /// # Errors
    /// Those of the datastore, a conflict among them: the block will be looked at again.
    pub fn collect_rested<'a>(&'a self, block: IpNet) -> BoxFuture<'a, Result<bool>> {
        async move { Releases(&self.store).collect_rested(block).await }.boxed()
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
