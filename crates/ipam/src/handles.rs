//! Handles: counted up before addresses are taken, counted down after they are given back.
//!
//! On stores with transactions that happens together with the write of the block ([`crate::commit`]). Elsewhere the count
//! goes first and may be too high after a crash; it is never too low. What was counted and then not taken is kept as
//! surplus and taken off in the end.

use crate::clock::ATTEMPTS;
use crate::error::{Error, Result, TOO_MANY_ATTEMPTS};
use crate::records::{self, existing, handle_key};
use crate::shared::Shared;
use datastore::Write;
use futures::{StreamExt as _, TryStreamExt as _};
use ipam_core::handle;
use ipnet::IpNet;
use model::{IpVersion, IpamHandle, KvPair, Value};
use std::collections::BTreeMap;

/// How many handles are worked on at once.
const AT_ONCE: usize = 16;

/// How a handle changes: by how much, for each block.
pub(crate) type Changes = BTreeMap<IpNet, i64>;

/// What is known of handles during one piece of work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handles {
    /// Handles as they are stored. One that is not in here is taken to be new, until the store says otherwise.
    known: BTreeMap<String, KvPair>,
    /// How many addresses each may have, where that is limited.
    limits: BTreeMap<String, usize>,
    /// What is counted in the store and was not taken.
    surplus: BTreeMap<String, Changes>,
}

impl Handles {
    /// Remembers a handle as it is stored.
    pub(crate) fn learn(&mut self, handle: &str, entry: Option<KvPair>) {
        match entry {
            Some(entry) => drop(self.known.insert(handle.to_owned(), entry)),
            None => drop(self.known.remove(handle)),
        }
    }

    /// A handle as it is stored, where that is known.
    pub(crate) fn known(&self, handle: &str) -> Option<&KvPair> {
        self.known.get(handle)
    }

    /// Limits the number of addresses of each IP version.
    pub(crate) fn limit(&mut self, handle: &str, limit: usize) {
        self.limits.insert(handle.to_owned(), limit);
    }

    fn add_surplus(&mut self, handle: &str, cidr: IpNet, count: i64) {
        *self.surplus.entry(handle.to_owned()).or_default().entry(cidr).or_default() += count;
    }

    /// Addresses that were counted are now really taken.
    pub(crate) fn use_surplus(&mut self, counts: &BTreeMap<String, i64>, cidr: IpNet) {
        for (handle, count) in counts {
            self.add_surplus(handle, cidr, -count);
        }
    }

    /// The write that counts up a handle.
    ///
    /// # Errors
    /// [`Error::HandleFull`] when it may not have so many.
    pub(crate) fn count_up(&self, handle: &str, cidr: IpNet, count: i64) -> Result<Write> {
        let entry = self.known.get(handle);
        if let Some(limit) = self.limits.get(handle) {
            let has = match entry {
                Some(entry) => handle::total(records::handle(entry)?, IpVersion::of(&cidr)),
                None => 0,
            };
            if has.saturating_add(count) > i64::try_from(*limit).unwrap_or(i64::MAX) {
                return Err(Error::HandleFull { handle: handle.to_owned(), count: has, limit: *limit });
            }
        }
        let write = changed(handle, entry, &[(cidr, count)].into())?;
        write.ok_or_else(|| Error::does_not_exist(handle_key(handle), "nothing to count"))
    }
}

/// The write that changes a handle; `None` when there is nothing to do. A handle that holds nothing is deleted.
pub(crate) fn changed(handle: &str, entry: Option<&KvPair>, changes: &Changes) -> Result<Option<Write>> {
    let mut record = match entry {
        Some(entry) => records::handle(entry)?.clone(),
        None => IpamHandle { handle_id: handle.to_owned(), ..IpamHandle::default() },
    };
    for (cidr, change) in changes {
        if *change >= 0 {
            handle::increment(&mut record, cidr, *change);
        } else {
            let missing = handle::decrement(&mut record, cidr, change.saturating_neg());
            if missing > 0 && entry.is_some() {
                tracing::warn!(handle, %cidr, missing, "the handle had counted fewer addresses than were released");
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

impl Shared {
    /// Counts up handles, one write each, and notes the counts as surplus until the addresses are really taken.
    pub(crate) async fn count_up(
        &self,
        handles: &mut Handles,
        cidr: IpNet,
        counts: &BTreeMap<String, i64>,
    ) -> Result<()> {
        let writes: Vec<_> = counts
            .iter()
            .map(|(handle, count)| self.count_up_one(handles.clone(), handle, cidr, *count))
            .collect();
        let outcomes: Vec<Result<KvPair>> = futures::stream::iter(writes).buffered(AT_ONCE).collect().await;
        let mut failure = None;
        for ((handle, count), outcome) in counts.iter().zip(outcomes) {
            match outcome {
                Ok(entry) => {
                    handles.learn(handle, Some(entry));
                    handles.add_surplus(handle, cidr, *count);
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(()), Err)
    }

    async fn count_up_one(&self, mut known: Handles, handle: &str, cidr: IpNet, count: i64) -> Result<KvPair> {
        for attempt in 0..ATTEMPTS {
            self.wait_before(attempt).await;
            let outcome = match known.count_up(handle, cidr, count)? {
                Write::Create(entry) => self.backend.create(&entry).await,
                Write::Update(entry) => self.backend.update(&entry).await,
                Write::Delete(_) | Write::Unchanged { .. } => return Err(TOO_MANY_ATTEMPTS),
            };
            match outcome {
                Err(error) if is_lost(&error) => known.learn(handle, self.read(&handle_key(handle)).await?),
                outcome => return Ok(outcome?),
            }
        }
        Err(TOO_MANY_ATTEMPTS)
    }

    /// Changes handles, one after the other's write; several at once. A handle that is gone needs no change.
    pub(crate) async fn count_down(&self, changes: BTreeMap<String, Changes>) -> Result<()> {
        let writes: Vec<_> =
            changes.iter().map(|(handle, changes)| self.count_down_one(handle, changes)).collect();
        futures::stream::iter(writes).buffer_unordered(AT_ONCE).try_collect().await
    }

    async fn count_down_one(&self, handle: &str, changes: &Changes) -> Result<()> {
        for attempt in 0..ATTEMPTS {
            self.wait_before(attempt).await;
            let Some(entry) = self.read(&handle_key(handle)).await? else { return Ok(()) };
            let outcome = match changed(handle, Some(&entry), changes)? {
                Some(Write::Delete(entry)) => self.backend.delete_entry(&entry).await,
                Some(Write::Update(entry)) => self.backend.update(&entry).await,
                _ => return Ok(()),
            };
            match outcome {
                Err(error) if error.is_conflict() => {}
                outcome => return existing(outcome).map(|_| ()).map_err(Error::from),
            }
        }
        Err(TOO_MANY_ATTEMPTS)
    }

    /// Takes off what was counted and not taken. Too high a count is tolerable, so trouble is only told.
    pub(crate) async fn settle(&self, handles: &mut Handles) {
        let mut changes = BTreeMap::new();
        for (handle, surplus) in std::mem::take(&mut handles.surplus) {
            let downs: Changes =
                surplus.into_iter().filter(|(_, count)| *count > 0).map(|(cidr, count)| (cidr, -count)).collect();
            if !downs.is_empty() {
                handles.known.remove(&handle);
                changes.insert(handle, downs);
            }
        }
        if !changes.is_empty()
            && let Err(error) = self.count_down(changes).await
        {
            tracing::warn!(%error, "a handle counts addresses that it does not have");
        }
    }
}

/// Whether a write lost against somebody else's.
pub(crate) fn is_lost(error: &datastore::Error) -> bool {
    error.is_conflict() || error.is_does_not_exist() || error.is_already_exists()
}
