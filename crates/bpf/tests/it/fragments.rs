//! Fragments in any order: one by one through the programs, and over a wire.

use crate::attachments::index;
use crate::bench::{ALLOWS, Bench, DENIES, DROP, Direction, NEXT, SEEN};
use crate::packets::{self, udp};
use crate::world::{CLIENT, NODE, World};
use Direction::{In, Out};
use anyhow::{Context as _, Result, ensure};
use bpf::Table;
use bpf::clsact::{self, Filters};
use bpf::interface::Options;
use bpf::layout::nat::{Backend, BackendKey, Frontend, FrontendKey};
use bpf::layout::network::{Route, RouteKey, flags};
use bpf::layout::{V4, V6};
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use testkit::network::Namespace;

const INGRESS: usize = 0;
const DENIED: usize = 4;
const WAITS: usize = 20;
const TOO_SOON: usize = 21;
const UDP: u8 = 17;
/// The payload size of every fragment except the last.
const PART: usize = 16;

fn keeps() -> Options {
    Options { keeps_fragments: true, ..Options::default() }
}

/// An IP version, and how it fragments packets.
pub(crate) trait Cut: World {
    /// A fragment of what follows the header: its offset, and whether it is the last.
    fn part(ends: [Self::Address; 2], id: u8, place: usize, is_last: bool, payload: &[u8]) -> Vec<u8>;
    fn ip(address: Self::Address) -> IpAddr;
    /// The addresses of the host and of an outside peer on their wire.
    const WIRE: [Self::Address; 2];

    fn framed(packet: &[u8]) -> Vec<u8> {
        let kind: [u8; 2] = if Self::NUMBER == 4 { [8, 0] } else { [0x86, 0xdd] };
        [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], &kind, packet].concat()
    }

    /// A datagram in fragments.
    fn parts(ends: [Self::Address; 2], id: u8, datagram: &[u8]) -> Vec<Vec<u8>> {
        let count = datagram.len().div_ceil(PART);
        let parts = datagram.chunks(PART).enumerate();
        parts.map(|(place, part)| Self::part(ends, id, place * PART, place + 1 == count, part)).collect()
    }
}

impl Cut for V4 {
    const WIRE: [[u8; 4]; 2] = [[192, 0, 2, 1], [192, 0, 2, 9]];

    fn part(ends: [[u8; 4]; 2], id: u8, place: usize, is_last: bool, payload: &[u8]) -> Vec<u8> {
        let fragment = u16::try_from(place / 8).unwrap() | if is_last { 0 } else { 0x2000 };
        let [source, destination] = ends;
        let mut packet = packets::V4 {
            source,
            destination,
            protocol: UDP,
            id: id.into(),
            fragment,
            options: &[],
            payload,
        }
        .packet();
        crate::world::with_checksum(&mut packet);
        packet
    }

    fn ip(address: [u8; 4]) -> IpAddr {
        address.into()
    }
}

impl Cut for V6 {
    const WIRE: [[u8; 16]; 2] = [
        [0xfd, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        [0xfd, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9],
    ];

    fn part(ends: [[u8; 16]; 2], id: u8, place: usize, is_last: bool, payload: &[u8]) -> Vec<u8> {
        let [high, low] = (u16::try_from(place).unwrap() | u16::from(!is_last)).to_be_bytes();
        let payload = [&[UDP, 0, high, low, 0, 0, 0, id], payload].concat();
        packets::V6 { source: ends[0], destination: ends[1], next: 44, payload: &payload }.packet()
    }

    fn ip(address: [u8; 16]) -> IpAddr {
        address.into()
    }
}

/// A datagram with its length in the header, and the checksum that IPv6 requires.
fn datagram<F: Cut>(ends: [F::Address; 2], from: u16, to: u16, text: &[u8]) -> Vec<u8> {
    let mut datagram = [udp(from, to), text.to_vec()].concat();
    let length = u16::try_from(datagram.len()).unwrap().to_be_bytes();
    datagram[4..6].copy_from_slice(&length);
    let imagined = [ends[0].as_ref(), ends[1].as_ref(), &[0, UDP], &length].concat();
    let words = |bytes: &[u8]| -> u64 {
        bytes.chunks(2).map(|pair| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0))).sum()
    };
    let mut sum = words(&imagined) + words(&datagram);
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    datagram[6..8].copy_from_slice(&(!u16::try_from(sum).unwrap()).to_be_bytes());
    datagram
}

fn waiting(bench: &Bench) -> Result<usize> {
    Ok(bench.map("cali_waiting")?.entries()?.len())
}

/// Runs a test in its own namespace, because reinjected packets use the loopback device of the thread's namespace.
fn apart(test: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let namespace = Namespace::new(&format!("bpf-frag{number}-{}", std::process::id()))?;
    namespace.batch("link set lo up")?;
    namespace.run(test)?
}

#[test]
fn later_fragments_wait_for_the_first() -> Result<()> {
    apart(|| {
        wait_for_first::<V4>()?;
        wait_for_first::<V6>()
    })
}

fn wait_for_first<F: Cut>() -> Result<()> {
    let bench = F::bench()?;
    let host = F::host(&bench, &keeps())?;
    let ends = [F::address(CLIENT), F::address(NODE)];
    let parts = F::parts(ends, 7, &datagram::<F>(ends, 4000, 53, &[5; 40]));
    let frames: Vec<Vec<u8>> = parts.iter().map(|part| F::framed(part)).collect();
    ensure!(frames.len() == 3);
    let count = |reason| bench.counted(In, reason);

    // The last two first: they wait, and do not count as dropped.
    for (place, expected) in [(2, 1), (1, 2)] {
        ensure!(host.send(In, &frames[place], 0)?.0.0 == DROP);
        ensure!((waiting(&bench)?, count(WAITS)?, count(TOO_SOON)?) == (expected, expected as u64, 0));
    }
    // The first one releases all of them: they arrive again on the device, and none waits any more.
    ensure!(host.send(In, &frames[0], 0)?.0.0 == DROP);
    ensure!((waiting(&bench)?, count(WAITS)?) == (0, 3), "{} wait", waiting(&bench)?);
    // From then on in order, without waiting.
    for frame in &frames {
        ensure!(host.send(In, frame, 0)?.0 == (NEXT, SEEN));
    }
    ensure!(host.send(In, &frames[0], 0)?.0 == (NEXT, SEEN));
    ensure!((waiting(&bench)?, count(WAITS)?) == (0, 3));
    Ok(())
}

#[test]
fn waiting_fragments_are_limited() -> Result<()> {
    apart(|| {
        let ends = [V4::address(CLIENT), V4::address(NODE)];
        let later = |id, place| V4::framed(&V4::part(ends, id, place, false, &[1; 8]));
        let bench = V4::bench()?;
        let host = V4::host(&bench, &keeps())?;
        let too_soon = || bench.counted(In, TOO_SOON);
        // As many as the longest packet has on most wires, but not one more.
        for place in 1..=48 {
            host.send(In, &later(1, place * 8), 0)?;
        }
        ensure!((waiting(&bench)?, too_soon()?) == (48, 0));
        host.send(In, &later(1, 49 * 8), 0)?;
        ensure!((waiting(&bench)?, too_soon()?) == (48, 1));
        // A fragment longer than the available space.
        for (length, count) in [(1480, 1), (1488, 2)] {
            let frame = V4::framed(&V4::part(ends, 2, 2048, false, &vec![1; length]));
            host.send(In, &frame, 0)?;
            ensure!(too_soon()? == count, "{length} bytes");
        }
        // Cases in which nothing waits: egress, a workload's interface, disabled, and inside another tunnel.
        let frame = later(3, 64);
        host.send(Out, &frame, 0)?;
        ensure!(bench.counted(Out, TOO_SOON)? == 1);
        V4::workload(&bench, &keeps())?.send(In, &frame, 0)?;
        V4::host(&bench, &Options::default())?.send(In, &frame, 0)?;
        ensure!(too_soon()? == 4 && waiting(&bench)? == 49);
        Ok(())
    })
}

/// A note about a first fragment expires: a later packet may reuse its id.
#[test]
fn ports_of_a_first_fragment_apply_for_a_while() -> Result<()> {
    let bench = V4::bench()?;
    let ends = [V4::address(CLIENT), V4::address(NODE)];
    let parts = V4::parts(ends, 9, &datagram::<V4>(ends, 4000, 53, &[5; 40]));
    let frames: Vec<Vec<u8>> = parts.iter().map(|part| V4::framed(part)).collect();
    for (fragment_seconds, verdict) in [(30, NEXT), (0, DROP)] {
        let host = V4::host(&bench, &Options { fragment_seconds, ..Options::default() })?;
        ensure!(host.send(In, &frames[0], 0)?.0.0 == NEXT);
        ensure!(host.send(In, &frames[1], 0)?.0.0 == verdict, "{fragment_seconds} seconds");
    }
    Ok(())
}

const PORT: u16 = 9000;
const SERVICE_PORT: u16 = 30053;

pub(crate) fn wire<F: Cut>(test: &str) -> Result<()> {
    let name = |part: &str| format!("bpf-{test}{part}-{}", std::process::id());
    let (host, outside) = (Namespace::new(&name("h"))?, Namespace::new(&name("o"))?);
    let [own, stranger] = F::WIRE;
    let bits = F::WIDTH * 8;
    let net = if bits == 32 { "24" } else { "64 nodad" };
    host.batch(&format!(
        "link add eth0 address 02:00:00:00:00:01 type veth peer name eth0 netns {}\nlink set eth0 up\n\
         addr add {}/{net} dev eth0",
        outside.name(),
        F::ip(own)
    ))?;
    // A permanent neighbour, so that no neighbour discovery interferes.
    outside.batch(&format!(
        "link set eth0 up\naddr add {}/{net} dev eth0\nneigh add {} lladdr 02:00:00:00:00:01 dev eth0 nud permanent",
        F::ip(stranger),
        F::ip(own)
    ))?;
    let device = index(&host, "eth0")?;
    let bench = Bench::with_options(F::VERSION, false, false, false, &keeps())?;
    bench.count(device)?;
    bench.lists_of(device, &[(INGRESS, ALLOWS)])?;
    let routes = Table::<RouteKey<F>, Route<F>>::new(bench.map(&F::map("routes"))?)?;
    let route = Route { flags: flags::HOST | flags::LOCAL, next_hop: F::Address::default() };
    routes.set(&RouteKey { bits: u32::try_from(bits)?, address: own }, &route)?;
    // A node port that leads to another port.
    let frontends = Table::<FrontendKey<F>, Frontend>::new(bench.map(&F::map("nat_fe3"))?)?;
    let key = FrontendKey { address: own, port: SERVICE_PORT, protocol: UDP, ..FrontendKey::default() };
    frontends.set(&key, &Frontend { id: 1, count: 1, local: 1, ..Frontend::default() })?;
    let backends = Table::<BackendKey, Backend<F>>::new(bench.map(&F::map("nat_be"))?)?;
    backends.set(&BackendKey { id: 1, ordinal: 0 }, &Backend { address: own, port: PORT })?;
    host.run(|| -> Result<()> {
        let mut filters = Filters::open()?;
        filters.attach(device, clsact::Direction::Ingress, 1, bench.entry(In)?)?;
        filters.attach(device, clsact::Direction::Egress, 1, bench.entry(Out)?)?;
        Ok(())
    })??;

    let at = SocketAddr::new(F::ip(own), PORT);
    let server = host.run(|| UdpSocket::bind(at))??;
    let raw = outside.run(|| {
        let family = if bits == 32 { AddressFamily::INET } else { AddressFamily::INET6 };
        socket(family, SocketType::RAW, Some(ipproto::RAW))
    })??;
    let ends = [stranger, own];
    let send = |id: u8, to: u16, order: &[usize], text: &[u8]| -> Result<()> {
        let parts = F::parts(ends, id, &datagram::<F>(ends, 4000 + u16::from(id), to, text));
        for place in order {
            sendto(&raw, &parts[*place], SendFlags::empty(), &SocketAddr::new(F::ip(own), 0))?;
        }
        Ok(())
    };
    let orders: [&[usize]; 6] = [&[0, 1, 2], &[0, 2, 1], &[1, 0, 2], &[1, 2, 0], &[2, 0, 1], &[2, 1, 0]];
    let mut id = 0;
    server.set_read_timeout(Some(testkit::PATIENCE))?;
    for port in [PORT, SERVICE_PORT] {
        for order in orders {
            id += 1;
            let text: Vec<u8> = (0..40).map(|byte| byte ^ id).collect();
            send(id, port, order, &text)?;
            let mut found = [0; 64];
            let length =
                server.recv(&mut found).with_context(|| format!("to {port} in the order {order:?}"))?;
            ensure!(found[..length] == text, "to {port} in the order {order:?}: {:?}", &found[..length]);
        }
    }
    ensure!(bench.counted_at(device, 0, WAITS)? > 0 && waiting(&bench)? == 0);
    // Denied datagrams are dropped in whatever order.
    bench.lists_of(device, &[(INGRESS, DENIES)])?;
    let denied = || bench.counted_at(device, 0, DENIED);
    let before = denied()?;
    send(100, PORT + 1, &[2, 0, 1], &[1; 40])?;
    testkit::eventually("a packet that is denied", || denied().is_ok_and(|count| count >= before + 3))?;
    Ok(())
}

#[test]
fn fragments_arrive_in_any_order() -> Result<()> {
    wire::<V4>("fr4")
}

#[test]
fn fragments_of_ipv6_arrive_in_any_order() -> Result<()> {
    wire::<V6>("fr6")
}
