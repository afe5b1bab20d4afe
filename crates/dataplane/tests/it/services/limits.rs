//! Limits of a workload with real packets: excess connections are refused until others end, packets that arrive too
//! soon are lost, and without limits everything is as before.

use super::node::{CLIENT, NODE, Node, PODS, workload};
use anyhow::{Context as _, Result, ensure};
use api::QoSControls;
use messages::ToDataplane;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

const PORT: u16 = 9000;

fn limited(controls: QoSControls) -> ToDataplane {
    let mut message = workload(0, None);
    if let ToDataplane::WorkloadEndpointUpdate(_, endpoint) = &mut message {
        endpoint.qos_controls = Some(Box::new(controls));
    }
    message
}

/// Opens a connection that need not be accepted.
fn connect(node: &Node) -> Result<std::io::Result<TcpStream>> {
    let target = SocketAddr::from((PODS[0], PORT));
    node.client.run(|| TcpStream::connect_timeout(&target, testkit::PATIENCE))
}

#[test]
fn a_workloads_limits_hold() -> Result<()> {
    let mut node = Node::new()?;
    let two = QoSControls { ingress_max_connections: 2, ..QoSControls::default() };
    node.start(Node::config(), vec![limited(two)])?;
    node.wait_until_ready()?;
    node.client.batch(&format!("route add {}/32 via {}", IpAddr::from(PODS[0]), IpAddr::from(NODE)))?;
    let listener = node.pods[0].run(|| TcpListener::bind((IpAddr::from(PODS[0]), PORT)))??;
    let first = connect(&node)?.context("the first")?;
    let (accepted, _) = listener.accept()?;
    let _second = connect(&node)?.context("the second")?;
    let third = connect(&node)?.map(drop);
    ensure!(third.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused), "{third:?}");
    // Both sides close, which makes room.
    drop((first, accepted));
    testkit::eventually("room for another", || connect(&node).ok()?.ok())?;

    // A few at once, and one per second after that.
    let slow = QoSControls { egress_packet_rate: 1, egress_packet_burst: 5, ..QoSControls::default() };
    node.send(vec![limited(slow)])?;
    testkit::eventually("the rate in the map", || node.map("bpfp_rate").is_ok_and(|all| all.len() == 2))?;
    let target = node.client.run(|| UdpSocket::bind((IpAddr::from(CLIENT), PORT)))??;
    target.set_read_timeout(Some(Duration::from_millis(500)))?;
    let source = node.pods[0].run(|| UdpSocket::bind((IpAddr::from(PODS[0]), PORT)))??;
    let arrived = |count: u8| -> Result<usize> {
        for number in 0..count {
            source.send_to(&[number], (IpAddr::from(CLIENT), PORT))?;
        }
        let mut byte = [0; 1];
        Ok(std::iter::from_fn(|| target.recv(&mut byte).ok()).count())
    };
    testkit::eventually("a program that counts packets", || arrived(100).is_ok_and(|some| some < 100))?;
    node.send(vec![workload(0, None)])?;
    testkit::eventually("no limit any more", || arrived(100).is_ok_and(|some| some == 100))?;
    ensure!(node.map("bpfp_rate")?.is_empty() && node.map("bpfp_limit")?.is_empty());
    // The former limits no longer apply: one connection more than before.
    let _others = [connect(&node)?.context("a third")?, connect(&node)?.context("a fourth")?];
    Ok(())
}
