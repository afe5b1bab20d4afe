//! Malformed UPDATEs: the handling required by RFC 7606, attribute by attribute.

use super::{external, internal};
use crate::{
    AsPath, Asn, Cause, Family, FaultAction, FaultKind, Frame, Message, MessageKind, Notification,
    SessionOptions, Update, UpdateFault, decode,
};

const ORIGIN: &[u8] = &[0x40, 1, 1, 0];
const AS_PATH: &[u8] = &[0x40, 2, 6, 2, 1, 0, 0, 0xfd, 0xe8];
const NEXT_HOP: &[u8] = &[0x40, 3, 4, 192, 0, 2, 1];
/// 2001:db8::/32 via 2001:db8::1.
const REACH: &[u8] = &[
    0x80, 14, 26, 0, 2, 1, 16, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 32, 0x20, 1, 0xd,
    0xb8,
];
const PREFIX: &[u8] = &[24, 10, 1, 2];

fn body(withdrawn: &[u8], attributes: &[&[u8]], announced: &[u8]) -> Vec<u8> {
    let attributes = attributes.concat();
    let length = |bytes: &[u8]| u16::try_from(bytes.len()).unwrap().to_be_bytes();
    [&length(withdrawn), withdrawn, &length(&attributes), &attributes, announced].concat()
}

fn read(body: &[u8], options: &SessionOptions) -> Result<Update, Notification> {
    let frame = Frame { kind: MessageKind::Update, body, length: 19 + body.len() };
    match decode(&frame, options)? {
        Message::Update(update) => Ok(*update),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_whole_update_is_read() {
    let update = read(&body(&[8, 11], &[ORIGIN, AS_PATH, NEXT_HOP, REACH], PREFIX), &internal()).unwrap();
    assert_eq!(update.faults, []);
    assert_eq!(update.withdrawn.len(), 1);
    assert_eq!(update.reach.len(), 2);
    assert_eq!(update.reach[1].family, Family::Ipv6);
    assert_eq!(update.attributes.as_path, AsPath::sequence([65000]));
}

/// The fate of a route to 10.1.2.0/24 when an attribute is added or replaced.
#[derive(Debug, PartialEq)]
enum Outcome {
    Taken,
    Fault(FaultKind, FaultAction),
    Reset(UpdateFault),
}

#[test]
fn every_attribute_has_its_answer() {
    use FaultAction::{Discard, Withdraw};
    use FaultKind::{Flags, Length, NotFromExternal, Overrun, Repeated, Value};
    use Outcome::{Fault, Reset, Taken};
    // Replaces the attribute with the same code among the three mandatory ones, or is appended to them.
    for (name, options, attribute, expected) in [
        ("origin of two bytes", internal(), &[0x40, 1, 2, 0, 0][..], Fault(Length, Withdraw)),
        ("origin 3", internal(), &[0x40, 1, 1, 3], Fault(Value, Withdraw)),
        ("origin optional", internal(), &[0xc0, 1, 1, 0], Fault(Flags, Withdraw)),
        ("path of a segment type 9", internal(), &[0x40, 2, 6, 9, 1, 0, 0, 0, 1], Fault(Value, Withdraw)),
        ("path with an empty segment", internal(), &[0x40, 2, 2, 2, 0], Fault(Value, Withdraw)),
        ("path cut in a number", internal(), &[0x40, 2, 5, 2, 1, 0, 0, 0], Fault(Value, Withdraw)),
        ("path of one byte", internal(), &[0x40, 2, 1, 2], Fault(Value, Withdraw)),
        ("empty path", internal(), &[0x40, 2, 0], Taken),
        (
            "confederation of an external peer",
            external(),
            &[0x40, 2, 6, 3, 1, 0, 0, 0, 1],
            Fault(Value, Withdraw),
        ),
        ("confederation of an internal peer", internal(), &[0x40, 2, 6, 3, 1, 0, 0, 0, 1], Taken),
        ("next hop of three bytes", internal(), &[0x40, 3, 3, 1, 2, 3], Fault(Length, Withdraw)),
        ("next hop of a group", internal(), &[0x40, 3, 4, 224, 0, 0, 1], Fault(Value, Withdraw)),
        ("next hop 0.0.0.0", internal(), &[0x40, 3, 4, 0, 0, 0, 0], Fault(Value, Withdraw)),
        ("metric", internal(), &[0x80, 4, 4, 0, 0, 0, 1], Taken),
        ("metric of two bytes", internal(), &[0x80, 4, 2, 0, 1], Fault(Length, Withdraw)),
        ("metric transitive", internal(), &[0xc0, 4, 4, 0, 0, 0, 1], Fault(Flags, Withdraw)),
        ("preference of five bytes", internal(), &[0x40, 5, 5, 0, 0, 0, 0, 1], Fault(Length, Withdraw)),
        (
            "preference of an external peer",
            external(),
            &[0x40, 5, 4, 0, 0, 0, 1],
            Fault(NotFromExternal, Discard),
        ),
        ("preference, external and short", external(), &[0x40, 5, 1, 0], Fault(NotFromExternal, Discard)),
        ("atomic aggregate with a value", internal(), &[0x40, 6, 1, 0], Fault(Length, Discard)),
        ("aggregator of six bytes", internal(), &[0xc0, 7, 6, 0, 1, 1, 1, 1, 1], Fault(Length, Discard)),
        ("communities of six bytes", internal(), &[0xc0, 8, 6, 0, 1, 0, 2, 0, 3], Fault(Length, Withdraw)),
        ("no communities", internal(), &[0xc0, 8, 0], Fault(Length, Withdraw)),
        ("partial communities", internal(), &[0xe0, 8, 4, 0, 1, 0, 2], Taken),
        ("originator of three bytes", internal(), &[0x80, 9, 3, 1, 1, 1], Fault(Length, Withdraw)),
        (
            "originator of an external peer",
            external(),
            &[0x80, 9, 4, 1, 1, 1, 1],
            Fault(NotFromExternal, Discard),
        ),
        ("cluster list of five bytes", internal(), &[0x80, 10, 5, 1, 1, 1, 1, 1], Fault(Length, Withdraw)),
        (
            "cluster list of an external peer",
            external(),
            &[0x80, 10, 4, 1, 1, 1, 1],
            Fault(NotFromExternal, Discard),
        ),
        (
            "extended communities of seven",
            internal(),
            &[0xc0, 16, 7, 0, 2, 0, 0, 0, 0, 0],
            Fault(Length, Withdraw),
        ),
        ("path of four bytes where all are", internal(), &[0xc0, 17, 1, 9], Taken),
        ("large communities of four bytes", internal(), &[0xc0, 32, 4, 0, 0, 0, 1], Fault(Length, Withdraw)),
        ("metric of AIGP cut", internal(), &[0x80, 26, 4, 1, 0, 11, 0], Fault(Value, Discard)),
        ("AIGP of an external peer", external(), &[0x80, 26, 3, 2, 0, 3], Fault(NotFromExternal, Discard)),
        ("unknown, transitive", internal(), &[0xc0, 99, 1, 7], Taken),
        ("unknown, not transitive", internal(), &[0x80, 99, 1, 7], Taken),
        ("unknown, well known", internal(), &[0x40, 99, 1, 7], Reset(UpdateFault::UnknownWellKnown)),
        ("longer than the rest", internal(), &[0x80, 4, 9, 0, 0], Fault(Overrun, Withdraw)),
        ("a lone byte", internal(), &[0x80], Fault(Overrun, Withdraw)),
        ("twice", internal(), &[0xc0, 8, 4, 0, 1, 0, 2, 0xc0, 8, 1, 0], Fault(Repeated, Discard)),
        ("reach of 3 bytes", internal(), &[0x80, 14, 3, 0, 2, 1], Reset(UpdateFault::OptionalAttribute)),
        (
            "reach with a next hop of 5",
            internal(),
            &[0x80, 14, 10, 0, 2, 1, 5, 1, 1, 1, 1, 1, 0],
            Reset(UpdateFault::OptionalAttribute),
        ),
        ("reach of another family", internal(), &[0x80, 14, 5, 0, 25, 70, 0, 0], Taken),
        ("unreach of two bytes", internal(), &[0x80, 15, 2, 0, 2], Reset(UpdateFault::OptionalAttribute)),
        (
            "unreach, prefix too long",
            internal(),
            &[0x80, 15, 4, 0, 2, 1, 129],
            Reset(UpdateFault::NetworkField),
        ),
    ] {
        let mut all: Vec<&[u8]> =
            [ORIGIN, AS_PATH, NEXT_HOP].into_iter().filter(|one| one.get(1) != attribute.get(1)).collect();
        all.push(attribute);
        let outcome = match read(&body(&[], &all, PREFIX), &options) {
            Err(answer) => match answer.cause {
                Cause::Update(fault) => Reset(fault),
                other => panic!("{name}: {other}"),
            },
            Ok(update) => {
                let (kept, gone) = (update.announces(), update.withdrawn.len() == 1);
                match update.faults.as_slice() {
                    [] => {
                        assert!(kept && !gone, "{name}");
                        Taken
                    }
                    [fault] => {
                        assert_eq!(kept, fault.action == Discard, "{name}: {fault}");
                        assert_eq!(gone, fault.action == Withdraw, "{name}: {fault}");
                        Fault(fault.kind, fault.action)
                    }
                    more => panic!("{name}: {more:?}"),
                }
            }
        };
        assert_eq!(outcome, expected, "{name}");
    }
}

#[test]
fn attributes_that_have_to_be_there() {
    for (name, attributes, code) in [
        ("no origin", [AS_PATH, NEXT_HOP], 1),
        ("no path", [ORIGIN, NEXT_HOP], 2),
        ("no next hop", [ORIGIN, AS_PATH], 3),
    ] {
        let update = read(&body(&[], &attributes, PREFIX), &internal()).unwrap();
        let faults: Vec<_> = update.faults.iter().map(|fault| (fault.code, fault.kind)).collect();
        assert_eq!(faults, [(code, FaultKind::Missing)], "{name}");
        assert_eq!((update.withdrawn.len(), update.reach.len()), (1, 0), "{name}");
    }
    // Next hops of other families are in MP_REACH_NLRI.
    let update = read(&body(&[], &[REACH, ORIGIN, AS_PATH], &[]), &internal()).unwrap();
    assert_eq!((update.faults.len(), update.reach.len()), (0, 1));
}

#[test]
fn an_unreadable_attribute_without_routes_ends_the_session() {
    let communities: &[u8] = &[0xc0, 8, 3, 0, 0, 0];
    let answer = read(&body(&[8, 10], &[ORIGIN, communities], &[]), &internal()).unwrap_err();
    assert_eq!(answer.cause, Cause::Update(UpdateFault::AttributeLength));
    // One that is merely ignored does not end it.
    let update = read(&body(&[8, 10], &[ORIGIN, &[0x40, 6, 1, 0]], &[]), &internal()).unwrap();
    assert_eq!(update.withdrawn.len(), 1);
}

#[test]
fn lists_that_do_not_add_up_end_the_session() {
    for (name, body, fault) in [
        ("withdrawn past the end", vec![0, 9, 0, 0], UpdateFault::MalformedAttributes),
        ("attributes past the end", vec![0, 0, 0, 9], UpdateFault::MalformedAttributes),
        ("one byte", vec![0], UpdateFault::MalformedAttributes),
        ("prefix of 33 bits", body(&[33, 1, 2, 3, 4, 5], &[], &[]), UpdateFault::NetworkField),
        ("prefix cut", body(&[], &[ORIGIN, AS_PATH, NEXT_HOP], &[24, 10]), UpdateFault::NetworkField),
        ("two reaches", body(&[], &[REACH, REACH, ORIGIN, AS_PATH], &[]), UpdateFault::MalformedAttributes),
    ] {
        assert_eq!(read(&body, &internal()).unwrap_err().cause, Cause::Update(fault), "{name}");
    }
}

#[test]
fn wrong_flags_of_reach_withdraw_its_routes() {
    let mut reach = REACH.to_vec();
    reach[0] = 0xc0;
    let update = read(&body(&[], &[&reach, ORIGIN, AS_PATH], &[]), &internal()).unwrap();
    assert_eq!((update.withdrawn.len(), update.reach.len()), (1, 0));
}

#[test]
fn families_that_were_not_agreed_on_are_ignored() {
    let only_v4 = SessionOptions { families: [true, false], ..internal() };
    let update = read(&body(&[], &[REACH, ORIGIN, AS_PATH, NEXT_HOP], PREFIX), &only_v4).unwrap();
    assert_eq!(update.reach.len(), 1);
    let only_v6 = SessionOptions { families: [false, true], ..internal() };
    let update = read(&body(&[8, 11], &[REACH, ORIGIN, AS_PATH, NEXT_HOP], PREFIX), &only_v6).unwrap();
    assert_eq!((update.reach.len(), update.withdrawn.len()), (1, 0));
}

#[test]
fn prefixes_of_no_host_are_left_out() {
    let announced = [4, 0xe0, 8, 127, 0, 24, 10, 1, 2];
    let update = read(&body(&[], &[ORIGIN, AS_PATH, NEXT_HOP], &announced), &internal()).unwrap();
    let prefixes: Vec<String> = update.reach[0].nlri.iter().map(|nlri| nlri.prefix.to_string()).collect();
    assert_eq!((prefixes, update.ignored), (vec!["0.0.0.0/0".into(), "10.1.2.0/24".into()], 2));
}

#[test]
fn bits_beyond_the_prefix_length_are_ignored() {
    let update = read(&body(&[], &[ORIGIN, AS_PATH, NEXT_HOP], &[12, 10, 0xff]), &internal()).unwrap();
    assert_eq!(update.reach[0].nlri[0].prefix.to_string(), "10.240.0.0/12");
}

#[test]
fn end_of_rib_markers() {
    assert_eq!(read(&[0, 0, 0, 0], &internal()).unwrap().end_of_rib, Some(Family::Ipv4));
    let update = read(&body(&[], &[&[0x80, 15, 3, 0, 2, 1]], &[]), &internal()).unwrap();
    assert_eq!(update.end_of_rib, Some(Family::Ipv6));
    let extended = read(&body(&[], &[&[0x90, 15, 0, 3, 0, 1, 1]], &[]), &internal()).unwrap();
    assert_eq!(extended.end_of_rib, Some(Family::Ipv4));
}

#[test]
fn four_byte_numbers_are_restored() {
    let two_bytes = SessionOptions { four_byte_as: false, ..external() };
    // AS_PATH 65001 23456 23456, AS4_PATH 4200000001 4200000002.
    let path: &[u8] = &[0x40, 2, 8, 2, 3, 0xfd, 0xe9, 0x5b, 0xa0, 0x5b, 0xa0];
    let four: &[u8] = &[0xc0, 17, 10, 2, 2, 0xfa, 0x56, 0xea, 1, 0xfa, 0x56, 0xea, 2];
    let aggregator: &[u8] = &[0xc0, 7, 6, 0x5b, 0xa0, 1, 1, 1, 1];
    let four_aggregator: &[u8] = &[0xc0, 18, 8, 0xfa, 0x56, 0xea, 1, 1, 1, 1, 1];
    let all = [ORIGIN, path, NEXT_HOP, aggregator, four, four_aggregator];
    let update = read(&body(&[], &all, PREFIX), &two_bytes).unwrap();
    assert_eq!(update.attributes.as_path, AsPath::sequence([65001, 4_200_000_001, 4_200_000_002]));
    assert_eq!(update.attributes.aggregator.map(|aggregator| aggregator.system), Some(Asn(4_200_000_001)));
    // An aggregate of a two-byte speaker: AS4_PATH from before it is ignored.
    let aggregator: &[u8] = &[0xc0, 7, 6, 0, 7, 1, 1, 1, 1];
    let update = read(&body(&[], &[ORIGIN, path, NEXT_HOP, aggregator, four], PREFIX), &two_bytes).unwrap();
    assert_eq!(update.attributes.as_path, AsPath::sequence([65001, 23456, 23456]));
    // An AS4_PATH longer than AS_PATH is ignored.
    let short: &[u8] = &[0x40, 2, 4, 2, 1, 0x5b, 0xa0];
    let update = read(&body(&[], &[ORIGIN, short, NEXT_HOP, four], PREFIX), &two_bytes).unwrap();
    assert_eq!(update.attributes.as_path, AsPath::sequence([23456]));
    // A malformed one is ignored.
    let update = read(&body(&[], &[ORIGIN, path, NEXT_HOP, &[0xc0, 17, 1, 2]], PREFIX), &two_bytes).unwrap();
    assert_eq!(update.faults[0].action, FaultAction::Discard);
}

#[test]
fn next_hops_of_unnumbered_peers() {
    let link: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
    let reach = |first: [u8; 16]| [&[0x80, 14, 39, 0, 1, 1, 32][..], &first, &link, &[0, 8, 10]].concat();
    for first in [link, [0; 16]] {
        let update = read(&body(&[], &[&reach(first), ORIGIN, AS_PATH], &[]), &internal()).unwrap();
        assert_eq!(update.reach[0].next_hop.address().to_string(), "fe80::9");
        assert_eq!(
            update.reach[0].next_hop.link_local().map(|address| address.to_string()),
            Some("fe80::9".into())
        );
    }
    let plain = SessionOptions { extended_next_hop: false, ..internal() };
    let answer = read(&body(&[], &[&reach(link), ORIGIN, AS_PATH], &[]), &plain).unwrap_err();
    assert_eq!(answer.cause, Cause::Update(UpdateFault::OptionalAttribute));
}
