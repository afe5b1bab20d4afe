//! Members compared with a list of contributions: counted, ordered, with or without those that others contain.

use super::{Member, Members};
use crate::sequencer::{IpSets, MemberSource, SetIndex};
use ipnet::IpNet;
use messages::{IpSetMember, IpSetType, ToDataplane};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::net::IpAddr;

const SET: SetIndex = SetIndex(0);

fn open(set_type: IpSetType, suppress: bool) -> (Members, IpSets) {
    let (mut members, mut told) = (Members::default(), IpSets::default());
    members.open(SET, set_type, suppress);
    told.add(SET, "s:x".into(), set_type);
    (members, told)
}

/// The members that the dataplane has after these messages.
fn apply(known: &mut BTreeSet<IpSetMember>, out: Vec<ToDataplane>) {
    for message in out {
        match message {
            ToDataplane::IpSetUpdate { members, .. } => {
                assert!(members.is_sorted(), "{members:?}");
                *known = members.into_iter().collect();
            }
            ToDataplane::IpSetDelta { added, removed, .. } => {
                assert!(added.is_sorted() && removed.is_sorted());
                for member in removed {
                    assert!(known.remove(&member), "{member} was not there");
                }
                for member in added {
                    assert!(known.insert(member), "{member} was there");
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

fn expected(contributions: &[IpNet], suppress: bool) -> BTreeSet<IpSetMember> {
    let covered = |net: &IpNet| contributions.iter().any(|wide| wide != net && wide.contains(net));
    contributions.iter().filter(|net| !suppress || !covered(net)).map(|net| IpSetMember::Net(*net)).collect()
}

fn net() -> impl Strategy<Value = IpNet> {
    prop_oneof![
        (0u32..16, 26u8..=32).prop_map(|(low, prefix)| {
            IpNet::V4(ipnet::Ipv4Net::new((0x0a00_0000 + low * 4).into(), prefix).unwrap().trunc())
        }),
        (0u128..4, 124u8..=128).prop_map(|(low, prefix)| IpNet::V6(
            ipnet::Ipv6Net::new((low * 4).into(), prefix).unwrap().trunc()
        )),
    ]
}

proptest! {
    #[test]
    fn the_dataplane_has_what_is_contributed(
        steps in prop::collection::vec((net(), any::<bool>(), 0u8..4), 1..80),
        suppress: bool,
    ) {
        let (mut members, mut told) = open(IpSetType::Net, suppress);
        let mut contributions: Vec<IpNet> = Vec::new();
        let mut known = BTreeSet::new();
        let mut whole = false;
        for (net, insert, flush) in steps {
            if insert {
                contributions.push(net);
                members.add(SET, Member::Net(net), &mut told);
            } else if let Some(place) = contributions.iter().position(|have| *have == net) {
                contributions.swap_remove(place);
                members.remove(SET, Member::Net(net), &mut told);
            }
            if flush == 0 {
                let mut out = Vec::new();
                told.flush_updates(&members, &mut |message| out.push(message));
                apply(&mut known, out);
                whole = true;
                prop_assert_eq!(&known, &expected(&contributions, suppress));
            }
        }
        let all: BTreeSet<_> = members.members(SET).into_iter().collect();
        prop_assert_eq!(all, expected(&contributions, suppress));
        prop_assert!(whole || known.is_empty());
    }
}

#[test]
fn ports_and_addresses_are_members_too() {
    let (mut members, mut told) = open(IpSetType::IpAndPort, true);
    for (address, protocol, port) in [("fd00::1", 6, 80), ("10.0.0.2", 17, 53), ("10.0.0.2", 6, 8080)] {
        members.add(SET, Member::Port(address.parse().unwrap(), protocol, port), &mut told);
    }
    let texts: Vec<String> = members.members(SET).iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["10.0.0.2,tcp:8080", "10.0.0.2,udp:53", "fd00::1,tcp:80"]);

    let (mut members, mut told) = open(IpSetType::Ip, true);
    members.add(SET, Member::Net(IpNet::from("10.0.0.1".parse::<IpAddr>().unwrap())), &mut told);
    assert_eq!(members.members(SET), [IpSetMember::Ip("10.0.0.1".parse().unwrap())]);
    members.close(SET);
    assert!(members.members(SET).is_empty());
}
