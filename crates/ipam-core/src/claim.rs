//! How a host becomes the owner of a block, and gives it up: one write at a time, with a possible crash after each.
//!
//! A claim (`BlockAffinity`) records that a host wants a block; the block's own `affinity` records who has it. The
//! block decides. Both are written by compare-and-swap, in an order that lets the next process determine what is left
//! to do:
//!
//! ```text
//! claim     none ──► pending ──► confirmed            give up:  confirmed ──► pendingDeletion ──► none
//! block             none ──► ours        (rewritten             ours ──► none, or nobody's
//!                            when it was there before)
//! ```
//!
//! An unconfirmed claim may belong to a process that is just giving the block up and will delete it at the revision
//! that it has read. So a block that existed before is written once more before the claim is confirmed, which makes
//! that deletion fail. [`next`] is the whole table; it depends only on what is stored.

use crate::block::{Block, Owner};
use api::BlockAffinityState;
use ipnet::IpNet;
use model::AllocationBlock;

/// The next write on the way to a confirmed claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Create the claim as pending.
    CreateClaim,
    /// Set the claim to pending.
    MarkPending,
    /// Create the block.
    CreateBlock,
    /// Write the block unchanged, with the next sequence number.
    RewriteBlock,
    /// Set the claim to confirmed.
    Confirm,
    /// Nothing: the block can be used.
    Use,
    /// Delete the claim: another owner has the block.
    GiveWay,
}

/// The next step, given what is stored: the state of our claim, and the block. `is_written` means that we have written
/// the block since the claim was set to pending.
#[must_use]
pub fn next(
    claim: Option<&BlockAffinityState>,
    block: Option<&AllocationBlock>,
    owner: &Owner,
    is_written: bool,
) -> Step {
    let is_ours = block.map(|block| Block::new(block).affinity() == Some(owner.to_string()));
    match (claim, is_ours) {
        (None, _) => Step::CreateClaim,
        (Some(_), Some(false)) => Step::GiveWay,
        // Very old releases stored no state.
        (Some(BlockAffinityState::Confirmed | BlockAffinityState::Unset), Some(true)) => Step::Use,
        (Some(BlockAffinityState::Pending), None) => Step::CreateBlock,
        (Some(BlockAffinityState::Pending), Some(true)) if is_written => Step::Confirm,
        (Some(BlockAffinityState::Pending), Some(true)) => Step::RewriteBlock,
        (Some(_), _) => Step::MarkPending,
    }
}

/// The outcome for a block whose owner gives it up.
#[derive(Clone, Debug, PartialEq)]
pub enum Disposal {
    /// It is empty and is deleted.
    Delete,
    /// Addresses are in use; the block stays, without an owner.
    Disown(Box<AllocationBlock>),
    /// Addresses are in use, and the block already has no owner.
    Keep,
}

/// Why a claim is not given up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeepRefused {
    /// Another owner has the block; the claim is stale and can be deleted.
    #[error("{cidr} already claimed by {owner}")]
    Claimed {
        /// The block.
        cidr: IpNet,
        /// The owner of the block.
        owner: String,
    },
    /// The block must be empty but is not.
    #[error("block '{0}' is not empty")]
    NotEmpty(IpNet),
    /// The block has changed since the caller read it.
    #[error("IPAM block updated since we last read it")]
    Changed(IpNet),
}

/// Determines what giving up does to a block. Addresses that have rested long enough must be collected first.
///
/// # Errors
/// The reason why the claim stays.
pub fn give_up(
    block: &AllocationBlock,
    owner: &Owner,
    must_be_empty: bool,
    sequence_number: Option<u64>,
) -> Result<Disposal, KeepRefused> {
    if sequence_number.is_some_and(|wanted| wanted != block.sequence_number) {
        return Err(KeepRefused::Changed(block.cidr));
    }
    let view = Block::new(block);
    if let Some(affinity) = view.affinity().filter(|affinity| *affinity != owner.to_string()) {
        return Err(KeepRefused::Claimed { cidr: block.cidr, owner: affinity });
    }
    if view.is_empty() {
        return Ok(Disposal::Delete);
    }
    if must_be_empty {
        return Err(KeepRefused::NotEmpty(block.cidr));
    }
    if view.affinity().is_none() {
        return Ok(Disposal::Keep);
    }
    let mut disowned = block.clone();
    disowned.affinity = None;
    disowned.affinity_claim_time = None;
    disowned.host_affinity = None;
    disowned.sequence_number += 1;
    Ok(Disposal::Disown(Box::new(disowned)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::tests::full_block;
    use model::AffinityType;

    fn owner(host: &str) -> Owner {
        Owner { affinity_type: AffinityType::Host, host: host.to_owned() }
    }

    #[test]
    fn every_state_has_its_next_step() {
        use BlockAffinityState::{Confirmed, Pending, PendingDeletion, Unset};
        let mut nobodys = full_block();
        nobodys.affinity = None;
        let ours = full_block();
        let other = BlockAffinityState::from("later");
        for (claim, block, written, step) in [
            (None, None, false, Step::CreateClaim),
            (None, Some(&ours), false, Step::CreateClaim),
            (Some(&Pending), None, false, Step::CreateBlock),
            (Some(&Pending), Some(&ours), false, Step::RewriteBlock),
            (Some(&Pending), Some(&ours), true, Step::Confirm),
            (Some(&Pending), Some(&nobodys), false, Step::GiveWay),
            (Some(&Confirmed), None, false, Step::MarkPending),
            (Some(&Confirmed), Some(&ours), false, Step::Use),
            (Some(&Confirmed), Some(&nobodys), false, Step::GiveWay),
            (Some(&Unset), Some(&ours), false, Step::Use),
            (Some(&Unset), None, false, Step::MarkPending),
            (Some(&PendingDeletion), None, false, Step::MarkPending),
            (Some(&PendingDeletion), Some(&ours), false, Step::MarkPending),
            (Some(&other), Some(&ours), false, Step::MarkPending),
        ] {
            assert_eq!(next(claim, block, &owner("n1"), written), step, "{claim:?} {block:?} {written}");
        }
        assert_eq!(next(Some(&Confirmed), Some(&ours), &owner("n2"), false), Step::GiveWay);
    }

    #[test]
    fn a_block_in_use_is_disowned_and_an_empty_one_deleted() {
        let block = full_block();
        let cidr = block.cidr;
        assert_eq!(give_up(&block, &owner("n1"), true, None), Err(KeepRefused::NotEmpty(cidr)));
        assert_eq!(give_up(&block, &owner("n1"), false, Some(6)), Err(KeepRefused::Changed(cidr)));
        let claimed = give_up(&block, &owner("n2"), false, None).expect_err("n1 has it");
        assert_eq!(claimed.to_string(), "10.0.0.0/30 already claimed by host:n1");
        let Ok(Disposal::Disown(disowned)) = give_up(&block, &owner("n1"), false, Some(7)) else {
            panic!("a block in use stays")
        };
        assert_eq!((disowned.affinity, disowned.sequence_number), (None, 8));
        assert_eq!(disowned.allocations, block.allocations);
        let mut nobodys = block.clone();
        nobodys.affinity = None;
        assert_eq!(give_up(&nobodys, &owner("n1"), false, None), Ok(Disposal::Keep));
        let mut empty = block;
        empty.allocations.fill(None);
        assert_eq!(give_up(&empty, &owner("n1"), true, None), Ok(Disposal::Delete));
    }
}
