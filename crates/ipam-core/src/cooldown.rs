//! The cool-down of released addresses, and the removal of unreferenced attributes.
//!
//! A released address first refers to an attribute that contains only the time of its release, and only later returns
//! to the end of the queue of free addresses. Nothing else puts addresses there.

use jiff::{SignedDuration, Timestamp};
use model::AllocationBlock;

/// Frees addresses that have rested for the whole cool-down, then drops unreferenced attributes. Returns whether the
/// block changed. To be called before every change of a block.
pub fn collect(block: &mut AllocationBlock, cooldown_seconds: i32, now: Timestamp) -> bool {
    let rested: Vec<bool> = block
        .attributes
        .iter()
        .map(|attribute| match &attribute.released_at {
            None => false,
            Some(_) if cooldown_seconds < 0 => true,
            // An unreadable time never ends: losing an address is better than assigning one too early.
            Some(time) => time.parse().is_ok_and(|released_at| {
                let end = released_at.checked_add(SignedDuration::from_secs(i64::from(cooldown_seconds)));
                end.is_ok_and(|end| if cooldown_seconds == 0 { end <= now } else { end < now })
            }),
        })
        .collect();
    let mut changed = false;
    for (ordinal, slot) in block.allocations.iter_mut().enumerate() {
        if slot.is_some_and(|index| rested.get(index).copied().unwrap_or_default()) {
            *slot = None;
            block.unallocated.push(ordinal);
            block.sequence_number_for_allocation.remove(&ordinal.to_string());
            changed = true;
        }
    }
    drop_unused_attributes(block) || changed
}

/// Removes attributes that no address refers to, and renumbers the references. Returns whether there were any.
pub fn drop_unused_attributes(block: &mut AllocationBlock) -> bool {
    let mut used = vec![false; block.attributes.len()];
    for index in block.allocations.iter().flatten() {
        if let Some(slot) = used.get_mut(*index) {
            *slot = true;
        }
    }
    if used.iter().all(|is_used| *is_used) {
        return false;
    }
    let mut renumbered = Vec::with_capacity(used.len());
    let mut next = 0;
    for is_used in &used {
        renumbered.push(next);
        next += usize::from(*is_used);
    }
    let dropped = used.len() - next;
    for index in block.allocations.iter_mut().flatten() {
        // A reference beyond the end of the list must not end up at a valid attribute.
        *index = renumbered.get(*index).copied().unwrap_or(index.saturating_sub(dropped));
    }
    let mut keep = used.into_iter();
    block.attributes.retain(|_| keep.next().unwrap_or(true));
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::tests::full_block;
    use api::AllocationAttribute;
    use api::meta::Time;

    fn resting(released_at: &str) -> AllocationAttribute {
        AllocationAttribute { released_at: Some(Time::new(released_at)), ..AllocationAttribute::default() }
    }

    #[test]
    fn addresses_rest_for_the_whole_cooldown() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().expect("a time");
        for (released_at, cooldown, free) in [
            ("2026-01-01T00:00:29Z", 30, true),
            ("2026-01-01T00:00:30Z", 30, false),
            ("2026-01-01T00:01:00Z", 0, true),
            // The clock of another machine is ahead of ours.
            ("2026-01-01T00:02:00Z", 0, false),
            ("2026-01-01T00:02:00Z", -1, true),
            ("yesterday", 0, false),
        ] {
            let mut block = full_block();
            block.attributes[1] = resting(released_at);
            assert_eq!(collect(&mut block, cooldown, now), free, "{released_at} {cooldown}");
            if free {
                assert_eq!(block.allocations, [Some(0), None, None, Some(1)]);
                assert_eq!(block.unallocated, [1, 2]);
                let numbered: Vec<&str> =
                    block.sequence_number_for_allocation.keys().map(String::as_str).collect();
                assert_eq!(numbered, ["0", "3"]);
                assert_eq!(block.attributes.len(), 2);
            }
        }
    }

    #[test]
    fn dangling_references_stay_dangling() {
        let mut block = full_block();
        block.allocations = vec![Some(2), Some(3), Some(17), None];
        assert!(drop_unused_attributes(&mut block));
        assert_eq!(block.attributes.len(), 1);
        assert_eq!(block.allocations, [Some(0), Some(1), Some(15), None]);
        assert!(!drop_unused_attributes(&mut block));
    }
}
