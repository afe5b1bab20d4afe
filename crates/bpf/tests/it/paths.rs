//! Walks that depend on where packets come from and go to: sources, envelopes, the host, marks for netfilter.

use crate::attachments::index;
use crate::bench::{ALLOWS, DENIES, DEVICE, DROP, Direction, FALL_THROUGH, NEXT, SEEN};
use crate::packets::{ACK, SYN, icmp, tcp, udp};
use crate::world::{BACKEND, CLIENT, ELSEWHERE, NODE, OTHER_NODE, POD, SERVICE, Who, World};
use Direction::{In, Out};
use anyhow::Result;
use bpf::Table;
use bpf::clsact::{self, Filters};
use bpf::interface::{Interface, Kind, Options, ReversePath};
use bpf::layout::devices::SourceKey;
use bpf::layout::network::{Route, RouteKey, flags};
use bpf::layout::{V4, V6};
use std::net::{SocketAddr, UdpSocket};
use testkit::network::Namespace;

const SKIP_FIB: u32 = 0x0110_0000;
const NAT_OUTGOING: u32 = 0x0180_0000;
const REDIRECT: i32 = 7;
const ENVELOPE: usize = 10;
const BLACKHOLE: usize = 13;
const TCP: u8 = 6;
const UDP: u8 = 17;

#[test]
fn a_workload_is_masqueraded_outside() -> Result<()> {
    let bench = V4::bench()?;
    let plain = V4::workload(&bench, &Options::default())?;
    let shows = V4::workload(&bench, &Options { keeps_host_sources: true, ..Options::default() })?;
    let marks = |to: Who, port: u16| -> Result<(u32, u32)> {
        let mark = |side: &crate::bench::Side, port: u16| -> Result<u32> {
            let frame = V4::frame(POD, to, UDP, &udp(port, 53));
            let (first, _) = side.send(In, &frame, 0)?;
            // Every packet of the flow gets the same verdict.
            assert_eq!(side.send(In, &frame, 0)?.0, first, "{to:?}");
            Ok(first.1)
        };
        Ok((mark(&plain, port)?, mark(&shows, port + 1)?))
    };
    assert_eq!(marks(CLIENT, 10)?, (NAT_OUTGOING, NAT_OUTGOING));
    assert_eq!(marks(ELSEWHERE, 20)?, (SEEN, SEEN));
    assert_eq!(marks(NODE, 30)?, (SEEN, SEEN));
    assert_eq!(marks(OTHER_NODE, 40)?, (NAT_OUTGOING, SEEN));
    // After masquerading by the node it is another flow, which is forwarded; the answer returns through both.
    let host = V4::host(&bench, &Options::default())?;
    bench.lists(&[(1, DENIES), (3, ALLOWS)])?;
    let hidden = V4::frame(NODE, CLIENT, UDP, &udp(61000, 53));
    assert_eq!(host.send(Out, &hidden, NAT_OUTGOING)?.0.0, NEXT);
    assert_eq!(host.send(In, &V4::frame(CLIENT, NODE, UDP, &udp(53, 61000)), 0)?.0.0, NEXT);
    assert_eq!(plain.send(Out, &V4::frame(CLIENT, POD, UDP, &udp(53, 10)), SEEN)?.0.0, NEXT);
    Ok(())
}

#[test]
fn the_host_reaches_its_workloads_and_they_reach_it_if_permitted() -> Result<()> {
    let bench = V6::bench()?;
    bench.lists(&[(0, DENIES), (1, ALLOWS)])?;
    let (open, closed) = (
        V6::workload(&bench, &Options::default())?,
        V6::workload(&bench, &Options { drops_to_host: true, ..Options::default() })?,
    );
    let to_pod = V6::frame(NODE, POD, TCP, &tcp(1, 80, SYN, 1, 0));
    // A packet marked as seen on ingress is not the host's own, whatever its source.
    assert_eq!(open.send(Out, &to_pod, SEEN)?.0.0, DROP);
    assert_eq!(open.send(Out, &to_pod, 0)?.0.0, NEXT);
    let to_host = V6::frame(POD, NODE, TCP, &tcp(2, 80, SYN, 1, 0));
    assert_eq!((open.send(In, &to_host, 0)?.0.0, closed.send(In, &to_host, 0)?.0.0), (NEXT, DROP));
    // An answer is not affected.
    let answer = V6::frame(POD, NODE, TCP, &tcp(80, 1, SYN | ACK, 1, 2));
    assert_eq!(closed.send(In, &answer, 0)?.0.0, NEXT);
    let elsewhere = V6::frame(POD, ELSEWHERE, TCP, &tcp(3, 80, SYN, 1, 0));
    assert_eq!(closed.send(In, &elsewhere, 0)?.0.0, NEXT);
    Ok(())
}

#[test]
fn envelopes_pass_between_nodes_only() -> Result<()> {
    let bench = V4::bench()?;
    bench.lists(&[(0, DENIES), (1, DENIES), (2, DENIES), (3, DENIES)])?;
    let options =
        Options { vxlan_port: 4789, vxlan_network: 4096, wireguard_port: 51820, ..Options::default() };
    let host = V4::host(&bench, &options)?;
    let ours =
        |network: u32| [udp(1, 4789), vec![8, 0, 0, 0], (network << 8).to_be_bytes().to_vec()].concat();
    let unmarked = [udp(1, 4789), vec![0; 4], (4096_u32 << 8).to_be_bytes().to_vec()].concat();
    let inner = V4::packet(POD, ELSEWHERE, UDP, &udp(1, 2));
    for (name, direction, from, to, protocol, payload, verdict) in [
        ("vxlan in", In, OTHER_NODE, NODE, UDP, ours(4096), NEXT),
        ("vxlan of another network", In, OTHER_NODE, NODE, UDP, ours(4097), DROP),
        ("vxlan of node ports", In, OTHER_NODE, NODE, UDP, ours(0x00ca_11c0), DROP),
        ("vxlan without a network", In, OTHER_NODE, NODE, UDP, unmarked, DROP),
        ("vxlan cut short", In, OTHER_NODE, NODE, UDP, udp(1, 4789), DROP),
        ("vxlan from a stranger", In, CLIENT, NODE, UDP, ours(4096), DROP),
        ("vxlan through", In, OTHER_NODE, BACKEND, UDP, ours(4096), DROP),
        ("vxlan out", Out, NODE, OTHER_NODE, UDP, ours(4096), NEXT),
        ("vxlan out to a stranger", Out, NODE, CLIENT, UDP, ours(4096), DROP),
        ("wireguard in", In, OTHER_NODE, NODE, UDP, udp(51820, 51820), NEXT),
        ("wireguard from a stranger", In, CLIENT, NODE, UDP, udp(51820, 51820), DROP),
        ("wireguard out", Out, NODE, OTHER_NODE, UDP, udp(51820, 51820), NEXT),
        ("ip in ip in", In, OTHER_NODE, NODE, 4, inner.clone(), NEXT),
        ("ip in ip from a stranger", In, CLIENT, NODE, 4, inner.clone(), DROP),
        ("ip in ip out", Out, NODE, OTHER_NODE, 4, inner.clone(), NEXT),
        ("ip in ip out to a stranger", Out, NODE, CLIENT, 4, inner.clone(), DROP),
        ("another port", In, OTHER_NODE, NODE, UDP, udp(1, 4790), DROP),
    ] {
        assert_eq!(host.send(direction, &V4::frame(from, to, protocol, &payload), 0)?.0.0, verdict, "{name}");
    }
    assert_eq!(bench.connections()?, 0);
    // A workload's envelope would appear to come from its node after masquerading.
    bench.lists(&[(0, ALLOWS), (1, ALLOWS)])?;
    let before = bench.counted(In, ENVELOPE)?;
    let allowed = Options { allows_ipip: true, allows_vxlan: true, ..options };
    for (options, verdict) in [(options, DROP), (allowed, NEXT)] {
        let workload = V4::workload(&bench, &options)?;
        assert_eq!(workload.send(In, &V4::frame(POD, OTHER_NODE, UDP, &ours(4096)), 0)?.0.0, verdict);
        assert_eq!(workload.send(In, &V4::frame(POD, OTHER_NODE, 4, &inner), 0)?.0.0, verdict);
        assert_eq!(workload.send(Out, &V4::frame(OTHER_NODE, POD, UDP, &ours(4096)), SEEN)?.0.0, NEXT);
    }
    assert_eq!(bench.counted(In, ENVELOPE)?, before + 2);
    Ok(())
}

#[test]
fn a_source_has_its_way_back_on_the_hosts_interfaces() -> Result<()> {
    let namespace = Namespace::new(&format!("bpf-path-{}", std::process::id()))?;
    namespace.set("net/ipv4/ip_forward", "1")?;
    namespace.set("net/ipv6/conf/all/forwarding", "1")?;
    namespace.batch(
        "link add left type veth peer name left-end\nlink set left up\nlink set left-end up\n\
         link add right type veth peer name right-end\nlink set right up\nlink set right-end up\n\
         addr add 10.10.0.1/24 dev left\naddr add 10.20.0.1/24 dev right\nroute add 10.200.0.0/24 via 10.10.0.9\n\
         addr add fd00:0:0:a::1/64 dev left nodad\naddr add fd00:0:0:14::1/64 dev right nodad\n\
         route add fd00:0:0:c8::/64 via fd00:0:0:a::9",
    )?;
    let (left, right) = (index(&namespace, "left")?, index(&namespace, "right")?);
    path::<V4>(&namespace, left, right)?;
    path::<V6>(&namespace, left, right)
}

fn path<F: World>(namespace: &Namespace, left: u32, right: u32) -> Result<()> {
    for (reverse_path, expected) in [
        (ReversePath::Any, [NEXT, NEXT, NEXT]),
        (ReversePath::Loose, [NEXT, NEXT, DROP]),
        (ReversePath::Strict, [NEXT, DROP, DROP]),
    ] {
        let bench = F::bench()?;
        let host = F::host(&bench, &Options { reverse_path, ..Options::default() })?;
        let fates = namespace.run(|| -> Result<Vec<i32>> {
            let from = |who: Who, device: u32, port: u16| -> Result<i32> {
                let frame = F::frame(who, BACKEND, UDP, &udp(port, 53));
                Ok(host.send_on(In, &frame, 0, device)?.0.0)
            };
            // The expected interface, another one, and no route.
            Ok(vec![from(CLIENT, left, 1)?, from(CLIENT, right, 2)?, from(Who(99, 1), left, 3)?])
        })??;
        assert_eq!(fates, expected, "{reverse_path:?} of IPv{}", F::NUMBER);
        // Packets of a known flow are checked, too.
        let moved = namespace.run(|| -> Result<i32> {
            let frame = F::frame(CLIENT, BACKEND, UDP, &udp(1, 53));
            Ok(host.send_on(In, &frame, 0, right)?.0.0)
        })??;
        assert_eq!(moved, expected[1], "{reverse_path:?} of IPv{}", F::NUMBER);
    }
    Ok(())
}

#[test]
fn a_workload_may_send_from_additional_networks() -> Result<()> {
    let bench = V4::bench()?;
    let lent = Options { looks_up_sources: true, ..Options::default() };
    let table = Table::<SourceKey<V4>, u32>::new(bench.map("cali_v4_sprefix")?)?;
    table.set(&SourceKey { bits: 24, device: DEVICE, address: V4::address(Who(77, 0)) }, &1)?;
    let frame = V4::frame(Who(77, 5), CLIENT, UDP, &udp(1, 2));
    assert_eq!(V4::workload(&bench, &Options::default())?.send(In, &frame, 0)?.0.0, DROP);
    let workload = V4::workload(&bench, &lent)?;
    assert_eq!(workload.send(In, &frame, 0)?.0.0, NEXT);
    assert_eq!(bench.connections()?, 0);
    let stranger = V4::frame(Who(78, 5), CLIENT, UDP, &udp(1, 2));
    assert_eq!(workload.send(In, &stranger, 0)?.0.0, DROP);
    Ok(())
}

#[test]
fn ports_that_a_service_does_not_have_are_refused() -> Result<()> {
    let bench = V4::bench()?;
    let workload = V4::workload(&bench, &Options::default())?;
    let routes = Table::<RouteKey<V4>, Route<V4>>::new(bench.map("cali_v4_routes")?)?;
    let frame = V4::frame(POD, SERVICE, TCP, &tcp(1, 9, SYN, 1, 0));
    for (flags, verdict) in [(flags::DROP, DROP), (flags::REJECT, REDIRECT)] {
        let key = RouteKey { bits: 16, address: V4::address(Who(96, 0)) };
        routes.set(&key, &Route { flags, next_hop: [0; 4] })?;
        assert_eq!(workload.send(In, &frame, 0)?.0.0, verdict);
    }
    assert_eq!(bench.counted(In, BLACKHOLE)?, 2);
    Ok(())
}

#[test]
fn connections_that_only_the_host_may_know_are_left_to_netfilter() -> Result<()> {
    let bench = V4::bench()?;
    let host = V4::host(&bench, &Options::default())?;
    let middle = V4::frame(CLIENT, NODE, TCP, &tcp(1, 22, ACK, 5, 6));
    assert_eq!(host.send(In, &middle, 0)?.0, (NEXT, FALL_THROUGH));
    let about = V4::packet(NODE, CLIENT, UDP, &udp(5, 6));
    let error = V4::frame(OTHER_NODE, NODE, 1, &icmp(3, 1, &about));
    assert_eq!(host.send(In, &error, 0)?.0, (NEXT, FALL_THROUGH));
    assert_eq!(host.send(Out, &error, 0)?.0.0, DROP);
    // Forwarded packets to an unknown destination are routed by the host's network stack.
    let through = V4::frame(CLIENT, Who(50, 1), UDP, &udp(1, 2));
    assert_eq!(host.send(In, &through, 0)?.0, (NEXT, SKIP_FIB));
    Ok(())
}

#[test]
fn the_loopback_interface_and_tunnels_have_their_own_rules() -> Result<()> {
    let bench = V4::bench()?;
    bench.lists(&[(0, DENIES), (1, DENIES), (2, DENIES), (3, DENIES)])?;
    let loopback = Options { kind: Kind::Loopback, is_udp_only: true, ..Options::default() };
    let host = V4::host(&bench, &loopback)?;
    let frame = V4::frame(NODE, NODE, TCP, &tcp(1, 22, SYN, 5, 6));
    assert_eq!(host.send(In, &frame, 0)?.0, (NEXT, 0));
    assert_eq!(host.send(Out, &frame, 0)?.0, (NEXT, 0));
    // Packets out of a tunnel were marked in their envelope, and are counted all the same.
    bench.lists(&[(2, ALLOWS)])?;
    let tunnel = V4::host(&bench, &Options { kind: Kind::Tunnel, ..Options::default() })?;
    let frame = V4::frame(ELSEWHERE, BACKEND, UDP, &udp(1, 2));
    for _ in 0..3 {
        assert_eq!(tunnel.send(In, &frame, SEEN)?.0.0, NEXT);
    }
    let state = V4::tracking(&bench, UDP, (ELSEWHERE, 1), (BACKEND, 2))?;
    assert_eq!(state.a_to_b.packets + state.b_to_a.packets, 3);
    Ok(())
}

#[test]
fn pending_lists_are_counted_but_not_enforced() -> Result<()> {
    let bench = V4::bench()?;
    let workload = V4::workload(&bench, &Options::default())?;
    for (enforced, pending, verdict) in [(ALLOWS, DENIES, NEXT), (DENIES, ALLOWS, DROP)] {
        bench.lists(&[(1, enforced), (8, pending)])?;
        let frame = V4::frame(POD, BACKEND, TCP, &tcp(1, 2, SYN, 1, 0));
        assert_eq!(workload.send(In, &frame, 0)?.0.0, verdict);
        assert_eq!(bench.hits(enforced + 100)?, 1);
        assert_eq!(bench.hits(!(pending + 100))?, 1);
    }
    Ok(())
}

/// Frames of test runs always have Ethernet headers; this is a real device, whose packets are not read.
#[test]
fn packets_of_devices_without_ethernet_headers_are_parsed() -> Result<()> {
    let namespace = Namespace::new(&format!("bpf-tun-{}", std::process::id()))?;
    namespace.batch(
        "link set lo up\ntuntap add dev tun0 mode tun\nlink set tun0 up\naddr add 10.10.0.1/24 dev tun0",
    )?;
    let device = index(&namespace, "tun0")?;
    let bench = V4::bench()?;
    bench.count(device)?;
    let interface = Interface {
        is_workload: false,
        is_leaving: false,
        is_layer_3: true,
        has_both: false,
        checks_source: false,
    };
    let tunnel = bench.beside(&interface, &Options { kind: Kind::Tunnel, ..Options::default() })?;
    namespace.run(|| -> Result<()> {
        let mut filters = Filters::open()?;
        filters.attach(device, clsact::Direction::Egress, 1, tunnel.program(Out)?)?;
        let socket = UdpSocket::bind(SocketAddr::from((V4::address(NODE), 4000)))?;
        // The result does not matter: there is no receiver.
        let _ = socket.send_to(b"hello", SocketAddr::from((V4::address(OTHER_NODE), 4001)));
        Ok(())
    })??;
    let state = V4::tracking(&bench, UDP, (NODE, 4000), (OTHER_NODE, 4001))?;
    assert_eq!(state.a_to_b.bytes + state.b_to_a.bytes, 33);
    assert_eq!(bench.counted_of(device, Out, 2)?, 1);
    Ok(())
}
