//! XDP programs: packets one by one, and over a wire. An XDP program decides what the programs at traffic control would
//! decide without it, and leaves everything else to them.

use crate::attachments::index;
use crate::bench::{ALLOWS, Bench, DENIES, DEVICE, DROP, Direction, NEXT, NO_OPINION, SEEN};
use crate::packets::{self, ACK, SYN, icmp, other, sctp, tcp, udp};
use crate::world::{CLIENT, NODE, World};
use Direction::{In, Out};
use anyhow::{Context as _, Result, ensure};
use bpf::clsact::{self, Filters};
use bpf::interface::{Options, Version};
use bpf::layout::network::FailsafeKey;
use bpf::layout::{V4, V6};
use bpf::xdp::AtDriver;
use bpf::{Layout as _, Link, TestRun, XdpMode};
use std::net::{SocketAddr, UdpSocket};
use testkit::network::Namespace;

const INGRESS: usize = 0;
const UNTRACKED_IN: usize = 5;
const TCP: u8 = 6;
const UDP: u8 = 17;
const TOTAL: usize = 0;
const FAILSAFE: usize = 1;
const ALLOWED: usize = 2;
const BYPASS: usize = 3;
const DENIED: usize = 4;
const AT_DRIVER: u32 = 2;

fn options() -> Options {
    Options {
        asks_untracked: true,
        vxlan_port: 4789,
        vxlan_network: 4096,
        wireguard_port: 51820,
        ..Options::default()
    }
}

/// The outcome for a packet at XDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Dropped,
    /// Left to traffic control, which judges it.
    Left,
    /// Left to traffic control with a note: allowed, or untracked policy had no opinion.
    Noted(u32),
}

/// See `enum note_verdict` of `bpf/note.h`.
const NOTED_ALLOWED: u32 = 0x80;
const NOTED_NO_OPINION: u32 = 0x40;
/// See `NOTE_SIGN` of `bpf/note.h`.
const SIGN: u32 = 0x746f_7274;

fn send(programs: &AtDriver, frame: &[u8]) -> Result<Fate> {
    let outcome = programs.entry()?.test_run(&TestRun { packet: frame, context: &[], repeat: 1 })?;
    // The metadata in front of the packet is returned with it.
    let (note, packet) = outcome.packet.split_at(outcome.packet.len() - frame.len());
    ensure!(packet == frame, "the packet was changed");
    Ok(match (outcome.verdict, note.len()) {
        (1, 0) => Fate::Dropped,
        (2, 0) => Fate::Left,
        (2, 8) if u32::read(&note[..4]) == SIGN => Fate::Noted(u32::read(&note[4..])),
        strange => anyhow::bail!("{strange:?}"),
    })
}

fn v4(id: u16, fragment: u16, options: &[u8], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let (source, destination) = (V4::address(CLIENT), V4::address(NODE));
    packets::V4 { source, destination, protocol, id, fragment, options, payload }.frame()
}

fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
    packets::V6 { source: V6::address(CLIENT), destination: V6::address(NODE), next, payload }.frame()
}

/// Packets that policy is evaluated for, and packets that are left to traffic control.
fn v4_packets() -> [Vec<(&'static str, Vec<u8>)>; 2] {
    let (segment, datagram) = (tcp(4000, 80, SYN, 1, 0), udp(4000, 53));
    let mut broken_length = v4(0, 0, &[], TCP, &segment);
    broken_length[14] = 0x44;
    let mut tagged = other(0x8100);
    tagged[14..].fill(8);
    let judged = vec![
        ("tcp", v4(0, 0, &[], TCP, &segment)),
        ("tcp in the middle", v4(0, 0, &[], TCP, &tcp(4000, 80, ACK, 1, 2))),
        ("udp", v4(0, 0, &[], UDP, &datagram)),
        ("sctp", v4(0, 0, &[], 132, &sctp(1, 2))),
        ("icmp echo", v4(0, 0, &[], 1, &icmp(8, 0, &[]))),
        ("a protocol without ports", v4(0, 0, &[], 47, &[0; 4])),
        ("options", v4(0, 0, &[1, 1, 1, 1, 7, 3, 4, 0], TCP, &segment)),
        ("options up to the last", v4(0, 0, &[1; 40], UDP, &datagram)),
        ("not to be cut", v4(0, 0x4000, &[], UDP, &datagram)),
        ("from the port of tunnels", v4(0, 0, &[], UDP, &udp(4789, 53))),
    ];
    let left = vec![
        ("the first of fragments", v4(7, 0x2000, &[], UDP, &datagram)),
        ("a later one", v4(7, 0x2010, &[], UDP, &[0; 8])),
        ("the last one", v4(7, 0x0020, &[], UDP, &[0; 8])),
        ("tcp cut short", v4(0, 0, &[], TCP, &segment[..19])),
        ("udp cut short", v4(0, 0, &[], UDP, &datagram[..7])),
        ("icmp cut short", v4(0, 0, &[], 1, &[8, 0, 0])),
        ("header length below 5", broken_length),
        ("options cut short", v4(0, 0, &[1; 40], UDP, &[])),
        ("ip in ip", v4(0, 0, &[], 4, &[0x45; 20])),
        ("vxlan", v4(0, 0, &[], UDP, &udp(4000, 4789))),
        ("wireguard", v4(0, 0, &[], UDP, &udp(4000, 51820))),
        ("a port that always works", v4(0, 0, &[], TCP, &tcp(4000, 22, SYN, 1, 0))),
        ("an answer from one", v4(0, 0, &[], UDP, &udp(67, 4000))),
        ("arp", other(0x0806)),
        ("another protocol", other(0x88cc)),
        ("with a tag", tagged),
        ("no more than an ethernet header", other(0x0800)[..14].to_vec()),
    ];
    [judged, left]
}

fn v6_packets() -> [Vec<(&'static str, Vec<u8>)>; 2] {
    let (segment, datagram) = (tcp(4000, 80, SYN, 1, 0), udp(4000, 53));
    let behind = |count: usize, last: u8, end: &[u8]| {
        let chain = (0..count).flat_map(|place| {
            let next = if place + 1 == count { last } else { 60 };
            [vec![next, 1], vec![0; 14]].concat()
        });
        v6(60, &chain.chain(end.iter().copied()).collect::<Vec<u8>>())
    };
    let fragment = |offset_and_more: u16| {
        let [high, low] = offset_and_more.to_be_bytes();
        v6(44, &[&[UDP, 0, high, low, 0, 0, 0, 7], datagram.as_slice()].concat())
    };
    let judged = vec![
        ("tcp", v6(TCP, &segment)),
        ("udp", v6(UDP, &datagram)),
        ("icmp echo", v6(58, &icmp(128, 0, &[]))),
        ("no next header", v6(59, &[])),
        ("an extension", behind(1, TCP, &segment)),
        ("eight of them", behind(8, UDP, &datagram)),
        ("a whole packet with a fragment header", fragment(0)),
    ];
    let left = vec![
        ("the first of fragments", fragment(0x0001)),
        ("a later one", fragment(0x0011)),
        ("nine extensions", behind(9, UDP, &datagram)),
        ("cut short in an extension", behind(1, 60, &[UDP, 0])),
        ("udp cut short", v6(UDP, &datagram[..7])),
        ("who has an address", v6(58, &icmp(135, 0, &[0; 16]))),
        ("who is a router", v6(58, &icmp(133, 0, &[]))),
        ("vxlan", v6(UDP, &udp(4000, 4789))),
        ("a port that always works", v6(TCP, &tcp(4000, 22, SYN, 1, 0))),
        ("an answer from one", v6(UDP, &udp(67, 4000))),
        ("arp", other(0x0806)),
    ];
    [judged, left]
}

#[test]
fn xdp_decides_like_traffic_control() -> Result<()> {
    judged_alike::<V4>(&v4_packets())?;
    judged_alike::<V6>(&v6_packets())
}

fn judged_alike<F: World>([judged, left]: &[Vec<(&'static str, Vec<u8>)>; 2]) -> Result<()> {
    let bench = F::bench()?;
    let (driver, host) = (bench.at_driver(&options())?, F::host(&bench, &options())?);
    let always =
        |port, protocol, is_out| FailsafeKey::<F> { port, protocol, is_out, ..FailsafeKey::default() };
    for port in [always(22, TCP, false), always(67, UDP, true)] {
        bench.map(&F::map("fsafes2"))?.set(&port.bytes(), &[0; 4])?;
    }
    for (list, fate, at_control, counted) in [
        (DENIES, Fate::Dropped, Some(DROP), Some(DENIED)),
        (ALLOWS, Fate::Noted(NOTED_ALLOWED), Some(NEXT), Some(ALLOWED)),
        (NO_OPINION, Fate::Noted(NOTED_NO_OPINION), None, None),
        (0, Fate::Left, None, None),
        // A list that does not exist denies.
        (99, Fate::Dropped, Some(DROP), Some(DENIED)),
    ] {
        bench.lists(&[(INGRESS, ALLOWS), (UNTRACKED_IN, list)])?;
        for (name, frame) in judged {
            let about = format!("{name}, list {list}");
            let count = |reason| bench.counted_at(DEVICE, AT_DRIVER, reason);
            let before = (count(TOTAL)?, counted.map_or(Ok(0), count)?, bench.hits(list + 100)?);
            ensure!(send(&driver, frame)? == fate, "{about}");
            let rule = u64::from(list != 0 && list != 99);
            let expected = (before.0 + 1, before.1 + u64::from(counted.is_some()), before.2 + rule);
            let after = (count(TOTAL)?, counted.map_or(Ok(0), count)?, bench.hits(list + 100)?);
            ensure!(after == expected, "{about}: {before:?}, then {after:?}");
            if let Some(verdict) = at_control {
                let found = host.send(In, frame, 0)?.0;
                ensure!(found.0 == verdict, "{about}: {found:?} at traffic control");
                ensure!(verdict == DROP || found.1 == SEEN, "{about}: {found:?}");
            }
        }
        for (name, frame) in left {
            let before = bench.hits(list + 100)?;
            ensure!(send(&driver, frame)? == Fate::Left, "{name}, list {list}");
            ensure!(bench.hits(list + 100)? == before, "{name}, list {list} was asked");
        }
    }
    // Packets of two failsafe ports, for each of the four lists that the driver evaluated.
    ensure!(bench.counted_at(DEVICE, AT_DRIVER, FAILSAFE)? == 8);
    Ok(())
}

/// A host and an outside peer, with XDP programs and programs at traffic control.
struct Wire {
    host: Namespace,
    outside: Namespace,
    device: u32,
    bench: Bench,
    _link: Link,
    _at_driver: AtDriver,
}

const HOST: [u8; 4] = [192, 0, 2, 1];
const STRANGER: [u8; 4] = [192, 0, 2, 9];
const PORT: u16 = 9000;
const PACKETS: u8 = 20;

impl Wire {
    fn new(test: &str, mode: XdpMode) -> Result<Self> {
        let name = |part: &str| format!("bpf-{test}{part}-{}", std::process::id());
        let (host, outside) = (Namespace::new(&name("h"))?, Namespace::new(&name("o"))?);
        host.batch(&format!(
            "link add eth0 type veth peer name eth0 netns {}\nlink set eth0 up\naddr add 192.0.2.1/24 dev eth0",
            outside.name()
        ))?;
        outside.batch("link set eth0 up\naddr add 192.0.2.9/24 dev eth0")?;
        let device = index(&host, "eth0")?;
        let bench = Bench::with_options(Version::V4, false, false, false, &options())?;
        bench.count(device)?;
        let at_driver = bench.at_driver(&options())?;
        let link = host.run(|| -> Result<Link> {
            let mut filters = Filters::open()?;
            filters.attach(device, clsact::Direction::Ingress, 1, bench.entry(In)?)?;
            filters.attach(device, clsact::Direction::Egress, 1, bench.entry(Out)?)?;
            Ok(Link::xdp(at_driver.entry()?, device, mode)?)
        })??;
        Ok(Self { host, outside, device, bench, _link: link, _at_driver: at_driver })
    }

    /// The packets counted at XDP, and at traffic control.
    fn counted(&self, at_driver: usize, at_control: usize) -> Result<(u64, u64)> {
        let count = |hook, reason| self.bench.counted_at(self.device, hook, reason);
        Ok((count(AT_DRIVER, at_driver)?, count(0, at_control)?))
    }

    /// Sends some datagrams from outside; returns how many arrived once all were counted at XDP.
    fn send(&self, port: u16) -> Result<usize> {
        let server = self.host.run(|| UdpSocket::bind(SocketAddr::from((HOST, port))))??;
        server.set_nonblocking(true)?;
        let client = self.outside.run(|| UdpSocket::bind(SocketAddr::from((STRANGER, 0))))??;
        let before = self.counted(TOTAL, TOTAL)?.0;
        for number in 0..PACKETS {
            client.send_to(&[number], SocketAddr::from((HOST, port)))?;
        }
        testkit::eventually("packets at the driver", || {
            self.counted(TOTAL, TOTAL).is_ok_and(|count| count.0 >= before + u64::from(PACKETS))
        })?;
        // Dropped packets are all counted by then; the others arrive within the same softirq.
        let mut byte = [0; 1];
        let mut arrived = || std::iter::from_fn(|| server.recv(&mut byte).ok()).count();
        let first = arrived();
        Ok(if first == 0 { 0 } else { first + wait_for_rest(first, arrived)? })
    }
}

/// Once one has arrived, waits for the rest.
fn wait_for_rest(first: usize, mut arrived: impl FnMut() -> usize) -> Result<usize> {
    let mut rest = 0;
    testkit::eventually("the rest of the packets", || {
        rest += arrived();
        first + rest >= usize::from(PACKETS)
    })?;
    Ok(rest)
}

pub(crate) fn wire(test: &str, mode: XdpMode) -> Result<()> {
    let wire = Wire::new(test, mode)?;
    let (all, bench) = (u64::from(PACKETS), &wire.bench);
    let lists = |lists: &[(usize, u64)]| bench.lists_of(wire.device, lists);

    // Denied at XDP: nothing reaches traffic control.
    lists(&[(INGRESS, ALLOWS), (UNTRACKED_IN, DENIES)])?;
    let before = wire.counted(DENIED, TOTAL)?;
    ensure!(wire.send(PORT)? == 0, "a packet arrived");
    ensure!(wire.counted(DENIED, TOTAL)? == (before.0 + all, before.1), "{:?}", wire.counted(DENIED, TOTAL)?);

    // Allowed at XDP: traffic control finds the note, evaluates no policy, and remembers nothing.
    lists(&[(INGRESS, DENIES), (UNTRACKED_IN, ALLOWS)])?;
    let (before, hits) = (wire.counted(ALLOWED, BYPASS)?, bench.hits(ALLOWS + 100)?);
    testkit::eventually("a packet that arrives", || wire.send(PORT).is_ok_and(|some| some > 0))?;
    let after = wire.counted(ALLOWED, BYPASS)?;
    ensure!(after.0 - before.0 == after.1 - before.1 && after.0 > before.0, "{before:?}, then {after:?}");
    ensure!(bench.hits(ALLOWS + 100)? - hits == after.0 - before.0, "a packet was judged twice");
    ensure!(bench.connections()? == 0);

    // No opinion: the other lists decide, and the untracked one is evaluated once.
    lists(&[(INGRESS, ALLOWS), (UNTRACKED_IN, NO_OPINION)])?;
    let (total, hits) = (wire.counted(TOTAL, TOTAL)?, bench.hits(NO_OPINION + 100)?);
    testkit::eventually("a packet that arrives", || wire.send(PORT).is_ok_and(|some| some > 0))?;
    let sent = wire.counted(TOTAL, TOTAL)?.0 - total.0;
    let asked = bench.hits(NO_OPINION + 100)? - hits;
    ensure!(asked == sent, "{asked} times for {sent} packets");
    ensure!(bench.connections()? >= 1, "no connection");

    // A failsafe port is left to traffic control, which lets the packet pass.
    lists(&[(UNTRACKED_IN, DENIES)])?;
    let port = FailsafeKey::<V4> { port: PORT + 1, protocol: UDP, ..FailsafeKey::default() };
    bench.map("cali_v4_fsafes2")?.set(&port.bytes(), &[0; 4])?;
    testkit::eventually("a packet that arrives", || wire.send(PORT + 1).is_ok_and(|some| some > 0))?;
    Ok(())
}

#[test]
fn packets_meet_policy_in_the_driver() -> Result<()> {
    wire("xdn", XdpMode::Native)
}

#[test]
fn packets_meet_policy_behind_the_driver() -> Result<()> {
    wire("xdg", XdpMode::Generic)
}

/// A device whose driver does not support XDP can still run a program behind the driver.
#[test]
fn a_driver_without_xdp_is_refused() -> Result<()> {
    let namespace = Namespace::new(&format!("bpf-xdno-{}", std::process::id()))?;
    namespace
        .batch("link set lo up\nlink add tunnel0 type vxlan id 5 dstport 4789 dev lo\nlink set tunnel0 up")?;
    let device = index(&namespace, "tunnel0")?;
    let bench = V4::bench()?;
    let programs = bench.at_driver(&options())?;
    let refused = namespace.run(|| Link::xdp(programs.entry().expect("loaded"), device, XdpMode::Native))?;
    ensure!(refused.is_err(), "a tunnel has such a driver");
    namespace.run(|| Link::xdp(programs.entry()?, device, XdpMode::Generic))?.context("behind the driver")?;
    Ok(())
}
