//! Handles: counted up before addresses are taken, counted down after they are released.
//!
//! On stores with transactions the counts change together with the block ([`crate::commit`]). Elsewhere the count
//! changes first and may be too high after a crash; it is never too low. Addresses that were counted but then not taken
//! are kept as surplus and subtracted in the end.
//!
//! Subtracting is the delicate part: another process working on the same handle (a release, a second request) may have
//! subtracted it already, and then the count would be too low. So a handle is only counted down at the revision that is
//! known to include the count. If that revision is lost, [`HandleCounts::reconcile`] makes the handle match the block.

use crate::error::{Error, Result, TOO_MANY_ATTEMPTS};
use crate::records::{self, block_key, existing, handle_key, with_block};
use crate::store::IpamStore;
use datastore::Write;
use futures::StreamExt as _;
use ipam_core::block::advance;
use ipam_core::retry::ATTEMPTS;
use ipam_core::{Block, handle};
use ipnet::IpNet;
use model::{HandleId, IpVersion, IpamHandle, KvPair, Value};
use std::collections::{BTreeMap, BTreeSet};

/// How many handles are processed concurrently.
const AT_ONCE: usize = 16;

/// The changes of a handle: the difference for each block.
pub(crate) type Changes = BTreeMap<IpNet, i64>;

/// What is known about handles during one operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handles {
    /// Handles as stored. A handle that is missing here is assumed to be new, until the store reports otherwise.
    known: BTreeMap<HandleId, KvPair>,
    /// The maximum number of addresses of each handle, if limited.
    limits: BTreeMap<HandleId, usize>,
    /// Addresses that are counted in the store but were not taken.
    surplus: BTreeMap<HandleId, Changes>,
    /// Handles whose surplus may already be subtracted, or may still be used.
    doubtful: BTreeSet<HandleId>,
}

impl Handles {
    /// Remembers a handle as stored.
    pub(crate) fn learn(&mut self, handle: &HandleId, entry: Option<KvPair>) {
        match entry {
            Some(entry) => drop(self.known.insert(handle.clone(), entry)),
            None => drop(self.known.remove(handle)),
        }
    }

    /// The handle as stored, if known.
    pub(crate) fn known(&self, handle: &HandleId) -> Option<&KvPair> {
        self.known.get(handle)
    }

    /// Limits the number of addresses of each IP version.
    pub(crate) fn limit(&mut self, handle: &HandleId, limit: usize) {
        self.limits.insert(handle.clone(), limit);
    }

    fn add_surplus(&mut self, handle: &HandleId, cidr: IpNet, count: i64) {
        *self.surplus.entry(handle.clone()).or_default().entry(cidr).or_default() += count;
    }

    /// Marks that a write may or may not have happened: the state of these handles is unknown.
    pub(crate) fn doubt(&mut self, counts: &BTreeMap<HandleId, i64>) {
        self.doubtful.extend(counts.keys().cloned());
    }

    /// Records that counted addresses have now been taken.
    pub(crate) fn use_surplus(&mut self, counts: &BTreeMap<HandleId, i64>, cidr: IpNet) {
        for (handle, count) in counts {
            self.add_surplus(handle, cidr, -count);
        }
    }

    /// The write that counts up a handle.
    ///
    /// # Errors
    /// [`Error::HandleFull`] when it may not have that many addresses.
    pub(crate) fn count_up(&self, handle: &HandleId, cidr: IpNet, count: i64) -> Result<Write> {
        let entry = self.known.get(handle);
        if let Some(limit) = self.limits.get(handle) {
            let (record, version) = (entry.map(records::handle).transpose()?, IpVersion::of(&cidr));
            if !handle::has_room(record, version, count, *limit) {
                let has = record.map_or(0, |record| handle::total(record, version));
                return Err(Error::HandleFull { handle: handle.clone(), count: has, limit: *limit });
            }
        }
        let write = changed(handle, entry, &[(cidr, count)].into())?;
        write.ok_or_else(|| Error::does_not_exist(&handle_key(handle), "nothing to count"))
    }
}

/// The write that changes a handle; `None` when there is nothing to do. An empty handle is deleted.
pub(crate) fn changed(handle: &HandleId, entry: Option<&KvPair>, changes: &Changes) -> Result<Option<Write>> {
    let mut record = match entry {
        Some(entry) => records::handle(entry)?.clone(),
        None => IpamHandle { handle_id: handle.clone(), ..IpamHandle::default() },
    };
    for (cidr, change) in changes {
        if *change >= 0 {
            handle::increment(&mut record, cidr, *change);
        } else {
            let missing = handle::decrement(&mut record, cidr, change.saturating_neg());
            if missing > 0 && entry.is_some() {
                tracing::warn!(%handle, %cidr, missing, "the handle had counted fewer addresses than were released");
            }
        }
    }
    Ok(match (entry, handle::is_empty(&record)) {
        (None, true) => None,
        (None, false) => Some(Write::Create(KvPair::new(handle_key(handle), Value::IpamHandle(record)))),
        (Some(entry), true) => Some(Write::Delete(entry.clone())),
        (Some(entry), false) => {
            Some(Write::Update(KvPair { value: Value::IpamHandle(record), ..entry.clone() }))
        }
    })
}

/// The counts of handles in the store.
#[derive(Clone, Copy)]
pub(crate) struct HandleCounts<'a>(pub(crate) &'a IpamStore);

impl HandleCounts<'_> {
    /// Counts up handles, one write each, and records the counts as surplus until the addresses have been taken.
    pub(crate) async fn count_up(
        &self,
        handles: &mut Handles,
        cidr: IpNet,
        counts: &BTreeMap<HandleId, i64>,
    ) -> Result<()> {
        let writes: Vec<_> = counts
            .iter()
            .map(|(handle, count)| self.count_up_one(handles.clone(), handle, cidr, *count))
            .collect();
        let outcomes: Vec<Result<(KvPair, bool)>> =
            futures::stream::iter(writes).buffered(AT_ONCE).collect().await;
        let mut failure = None;
        for ((handle, count), outcome) in counts.iter().zip(outcomes) {
            match outcome {
                Ok((entry, was_lost)) => {
                    if was_lost && handles.surplus.contains_key(handle) {
                        handles.doubtful.insert(handle.clone());
                    }
                    handles.learn(handle, Some(entry));
                    handles.add_surplus(handle, cidr, *count);
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Counts up one handle. Also detects whether another process had changed it.
    async fn count_up_one(
        &self,
        mut known: Handles,
        handle: &HandleId,
        cidr: IpNet,
        count: i64,
    ) -> Result<(KvPair, bool)> {
        for attempt in 0..ATTEMPTS {
            self.0.wait_before(attempt).await;
            let outcome = match known.count_up(handle, cidr, count)? {
                Write::Create(entry) => self.0.backend.create(&entry).await,
                Write::Update(entry) => self.0.backend.update(&entry).await,
                Write::Delete(_) | Write::Unchanged { .. } => return Err(TOO_MANY_ATTEMPTS),
            };
            match outcome {
                Err(error) if is_lost(&error) => known.learn(handle, self.0.read(&handle_key(handle)).await?),
                outcome => return Ok((outcome?, attempt > 0)),
            }
        }
        Err(TOO_MANY_ATTEMPTS)
    }

    /// Counts down handles as they were read before the addresses were released. Too high a count is tolerable, so
    /// failures are only logged.
    pub(crate) async fn count_down(&self, downs: Vec<(HandleId, Option<KvPair>, Changes)>) {
        let writes: Vec<_> = downs
            .iter()
            .map(|(handle, entry, changes)| self.count_down_one(handle, entry.as_ref(), changes))
            .collect();
        let outcomes: Vec<Result<()>> = futures::stream::iter(writes).buffered(AT_ONCE).collect().await;
        for ((handle, ..), outcome) in downs.iter().zip(outcomes) {
            if let Err(error) = outcome {
                tracing::warn!(%handle, %error, "the handle counts addresses that it does not have");
            }
        }
    }

    async fn count_down_one(
        &self,
        handle: &HandleId,
        entry: Option<&KvPair>,
        changes: &Changes,
    ) -> Result<()> {
        let Some(entry) = entry else { return Ok(()) };
        let outcome = match changed(handle, Some(entry), changes)? {
            Some(Write::Delete(entry)) => self.0.backend.delete_entry(&entry).await,
            Some(Write::Update(entry)) => self.0.backend.update(&entry).await,
            _ => return Ok(()),
        };
        match outcome {
            Err(error) if is_lost(&error) => {
                for cidr in changes.keys() {
                    self.reconcile(handle, *cidr).await?;
                }
                Ok(())
            }
            outcome => Ok(outcome.map(|_| ())?),
        }
    }

    /// Corrects a handle that counts more addresses of a block than it has there. A process that has counted up and is
    /// about to write the block will notice the change, and count up again.
    pub(crate) async fn reconcile(&self, handle: &HandleId, cidr: IpNet) -> Result<()> {
        for attempt in 0..ATTEMPTS {
            self.0.wait_before(attempt).await;
            let Some(entry) = self.0.read(&handle_key(handle)).await? else { return Ok(()) };
            let counted = records::handle(&entry)?.block.get(&cidr.to_string()).copied().unwrap_or_default();
            let block = self.0.read(&block_key(cidr)).await?;
            let has = match &block {
                Some(block) => Block::new(records::block(block)?).addresses_of(handle).count(),
                None => 0,
            };
            let surplus = counted.saturating_sub(i64::try_from(has).unwrap_or(i64::MAX));
            if surplus <= 0 {
                // Handle and block are read in turn: a process that counted up and took addresses in between would hide
                // a surplus. Only a handle that has not changed in the meantime proves that there is none.
                match self.0.read(&handle_key(handle)).await? {
                    Some(now) if now.revision != entry.revision => continue,
                    _ => return Ok(()),
                }
            }
            if let Some(block) = block {
                let mut record = records::block(&block)?.clone();
                advance(&mut record);
                self.0.remember_block(cidr, None);
                match self.0.backend.update(&with_block(&block, record)).await {
                    Err(error) if is_lost(&error) => continue,
                    outcome => drop(outcome?),
                }
            }
            let outcome = match changed(handle, Some(&entry), &[(cidr, -surplus)].into())? {
                Some(Write::Delete(entry)) => self.0.backend.delete_entry(&entry).await,
                Some(Write::Update(entry)) => self.0.backend.update(&entry).await,
                _ => return Ok(()),
            };
            match outcome {
                Err(error) if error.is_conflict() => {}
                outcome => return existing(outcome).map(|_| ()).map_err(Error::from),
            }
        }
        Err(TOO_MANY_ATTEMPTS)
    }

    /// Subtracts what was counted but not taken.
    pub(crate) async fn settle(&self, handles: &mut Handles) {
        let doubtful = std::mem::take(&mut handles.doubtful);
        let mut downs = Vec::new();
        for (handle, surplus) in std::mem::take(&mut handles.surplus) {
            let changes: Changes = surplus
                .into_iter()
                .filter(|(_, count)| *count > 0)
                .map(|(cidr, count)| (cidr, -count))
                .collect();
            if changes.is_empty() {
                continue;
            }
            let entry = handles.known.remove(&handle);
            if !doubtful.contains(&handle) {
                downs.push((handle, entry, changes));
                continue;
            }
            for cidr in changes.into_keys() {
                if let Err(error) = self.reconcile(&handle, cidr).await {
                    tracing::warn!(%handle, %error, "the handle counts addresses that it does not have");
                }
            }
        }
        self.count_down(downs).await;
    }
}

/// Whether a write lost against a concurrent one.
pub(crate) fn is_lost(error: &datastore::Error) -> bool {
    error.is_conflict() || error.is_does_not_exist() || error.is_already_exists()
}
