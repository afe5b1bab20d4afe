//! Serves a request for addresses: facts, pools, both IP versions, and cleaning up when one of them fails.

use crate::assign::{Context, find_taken};
use crate::error::{Error, Result, TOO_MANY_ATTEMPTS};
use crate::find_block::BlockSearch;
use crate::handles::is_lost;
use crate::lane::LaneKey;
use crate::records::{self, block_key, handle_key, with_block};
use crate::release::Releases;
use crate::request::{Assigned, AutoAssign, EnsureBlock, Shortfall, WindowsReservation};
use crate::store::{Facts, IpamStore};
use ipam_core::assignment::{Attempt, Job};
use ipam_core::block::advance;
use ipam_core::pools::{self, Labels, Wanted};
use ipam_core::retry::{ATTEMPTS, is_repair_due};
use ipam_core::{Holder, IntendedUse, Owner, Release, handle};
use ipnet::IpNet;
use model::IpVersion;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// The part of a request that is about one IP version.
struct Part<'a> {
    version: IpVersion,
    count: usize,
    requested: &'a [IpNet],
    reserved: Option<&'a WindowsReservation>,
}

impl<'a> Part<'a> {
    fn new(
        version: IpVersion,
        count: usize,
        requested: &'a [IpNet],
        reserved: Option<&'a WindowsReservation>,
    ) -> Self {
        Self { version, count, requested, reserved }
    }
}

/// Requests for any addresses, as opposed to specific ones.
#[derive(Clone, Copy)]
pub(crate) struct AnyAddress<'a>(pub(crate) &'a IpamStore);

impl AnyAddress<'_> {
    pub(crate) async fn auto_assign(&self, request: &AutoAssign, ahead: Option<Facts>) -> Result<Assigned> {
        let owner = request.intended_use.owner(&request.host);
        let AutoAssign { num4, num6, ipv4_pools, ipv6_pools, host_reserved, host_reserved6, .. } = request;
        let parts = [
            Part::new(IpVersion::V4, *num4, ipv4_pools, host_reserved.as_ref()),
            Part::new(IpVersion::V6, *num6, ipv6_pools, host_reserved6.as_ref()),
        ];
        let mut assigned = Assigned::default();
        if parts.iter().all(|part| part.count == 0) {
            return Ok(assigned);
        }
        let versions: Vec<IpVersion> =
            parts.iter().filter(|part| part.count > 0).map(|part| part.version).collect();
        let facts = match ahead.filter(|facts| facts.owner == owner) {
            Some(facts) => facts,
            None => self.0.facts(&owner, &versions).await?,
        };
        let holder = Holder { handle: request.handle.clone(), attributes: request.attributes.clone() };
        let mut taken = Vec::new();
        let mut handle_entry = None;
        for part in parts.iter().filter(|part| part.count > 0) {
            let job = Job {
                count: part.count,
                holder: holder.clone(),
                limit: request.max_per_handle,
                handle_entry,
                ..Job::default()
            };
            let (job, outcome) = self.assign_part(request, &owner, &facts, part, job).await;
            let messages = match outcome {
                Ok(messages) => messages,
                Err(error) => {
                    taken.extend(&job.got);
                    self.undo(job, taken).await;
                    return Err(error);
                }
            };
            if job.got.len() < part.count {
                assigned.shortfalls.push(Shortfall {
                    version: part.version,
                    requested: part.count,
                    assigned: job.got.len(),
                    messages,
                    host_reserved: part.reserved.map(|reserved| reserved.handle.clone()),
                });
            }
            handle_entry = job.handle_entry;
            if !job.is_adopted {
                taken.extend(&job.got);
            }
            match part.version {
                IpVersion::V4 => assigned.ipv4 = job.got,
                IpVersion::V6 => assigned.ipv6 = job.got,
            }
        }
        Ok(assigned)
    }

    async fn assign_part(
        &self,
        request: &AutoAssign,
        owner: &Owner,
        facts: &Facts,
        part: &Part<'_>,
        job: Job,
    ) -> (Job, Result<Vec<String>>) {
        let namespace = request.namespace.as_ref().map(|namespace| &namespace.labels);
        let context =
            self.context(owner, facts, part, request.intended_use, namespace, request.max_blocks_per_host);
        let (key, context) = match context {
            Ok(context) => context,
            Err(error) => return (job, Err(error)),
        };
        if job.limit > 0 && job.holder.handle.is_some() {
            return self.serve_limited(&key, job, context, part.version).await;
        }
        self.0.lanes.serve(self.0, &key, job, context).await
    }

    fn context(
        &self,
        owner: &Owner,
        facts: &Facts,
        part: &Part<'_>,
        intended_use: IntendedUse,
        namespace: Option<&Labels>,
        max_blocks: u32,
    ) -> Result<(LaneKey, Arc<Context>)> {
        let longest = pools::longest_prefix(part.version);
        let max_block_size = match part.reserved {
            Some(reserved) => reserved.max_block_size(part.version).ok_or(Error::BadHostReserved)?,
            None => longest,
        };
        let chosen = pools::choose(
            &facts.pools,
            &Wanted {
                host: &owner.host,
                version: part.version,
                requested: part.requested,
                intended_use,
                node_labels: &facts.node_labels,
                namespace_labels: namespace.unwrap_or(&Labels::new()),
                max_block_size,
            },
        )?;
        let key = LaneKey {
            owner: owner.clone(),
            version: part.version,
            pools: chosen.usable.iter().map(|pool| pool.name.clone()).collect(),
            max_blocks,
            host_reserved: part.reserved.cloned(),
        };
        let context = Context {
            owner: owner.clone(),
            version: part.version,
            chosen,
            facts: facts.clone(),
            max_blocks,
            host_reserved: part.reserved.cloned(),
        };
        Ok((key, Arc::new(context)))
    }

    /// Serves a request whose handle may have a limited number of addresses: if it has them already, they are the
    /// answer.
    async fn serve_limited(
        &self,
        key: &LaneKey,
        mut job: Job,
        context: Arc<Context>,
        version: IpVersion,
    ) -> (Job, Result<Vec<String>>) {
        for attempt in 0..ATTEMPTS {
            self.0.wait_before(attempt).await;
            match self.adopt(&mut job, version).await {
                Ok(true) => return (job, Ok(Vec::new())),
                Ok(false) => {}
                Err(Error::HandleFull { .. }) => {
                    if is_repair_due(attempt)
                        && let Some(handle) = &job.holder.handle
                        && let Err(error) = Releases(self.0).drop_unfounded(handle).await
                    {
                        return (job, Err(error));
                    }
                    continue;
                }
                Err(error) => return (job, Err(error)),
            }
            let (served, outcome) = self.0.lanes.serve(self.0, key, job, Arc::clone(&context)).await;
            job = served;
            match outcome {
                Err(Error::HandleFull { .. }) => {}
                outcome => return (job, outcome),
            }
        }
        (job, Err(TOO_MANY_ATTEMPTS))
    }

    /// Looks up the handle's addresses. True if the job needs no more.
    ///
    /// # Errors
    /// [`Error::HandleFull`] when the handle counts more addresses than can be found: another process is just taking
    /// them.
    async fn adopt(&self, job: &mut Job, version: IpVersion) -> Result<bool> {
        let Some(id) = job.holder.handle.clone() else { return Ok(false) };
        job.handle_entry = self.0.read(&handle_key(&id)).await?;
        let Some(entry) = &job.handle_entry else { return Ok(false) };
        let record = records::handle(entry)?;
        let wanted = i64::try_from(job.count).unwrap_or(i64::MAX);
        if handle::has_room(Some(record), version, wanted, job.limit) {
            return Ok(false);
        }
        let count = handle::total(record, version);
        let addresses = Releases(self.0).addresses_of(entry, &id).await?;
        let is_wanted = |address: &IpAddr| IpVersion::of(&IpNet::from(*address)) == version;
        let found: Vec<IpNet> =
            addresses.into_iter().filter(is_wanted).map(IpNet::from).take(job.count).collect();
        if found.len() < job.count {
            return Err(Error::HandleFull { handle: id, count, limit: job.limit });
        }
        job.got = found;
        job.is_adopted = true;
        Ok(true)
    }

    /// Gives back what a request took that eventually failed. Best effort: the caller will release the handle.
    pub(crate) async fn undo(&self, mut job: Job, taken: Vec<IpNet>) {
        (job.got, job.count) = (taken, usize::MAX);
        let attempted: BTreeSet<IpNet> = job.attempted.iter().map(Attempt::block).collect();
        if let Err(error) = find_taken(self.0, &mut job).await {
            tracing::warn!(holder = ?job.holder, %error, "the addresses taken by a failed request are unknown");
        }
        let handle = &job.holder.handle;
        let release =
            |net: &IpNet| Release { address: net.addr(), handle: handle.clone(), sequence_number: None };
        let releases: Vec<Release> = job.got.iter().map(release).collect();
        let mut outcome = match Releases(self.0).release_ips(&releases).await {
            Ok(outcome) => outcome.failure.map_or(Ok(()), Err),
            Err(error) => Err(error),
        };
        // A write that is still in progress must not take effect any more.
        for cidr in attempted {
            outcome = outcome.and(self.fence(cidr).await);
        }
        if let Err(error) = outcome {
            tracing::warn!(holder = ?job.holder, %error, "the addresses taken by a failed request were not given back");
        }
    }

    /// Writes a block unchanged, so that no write based on its old revision can succeed.
    async fn fence(&self, cidr: IpNet) -> Result<()> {
        let Some(entry) = self.0.read(&block_key(cidr)).await? else { return Ok(()) };
        let mut block = records::block(&entry)?.clone();
        advance(&mut block);
        self.0.remember_block(cidr, None);
        match self.0.backend.update(&with_block(&entry, block)).await {
            Err(error) if !is_lost(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    pub(crate) async fn ensure_block(&self, request: &EnsureBlock) -> Result<(Option<IpNet>, Option<IpNet>)> {
        let owner = IntendedUse::Workload.owner(&request.host);
        let facts = self.0.facts(&owner, &[]).await?;
        let mut blocks = (None, None);
        if let reserved @ Some(_) = request.host_reserved.as_ref() {
            let part = Part::new(IpVersion::V4, 0, &request.ipv4_pools, reserved);
            blocks.0 = Some(self.ensure_part(&owner, &facts, &part).await?);
        }
        if let reserved @ Some(_) = request.host_reserved6.as_ref() {
            let part = Part::new(IpVersion::V6, 0, &request.ipv6_pools, reserved);
            blocks.1 = Some(self.ensure_part(&owner, &facts, &part).await?);
        }
        Ok(blocks)
    }

    async fn ensure_part(&self, owner: &Owner, facts: &Facts, part: &Part<'_>) -> Result<IpNet> {
        let (_, context) = self.context(owner, facts, part, IntendedUse::Workload, None, 0)?;
        BlockSearch { store: self.0, context: &context }.have().await
    }
}
