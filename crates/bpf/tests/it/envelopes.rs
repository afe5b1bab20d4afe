//! Walks of clients' packets to backends of another node: encapsulated on the way there and back, and decapsulated to
//! what the client expects. Each node has its own maps.

use crate::attachments::index;
use crate::bench::{BYPASS, Bench, DEVICE, DROP, Direction, NEXT, SEEN, Side};
use crate::packets::{ACK, SYN, icmp, tcp, udp};
use crate::world::{ANY, CLIENT, ELSEWHERE, NODE, OTHER_NODE, Who, World, with_checksum};
use Direction::{In, Out};
use anyhow::{Result, ensure};
use bpf::Table;
use bpf::interface::Options;
use bpf::layout::conntrack::flags;
use bpf::layout::nat::{Backend, BackendKey, Frontend};
use bpf::layout::network::{Node, Route, RouteKey, flags as routes};
use bpf::layout::{V4, V6};
use testkit::network::Namespace;

const BYPASS_FORWARD: u32 = 0x0330_0000;
const MASQUERADE: u32 = 0x0360_0000;
const REDIRECT: i32 = 7;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ROOM: u32 = 1000;
const THIRD_NODE: Who = Who(10, 3);
const WRONG_SOURCE: usize = 11;
const WRONG_ENVELOPE: usize = 10;

fn options() -> Options {
    Options { vxlan_port: 4789, maglev_places: 5, ..Options::default() }
}

/// The client's node, the backend's node, and the namespace that holds the routes of both.
struct Nodes {
    namespace: Namespace,
    device: u32,
    asked: Bench,
    serving: Bench,
}

fn fill<F: World>(bench: &Bench, node: Who, there: &[(Who, u32, F::Address)]) -> Result<()> {
    let table = Table::<RouteKey<F>, Route<F>>::new(bench.map(&F::map("routes"))?)?;
    for (who, flags, next_hop) in there {
        #[expect(clippy::cast_possible_truncation, reason = "4 or 16")]
        let bits = F::WIDTH as u32 * 8;
        let key = RouteKey { bits, address: F::address(*who) };
        table.set(&key, &Route { flags: *flags, next_hop: *next_hop })?;
    }
    let value = Node::<F> { address: F::address(node), room: ROOM };
    let table = Table::<u32, Node<F>>::new(bench.map(&format!("bpfp_v{}_node", F::NUMBER))?)?;
    Ok(table.set(&0, &value)?)
}

impl Nodes {
    fn new<F: World>(name: &str) -> Result<Self> {
        let namespace = Namespace::new(&format!("bpf-env-{name}{}-{}", F::NUMBER, std::process::id()))?;
        namespace.set("net/ipv4/ip_forward", "1")?;
        namespace.set("net/ipv6/conf/all/forwarding", "1")?;
        namespace.batch(
            "link add left type veth peer name left-end\nlink set left up\nlink set left-end up\n\
             addr add 10.10.0.77/24 dev left\nroute add 10.200.0.0/24 via 10.10.0.9\n\
             addr add fd00:0:0:a::77/64 dev left nodad\nroute add fd00:0:0:c8::/64 via fd00:0:0:a::9",
        )?;
        let device = index(&namespace, "left")?;
        let (asked, serving) = (F::bench()?, F::bench()?);
        for bench in [&asked, &serving] {
            bench.count(device)?;
            bench.lists_of(device, &[])?;
        }
        let nobody = F::Address::default();
        let mut wire = nobody;
        wire.as_mut()[..4].copy_from_slice(&DEVICE.to_ne_bytes());
        fill::<F>(&asked, NODE, &[(OTHER_NODE, routes::HOST, F::address(OTHER_NODE))])?;
        let there = [
            (ELSEWHERE, routes::WORKLOAD | routes::LOCAL | routes::IN_POOL, wire),
            (OTHER_NODE, routes::HOST | routes::LOCAL, nobody),
            (NODE, routes::HOST, F::address(NODE)),
            (THIRD_NODE, routes::HOST, F::address(THIRD_NODE)),
        ];
        fill::<F>(&serving, OTHER_NODE, &there)?;
        let frontend = |local| Frontend { id: 7, count: 1, local, ..Frontend::default() };
        for protocol in [TCP, UDP] {
            F::frontend(&asked, (NODE, 30080, protocol), None, frontend(0))?;
            F::frontend(&serving, (ANY, 30080, protocol), None, frontend(1))?;
        }
        for bench in [&asked, &serving] {
            F::backend(bench, 7, 0, ELSEWHERE, 8080)?;
        }
        Ok(Self { namespace, device, asked, serving })
    }

    fn send(
        &self,
        side: &Side,
        direction: Direction,
        frame: &[u8],
        mark: u32,
    ) -> Result<((i32, u32), Vec<u8>)> {
        self.namespace.run(|| side.send_on(direction, frame, mark, self.device))?
    }
}

/// The packet with fewer hops left than at the start.
fn later<F: World>(frame: Vec<u8>, hops: u8) -> Vec<u8> {
    let mut frame = frame;
    if F::NUMBER == 4 {
        frame[14 + 8] -= hops;
        with_checksum(&mut frame[14..]);
    } else {
        frame[14 + 7] -= hops;
    }
    frame
}

/// Decapsulates a packet between two nodes into a frame; checks that the outer headers are what Calico's programs
/// expect.
fn opened<F: World>(frame: &[u8], from: Who, to: Who) -> Result<Vec<u8>> {
    let header = if F::NUMBER == 4 { 20 } else { 40 };
    let ip = &frame[14..14 + header];
    let addresses = [F::address(from).as_ref(), F::address(to).as_ref()].concat();
    ensure!(ip[header - addresses.len()..] == addresses[..], "{ip:?}");
    if F::NUMBER == 4 {
        let mut again = ip.to_vec();
        with_checksum(&mut again);
        ensure!(again == ip, "the checksum is wrong: {ip:?}");
        ensure!(usize::from(u16::from_be_bytes([ip[2], ip[3]])) == frame.len() - 14, "{ip:?}");
    }
    let rest = &frame[14 + header..];
    let length = u16::try_from(rest.len())?.to_be_bytes();
    ensure!(rest[2..8] == [0x12, 0xb5, length[0], length[1], 0, 0], "{:?}", &rest[..8]);
    ensure!(rest[8..16] == [8, 0, 0, 0, 0xca, 0x11, 0xc0, 0], "{:?}", &rest[8..16]);
    ensure!(rest[16..28] == [0; 12] && rest[28..30] == frame[12..14], "{:?}", &rest[16..30]);
    Ok([&frame[..14], &rest[30..]].concat())
}

#[test]
fn a_client_is_served_by_another_node_that_sees_its_address() -> Result<()> {
    there_and_back::<V4>()?;
    there_and_back::<V6>()
}

fn there_and_back<F: World>() -> Result<()> {
    for protocol in [TCP, UDP] {
        let nodes = Nodes::new::<F>(if protocol == TCP { "t" } else { "u" })?;
        let (asked, serving) = (F::host(&nodes.asked, &options())?, F::host(&nodes.serving, &options())?);
        let workload = F::workload(&nodes.serving, &options())?;
        let says = |from: u16, to: u16, flags: u8, sequence: u32, acknowledgement: u32| match protocol {
            TCP => tcp(from, to, flags, sequence, acknowledgement),
            _ => udp(from, to),
        };
        for (request, answer) in [((SYN, 100, 0), (SYN | ACK, 500, 101)), ((ACK, 101, 501), (ACK, 501, 101))]
        {
            let sent = F::frame(CLIENT, NODE, protocol, &says(4000, 30080, request.0, request.1, request.2));
            let (fate, wrapped) = nodes.send(&asked, In, &sent, 0)?;
            assert_eq!(fate, (REDIRECT, BYPASS_FORWARD));
            assert_eq!(opened::<F>(&wrapped, NODE, OTHER_NODE)?, later::<F>(sent.clone(), 1));
            assert_eq!(
                nodes.send(&asked, Out, &wrapped, BYPASS_FORWARD)?,
                ((NEXT, BYPASS_FORWARD), wrapped.clone())
            );

            let behind =
                F::frame(CLIENT, ELSEWHERE, protocol, &says(4000, 8080, request.0, request.1, request.2));
            let behind = later::<F>(behind, 1);
            let mark = if request.0 == SYN { SEEN } else { BYPASS };
            assert_eq!(nodes.send(&serving, In, &wrapped, 0)?, ((NEXT, mark), behind.clone()));
            assert_eq!(workload.send(Out, &behind, SEEN)?.0.0, NEXT);

            let sent = F::frame(ELSEWHERE, CLIENT, protocol, &says(8080, 4000, answer.0, answer.1, answer.2));
            assert_eq!(workload.send(In, &sent, 0)?, ((NEXT, SEEN), sent.clone()));
            let (fate, wrapped) = nodes.send(&serving, Out, &sent, SEEN)?;
            assert_eq!(fate, (REDIRECT, BYPASS_FORWARD));
            let shown = F::frame(NODE, CLIENT, protocol, &says(30080, 4000, answer.0, answer.1, answer.2));
            assert_eq!(opened::<F>(&wrapped, OTHER_NODE, NODE)?, later::<F>(shown.clone(), 1));
            assert_eq!(
                nodes.send(&asked, In, &wrapped, 0)?,
                ((REDIRECT, BYPASS_FORWARD), later::<F>(shown, 2))
            );
        }
        let entry = F::entry(&nodes.asked, protocol, (CLIENT, 4000), (ELSEWHERE, 8080))?;
        assert_eq!(entry.flags & !flags::SOURCE_IS_B, flags::NODE_PORT_FORWARD);
        let known = F::tracking(&nodes.asked, protocol, (CLIENT, 4000), (ELSEWHERE, 8080))?;
        assert_eq!(known.tunnel, F::address(OTHER_NODE));
        for leg in [&known.a_to_b, &known.b_to_a] {
            assert!(leg.approved && leg.packets == 2 && (protocol == UDP || leg.syn && leg.ack), "{leg:?}");
        }
        let entry = F::entry(&nodes.serving, protocol, (CLIENT, 4000), (ELSEWHERE, 8080))?;
        assert_eq!(entry.flags & !flags::SOURCE_IS_B, flags::EXTERNAL_LOCAL);
        let known = F::tracking(&nodes.serving, protocol, (CLIENT, 4000), (ELSEWHERE, 8080))?;
        assert_eq!(known.tunnel, F::address(NODE));
    }
    Ok(())
}

/// The first packet of a flow to the backend's node, as that node receives it.
fn wrapped<F: World>(nodes: &Nodes, from: Who, port: u16) -> Result<Vec<u8>> {
    let asked = F::host(&nodes.asked, &options())?;
    let request = F::frame(from, NODE, UDP, &udp(port, 30080));
    Ok(nodes.send(&asked, In, &request, 0)?.1)
}

#[test]
fn an_envelope_must_come_from_a_node_and_always_the_same_one() -> Result<()> {
    spoofed::<V4>()?;
    spoofed::<V6>()
}

fn spoofed<F: World>() -> Result<()> {
    let nodes = Nodes::new::<F>("s")?;
    let serving = F::host(&nodes.serving, &options())?;
    let envelope = wrapped::<F>(&nodes, CLIENT, 4000)?;
    assert_eq!(nodes.send(&serving, In, &envelope, 0)?.0, (NEXT, SEEN));
    // The same flow from another node. The IPv4 checksum is left to the kernel.
    let place = 14 + if F::NUMBER == 4 { 15 } else { 23 };
    let mut other = envelope.clone();
    other[place] = THIRD_NODE.1;
    assert_eq!(nodes.send(&serving, In, &other, 0)?.0.0, DROP);
    assert_eq!(nodes.serving.counted_of(nodes.device, In, WRONG_SOURCE)?, 1);
    // Maglev's flows may change their path.
    let table = Table::<_, _>::new(nodes.serving.map(&F::map("ct4"))?)?;
    let (key, _) =
        bpf::layout::conntrack::Key::<F>::new(UDP, (F::address(CLIENT), 4000), (F::address(ELSEWHERE), 8080));
    let mut value = F::entry(&nodes.serving, UDP, (CLIENT, 4000), (ELSEWHERE, 8080))?;
    value.flags |= flags::MAGLEV;
    table.set(&key, &value)?;
    assert_eq!(nodes.send(&serving, In, &other, 0)?.0.0, NEXT);
    let known = F::tracking(&nodes.serving, UDP, (CLIENT, 4000), (ELSEWHERE, 8080))?;
    assert_eq!(known.tunnel, F::address(THIRD_NODE));

    // With a checksum, not from a node, for a service without local backends, or malformed.
    let checksum = 14 + if F::NUMBER == 4 { 26 } else { 46 };
    let mut with = envelope.clone();
    with[checksum] = 1;
    let mut short = envelope.clone();
    short.truncate(checksum + 14);
    let before = nodes.serving.counted_of(nodes.device, In, WRONG_ENVELOPE)?;
    for frame in [&with, &short] {
        assert_eq!(nodes.send(&serving, In, frame, 0)?.0.0, DROP);
    }
    assert_eq!(nodes.serving.counted_of(nodes.device, In, WRONG_ENVELOPE)?, before + 2);
    F::frontend(
        &nodes.serving,
        (ANY, 30080, UDP),
        None,
        Frontend { id: 7, count: 1, ..Frontend::default() },
    )?;
    assert_eq!(
        nodes.send(&serving, In, &wrapped::<F>(&nodes, CLIENT, 4001)?, 0)?.0.0,
        DROP,
        "no local backend"
    );
    Ok(())
}

#[test]
fn a_backend_that_another_node_would_not_find_sees_this_node() -> Result<()> {
    let nodes = Nodes::new::<V4>("m")?;
    let asked = V4::host(&nodes.asked, &options())?;
    let value = Frontend { id: 7, count: 1, flags: Frontend::INTERNAL_LOCAL, ..Frontend::default() };
    V4::frontend(&nodes.asked, (NODE, 30081, UDP), None, value)?;
    let request = V4::frame(CLIENT, NODE, UDP, &udp(4000, 30081));
    let behind = V4::frame(CLIENT, ELSEWHERE, UDP, &udp(4000, 8080));
    assert_eq!(nodes.send(&asked, In, &request, 0)?, ((NEXT, MASQUERADE), behind));
    // A client node may be the backend's own node: the answer would not leave it.
    let request = V4::frame(OTHER_NODE, NODE, UDP, &udp(4000, 30080));
    let behind = V4::frame(OTHER_NODE, ELSEWHERE, UDP, &udp(4000, 8080));
    assert_eq!(nodes.send(&asked, In, &request, 0)?, ((NEXT, MASQUERADE), behind));
    Ok(())
}

#[test]
fn the_sender_of_a_packet_that_is_too_long_gets_an_error() -> Result<()> {
    too_long::<V4>()?;
    too_long::<V6>()
}

fn too_long<F: World>() -> Result<()> {
    let nodes = Nodes::new::<F>("l")?;
    let (asked, serving) = (F::host(&nodes.asked, &options())?, F::host(&nodes.serving, &options())?);
    let header = if F::NUMBER == 4 { 20 } else { 40 };
    let fits = vec![7; ROOM as usize - header - 8];
    let long = |from: u16, to: u16, extra: usize| [udp(from, to), fits.clone(), vec![7; extra]].concat();
    let (kind, code) = if F::NUMBER == 4 { (3, 4) } else { (2, 0) };
    let error = |from: Who, to: Who, payload: &[u8]| {
        let about = F::packet(to, from, UDP, payload);
        let mut said = icmp(kind, code, &about[..header + 8]);
        said[4..8].copy_from_slice(&ROOM.to_be_bytes());
        let mut frame = F::frame(from, to, F::ICMP, &said);
        frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        frame
    };
    let request = F::frame(CLIENT, NODE, UDP, &long(4000, 30080, 0));
    let (fate, envelope) = nodes.send(&asked, In, &request, 0)?;
    assert_eq!(fate, (REDIRECT, BYPASS_FORWARD));
    let request = long(4000, 30080, 1);
    let (fate, answer) = nodes.send(&asked, In, &F::frame(CLIENT, NODE, UDP, &request), 0)?;
    assert_eq!((fate, answer), ((REDIRECT, BYPASS), error(NODE, CLIENT, &request)));
    // The sender of an answer is behind its node: the error arrives as if from outside.
    assert_eq!(nodes.send(&serving, In, &envelope, 0)?.0.0, NEXT);
    let sent = long(8080, 4000, 1);
    let (fate, answer) = nodes.send(&serving, Out, &F::frame(ELSEWHERE, CLIENT, UDP, &sent), SEEN)?;
    assert_eq!((fate, answer.clone()), ((REDIRECT, 0), error(CLIENT, ELSEWHERE, &sent)));
    assert_eq!(nodes.send(&serving, In, &answer, 0)?, ((NEXT, SEEN), answer));
    Ok(())
}

#[test]
fn errors_take_the_same_paths() -> Result<()> {
    errors::<V4>()?;
    errors::<V6>()
}

fn errors<F: World>() -> Result<()> {
    let nodes = Nodes::new::<F>("e")?;
    let (asked, serving) = (F::host(&nodes.asked, &options())?, F::host(&nodes.serving, &options())?);
    let envelope = wrapped::<F>(&nodes, CLIENT, 4000)?;
    nodes.send(&serving, In, &envelope, 0)?;
    // From the client, about an answer.
    let (kind, code) = if F::NUMBER == 4 { (3, 3) } else { (1, 4) };
    let about = F::packet(NODE, CLIENT, UDP, &udp(30080, 4000));
    let error = F::frame(CLIENT, NODE, F::ICMP, &icmp(kind, code, &about));
    let (fate, envelope) = nodes.send(&asked, In, &error, 0)?;
    assert_eq!(fate, (REDIRECT, BYPASS_FORWARD));
    assert_eq!(opened::<F>(&envelope, NODE, OTHER_NODE)?, later::<F>(error, 1));
    let (fate, packet) = nodes.send(&serving, In, &envelope, 0)?;
    assert_eq!(fate, (NEXT, SEEN));
    let header = if F::NUMBER == 4 { 20 } else { 40 };
    let inner = &packet[14 + header + 8..];
    let addresses = [F::address(ELSEWHERE).as_ref(), F::address(CLIENT).as_ref()].concat();
    assert_eq!(inner[header - addresses.len()..header], addresses[..]);
    assert_eq!(inner[header..header + 2], 8080_u16.to_be_bytes());
    Ok(())
}

#[test]
fn the_backends_node_answers_directly_if_enabled() -> Result<()> {
    direct::<V4>()?;
    direct::<V6>()
}

fn direct<F: World>() -> Result<()> {
    let nodes = Nodes::new::<F>("d")?;
    let options = Options { answers_directly: true, ..options() };
    let (asked, serving) = (F::host(&nodes.asked, &options)?, F::host(&nodes.serving, &options)?);
    let back = Who(200, 8);
    for bench in [&nodes.asked, &nodes.serving] {
        let table = Table::<RouteKey<F>, Route<F>>::new(bench.map(&F::map("routes"))?)?;
        #[expect(clippy::cast_possible_truncation, reason = "4 or 16")]
        let bits = F::WIDTH as u32 * 8;
        let route = Route { flags: routes::NO_DIRECT_RETURN, next_hop: F::Address::default() };
        table.set(&RouteKey { bits, address: F::address(back) }, &route)?;
    }
    for (client, is_direct) in [(CLIENT, true), (back, false)] {
        let request = F::frame(client, NODE, UDP, &udp(4000, 30080));
        let (fate, envelope) = nodes.send(&asked, In, &request, 0)?;
        assert_eq!(fate, (REDIRECT, BYPASS_FORWARD));
        let entry =
            F::entry(&nodes.asked, UDP, (client, 4000), (ELSEWHERE, 8080))?.flags & !flags::SOURCE_IS_B;
        let kind = if is_direct { flags::DIRECT_RETURN } else { flags::NO_DIRECT_RETURN };
        assert_eq!(entry, flags::NODE_PORT_FORWARD | kind);
        assert_eq!(nodes.send(&serving, In, &envelope, 0)?.0, (NEXT, SEEN));
        let answer = F::frame(ELSEWHERE, client, UDP, &udp(8080, 4000));
        let shown = F::frame(NODE, client, UDP, &udp(30080, 4000));
        let (fate, packet) = nodes.send(&serving, Out, &answer, SEEN)?;
        if is_direct {
            assert_eq!((fate, packet), ((NEXT, SEEN), shown));
        } else {
            assert_eq!(fate, (REDIRECT, BYPASS_FORWARD));
            assert_eq!(opened::<F>(&packet, OTHER_NODE, NODE)?, later::<F>(shown, 1));
        }
    }
    Ok(())
}

#[test]
fn a_backend_of_maglev_is_found_on_its_node() -> Result<()> {
    let nodes = Nodes::new::<V4>("g")?;
    let (asked, serving) = (V4::host(&nodes.asked, &options())?, V4::host(&nodes.serving, &options())?);
    let service = Who(96, 1);
    for (bench, local) in [(&nodes.asked, 0), (&nodes.serving, 1)] {
        let value = Frontend { id: 9, count: 1, local, flags: Frontend::MAGLEV, ..Frontend::default() };
        V4::frontend(bench, (service, 80, TCP), None, value)?;
        let table = Table::<BackendKey, Backend<V4>>::new(bench.map("cali_v4_mglv2")?)?;
        for ordinal in 0..5 {
            let backend = Backend { address: V4::address(ELSEWHERE), port: 8080 };
            table.set(&BackendKey { id: 9, ordinal }, &backend)?;
        }
    }
    // In the middle of a connection that neither node knows.
    let middle = V4::frame(CLIENT, service, TCP, &tcp(4000, 80, ACK, 101, 501));
    let (fate, envelope) = nodes.send(&asked, In, &middle, 0)?;
    assert_eq!(fate, (REDIRECT, BYPASS_FORWARD));
    let behind = later::<V4>(V4::frame(CLIENT, ELSEWHERE, TCP, &tcp(4000, 8080, ACK, 101, 501)), 1);
    assert_eq!(nodes.send(&serving, In, &envelope, 0)?, ((NEXT, SEEN), behind));
    Ok(())
}
