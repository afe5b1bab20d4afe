//! Real packets to a backend of another node: two nodes and a client on one wire, and a workload on the second node.
//! The workload sees the client's address, long transfers fit into the envelopes, and answers return through the first
//! node, or directly.

use crate::attachments::index;
use crate::bench::{ALLOWS, Bench, Direction, Side};
use crate::world::{CLIENT, ELSEWHERE, NODE, OTHER_NODE, Who, World};
use anyhow::{Context as _, Result, ensure};
use bpf::Table;
use bpf::clsact::{self, Filters};
use bpf::interface::{Interface, Options, ReversePath};
use bpf::layout::conntrack::flags;
use bpf::layout::nat::Frontend;
use bpf::layout::network::{Node, Route, RouteKey, flags as routes};
use bpf::layout::{V4, V6};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use testkit::network::Namespace;

const PORT: u16 = 8080;
/// More than fits into any queue, so that packets of all sizes occur.
const LONG: usize = 3_000_000;

struct Nodes {
    client: Namespace,
    asked: Namespace,
    serving: Namespace,
    pod: Namespace,
    benches: [Bench; 2],
    sides: Vec<Side>,
}

fn ip<F: World>(who: Who) -> IpAddr {
    let address = F::address(who);
    match <[u8; 4]>::try_from(address.as_ref()) {
        Ok(four) => four.into(),
        Err(_) => <[u8; 16]>::try_from(address.as_ref()).expect("16 bytes").into(),
    }
}

impl Nodes {
    fn new<F: World>(name: &str, options: Options) -> Result<Self> {
        let name = |part: &str| format!("bpf-fw{name}{}{part}-{}", F::NUMBER, std::process::id());
        let client = Namespace::new(&name("c"))?;
        let (asked, serving) = (Namespace::new(&name("a"))?, Namespace::new(&name("s"))?);
        let pod = Namespace::new(&name("p"))?;
        let long = if F::NUMBER == 4 { 32 } else { 128 };
        client.batch(&format!(
            "link add wire type bridge\nlink set wire up\naddr add {}/{long} dev wire",
            ip::<F>(CLIENT)
        ))?;
        for (node, who, port) in [(&asked, NODE, "one"), (&serving, OTHER_NODE, "two")] {
            node.set("net/ipv4/ip_forward", "1")?;
            node.set("net/ipv6/conf/all/forwarding", "1")?;
            node.set("net/ipv4/conf/all/rp_filter", "0")?;
            node.set("net/ipv4/conf/default/rp_filter", "0")?;
            node.batch(&format!(
                "link add eth0 type veth peer name {port} netns {}\nlink set eth0 up\naddr add {}/{long} dev eth0",
                client.name(),
                ip::<F>(who)
            ))?;
            client.batch(&format!(
                "link set {port} master wire\nlink set {port} up\nroute add {}/{long} dev wire",
                ip::<F>(who)
            ))?;
            let others = [CLIENT, NODE, OTHER_NODE].into_iter().filter(|other| *other != who);
            for other in others {
                node.batch(&format!("route add {}/{long} dev eth0", ip::<F>(other)))?;
            }
        }
        serving.batch(&format!(
            "link add cali0 address ee:ee:ee:ee:ee:ee type veth peer name eth0 netns {}\nlink set cali0 up\n\
             route add {}/{long} dev cali0",
            pod.name(),
            ip::<F>(ELSEWHERE)
        ))?;
        let gateway = if F::NUMBER == 4 { "169.254.1.1" } else { "fe80::1" };
        pod.batch(&format!(
            "link set eth0 up\naddr add {}/{long} dev eth0\nroute add {gateway}/{long} dev eth0\n\
             route add default via {gateway} dev eth0\n\
             neigh add {gateway} lladdr ee:ee:ee:ee:ee:ee dev eth0 nud permanent",
            ip::<F>(ELSEWHERE)
        ))?;
        let benches = [F::bench()?, F::bench()?];
        let mut nodes = Self { client, asked, serving, pod, benches, sides: Vec::new() };
        nodes.fill::<F>()?;
        nodes.attach(options)?;
        Ok(nodes)
    }

    fn fill<F: World>(&self) -> Result<()> {
        let mut wire = F::Address::default();
        wire.as_mut()[..4].copy_from_slice(&index(&self.serving, "cali0")?.to_ne_bytes());
        let nobody = F::Address::default();
        let pool = routes::WORKLOAD | routes::IN_POOL;
        for (bench, own, other, workload) in [
            (&self.benches[0], NODE, OTHER_NODE, (pool, F::address(OTHER_NODE))),
            (&self.benches[1], OTHER_NODE, NODE, (pool | routes::LOCAL, wire)),
        ] {
            let table = Table::<RouteKey<F>, Route<F>>::new(bench.map(&F::map("routes"))?)?;
            for (who, flags, next_hop) in [
                (own, routes::HOST | routes::LOCAL, nobody),
                (other, routes::HOST, F::address(other)),
                (ELSEWHERE, workload.0, workload.1),
            ] {
                #[expect(clippy::cast_possible_truncation, reason = "4 or 16")]
                let bits = F::WIDTH as u32 * 8;
                table.set(&RouteKey { bits, address: F::address(who) }, &Route { flags, next_hop })?;
            }
            let room = 1500 - if F::NUMBER == 4 { 50 } else { 70 };
            let table = Table::<u32, Node<F>>::new(bench.map(&format!("bpfp_v{}_node", F::NUMBER))?)?;
            table.set(&0, &Node { address: F::address(own), room })?;
            let local = u32::from(own == OTHER_NODE);
            for protocol in [6, 17] {
                let value = Frontend { id: 7, count: 1, local, ..Frontend::default() };
                F::frontend(bench, (NODE, 30080, protocol), None, value)?;
            }
            F::backend(bench, 7, 0, ELSEWHERE, PORT)?;
        }
        Ok(())
    }

    fn attach(&mut self, options: Options) -> Result<()> {
        let (asked, serving) = (&self.asked, &self.serving);
        for (node, bench, name) in [(asked, 0, "eth0"), (serving, 1, "eth0"), (serving, 1, "cali0")] {
            let bench = &self.benches[bench];
            let is_workload = name == "cali0";
            let device = index(node, name)?;
            bench.count(device)?;
            bench.lists_of(device, if is_workload { &[(0, ALLOWS), (1, ALLOWS)] } else { &[] })?;
            let interface = Interface {
                is_workload,
                is_leaving: false,
                is_layer_3: false,
                has_both: false,
                checks_source: is_workload,
            };
            let options = Options { reverse_path: ReversePath::Loose, vxlan_port: 4789, ..options };
            let side = bench.beside(&interface, &options)?;
            node.run(|| -> Result<()> {
                let mut filters = Filters::open()?;
                filters.attach(device, clsact::Direction::Ingress, 1, side.program(Direction::In)?)?;
                filters.attach(device, clsact::Direction::Egress, 1, side.program(Direction::Out)?)?;
                Ok(())
            })??;
            self.sides.push(side);
        }
        Ok(())
    }

    /// Makes a connection with a long transfer each way, and sends datagrams; returns the clients that the servers saw.
    fn talk<F: World>(&self) -> Result<[IpAddr; 2]> {
        let at = SocketAddr::new(ip::<F>(ELSEWHERE), PORT);
        let target = SocketAddr::new(ip::<F>(NODE), 30080);
        let listener = self.pod.run(|| TcpListener::bind(at))??;
        listener.set_nonblocking(true)?;
        let connected = self.client.run(|| TcpStream::connect_timeout(&target, testkit::PATIENCE))?;
        let mut client = connected.context("connecting")?;
        let (mut server, peer) = testkit::eventually("the connection to arrive", || listener.accept().ok())?;
        server.set_nonblocking(false)?;
        for stream in [&client, &server] {
            stream.set_read_timeout(Some(testkit::PATIENCE))?;
            stream.set_write_timeout(Some(testkit::PATIENCE))?;
        }
        let all: Vec<u8> = (0..LONG).map(|place| u8::try_from(place % 251).unwrap_or_default()).collect();
        let carry = |from: &mut TcpStream, to: &mut TcpStream| -> Result<()> {
            let mut got = vec![0; LONG];
            std::thread::scope(|scope| -> Result<()> {
                let sent = scope.spawn(|| from.write_all(&all));
                to.read_exact(&mut got)?;
                Ok(sent.join().expect("a sender")?)
            })?;
            ensure!(got == all, "other bytes arrived");
            Ok(())
        };
        carry(&mut client, &mut server).context("from the client")?;
        carry(&mut server, &mut client).context("to the client")?;

        let server = self.pod.run(|| UdpSocket::bind(at))??;
        let any = if F::NUMBER == 4 { "0.0.0.0:0" } else { "[::]:0" };
        let client = self.client.run(|| UdpSocket::bind(any))??;
        for socket in [&server, &client] {
            socket.set_read_timeout(Some(testkit::PATIENCE))?;
        }
        let mut asker = None;
        for length in [4, 1200] {
            let mut word = vec![1; 2000];
            client.send_to(&word[..length], target)?;
            let (got, from) = server.recv_from(&mut word).context("the question")?;
            server.send_to(&word[..got], from)?;
            let (got, answerer) = client.recv_from(&mut word).context("the answer")?;
            ensure!(answerer == target && got == length, "{answerer} in the place of {target}, {got} bytes");
            asker = Some(from.ip());
        }
        Ok([peer.ip(), asker.context("no packet was received")?])
    }

    /// The flags of all flows that the first node forwarded, and how many of their packets were answers.
    fn forwarded<F: World>(&self) -> Result<(u32, u32)> {
        use bpf::Layout as _;
        use bpf::layout::conntrack::{Entry, Value};
        let (mut bits, mut answers) = (0, 0);
        for (_, value) in self.benches[0].map(&F::map("ct4"))?.entries()? {
            let value = Value::<F>::read(&value);
            if let Entry::Reverse(tracking) = value.entry {
                bits |= value.flags & !flags::SOURCE_IS_B;
                let legs = [tracking.a_to_b, tracking.b_to_a];
                answers += legs.iter().filter(|leg| !leg.opener).map(|leg| leg.packets).sum::<u32>();
            }
        }
        Ok((bits, answers))
    }
}

#[test]
fn a_backend_of_another_node_sees_the_client() -> Result<()> {
    by_the_first_node::<V4>()?;
    by_the_first_node::<V6>()
}

fn by_the_first_node<F: World>() -> Result<()> {
    let nodes = Nodes::new::<F>("t", Options::default())?;
    assert_eq!(nodes.talk::<F>()?, [ip::<F>(CLIENT); 2]);
    let (bits, answers) = nodes.forwarded::<F>()?;
    assert_eq!(bits, flags::NODE_PORT_FORWARD);
    assert!(answers > 0, "answers came another way");
    Ok(())
}

#[test]
fn its_node_answers_directly_if_enabled() -> Result<()> {
    directly::<V4>()?;
    directly::<V6>()
}

fn directly<F: World>() -> Result<()> {
    let nodes = Nodes::new::<F>("d", Options { answers_directly: true, ..Options::default() })?;
    assert_eq!(nodes.talk::<F>()?, [ip::<F>(CLIENT); 2]);
    assert_eq!(nodes.forwarded::<F>()?, (flags::NODE_PORT_FORWARD | flags::DIRECT_RETURN, 0));
    Ok(())
}
