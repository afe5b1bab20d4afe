//! Taking one address that the caller names, and changing who is recorded as its owner.

use crate::assign::{Attempt, Job};
use crate::claims::Secured;
use crate::clock::ATTEMPTS;
use crate::commit::{BlockWrite, Committed};
use crate::error::{Error, Result, TOO_MANY_ATTEMPTS};
use crate::handles::Handles;
use crate::records::{self, block_key, handle_key, with_block};
use crate::request::AssignIp;
use crate::shared::{Settings, Shared};
use api::BlockAffinityState;
use ipam_core::{
    Block, Holder, IntendedUse, Owner, OwnerCheck, OwnerUpdate, TakeRefused, cooldown, owner, pools, take,
};
use ipnet::IpNet;
use model::{IpVersion, KvPair};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// After how many attempts a handle that counts addresses which nobody finds is put right.
const PATIENCE: u32 = 20;

impl Shared {
    pub(crate) async fn assign_ip(&self, request: &AssignIp) -> Result<()> {
        let address = request.address;
        let owner = request.intended_use.unwrap_or(IntendedUse::Workload).owner(&request.host);
        let (settings, all) = futures::join!(self.read_settings(), self.pools());
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
        self.settle(&mut handles).await;
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
        let counts: BTreeMap<String, i64> = request.handle.iter().map(|handle| (handle.clone(), 1)).collect();
        let mut known = None;
        for attempt in 0..ATTEMPTS {
            self.wait_before(attempt).await;
            if self.has_already(request, handles, attempt).await? {
                return Ok(());
            }
            let entry = match known.take() {
                Some(entry) => Some(entry),
                None => self.read(&block_key(cidr)).await?,
            };
            let (write, sequence_number) = match entry {
                Some(entry) => {
                    let mut block = records::block(&entry)?.clone();
                    cooldown::collect(&mut block, settings.config.ip_cooldown_seconds, self.clock.now());
                    take::check_owner(&block, owner, settings.config.strict_affinity)?;
                    match take::take_address(&mut block, request.address, &holder) {
                        Err(TakeRefused::AlreadyAssigned(_)) if is_held(&block, request) => return Ok(()),
                        outcome => drop(outcome?),
                    }
                    let sequence_number = block.sequence_number;
                    block.sequence_number = sequence_number.wrapping_add(1);
                    (BlockWrite::Update(with_block(&entry, block)), sequence_number)
                }
                None => {
                    let now = self.clock.now();
                    let mut block = take::new_block(cidr, owner, request.host_reserved.as_ref(), now);
                    take::take_address(&mut block, request.address, &holder)?;
                    let sequence_number = block.sequence_number;
                    block.sequence_number = sequence_number.wrapping_add(1);
                    let claim = records::new_claim(owner, cidr, BlockAffinityState::Confirmed);
                    (BlockWrite::Create { claim, block: records::new_block(block) }, sequence_number)
                }
            };
            let is_update = matches!(write, BlockWrite::Update(_));
            match self.commit(cidr, write, handles, &counts, settings).await {
                Ok(Committed::Done { block, claim }) => {
                    self.remember_block(cidr, Some(Arc::new(block)));
                    if let Some(claim) = claim {
                        self.remember_claim(&claim);
                    }
                    return Ok(());
                }
                Ok(Committed::BlockChanged(current)) if is_update => known = current,
                Ok(Committed::SettingsChanged) => {}
                // A claim without a block, or a store that makes one after the other.
                Ok(Committed::BlockChanged(None) | Committed::Unsupported) => {
                    let reserved = request.host_reserved.as_ref();
                    if let Secured::Ours { block, .. } =
                        self.secure(cidr, owner, None, None, reserved).await?
                    {
                        known = Some(block);
                    }
                }
                Ok(Committed::BlockChanged(current)) => known = current,
                Err(Error::HandleFull { .. }) => {}
                Err(error) => {
                    // Whether it was written is not known; after an error it must not be.
                    if let Ok(net) = IpNet::new(request.address, cidr.prefix_len()) {
                        let attempted = vec![Attempt { net, sequence_number }];
                        let holder = holder.clone();
                        self.undo(Job { holder, attempted, ..Job::default() }, Vec::new()).await;
                    }
                    return Err(error);
                }
            }
        }
        Err(TOO_MANY_ATTEMPTS)
    }

    /// For handles that may have only so many addresses: whether this is the one that it has.
    async fn has_already(&self, request: &AssignIp, handles: &mut Handles, attempt: u32) -> Result<bool> {
        let (Some(id), limit) = (&request.handle, request.max_per_handle) else { return Ok(false) };
        if limit == 0 {
            return Ok(false);
        }
        handles.limit(id, limit);
        handles.learn(id, self.read(&handle_key(id)).await?);
        let version = IpVersion::of(&IpNet::from(request.address));
        let Some(entry) = handles.known(id) else { return Ok(false) };
        let count = ipam_core::handle::total(records::handle(entry)?, version);
        if count < i64::try_from(limit).unwrap_or(i64::MAX) {
            return Ok(false);
        }
        let has = self.addresses_of(entry, id).await?;
        if has.contains(&request.address) {
            return Ok(true);
        }
        if has.iter().any(|address| address.is_ipv4() == request.address.is_ipv4()) {
            return Err(Error::HandleHasOtherAddress { handle: id.clone(), address: request.address, limit });
        }
        // It counts what nobody finds: somebody is about to take it, or crashed before.
        if attempt % PATIENCE == PATIENCE - 1 {
            self.drop_unfounded(id).await?;
        }
        Ok(false)
    }

    pub(crate) async fn set_owner_attributes(
        &self,
        address: IpAddr,
        handle: &str,
        update: &OwnerUpdate,
        check: &OwnerCheck,
    ) -> Result<()> {
        for attempt in 0..ATTEMPTS {
            self.wait_before(attempt).await;
            let (settings, entry) = futures::join!(self.read_settings(), self.block_containing(address));
            let Some(entry) = entry? else {
                return Err(Error::does_not_exist(&address, "IP is unassigned"));
            };
            let mut block = records::block(&entry)?.clone();
            cooldown::collect(&mut block, settings?.config.ip_cooldown_seconds, self.clock.now());
            owner::set_owners(&mut block, address, handle, update, check)?;
            block.sequence_number = block.sequence_number.wrapping_add(1);
            self.remember_block(block.cidr, None);
            match self.backend.update(&with_block(&entry, block)).await {
                Err(error) if error.is_conflict() || error.is_does_not_exist() => {}
                outcome => return outcome.map(|_: KvPair| ()).map_err(Error::from),
            }
        }
        Err(Error::TooManyAttempts("max retries hit - excessive concurrent IPAM requests"))
    }
}

/// Whether the address is its handle's already, for handles that may have only so many.
fn is_held(block: &model::AllocationBlock, request: &AssignIp) -> bool {
    let allocation = Block::new(block).allocation(request.address);
    let holder = allocation.as_ref().and_then(ipam_core::Allocation::handle_id);
    request.max_per_handle > 0 && request.handle.is_some() && holder == request.handle.as_deref()
}
