//! Maglev services with real packets: a client port decides the backend, and a connection continues on a node that did
//! not know it.

use super::node::{Node, PODS, endpoints, service};
use super::{Elements, wait};
use anyhow::{Context as _, Result, ensure};
use messages::ToDataplane;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};
use serde_json::json;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::time::{Duration, Instant};

const OUTSIDE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
const PORTS: [(&str, u16, u16); 1] = [("TCP", 80, 30080)];

fn with_table() -> Vec<ToDataplane> {
    let mut all = service("one", [10, 96, 0, 1], &PORTS, &json!({"externalIPs": [OUTSIDE.to_string()]}));
    if let ToDataplane::ServiceObject(_, Some(object)) = &mut all[0] {
        let strategy = ("lb.projectcalico.org/external-traffic-strategy".to_owned(), "maglev".to_owned());
        object.metadata.annotations.extend([strategy]);
    }
    all.push(endpoints("one", &PORTS, &PODS));
    all
}

/// Connects from a chosen port. The kernel may hold the previous connection's ends for a moment, so this waits.
fn from_port(node: &Node, port: u16) -> Result<TcpStream> {
    let begun = Instant::now();
    loop {
        match try_from_port(node, port)? {
            Err(error) if error == Errno::ADDRNOTAVAIL && begun.elapsed() < testkit::PATIENCE => {
                std::thread::sleep(Duration::from_millis(20));
            }
            result => return result.with_context(|| format!("from port {port}")),
        }
    }
}

fn try_from_port(node: &Node, port: u16) -> Result<Result<TcpStream, Errno>> {
    node.client.run(|| -> Result<TcpStream, Errno> {
        // A program that another test starts must not inherit the socket, and with it the port.
        let end = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseaddr(&end, true)?;
        // Closed without a handshake that would keep the port in use.
        sockopt::set_socket_linger(&end, Some(Duration::ZERO))?;
        sockopt::set_socket_timeout(&end, sockopt::Timeout::Send, Some(testkit::PATIENCE))?;
        bind(&end, &SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 9), port))?;
        connect(&end, &SocketAddrV4::new(OUTSIDE, 80))?;
        sockopt::set_socket_timeout(&end, sockopt::Timeout::Recv, Some(testkit::PATIENCE))?;
        Ok(TcpStream::from(end))
    })
}

fn who(stream: &mut TcpStream) -> Result<String> {
    let mut answer = [0; 8];
    stream.write_all(b"who?")?;
    let length = loop {
        match stream.read(&mut answer) {
            // With a timeout on the socket the kernel does not restart the call after a signal: another test's child
            // ended.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => break result?,
        }
    };
    Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
}

#[test]
fn a_clients_port_decides_and_connections_continue_on_other_nodes() -> Result<()> {
    let mut node = Node::new()?;
    node.start(Node::config(), with_table())?;
    node.wait_until_ready()?;
    node.client.batch("route add 203.0.113.7/32 via 192.0.2.1")?;
    wait(&node.client, "tcp", (OUTSIDE, 80), &["a", "b"])?;
    let table: Elements = node.map("cali_v4_mglv2")?;
    ensure!(table.len() == 503, "{} places", table.len());
    let mut seen = std::collections::BTreeSet::new();
    for port in 20_000..20_016 {
        let first = who(&mut from_port(&node, port)?)?;
        let again = who(&mut from_port(&node, port)?)?;
        ensure!(first == again, "port {port} led to {first} and then to {again}");
        seen.insert(first);
    }
    ensure!(seen.len() == 2, "16 ports led to {seen:?} only");

    // This node's knowledge of the connection is lost, as on a node that takes over from a failed one.
    let mut stream = from_port(&node, 20_100)?;
    let connections = bpf::Map::open(&node.files.path().join("tc/globals/cali_v4_ct4"))?;
    let keys: Vec<Vec<u8>> = connections.entries()?.into_iter().map(|(key, _)| key).collect();
    connections.remove_many(&keys)?;
    let name = who(&mut stream).context("in the middle of a connection")?;
    ensure!(name == "a" || name == "b", "{name:?}");
    Ok(())
}
