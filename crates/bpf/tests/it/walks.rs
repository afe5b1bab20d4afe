//! Walks: consecutive packets through the programs of an interface, and the outcome of each.

use crate::bench::{
    ALLOWS, BYPASS, Bench, DENIES, DEVICE, DROP, Direction, FALL_THROUGH, NEXT, NO_OPINION, SEEN,
};
use crate::packets::{ACK, FIN, RST, SYN, V4, V6, icmp, other, sctp, tcp, udp};
use Direction::{In, Out};
use anyhow::Result;
use bpf::interface::Version;
use bpf::layout::conntrack::{Entry, Key, Tracking, Value, flags};
use bpf::layout::network::{FailsafeKey, Route, RouteKey, flags as route_flags};
use bpf::{Layout as _, Table, layout};

const POD: [u8; 4] = [10, 65, 0, 2];
const PEER: [u8; 4] = [10, 65, 1, 9];
const INGRESS: usize = 0;
const EGRESS: usize = 1;
const FORWARD_INGRESS: usize = 2;
const BEFORE_DNAT: usize = 4;
const SHORT: usize = 5;
const MALFORMED: usize = 8;
const UNKNOWN_SOURCE: usize = 11;
const FRAGMENT: usize = 21;

fn v4(source: [u8; 4], destination: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
    V4 { source, destination, protocol, id: 0, fragment: 0, options: &[], payload }.frame()
}

fn out(payload: &[u8]) -> Vec<u8> {
    v4(POD, PEER, 6, payload)
}

fn back(payload: &[u8]) -> Vec<u8> {
    v4(PEER, POD, 6, payload)
}

fn six(last: u8) -> [u8; 16] {
    let mut address = [0; 16];
    (address[0], address[1], address[15]) = (0xfd, 0x65, last);
    address
}

fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
    V6 { source: six(2), destination: six(9), next, payload }.frame()
}

fn tracking(bench: &Bench) -> Result<(Value<layout::V4>, Tracking<layout::V4>)> {
    let value = Value::read(&bench.connection()?.1);
    match value.entry {
        Entry::Normal(tracking) => Ok((value, tracking)),
        other => anyhow::bail!("{other:?}"),
    }
}

/// Each case: a packet sent by a workload that may send everything, and the reason counted if it is dropped.
#[test]
fn headers_are_read_or_the_packet_is_dropped() -> Result<()> {
    let (first, whole) = (tcp(1, 80, SYN, 1, 0), udp(1, 53));
    let options = [1, 1, 1, 1, 7, 3, 4, 0];
    let with = |id, fragment, options: &[u8], protocol, payload: &[u8]| {
        V4 { source: POD, destination: PEER, protocol, id, fragment, options, payload }.frame()
    };
    let mut broken_length = out(&first);
    broken_length[14] = 0x44;
    let mut broken_total = out(&first);
    broken_total[17] = 19;
    let mut wrong_version = out(&first);
    wrong_version[14] = 0x65;
    let cases: Vec<(&str, Vec<u8>, Option<usize>)> = vec![
        ("tcp", out(&first), None),
        ("udp", v4(POD, PEER, 17, &whole), None),
        ("sctp", v4(POD, PEER, 132, &sctp(1, 2)), None),
        ("icmp echo", v4(POD, PEER, 1, &icmp(8, 0, &[])), None),
        ("a protocol without ports", v4(POD, PEER, 47, &[0; 4]), None),
        ("options", with(0, 0, &options, 6, &first), None),
        ("options up to the last", with(0, 0, &[1; 40], 6, &first), None),
        ("header length below 5", broken_length, Some(MALFORMED)),
        ("total length below the header", broken_total, Some(MALFORMED)),
        ("a version that is not 4", wrong_version, Some(MALFORMED)),
        ("tcp cut short", out(&first[..19]), Some(SHORT)),
        ("udp cut short", v4(POD, PEER, 17, &whole[..7]), Some(SHORT)),
        ("sctp cut short", v4(POD, PEER, 132, &whole[..7]), Some(SHORT)),
        ("icmp cut short", v4(POD, PEER, 1, &[8, 0, 0]), Some(SHORT)),
        ("a later fragment without the first", with(9, 0x0010, &[], 17, &[0; 8]), Some(FRAGMENT)),
        ("the first of fragments", with(7, 0x2000, &[], 17, &whole), None),
        ("a later one", with(7, 0x2010, &[], 17, &[0; 8]), None),
        ("the last one", with(7, 0x0020, &[], 17, &[]), None),
        ("one of another packet", with(8, 0x0020, &[], 17, &[0; 8]), Some(FRAGMENT)),
        ("one of another protocol", with(7, 0x0020, &[], 6, &[0; 8]), Some(FRAGMENT)),
    ];
    let bench = Bench::new(Version::V4, true)?;
    bench.lists(&[(EGRESS, ALLOWS)])?;
    for (name, frame, reason) in cases {
        let before = reason.map_or(Ok(0), |reason| bench.counted(In, reason))?;
        let expected = if reason.is_some() { (DROP, 0) } else { (NEXT, SEEN) };
        assert_eq!(bench.send(In, &frame)?, expected, "{name}");
        if let Some(reason) = reason {
            assert_eq!(bench.counted(In, reason)?, before + 1, "{name}");
        }
    }
    Ok(())
}

#[test]
fn extension_headers_of_ipv6_are_skipped() -> Result<()> {
    let whole = udp(1, 53);
    let chain = |numbers: &[u8], last: u8, end: &[u8]| {
        let mut payload = Vec::new();
        for (place, number) in numbers.iter().enumerate() {
            let next = numbers.get(place + 1).copied().unwrap_or(last);
            // Authentication headers count in units of 4 bytes, minus two.
            payload.extend(match number {
                51 => [vec![next, 4], vec![0; 22]].concat(),
                44 => vec![next, 0, 0, 0, 0, 0, 0, 1],
                _ => [vec![next, 1], vec![0; 14]].concat(),
            });
        }
        payload.extend(end);
        v6(numbers.first().copied().unwrap_or(last), &payload)
    };
    let fragment = |offset_and_more: u16, id: u8, payload: &[u8]| {
        let [high, low] = offset_and_more.to_be_bytes();
        v6(44, &[&[17, 0, high, low, 0, 0, 0, id], payload].concat())
    };
    let cases: Vec<(&str, Vec<u8>, Option<usize>)> = vec![
        ("none", chain(&[], 17, &whole), None),
        ("hop by hop", chain(&[0], 17, &whole), None),
        ("all kinds", chain(&[0, 60, 43, 51, 44, 135], 17, &whole), None),
        ("eight", chain(&[60; 8], 17, &whole), None),
        ("nine", chain(&[60; 9], 17, &whole), Some(MALFORMED)),
        ("no next header", chain(&[0], 59, &[]), None),
        ("cut short in an extension", chain(&[0], 60, &[17, 0]), Some(SHORT)),
        ("cut short behind it", chain(&[0], 17, &whole[..4]), Some(SHORT)),
        ("the first of fragments", fragment(0x0001, 7, &whole), None),
        ("a later one", fragment(0x0011, 7, &[0; 16]), None),
        ("a later one without the first", fragment(0x0010, 8, &[0; 16]), Some(FRAGMENT)),
        ("a whole packet with a fragment header", fragment(0, 9, &whole), None),
    ];
    let bench = Bench::new(Version::V6, true)?;
    bench.lists(&[(EGRESS, ALLOWS)])?;
    for (name, frame, reason) in cases {
        let before = reason.map_or(Ok(0), |reason| bench.counted(In, reason))?;
        let expected = if reason.is_some() { (DROP, 0) } else { (NEXT, SEEN) };
        assert_eq!(bench.send(In, &frame)?, expected, "{name}");
        if let Some(reason) = reason {
            assert_eq!(bench.counted(In, reason)?, before + 1, "{name}");
        }
    }
    Ok(())
}

#[test]
fn non_ip_passes_only_where_policy_does_not_apply() -> Result<()> {
    let (arp, ipv6, strange) = (other(0x0806), v6(17, &udp(1, 2)), other(0x88cc));
    for (is_workload, has_both, verdicts) in [
        (true, false, [NEXT, DROP, DROP]),
        (true, true, [NEXT, NEXT, DROP]),
        (false, false, [NEXT, NEXT, NEXT]),
    ] {
        let bench = Bench::with(Version::V4, is_workload, has_both, false)?;
        for direction in [In, Out] {
            for (frame, verdict) in [&arp, &ipv6, &strange].into_iter().zip(verdicts) {
                assert_eq!(
                    bench.send(direction, frame)?,
                    (verdict, 0),
                    "{is_workload} {has_both} {direction:?}"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn without_a_list_a_workload_is_closed_and_the_host_open() -> Result<()> {
    for (is_workload, verdict) in [(true, DROP), (false, NEXT)] {
        for lists in [None, Some([(INGRESS, 0), (EGRESS, 0)])] {
            let bench = Bench::new(Version::V4, is_workload)?;
            if let Some(lists) = lists {
                bench.lists(&lists)?;
            }
            for direction in [In, Out] {
                let fate = bench.send(direction, &out(&tcp(1, 80, SYN, 1, 0)))?;
                assert_eq!(fate.0, verdict, "{is_workload} {lists:?} {direction:?}");
            }
        }
        // A list that does not exist denies.
        let bench = Bench::new(Version::V4, is_workload)?;
        bench.lists(&[(EGRESS, 99), (FORWARD_INGRESS, 99)])?;
        assert_eq!(bench.send(In, &out(&tcp(1, 80, SYN, 1, 0)))?.0, DROP);
    }
    Ok(())
}

#[test]
fn policy_decides_once_per_flow() -> Result<()> {
    let bench = Bench::new(Version::V4, true)?;
    bench.lists(&[(EGRESS, ALLOWS)])?;
    let syn = out(&tcp(40_000, 80, SYN, 100, 0));
    assert_eq!(bench.send(In, &syn)?, (NEXT, SEEN));
    assert_eq!((bench.counted(In, 0)?, bench.counted(In, 2)?, bench.hits(ALLOWS + 100)?), (1, 1, 1));
    let (key, is_b) = Key::<layout::V4>::new(6, (POD, 40_000), (PEER, 80));
    assert_eq!(bench.connection()?.0, key.bytes());
    let (value, state) = tracking(&bench)?;
    let own = if is_b { state.b_to_a } else { state.a_to_b };
    assert_eq!(value.flags & flags::SOURCE_IS_B != 0, is_b);
    assert!(own.approved && own.opener && own.syn && own.workload && !own.ack);
    assert_eq!((own.packets, own.device, own.sequence), (1, DEVICE, 100_u32.to_be()));
    assert_eq!(own.bytes, syn.len() as u64);

    // The answer returns to the workload, whose ingress policy is not evaluated: its egress policy allowed the flow.
    let answer = back(&tcp(80, 40_000, SYN | ACK, 500, 101));
    assert_eq!(bench.send(Out, &answer)?, (NEXT, 0));
    let third = out(&tcp(40_000, 80, ACK, 101, 501));
    assert_eq!(bench.send(In, &third)?, (NEXT, SEEN));
    let (_, state) = tracking(&bench)?;
    let (own, other) = if is_b { (state.b_to_a, state.a_to_b) } else { (state.a_to_b, state.b_to_a) };
    assert!(own.ack && other.syn && other.ack && !other.approved);
    assert_eq!((own.packets, other.packets), (2, 1));

    // The policy changes: known flows continue, new ones cannot begin.
    bench.lists(&[(EGRESS, DENIES)])?;
    assert_eq!(bench.send(In, &third)?.0, NEXT);
    assert_eq!(bench.send(In, &out(&tcp(40_001, 80, SYN, 1, 0)))?.0, DROP);
    // A SYN of a known flow is judged again.
    assert_eq!(bench.send(In, &syn)?.0, DROP);
    assert_eq!((bench.counted(In, 4)?, bench.hits(DENIES + 100)?), (2, 2));
    Ok(())
}

#[test]
fn both_ends_on_one_host_must_allow_a_flow() -> Result<()> {
    let bench = Bench::new(Version::V4, true)?;
    bench.lists(&[(EGRESS, ALLOWS), (INGRESS, DENIES)])?;
    let question = v4(POD, PEER, 17, &udp(5000, 53));
    assert_eq!(bench.send(In, &question)?, (NEXT, SEEN));
    // The other end's policy does not allow it: neither the first packet nor a later one.
    assert_eq!(bench.send_marked(Out, &question, SEEN)?.0, DROP);
    assert_eq!(bench.send(In, &question)?, (NEXT, SEEN));
    assert_eq!(bench.send_marked(Out, &question, SEEN)?.0, DROP);
    bench.lists(&[(EGRESS, ALLOWS), (INGRESS, ALLOWS)])?;
    assert_eq!(bench.send_marked(Out, &question, SEEN)?, (NEXT, SEEN));
    // Now both ends allow it: later packets skip the programs on egress, in either direction.
    assert_eq!(bench.send(In, &question)?, (NEXT, BYPASS));
    assert_eq!(bench.send(In, &v4(PEER, POD, 17, &udp(53, 5000)))?, (NEXT, BYPASS));
    assert_eq!(bench.send_marked(Out, &question, BYPASS)?, (NEXT, BYPASS));
    assert_eq!(bench.counted(Out, 3)?, 1);
    assert_eq!(bench.connections()?, 1);
    Ok(())
}

#[test]
fn a_workload_cannot_join_a_flow_in_the_middle() -> Result<()> {
    let bench = Bench::new(Version::V4, true)?;
    bench.lists(&[(EGRESS, ALLOWS), (INGRESS, ALLOWS)])?;
    let middle = tcp(1, 80, ACK, 5, 6);
    // Connections from before are left to netfilter; nothing is remembered.
    assert_eq!(bench.send(In, &out(&middle))?, (NEXT, FALL_THROUGH));
    assert_eq!(bench.send(Out, &back(&middle))?.0, DROP);
    assert_eq!(bench.send_marked(Out, &back(&middle), 0x0800_0000)?.0, NEXT);
    // Fragments cannot bypass this.
    let part = |fragment: u16, payload: &[u8]| {
        V4 { source: POD, destination: PEER, protocol: 6, id: 5, fragment, options: &[], payload }.frame()
    };
    assert_eq!(bench.send(In, &part(0x2000, &[middle.as_slice(), &[0; 4]].concat()))?, (NEXT, FALL_THROUGH));
    assert_eq!(bench.send(In, &part(0x0003, &[0; 8]))?, (NEXT, FALL_THROUGH));
    assert_eq!(bench.connections()?, 0);
    // On a host's interface, egress is subject to its policy.
    let host = Bench::new(Version::V4, false)?;
    assert_eq!(host.send(Out, &out(&middle))?.0, NEXT);
    assert_eq!(host.connections()?, 0);
    // A flow that only the other side allowed does not accept packets from its middle.
    let bench = Bench::new(Version::V4, true)?;
    bench.lists(&[(EGRESS, ALLOWS)])?;
    bench.send(In, &out(&tcp(1, 80, SYN, 5, 6)))?;
    assert_eq!(bench.send_marked(Out, &out(&middle), SEEN)?.0, DROP);
    Ok(())
}

#[test]
fn closed_connections_are_recycled_by_the_next_syn() -> Result<()> {
    for (ours, theirs) in [(FIN | ACK, FIN | ACK), (RST, RST), (FIN | ACK, RST)] {
        let bench = Bench::new(Version::V4, true)?;
        bench.lists(&[(EGRESS, ALLOWS)])?;
        bench.send(In, &out(&tcp(1, 80, SYN, 10, 0)))?;
        bench.send(Out, &back(&tcp(80, 1, SYN | ACK, 20, 11)))?;
        bench.send(In, &out(&tcp(1, 80, ours, 11, 21)))?;
        bench.send(Out, &back(&tcp(80, 1, theirs, 21, 12)))?;
        let (value, state) = tracking(&bench)?;
        assert!(state.a_to_b.fin || state.a_to_b.rst);
        assert!(state.b_to_a.fin || state.b_to_a.rst);
        assert_eq!(value.rst_seen != 0, (ours | theirs) & RST != 0);
        assert_eq!(bench.send(In, &out(&tcp(1, 80, SYN, 999, 0)))?, (NEXT, SEEN));
        let (_, state) = tracking(&bench)?;
        let own = if state.a_to_b.opener { state.a_to_b } else { state.b_to_a };
        assert!(!own.fin && !own.rst && own.sequence == 999_u32.to_be());
        assert_eq!(own.packets, 1);
    }
    Ok(())
}

#[test]
fn errors_about_known_flows_pass_and_others_do_not() -> Result<()> {
    let bench = Bench::new(Version::V4, true)?;
    bench.lists(&[(EGRESS, ALLOWS)])?;
    bench.send(In, &v4(POD, PEER, 17, &udp(5000, 53)))?;
    let router = [192, 0, 2, 1];
    let error = |kind: u8, source: u16, length: usize| {
        let inner = V4 {
            source: POD,
            destination: PEER,
            protocol: 17,
            id: 0,
            fragment: 0,
            options: &[],
            payload: &udp(source, 53),
        };
        v4(router, POD, 1, &icmp(kind, 4, &inner.packet()[..length]))
    };
    assert_eq!(bench.send(Out, &error(3, 5000, 28))?.0, NEXT);
    assert_eq!(bench.send(Out, &error(11, 5000, 28))?.0, NEXT);
    assert_eq!(bench.send(Out, &error(3, 5001, 28))?.0, DROP);
    assert_eq!(bench.send(Out, &error(3, 5000, 27))?.0, DROP);
    // Not addressed to the sender of the original packet.
    let mut elsewhere = error(3, 5000, 28);
    elsewhere[33] = 77;
    assert_eq!(bench.send(Out, &elsewhere)?.0, DROP);
    // Not an error, so policy decides.
    assert_eq!(bench.send(Out, &error(8, 5000, 28))?.0, DROP);
    assert_eq!(bench.connections()?, 1);
    Ok(())
}

#[test]
fn neighbours_are_found_without_policy() -> Result<()> {
    let bench = Bench::new(Version::V6, true)?;
    for (kind, verdict) in [(135, NEXT), (136, NEXT), (133, NEXT), (134, DROP), (128, DROP)] {
        assert_eq!(bench.send(In, &v6(58, &icmp(kind, 0, &[0; 16])))?.0, verdict, "{kind}");
    }
    Ok(())
}

#[test]
fn a_workload_sends_from_its_own_addresses_only() -> Result<()> {
    let bench = Bench::with(Version::V4, true, false, true)?;
    bench.lists(&[(EGRESS, ALLOWS)])?;
    let routes = Table::<RouteKey<layout::V4>, Route<layout::V4>>::new(bench.map("cali_v4_routes")?)?;
    let local = route_flags::WORKLOAD | route_flags::LOCAL;
    let device = |number: u32| number.to_ne_bytes();
    routes.set(&RouteKey { bits: 32, address: POD }, &Route { flags: local, next_hop: device(DEVICE) })?;
    routes.set(
        &RouteKey { bits: 32, address: [10, 65, 0, 3] },
        &Route { flags: local, next_hop: device(DEVICE + 1) },
    )?;
    routes.set(
        &RouteKey { bits: 32, address: [10, 65, 0, 4] },
        &Route { flags: route_flags::WORKLOAD, next_hop: device(DEVICE) },
    )?;
    let from = |source| v4(source, PEER, 17, &udp(1, 2));
    assert_eq!(bench.send(In, &from(POD))?.0, NEXT);
    for source in [[10, 65, 0, 3], [10, 65, 0, 4], [10, 65, 0, 5]] {
        assert_eq!(bench.send(In, &from(source))?.0, DROP, "{source:?}");
    }
    assert_eq!(bench.counted(In, UNKNOWN_SOURCE)?, 3);
    Ok(())
}

#[test]
fn a_hosts_interface_uses_the_list_for_the_packets_path() -> Result<()> {
    const HOST: [u8; 4] = [192, 0, 2, 10];
    let to_host = v4(PEER, HOST, 6, &tcp(1, 22, SYN, 1, 0));
    let through = v4(PEER, POD, 6, &tcp(1, 22, SYN, 1, 0));
    for (lists, verdicts) in [
        (vec![(INGRESS, DENIES), (FORWARD_INGRESS, ALLOWS)], [DROP, NEXT]),
        (vec![(INGRESS, ALLOWS), (FORWARD_INGRESS, DENIES)], [NEXT, DROP]),
        (vec![(INGRESS, DENIES), (FORWARD_INGRESS, NO_OPINION)], [DROP, NEXT]),
        (vec![(INGRESS, DENIES), (FORWARD_INGRESS, DENIES), (BEFORE_DNAT, ALLOWS)], [NEXT, NEXT]),
        (vec![(INGRESS, ALLOWS), (BEFORE_DNAT, DENIES)], [DROP, DROP]),
        (vec![(INGRESS, DENIES), (BEFORE_DNAT, NO_OPINION)], [DROP, NEXT]),
    ] {
        let bench = Bench::new(Version::V4, false)?;
        bench.lists(&lists)?;
        let routes = Table::<RouteKey<layout::V4>, Route<layout::V4>>::new(bench.map("cali_v4_routes")?)?;
        let host = Route { flags: route_flags::HOST | route_flags::LOCAL, next_hop: [0; 4] };
        routes.set(&RouteKey { bits: 32, address: HOST }, &host)?;
        let found = [bench.send(In, &to_host)?.0, bench.send(In, &through)?.0];
        assert_eq!(found, verdicts, "{lists:?}");
        // A failsafe port works all the same, for its configured networks.
        let failsafes = Table::<FailsafeKey<layout::V4>, u32>::new(bench.map("cali_v4_fsafes2")?)?;
        let key = FailsafeKey { bits: 24, port: 22, protocol: 6, is_out: false, address: [10, 65, 1, 0] };
        failsafes.set(&key, &0)?;
        assert_eq!(bench.send(In, &to_host)?.0, NEXT, "{lists:?}");
        let elsewhere = v4([10, 66, 0, 1], HOST, 6, &tcp(1, 22, SYN, 1, 0));
        assert_eq!(bench.send(In, &elsewhere)?.0, verdicts[0], "{lists:?}");
        assert_eq!(bench.counted(In, 1)?, 1);
    }
    Ok(())
}
