//! Programs on interfaces: two workloads and the host between them, as namespaces, with connections between the
//! workloads.

use crate::attachments::index;
use crate::bench::{ALLOWS, Bench, DENIES, Direction};
use anyhow::{Context, Result, ensure};
use bpf::clsact::{self, Filters};
use bpf::interface::{Options, Version};
use bpf::layout::conntrack::{Entry, Value};
use bpf::layout::nat::{Backend, BackendKey, Frontend, FrontendKey};
use bpf::layout::network::{Route, RouteKey, flags};
use bpf::{Layout as _, Link, Table, layout, probe};
use netlink::{DeviceKind, Handle, Kernel as _, MacAddress, NewLink, Operation, Peer, first_failure};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;
use testkit::network::Namespace;

const INGRESS: usize = 0;
const EGRESS: usize = 1;
const PORT: u16 = 8080;
const ALLOWED: usize = 2;
const DENIED: usize = 4;
const REDIRECT_PEER: usize = 19;

/// The host and its two workloads; each has one interface on the host.
struct Wires {
    host: Namespace,
    pods: [Namespace; 2],
    devices: [u32; 2],
}

fn address(pod: usize) -> [u8; 4] {
    [10, 65, 0, if pod == 0 { 2 } else { 3 }]
}

/// The kind of device pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pair {
    Veth,
    Netkit,
}

impl Wires {
    fn new(test: &str) -> Result<Self> {
        Self::of(test, Pair::Veth)
    }

    fn of(test: &str, pair: Pair) -> Result<Self> {
        let name = |part: &str| format!("bpf-{test}{part}-{}", std::process::id());
        let host = Namespace::new(&name("h"))?;
        host.set("net/ipv4/ip_forward", "1")?;
        let pods = [Namespace::new(&name("a"))?, Namespace::new(&name("b"))?];
        for (number, pod) in pods.iter().enumerate() {
            let [a, b, c, d] = address(number);
            let outside = pod.name();
            let name = format!("cali{number}");
            match pair {
                Pair::Veth => host.batch(&format!(
                    "link add {name} address ee:ee:ee:ee:ee:ee type veth peer name eth0 netns {outside}"
                ))?,
                Pair::Netkit => {
                    netkit(&host, &name)?;
                    host.batch(&format!("link set eth0 netns {outside}"))?;
                }
            }
            host.batch(&format!("link set {name} up\nroute add {a}.{b}.{c}.{d}/32 dev {name}"))?;
            pod.batch(&format!(
                "link set eth0 address 02:00:00:00:00:0{d}\nlink set eth0 up\naddr add {a}.{b}.{c}.{d}/32 dev eth0\n\
                 route add 169.254.1.1/32 dev eth0\nroute add default via 169.254.1.1\n\
                 neigh add 169.254.1.1 lladdr ee:ee:ee:ee:ee:ee dev eth0 nud permanent"
            ))?;
        }
        let devices = [index(&host, "cali0")?, index(&host, "cali1")?];
        Ok(Self { host, pods, devices })
    }

    /// Whether one workload cannot even connect to the other.
    fn is_cut(&self, from: usize) -> Result<bool> {
        let target = SocketAddr::from((address(1 - from), PORT));
        let _listener = self.pods[1 - from].run(|| TcpListener::bind(target))??;
        Ok(self.pods[from].run(|| TcpStream::connect_timeout(&target, Duration::from_millis(300)))?.is_err())
    }

    /// Makes a connection from one workload to the other, with a request and an answer.
    fn talk(&self, from: usize) -> Result<()> {
        self.talk_to(from, SocketAddr::from((address(1 - from), PORT)))
    }

    /// Makes a connection through an address that leads to the other workload.
    fn talk_to(&self, from: usize, target: SocketAddr) -> Result<()> {
        let to = 1 - from;
        let listener = self.pods[to].run(|| TcpListener::bind(SocketAddr::from((address(to), PORT))))??;
        listener.set_nonblocking(true)?;
        let connected = self.pods[from].run(|| TcpStream::connect_timeout(&target, testkit::PATIENCE))?;
        let mut client = connected.context("connecting")?;
        let (mut server, _) = testkit::eventually("the connection to arrive", || listener.accept().ok())?;
        server.set_nonblocking(false)?;
        for stream in [&client, &server] {
            stream.set_read_timeout(Some(testkit::PATIENCE))?;
        }
        let mut word = [0; 4];
        client.write_all(b"ping")?;
        server.read_exact(&mut word)?;
        ensure!(&word == b"ping");
        server.write_all(b"pong")?;
        client.read_exact(&mut word)?;
        ensure!(&word == b"pong");
        // More than a packet: a large write is segmented by the device, and checksums are computed late.
        let many = vec![7; 1 << 20];
        let read = std::thread::scope(|scope| {
            scope.spawn(|| client.write_all(&many));
            let mut read = vec![0; many.len()];
            server.read_exact(&mut read).map(|()| read)
        })?;
        ensure!(read == many);
        Ok(())
    }

    /// Sends a datagram to an address that leads to the other workload, and receives the answer.
    fn exchange(&self, from: usize, target: SocketAddr) -> Result<()> {
        let to = SocketAddr::from((address(1 - from), PORT));
        let server = self.pods[1 - from].run(|| UdpSocket::bind(to))??;
        let client = self.pods[from].run(|| UdpSocket::bind(SocketAddr::from((address(from), 0))))??;
        for socket in [&server, &client] {
            socket.set_read_timeout(Some(testkit::PATIENCE))?;
        }
        let mut word = [0; 8];
        client.send_to(b"question", target)?;
        let (_, asker) = server.recv_from(&mut word)?;
        server.send_to(b"answered", asker)?;
        let (_, answerer) = client.recv_from(&mut word)?;
        ensure!(&word == b"answered" && answerer == target, "{answerer}");
        Ok(())
    }
}

/// A pair like the CNI plugin's; older versions of `ip` do not know this kind.
fn netkit(host: &Namespace, name: &str) -> Result<()> {
    let peer = Peer { name: "eth0".into(), namespace: None, mac: None };
    let pair = NewLink { mac: Some(MacAddress([0xee; 6])), ..NewLink::new(name, DeviceKind::Netkit(peer)) };
    let mut handle = host.run(Handle::open)??;
    Ok(first_failure(handle.apply(&[Operation::AddLink(pair)]))?)
}

/// Services of the second workload: with a backend, and without one.
fn services(wires: &Wires, bench: &Bench) -> Result<()> {
    let service = |port: u16| SocketAddr::from(([10, 96, 0, 1], port));
    let frontends = Table::<FrontendKey<layout::V4>, Frontend>::new(bench.map("cali_v4_nat_fe3")?)?;
    for (port, count) in [(80, 1), (81, 0)] {
        for protocol in [6, 17] {
            let key = FrontendKey { address: [10, 96, 0, 1], port, protocol, ..FrontendKey::default() };
            frontends.set(&key, &Frontend { id: 1, count, ..Frontend::default() })?;
        }
    }
    let backends = Table::<BackendKey, Backend<layout::V4>>::new(bench.map("cali_v4_nat_be")?)?;
    backends.set(&BackendKey { id: 1, ordinal: 0 }, &Backend { address: address(1), port: PORT })?;
    wires.talk_to(0, service(80)).context("a service by TCP")?;
    wires.exchange(0, service(80)).context("a service by UDP")?;
    let refused = wires.pods[0].run(|| TcpStream::connect_timeout(&service(81), testkit::PATIENCE))?;
    let kind = refused.err().map(|error| error.kind());
    ensure!(kind == Some(std::io::ErrorKind::ConnectionRefused), "without a backend: {kind:?}");
    Ok(())
}

pub(crate) fn walk(test: &str, with_links: bool) -> Result<()> {
    walk_with(test, with_links, &Options::default()).map(drop)
}

/// Returns how many packets bypassed the host's network stack: to neighbours, and into workloads' namespaces.
fn walk_with(test: &str, with_links: bool, options: &Options) -> Result<[u64; 2]> {
    walk_by(&Wires::new(test)?, with_links, options)
}

/// Workloads with netkit devices, whose programs are on the host's end like those of any device: every packet of both
/// directions passes them, and the direct path leads into the other namespace.
pub(crate) fn walk_netkit(test: &str) -> Result<()> {
    for (part, with_links) in [("l", true), ("f", false)] {
        let test = format!("{test}{part}");
        let peers = Options { redirects_to_peer: true, ..Options::default() };
        for options in [Options::default(), peers] {
            let redirected = walk_by(&Wires::of(&test, Pair::Netkit)?, with_links, &options)?;
            ensure!((redirected[1] > 0) == options.redirects_to_peer, "{test}: {redirected:?}");
        }
    }
    Ok(())
}

fn walk_by(wires: &Wires, with_links: bool, options: &Options) -> Result<[u64; 2]> {
    wires.talk(0)?;
    let bench = Bench::with_options(Version::V4, true, false, true, options)?;
    let routes = Table::<RouteKey<layout::V4>, Route<layout::V4>>::new(bench.map("cali_v4_routes")?)?;
    for (number, device) in wires.devices.iter().enumerate() {
        let route = Route { flags: flags::WORKLOAD | flags::LOCAL, next_hop: device.to_ne_bytes() };
        routes.set(&RouteKey { bits: 32, address: address(number) }, &route)?;
        bench.count(*device)?;
    }
    // The first workload may connect to the second, but not vice versa.
    bench.lists_of(wires.devices[0], &[(EGRESS, ALLOWS), (INGRESS, DENIES)])?;
    bench.lists_of(wires.devices[1], &[(EGRESS, ALLOWS), (INGRESS, ALLOWS)])?;
    let attached = wires.host.run(|| -> Result<Vec<Link>> {
        let mut links = Vec::new();
        let mut filters = Filters::open()?;
        for device in wires.devices {
            let (first, second) = (bench.entry(Direction::In)?, bench.entry(Direction::Out)?);
            if with_links {
                links.extend([Link::ingress(first, device)?, Link::egress(second, device)?]);
            } else {
                filters.attach(device, clsact::Direction::Ingress, 1, first)?;
                filters.attach(device, clsact::Direction::Egress, 1, second)?;
            }
        }
        Ok(links)
    })??;

    wires.talk(0)?;
    ensure!(bench.counted_of(wires.devices[0], Direction::In, ALLOWED)? >= 1);
    ensure!(bench.counted_of(wires.devices[1], Direction::Out, ALLOWED)? >= 1);
    let Entry::Normal(tracking) = Value::<layout::V4>::read(&bench.connection()?.1).entry else {
        anyhow::bail!("no plain connection");
    };
    ensure!(tracking.a_to_b.approved && tracking.b_to_a.approved, "{tracking:?}");
    ensure!(tracking.a_to_b.ack && tracking.b_to_a.ack && tracking.a_to_b.bytes > 0, "{tracking:?}");

    services(wires, &bench)?;
    ensure!(wires.is_cut(1)?, "the second called the first");
    ensure!(bench.counted_of(wires.devices[0], Direction::Out, DENIED)? >= 1);
    bench.lists_of(wires.devices[0], &[(EGRESS, ALLOWS), (INGRESS, ALLOWS)])?;
    wires.talk(1)?;
    bench.lists_of(wires.devices[0], &[])?;
    ensure!(wires.is_cut(0)? && wires.is_cut(1)?);

    let mut redirected = [0; 2];
    for device in wires.devices {
        for (count, reason) in redirected.iter_mut().zip([18, 19]) {
            *count += bench.counted_of(device, Direction::In, reason)?;
        }
    }
    drop(attached);
    if !with_links {
        wires.host.run(|| -> Result<()> {
            let mut filters = Filters::open()?;
            for device in wires.devices {
                ensure!(filters.detach(device, clsact::Direction::Ingress, 1)?);
                ensure!(filters.detach(device, clsact::Direction::Egress, 1)?);
            }
            Ok(())
        })??;
    }
    wires.talk(1)?;
    Ok(redirected)
}

#[test]
fn packets_of_allowed_flows_bypass_the_hosts_stack() -> Result<()> {
    let neighbours = Options { redirects: true, ..Options::default() };
    let redirected = walk_with("fwn", false, &neighbours)?;
    ensure!(redirected[0] > 0 && redirected[1] == 0, "{redirected:?}");
    let peers = Options { redirects_to_peer: true, ..neighbours };
    let redirected = walk_with("fwp", false, &peers)?;
    ensure!(redirected[1] > 0, "{redirected:?}");
    Ok(())
}

/// The direct path, with a map of connections that lost one of them: it continues, whichever end sends first, and
/// nothing else does.
pub(crate) fn forgotten(test: &str) -> Result<()> {
    let wires = Wires::new(test)?;
    let options = Options { redirects_to_peer: true, ..Options::default() };
    let bench = Bench::with_options(Version::V4, true, false, true, &options)?;
    let routes = Table::<RouteKey<layout::V4>, Route<layout::V4>>::new(bench.map("cali_v4_routes")?)?;
    for (number, device) in wires.devices.iter().enumerate() {
        let route = Route { flags: flags::WORKLOAD | flags::LOCAL, next_hop: device.to_ne_bytes() };
        routes.set(&RouteKey { bits: 32, address: address(number) }, &route)?;
        bench.count(*device)?;
    }
    bench.lists_of(wires.devices[0], &[(EGRESS, ALLOWS), (INGRESS, DENIES)])?;
    bench.lists_of(wires.devices[1], &[(EGRESS, ALLOWS), (INGRESS, ALLOWS)])?;
    wires.host.run(|| -> Result<()> {
        let mut filters = Filters::open()?;
        for device in wires.devices {
            filters.attach(device, clsact::Direction::Ingress, 1, bench.entry(Direction::In)?)?;
            filters.attach(device, clsact::Direction::Egress, 1, bench.entry(Direction::Out)?)?;
        }
        Ok(())
    })??;

    let target = SocketAddr::from((address(1), PORT));
    let listener = wires.pods[1].run(|| TcpListener::bind(target))??;
    let client = wires.pods[0].run(|| TcpStream::connect_timeout(&target, testkit::PATIENCE))??;
    let (server, _) = listener.accept()?;
    let say = |mut from: &TcpStream, mut to: &TcpStream, when: &str| -> Result<()> {
        to.set_read_timeout(Some(testkit::PATIENCE))?;
        let mut word = [0; 4];
        from.write_all(b"word")?;
        to.read_exact(&mut word).with_context(|| format!("{when}: the connection is cut"))?;
        ensure!(&word == b"word");
        Ok(())
    };
    say(&client, &server, "at first")?;
    say(&server, &client, "at first")?;
    let connections = bench.map("cali_v4_ct4")?;
    let held = bench.connection()?.0;
    for (from, to, who) in [(&server, &client, "the server"), (&client, &server, "the client")] {
        // As the map itself evicts the least recently used entry when it is full.
        ensure!(connections.remove(&held)?, "no entry");
        say(from, to, &format!("forgotten, and {who} goes on"))?;
        say(to, from, "and the other")?;
        // From then on direct, as before.
        let straight = || -> Result<u64> {
            let of = |device| bench.counted_of(device, Direction::In, REDIRECT_PEER);
            Ok(of(wires.devices[0])? + of(wires.devices[1])?)
        };
        let before = straight()?;
        say(from, to, "straight")?;
        ensure!(straight()? > before, "not straight any more");
        ensure!(wires.is_cut(1)?, "the second called the first");
    }
    drop((client, server));
    let kept = bench.map("bpfp_v4_direct")?;
    testkit::eventually("what is kept of it to go", || kept.get(&held).is_ok_and(|kept| kept.is_none()))?;
    Ok(())
}

#[test]
fn a_forgotten_entry_cuts_no_connection() -> Result<()> {
    forgotten("fgt")
}

#[test]
fn workloads_communicate_as_their_lists_allow_with_links() -> Result<()> {
    let probed = Wires::new("tcxp")?;
    let device = probed.devices[0];
    if probed.host.run(|| probe::features(device))?.tcx { walk("tcx", true) } else { Ok(()) }
}

#[test]
fn workloads_communicate_as_their_lists_allow_with_filters() -> Result<()> {
    walk("cls", false)
}
