//! Takes a specific address, and changes the recorded owner of an address.

use crate::auto::AnyAddress;
use crate::claims::{Claims, Secured};
use crate::commit::{BlockWrite, BlockWriter, Committed};
use crate::error::{Error, Result, TOO_MANY_ATTEMPTS};
use crate::handles::{HandleCounts, Handles};
use crate::records::{self, block_key, handle_key, with_block};
use crate::release::Releases;
use crate::request::AssignIp;
use crate::store::{IpamStore, Settings};
use api::BlockAffinityState;
use ipam_core::assignment::{Attempt, Job};
use ipam_core::block::advance;
use ipam_core::handle;
use ipam_core::retry::{ATTEMPTS, is_repair_due};
use ipam_core::{
    Block, Holder, IntendedUse, Owner, OwnerCheck, OwnerUpdate, TakeRefused, cooldown, owner, pools, take,
};
use ipnet::IpNet;
use model::{HandleId, IpVersion, KvPair};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Requests for specific addresses.
#[derive(Clone, Copy)]
pub(crate) struct OneAddress<'a>(pub(crate) &'a IpamStore);

impl OneAddress<'_> {
    pub(crate) async fn assign_ip(&self, request: &AssignIp) -> Result<()> {
        let address = request.address;
        let owner = request.intended_use.unwrap_or(IntendedUse::Workload).owner(&request.host);
        let (settings, all) = futures::join!(self.0.read_settings(), self.0.pools());
        let (settings, all) = (settings?, all?);
        let pool = pools::containing(all.iter().filter(|pool| pool.is_enabled), address)
            .ok_or(Error::NotInPool(address))?;
        if let Some(intended_use) = request.intended_use.filter(|wanted| !pool.allows(*wanted)) {
            let allowed: Vec<&str> = pool.allowed_uses.iter().map(api::IPPoolAllowedUse::as_str).collect();
            let (pool, allowed) = (pool.name.clone(), allowed.join(" "));
            return Err(Error::UseNotAllowed { address, pool, intended_use, allowed });
        }
        let cidr = pool.block_of(address).ok_or(Error::NotInPool(address))?;
        let mut handles = Handles::default();
        let outcome = self.take_named(request, &owner, cidr, &settings, &mut handles).await;
        HandleCounts(self.0).settle(&mut handles).await;
        outcome
    }

    async fn take_named(
        &self,
        request: &AssignIp,
        owner: &Owner,
        cidr: IpNet,
        settings: &Settings,
        handles: &mut Handles,
    ) -> Result<()> {
        let holder = Holder { handle: request.handle.clone(), attributes: request.attributes.clone() };
        let counts: BTreeMap<HandleId, i64> =
            request.handle.iter().map(|handle| (handle.clone(), 1)).collect();
        let mut known = None;
        for attempt in 0..ATTEMPTS {
            self.0.wait_before(attempt).await;
            if self.has_already(request, handles, attempt).await? {
                return Ok(());
            }
            let entry = match known.take() {
                Some(entry) => Some(entry),
                None => self.0.read(&block_key(cidr)).await?,
            };
            let (write, sequence_number) = match entry {
                Some(entry) => {
                    let mut block = records::block(&entry)?.clone();
                    cooldown::collect(&mut block, settings.config.ip_cooldown_seconds, self.0.clock.now());
                    take::check_owner(&block, owner, settings.config.strict_affinity)?;
                    match take::take_address(&mut block, request.address, &holder) {
                        Err(TakeRefused::AlreadyAssigned(_)) if is_held(&block, request) => return Ok(()),
                        outcome => drop(outcome?),
                    }
                    let sequence_number = advance(&mut block);
                    (BlockWrite::Update(with_block(&entry, block)), sequence_number)
                }
                None => {
                    let now = self.0.clock.now();
                    let mut block = take::new_block(cidr, owner, request.host_reserved.as_ref(), now);
                    take::take_address(&mut block, request.address, &holder)?;
                    let sequence_number = advance(&mut block);
                    let claim = records::new_claim(owner, cidr, BlockAffinityState::Confirmed);
                    (BlockWrite::Create { claim, block: records::new_block(block) }, sequence_number)
                }
            };
            let is_update = matches!(write, BlockWrite::Update(_));
            match BlockWriter(self.0).commit(cidr, write, handles, &counts, settings).await {
                Ok(Committed::Done { block, claim }) => {
                    self.0.remember_block(cidr, Some(Arc::new(block)));
                    if let Some(claim) = claim {
                        Claims(self.0).remember_claim(&claim);
                    }
                    return Ok(());
                }
                Ok(Committed::BlockChanged(current)) if is_update => known = current,
                Ok(Committed::SettingsChanged) => {}
                // A claim without a block, or a store that creates them in turn.
                Ok(Committed::BlockChanged(None) | Committed::Unsupported) => {
                    let reserved = request.host_reserved.as_ref();
                    if let Secured::Ours { block, .. } =
                        Claims(self.0).secure(cidr, owner, None, None, reserved).await?
                    {
                        known = Some(block);
                    }
                }
                Ok(Committed::BlockChanged(current)) => known = current,
                Err(Error::HandleFull { .. }) => {}
                Err(error) => {
                    // Whether it was written is unknown; after an error it must not be.
                    if let Ok(net) = IpNet::new(request.address, cidr.prefix_len()) {
                        let attempted = vec![Attempt { net, sequence_number }];
                        let holder = holder.clone();
                        AnyAddress(self.0)
                            .undo(Job { holder, attempted, ..Job::default() }, Vec::new())
                            .await;
                    }
                    return Err(error);
                }
            }
        }
        Err(TOO_MANY_ATTEMPTS)
    }

    /// For handles with a limited number of addresses: whether the handle has this one already.
    async fn has_already(&self, request: &AssignIp, handles: &mut Handles, attempt: u32) -> Result<bool> {
        let (Some(id), limit) = (&request.handle, request.max_per_handle) else { return Ok(false) };
        if limit == 0 {
            return Ok(false);
        }
        handles.limit(id, limit);
        handles.learn(id, self.0.read(&handle_key(id)).await?);
        let version = IpVersion::of(&IpNet::from(request.address));
        let Some(entry) = handles.known(id) else { return Ok(false) };
        if handle::has_room(Some(records::handle(entry)?), version, 1, limit) {
            return Ok(false);
        }
        let has = Releases(self.0).addresses_of(entry, id).await?;
        if has.contains(&request.address) {
            return Ok(true);
        }
        if has.iter().any(|address| address.is_ipv4() == request.address.is_ipv4()) {
            return Err(Error::HandleHasOtherAddress { handle: id.clone(), address: request.address, limit });
        }
        // The handle counts an address that cannot be found: a process is about to take it, or has crashed before.
        if is_repair_due(attempt) {
            Releases(self.0).drop_unfounded(id).await?;
        }
        Ok(false)
    }

    pub(crate) async fn set_owner_attributes(
        &self,
        address: IpAddr,
        handle: &HandleId,
        update: &OwnerUpdate,
        check: &OwnerCheck,
    ) -> Result<()> {
        let releases = Releases(self.0);
        for attempt in 0..ATTEMPTS {
            self.0.wait_before(attempt).await;
            let (settings, entry) =
                futures::join!(self.0.read_settings(), releases.block_containing(address));
            let Some(entry) = entry? else {
                return Err(Error::does_not_exist(&address, "IP is unassigned"));
            };
            let mut block = records::block(&entry)?.clone();
            cooldown::collect(&mut block, settings?.config.ip_cooldown_seconds, self.0.clock.now());
            owner::set_owners(&mut block, address, handle, update, check)?;
            advance(&mut block);
            self.0.remember_block(block.cidr, None);
            match self.0.backend.update(&with_block(&entry, block)).await {
                Err(error) if error.is_conflict() || error.is_does_not_exist() => {}
                outcome => return outcome.map(|_: KvPair| ()).map_err(Error::from),
            }
        }
        Err(Error::TooManyAttempts("max retries hit - excessive concurrent IPAM requests"))
    }
}

/// For handles with a limited number of addresses: whether the handle already holds this address.
fn is_held(block: &model::AllocationBlock, request: &AssignIp) -> bool {
    let allocation = Block::new(block).allocation(request.address);
    let holder = allocation.as_ref().and_then(ipam_core::Allocation::handle_id);
    request.max_per_handle > 0 && request.handle.is_some() && holder == request.handle.as_deref()
}
