//! The repairs of individual contradictions, and the property that a single repair is enough and moves no address.

use super::*;
use api::AllocationAttribute;
use model::AffinityType;
use proptest::prelude::*;

fn net(text: &str) -> IpNet {
    text.parse().expect("a range")
}

fn claim(host: &str, cidr: &str) -> BlockAffinityKey {
    BlockAffinityKey { cidr: net(cidr), host: host.to_owned(), affinity_type: AffinityType::Host }
}

/// A block of four addresses with these holders, in order; the rest is free.
fn block(cidr: &str, affinity: Option<&str>, holders: &[&str]) -> AllocationBlock {
    let mut block: AllocationBlock =
        serde_json::from_str(&format!(r#"{{"cidr":"{cidr}"}}"#)).expect("a block");
    block.affinity = affinity.map(str::to_owned);
    block.attributes = holders
        .iter()
        .map(|holder| AllocationAttribute { handle_id: Some((*holder).to_owned()), ..Default::default() })
        .collect();
    block.allocations = (0..4).map(|ordinal| (ordinal < holders.len()).then_some(ordinal)).collect();
    block.unallocated = (holders.len()..4).collect();
    block
}

fn handle(counts: &[(&str, i64)]) -> HandleCounts {
    counts.iter().map(|(block, count)| ((*block).to_owned(), *count)).collect()
}

/// Two hosts with a block each, three addresses, everything in order.
fn good() -> Records {
    let one = block("10.0.0.0/30", Some("host:n1"), &["a", "b"]);
    let two = block("10.0.0.4/30", Some("host:n2"), &["a"]);
    Records {
        blocks: [one, two].into_iter().map(|block| (block.cidr, block)).collect(),
        claims: [claim("n1", "10.0.0.0/30"), claim("n2", "10.0.0.4/30")]
            .into_iter()
            .map(|claim| (claim, BlockAffinityState::Confirmed))
            .collect(),
        handles: BTreeMap::from([
            ("a".into(), handle(&[("10.0.0.0/30", 1), ("10.0.0.4/30", 1)])),
            ("b".into(), handle(&[("10.0.0.0/30", 1)])),
        ]),
        ..Records::default()
    }
}

#[test]
fn contradictions_and_their_repairs() {
    type Damage = fn(&mut Records);
    let cases: &[(Damage, &[&str])] = &[
        (|_| {}, &[]),
        (
            |records| drop(records.handles.insert("c".into(), handle(&[("10.0.0.0/30", 1)]))),
            &["delete handle c: no address is held under it"],
        ),
        (
            |records| {
                drop(records.handles.insert("b".into(), handle(&[("10.0.0.0/30", 3), ("10.9.0.0/30", 1)])));
            },
            &["correct handle b to 1 of 10.0.0.0/30: it says 3 of 10.0.0.0/30, 1 of 10.9.0.0/30"],
        ),
        (
            |records| drop(records.handles.remove("a")),
            &["create handle a with 1 of 10.0.0.0/30, 1 of 10.0.0.4/30: blocks mention it and it is missing"],
        ),
        (
            |records| drop(records.claims.insert(claim("n1", "10.0.0.8/30"), BlockAffinityState::Pending)),
            &["delete the claim of host:n1 on block 10.0.0.8/30: there is no such block"],
        ),
        (
            |records| drop(records.claims.insert(claim("n1", "10.0.0.4/30"), BlockAffinityState::Pending)),
            &["delete the claim of host:n1 on block 10.0.0.4/30: the block belongs to host:n2"],
        ),
        (
            |records| drop(records.claims.remove(&claim("n2", "10.0.0.4/30"))),
            &[
                "create the claim of host:n2 on block 10.0.0.4/30: the block is theirs and the claim is missing",
            ],
        ),
        (
            |records| {
                let empty = block("10.0.0.8/30", None, &[]);
                records.blocks.insert(empty.cidr, empty);
            },
            &["delete block 10.0.0.8/30: it has no owner and none of its addresses is in use"],
        ),
        (
            |records| {
                records.blocks.entry(net("10.0.0.4/30")).and_modify(|block| block.affinity = None);
            },
            &["delete the claim of host:n2 on block 10.0.0.4/30: the block has no owner"],
        ),
        (
            |records| {
                records.blocks.entry(net("10.0.0.4/30")).and_modify(|block| block.unallocated.push(0));
            },
            &["rewrite block 10.0.0.4/30: its free addresses or attributes contradict its allocations"],
        ),
    ];
    for (damage, expected) in cases {
        let mut records = good();
        damage(&mut records);
        let repairs: Vec<String> = records.repairs().iter().map(ToString::to_string).collect();
        assert_eq!(repairs, *expected);
    }
}

#[test]
fn unreadable_records_are_left_alone() {
    type Damage = fn(&mut Records);
    let cases: &[Damage] = &[
        // The second block is unreadable: its claim and its handle stay as they are.
        |records| {
            records.blocks.remove(&net("10.0.0.4/30"));
            records.unreadable_blocks.insert(net("10.0.0.4/30"));
        },
        |records| {
            records.blocks.entry(net("10.0.0.4/30")).and_modify(|block| block.allocations[0] = Some(8));
        },
        |records| {
            records
                .blocks
                .entry(net("10.0.0.4/30"))
                .and_modify(|block| block.affinity = Some("moon:n2".to_owned()));
        },
        |records| {
            records.handles.remove("b");
            records.unreadable_handles.insert("b".into());
        },
        |records| {
            records.claims.remove(&claim("n2", "10.0.0.4/30"));
            records.unreadable_claims.insert(claim("n2", "10.0.0.4/30"));
        },
        |records| {
            records.handles.insert("c".into(), handle(&[("10.7.0.0/30", 1)]));
            records.has_unknown_blocks = true;
        },
    ];
    for (number, damage) in cases.iter().enumerate() {
        let mut records = good();
        damage(&mut records);
        assert_eq!(records.repairs(), [], "case {number}");
    }
}

/// Carries out repairs on the records.
fn apply(records: &mut Records, repairs: Vec<Repair>) {
    for repair in repairs {
        match repair {
            Repair::DeleteHandle { handle_id } => drop(records.handles.remove(&handle_id)),
            Repair::SetHandle { handle_id, to, .. } => drop(records.handles.insert(handle_id, to)),
            Repair::DeleteClaim { claim, .. } => drop(records.claims.remove(&claim)),
            Repair::CreateClaim { claim } => {
                drop(records.claims.insert(claim, BlockAffinityState::Confirmed));
            }
            Repair::DeleteBlock { cidr } => drop(records.blocks.remove(&cidr)),
            Repair::RewriteBlock { block } => drop(records.blocks.insert(block.cidr, *block)),
        }
    }
}

fn records() -> impl Strategy<Value = Records> {
    const RANGES: [&str; 3] = ["10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/30"];
    const NAMES: [&str; 4] = ["a", "b", "c", "windows-reserved-ipam-handle"];
    let owner = prop_oneof![Just(None), Just(Some("host:n1")), Just(Some("host:n2")), Just(Some("odd"))];
    let one_block = (
        owner,
        prop::collection::vec(0..4_usize, 0..=4),
        prop::collection::vec(0..5_usize, 0..5),
        any::<bool>(),
    );
    let counts = prop::collection::btree_map(0..3_usize, 1..4_i64, 0..3);
    (
        prop::collection::btree_map(0..3_usize, one_block, 0..=3),
        prop::collection::btree_set((0..3_usize, 0..2_usize), 0..4),
        prop::collection::btree_map(0..4_usize, counts, 0..4),
    )
        .prop_map(|(blocks, claims, handles)| Records {
            blocks: blocks
                .into_iter()
                .map(|(place, (owner, holders, free, is_damaged))| {
                    let holders: Vec<&str> = holders.into_iter().map(|holder| NAMES[holder]).collect();
                    let mut block = block(RANGES[place], owner, &holders);
                    if is_damaged {
                        block.unallocated = free;
                        block.attributes.push(AllocationAttribute::default());
                    }
                    (block.cidr, block)
                })
                .collect(),
            claims: claims
                .into_iter()
                .map(|(place, host)| {
                    (claim(["n1", "n2"][host], RANGES[place]), BlockAffinityState::Confirmed)
                })
                .collect(),
            handles: handles
                .into_iter()
                .map(|(name, counts)| {
                    let counts =
                        counts.into_iter().map(|(place, count)| (RANGES[place].to_owned(), count)).collect();
                    (NAMES[name].into(), counts)
                })
                .collect(),
            ..Records::default()
        })
}

proptest! {
    #[test]
    fn repairing_once_is_enough_and_moves_no_address(before in records()) {
        let mut after = before.clone();
        apply(&mut after, before.repairs());
        prop_assert_eq!(after.repairs(), []);
        let holders = |records: &Records| {
            records
                .blocks
                .values()
                .flat_map(|block| Block::new(block).allocations())
                .filter(|allocation| !allocation.is_windows_reserved())
                .map(|allocation| (allocation.address, allocation.handle_id().map(str::to_owned)))
                .collect::<Vec<_>>()
        };
        prop_assert_eq!(holders(&before), holders(&after));
        for (cidr, block) in &before.blocks {
            if Block::new(block).affinity().is_some() {
                prop_assert_eq!(after.blocks.get(cidr).map(|block| block.affinity.clone()), Some(block.affinity.clone()));
            }
        }
    }
}

#[test]
fn a_resting_address_in_use_was_released_under_its_user() {
    for (has_user, rests, expected) in [
        (true, &[true][..], true),
        (true, &[true, true], true),
        // Assigned again since then, to its user or to another one.
        (true, &[true, false], false),
        (true, &[false], false),
        (true, &[], false),
        (false, &[true], false),
    ] {
        let found = is_given_up(has_user, rests.iter().copied());
        assert_eq!(found, expected, "{has_user} {rests:?}");
    }
}
