//! Taking addresses, whichever they are.
//!
//! The order is Calico's: the owner's blocks, then a new block, then (unless only owners may use blocks) any block with
//! room. Several requests are served by one write; each of them is a [`Job`].

use crate::claims::Secured;
use crate::clock::ATTEMPTS;
use crate::commit::{BlockWrite, Committed};
use crate::error::{Error, Result, TOO_MANY_ATTEMPTS};
use crate::handles::Handles;
use crate::records::{self, claimed, with_block};
use crate::shared::{Facts, Settings, Shared};
use api::BlockAffinityState;
use ipam_core::pools::Chosen;
use ipam_core::search::{self, Found, Search};
use ipam_core::{Block, Holder, HostReserved, Owner, claim, cooldown, pools, take};
use ipnet::IpNet;
use model::{AllocationBlock, IpVersion, KvPair};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many blocks of an IP version an owner may have when nothing says otherwise.
const DEFAULT_MAX_BLOCKS: usize = 20;

/// One wish for addresses of one IP version.
#[derive(Clone, Debug, Default)]
pub(crate) struct Job {
    pub(crate) count: usize,
    pub(crate) holder: Holder,
    pub(crate) got: Vec<IpNet>,
    /// How many addresses the handle may have; 0 for any number.
    pub(crate) limit: usize,
    /// The handle as it is stored, where that is known.
    pub(crate) handle_entry: Option<KvPair>,
    /// What a write was to give it of which nobody knows whether it happened.
    pub(crate) attempted: Vec<Attempt>,
    /// Whether what it got was its handle's before.
    pub(crate) is_adopted: bool,
}

impl Job {
    /// Finds attempts on a block that happened.
    pub(crate) fn find_attempted(&mut self, block: &AllocationBlock) {
        for attempt in std::mem::take(&mut self.attempted) {
            let is_missing = self.missing() > 0 && !self.got.contains(&attempt.net);
            if is_missing && attempt.block() == block.cidr && attempt.happened(block, &self.holder) {
                self.got.push(attempt.net);
            } else {
                self.attempted.push(attempt);
            }
        }
    }

    /// How many addresses are missing.
    pub(crate) fn missing(&self) -> usize {
        self.count.saturating_sub(self.got.len())
    }
}

/// An address that a write was to give somebody, with the sequence number that the allocation has if it happened. Together
/// with the holder that tells it from any other allocation of the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) net: IpNet,
    pub(crate) sequence_number: u64,
}

impl Attempt {
    pub(crate) fn block(&self) -> IpNet {
        self.net.trunc()
    }

    /// Whether it happened, given the block.
    pub(crate) fn happened(&self, block: &AllocationBlock, holder: &Holder) -> bool {
        let allocation = Block::new(block).allocation(self.net.addr());
        allocation.is_some_and(|allocation| {
            allocation.sequence_number == self.sequence_number
                && take::held_by(block, holder).contains(&self.net)
                && holder.handle.is_some()
        })
    }
}

/// What jobs of one lane have in common.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) owner: Owner,
    pub(crate) version: IpVersion,
    pub(crate) chosen: Chosen,
    pub(crate) facts: Facts,
    pub(crate) max_blocks: u32,
    pub(crate) host_reserved: Option<HostReserved>,
}

impl Context {
    /// Whether a block lies in a pool that may be used.
    fn is_usable(&self, cidr: &IpNet) -> bool {
        pools::containing(&self.chosen.usable, cidr.network()).is_some()
    }

    fn is_reserved(&self, cidr: &IpNet) -> bool {
        self.facts.reserved.covers(cidr)
    }

    /// How many blocks the owner may have: the smaller one of what the request and the settings say.
    fn max_blocks(&self, settings: &Settings) -> usize {
        let requested = usize::try_from(self.max_blocks).unwrap_or(usize::MAX);
        let global = usize::try_from(settings.config.max_blocks_per_host).unwrap_or_default();
        match (requested, global) {
            (0, 0) => DEFAULT_MAX_BLOCKS,
            (0, limit) | (limit, 0) => limit,
            (requested, global) => requested.min(global),
        }
    }
}

/// What changes while jobs are served.
struct Work<'a> {
    jobs: &'a mut [Job],
    settings: Settings,
    handles: Handles,
    messages: Vec<String>,
    /// Blocks that were looked at.
    tried: BTreeSet<IpNet>,
}

impl Work<'_> {
    fn is_done(&self) -> bool {
        self.jobs.iter().all(|job| job.missing() == 0)
    }

    fn say(&mut self, message: impl Into<String>) {
        let message = message.into();
        if !self.messages.contains(&message) {
            self.messages.push(message);
        }
    }

    /// Takes what is missing from a block. Returns what each job gets, and how many addresses each handle gets.
    fn take(
        &self,
        block: &mut AllocationBlock,
        context: &Context,
    ) -> (Vec<Vec<IpNet>>, BTreeMap<String, i64>) {
        let mut counts = BTreeMap::new();
        let mut taken = Vec::with_capacity(self.jobs.len());
        for job in &*self.jobs {
            let got = take::take(block, job.missing(), &job.holder, &context.facts.reserved);
            if let (Some(handle), false) = (&job.holder.handle, got.is_empty()) {
                *counts.entry(handle.clone()).or_default() += i64::try_from(got.len()).unwrap_or(i64::MAX);
            }
            taken.push(got);
        }
        (taken, counts)
    }

    /// A write that gives this is about to happen.
    fn attempt(&mut self, taken: &[Vec<IpNet>], sequence_number: u64) {
        for (job, nets) in self.jobs.iter_mut().zip(taken) {
            job.attempted.extend(nets.iter().map(|net| Attempt { net: *net, sequence_number }));
        }
    }

    /// It did not happen.
    fn withdraw(&mut self, sequence_number: u64, cidr: IpNet) {
        for job in self.jobs.iter_mut() {
            job.attempted
                .retain(|attempt| attempt.sequence_number != sequence_number || attempt.block() != cidr);
        }
    }

    /// It did, so no other attempt on this block can any more.
    fn give(&mut self, taken: Vec<Vec<IpNet>>, cidr: IpNet) {
        for (job, got) in self.jobs.iter_mut().zip(taken) {
            job.attempted.retain(|attempt| attempt.block() != cidr);
            job.got.extend(got);
        }
    }

    /// Finds earlier attempts that happened after all.
    fn find_attempted(&mut self, block: &AllocationBlock) {
        for job in self.jobs.iter_mut().filter(|job| !job.attempted.is_empty()) {
            job.find_attempted(block);
        }
    }
}

/// A block to take addresses of.
struct Candidate {
    cidr: IpNet,
    /// The owner's claim on it; `None` when the block is somebody else's.
    claim: Option<KvPair>,
    /// The block, where it exists.
    block: Option<Arc<KvPair>>,
    /// Whether it was read for these jobs.
    is_fresh: bool,
}

impl Shared {
    /// Serves jobs. Returns messages about what is missing.
    pub(crate) async fn serve(&self, context: &Context, jobs: &mut [Job]) -> Result<Vec<String>> {
        let mut work = Work {
            jobs,
            settings: context.facts.settings.clone(),
            handles: Handles::default(),
            messages: Vec::new(),
            tried: BTreeSet::new(),
        };
        for place in 0..work.jobs.len() {
            let job = &mut work.jobs[place];
            self.find_taken(job).await?;
            if let Some(handle) = &job.holder.handle {
                if let Some(entry) = job.handle_entry.take() {
                    work.handles.learn(handle, Some(entry));
                }
                if job.limit > 0 {
                    work.handles.limit(handle, job.limit);
                }
            }
        }
        let outcome = self.serve_from_blocks(context, &mut work).await;
        self.settle(&mut work.handles).await;
        for job in work.jobs.iter_mut() {
            job.handle_entry =
                job.holder.handle.as_ref().and_then(|handle| work.handles.known(handle)).cloned();
        }
        outcome.map(|()| work.messages)
    }

    /// Finds what a job was given by somebody who could not tell.
    pub(crate) async fn find_taken(&self, job: &mut Job) -> Result<()> {
        let blocks: BTreeSet<IpNet> = job.attempted.iter().map(Attempt::block).collect();
        let blocks: Vec<IpNet> = blocks.into_iter().collect();
        for entry in self.read_blocks(&blocks).await?.iter().flatten() {
            job.find_attempted(records::block(entry)?);
        }
        Ok(())
    }

    async fn serve_from_blocks(&self, context: &Context, work: &mut Work<'_>) -> Result<()> {
        let (claims, is_maybe_old) = self.claims(&context.owner, context.version, &context.facts).await?;
        let mut owned = self.serve_from_claims(context, work, claims).await?;
        if is_maybe_old && !work.is_done() {
            // Before a new block is taken: what the owner really has, and how many.
            let claims = self.read_claims(&context.owner, context.version).await?;
            owned = self.serve_from_claims(context, work, claims).await?;
        }
        if work.settings.is_cached && !work.is_done() {
            // From here on settings may say no, and a refusal writes nothing that would find out that they changed.
            work.settings = self.read_settings().await?;
        }
        while !work.is_done() {
            let limit = context.max_blocks(&work.settings);
            if owned >= limit {
                tracing::warn!(owner = %context.owner, owned, limit, "the owner may not have more blocks");
                return Err(Error::BlockLimit);
            }
            match self.serve_from_new_block(context, work).await {
                Ok(()) => owned += 1,
                Err(Error::NoFreeBlocks) => break,
                Err(error) => return Err(error),
            }
        }
        if work.is_done() {
            return Ok(());
        }
        if work.settings.config.strict_affinity {
            work.say("No more free affine blocks and strict affinity enabled");
            return Ok(());
        }
        self.borrow(context, work).await
    }

    /// Serves from the owner's blocks. Returns how many blocks count against the limit.
    async fn serve_from_claims(
        &self,
        context: &Context,
        work: &mut Work<'_>,
        claims: Vec<KvPair>,
    ) -> Result<usize> {
        let mut candidates = Vec::new();
        let mut owned = 0;
        for claim in claims {
            let Some(cidr) = claimed(&claim) else { continue };
            if !context.is_usable(&cidr) {
                if pools::containing(&context.chosen.selecting, cidr.network()).is_none() {
                    self.give_up_unselected(context, work, cidr).await;
                }
                continue;
            }
            owned += 1;
            if !context.is_reserved(&cidr) {
                let block = self.cached_block(&cidr);
                candidates.push(Candidate { cidr, claim: Some(claim), block, is_fresh: false });
            }
        }
        // Blocks that are remembered with room first; the others are read, all at once.
        let (known, mut unknown): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|candidate| {
            let block = candidate.block.as_deref().and_then(|block| records::block(block).ok());
            block.is_some_and(|block| take::available(block, &context.facts.reserved) > 0)
        });
        for candidate in known {
            if work.is_done() {
                return Ok(owned);
            }
            self.serve_from(context, work, candidate).await?;
        }
        unknown.retain(|candidate| !work.tried.contains(&candidate.cidr));
        if work.is_done() || unknown.is_empty() {
            return Ok(owned);
        }
        let ranges: Vec<IpNet> = unknown.iter().map(|candidate| candidate.cidr).collect();
        let blocks = self.read_usable_blocks(&ranges).await?;
        for (candidate, block) in unknown.into_iter().zip(blocks) {
            if work.is_done() {
                break;
            }
            let Some(block) = block else { continue };
            let block = block.map(Arc::new);
            self.serve_from(context, work, Candidate { block, is_fresh: true, ..candidate }).await?;
        }
        Ok(owned)
    }

    /// Serves what can be served from one block.
    async fn serve_from(
        &self,
        context: &Context,
        work: &mut Work<'_>,
        mut candidate: Candidate,
    ) -> Result<()> {
        let cidr = candidate.cidr;
        work.tried.insert(cidr);
        for attempt in 0..ATTEMPTS {
            self.wait_before(attempt).await;
            if !self.is_ready(context, &mut candidate).await? {
                return Ok(());
            }
            let Some(entry) = &candidate.block else { return Ok(()) };
            let mut block = records::block(entry)?.clone();
            let config = &work.settings.config;
            cooldown::collect(&mut block, config.ip_cooldown_seconds, self.clock.now());
            if let Err(refused) = take::check_owner(&block, &context.owner, config.strict_affinity) {
                tracing::warn!(%cidr, %refused, "no address was taken");
                work.say("Failed to assign IPs in newly allocated block");
                return Ok(());
            }
            work.find_attempted(&block);
            let (taken, counts) = work.take(&mut block, context);
            if taken.iter().all(Vec::is_empty) {
                if candidate.is_fresh || work.is_done() {
                    self.remember_block(cidr, candidate.block.clone());
                    return Ok(());
                }
                self.refresh(&mut candidate).await?;
                continue;
            }
            let sequence_number = block.sequence_number;
            block.sequence_number = sequence_number.wrapping_add(1);
            work.attempt(&taken, sequence_number);
            let write = BlockWrite::Update(with_block(entry, block));
            let committed = self.commit(cidr, write, &mut work.handles, &counts, &work.settings).await?;
            work.withdraw(sequence_number, cidr);
            match committed {
                Committed::Done { block: entry, .. } => {
                    self.remember_block(cidr, candidate.claim.is_some().then(|| Arc::new(entry)));
                    work.give(taken, cidr);
                    return Ok(());
                }
                Committed::BlockChanged(current) => {
                    self.remember_block(cidr, None);
                    candidate.block = current.map(Arc::new);
                    candidate.is_fresh = true;
                }
                Committed::SettingsChanged => work.settings = self.read_settings().await?,
                Committed::Unsupported => return Err(TOO_MANY_ATTEMPTS),
            }
        }
        Err(TOO_MANY_ATTEMPTS)
    }

    async fn refresh(&self, candidate: &mut Candidate) -> Result<()> {
        candidate.block = self.read(&records::block_key(candidate.cidr)).await?.map(Arc::new);
        candidate.is_fresh = true;
        Ok(())
    }

    /// Whether addresses may be taken of a block: if it is claimed, the claim must be confirmed and the block the owner's.
    async fn is_ready(&self, context: &Context, candidate: &mut Candidate) -> Result<bool> {
        loop {
            let Some(claim) = &candidate.claim else { return Ok(candidate.block.is_some()) };
            let block = candidate.block.as_deref().map(records::block).transpose()?;
            if claim::next(Some(records::state(claim)?), block, &context.owner, false) == claim::Step::Use {
                return Ok(true);
            }
            if candidate.is_fresh {
                break;
            }
            self.refresh(candidate).await?;
        }
        let (claim, block) = (candidate.claim.take(), candidate.block.take().map(Arc::unwrap_or_clone));
        let secured =
            self.secure(candidate.cidr, &context.owner, claim, block, context.host_reserved.as_ref()).await?;
        match secured {
            Secured::Ours { claim, block } => {
                candidate.claim = Some(claim);
                candidate.block = Some(Arc::new(block));
                Ok(true)
            }
            Secured::Lost => Ok(false),
        }
    }

    /// Finds a block that the owner can have, has it, and serves from it.
    async fn serve_from_new_block(&self, context: &Context, work: &mut Work<'_>) -> Result<()> {
        if !work.settings.config.auto_allocate_blocks {
            return Err(Error::NoBlock);
        }
        let mut lost = BTreeSet::new();
        for attempt in 0..ATTEMPTS {
            self.wait_before(attempt).await;
            let cidr = self.find_block(context, &work.settings, &lost).await?;
            match self.serve_from_made_block(context, work, cidr).await? {
                Committed::Done { .. } => return Ok(()),
                Committed::SettingsChanged => {
                    work.settings = self.read_settings().await?;
                    continue;
                }
                // Another host was faster.
                Committed::BlockChanged(Some(block)) if !is_owned_by(&block, &context.owner) => continue,
                Committed::BlockChanged(_) | Committed::Unsupported => {}
            }
            let secured = self.secure(cidr, &context.owner, None, None, context.host_reserved.as_ref()).await;
            match secured {
                Ok(Secured::Ours { claim, block }) => {
                    let block = Some(Arc::new(block));
                    let candidate = Candidate { cidr, claim: Some(claim), block, is_fresh: true };
                    return self.serve_from(context, work, candidate).await;
                }
                Ok(Secured::Lost) => {}
                // Somebody's block that we cannot read: it is not free, whatever it is.
                Err(Error::Datastore(datastore::Error::Parse { key, reason })) => {
                    tracing::error!(key, reason, "this block cannot be read");
                    lost.insert(cidr);
                }
                Err(error) => return Err(error),
            }
        }
        Err(TOO_MANY_ATTEMPTS)
    }

    /// Makes a block, the claim on it and what is taken of it in one step, where the store can do that.
    async fn serve_from_made_block(
        &self,
        context: &Context,
        work: &mut Work<'_>,
        cidr: IpNet,
    ) -> Result<Committed> {
        let owner = &context.owner;
        let mut block = take::new_block(cidr, owner, context.host_reserved.as_ref(), self.clock.now());
        let (taken, counts) = work.take(&mut block, context);
        let sequence_number = block.sequence_number;
        block.sequence_number = sequence_number.wrapping_add(1);
        work.attempt(&taken, sequence_number);
        let claim = records::new_claim(owner, cidr, BlockAffinityState::Confirmed);
        let write = BlockWrite::Create { claim, block: records::new_block(block) };
        let committed = self.commit(cidr, write, &mut work.handles, &counts, &work.settings).await?;
        work.withdraw(sequence_number, cidr);
        if let Committed::Done { block, claim } = &committed {
            work.tried.insert(cidr);
            self.remember_block(cidr, Some(Arc::new(block.clone())));
            if let Some(claim) = claim {
                self.remember_claim(claim);
            }
            work.give(taken, cidr);
        }
        Ok(committed)
    }

    /// A block that the owner can have. Takes an empty one from somebody else when there is no other.
    pub(crate) async fn find_block(
        &self,
        context: &Context,
        settings: &Settings,
        lost: &BTreeSet<IpNet>,
    ) -> Result<IpNet> {
        let all = self.all_blocks(Some(context.version)).await?;
        let mut blocks: BTreeMap<IpNet, Option<&AllocationBlock>> = all
            .entries
            .iter()
            .map(|(cidr, entry)| (*cidr, entry.as_ref().and_then(|entry| records::block(entry).ok())))
            .collect();
        blocks.extend(lost.iter().map(|cidr| (*cidr, None)));
        let found = search::find(&Search {
            owner: &context.owner,
            pools: &context.chosen.usable,
            blocks: &blocks,
            reserved: &context.facts.reserved,
            cooldown_seconds: settings.config.ip_cooldown_seconds,
            now: self.clock.now(),
        });
        let reclaimable = match found {
            Found::Free(cidr) | Found::Ours(cidr) => return Ok(cidr),
            Found::Reclaimable(blocks) => blocks,
        };
        for block in reclaimable {
            match self.reclaim(&block, settings).await {
                Ok(()) => return Ok(block.cidr),
                Err(error) => {
                    tracing::warn!(cidr = %block.cidr, %error, "this empty block could not be reclaimed");
                }
            }
        }
        Err(Error::NoFreeBlocks)
    }

    /// Has a block for the owner, with or without room.
    pub(crate) async fn have_block(&self, context: &Context) -> Result<IpNet> {
        let reserved = context.host_reserved.as_ref();
        for claim in self.read_claims(&context.owner, context.version).await? {
            let Some(cidr) = claimed(&claim) else { continue };
            if !context.is_usable(&cidr) || context.is_reserved(&cidr) {
                continue;
            }
            let block = self.read(&records::block_key(cidr)).await?;
            if let Secured::Ours { .. } =
                self.secure(cidr, &context.owner, Some(claim), block, reserved).await?
            {
                return Ok(cidr);
            }
        }
        if !context.facts.settings.config.auto_allocate_blocks {
            return Err(Error::NoBlock);
        }
        for attempt in 0..ATTEMPTS {
            self.wait_before(attempt).await;
            let cidr = self.find_block(context, &context.facts.settings, &BTreeSet::new()).await?;
            if let Secured::Ours { .. } = self.secure(cidr, &context.owner, None, None, reserved).await? {
                return Ok(cidr);
            }
        }
        Err(TOO_MANY_ATTEMPTS)
    }

    /// Takes what is still missing from any block of the pools.
    async fn borrow(&self, context: &Context, work: &mut Work<'_>) -> Result<()> {
        let all = self.all_blocks(Some(context.version)).await?;
        let now = self.clock.now();
        let mut exhausted = Vec::new();
        for pool in &context.chosen.usable {
            let ranges = all.readable().map(|(_, block)| block.cidr);
            for cidr in search::borrowing_order(pool, &context.owner.host, ranges, now) {
                if work.is_done() {
                    break;
                }
                let Some(Some(entry)) = all.entries.get(&cidr) else { continue };
                let mut block = records::block(entry)?.clone();
                cooldown::collect(&mut block, work.settings.config.ip_cooldown_seconds, now);
                if context.is_reserved(&cidr) || take::available(&block, &context.facts.reserved) == 0 {
                    continue;
                }
                tracing::info!(%cidr, owner = ?Block::new(&block).affinity(), "borrowing addresses");
                let block = Some(Arc::new(entry.clone()));
                let candidate = Candidate { cidr, claim: None, block, is_fresh: true };
                self.serve_from(context, work, candidate).await?;
            }
            if work.is_done() {
                return Ok(());
            }
            exhausted.push(pool.cidr.to_string());
        }
        work.say(format!("No IPs available in pools: [{}]", exhausted.join(" ")));
        Ok(())
    }

    /// Gives up an empty block of a pool that no longer selects the node. No reason to fail an assignment.
    async fn give_up_unselected(&self, context: &Context, work: &Work<'_>, cidr: IpNet) {
        let enabled = context.facts.pools.iter().filter(|pool| pool.is_enabled);
        let Some(pool) = pools::containing(enabled, cidr.network()) else { return };
        match pool.selects_node(&context.facts.node_labels) {
            Ok(false) => {}
            Ok(true) => return,
            Err(error) => {
                tracing::warn!(%cidr, %error, "whether the block still belongs to the node is not known");
                return;
            }
        }
        let cached = self.cached_block(&cidr);
        let is_used = |entry: &KvPair| records::block(entry).is_ok_and(|block| !Block::new(block).is_empty());
        if cached.as_deref().is_some_and(is_used) {
            return;
        }
        let given_up = self.give_up(cidr, &context.owner, true, None, &work.settings.config).await;
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
