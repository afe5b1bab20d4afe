//! The search for a block, as tables and compared with a plain walk.

use super::*;
use api::{IPPool, IPPoolSpec};
use model::AffinityType;
use std::collections::BTreeSet;

fn net(text: &str) -> IpNet {
    text.parse().expect("a range")
}

fn owner(host: &str) -> Owner {
    Owner { affinity_type: AffinityType::Host, host: host.to_owned() }
}

fn pool(cidr: &str, block_size: i64) -> Pool {
    let spec: IPPoolSpec =
        serde_json::from_str(&format!(r#"{{"cidr":"{cidr}","blockSize":{block_size}}}"#)).expect("a spec");
    Pool::read(&IPPool::new("", "p", spec)).expect("a pool")
}

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().expect("a time")
}

#[test]
fn each_block_is_visited_once_and_hosts_start_apart() {
    let pool = pool("10.0.0.0/22", 26);
    let none = AddressSet::default();
    let mut starts = BTreeSet::new();
    for number in 0..64 {
        let host = format!("node-{number}");
        let start = start_index(&pool, &host, now());
        let round: Vec<IpNet> = Round::new(&pool, start, &none).collect();
        assert_eq!(round.len(), 16);
        assert_eq!(round.iter().collect::<BTreeSet<_>>().len(), 16);
        assert_eq!(start_index(&pool, &host, Timestamp::UNIX_EPOCH), start, "the same at any time");
        starts.insert(start);
    }
    assert!(starts.len() > 12, "64 hosts start at {} of 16 places only", starts.len());
    let single = self::pool("10.0.0.0/24", 32);
    let places: BTreeSet<u128> =
        (0..32).map(|second| start_index(&single, "n1", now() + SignedDuration::from_secs(second))).collect();
    assert!(places.len() > 16);
}

#[test]
fn reserved_ranges_are_skipped() {
    let huge = pool("fd00::/48", 122);
    // All blocks but one of 2^74.
    let reserved: AddressSet = net("fd00::/48")
        .subnets(49)
        .expect("halves")
        .skip(1)
        .chain(subtract("fd00::/49", "fd00::1:0:0:40/122"))
        .collect();
    for host in ["a", "b", "c"] {
        let round: Vec<IpNet> = Round::new(&huge, start_index(&huge, host, now()), &reserved).collect();
        assert_eq!(round, [net("fd00::1:0:0:40/122")]);
    }
    let all: AddressSet = [net("::/0")].into_iter().collect();
    assert_eq!(Round::new(&huge, 5, &all).next(), None);
    let partly: AddressSet = [net("10.0.0.64/27")].into_iter().collect();
    let small = pool("10.0.0.0/24", 26);
    assert_eq!(Round::new(&small, 1, &partly).count(), 4, "a block that is reserved in part is usable");
}

/// A range without one block of it.
fn subtract(range: &str, hole: &str) -> Vec<IpNet> {
    let (mut range, hole) = (net(range), net(hole));
    let mut rest = Vec::new();
    while range != hole {
        let halves: Vec<IpNet> = range.subnets(range.prefix_len() + 1).expect("halves").collect();
        let (inside, outside) =
            if halves[0].contains(&hole) { (halves[0], halves[1]) } else { (halves[1], halves[0]) };
        rest.push(outside);
        range = inside;
    }
    rest
}

/// Searches among these blocks: range, owner, addresses in use, age in seconds.
fn find_among(pools: &[Pool], blocks: &[(&str, &str, usize, i64)], reserved: &AddressSet) -> Found {
    let records: Vec<AllocationBlock> = blocks
        .iter()
        .map(|(cidr, host, used, age)| {
            let mut block =
                take::new_block(net(cidr), &owner(host), None, now() - SignedDuration::from_secs(*age));
            take::take(&mut block, *used, &take::Holder::default(), &AddressSet::default());
            if host.is_empty() {
                block.affinity = None;
                block.affinity_claim_time = None;
            }
            block
        })
        .collect();
    let blocks = records.iter().map(|block| (block.cidr, Some(block))).collect();
    find(&Search { owner: &owner("n1"), pools, blocks: &blocks, reserved, cooldown_seconds: 0, now: now() })
}

#[test]
fn free_blocks_first_then_ours_then_empty_ones_of_others() {
    let pools = [pool("10.0.0.0/29", 31)];
    let none = AddressSet::default();
    let others = [("10.0.0.0/31", "n2", 1, 90), ("10.0.0.2/31", "n2", 0, 90), ("10.0.0.4/31", "n3", 0, 59)];
    assert_eq!(find_among(&pools, &others, &none), Found::Free(net("10.0.0.6/31")));
    let mut full = others.to_vec();
    full.push(("10.0.0.6/31", "n1", 2, 90));
    let Found::Reclaimable(found) = find_among(&pools, &full, &none) else { panic!("no free block") };
    assert_eq!(found.len(), 1, "the block of n3 is too young, that of n2 is in use: {found:?}");
    assert_eq!((found[0].cidr, found[0].owner.clone()), (net("10.0.0.2/31"), Some(owner("n2"))));
    full[3].2 = 1;
    assert_eq!(find_among(&pools, &full, &none), Found::Ours(net("10.0.0.6/31")));
    let reserved: AddressSet = [net("10.0.0.7/32"), net("10.0.0.2/31")].into_iter().collect();
    assert_eq!(
        find_among(&pools, &full, &reserved),
        Found::Reclaimable(Vec::new()),
        "nothing that is not reserved"
    );
    full[0] = ("10.0.0.0/31", "", 0, 0);
    let Found::Reclaimable(found) = find_among(&pools, &full, &reserved) else { panic!("no free block") };
    assert_eq!(
        (found[0].cidr, found[0].owner.clone()),
        (net("10.0.0.0/31"), None),
        "without owner, and empty"
    );
}

#[test]
fn an_unreadable_block_is_not_free() {
    let pools = [pool("10.0.0.0/31", 31)];
    let blocks = [(net("10.0.0.0/31"), None)].into();
    let reserved = AddressSet::default();
    let search = Search {
        owner: &owner("n1"),
        pools: &pools,
        blocks: &blocks,
        reserved: &reserved,
        cooldown_seconds: 0,
        now: now(),
    };
    assert_eq!(find(&search), Found::Reclaimable(Vec::new()));
}

#[test]
fn borrowing_starts_at_the_hosts_own_index() {
    let pool = pool("10.0.0.0/24", 28);
    let blocks: Vec<IpNet> = net("10.0.0.0/24").subnets(28).expect("blocks").collect();
    let order = borrowing_order(
        &pool,
        "n1",
        blocks.iter().copied().chain([net("10.9.0.0/28"), net("10.0.0.0/29")]),
        now(),
    );
    let start = start_index(&pool, "n1", now());
    let round: Vec<IpNet> = Round::new(&pool, start, &AddressSet::default()).collect();
    assert_eq!(order, round);
    let some: Vec<IpNet> = round.iter().copied().step_by(3).collect();
    let mut shuffled = some.clone();
    shuffled.sort_unstable();
    assert_eq!(borrowing_order(&pool, "n1", shuffled, now()), some);
}
