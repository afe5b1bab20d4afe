//! [`Ipam`]: the operations of address management.

use crate::{
    AssignIp, Assigned, AutoAssign, EnsureBlock, Owner, OwnerCheck, OwnerUpdate, Release, Released, Result,
};
use api::AllocationAttribute;
use datastore::Backend;
use ipam_core::PoolUsage;
use ipnet::IpNet;
use jiff::Timestamp;
use model::IpamConfig;
use std::net::IpAddr;
use std::sync::Arc;

/// Address management in one datastore. Cheap to clone; clones share what is known and what is under way.
#[derive(Clone)]
pub struct Ipam {
    backend: Arc<dyn Backend>,
    clock: fn() -> Timestamp,
}

impl Ipam {
    /// For a short run: reads what it needs, when it needs it.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend, clock: Timestamp::now }
    }

    /// For a long run: pools, settings, reservations, the host's claims and its labels are followed by watches, so that an
    /// assignment reads nothing that did not change. Must be called inside a tokio runtime.
    #[must_use]
    pub fn warm(backend: Arc<dyn Backend>, host: &str) -> Self {
        let _ = host;
        Self::new(backend)
    }

    /// The same with another clock, for tests.
    #[must_use]
    pub fn with_clock(mut self, clock: fn() -> Timestamp) -> Self {
        self.clock = clock;
        self
    }

    /// Takes addresses, whichever they are. Fewer than asked for is not an error: see [`Assigned::shortfall`]. After an
    /// error nothing of this call stays taken, as far as the datastore lets us.
    ///
    /// # Errors
    /// When no pool fits, the host may not own more blocks, or the datastore fails.
    pub async fn auto_assign(&self, request: &AutoAssign) -> Result<Assigned> {
        todo!("{request:?}")
    }

    /// Takes this address.
    ///
    /// # Errors
    /// [`crate::Error::is_already_exists`] when it is taken; others when it is in no pool or in somebody else's block.
    pub async fn assign_ip(&self, request: &AssignIp) -> Result<()> {
        todo!("{request:?}")
    }

    /// Gives addresses back. Addresses of one block are released together or, when one request is based on an older state,
    /// not at all; see [`Released::failure`].
    ///
    /// # Errors
    /// When pools or settings cannot be read; then nothing was released.
    pub async fn release_ips(&self, releases: &[Release]) -> Result<Released> {
        todo!("{releases:?}")
    }

    /// Gives back all addresses of a handle.
    ///
    /// # Errors
    /// [`crate::Error::DoesNotExist`] when there is no such handle.
    pub async fn release_by_handle(&self, handle: &str) -> Result<()> {
        todo!("{handle}")
    }

    /// The addresses of a handle.
    ///
    /// # Errors
    /// [`crate::Error::DoesNotExist`] when there is no such handle.
    pub async fn ips_by_handle(&self, handle: &str) -> Result<Vec<IpAddr>> {
        todo!("{handle}")
    }

    /// Who holds an address: its handle and owner attributes. `None` when it is free or rests after its release.
    ///
    /// # Errors
    /// Those of the datastore.
    pub async fn allocation(&self, address: IpAddr) -> Result<Option<AllocationAttribute>> {
        todo!("{address}")
    }

    /// Changes who is recorded as owner of an address of a handle (KubeVirt's live migration).
    ///
    /// # Errors
    /// [`crate::Error::OwnerRefused`] when the expected owner is not the present one.
    pub async fn set_owner_attributes(
        &self,
        address: IpAddr,
        handle: &str,
        update: &OwnerUpdate,
        check: &OwnerCheck,
    ) -> Result<()> {
        todo!("{address} {handle} {update:?} {check:?}")
    }

    /// Claims all blocks of a range. Returns those that were claimed and those that somebody else has.
    ///
    /// # Errors
    /// When the range is in no pool or smaller than a block.
    pub async fn claim_affinity(&self, range: IpNet, owner: &Owner) -> Result<(Vec<IpNet>, Vec<IpNet>)> {
        todo!("{range} {owner}")
    }

    /// Gives up a host's claims on the blocks of a range.
    ///
    /// # Errors
    /// [`crate::Error::KeepRefused`] when blocks must be empty and one is not.
    pub async fn release_affinity(&self, range: IpNet, host: &str, must_be_empty: bool) -> Result<()> {
        todo!("{range} {host} {must_be_empty}")
    }

    /// Gives up the claim on exactly this block, whosever it is.
    ///
    /// # Errors
    /// [`crate::Error::KeepRefused`] when it must be empty and is not.
    pub async fn release_block_affinity(&self, block: IpNet, must_be_empty: bool) -> Result<()> {
        todo!("{block} {must_be_empty}")
    }

    /// Gives up all claims of an owner. Goes on after a failure and tells the last one.
    ///
    /// # Errors
    /// [`crate::Error::KeepRefused`] when blocks must be empty and one is not.
    pub async fn release_host_affinities(&self, owner: &Owner, must_be_empty: bool) -> Result<()> {
        todo!("{owner} {must_be_empty}")
    }

    /// Gives up all claims on the blocks of a pool.
    ///
    /// # Errors
    /// Those of the datastore.
    pub async fn release_pool_affinities(&self, pool: IpNet) -> Result<()> {
        todo!("{pool}")
    }

    /// Gives up all claims of a host and forgets the host. Its addresses stay taken.
    ///
    /// # Errors
    /// Those of the datastore.
    pub async fn remove_ipam_host(&self, host: &str) -> Result<()> {
        todo!("{host}")
    }

    /// The settings; what holds when there are none. Never writes.
    ///
    /// # Errors
    /// Those of the datastore.
    pub async fn config(&self) -> Result<IpamConfig> {
        todo!()
    }

    /// Replaces the settings.
    ///
    /// # Errors
    /// [`crate::Error::BadConfig`] when they contradict themselves.
    pub async fn set_config(&self, config: &IpamConfig) -> Result<()> {
        todo!("{config:?}")
    }

    /// How full pools are: these (by name or range), or all of them and the blocks without a pool.
    ///
    /// # Errors
    /// Those of the datastore.
    pub async fn utilization(&self, pools: &[String]) -> Result<Vec<PoolUsage>> {
        todo!("{pools:?}")
    }

    /// Has a block of each IP version that is asked for, claiming one where the host has none. Returns the IPv4 and the
    /// IPv6 block.
    ///
    /// # Errors
    /// As [`Ipam::auto_assign`].
    pub async fn ensure_block(&self, request: &EnsureBlock) -> Result<(Option<IpNet>, Option<IpNet>)> {
        todo!("{request:?}")
    }

    /// Brings the host's claims into the form of this version (Kubernetes: labels on BlockAffinity objects).
    ///
    /// # Errors
    /// Those of the datastore.
    pub async fn upgrade_host(&self, host: &str) -> Result<()> {
        todo!("{host}")
    }

    /// Frees addresses of a block that have rested for the whole cool-down. Returns whether there were any.
    ///
    /// # Errors
    /// Those of the datastore, a conflict among them: the block will be looked at again.
    pub async fn collect_rested(&self, block: IpNet) -> Result<bool> {
        todo!("{block}")
    }
}

impl std::fmt::Debug for Ipam {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ipam").field("kubernetes", &self.backend.is_kubernetes()).finish_non_exhaustive()
    }
}
