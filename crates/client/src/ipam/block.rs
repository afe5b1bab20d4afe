//! Releasing addresses of one block, as a pure change of its record.

use super::Counts;
use api::AllocationAttribute;
use api::meta::Time;
use ipnet::IpNet;
use jiff::Timestamp;
use model::AllocationBlock;
use std::net::IpAddr;

/// Addresses that Windows keeps for itself are under this handle; a block with nothing else counts as empty.
const WINDOWS_HANDLE: &str = "windows-reserved-ipam-handle";

/// Whether nobody uses an address of the block. An address whose holder is not recorded counts as used.
pub(super) fn is_empty(block: &AllocationBlock) -> bool {
    block.allocations.iter().flatten().all(|index| {
        let handle = block.attributes.get(*index).and_then(|attribute| attribute.handle_id.as_deref());
        handle.is_some_and(|handle| handle.eq_ignore_ascii_case(WINDOWS_HANDLE))
    })
}

/// Releases these addresses. With a cool-down they rest first; without, they go to the end of the free list.
pub(super) fn release(
    block: &mut AllocationBlock,
    addresses: &[IpAddr],
    cooldown: i32,
    now: Timestamp,
) -> Counts {
    let mut counts = Counts::new();
    let mut resting = None;
    for address in addresses {
        let Some(ordinal) = ordinal(&block.cidr, address) else { continue };
        let Some(Some(index)) = block.allocations.get(ordinal).copied() else { continue };
        let attribute = block.attributes.get(index);
        if attribute.is_some_and(|attribute| attribute.released_at.is_some()) {
            continue;
        }
        // A carriage return and what follows it were written by a faulty migration and are not part of the handle.
        let handle = attribute.and_then(|attribute| attribute.handle_id.as_deref()).unwrap_or_default();
        let handle = handle.split('\r').next().unwrap_or_default().to_owned();
        *counts.entry(handle).or_default() += 1;
        if cooldown > 0 {
            let index = *resting.get_or_insert_with(|| {
                let released_at = Some(Time::new(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()));
                block.attributes.push(AllocationAttribute { released_at, ..AllocationAttribute::default() });
                block.attributes.len() - 1
            });
            block.allocations[ordinal] = Some(index);
            block.sequence_number_for_allocation.insert(ordinal.to_string(), block.sequence_number);
        } else {
            block.allocations[ordinal] = None;
            block.unallocated.push(ordinal);
            block.sequence_number_for_allocation.remove(&ordinal.to_string());
        }
    }
    if !counts.is_empty() {
        drop_unused_attributes(block);
    }
    counts
}

/// Removes attributes that no address refers to, and renumbers the references.
fn drop_unused_attributes(block: &mut AllocationBlock) {
    let mut used = vec![false; block.attributes.len()];
    for index in block.allocations.iter().flatten() {
        if let Some(slot) = used.get_mut(*index) {
            *slot = true;
        }
    }
    let mut renumbered = Vec::with_capacity(used.len());
    let mut next = 0;
    for is_used in &used {
        renumbered.push(next);
        next += usize::from(*is_used);
    }
    for index in block.allocations.iter_mut().flatten() {
        if let Some(new) = renumbered.get(*index) {
            *index = *new;
        }
    }
    let mut keep = used.into_iter();
    block.attributes.retain(|_| keep.next().unwrap_or(true));
}

/// The place of an address in its block.
fn ordinal(cidr: &IpNet, address: &IpAddr) -> Option<usize> {
    let offset = match (cidr.network(), address) {
        (IpAddr::V4(base), IpAddr::V4(address)) => u128::from(address.to_bits().checked_sub(base.to_bits())?),
        (IpAddr::V6(base), IpAddr::V6(address)) => address.to_bits().checked_sub(base.to_bits())?,
        _ => return None,
    };
    usize::try_from(offset).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block() -> AllocationBlock {
        serde_json::from_str(
            r#"{"cidr":"10.0.0.0/30","affinity":"host:n1","allocations":[0,1,1,2],"unallocated":[],"attributes":[
                {"handle_id":"a"},{"handle_id":"b\r\neth0"},{"handle_id":"c"}],"sequenceNumber":7,
                "sequenceNumberForAllocation":{"0":1,"1":2,"2":2,"3":3},"deleted":false}"#,
        )
        .expect("a block")
    }

    fn addresses(list: &[&str]) -> Vec<IpAddr> {
        list.iter().map(|text| text.parse().expect("an address")).collect()
    }

    #[test]
    fn released_addresses_are_free_and_counted_by_handle() {
        let mut block = block();
        let wanted = addresses(&["10.0.0.2", "10.0.0.1", "10.0.0.9", "fd00::1"]);
        let counts = release(&mut block, &wanted, 0, Timestamp::UNIX_EPOCH);
        assert_eq!(counts, Counts::from([("b".to_owned(), 2)]));
        assert_eq!(block.allocations, [Some(0), None, None, Some(1)]);
        assert_eq!(block.unallocated, [2, 1]);
        let handles: Vec<_> =
            block.attributes.iter().filter_map(|attribute| attribute.handle_id.as_deref()).collect();
        assert_eq!(handles, ["a", "c"]);
        let numbered: Vec<&str> = block.sequence_number_for_allocation.keys().map(String::as_str).collect();
        assert_eq!(numbered, ["0", "3"]);
        assert!(release(&mut block, &wanted, 0, Timestamp::UNIX_EPOCH).is_empty(), "free already");
        assert!(!is_empty(&block));
        release(&mut block, &addresses(&["10.0.0.0", "10.0.0.3"]), 0, Timestamp::UNIX_EPOCH);
        assert!(is_empty(&block) && block.attributes.is_empty());
    }

    #[test]
    fn with_a_cooldown_addresses_rest() {
        let mut block = block();
        let counts = release(&mut block, &addresses(&["10.0.0.0", "10.0.0.3"]), 30, Timestamp::UNIX_EPOCH);
        assert_eq!(counts, Counts::from([("a".to_owned(), 1), ("c".to_owned(), 1)]));
        assert_eq!(block.allocations, [Some(1), Some(0), Some(0), Some(1)]);
        assert_eq!(block.attributes[1].released_at, Some(Time::new("1970-01-01T00:00:00Z")));
        assert_eq!(block.sequence_number_for_allocation.get("3"), Some(&7));
        assert!(block.unallocated.is_empty() && !is_empty(&block));
        assert!(release(&mut block, &addresses(&["10.0.0.0"]), 30, Timestamp::UNIX_EPOCH).is_empty());
    }

    #[test]
    fn a_damaged_block_counts_as_used() {
        let mut block = block();
        block.allocations = vec![Some(9)];
        assert!(!is_empty(&block));
        release(&mut block, &addresses(&["10.0.0.0", "10.0.0.3"]), 0, Timestamp::UNIX_EPOCH);
        assert_eq!(block.allocations, [None]);
    }
}
