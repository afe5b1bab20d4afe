//! [`Ipam`]: the operations of address management.
//!
//! Their futures are boxed: an async function is compiled again in every crate that awaits it, with everything it
//! awaits.

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

/// The facts that an assignment is based on, read in advance: settings, pools, reservations, the node's labels and its
/// claims.
#[derive(Clone, Debug)]
pub struct Ahead(Facts);

/// Address management in one datastore. Cheap to clone; clones share caches and ongoing operations.
#[derive(Clone)]
pub struct Ipam {
    store: Arc<IpamStore>,
}

impl Ipam {
    /// For short-lived processes: reads data when it is needed.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Self::with_clock(backend, Arc::new(SystemClock))
    }

    /// Creates address management with another clock, for tests.
    #[must_use]
    pub fn with_clock(backend: Arc<dyn Backend>, clock: Arc<dyn Clock>) -> Self {
        Self { store: Arc::new(IpamStore::new(backend, clock, None)) }
    }

    /// For long-lived processes: pools, reservations, the host's claims and its labels are watched, so that an
    /// assignment reads only what has changed. Must be called inside a tokio runtime; the watches end with the last
    /// clone.
    #[must_use]
    pub fn warm(backend: Arc<dyn Backend>, host: &str) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let warm = Warm::start(&backend, host);
        Self { store: Arc::new(IpamStore::new(backend, clock, Some(warm))) }
    }

    /// Takes any addresses. Fewer than requested is not an error: see [`Assigned::shortfall`]. After an error nothing
    /// of this call stays taken, unless the datastore fails here, too.
    ///
    /// # Errors
    /// When no pool fits, the host may not own more blocks, or the datastore fails.
    pub fn auto_assign<'a>(&'a self, request: &'a AutoAssign) -> BoxFuture<'a, Result<Assigned>> {
        async move { AnyAddress(&self.store).auto_assign(request, None).await }.boxed()
    }

    /// Reads the facts for an assignment to a workload of this host, so that a short-lived process can read them
    /// concurrently with other things. Costs nothing where they are already known ([`Ipam::warm`]).
    ///
    /// # Errors
    /// Errors of the datastore. An assignment without these facts reads them itself.
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

    /// Like [`Ipam::auto_assign`], based on facts that were read in advance. Blocks that other processes have claimed
    /// since then are noticed before another one is claimed, and settings that have changed are noticed by the write.
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
    /// [`crate::Error::is_already_exists`] when it is taken; others when it is in no pool or in another owner's block.
    pub fn assign_ip<'a>(&'a self, request: &'a AssignIp) -> BoxFuture<'a, Result<()>> {
        async move { OneAddress(&self.store).assign_ip(request).await }.boxed()
    }

    /// Gives addresses back. Addresses of one block are released together or, when one request is based on an outdated
    /// state, not at all; see [`Released::failure`].
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

    /// The holder of an address: its handle and owner attributes. `None` when it is free or resting after its release.
    ///
    /// # Errors
    /// Errors of the datastore.
    pub fn allocation<'a>(&'a self, address: IpAddr) -> BoxFuture<'a, Result<Option<AllocationAttribute>>> {
        async move { Releases(&self.store).allocation(address).await }.boxed()
    }

    /// Changes the recorded owner of an address of a handle (KubeVirt's live migration).
    ///
    /// # Errors
    /// [`crate::Error::OwnerRefused`] when the expected owner is not the current one.
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

    /// Claims all blocks of a range. Returns the blocks that were claimed and those that belong to others.
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

    /// Gives up the claim on exactly this block, whoever the owner is.
    ///
    /// # Errors
    /// [`crate::Error::KeepRefused`] when the block must be empty and is not.
    pub fn release_block_affinity<'a>(
        &'a self,
        block: IpNet,
        must_be_empty: bool,
    ) -> BoxFuture<'a, Result<()>> {
        async move { Upkeep(&self.store).release_block_affinity(block, must_be_empty).await }.boxed()
    }

    /// Gives up all claims of an owner. Continues after a failure and returns the last one.
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
    /// Errors of the datastore.
    pub fn release_pool_affinities<'a>(&'a self, pool: IpNet) -> BoxFuture<'a, Result<()>> {
        async move { Upkeep(&self.store).release_pool_affinities(pool).await }.boxed()
    }

    /// Gives up all claims of a host and forgets the host. Its addresses stay taken.
    ///
    /// # Errors
    /// Errors of the datastore.
    pub fn remove_ipam_host<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<()>> {
        async move { Upkeep(&self.store).remove_ipam_host(host).await }.boxed()
    }

    /// The settings, or the defaults if none are stored. Never writes.
    ///
    /// # Errors
    /// Errors of the datastore.
    pub fn config<'a>(&'a self) -> BoxFuture<'a, Result<IpamConfig>> {
        async move { Ok(self.store.read_settings().await?.config) }.boxed()
    }

    /// Replaces the settings.
    ///
    /// # Errors
    /// [`crate::Error::BadConfig`] when they contradict each other.
    pub fn set_config<'a>(&'a self, config: &'a IpamConfig) -> BoxFuture<'a, Result<()>> {
        async move { Upkeep(&self.store).set_config(config).await }.boxed()
    }

    /// The utilisation of pools: these (by name or range), or all of them and the blocks without a pool.
    ///
    /// # Errors
    /// Errors of the datastore.
    pub fn utilization<'a>(&'a self, pools: &'a [String]) -> BoxFuture<'a, Result<Vec<PoolUsage>>> {
        async move { Upkeep(&self.store).utilization(pools).await }.boxed()
    }

    /// Ensures that the host has a block of each requested IP version, claiming one if necessary. Returns the IPv4 and
    /// the IPv6 block.
    ///
    /// # Errors
    /// Like [`Ipam::auto_assign`].
    pub fn ensure_block<'a>(
        &'a self,
        request: &'a EnsureBlock,
    ) -> BoxFuture<'a, Result<(Option<IpNet>, Option<IpNet>)>> {
        async move { AnyAddress(&self.store).ensure_block(request).await }.boxed()
    }

    /// Converts the host's claims to the form of this version (Kubernetes: labels on BlockAffinity objects).
    ///
    /// # Errors
    /// Errors of the datastore.
    pub fn upgrade_host<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<()>> {
        async move { Upkeep(&self.store).upgrade_host(host).await }.boxed()
    }

    /// Frees addresses of a block that have rested for the whole cool-down. Returns whether there were any.
    ///
    /// # Errors
    /// Errors of the datastore, including a conflict: the block will be checked again.
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

    /// Callers run these on other threads; without this check a future that is not `Send` would only be noticed there.
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
    fn futures_are_send() {
        // Compiling is the test.
        let _ = assert_send;
    }
}
