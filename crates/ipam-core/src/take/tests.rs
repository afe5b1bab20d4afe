//! Tables of addresses taken from blocks.

use super::*;
use crate::block::tests::full_block;
use crate::{Release, release, structure};
use model::{AffinityType, IpVersion};
use proptest::prelude::*;

fn owner(host: &str) -> Owner {
    Owner { affinity_type: AffinityType::Host, host: host.to_owned() }
}

fn holder(handle: &str) -> Holder {
    Holder { handle: Some(handle.into()), attributes: [("node".to_owned(), "n1".to_owned())].into() }
}

fn net(text: &str) -> IpNet {
    text.parse().expect("a range")
}

fn texts(nets: &[IpNet]) -> Vec<String> {
    nets.iter().map(ToString::to_string).collect()
}

#[test]
fn a_new_block_equals_calicos() {
    let now: Timestamp = "2026-11-15T19:48:31.581687079Z".parse().expect("a time");
    let mut block = new_block(net("172.16.165.136/29"), &owner("node-a"), None, now);
    assert_eq!(
        serde_json::to_string(&block).expect("JSON"),
        r#"{"cidr":"172.16.165.136/29","affinity":"host:node-a","affinity_claim_time":"2026-11-15T19:48:31Z","allocations":[null,null,null,null,null,null,null,null],"unallocated":[0,1,2,3,4,5,6,7],"attributes":[],"sequenceNumber":1794772111581687079,"sequenceNumberForAllocation":{},"deleted":false}"#
    );
    let got = take(&mut block, 2, &holder("a"), &AddressSet::default());
    assert_eq!(texts(&got), ["172.16.165.136/29", "172.16.165.137/29"]);
    block.sequence_number += 1;
    let more = take(&mut block, 1, &holder("a"), &AddressSet::default());
    assert_eq!(texts(&more), ["172.16.165.138/29"]);
    assert_eq!(
        (block.attributes.len(), block.allocations[2]),
        (1, Some(0)),
        "equal holders share one record"
    );
    assert_eq!(block.sequence_number_for_allocation["0"] + 1, block.sequence_number_for_allocation["2"]);
    assert_eq!(texts(&held_by(&block, &holder("a"))).len(), 3);
    assert!(held_by(&block, &Holder { handle: Some("a".into()), ..Holder::default() }).is_empty());
}

#[test]
fn windows_keeps_its_addresses() {
    let now = Timestamp::UNIX_EPOCH;
    let reserved = HostReserved::windows();
    let mut block = new_block(net("10.0.0.0/29"), &owner("n1"), Some(&reserved), now);
    assert_eq!(block.unallocated, [3, 4, 5, 6]);
    assert_eq!(block.allocations, [Some(0), Some(0), Some(0), None, None, None, None, Some(0)]);
    assert!(Block::new(&block).is_empty());
    assert_eq!(structure::problem(&block, now), None);
    assert_eq!(take(&mut block, 9, &holder("a"), &AddressSet::default()).len(), 4);
    for (reserved, version, longest) in [
        (Some((3, 1)), IpVersion::V4, Some(29)),
        (Some((3, 1)), IpVersion::V6, Some(125)),
        (Some((1, 0)), IpVersion::V4, Some(31)),
        (Some((0, 0)), IpVersion::V4, None),
        (Some((usize::MAX, 1)), IpVersion::V6, None),
        (Some((usize::MAX, 0)), IpVersion::V4, None),
    ] {
        let Some((start_of_block, end_of_block)) = reserved else { continue };
        let reserved = HostReserved { start_of_block, end_of_block, ..HostReserved::windows() };
        assert_eq!(reserved.max_block_size(version), longest);
    }
}

#[test]
fn reserved_addresses_stay_in_their_place() {
    let mut block = new_block(net("10.0.0.0/29"), &owner("n1"), None, Timestamp::UNIX_EPOCH);
    let reserved: AddressSet = [net("10.0.0.0/31"), net("10.0.0.3/32")].into_iter().collect();
    assert_eq!(available(&block, &reserved), 5);
    assert_eq!(texts(&take(&mut block, 2, &holder("a"), &reserved)), ["10.0.0.2/29", "10.0.0.4/29"]);
    assert_eq!(block.unallocated, [0, 1, 3, 5, 6, 7]);
    assert_eq!(available(&block, &reserved), 3);
    // A specific request gets a reserved address.
    take_address(&mut block, "10.0.0.3".parse().expect("an address"), &holder("b"))
        .expect("reserved and free");
    assert_eq!(block.unallocated, [0, 1, 5, 6, 7]);
    let again = take_address(&mut block, "10.0.0.3".parse().expect("an address"), &holder("c"));
    assert_eq!(
        again.expect_err("taken").to_string(),
        "resource already exists: 10.0.0.3 with error: Address already assigned in block"
    );
    let outside = take_address(&mut block, "10.0.0.9".parse().expect("an address"), &holder("c"));
    assert_eq!(outside.expect_err("outside").to_string(), "IP 10.0.0.9 not in block 10.0.0.0/29");
}

#[test]
fn strict_affinity_requires_the_owner() {
    let mut block = full_block();
    assert_eq!(check_owner(&block, &owner("n1"), true), Ok(()));
    assert_eq!(check_owner(&block, &owner("n2"), false), Ok(()));
    assert_eq!(check_owner(&block, &owner("n2"), true), Err(TakeRefused::NotTheOwner));
    block.affinity = None;
    assert_eq!(check_owner(&block, &owner("n1"), true), Err(TakeRefused::NoOwner(net("10.0.0.0/30"))));
}

#[test]
fn a_damaged_queue_assigns_nothing_twice() {
    let mut block = full_block();
    block.allocations[3] = None;
    block.unallocated = vec![0, 3, 3, 17, 1];
    assert_eq!(available(&block, &AddressSet::default()), 1);
    assert_eq!(texts(&take(&mut block, 5, &holder("x"), &AddressSet::default())), ["10.0.0.3/30"]);
    assert_eq!(block.unallocated, [0, 3, 17, 1]);
    assert!(take(&mut block, 5, &holder("x"), &AddressSet::default()).is_empty());
    let mut short = full_block();
    short.allocations = vec![None];
    short.unallocated = vec![0, 1, 2, 3];
    assert_eq!(take(&mut short, 5, &holder("x"), &AddressSet::default()).len(), 1);
}

proptest! {
    /// Any sequence of takes and releases leaves a block without contradictions, and no address with two holders.
    #[test]
    fn takes_and_releases_keep_a_block_whole(
        steps in prop::collection::vec((0..4_usize, 0..6_usize, any::<bool>(), 0..3_i32), 0..40),
        reserved in prop::collection::vec(0..16_u8, 0..4),
    ) {
        let mut now = Timestamp::UNIX_EPOCH;
        let cidr = net("10.0.0.0/28");
        let mut block = new_block(cidr, &owner("n1"), None, now);
        let reserved: AddressSet = reserved.iter().map(|last| net(&format!("10.0.0.{last}/32"))).collect();
        let mut held: BTreeMap<IpAddr, String> = BTreeMap::new();
        for (number, count, is_release, cooldown) in steps {
            now += jiff::SignedDuration::from_secs(1);
            let handle = format!("h{number}");
            if is_release {
                let mine: Vec<Release> = held
                    .iter()
                    .filter(|(_, holder)| **holder == handle)
                    .take(count)
                    .map(|(address, _)| Release::of(*address))
                    .collect();
                let outcome = release(&mut block, &mine, cooldown, now).expect("current requests");
                prop_assert_eq!(outcome.addresses.len(), mine.len());
                for request in mine {
                    held.remove(&request.address);
                }
            } else {
                crate::cooldown::collect(&mut block, cooldown, now);
                let expected = available(&block, &reserved).min(count);
                let taken = take(&mut block, count, &holder(&handle), &reserved);
                prop_assert_eq!(taken.len(), expected);
                for net in taken {
                    prop_assert!(!reserved.contains(net.addr()));
                    prop_assert!(held.insert(net.addr(), handle.clone()).is_none(), "{} has two holders", net);
                }
            }
            block.sequence_number += 1;
            prop_assert_eq!(structure::problem(&block, now), None);
            let seen: BTreeMap<IpAddr, String> = Block::new(&block)
                .allocations()
                .filter(|allocation| !allocation.is_resting())
                .map(|allocation| (allocation.address, allocation.handle_id().unwrap_or_default().to_owned()))
                .collect();
            prop_assert_eq!(&seen, &held);
        }
    }
}
