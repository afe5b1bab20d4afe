//! Finds contradictions between blocks, claims on blocks, and handles, and the repairs that are safe.
//!
//! Safe means: no address changes its holder, no owner loses a block, and nothing that is deleted contains valid
//! information. Leaked addresses are not examined here: that requires knowledge of workloads, and releasing them is a
//! separate decision.
//!
//! Every writer passes through states that look like contradictions (a handle is counted up before the block is
//! written). So a repair may only be carried out when it is due in two readings some time apart, or while there are no
//! writers.

use crate::block::{Block, Owner, is_windows_handle};
use crate::structure;
use api::BlockAffinityState;
use ipnet::IpNet;
use model::{AllocationBlock, BlockAffinityKey, HandleId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// How many addresses one handle holds, by block (as a CIDR).
pub type HandleCounts = BTreeMap<String, i64>;

/// Whether an address that is in use was released under its user: only its resting time is recorded. It will be
/// assigned to the next workload when it has rested. An address with no record at all is a different finding.
#[must_use]
pub fn is_given_up(has_user: bool, rests: impl IntoIterator<Item = bool>) -> bool {
    let mut rests = rests.into_iter().peekable();
    has_user && rests.peek().is_some() && rests.all(|rests| rests)
}

/// All records of address management, at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Records {
    /// The blocks.
    pub blocks: BTreeMap<IpNet, AllocationBlock>,
    /// Blocks that exist but cannot be read.
    pub unreadable_blocks: BTreeSet<IpNet>,
    /// Whether there are blocks of which not even the range can be read.
    pub has_unknown_blocks: bool,
    /// The claims.
    pub claims: BTreeMap<BlockAffinityKey, BlockAffinityState>,
    /// Claims that exist but cannot be read.
    pub unreadable_claims: BTreeSet<BlockAffinityKey>,
    /// The handles.
    pub handles: BTreeMap<HandleId, HandleCounts>,
    /// Handles that exist but cannot be read.
    pub unreadable_handles: BTreeSet<HandleId>,
}

/// A safe change.
#[derive(Clone, Debug, PartialEq)]
pub enum Repair {
    /// Delete a handle that holds nothing.
    DeleteHandle {
        /// The handle.
        handle_id: HandleId,
    },
    /// Make a handle match the blocks; it may be missing altogether.
    SetHandle {
        /// The handle.
        handle_id: HandleId,
        /// The handle's current counts; `None` when it is missing.
        from: Option<HandleCounts>,
        /// The counts it must have.
        to: HandleCounts,
    },
    /// Delete a claim on a block that does not exist, or has another owner.
    DeleteClaim {
        /// The claim.
        claim: BlockAffinityKey,
        /// The owner of the block; the outer `None` when the block does not exist.
        block: Option<Option<Owner>>,
    },
    /// Create the claim that belongs to a block.
    CreateClaim {
        /// The claim.
        claim: BlockAffinityKey,
    },
    /// Delete a block that has neither owner nor addresses in use.
    DeleteBlock {
        /// The block.
        cidr: IpNet,
    },
    /// Correct a block's free queue and attributes.
    RewriteBlock {
        /// The corrected block.
        block: Box<AllocationBlock>,
    },
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeleteHandle { handle_id } => {
                write!(f, "delete handle {handle_id}: no address is held under it")
            }
            Self::SetHandle { handle_id, from: None, to } => {
                write!(
                    f,
                    "create handle {handle_id} with {}: blocks mention it and it is missing",
                    counts(to)
                )
            }
            Self::SetHandle { handle_id, from: Some(from), to } => {
                write!(f, "correct handle {handle_id} to {}: it says {}", counts(to), counts(from))
            }
            Self::DeleteClaim { claim, block } => {
                write!(
                    f,
                    "delete the claim of {}:{} on block {}: ",
                    claim.affinity_type, claim.host, claim.cidr
                )?;
                match block {
                    None => f.write_str("there is no such block"),
                    Some(None) => f.write_str("the block has no owner"),
                    Some(Some(owner)) => write!(f, "the block belongs to {owner}"),
                }
            }
            Self::CreateClaim { claim } => write!(
                f,
                "create the claim of {}:{} on block {}: the block is theirs and the claim is missing",
                claim.affinity_type, claim.host, claim.cidr
            ),
            Self::DeleteBlock { cidr } => {
                write!(f, "delete block {cidr}: it has no owner and none of its addresses is in use")
            }
            Self::RewriteBlock { block } => {
                write!(
                    f,
                    "rewrite block {}: its free addresses or attributes contradict its allocations",
                    block.cidr
                )
            }
        }
    }
}

fn counts(counts: &HandleCounts) -> String {
    if counts.is_empty() {
        return "nothing".to_owned();
    }
    let parts: Vec<String> = counts.iter().map(|(block, count)| format!("{count} of {block}")).collect();
    parts.join(", ")
}

impl Records {
    /// The due repairs, in an order in which they can be carried out.
    #[must_use]
    pub fn repairs(&self) -> Vec<Repair> {
        let mut repairs = self.block_repairs();
        repairs.extend(self.claim_repairs());
        repairs.extend(self.handle_repairs());
        repairs
    }

    /// How many addresses each handle really holds, by block.
    #[must_use]
    pub fn held(&self) -> BTreeMap<HandleId, HandleCounts> {
        let mut held: BTreeMap<HandleId, HandleCounts> = BTreeMap::new();
        for (cidr, block) in &self.blocks {
            for allocation in Block::new(block).allocations() {
                let handle_id = allocation.handle_id().filter(|id| !id.is_empty() && !is_windows_handle(id));
                if let Some(handle_id) = handle_id {
                    *held.entry(handle_id.into()).or_default().entry(cidr.to_string()).or_default() += 1;
                }
            }
        }
        held
    }

    /// Whether a block may contain more than can be read.
    fn is_uncertain(&self, cidr: &IpNet) -> bool {
        self.unreadable_blocks.contains(cidr)
            || self.blocks.get(cidr).is_some_and(|block| {
                block.deleted
                    || block.allocations.iter().flatten().any(|index| *index >= block.attributes.len())
            })
    }

    fn block_repairs(&self) -> Vec<Repair> {
        let mut repairs = Vec::new();
        for (cidr, block) in &self.blocks {
            let view = Block::new(block);
            if block.deleted {
                // Marked as deleted; its next reader completes the deletion.
                continue;
            }
            if view.affinity().is_none() && view.is_empty() {
                repairs.push(Repair::DeleteBlock { cidr: *cidr });
            } else if let Some(block) = structure::repaired(block) {
                repairs.push(Repair::RewriteBlock { block: Box::new(block) });
            }
        }
        repairs
    }

    fn claim_repairs(&self) -> Vec<Repair> {
        let mut repairs = Vec::new();
        for claim in self.claims.keys().filter(|claim| !self.unreadable_claims.contains(*claim)) {
            if self.unreadable_blocks.contains(&claim.cidr) {
                continue;
            }
            let claimant = Owner { affinity_type: claim.affinity_type, host: claim.host.clone() };
            let block = match self.blocks.get(&claim.cidr) {
                None => None,
                Some(block) if block.deleted => continue,
                Some(block) => {
                    let view = Block::new(block);
                    // An owner that we cannot read may be the claimant.
                    let is_unknown = view.affinity().is_some() && view.owner().is_none();
                    if is_unknown || view.owner().as_ref() == Some(&claimant) {
                        continue;
                    }
                    Some(view.owner())
                }
            };
            repairs.push(Repair::DeleteClaim { claim: claim.clone(), block });
        }
        for (cidr, block) in self.blocks.iter().filter(|(_, block)| !block.deleted) {
            let Some(owner) = Block::new(block).owner() else { continue };
            let claim =
                BlockAffinityKey { cidr: *cidr, host: owner.host, affinity_type: owner.affinity_type };
            if !self.claims.contains_key(&claim) && !self.unreadable_claims.contains(&claim) {
                repairs.push(Repair::CreateClaim { claim });
            }
        }
        repairs
    }

    fn handle_repairs(&self) -> Vec<Repair> {
        // Any handle may refer to a block of unknown range.
        if self.has_unknown_blocks {
            return Vec::new();
        }
        let held = self.held();
        let mut repairs = Vec::new();
        for (handle_id, says) in &self.handles {
            let is_uncertain =
                says.keys().filter_map(|block| block.parse().ok()).any(|cidr| self.is_uncertain(&cidr));
            if is_uncertain || is_windows_handle(handle_id) {
                continue;
            }
            match held.get(handle_id) {
                None => repairs.push(Repair::DeleteHandle { handle_id: handle_id.clone() }),
                Some(holds) if holds != says => repairs.push(Repair::SetHandle {
                    handle_id: handle_id.clone(),
                    from: Some(says.clone()),
                    to: holds.clone(),
                }),
                Some(_) => {}
            }
        }
        for (handle_id, holds) in held {
            if !self.handles.contains_key(&handle_id) && !self.unreadable_handles.contains(&handle_id) {
                repairs.push(Repair::SetHandle { handle_id, from: None, to: holds });
            }
        }
        repairs
    }
}

#[cfg(test)]
mod tests;
