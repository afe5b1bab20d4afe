//! Individual releases, and releases compared with a naive model: a map from address to holder.

use super::*;
use crate::block::tests::full_block;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn plain(list: &[&str]) -> Vec<Release> {
    list.iter().map(|text| Release::of(address(text))).collect()
}

#[test]
fn released_addresses_are_free_and_counted_by_handle() {
    let mut block = full_block();
    let wanted = plain(&["10.0.0.2", "10.0.0.1", "10.0.0.2"]);
    let released = release(&mut block, &wanted, 0, Timestamp::UNIX_EPOCH).expect("a release");
    assert_eq!(released.by_handle, BTreeMap::from([("b".into(), 2)]));
    assert_eq!(released.addresses, [address("10.0.0.1"), address("10.0.0.2")]);
    assert_eq!(block.allocations, [Some(0), None, None, Some(1)]);
    assert_eq!(block.unallocated, [1, 2], "in the order of addresses, as Calico frees them");
    let handles: Vec<_> =
        block.attributes.iter().filter_map(|attribute| attribute.handle_id.as_deref()).collect();
    assert_eq!(handles, ["a", "c"]);
    let again = release(&mut block, &wanted, 0, Timestamp::UNIX_EPOCH).expect("a release");
    assert_eq!((again.addresses.len(), again.not_allocated.len()), (0, 2));
    release(&mut block, &plain(&["10.0.0.0", "10.0.0.3"]), 0, Timestamp::UNIX_EPOCH).expect("a release");
    assert!(Block::new(&block).is_empty() && block.attributes.is_empty());
    assert!(block.sequence_number_for_allocation.is_empty());
}

#[test]
fn calicos_own_release_is_reproduced() {
    // Captured from Calico: the block before and after it released the first address.
    let before = r#"{"cidr":"172.16.165.136/29","affinity":"host:node-a","affinity_claim_time":"2026-11-15T19:48:31Z","allocations":[0,1,null,null,null,null,null,null],"unallocated":[2,3,4,5,6,7],"attributes":[{"handle_id":"k8s-pod-network.c1","secondary":{"node":"node-a","timestamp":"2026-11-15 19:48:31.565963652 +0000 UTC"}},{"handle_id":"k8s-pod-network.c2","secondary":{"node":"node-a","timestamp":"2026-11-15 19:48:31.767430253 +0000 UTC"}}],"sequenceNumber":1794772111581687081,"sequenceNumberForAllocation":{"0":1794772111581687079,"1":1794772111581687080},"deleted":false}"#;
    let after = r#"{"cidr":"172.16.165.136/29","affinity":"host:node-a","affinity_claim_time":"2026-11-15T19:48:31Z","allocations":[null,0,null,null,null,null,null,null],"unallocated":[2,3,4,5,6,7,0],"attributes":[{"handle_id":"k8s-pod-network.c2","secondary":{"node":"node-a","timestamp":"2026-11-15 19:48:31.767430253 +0000 UTC"}}],"sequenceNumber":1794772111581687082,"sequenceNumberForAllocation":{"1":1794772111581687080},"deleted":false}"#;
    let original: AllocationBlock = serde_json::from_str(before).expect("a block");
    let mut by_address = original.clone();
    release(&mut by_address, &plain(&["172.16.165.136"]), 0, Timestamp::UNIX_EPOCH).expect("a release");
    by_address.sequence_number += 1;
    assert_eq!(serde_json::to_string(&by_address).expect("JSON"), after);
    let mut by_handle = original;
    assert_eq!(
        release_handle(&mut by_handle, &"k8s-pod-network.c1".into(), None, 0, Timestamp::UNIX_EPOCH),
        1
    );
    by_handle.sequence_number += 1;
    assert_eq!(serde_json::to_string(&by_handle).expect("JSON"), after);
}

#[test]
fn with_a_cooldown_addresses_rest() {
    let mut block = full_block();
    let wanted = plain(&["10.0.0.0", "10.0.0.3"]);
    let released = release(&mut block, &wanted, 30, Timestamp::UNIX_EPOCH).expect("a release");
    assert_eq!(released.by_handle, BTreeMap::from([("a".into(), 1), ("c".into(), 1)]));
    assert_eq!(block.allocations, [Some(1), Some(0), Some(0), Some(1)]);
    assert_eq!(block.attributes[1].released_at, Some(Time::new("1970-01-01T00:00:00Z")));
    assert_eq!(block.sequence_number_for_allocation.get("3"), Some(&7));
    assert!(block.unallocated.is_empty() && !Block::new(&block).is_empty());
    let again = release(&mut block, &wanted, 30, Timestamp::UNIX_EPOCH).expect("a release");
    assert_eq!(again.not_allocated.len(), 2);
    let later = Timestamp::from_second(31).expect("a time");
    assert!(cooldown::collect(&mut block, 30, later));
    assert_eq!(block.unallocated, [0, 3]);
}

#[test]
fn one_wrong_expectation_refuses_everything() {
    let guess = |text: &str, handle: Option<&str>, sequence_number| Release {
        address: address(text),
        handle: handle.map(HandleId::from),
        sequence_number,
    };
    let good = guess("10.0.0.1", Some("b\r\neth0"), Some(2));
    for (bad, message) in [
        (
            guess("10.0.0.2", Some("c"), None),
            "the given handle (c) does not match (b) when attempting to release IP",
        ),
        (
            guess("10.0.0.2", Some("b"), Some(1)),
            "the given sequence number (1) does not match (2) when attempting to release IP",
        ),
        (guess("10.0.0.4", None, None), "IP 10.0.0.4 not in block 10.0.0.0/30"),
    ] {
        let mut block = full_block();
        let refused =
            release(&mut block, &[good.clone(), bad], 0, Timestamp::UNIX_EPOCH).expect_err("a refusal");
        assert!(refused.to_string().ends_with(message), "{refused}");
        assert_eq!(block, full_block());
    }
    let mut block = full_block();
    assert!(release(&mut block, &[good], 0, Timestamp::UNIX_EPOCH).is_ok());
    // A number that was right once is wrong for a free address: Calico refuses that, too.
    let stale = guess("10.0.0.1", Some("b"), Some(2));
    assert!(release(&mut block, &[stale], 0, Timestamp::UNIX_EPOCH).is_err());
}

#[test]
fn a_damaged_block_does_not_panic() {
    let mut block = full_block();
    block.allocations = vec![Some(9)];
    let released =
        release(&mut block, &plain(&["10.0.0.0", "10.0.0.3"]), 0, Timestamp::UNIX_EPOCH).expect("a release");
    assert_eq!((released.addresses.len(), released.not_allocated.len()), (1, 1));
    assert!(released.by_handle.is_empty());
    assert_eq!(block.allocations, [None]);
}

/// The naive model's state of an address.
#[derive(Clone, Debug, PartialEq)]
enum Naive {
    Free,
    Held(HandleId),
    Resting(i64),
}

#[derive(Clone, Debug)]
enum Step {
    Release(Vec<usize>),
    ReleaseHandle(usize),
    Wait(i64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => prop::collection::vec(0..16_usize, 0..5).prop_map(Step::Release),
        1 => (0..4_usize).prop_map(Step::ReleaseHandle),
        1 => (0..40_i64).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 0..25)
}

/// A block of 16 addresses with these first holders; 4 means free.
fn block_of(holders: &[usize]) -> AllocationBlock {
    let mut block: AllocationBlock =
        serde_json::from_str(r#"{"cidr":"fd00::10/124","sequenceNumber":100}"#).expect("a block");
    for (ordinal, holder) in holders.iter().enumerate() {
        if *holder == 4 {
            block.allocations.push(None);
            block.unallocated.push(ordinal);
            continue;
        }
        let attribute = AllocationAttribute { handle_id: Some(format!("h{holder}")), ..Default::default() };
        let index = block.attributes.iter().position(|known| *known == attribute).unwrap_or_else(|| {
            block.attributes.push(attribute);
            block.attributes.len() - 1
        });
        block.allocations.push(Some(index));
        block.sequence_number_for_allocation.insert(ordinal.to_string(), 100);
    }
    block
}

fn check_block(block: &AllocationBlock, naive: &[Naive], cooldown: i64, now: i64) {
    for (ordinal, expected) in naive.iter().enumerate() {
        let place = address::at(&block.cidr, ordinal).expect("an address");
        let seen = match Block::new(block).allocation(place) {
            None => Naive::Free,
            Some(allocation) if allocation.is_resting() => {
                let released_at = allocation.attribute.and_then(|attribute| attribute.released_at.clone());
                Naive::Resting(released_at.expect("a time").parse().expect("a time").as_second())
            }
            Some(allocation) => Naive::Held(allocation.handle_id().expect("a handle").into()),
        };
        let is_same = seen == *expected
            // The block is swept when it is changed, the model is not: both must agree on which addresses may be
            // assigned.
            || matches!((&seen, expected), (Naive::Free, Naive::Resting(since)) if since + cooldown < now || cooldown == 0);
        assert!(is_same, "ordinal {ordinal}: {seen:?} is not {expected:?}");
    }
    let free: BTreeSet<usize> = block.unallocated.iter().copied().collect();
    let taken = block.allocations.iter().flatten().count();
    assert_eq!(free.len(), block.unallocated.len(), "an address is free once");
    assert_eq!(free.len() + taken, block.allocations.len(), "no address is lost");
    let used: BTreeSet<usize> = block.allocations.iter().flatten().copied().collect();
    assert_eq!(used, (0..block.attributes.len()).collect(), "attributes are exactly those in use");
    assert_eq!(
        block.sequence_number_for_allocation.len(),
        taken,
        "allocated addresses have numbers, free ones none"
    );
}

proptest! {
    #[test]
    fn releases_agree_with_a_naive_model(
        holders in prop::collection::vec(0..5_usize, 16..=16),
        steps in steps(),
        cooldown in prop_oneof![Just(0_i32), 1..60_i32],
    ) {
        let mut block = block_of(&holders);
        let mut naive: Vec<Naive> = holders
            .iter()
            .map(|holder| if *holder == 4 { Naive::Free } else { Naive::Held(format!("h{holder}").into()) })
            .collect();
        let mut now = 1_000_000_i64;
        for step in steps {
            let time = Timestamp::from_second(now).expect("a time");
            match step {
                Step::Wait(seconds) => {
                    now += seconds;
                    continue;
                }
                Step::Release(ordinals) => {
                    let requests: Vec<Release> = ordinals
                        .iter()
                        .map(|ordinal| Release::of(address::at(&block.cidr, *ordinal).expect("an address")))
                        .collect();
                    let released = release(&mut block, &requests, cooldown, time).expect("no guards, no refusal");
                    let mut counts: BTreeMap<HandleId, i64> = BTreeMap::new();
                    for ordinal in ordinals.into_iter().collect::<BTreeSet<_>>() {
                        if let Naive::Held(holder) = &naive[ordinal] {
                            *counts.entry(holder.clone()).or_default() += 1;
                            naive[ordinal] = Naive::Resting(now);
                        }
                    }
                    prop_assert_eq!(&released.by_handle, &counts);
                }
                Step::ReleaseHandle(handle) => {
                    let handle = HandleId::from(format!("h{handle}"));
                    let count = release_handle(&mut block, &handle, None, cooldown, time);
                    let held: Vec<&mut Naive> =
                        naive.iter_mut().filter(|slot| **slot == Naive::Held(handle.clone())).collect();
                    prop_assert_eq!(count, held.len());
                    held.into_iter().for_each(|slot| *slot = Naive::Resting(now));
                }
            }
            block.sequence_number += 1;
            check_block(&block, &naive, i64::from(cooldown), now);
        }
    }
}
