//! Takes addresses from blocks: carries out the steps of `ipam_core::assignment::order`.

use crate::claims::{Claims, Secured};
use crate::commit::{BlockWrite, BlockWriter, Committed};
use crate::error::{Error, Result, TOO_MANY_ATTEMPTS};
use crate::find_block::BlockSearch;
use crate::handles::{HandleCounts, Handles};
use crate::records::{self, claimed, with_block};
use crate::store::{Facts, IpamStore, Settings};
use api::BlockAffinityState;
use ipam_core::assignment::order::{self, ClaimUse, Limits, Stage, Step};
use ipam_core::assignment::{Attempt, Job, Jobs};
use ipam_core::block::advance;
use ipam_core::pools::Chosen;
use ipam_core::retry::ATTEMPTS;
use ipam_core::{Block, HostReserved, Owner, claim, cooldown, search, take};
use ipnet::IpNet;
use model::{IpVersion, KvPair};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The facts that the jobs of one lane share.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) owner: Owner,
    pub(crate) version: IpVersion,
    pub(crate) chosen: Chosen,
    pub(crate) facts: Facts,
    pub(crate) max_blocks: u32,
    pub(crate) host_reserved: Option<HostReserved>,
}

/// The state that changes while jobs are served.
struct Work<'a> {
    jobs: Jobs<'a>,
    settings: Settings,
    handles: Handles,
}

/// A block from which addresses may be taken.
struct Candidate {
    cidr: IpNet,
    /// The owner's claim on it; `None` when the block is another owner's.
    claim: Option<KvPair>,
    /// The block, if it exists.
    block: Option<Arc<KvPair>>,
    /// Whether it was read for these jobs.
    is_fresh: bool,
}

/// Finds what a job got from a write whose outcome is unknown.
pub(crate) async fn find_taken(store: &IpamStore, job: &mut Job) -> Result<()> {
    let blocks: BTreeSet<IpNet> = job.attempted.iter().map(Attempt::block).collect();
    let blocks: Vec<IpNet> = blocks.into_iter().collect();
    for entry in store.read_blocks(&blocks).await?.iter().flatten() {
        job.find_attempted(records::block(entry)?);
    }
    Ok(())
}

/// Takes addresses for the jobs of one lane.
#[derive(Clone, Copy)]
pub(crate) struct Assignment<'a> {
    pub(crate) store: &'a IpamStore,
    pub(crate) context: &'a Context,
}

impl Assignment<'_> {
    /// Serves jobs. Returns messages about addresses that are missing.
    pub(crate) async fn serve(&self, jobs: &mut [Job]) -> Result<Vec<String>> {
        let mut handles = Handles::default();
        for job in &mut *jobs {
            find_taken(self.store, job).await?;
            if let Some(handle) = &job.holder.handle {
                if let Some(entry) = job.handle_entry.take() {
                    handles.learn(handle, Some(entry));
                }
                if job.limit > 0 {
                    handles.limit(handle, job.limit);
                }
            }
        }
        let settings = self.context.facts.settings.clone();
        let mut work = Work { jobs: Jobs::new(jobs), settings, handles };
        let outcome = self.serve_from_blocks(&mut work).await;
        HandleCounts(self.store).settle(&mut work.handles).await;
        for job in work.jobs.jobs.iter_mut() {
            job.handle_entry =
                job.holder.handle.as_ref().and_then(|handle| work.handles.known(handle)).cloned();
        }
        outcome.map(|()| work.jobs.messages)
    }

    /// Carries out the steps of [`order::next`].
    async fn serve_from_blocks(&self, work: &mut Work<'_>) -> Result<()> {
        let Context { owner, version, facts, max_blocks, .. } = self.context;
        let mut stage = Stage::Start;
        loop {
            let limits = Limits {
                settings: &work.settings.config,
                is_cached: work.settings.is_cached,
                max_blocks: *max_blocks,
            };
            stage = match (order::next(stage, work.jobs.is_done(), limits), stage) {
                (Step::OwnBlocks, _) => {
                    let (claims, is_maybe_old) = self.store.claims(owner, *version, facts).await?;
                    let owned = self.serve_from_claims(work, claims).await?;
                    if is_maybe_old { Stage::Known } else { Stage::Owned(owned) }
                }
                (Step::OwnBlocksAgain, _) => {
                    let claims = self.store.read_claims(owner, *version).await?;
                    Stage::Owned(self.serve_from_claims(work, claims).await?)
                }
                (Step::ReadSettings, stage) => {
                    work.settings = self.store.read_settings().await?;
                    stage
                }
                (Step::NewBlock { owned }, _) => match self.serve_from_new_block(work).await {
                    Ok(()) => Stage::Owned(owned + 1),
                    Err(Error::NoFreeBlocks) => Stage::Exhausted,
                    Err(error) => return Err(error),
                },
                (Step::Borrow, _) => {
                    self.borrow(work).await?;
                    Stage::Borrowed
                }
                (Step::Refuse { owned, limit }, _) => {
                    tracing::warn!(%owner, owned, limit, "the owner may not have more blocks");
                    return Err(Error::BlockLimit);
                }
                (Step::Forbidden, _) => return Err(Error::NoBlock),
                (Step::Short(message), _) => {
                    work.jobs.say(message);
                    return Ok(());
                }
                (Step::Finish, _) => return Ok(()),
            };
        }
    }

    /// Serves from the owner's blocks. Returns how many blocks count against the limit.
    async fn serve_from_claims(&self, work: &mut Work<'_>, claims: Vec<KvPair>) -> Result<usize> {
        let mut candidates = Vec::new();
        let mut owned = 0;
        let Context { chosen, facts, .. } = self.context;
        for claim in claims {
            let Some(cidr) = claimed(&claim) else { continue };
            match order::claim_use(cidr, chosen, &facts.pools, &facts.reserved, &facts.node_labels) {
                Ok(ClaimUse::Serve) => {
                    owned += 1;
                    let block = self.store.cached_block(&cidr);
                    candidates.push(Candidate { cidr, claim: Some(claim), block, is_fresh: false });
                }
                Ok(ClaimUse::Count) => owned += 1,
                Ok(ClaimUse::GiveUp) => self.give_up_unselected(work, cidr).await,
                Ok(ClaimUse::Ignore) => {}
                Err(error) => {
                    tracing::warn!(%cidr, %error, "it is unknown whether the block still belongs to the node");
                }
            }
        }
        // Blocks that are cached with room first; the others are read, all at once.
        let (known, mut unknown): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|candidate| {
            let block = candidate.block.as_deref().and_then(|block| records::block(block).ok());
            block.is_some_and(|block| take::available(block, &self.context.facts.reserved) > 0)
        });
        for candidate in known {
            if work.jobs.is_done() {
                return Ok(owned);
            }
            self.serve_from(work, candidate).await?;
        }
        unknown.retain(|candidate| !work.jobs.tried.contains(&candidate.cidr));
        if work.jobs.is_done() || unknown.is_empty() {
            return Ok(owned);
        }
        let ranges: Vec<IpNet> = unknown.iter().map(|candidate| candidate.cidr).collect();
        let blocks = self.store.read_usable_blocks(&ranges).await?;
        for (candidate, block) in unknown.into_iter().zip(blocks) {
            if work.jobs.is_done() {
                break;
            }
            let Some(block) = block else { continue };
            let block = block.map(Arc::new);
            self.serve_from(work, Candidate { block, is_fresh: true, ..candidate }).await?;
        }
        Ok(owned)
    }

    /// Serves what can be served from one block.
    async fn serve_from(&self, work: &mut Work<'_>, mut candidate: Candidate) -> Result<()> {
        let cidr = candidate.cidr;
        work.jobs.tried.insert(cidr);
        for attempt in 0..ATTEMPTS {
            self.store.wait_before(attempt).await;
            if !self.is_ready(&mut candidate).await? {
                return Ok(());
            }
            let Some(entry) = &candidate.block else { return Ok(()) };
            let mut block = records::block(entry)?.clone();
            let config = &work.settings.config;
            cooldown::collect(&mut block, config.ip_cooldown_seconds, self.store.clock.now());
            if let Err(refused) = take::check_owner(&block, &self.context.owner, config.strict_affinity) {
                tracing::warn!(%cidr, %refused, "no address was taken");
                work.jobs.say("Failed to assign IPs in newly allocated block");
                return Ok(());
            }
            work.jobs.find_attempted(&block);
            let shares = work.jobs.take(&mut block, &self.context.facts.reserved);
            if shares.is_empty() {
                if candidate.is_fresh || work.jobs.is_done() {
                    self.store.remember_block(cidr, candidate.block.clone());
                    return Ok(());
                }
                self.refresh(&mut candidate).await?;
                continue;
            }
            let sequence_number = advance(&mut block);
            work.jobs.attempt(&shares, sequence_number);
            let write = BlockWrite::Update(with_block(entry, block));
            let committed = BlockWriter(self.store)
                .commit(cidr, write, &mut work.handles, &shares.by_handle, &work.settings)
                .await?;
            work.jobs.withdraw(sequence_number, cidr);
            match committed {
                Committed::Done { block: entry, .. } => {
                    self.store.remember_block(cidr, candidate.claim.is_some().then(|| Arc::new(entry)));
                    work.jobs.give(shares, cidr);
                    return Ok(());
                }
                Committed::BlockChanged(current) => {
                    self.store.remember_block(cidr, None);
                    candidate.block = current.map(Arc::new);
                    candidate.is_fresh = true;
                }
                Committed::SettingsChanged => work.settings = self.store.read_settings().await?,
                Committed::Unsupported => return Err(TOO_MANY_ATTEMPTS),
            }
        }
        Err(TOO_MANY_ATTEMPTS)
    }

    async fn refresh(&self, candidate: &mut Candidate) -> Result<()> {
        candidate.block = self.store.read(&records::block_key(candidate.cidr)).await?.map(Arc::new);
        candidate.is_fresh = true;
        Ok(())
    }

    /// Whether addresses may be taken from a block: if it is claimed, the claim must be confirmed and the block the
    /// owner's.
    async fn is_ready(&self, candidate: &mut Candidate) -> Result<bool> {
        loop {
            let Some(claim) = &candidate.claim else { return Ok(candidate.block.is_some()) };
            let block = candidate.block.as_deref().map(records::block).transpose()?;
            if claim::next(Some(records::state(claim)?), block, &self.context.owner, false)
                == claim::Step::Use
            {
                return Ok(true);
            }
            if candidate.is_fresh {
                break;
            }
            self.refresh(candidate).await?;
        }
        let (claim, block) = (candidate.claim.take(), candidate.block.take().map(Arc::unwrap_or_clone));
        let secured = Claims(self.store)
            .secure(candidate.cidr, &self.context.owner, claim, block, self.context.host_reserved.as_ref())
            .await?;
        match secured {
            Secured::Ours { claim, block } => {
                candidate.claim = Some(claim);
                candidate.block = Some(Arc::new(block));
                Ok(true)
            }
            Secured::Lost => Ok(false),
        }
    }

    /// Finds a block that the owner can have, claims it, and serves from it.
    async fn serve_from_new_block(&self, work: &mut Work<'_>) -> Result<()> {
        let mut lost = BTreeSet::new();
        for attempt in 0..ATTEMPTS {
            self.store.wait_before(attempt).await;
            let cidr =
                BlockSearch { store: self.store, context: self.context }.find(&work.settings, &lost).await?;
            match self.serve_from_made_block(work, cidr).await? {
                Committed::Done { .. } => return Ok(()),
                Committed::SettingsChanged => {
                    work.settings = self.store.read_settings().await?;
                    continue;
                }
                // Another host was faster.
                Committed::BlockChanged(Some(block)) if !is_owned_by(&block, &self.context.owner) => continue,
                Committed::BlockChanged(_) | Committed::Unsupported => {}
            }
            let secured = Claims(self.store)
                .secure(cidr, &self.context.owner, None, None, self.context.host_reserved.as_ref())
                .await;
            match secured {
                Ok(Secured::Ours { claim, block }) => {
                    let block = Some(Arc::new(block));
                    let candidate = Candidate { cidr, claim: Some(claim), block, is_fresh: true };
                    return self.serve_from(work, candidate).await;
                }
                Ok(Secured::Lost) => {}
                // A block of another owner's that we cannot read: it is not free, whatever its content.
                Err(Error::Datastore(datastore::Error::Parse { key, reason })) => {
                    tracing::error!(key, reason, "this block cannot be read");
                    lost.insert(cidr);
                }
                Err(error) => return Err(error),
            }
        }
        Err(TOO_MANY_ATTEMPTS)
    }

    /// Creates a block, the claim on it and the allocations in it in one step, if the store can do that.
    async fn serve_from_made_block(&self, work: &mut Work<'_>, cidr: IpNet) -> Result<Committed> {
        let owner = &self.context.owner;
        let mut block =
            take::new_block(cidr, owner, self.context.host_reserved.as_ref(), self.store.clock.now());
        let shares = work.jobs.take(&mut block, &self.context.facts.reserved);
        let sequence_number = advance(&mut block);
        work.jobs.attempt(&shares, sequence_number);
        let claim = records::new_claim(owner, cidr, BlockAffinityState::Confirmed);
        let write = BlockWrite::Create { claim, block: records::new_block(block) };
        let committed = BlockWriter(self.store)
            .commit(cidr, write, &mut work.handles, &shares.by_handle, &work.settings)
            .await?;
        work.jobs.withdraw(sequence_number, cidr);
        if let Committed::Done { block, claim } = &committed {
            work.jobs.tried.insert(cidr);
            self.store.remember_block(cidr, Some(Arc::new(block.clone())));
            if let Some(claim) = claim {
                Claims(self.store).remember_claim(claim);
            }
            work.jobs.give(shares, cidr);
        }
        Ok(committed)
    }

    /// Takes missing addresses from any block of the pools.
    async fn borrow(&self, work: &mut Work<'_>) -> Result<()> {
        let all = self.store.all_blocks(Some(self.context.version)).await?;
        let now = self.store.clock.now();
        let mut exhausted = Vec::new();
        for pool in &self.context.chosen.usable {
            let ranges = all.readable().map(|(_, block)| block.cidr);
            for cidr in search::borrowing_order(pool, &self.context.owner.host, ranges, now) {
                if work.jobs.is_done() {
                    break;
                }
                let Some(Some(entry)) = all.entries.get(&cidr) else { continue };
                let mut block = records::block(entry)?.clone();
                cooldown::collect(&mut block, work.settings.config.ip_cooldown_seconds, now);
                if self.context.facts.reserved.covers(&cidr)
                    || take::available(&block, &self.context.facts.reserved) == 0
                {
                    continue;
                }
                tracing::info!(%cidr, owner = ?Block::new(&block).affinity(), "borrowing addresses");
                let block = Some(Arc::new(entry.clone()));
                let candidate = Candidate { cidr, claim: None, block, is_fresh: true };
                self.serve_from(work, candidate).await?;
            }
            if work.jobs.is_done() {
                return Ok(());
            }
            exhausted.push(pool.cidr.to_string());
        }
        work.jobs.say(format!("No IPs available in pools: [{}]", exhausted.join(" ")));
        Ok(())
    }

    /// Gives up an empty block of a pool that no longer selects the node. A failure does not fail the assignment.
    async fn give_up_unselected(&self, work: &Work<'_>, cidr: IpNet) {
        let cached = self.store.cached_block(&cidr);
        let is_used = |entry: &KvPair| records::block(entry).is_ok_and(|block| !Block::new(block).is_empty());
        if cached.as_deref().is_some_and(is_used) {
            return;
        }
        let given_up =
            Claims(self.store).give_up(cidr, &self.context.owner, true, None, &work.settings.config).await;
        if let Err(error) = given_up
            && !matches!(error, Error::KeepRefused(_))
            && !error.is_does_not_exist()
        {
            tracing::warn!(%cidr, %error, "a block of a pool that no longer selects the node was not given up");
        }
    }
}

fn is_owned_by(entry: &KvPair, owner: &Owner) -> bool {
    records::block(entry).is_ok_and(|block| Block::new(block).owner().as_ref() == Some(owner))
}
