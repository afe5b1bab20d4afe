//! Finds contradictions within a block, in Calico's words, and repairs those that can be repaired without guessing.
//!
//! An allocation whose attribute is missing cannot be repaired: the address has a holder, but it is unknown.

use crate::{address, cooldown};
use jiff::Timestamp;
use model::AllocationBlock;

/// A contradiction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockProblem {
    /// The list of allocations is too short or too long.
    #[error("expected {expected} addresses in this block, but it has room for {found} allocations")]
    WrongLength {
        /// How many addresses the block has.
        expected: u128,
        /// The length of the list.
        found: usize,
    },
    /// An allocation without its attribute.
    #[error("allocation {ordinal} indexes a nonexistent attribute {index}")]
    MissingAttribute {
        /// The address's ordinal.
        ordinal: usize,
        /// The index of the missing attribute.
        index: usize,
    },
    /// An attribute that no allocation refers to.
    #[error("attribute index {index} exists but is not indexed by an allocation")]
    UnusedAttribute {
        /// Its index in the list, from 0.
        index: usize,
    },
    /// An address was released in the future.
    #[error("attribute index {index} has releasedAt in the future, suggesting clock skew")]
    ReleasedInFuture {
        /// The index of the attribute.
        index: usize,
    },
    /// A free address that is not in this block.
    #[error("ordinal {ordinal} appears in the Unallocated array but is out of the block")]
    FreeOutside {
        /// The ordinal.
        ordinal: usize,
    },
    /// An address that would be assigned twice.
    #[error("ordinal {ordinal} appears more than once in Unallocated array")]
    FreeTwice {
        /// The ordinal.
        ordinal: usize,
    },
    /// An address that is taken but would be assigned.
    #[error("ordinal {ordinal} is allocated but appears in Unallocated")]
    FreeAndTaken {
        /// The ordinal.
        ordinal: usize,
    },
    /// Addresses that are neither taken nor free.
    #[error(
        "expected {expected} addresses in this block, but Unallocated ({free}) + Allocated ({taken}) = {}",
        free + taken
    )]
    Lost {
        /// How many addresses the block has.
        expected: u128,
        /// How many are free.
        free: usize,
        /// How many are taken.
        taken: usize,
    },
}

/// The first contradiction of a block, in the order of Calico's checks.
#[must_use]
pub fn problem(block: &AllocationBlock, now: Timestamp) -> Option<BlockProblem> {
    let expected = address::size(&block.cidr);
    let found = block.allocations.len();
    if found as u128 != expected {
        return Some(BlockProblem::WrongLength { expected, found });
    }
    let mut used = vec![false; block.attributes.len()];
    for (ordinal, index) in block.allocations.iter().enumerate() {
        let Some(index) = *index else { continue };
        match used.get_mut(index) {
            Some(slot) => *slot = true,
            None => return Some(BlockProblem::MissingAttribute { ordinal, index }),
        }
    }
    for (index, (attribute, is_used)) in block.attributes.iter().zip(used).enumerate() {
        if !is_used {
            return Some(BlockProblem::UnusedAttribute { index });
        }
        let released_at = attribute.released_at.as_ref().and_then(|time| time.parse().ok());
        if released_at.is_some_and(|released_at| released_at > now) {
            return Some(BlockProblem::ReleasedInFuture { index });
        }
    }
    let mut free = vec![false; found];
    for ordinal in block.unallocated.iter().copied() {
        match free.get_mut(ordinal) {
            None => return Some(BlockProblem::FreeOutside { ordinal }),
            Some(seen) if *seen => return Some(BlockProblem::FreeTwice { ordinal }),
            Some(seen) => *seen = true,
        }
        if block.allocations[ordinal].is_some() {
            return Some(BlockProblem::FreeAndTaken { ordinal });
        }
    }
    let taken = block.allocations.iter().flatten().count();
    let free = block.unallocated.len();
    ((free + taken) as u128 != expected).then_some(BlockProblem::Lost { expected, free, taken })
}

/// The block with its free queue and attributes corrected; `None` when there is nothing to repair, or nothing that
/// could be repaired without guessing. No address changes its holder.
#[must_use]
pub fn repaired(block: &AllocationBlock) -> Option<AllocationBlock> {
    let size = block.allocations.len();
    let has_missing = block.allocations.iter().flatten().any(|index| *index >= block.attributes.len());
    if size as u128 != address::size(&block.cidr) || has_missing {
        return None;
    }
    let mut repaired = block.clone();
    cooldown::drop_unused_attributes(&mut repaired);
    let mut is_free = vec![false; size];
    // The queue keeps its order; missing ordinals are appended.
    repaired.unallocated.retain(|ordinal| {
        let is_new = block.allocations.get(*ordinal).is_some_and(Option::is_none) && !is_free[*ordinal];
        if is_new {
            is_free[*ordinal] = true;
        }
        is_new
    });
    for (ordinal, index) in block.allocations.iter().enumerate() {
        if index.is_none() && !is_free[ordinal] {
            repaired.unallocated.push(ordinal);
        }
    }
    (repaired != *block).then_some(repaired)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Block;
    use crate::block::tests::full_block;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    #[test]
    fn contradictions_are_found_in_calicos_words() {
        type Damage = fn(&mut AllocationBlock);
        let cases: [(Damage, &str, bool); 8] = [
            (
                |block| block.allocations.truncate(3),
                "expected 4 addresses in this block, but it has room for 3 allocations",
                false,
            ),
            (|block| block.allocations[1] = Some(7), "allocation 1 indexes a nonexistent attribute 7", false),
            (
                |block| block.attributes.push(Default::default()),
                "attribute index 3 exists but is not indexed by an allocation",
                true,
            ),
            (
                |block| block.attributes[1].released_at = Some("1970-01-01T00:00:01Z".into()),
                "attribute index 1 has releasedAt in the future, suggesting clock skew",
                false,
            ),
            (
                |block| block.unallocated.push(4),
                "ordinal 4 appears in the Unallocated array but is out of the block",
                true,
            ),
            (
                |block| {
                    block.allocations[1] = None;
                    block.unallocated = vec![1, 1];
                },
                "ordinal 1 appears more than once in Unallocated array",
                true,
            ),
            (|block| block.unallocated.push(3), "ordinal 3 is allocated but appears in Unallocated", true),
            (
                |block| block.allocations[1] = None,
                "expected 4 addresses in this block, but Unallocated (0) + Allocated (3) = 3",
                true,
            ),
        ];
        assert_eq!(problem(&full_block(), NOW), None);
        assert_eq!(repaired(&full_block()), None);
        for (damage, message, is_repairable) in cases {
            let mut block = full_block();
            damage(&mut block);
            assert_eq!(problem(&block, NOW).expect(message).to_string(), message);
            match repaired(&block) {
                None => assert!(!is_repairable, "{message}"),
                Some(repaired) => {
                    assert!(is_repairable, "{message}");
                    assert_eq!(problem(&repaired, NOW), None);
                    assert_eq!(super::repaired(&repaired), None, "once is enough");
                }
            }
        }
    }

    #[test]
    fn a_block_that_claims_to_be_huge_uses_no_memory() {
        let mut block = full_block();
        block.cidr = "10.0.0.0/8".parse().expect("a range");
        assert!(matches!(problem(&block, NOW), Some(BlockProblem::WrongLength { .. })));
        assert_eq!(repaired(&block), None);
    }

    proptest! {
        #[test]
        fn a_repair_changes_no_holder(
            allocations in prop::collection::vec(prop::option::of(0..4_usize), 4..=4),
            unallocated in prop::collection::vec(0..6_usize, 0..6),
            attributes in 0..5_usize,
        ) {
            let mut block = full_block();
            block.allocations = allocations;
            block.unallocated = unallocated;
            block.attributes = (0..attributes)
                .map(|index| api::AllocationAttribute { handle_id: Some(format!("h{index}")), ..Default::default() })
                .collect();
            let before = problem(&block, NOW);
            match repaired(&block) {
                Some(repaired) => {
                    prop_assert_eq!(problem(&repaired, NOW), None);
                    let holders = |block: &AllocationBlock| {
                        Block::new(block).allocations().map(|a| (a.address, a.handle_id().map(str::to_owned))).collect::<Vec<_>>()
                    };
                    prop_assert_eq!(holders(&block), holders(&repaired));
                    prop_assert_eq!(block.sequence_number, repaired.sequence_number);
                }
                None => {
                    let is_hopeless = matches!(before, None | Some(BlockProblem::MissingAttribute { .. }));
                    prop_assert!(is_hopeless, "{before:?}");
                }
            }
        }
    }
}
