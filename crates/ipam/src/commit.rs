//! One write of a block, with everything that belongs to it.
//!
//! Taking addresses changes a block, and a handle for each holder. On stores with transactions (etcd, the embedded
//! store) all of it is one write, conditional on every revision involved: no intermediate state is visible. Elsewhere
//! the handles are counted up first and the block is written last, as Calico does on all stores; the stored records are
//! the same in both cases.

use crate::error::{Error, Result, TOO_MANY_ATTEMPTS};
use crate::handles::{HandleCounts, Handles, is_lost};
use crate::store::{IpamStore, Settings};
use datastore::{Batch, Write};
use ipam_core::retry::ATTEMPTS;
use ipnet::IpNet;
use model::{HandleId, Key, KvPair};
use std::collections::BTreeMap;

/// The change of a block.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "lives for one call and is never kept")]
pub(crate) enum BlockWrite {
    /// The block changes.
    Update(KvPair),
    /// The block is new, and so is the claim on it.
    Create {
        /// The claim, confirmed.
        claim: KvPair,
        block: KvPair,
    },
}

/// The outcome of a write.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "lives for one call and is never kept")]
pub(crate) enum Committed {
    /// Everything is written.
    Done {
        block: KvPair,
        /// The claim, if it was created.
        claim: Option<KvPair>,
    },
    /// The block has changed. Holds its new state, if known.
    BlockChanged(Option<KvPair>),
    /// The settings have changed.
    SettingsChanged,
    /// This store cannot create a block and its claim in one step.
    Unsupported,
}

/// Writes blocks with everything that belongs to them.
#[derive(Clone, Copy)]
pub(crate) struct BlockWriter<'a>(pub(crate) &'a IpamStore);

impl BlockWriter<'_> {
    /// Writes a block from which addresses were taken, and counts up the handles.
    pub(crate) async fn commit(
        &self,
        cidr: IpNet,
        write: BlockWrite,
        handles: &mut Handles,
        counts: &BTreeMap<HandleId, i64>,
        settings: &Settings,
    ) -> Result<Committed> {
        let is_new = matches!(write, BlockWrite::Create { .. });
        let mut writes = match write {
            BlockWrite::Update(block) => vec![Write::Update(block)],
            BlockWrite::Create { claim, block } => vec![Write::Create(block), Write::Create(claim)],
        };
        if settings.is_cached {
            writes.push(Write::Unchanged { key: Key::IpamConfig, revision: settings.revision.clone() });
        }
        let own = writes.len();
        for attempt in 0..ATTEMPTS {
            self.0.wait_before(attempt).await;
            writes.truncate(own);
            for (handle, count) in counts {
                writes.push(handles.count_up(handle, cidr, *count)?);
            }
            let current = match self.0.backend.write_all(&writes).await? {
                Batch::Done(stored) => {
                    let mut stored = stored.into_iter();
                    let Some(Some(block)) = stored.next() else { return Err(TOO_MANY_ATTEMPTS) };
                    let rest: Vec<Option<KvPair>> = stored.by_ref().take(own - 1).collect();
                    let claim = rest.into_iter().next().flatten();
                    for (handle, entry) in counts.keys().zip(stored) {
                        handles.learn(handle, entry);
                    }
                    return Ok(Committed::Done { block, claim });
                }
                Batch::Conflict(current) => current,
                Batch::Unsupported => {
                    return match writes.first() {
                        Some(Write::Update(block)) => {
                            self.commit_in_turn(cidr, block, handles, counts, settings).await
                        }
                        _ => Ok(Committed::Unsupported),
                    };
                }
            };
            let lost = |place: usize| !holds(&writes[place], current.get(place).and_then(Option::as_ref));
            if lost(0) {
                return Ok(Committed::BlockChanged(current.into_iter().next().flatten()));
            }
            if is_new && lost(1) {
                return Ok(Committed::BlockChanged(None));
            }
            if settings.is_cached && lost(own - 1) {
                return Ok(Committed::SettingsChanged);
            }
            for (handle, entry) in counts.keys().zip(current.into_iter().skip(own)) {
                handles.learn(handle, entry);
            }
        }
        Err(TOO_MANY_ATTEMPTS)
    }

    /// Does the same on a store without transactions: handles first, then the block. A second attempt counts up again:
    /// the process that made the first one fail may have been releasing the very handle, and must notice that it
    /// changed.
    async fn commit_in_turn(
        &self,
        cidr: IpNet,
        block: &KvPair,
        handles: &mut Handles,
        counts: &BTreeMap<HandleId, i64>,
        settings: &Settings,
    ) -> Result<Committed> {
        let check = async {
            if !settings.is_cached {
                return Ok::<bool, Error>(true);
            }
            Ok(self.0.read_settings().await?.revision == settings.revision)
        };
        let handle_counts = HandleCounts(self.0);
        let (counted, unchanged) = futures::join!(handle_counts.count_up(handles, cidr, counts), check);
        counted?;
        if !unchanged? {
            return Ok(Committed::SettingsChanged);
        }
        match self.0.backend.update(block).await {
            Ok(stored) => {
                handles.use_surplus(counts, cidr);
                Ok(Committed::Done { block: stored, claim: None })
            }
            Err(error) if is_lost(&error) => Ok(Committed::BlockChanged(self.0.read(&block.key).await?)),
            Err(error) => {
                handles.doubt(counts);
                Err(error.into())
            }
        }
    }
}

/// Whether the condition of a write holds for the current entry.
pub(crate) fn holds(write: &Write, current: Option<&KvPair>) -> bool {
    match write {
        Write::Create(_) | Write::Unchanged { revision: None, .. } => current.is_none(),
        Write::Update(KvPair { revision, .. })
        | Write::Delete(KvPair { revision, .. })
        | Write::Unchanged { revision: Some(revision), .. } => {
            current.is_some_and(|current| current.revision == *revision)
        }
    }
}
