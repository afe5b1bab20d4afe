//! Makes claims on blocks, and gives them up. `ipam_core::claim` decides what to write next.

use crate::error::{Error, Result, TOO_MANY_ATTEMPTS};
use crate::handles::is_lost;
use crate::records::{self, block_key, claim_key, existing, with_block, with_state};
use crate::store::{IpamStore, Settings};
use api::BlockAffinityState::{Confirmed, Pending, PendingDeletion};
use datastore::{Batch, Write};
use ipam_core::block::advance;
use ipam_core::claim::{self, Disposal, KeepRefused, Step};
use ipam_core::retry::ATTEMPTS;
use ipam_core::search::Reclaimable;
use ipam_core::{Block, HostReserved, Owner, cooldown, take};
use ipnet::IpNet;
use model::{IpamConfig, KvPair};
use std::sync::Arc;

/// The outcome of claiming a block.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "lives for one call and is never kept")]
pub(crate) enum Secured {
    /// The claim is confirmed and the block is the owner's.
    Ours { claim: KvPair, block: KvPair },
    /// Another owner has the block; the claim is gone.
    Lost,
}

/// Makes and gives up claims on blocks.
#[derive(Clone, Copy)]
pub(crate) struct Claims<'a>(pub(crate) &'a IpamStore);

impl Claims<'_> {
    /// Completes a claim, whatever is stored: `claim` and `block` are what the caller has just read.
    pub(crate) async fn secure(
        &self,
        cidr: IpNet,
        owner: &Owner,
        mut claim: Option<KvPair>,
        mut block: Option<KvPair>,
        reserved: Option<&HostReserved>,
    ) -> Result<Secured> {
        let mut is_written = false;
        let mut attempt = 0;
        while attempt < ATTEMPTS {
            let state = claim.as_ref().map(records::state).transpose()?;
            let record = block.as_ref().map(records::block).transpose()?;
            let step = claim::next(state, record, owner, is_written);
            let outcome = match (step, &claim, &block) {
                (Step::CreateClaim, ..) => {
                    let new = records::new_claim(owner, cidr, Pending);
                    self.0.backend.create(&new).await.map(|entry| claim = Some(entry))
                }
                (Step::CreateBlock, ..) => {
                    let new = take::new_block(cidr, owner, reserved, self.0.clock.now());
                    self.0.backend.create(&records::new_block(new)).await.map(|entry| {
                        block = Some(entry);
                        is_written = true;
                    })
                }
                (Step::MarkPending, Some(entry), _) => {
                    is_written = false;
                    self.0.backend.update(&with_state(entry, Pending)).await.map(|entry| claim = Some(entry))
                }
                (Step::RewriteBlock, _, Some(entry)) => {
                    let mut record = records::block(entry)?.clone();
                    advance(&mut record);
                    self.0.backend.update(&with_block(entry, record)).await.map(|entry| {
                        block = Some(entry);
                        is_written = true;
                    })
                }
                (Step::Confirm, Some(entry), _) => self
                    .0
                    .backend
                    .update(&with_state(entry, Confirmed))
                    .await
                    .map(|entry| claim = Some(entry)),
                (Step::GiveWay, Some(entry), _) => {
                    // A failure here leaves a stale claim, which its next user will notice.
                    let deleted = self.0.backend.delete_entry(entry).await;
                    if let Err(error) = existing(deleted) {
                        tracing::warn!(%cidr, %owner, %error, "could not delete a stale claim on another owner's block");
                    }
                    self.forget_claim(owner, cidr);
                    return Ok(Secured::Lost);
                }
                (Step::Use, Some(_), Some(_)) => {
                    let (Some(claim), Some(block)) = (claim, block) else { return Err(TOO_MANY_ATTEMPTS) };
                    self.remember_claim(&claim);
                    return Ok(Secured::Ours { claim, block });
                }
                // The table names only steps for what exists.
                (Step::MarkPending | Step::RewriteBlock | Step::Confirm | Step::GiveWay | Step::Use, ..) => {
                    return Err(TOO_MANY_ATTEMPTS);
                }
            };
            match outcome {
                Ok(()) => {}
                Err(error) if is_lost(&error) => {
                    attempt += 1;
                    self.0.wait_before(attempt).await;
                    (claim, block) = match self.read_claim_and_block(owner, cidr).await {
                        Err(error @ Error::Datastore(datastore::Error::Parse { .. })) => {
                            // A block that cannot be read cannot be had.
                            self.withdraw(owner, cidr).await;
                            return Err(error);
                        }
                        outcome => outcome?,
                    };
                    is_written = false;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(TOO_MANY_ATTEMPTS)
    }

    /// Deletes a claim on an unreadable block.
    async fn withdraw(&self, owner: &Owner, cidr: IpNet) {
        let deleted = match self.0.read(&claim_key(owner, cidr)).await {
            Ok(Some(claim)) => existing(self.0.backend.delete_entry(&claim).await).map_err(Error::from),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        if let Err(error) = deleted {
            tracing::warn!(%cidr, %owner, %error, "a claim on a block that cannot be read was not deleted");
        }
        self.forget_claim(owner, cidr);
    }

    async fn read_claim_and_block(
        &self,
        owner: &Owner,
        cidr: IpNet,
    ) -> Result<(Option<KvPair>, Option<KvPair>)> {
        let (claim_key, block_key) = (claim_key(owner, cidr), block_key(cidr));
        let (claim, block) = futures::join!(self.0.read(&claim_key), self.0.read(&block_key));
        Ok((claim?, block?))
    }

    /// Gives up a claim; retries when it lost against a concurrent write.
    ///
    /// # Errors
    /// [`Error::KeepRefused`]; [`Error::DoesNotExist`] when there is no claim, or no block (then only the claim is gone).
    pub(crate) async fn give_up(
        &self,
        cidr: IpNet,
        owner: &Owner,
        must_be_empty: bool,
        sequence_number: Option<u64>,
        config: &IpamConfig,
    ) -> Result<()> {
        for attempt in 0..ATTEMPTS {
            self.0.wait_before(attempt).await;
            match self.try_give_up(cidr, owner, must_be_empty, sequence_number, config).await {
                Err(Error::Datastore(error)) if error.is_conflict() => {}
                outcome => return outcome,
            }
        }
        Err(TOO_MANY_ATTEMPTS)
    }

    async fn try_give_up(
        &self,
        cidr: IpNet,
        owner: &Owner,
        must_be_empty: bool,
        sequence_number: Option<u64>,
        config: &IpamConfig,
    ) -> Result<()> {
        let (claim, block) = self.read_claim_and_block(owner, cidr).await?;
        let Some(claim) = claim else {
            return Err(Error::does_not_exist(&claim_key(owner, cidr), ""));
        };
        let Some(entry) = block else {
            // A claim on a block that does not exist: left by a process that stopped halfway.
            existing(self.0.backend.delete_entry(&claim).await)?;
            self.forget_claim(owner, cidr);
            return Ok(());
        };
        let mut block = records::block(&entry)?.clone();
        cooldown::collect(&mut block, config.ip_cooldown_seconds, self.0.clock.now());
        let disposal = match claim::give_up(&block, owner, must_be_empty, sequence_number) {
            Ok(disposal) => disposal,
            Err(refused @ KeepRefused::Claimed { .. }) => {
                if let Err(error) = existing(self.0.backend.delete_entry(&claim).await) {
                    tracing::warn!(%cidr, %owner, %error, "could not delete a stale claim on another owner's block");
                }
                self.forget_claim(owner, cidr);
                return Err(refused.into());
            }
            Err(refused) => {
                self.0.remember_block(cidr, Some(Arc::new(entry)));
                return Err(refused.into());
            }
        };
        self.0.remember_block(cidr, None);
        let write = match disposal {
            Disposal::Delete => Write::Delete(entry.clone()),
            Disposal::Disown(block) => Write::Update(with_block(&entry, *block)),
            Disposal::Keep => {
                Write::Unchanged { key: entry.key.clone(), revision: Some(entry.revision.clone()) }
            }
        };
        match self.0.backend.write_all(&[write.clone(), Write::Delete(claim.clone())]).await? {
            Batch::Done(_) => {}
            Batch::Conflict(_) => {
                return Err(
                    datastore::Error::UpdateConflict { key: entry.key.to_string(), existing: None }.into()
                );
            }
            Batch::Unsupported => {
                let claim = self.0.backend.update(&with_state(&claim, PendingDeletion)).await?;
                match write {
                    Write::Update(block) | Write::Create(block) => drop(self.0.backend.update(&block).await?),
                    Write::Delete(block) => drop(existing(self.0.backend.delete_entry(&block).await)?),
                    Write::Unchanged { .. } => {}
                }
                existing(self.0.backend.delete_entry(&claim).await)?;
            }
        }
        self.forget_claim(owner, cidr);
        Ok(())
    }

    /// Takes an empty block from its owner. What was read of it must still be true.
    pub(crate) async fn reclaim(&self, found: &Reclaimable, settings: &Settings) -> Result<()> {
        let Reclaimable { cidr, owner, sequence_number } = found;
        if let Some(owner) = owner {
            return match self.give_up(*cidr, owner, true, Some(*sequence_number), &settings.config).await {
                // The block names its owner, but there is no claim: it can be deleted as it is.
                Err(Error::DoesNotExist { .. }) => self.delete_empty(*cidr, *sequence_number).await,
                outcome => outcome,
            };
        }
        self.delete_empty(*cidr, *sequence_number).await
    }

    async fn delete_empty(&self, cidr: IpNet, sequence_number: u64) -> Result<()> {
        let Some(entry) = self.0.read(&block_key(cidr)).await? else { return Ok(()) };
        let block = records::block(&entry)?;
        if block.sequence_number != sequence_number {
            return Err(KeepRefused::Changed(cidr).into());
        }
        let mut rested = block.clone();
        let seconds = match self.0.read_settings().await {
            Ok(settings) => settings.config.ip_cooldown_seconds,
            // The cool-down is unknown: addresses that are resting keep the block.
            Err(Error::Datastore(datastore::Error::Unauthorized { .. })) => i32::MAX,
            Err(error) => return Err(error),
        };
        cooldown::collect(&mut rested, seconds, self.0.clock.now());
        if !Block::new(&rested).is_empty() {
            return Err(KeepRefused::NotEmpty(cidr).into());
        }
        existing(self.0.backend.delete_entry(&entry).await)?;
        Ok(())
    }

    pub(crate) fn remember_claim(&self, claim: &KvPair) {
        self.0.count_claim();
        if let Some(warm) = &self.0.warm {
            warm.remember_claim(claim);
        }
    }

    pub(crate) fn forget_claim(&self, owner: &Owner, cidr: IpNet) {
        if let Some(warm) = &self.0.warm {
            warm.forget_claim(&claim_key(owner, cidr));
        }
    }
}
