//! Walks to services: requests are translated on ingress, answers on egress, and errors with them; and what is
//! remembered of it.

use crate::bench::{DENIES, DROP, Direction, NEXT, SEEN};
use crate::packets::{ACK, FIN, RST, SYN, icmp, sctp, tcp, udp};
use crate::world::{ANY, BACKEND, CLIENT, ELSEWHERE, NODE, OTHER_NODE, POD, SERVICE, Who, World};
use Direction::{In, Out};
use anyhow::Result;
use bpf::Table;
use bpf::interface::{Kind, Options};
use bpf::layout::conntrack::{Entry, Key, Value, flags};
use bpf::layout::nat::Frontend;
use bpf::layout::{V4, V6};

const BYPASS: u32 = 0x0300_0000;
const NAT_OUTGOING: u32 = 0x0180_0000;
const MASQUERADE: u32 = 0x0360_0000;
const REDIRECT: i32 = 7;
const TCP: u8 = 6;
const UDP: u8 = 17;
const SOURCE: usize = 11;
const NO_BACKEND: usize = 12;
const COLLISION: usize = 14;

fn both(walks: [fn() -> Result<()>; 2]) -> Result<()> {
    walks.iter().try_for_each(|walk| walk())
}

fn service(count: u32) -> Frontend {
    Frontend { id: 7, count, ..Frontend::default() }
}

#[test]
fn a_workload_reaches_a_backend_of_its_node_and_gets_answers_from_the_service() -> Result<()> {
    both([local::<V4>, local::<V6>])
}

pub(crate) fn local<F: World>() -> Result<()> {
    for protocol in [TCP, UDP] {
        let bench = F::bench()?;
        let workload = F::workload(&bench, &Options::default())?;
        F::frontend(&bench, (SERVICE, 80, protocol), None, service(1))?;
        F::backend(&bench, 7, 0, BACKEND, 8080)?;
        let says = |from: u16, to: u16, flags: u8, sequence: u32, acknowledgement: u32| match protocol {
            TCP => tcp(from, to, flags, sequence, acknowledgement),
            _ => udp(from, to),
        };
        let request = F::frame(POD, SERVICE, protocol, &says(4000, 80, SYN, 100, 0));
        let behind = F::frame(POD, BACKEND, protocol, &says(4000, 8080, SYN, 100, 0));
        assert_eq!(workload.send(In, &request, 0)?, ((NEXT, SEEN), behind.clone()));
        let stub = F::entry(&bench, protocol, (POD, 4000), (SERVICE, 80))?;
        assert!(matches!(stub.entry, Entry::Forward(_, 0)), "{stub:?}");
        let tracking = F::tracking(&bench, protocol, (POD, 4000), (BACKEND, 8080))?;
        assert_eq!((tracking.original_address, tracking.original_port), (F::address(SERVICE), 80));
        assert_eq!((tracking.original_source, tracking.original_source_port), (F::address(POD), 4000));
        // It leaves towards the backend, whose policy is evaluated.
        assert_eq!(workload.send(Out, &behind, SEEN)?, ((NEXT, SEEN), behind.clone()));
        // The answer is not translated until it leaves towards the client.
        let answer = F::frame(BACKEND, POD, protocol, &says(8080, 4000, SYN | ACK, 500, 101));
        let shown = F::frame(SERVICE, POD, protocol, &says(80, 4000, SYN | ACK, 500, 101));
        assert_eq!(workload.send(In, &answer, 0)?, ((NEXT, SEEN), answer.clone()));
        assert_eq!(workload.send(Out, &answer, SEEN)?, ((NEXT, SEEN), shown));
        // Both sides have allowed it: requests are not checked again on egress; answers are.
        let request = F::frame(POD, SERVICE, protocol, &says(4000, 80, ACK, 101, 501));
        let behind = F::frame(POD, BACKEND, protocol, &says(4000, 8080, ACK, 101, 501));
        assert_eq!(workload.send(In, &request, 0)?, ((NEXT, BYPASS), behind));
        assert_eq!(workload.send(In, &answer, 0)?.0, (NEXT, SEEN));
    }
    Ok(())
}

#[test]
fn a_repeated_syn_goes_to_the_same_backend() -> Result<()> {
    both([again::<V4>, again::<V6>])
}

fn again<F: World>() -> Result<()> {
    let bench = F::bench()?;
    let workload = F::workload(&bench, &Options::default())?;
    F::frontend(&bench, (SERVICE, 80, TCP), None, service(1))?;
    F::backend(&bench, 7, 0, BACKEND, 8080)?;
    let request = F::frame(POD, SERVICE, TCP, &tcp(4000, 80, SYN, 100, 0));
    let behind = F::frame(POD, BACKEND, TCP, &tcp(4000, 8080, SYN, 100, 0));
    assert_eq!(workload.send(In, &request, 0)?.1, behind);
    F::backend(&bench, 7, 0, ELSEWHERE, 8080)?;
    assert_eq!(workload.send(In, &request, 0)?.1, behind);
    assert_eq!(bench.connections()?, 2);
    // Policy is evaluated each time.
    bench.lists(&[(1, DENIES)])?;
    assert_eq!(workload.send(In, &request, 0)?.0.0, DROP);
    Ok(())
}

#[test]
fn policy_sees_the_backend_and_pre_dnat_policy_the_service() -> Result<()> {
    let bench = V4::bench()?;
    let host = V4::host(&bench, &Options::default())?;
    V4::frontend(&bench, (NODE, 30080, TCP), None, service(1))?;
    V4::backend(&bench, 7, 0, BACKEND, 8080)?;
    let request = V4::frame(CLIENT, NODE, TCP, &tcp(4000, 30080, SYN, 100, 0));
    // The packet is not for the host: the host's own list does not apply.
    for (lists, verdict) in [
        (vec![(0, DENIES)], NEXT),
        (vec![(2, DENIES)], DROP),
        (vec![(4, DENIES)], DROP),
        (vec![(4, crate::bench::NO_OPINION), (2, crate::bench::ALLOWS)], NEXT),
    ] {
        bench.lists(&lists)?;
        assert_eq!(host.send(In, &request, 0)?.0.0, verdict, "{lists:?}");
    }
    Ok(())
}

#[test]
fn a_node_port_reaches_local_backends_and_masquerades_to_others() -> Result<()> {
    both([node_port::<V4>, node_port::<V6>])
}

fn node_port<F: World>() -> Result<()> {
    let bench = F::bench()?;
    let (workload, host) = (F::workload(&bench, &Options::default())?, F::host(&bench, &Options::default())?);
    F::frontend(&bench, (NODE, 30080, TCP), None, service(1))?;
    F::backend(&bench, 7, 0, BACKEND, 8080)?;
    let request = F::frame(CLIENT, NODE, TCP, &tcp(4000, 30080, SYN, 100, 0));
    let behind = F::frame(CLIENT, BACKEND, TCP, &tcp(4000, 8080, SYN, 100, 0));
    assert_eq!(host.send(In, &request, 0)?, ((NEXT, SEEN), behind.clone()));
    assert_eq!(workload.send(Out, &behind, SEEN)?, ((NEXT, SEEN), behind));
    let answer = F::frame(BACKEND, CLIENT, TCP, &tcp(8080, 4000, SYN | ACK, 500, 101));
    let shown = F::frame(NODE, CLIENT, TCP, &tcp(30080, 4000, SYN | ACK, 500, 101));
    assert_eq!(workload.send(In, &answer, 0)?, ((NEXT, SEEN), answer.clone()));
    assert_eq!(host.send(Out, &answer, SEEN)?, ((NEXT, SEEN), shown));
    let flags = F::entry(&bench, TCP, (CLIENT, 4000), (BACKEND, 8080))?.flags;
    assert_eq!(flags & !flags::SOURCE_IS_B, flags::EXTERNAL_LOCAL);

    // A remote backend must answer to this node.
    F::backend(&bench, 7, 0, ELSEWHERE, 8080)?;
    let request = F::frame(CLIENT, NODE, TCP, &tcp(4001, 30080, SYN, 100, 0));
    let behind = F::frame(CLIENT, ELSEWHERE, TCP, &tcp(4001, 8080, SYN, 100, 0));
    assert_eq!(host.send(In, &request, 0)?, ((NEXT, MASQUERADE), behind));
    // Netfilter has replaced the client's address by the node's.
    let hidden = F::frame(NODE, ELSEWHERE, TCP, &tcp(61000, 8080, SYN, 100, 0));
    bench.lists(&[(1, DENIES), (3, crate::bench::ALLOWS)])?;
    assert_eq!(host.send(Out, &hidden, MASQUERADE)?.0.0, NEXT, "forwarded, not the host's own");
    let answer = F::frame(ELSEWHERE, NODE, TCP, &tcp(8080, 61000, SYN | ACK, 500, 101));
    assert_eq!(host.send(In, &answer, 0)?.0.0, NEXT);
    let answer = F::frame(ELSEWHERE, CLIENT, TCP, &tcp(8080, 4001, SYN | ACK, 500, 101));
    let shown = F::frame(NODE, CLIENT, TCP, &tcp(30080, 4001, SYN | ACK, 500, 101));
    assert_eq!(host.send(Out, &answer, SEEN)?, ((NEXT, SEEN), shown));
    let request = F::frame(CLIENT, NODE, TCP, &tcp(4001, 30080, ACK, 101, 501));
    assert_eq!(host.send(In, &request, 0)?.0, (NEXT, MASQUERADE));
    Ok(())
}

#[test]
fn packets_against_the_direction_of_a_service_are_not_changed() -> Result<()> {
    let bench = V4::bench()?;
    let host = V4::host(&bench, &Options::default())?;
    V4::frontend(&bench, (NODE, 30080, UDP), None, service(1))?;
    V4::backend(&bench, 7, 0, BACKEND, 8080)?;
    host.send(In, &V4::frame(CLIENT, NODE, UDP, &udp(4000, 30080)), 0)?;
    let against = V4::frame(NODE, CLIENT, UDP, &udp(30080, 4000));
    for direction in [In, Out] {
        let (_, packet) = host.send(direction, &against, 0)?;
        assert_eq!(packet, against, "{direction:?}");
    }
    Ok(())
}

#[test]
fn wildcard_node_ports_are_for_clients_inside() -> Result<()> {
    let bench = V4::bench()?;
    let (workload, host) =
        (V4::workload(&bench, &Options::default())?, V4::host(&bench, &Options::default())?);
    V4::frontend(&bench, (ANY, 30080, UDP), None, service(1))?;
    V4::backend(&bench, 7, 0, BACKEND, 8080)?;
    let changed = |side: &crate::bench::Side, from: Who, to: Who| -> Result<bool> {
        let request = V4::frame(from, to, UDP, &udp(4000, 30080));
        Ok(side.send(In, &request, 0)?.1 != request)
    };
    assert!(changed(&workload, POD, OTHER_NODE)?);
    assert!(changed(&workload, POD, NODE)?);
    assert!(!changed(&workload, POD, CLIENT)?);
    assert!(!changed(&host, CLIENT, OTHER_NODE)?);
    Ok(())
}

#[test]
fn traffic_policies_sources_and_exclusions_apply() -> Result<()> {
    // Each case: the frontend's flags, local backends, the client, and the outcome.
    let (local, far) = (Some(BACKEND), Some(ELSEWHERE));
    for (flags, backends, client, expected) in [
        (0, 0, CLIENT, far),
        (Frontend::EXTERNAL_LOCAL, 1, CLIENT, local),
        (Frontend::EXTERNAL_LOCAL, 0, CLIENT, None),
        (Frontend::EXTERNAL_LOCAL, 0, ELSEWHERE, far),
        (Frontend::INTERNAL_LOCAL, 1, ELSEWHERE, local),
        (Frontend::INTERNAL_LOCAL, 0, OTHER_NODE, None),
        (Frontend::INTERNAL_LOCAL, 0, CLIENT, far),
    ] {
        let bench = V4::bench()?;
        let host = V4::host(&bench, &Options::default())?;
        // Local ones come first: one of one, or none of one.
        V4::frontend(&bench, (NODE, 30080, UDP), None, Frontend { flags, local: backends, ..service(1) })?;
        V4::backend(&bench, 7, 0, if backends == 1 { BACKEND } else { ELSEWHERE }, 8080)?;
        let request = V4::frame(client, NODE, UDP, &udp(4000, 30080));
        let (fate, packet) = host.send(In, &request, 0)?;
        match expected {
            Some(backend) => {
                let behind = V4::frame(client, backend, UDP, &udp(4000, 8080));
                assert_eq!(packet, behind, "{flags} {client:?}");
            }
            None => assert_eq!(fate.0, REDIRECT, "{flags} {client:?}"),
        }
    }
    let bench = V4::bench()?;
    let host = V4::host(&bench, &Options::default())?;
    V4::backend(&bench, 7, 0, BACKEND, 8080)?;
    V4::frontend(&bench, (NODE, 30080, UDP), Some(CLIENT), service(1))?;
    V4::frontend(&bench, (NODE, 30080, UDP), None, Frontend { count: Frontend::DROP, ..service(0) })?;
    let fate = |from: Who| -> Result<i32> {
        Ok(host.send(In, &V4::frame(from, NODE, UDP, &udp(4000, 30080)), 0)?.0.0)
    };
    assert_eq!((fate(CLIENT)?, fate(Who(200, 8))?), (NEXT, DROP));
    assert_eq!(bench.counted(In, SOURCE)?, 1);
    // A service that is left to the host passes unchanged.
    V4::frontend(&bench, (SERVICE, 53, UDP), None, Frontend { flags: Frontend::EXCLUDED, ..service(1) })?;
    let question = V4::frame(POD, SERVICE, UDP, &udp(4000, 53));
    let workload = V4::workload(&bench, &Options::default())?;
    assert_eq!(workload.send(In, &question, 0)?, ((NEXT, NAT_OUTGOING), question));
    Ok(())
}

#[test]
fn a_client_stays_with_its_backend_while_the_service_has_affinity() -> Result<()> {
    let bench = V4::bench()?;
    let workload = V4::workload(&bench, &Options::default())?;
    V4::frontend(&bench, (SERVICE, 80, UDP), None, Frontend { affinity: 600, ..service(1) })?;
    V4::backend(&bench, 7, 0, BACKEND, 8080)?;
    let goes = |port: u16| -> Result<Vec<u8>> {
        Ok(workload.send(In, &V4::frame(POD, SERVICE, UDP, &udp(port, 80)), 0)?.1)
    };
    assert_eq!(goes(1)?, V4::frame(POD, BACKEND, UDP, &udp(1, 8080)));
    V4::backend(&bench, 7, 0, ELSEWHERE, 8080)?;
    assert_eq!(goes(2)?, V4::frame(POD, BACKEND, UDP, &udp(2, 8080)));
    V4::frontend(&bench, (SERVICE, 80, UDP), None, service(1))?;
    assert_eq!(goes(3)?, V4::frame(POD, ELSEWHERE, UDP, &udp(3, 8080)));
    Ok(())
}

#[test]
fn a_service_without_backends_refuses() -> Result<()> {
    both([refuses::<V4>, refuses::<V6>])
}

fn refuses<F: World>() -> Result<()> {
    let bench = F::bench()?;
    let workload = F::workload(&bench, &Options::default())?;
    for (protocol, payload) in
        [(TCP, tcp(4000, 80, SYN, 100, 0)), (UDP, [udp(4000, 80), vec![1; 100]].concat())]
    {
        F::frontend(&bench, (SERVICE, 80, protocol), None, service(0))?;
        let request = F::frame(POD, SERVICE, protocol, &payload);
        let ((verdict, mark), answer) = workload.send(In, &request, 0)?;
        assert_eq!((verdict, mark), (REDIRECT, BYPASS));
        // The quoted part of the packet that the error is about.
        let header = F::packet(POD, SERVICE, protocol, &payload).len() - payload.len();
        let quoted = header + if protocol == TCP { 20 } else { 8 };
        let about = &F::packet(POD, SERVICE, protocol, &payload)[..quoted];
        let (kind, code) = if F::NUMBER == 4 { (3, 3) } else { (1, 4) };
        let mut expected = F::frame(SERVICE, POD, F::ICMP, &icmp(kind, code, about));
        // The Ethernet addresses are swapped.
        expected[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        assert_eq!(answer, expected, "{protocol}");
    }
    assert_eq!((bench.counted(In, NO_BACKEND)?, bench.connections()?), (2, 0));
    Ok(())
}

#[test]
fn errors_are_translated_with_the_packets_they_quote() -> Result<()> {
    both([errors::<V4>, errors::<V6>])
}

fn errors<F: World>() -> Result<()> {
    let bench = F::bench()?;
    let workload = F::workload(&bench, &Options::default())?;
    F::frontend(&bench, (SERVICE, 80, UDP), None, service(1))?;
    F::backend(&bench, 7, 0, BACKEND, 8080)?;
    workload.send(In, &F::frame(POD, SERVICE, UDP, &udp(4000, 80)), 0)?;
    let unreachable = if F::NUMBER == 4 { (3, 3) } else { (1, 4) };
    // Inner checksums are those of the original packets: they are never verified.
    let error = |from: Who, to: Who, inner: (Who, Who), ports: (u16, u16), checksum: Vec<u8>| {
        let mut about = F::packet(inner.0, inner.1, UDP, &udp(ports.0, ports.1));
        let place = about.len() - 2;
        about[place..].copy_from_slice(&checksum);
        F::frame(from, to, F::ICMP, &icmp(unreachable.0, unreachable.1, &about))
    };
    let checksum = |inner: (Who, Who), ports: (u16, u16)| {
        let packet = F::packet(inner.0, inner.1, UDP, &udp(ports.0, ports.1));
        packet[packet.len() - 2..].to_vec()
    };
    // About a request, from the backend and from a router on the path.
    let old = checksum((POD, BACKEND), (4000, 8080));
    for (from, shown) in [(BACKEND, SERVICE), (OTHER_NODE, OTHER_NODE)] {
        let before = error(from, POD, (POD, BACKEND), (4000, 8080), old.clone());
        let after = error(shown, POD, (POD, SERVICE), (4000, 80), old.clone());
        assert_eq!(workload.send(Out, &before, SEEN)?, ((NEXT, SEEN), after), "{from:?}");
    }
    // About an answer, from the client.
    let old = checksum((SERVICE, POD), (80, 4000));
    let before = error(POD, SERVICE, (SERVICE, POD), (80, 4000), old.clone());
    let after = error(POD, BACKEND, (BACKEND, POD), (8080, 4000), old);
    assert_eq!(workload.send(In, &before, 0)?, ((NEXT, SEEN), after.clone()));
    assert_eq!(workload.send(Out, &after, SEEN)?, ((NEXT, SEEN), after));
    Ok(())
}

#[test]
fn flows_that_would_collide_after_nat_are_kept_apart() -> Result<()> {
    both([collision::<V4>, collision::<V6>])
}

fn collision<F: World>() -> Result<()> {
    let bench = F::bench()?;
    let options = Options { spare_ports: (30_000, 1), ..Options::default() };
    let workload = F::workload(&bench, &options)?;
    F::frontend(&bench, (SERVICE, 80, TCP), None, service(1))?;
    F::backend(&bench, 7, 0, BACKEND, 8080)?;
    let direct = F::frame(POD, BACKEND, TCP, &tcp(4000, 8080, SYN, 1, 0));
    assert_eq!(workload.send(In, &direct, 0)?.1, direct);
    let request = F::frame(POD, SERVICE, TCP, &tcp(4000, 80, SYN, 100, 0));
    let behind = F::frame(POD, BACKEND, TCP, &tcp(30_000, 8080, SYN, 100, 0));
    assert_eq!(workload.send(In, &request, 0)?, ((NEXT, SEEN), behind));
    assert_eq!(bench.counted(In, COLLISION)?, 1);
    let stub = F::entry(&bench, TCP, (POD, 4000), (SERVICE, 80))?;
    assert!(matches!(stub.entry, Entry::Forward(_, 30_000)), "{stub:?}");
    let answer = F::frame(BACKEND, POD, TCP, &tcp(8080, 30_000, SYN | ACK, 500, 101));
    let shown = F::frame(SERVICE, POD, TCP, &tcp(80, 4000, SYN | ACK, 500, 101));
    assert_eq!(workload.send(Out, &answer, SEEN)?.1, shown);
    // No port is left.
    let request = F::frame(POD, SERVICE, TCP, &tcp(30_000, 80, SYN, 100, 0));
    assert_eq!(workload.send(In, &request, 0)?.0.0, DROP);
    Ok(())
}

#[test]
fn a_workload_reaches_itself_as_the_host() -> Result<()> {
    let bench = V4::bench()?;
    let workload = V4::workload(&bench, &Options::default())?;
    V4::frontend(&bench, (SERVICE, 80, TCP), None, service(1))?;
    V4::backend(&bench, 7, 0, POD, 8080)?;
    let request = V4::frame(POD, SERVICE, TCP, &tcp(4000, 80, SYN, 100, 0));
    let behind = V4::frame(POD, POD, TCP, &tcp(4000, 8080, SYN, 100, 0));
    assert_eq!(workload.send(In, &request, 0)?, ((NEXT, MASQUERADE), behind));
    // Masqueraded as the node it passes whatever the workload's policy says.
    bench.lists(&[(0, DENIES)])?;
    let hidden = V4::frame(NODE, POD, TCP, &tcp(61000, 8080, SYN, 100, 0));
    assert_eq!(workload.send(Out, &hidden, MASQUERADE)?.0.0, DROP, "from somewhere else");
    assert_eq!(workload.send_back(&hidden, MASQUERADE)?.0.0, NEXT);
    let answer = V4::frame(POD, NODE, TCP, &tcp(8080, 61000, SYN | ACK, 500, 101));
    assert_eq!(workload.send(In, &answer, 0)?.0, (NEXT, SEEN));
    let answer = V4::frame(POD, POD, TCP, &tcp(8080, 4000, SYN | ACK, 500, 101));
    let shown = V4::frame(SERVICE, POD, TCP, &tcp(80, 4000, SYN | ACK, 500, 101));
    assert_eq!(workload.send(Out, &answer, SEEN)?.1, shown);
    Ok(())
}

#[test]
fn the_host_reaches_services_through_an_interface_of_its_own() -> Result<()> {
    let bench = V4::bench()?;
    let tunnel = Who(66, 1);
    let options = Options {
        kind: Kind::Services,
        tunnel_address: Some(V4::address(tunnel).into()),
        ..Options::default()
    };
    let (workload, door) = (V4::workload(&bench, &Options::default())?, V4::host(&bench, &options)?);
    V4::frontend(&bench, (SERVICE, 53, UDP), None, service(1))?;
    V4::backend(&bench, 7, 0, BACKEND, 8053)?;
    let question = V4::frame(NODE, SERVICE, UDP, &udp(4000, 53));
    let behind = V4::frame(NODE, BACKEND, UDP, &udp(4000, 8053));
    assert_eq!(door.send(In, &question, 0)?, ((NEXT, SEEN), behind.clone()));
    bench.lists(&[(0, DENIES), (1, DENIES)])?;
    assert_eq!(workload.send(Out, &behind, SEEN)?.0.0, NEXT, "the host reaches its workloads");
    // The answer is for the host: it never leaves, so it is translated on ingress.
    let answer = V4::frame(BACKEND, NODE, UDP, &udp(8053, 4000));
    assert_eq!(workload.send(In, &answer, 0)?.1, V4::frame(SERVICE, NODE, UDP, &udp(53, 4000)));
    Ok(())
}

#[test]
fn sctp_keeps_its_ports_and_udp_its_missing_checksum() -> Result<()> {
    let bench = V4::bench()?;
    let workload = V4::workload(&bench, &Options::default())?;
    V4::frontend(&bench, (SERVICE, 80, 132), None, service(1))?;
    V4::frontend(&bench, (SERVICE, 80, UDP), None, service(1))?;
    V4::backend(&bench, 7, 0, BACKEND, 80)?;
    let request = V4::frame(POD, SERVICE, 132, &sctp(4000, 80));
    assert_eq!(workload.send(In, &request, 0)?.1, V4::frame(POD, BACKEND, 132, &sctp(4000, 80)));
    let without = |to: Who, port: u16| {
        let mut frame = V4::frame(POD, to, UDP, &udp(4000, port));
        let place = frame.len() - 2;
        frame[place..].fill(0);
        frame
    };
    assert_eq!(workload.send(In, &without(SERVICE, 80), 0)?.1, without(BACKEND, 80));
    V4::backend(&bench, 7, 0, BACKEND, 81)?;
    let request = V4::frame(POD, SERVICE, 132, &sctp(4001, 80));
    assert_eq!(workload.send(In, &request, 0)?.0.0, DROP);
    Ok(())
}

#[test]
fn answers_of_backends_to_outside_clients_have_a_special_mark() -> Result<()> {
    let bench = V4::bench()?;
    let options = Options { service_mark: 0x4, ..Options::default() };
    let (workload, host) = (V4::workload(&bench, &options)?, V4::host(&bench, &options)?);
    V4::frontend(&bench, (NODE, 30080, UDP), None, service(1))?;
    V4::backend(&bench, 7, 0, BACKEND, 8080)?;
    let (fate, behind) = host.send(In, &V4::frame(CLIENT, NODE, UDP, &udp(4000, 30080)), 0)?;
    assert_eq!(fate, (NEXT, SEEN));
    assert_eq!(workload.send(Out, &behind, SEEN)?.0, (NEXT, SEEN));
    assert_eq!(
        workload.send(In, &V4::frame(BACKEND, CLIENT, UDP, &udp(8080, 4000)), 0)?.0,
        (NEXT, SEEN | 0x4)
    );
    // No other packets have it.
    assert_eq!(workload.send(In, &V4::frame(POD, CLIENT, UDP, &udp(1, 2)), 0)?.0, (NEXT, NAT_OUTGOING));
    Ok(())
}

#[test]
fn fragments_follow_the_first_one_to_the_backend_and_back() -> Result<()> {
    let bench = V4::bench()?;
    let workload = V4::workload(&bench, &Options::default())?;
    V4::frontend(&bench, (SERVICE, 80, UDP), None, service(1))?;
    V4::backend(&bench, 7, 0, BACKEND, 8080)?;
    // The UDP checksum covers the whole datagram, and is in the first fragment only.
    let whole = |ports: (u16, u16)| [udp(ports.0, ports.1), vec![5; 16]].concat();
    let part = |from: Who, to: Who, ports: (u16, u16), place: u16| {
        let mut packet = V4::packet(from, to, UDP, &whole(ports));
        let (keep, fragment) = if place == 0 { (20..36, 0x2000_u16) } else { (36..44, place) };
        let mut cut = packet[..20].to_vec();
        cut.extend(packet.drain(keep));
        let length = u16::try_from(cut.len()).unwrap();
        cut[2..4].copy_from_slice(&length.to_be_bytes());
        cut[6..8].copy_from_slice(&fragment.to_be_bytes());
        crate::world::with_checksum(&mut cut);
        [vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0], cut].concat()
    };
    for place in [0, 2] {
        let request = part(POD, SERVICE, (4000, 80), place);
        let behind = part(POD, BACKEND, (4000, 8080), place);
        // Later fragments arrive when both sides have allowed the flow.
        let mark = if place == 0 { SEEN } else { BYPASS };
        assert_eq!(workload.send(In, &request, 0)?, ((NEXT, mark), behind.clone()), "{place}");
        assert_eq!(workload.send(Out, &behind, SEEN)?, ((NEXT, SEEN), behind), "{place}");
        let answer = part(BACKEND, POD, (8080, 4000), place);
        let shown = part(SERVICE, POD, (80, 4000), place);
        assert_eq!(workload.send(Out, &answer, SEEN)?, ((NEXT, SEEN), shown), "{place}");
    }
    Ok(())
}

#[test]
fn a_connection_whose_workload_is_gone_is_reset() -> Result<()> {
    both([gone::<V4>, gone::<V6>])
}

fn gone<F: World>() -> Result<()> {
    let bench = F::bench()?;
    let workload = F::workload(&bench, &Options::default())?;
    let ends = ((POD, 4000), (ELSEWHERE, 80));
    workload.send(In, &F::frame(POD, ELSEWHERE, TCP, &tcp(4000, 80, SYN, 100, 0)), 0)?;
    let table = Table::<Key<F>, Value<F>>::new(bench.map(&F::map("ct4"))?)?;
    let (key, _) = Key::new(TCP, (F::address(ends.0.0), 4000), (F::address(ends.1.0), 80));
    let mut value = F::entry(&bench, TCP, ends.0, ends.1)?;
    value.flags |= flags::SEND_RESET;
    table.set(&key, &value)?;
    for (sent, answer) in [
        (tcp(4000, 80, ACK, 101, 501), tcp(80, 4000, RST, 501, 0)),
        (tcp(4000, 80, FIN, 101, 0), tcp(80, 4000, RST | ACK, 0, 102)),
    ] {
        let sent = F::frame(POD, ELSEWHERE, TCP, &[sent, vec![9; 30]].concat());
        let (fate, packet) = workload.send(In, &sent, 0)?;
        assert_eq!(fate, (REDIRECT, BYPASS));
        let mut answer = answer;
        // A RST has a window of 0.
        answer[14..16].fill(0);
        let mut expected = F::frame(ELSEWHERE, POD, TCP, &answer);
        expected[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        assert_eq!(packet, expected);
    }
    // A RST is not answered, and a SYN starts over.
    let reset = F::frame(POD, ELSEWHERE, TCP, &tcp(4000, 80, RST, 101, 0));
    assert_eq!(workload.send(In, &reset, 0)?.0.0, DROP);
    let again = F::frame(POD, ELSEWHERE, TCP, &tcp(4000, 80, SYN, 900, 0));
    assert_eq!(workload.send(In, &again, 0)?.0.0, NEXT);
    Ok(())
}
