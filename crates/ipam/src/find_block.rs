//! Finds blocks for an owner: free ones, or ones that another owner does not use.

use crate::assign::Context;
use crate::claims::{Claims, Secured};
use crate::error::{Error, Result, TOO_MANY_ATTEMPTS};
use crate::records::{self, claimed};
use crate::store::{IpamStore, Settings};
use ipam_core::pools;
use ipam_core::retry::ATTEMPTS;
use ipam_core::search::{self, Found, Search};
use ipnet::IpNet;
use model::AllocationBlock;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy)]
pub(crate) struct BlockSearch<'a> {
    pub(crate) store: &'a IpamStore,
    pub(crate) context: &'a Context,
}

impl BlockSearch<'_> {
    /// Finds a block that the owner can have. Reclaims an empty block of another owner if there is no free one.
    pub(crate) async fn find(&self, settings: &Settings, lost: &BTreeSet<IpNet>) -> Result<IpNet> {
        let all = self.store.all_blocks(Some(self.context.version)).await?;
        let mut blocks: BTreeMap<IpNet, Option<&AllocationBlock>> = all
            .entries
            .iter()
            .map(|(cidr, entry)| (*cidr, entry.as_ref().and_then(|entry| records::block(entry).ok())))
            .collect();
        blocks.extend(lost.iter().map(|cidr| (*cidr, None)));
        let found = search::find(&Search {
            owner: &self.context.owner,
            pools: &self.context.chosen.usable,
            blocks: &blocks,
            reserved: &self.context.facts.reserved,
            cooldown_seconds: settings.config.ip_cooldown_seconds,
            now: self.store.clock.now(),
        });
        let reclaimable = match found {
            Found::Free(cidr) | Found::Ours(cidr) => return Ok(cidr),
            Found::Reclaimable(blocks) => blocks,
        };
        for block in reclaimable {
            match Claims(self.store).reclaim(&block, settings).await {
                Ok(()) => return Ok(block.cidr),
                Err(error) => {
                    tracing::warn!(cidr = %block.cidr, %error, "this empty block could not be reclaimed");
                }
            }
        }
        Err(Error::NoFreeBlocks)
    }

    /// Ensures that the owner has a block, with or without room.
    pub(crate) async fn have(&self) -> Result<IpNet> {
        let reserved = self.context.host_reserved.as_ref();
        for claim in self.store.read_claims(&self.context.owner, self.context.version).await? {
            let Some(cidr) = claimed(&claim) else { continue };
            let is_usable = pools::containing(&self.context.chosen.usable, cidr.network()).is_some();
            if !is_usable || self.context.facts.reserved.covers(&cidr) {
                continue;
            }
            let block = self.store.read(&records::block_key(cidr)).await?;
            if let Secured::Ours { .. } =
                Claims(self.store).secure(cidr, &self.context.owner, Some(claim), block, reserved).await?
            {
                return Ok(cidr);
            }
        }
        if !self.context.facts.settings.config.auto_allocate_blocks {
            return Err(Error::NoBlock);
        }
        for attempt in 0..ATTEMPTS {
            self.store.wait_before(attempt).await;
            let cidr = self.find(&self.context.facts.settings, &BTreeSet::new()).await?;
            if let Secured::Ours { .. } =
                Claims(self.store).secure(cidr, &self.context.owner, None, None, reserved).await?
            {
                return Ok(cidr);
            }
        }
        Err(TOO_MANY_ATTEMPTS)
    }
}
