//! Programs and netfilter together: a node with an outside client, a workload, and another node's workload behind it.
//! The rules are those that stay in netfilter, as far as they matter here: masquerading by mark.

use crate::attachments::index;
use crate::bench::{ALLOWS, Bench, Direction, Side};
use crate::world::World as _;
use anyhow::{Context as _, Result, ensure};
use bpf::Table;
use bpf::clsact::{self, Filters};
use bpf::interface::{Interface, Kind, Options, ReversePath};
use bpf::layout::V4;
use bpf::layout::nat::{Backend, BackendKey, Frontend, FrontendKey};
use bpf::layout::network::{Route, RouteKey, flags};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use testkit::network::Namespace;

const CLIENT: [u8; 4] = [192, 0, 2, 9];
const NODE: [u8; 4] = [192, 0, 2, 1];
const POD: [u8; 4] = [10, 65, 0, 2];
const ELSEWHERE: [u8; 4] = [10, 66, 0, 9];
const SERVICE: [u8; 4] = [10, 96, 0, 1];
const PORT: u16 = 8080;

struct Node {
    host: Namespace,
    client: Namespace,
    pod: Namespace,
    elsewhere: Namespace,
    bench: Bench,
    sides: Vec<Side>,
}

fn text(address: [u8; 4]) -> String {
    IpAddr::from(address).to_string()
}

impl Node {
    fn new() -> Result<Self> {
        let name = |part: &str| format!("bpf-nf{part}-{}", std::process::id());
        let (host, client) = (Namespace::new(&name("h"))?, Namespace::new(&name("c"))?);
        let (pod, elsewhere) = (Namespace::new(&name("p"))?, Namespace::new(&name("e"))?);
        host.set("net/ipv4/ip_forward", "1")?;
        let (to, far) = (text(POD), text(ELSEWHERE));
        host.batch(&format!(
            "link add eth0 type veth peer name eth0 netns {}\nlink set eth0 up\naddr add {}/24 dev eth0\n\
             link add cali0 address ee:ee:ee:ee:ee:ee type veth peer name eth0 netns {}\nlink set cali0 up\n\
             route add {to}/32 dev cali0\n\
             link add eth1 type veth peer name eth0 netns {}\nlink set eth1 up\naddr add 192.0.3.1/24 dev eth1\n\
             route add {far}/32 via 192.0.3.2",
            client.name(),
            text(NODE),
            pod.name(),
            elsewhere.name(),
        ))?;
        client.batch(&format!("link set eth0 up\naddr add {}/24 dev eth0", text(CLIENT)))?;
        pod.batch(&format!(
            "link set eth0 up\naddr add {to}/32 dev eth0\nroute add 169.254.1.1/32 dev eth0\n\
             route add default via 169.254.1.1\n\
             neigh add 169.254.1.1 lladdr ee:ee:ee:ee:ee:ee dev eth0 nud permanent"
        ))?;
        // The other node's workload only has a route to this node, not to the client.
        elsewhere.batch(&format!(
            "link set lo up\nlink set eth0 up\naddr add 192.0.3.2/24 dev eth0\naddr add {far}/32 dev lo\n\
             route add {}/32 via 192.0.3.1",
            text(NODE)
        ))?;
        host.batch("link set lo up")?;
        // An answer from the host's own node port to the host has an address of the host as its source.
        for device in ["cali0", "eth1"] {
            host.set(&format!("net/ipv4/conf/{device}/accept_local"), "1")?;
            host.set(&format!("net/ipv4/conf/{device}/rp_filter"), "0")?;
        }
        host.set("net/ipv4/conf/all/rp_filter", "0")?;
        host.feed(
            "nft -f -",
            "table ip t { chain post { type nat hook postrouting priority srcnat;\n\
             meta mark & 0x03f00000 == 0x03600000 masquerade\n\
             meta mark & 0x01f00000 == 0x01800000 masquerade\n}\n}\n",
        )?;
        let bench = V4::bench()?;
        let mut node = Self { host, client, pod, elsewhere, bench, sides: Vec::new() };
        node.fill()?;
        node.attach()?;
        Ok(node)
    }

    fn fill(&self) -> Result<()> {
        let routes = Table::<RouteKey<V4>, Route<V4>>::new(self.bench.map("cali_v4_routes")?)?;
        let device = index(&self.host, "cali0")?.to_ne_bytes();
        let pool = flags::IN_POOL | flags::NAT_OUTGOING | flags::WORKLOAD;
        for (address, flags, next_hop) in [
            (POD, pool | flags::LOCAL, device),
            (ELSEWHERE, pool, [192, 0, 3, 2]),
            (NODE, flags::HOST | flags::LOCAL, [0; 4]),
            ([192, 0, 3, 1], flags::HOST | flags::LOCAL, [0; 4]),
        ] {
            routes.set(&RouteKey { bits: 32, address }, &Route { flags, next_hop })?;
        }
        let frontends = Table::<FrontendKey<V4>, Frontend>::new(self.bench.map("cali_v4_nat_fe3")?)?;
        for (id, address, port) in [(1, NODE, 30001), (2, NODE, 30002), (3, NODE, 30003), (1, SERVICE, 81)] {
            for protocol in [6, 17] {
                let key = FrontendKey { address, port, protocol, ..FrontendKey::default() };
                frontends.set(&key, &Frontend { id, count: 1, ..Frontend::default() })?;
            }
        }
        let backends = Table::<BackendKey, Backend<V4>>::new(self.bench.map("cali_v4_nat_be")?)?;
        for (id, address) in [(1, POD), (2, ELSEWHERE), (3, NODE)] {
            backends.set(&BackendKey { id, ordinal: 0 }, &Backend { address, port: PORT })?;
        }
        Ok(())
    }

    fn attach(&mut self) -> Result<()> {
        for name in ["cali0", "eth0", "eth1", "lo"] {
            let is_workload = name == "cali0";
            let device = index(&self.host, name)?;
            self.bench.count(device)?;
            if is_workload {
                self.bench.lists_of(device, &[(0, ALLOWS), (1, ALLOWS)])?;
            }
            let interface = Interface {
                is_workload,
                is_leaving: false,
                is_layer_3: false,
                has_both: false,
                checks_source: is_workload,
            };
            let mut options = Options { reverse_path: ReversePath::Loose, ..Options::default() };
            if name == "lo" {
                (options.kind, options.is_udp_only) = (Kind::Loopback, true);
            }
            let side = self.bench.beside(&interface, &options)?;
            self.host.run(|| -> Result<()> {
                let mut filters = Filters::open()?;
                filters.attach(device, clsact::Direction::Ingress, 1, side.program(Direction::In)?)?;
                filters.attach(device, clsact::Direction::Egress, 1, side.program(Direction::Out)?)?;
                Ok(())
            })??;
            self.sides.push(side);
        }
        Ok(())
    }
}

/// Makes a connection and an exchange of datagrams from one namespace to an address; returns the clients that the
/// server saw.
fn talk(from: &Namespace, to: &Namespace, at: [u8; 4], target: ([u8; 4], u16)) -> Result<[IpAddr; 2]> {
    let (at, target) = (SocketAddr::from((at, PORT)), SocketAddr::from(target));
    let listener = to.run(|| TcpListener::bind(at))??;
    listener.set_nonblocking(true)?;
    let connected = from.run(|| TcpStream::connect_timeout(&target, testkit::PATIENCE))?;
    let mut client = connected.context("connecting")?;
    let (mut server, peer) = testkit::eventually("the connection to arrive", || listener.accept().ok())?;
    server.set_nonblocking(false)?;
    let mut word = [0; 4];
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(testkit::PATIENCE))?;
    }
    client.write_all(b"ping")?;
    server.read_exact(&mut word)?;
    server.write_all(b"pong")?;
    client.read_exact(&mut word)?;
    ensure!(&word == b"pong");

    Ok([peer.ip(), exchange(from, to, at, target)?])
}

/// Exchanges datagrams between one namespace and an address; returns the client that the server saw.
fn exchange(from: &Namespace, to: &Namespace, at: SocketAddr, target: SocketAddr) -> Result<IpAddr> {
    let server = to.run(|| UdpSocket::bind(at))??;
    let client = from.run(|| UdpSocket::bind(SocketAddr::from(([0; 4], 0))))??;
    for socket in [&server, &client] {
        socket.set_read_timeout(Some(testkit::PATIENCE))?;
    }
    let mut seen = None;
    let mut word = [0; 4];
    // The second packet belongs to a known flow.
    for _ in 0..2 {
        client.send_to(b"ping", target)?;
        let (_, asker) = server.recv_from(&mut word).context("the question")?;
        server.send_to(b"pong", asker)?;
        let (_, answerer) = client.recv_from(&mut word).context("the answer")?;
        ensure!(answerer == target, "{answerer} in the place of {target}");
        seen = Some(asker.ip());
    }
    seen.context("no packet was received")
}

#[test]
fn marks_lead_through_netfilter_and_back() -> Result<()> {
    let node = Node::new()?;
    let hidden: IpAddr = [192, 0, 3, 1].into();
    // A node port with a backend of this node: the backend sees the client.
    let seen = talk(&node.client, &node.pod, POD, (NODE, 30001)).context("a local backend")?;
    assert_eq!(seen, [IpAddr::from(CLIENT); 2]);
    // A backend elsewhere sees the node, and can answer.
    let seen =
        talk(&node.client, &node.elsewhere, ELSEWHERE, (NODE, 30002)).context("a backend elsewhere")?;
    assert_eq!(seen, [hidden; 2]);
    // To itself, the workload appears as the host.
    let seen = talk(&node.pod, &node.pod, POD, (SERVICE, 81)).context("itself")?;
    assert!(seen.iter().all(|address| *address != IpAddr::from(POD)), "{seen:?}");
    // Outside of the pools, its address is masqueraded.
    let seen = talk(&node.pod, &node.client, CLIENT, (CLIENT, PORT)).context("outside")?;
    assert_eq!(seen, [IpAddr::from(NODE); 2]);
    // The host itself uses node ports: with a backend here, elsewhere, and on the host.
    for (port, to, at) in
        [(30001, &node.pod, POD), (30002, &node.elsewhere, ELSEWHERE), (30003, &node.host, NODE)]
    {
        let (at, target) = (SocketAddr::from((at, PORT)), SocketAddr::from((NODE, port)));
        let seen =
            exchange(&node.host, to, at, target).with_context(|| format!("the host to port {port}"))?;
        assert_eq!(seen, IpAddr::from(NODE), "{port}");
    }
    Ok(())
}
