//! Properties: encoded messages are decoded again, split as necessary; arbitrary bytes are decoded or refused.

use super::{internal, read_all};
use crate::{
    Aggregator, AsPath, Asn, Attributes, Community, ExtendedCommunity, Family, Frame, LargeCommunity,
    Message, MessageKind, NextHop, Nlri, Origin, PathId, RouterId, Segment, SegmentKind, SessionOptions,
    UnknownAttribute, UpdateWriter, decode, frame,
};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

fn as_path() -> impl Strategy<Value = AsPath> {
    let kind = prop_oneof![Just(SegmentKind::Sequence), Just(SegmentKind::Set)];
    let segment = (kind, vec(1_u32.., 1..9))
        .prop_map(|(kind, numbers)| Segment { kind, numbers: numbers.into_iter().map(Asn).collect() });
    vec(segment, 0..4).prop_map(AsPath::from_segments)
}

fn attributes() -> impl Strategy<Value = Attributes> {
    let origin = prop_oneof![Just(Origin::Igp), Just(Origin::Egp), Just(Origin::Incomplete)];
    let first = (origin, as_path(), any::<Option<u32>>(), any::<Option<u32>>(), any::<bool>());
    let second = (
        option::of((1_u32.., any::<u32>())),
        vec(any::<u32>(), 0..80),
        vec(any::<[u8; 8]>(), 0..40),
        vec(any::<[u32; 3]>(), 0..30),
        any::<Option<u32>>(),
        vec(any::<u32>(), 0..5),
        any::<Option<u64>>(),
        vec(any::<u8>(), 0..300),
    );
    (first, second).prop_map(|((origin, as_path, med, local_pref, atomic_aggregate), second)| {
        let (aggregator, communities, extended, large, originator, clusters, aigp, unknown) = second;
        Attributes {
            origin,
            as_path,
            med,
            local_pref,
            atomic_aggregate,
            aggregator: aggregator.map(|(system, id)| Aggregator { system: Asn(system), id: RouterId(id) }),
            communities: communities.into_iter().map(Community).collect(),
            extended_communities: extended.into_iter().map(ExtendedCommunity).collect(),
            large_communities: large
                .into_iter()
                .map(|[system, first, second]| LargeCommunity { system, first, second })
                .collect(),
            originator_id: originator.map(RouterId),
            cluster_list: clusters.into_iter().map(RouterId).collect(),
            aigp,
            unknown: Box::new([UnknownAttribute { code: 200, flags: 0xe0, value: unknown.into() }]),
        }
    })
}

fn prefix() -> impl Strategy<Value = Nlri> {
    let v4 = (0x0100_0000..0x7f00_0000_u32, 8..=32_u8).prop_map(|(address, length)| {
        IpNet::V4(Ipv4Net::new(Ipv4Addr::from(address), length).unwrap().trunc())
    });
    let v6 = (any::<[u8; 14]>(), 16..=128_u8).prop_map(|(tail, length)| {
        let mut octets = [0x20; 16];
        octets[2..].copy_from_slice(&tail);
        IpNet::V6(Ipv6Net::new(Ipv6Addr::from(octets), length).unwrap().trunc())
    });
    (prop_oneof![v4, v6], any::<u32>()).prop_map(|(prefix, path)| Nlri { prefix, path: PathId(path) })
}

fn options() -> impl Strategy<Value = SessionOptions> {
    (any::<[bool; 3]>()).prop_map(|[four_byte_as, path, extended_messages]| SessionOptions {
        four_byte_as,
        extended_messages,
        add_path_receive: [path, !path],
        add_path_send: [path, !path],
        ..internal()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn announcements_are_decoded_as_encoded(
        attributes in attributes(),
        prefixes in vec(prefix(), 1..400),
        options in options(),
    ) {
        // Without path identifiers on the wire none are decoded.
        let prefixes: Vec<Nlri> = prefixes.into_iter().map(|nlri| {
            if options.add_path_send[nlri.family().index()] { nlri } else { Nlri::new(nlri.prefix) }
        }).collect();
        let next_hop = NextHop::Ipv6 {
            address: "2001:db8::1".parse().unwrap(),
            link_local: Some("fe80::1".parse().unwrap()),
        };
        for next_hop in [NextHop::Ipv4(Ipv4Addr::new(192, 0, 2, 1)), next_hop] {
            let mut out = Vec::new();
            UpdateWriter::new(options).announce(&mut out, &attributes, &next_hop, prefixes.iter().copied()).unwrap();
            let mut found = Vec::new();
            for message in read_all(&out, &options).unwrap() {
                let Message::Update(update) = message else { panic!("{message:?}") };
                prop_assert_eq!(&update.faults, &[]);
                prop_assert_eq!(&update.attributes, &attributes);
                for reach in update.reach {
                    if reach.family == Family::Ipv4 {
                        prop_assert_eq!(reach.next_hop, next_hop);
                    }
                    found.extend(reach.nlri);
                }
            }
            prop_assert_eq!(&found, &prefixes);
        }
    }

    #[test]
    fn withdrawals_are_decoded_as_encoded(prefixes in vec(prefix(), 1..2500)) {
        let prefixes: Vec<Nlri> = prefixes.into_iter().map(|nlri| Nlri::new(nlri.prefix)).collect();
        let mut out = Vec::new();
        UpdateWriter::new(internal()).withdraw(&mut out, prefixes.iter().copied());
        let mut found = Vec::new();
        for message in read_all(&out, &internal()).unwrap() {
            let Message::Update(update) = message else { panic!("{message:?}") };
            prop_assert!(update.end_of_rib.is_none());
            found.extend(update.withdrawn);
        }
        prop_assert_eq!(found, prefixes);
    }

    #[test]
    fn any_body_is_decoded_or_refused(kind in 1..=5_u8, body in vec(any::<u8>(), 0..300), options in options()) {
        let kind = MessageKind::from_number(kind).unwrap();
        drop(decode(&Frame { kind, body: &body, length: 19 + body.len() }, &options));
    }

    #[test]
    fn a_changed_byte_is_decoded_or_refused(
        attributes in attributes(),
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
        prefixes in vec(prefix(), 1..20),
        options in options(),
    ) {
        let mut out = Vec::new();
        let next_hop = NextHop::Ipv4(Ipv4Addr::new(192, 0, 2, 1));
        UpdateWriter::new(options).announce(&mut out, &attributes, &next_hop, prefixes).unwrap();
        let at = at.index(out.len());
        out[at] = value;
        if let Ok(Some(frame)) = frame(&out, &options) {
            drop(decode(&frame, &options));
        }
    }
}

#[test]
fn equal_attributes_share_full_messages() {
    let prefixes = (0..4000_u32).map(|index| {
        Nlri::new(IpNet::V4(Ipv4Net::new(Ipv4Addr::from(0x0a00_0000 + (index << 8)), 24).unwrap()))
    });
    let mut out = Vec::new();
    let next_hop = NextHop::Ipv4(Ipv4Addr::new(192, 0, 2, 1));
    UpdateWriter::new(internal()).announce(&mut out, &Attributes::default(), &next_hop, prefixes).unwrap();
    let messages = read_all(&out, &internal()).unwrap();
    // Four bytes per prefix, and some 40 for the rest of a message of 4,096.
    assert_eq!(messages.len(), 4);
}

#[test]
fn attributes_that_fit_no_message_are_refused() {
    let communities = (0..1100).map(Community).collect();
    let attributes = Attributes { communities, ..Attributes::default() };
    let prefix = [Nlri::new("10.0.0.0/8".parse().unwrap())];
    let mut out = Vec::new();
    let next_hop = NextHop::Ipv4(Ipv4Addr::new(192, 0, 2, 1));
    assert!(UpdateWriter::new(internal()).announce(&mut out, &attributes, &next_hop, prefix).is_err());
    assert_eq!(out, []);
}

#[test]
fn long_paths_are_split_into_segments() {
    let path = AsPath::sequence(1..=254).prepended(Asn(9), 300);
    let lengths: Vec<usize> = path.segments().iter().map(|segment| segment.numbers.len()).collect();
    assert_eq!(
        (lengths, path.length(), path.first(), path.origin()),
        (vec![44, 255, 255], 554, Some(Asn(9)), Some(Asn(254)))
    );
}
