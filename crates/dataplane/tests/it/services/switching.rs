//! Flows from before the programs: a node is switched over while clients talk to a service that kube-proxy gave a
//! backend, to each other and to the outside.

use super::node::{CLIENT, NODE, Node, PODS, SERVICE, endpoints_at, service};
use anyhow::{Context as _, Result, ensure};
use felix_config::Config;
use messages::ToDataplane;
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;
use testkit::network::Namespace;

const MOMENT: Duration = Duration::from_millis(500);
const PORT: u16 = 7777;

/// The two ends of a UDP flow, either of which can speak first.
struct Talk {
    client: UdpSocket,
    server: UdpSocket,
    /// The address that the server sees as the client's.
    peer: Option<SocketAddr>,
}

impl Talk {
    /// The server listens at `address`; the client talks to `target`, which leads there.
    fn new(from: &Namespace, to: &Namespace, address: [u8; 4], target: ([u8; 4], u16)) -> Result<Self> {
        let server = to.run(|| UdpSocket::bind((IpAddr::from(address), PORT)))??;
        let client = from.run(|| UdpSocket::bind("0.0.0.0:0"))??;
        client.connect(SocketAddr::from(target))?;
        for socket in [&client, &server] {
            socket.set_read_timeout(Some(MOMENT))?;
        }
        Ok(Self { client, server, peer: None })
    }

    /// Sends a request and receives its answer.
    fn ask(&mut self) -> Result<()> {
        let mut buffer = [0; 16];
        self.client.send(b"question")?;
        let (_, peer) = self.server.recv_from(&mut buffer).context("the question")?;
        ensure!(
            self.peer.is_none_or(|known| known == peer),
            "the server knew {:?}, and now {peer}",
            self.peer
        );
        self.peer = Some(peer);
        self.server.send_to(b"answer", peer)?;
        self.client.recv(&mut buffer).context("the answer").map(drop)
    }

    /// Sends an unsolicited message from the server.
    fn tell(&self) -> Result<()> {
        self.server.send_to(b"news", self.peer.context("no request so far")?)?;
        let mut buffer = [0; 16];
        self.client.recv(&mut buffer).context("news of the server").map(drop)
    }
}

/// Does what kube-proxy does, for one backend.
fn kube_proxy(node: &Node) -> Result<()> {
    let [service, backend] = [IpAddr::from(SERVICE), IpAddr::from(PODS[1])];
    let rules = format!(
        "table ip kube-proxy {{\nchain services {{\ntype nat hook prerouting priority dstnat;\n\
         ip daddr {service} udp dport 53 dnat to {backend}:{PORT}\n\
         ip daddr {service} tcp dport 53 dnat to {backend}:{PORT}\n}}\n}}\n"
    );
    node.host.feed("nft -f -", &rules).map(drop)
}

/// The service with the same backend, for programs.
fn served() -> Vec<ToDataplane> {
    let ports = [("UDP", 53, 0), ("TCP", 53, 0)];
    let mut all = service("one", SERVICE, &ports, &json!({}));
    all.push(endpoints_at("one", &ports, &PODS[1..], PORT));
    all
}

#[test]
fn flows_continue_when_programs_take_over() -> Result<()> {
    let mut node = Node::new()?;
    kube_proxy(&node)?;
    let netfilter = Config { bpf_enabled: false, ..Node::config() };
    node.start(netfilter, Vec::new())?;
    node.wait_until_ready()?;

    let mut plain = Talk::new(&node.pods[1], &node.pods[0], PODS[0], (PODS[0], PORT))?;
    let mut served = Talk::new(&node.pods[0], &node.pods[1], PODS[1], (SERVICE, 53))?;
    let mut outside = Talk::new(&node.pods[0], &node.client, CLIENT, (CLIENT, PORT))?;
    node.client.batch(&format!("route add {}/32 via {}", IpAddr::from(PODS[0]), IpAddr::from(NODE)))?;
    for (name, talk) in [("plain", &mut plain), ("served", &mut served), ("outside", &mut outside)] {
        testkit::eventually(name, || talk.ask().is_ok())?;
        talk.tell().with_context(|| format!("{name}, by netfilter"))?;
    }
    let listener = node.pods[1].run(|| TcpListener::bind((IpAddr::from(PODS[1]), PORT)))??;
    let mut stream = node.pods[0].run(|| TcpStream::connect(SocketAddr::from((SERVICE, 53))))??;
    let (mut accepted, _) = listener.accept()?;
    stream.set_read_timeout(Some(testkit::PATIENCE))?;
    accepted.set_read_timeout(Some(testkit::PATIENCE))?;

    // Programs take over. Whichever side speaks first is understood.
    node.stop()?;
    node.start(Node::config(), self::served())?;
    node.wait_until_ready()?;
    for (name, talk) in [("plain", &mut plain), ("served", &mut served), ("outside", &mut outside)] {
        talk.tell().with_context(|| format!("{name}: the server speaks first after the switch"))?;
        talk.ask().with_context(|| format!("{name}: a question after the switch"))?;
    }
    let mut buffer = [0; 4];
    accepted.write_all(b"more")?;
    stream.read_exact(&mut buffer).context("TCP from the server")?;
    stream.write_all(b"back")?;
    accepted.read_exact(&mut buffer).context("TCP from the client")?;
    Ok(())
}
