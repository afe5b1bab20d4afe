//! `BPFOverlayHostSourceIP` with real packets: the address by which a workload of another node, behind VXLAN, sees the
//! host.

use super::Config;
use super::node::{CLIENT, NODE, Node, TARGET};
use anyhow::{Context as _, Result, ensure};
use api::BPFOverlayHostSourceIP as OverlayHostSource;
use messages::{IpPoolType, Route, RouteTypes, ToDataplane, TunnelType, VxlanTunnelEndpoint};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

const TUNNEL: [u8; 4] = [10, 66, 1, 0];
const ELSEWHERE: [u8; 4] = [10, 66, 2, 7];
const MAC: &str = "66:00:00:00:00:02";

/// The client's machine is another node.
fn messages() -> Vec<ToDataplane> {
    let end = |mac: &str, number: u8, host: [u8; 4]| VxlanTunnelEndpoint {
        mac: mac.to_owned(),
        ipv4: Some([10, 66, number, 0].into()),
        parent_device_ipv4: Some(host.into()),
        ..VxlanTunnelEndpoint::default()
    };
    let route = |dst: &str, types| Route {
        dst: dst.parse().expect("a network"),
        types,
        ip_pool_type: IpPoolType::Vxlan,
        dst_node_name: Some("n2".into()),
        dst_node_ip: Some(CLIENT.into()),
        same_subnet: false,
        nat_outgoing: false,
        local_workload: false,
        tunnel_type: TunnelType::default(),
        borrowed: false,
    };
    vec![
        ToDataplane::VtepUpdate("n1".into(), end("66:00:00:00:00:01", 1, NODE)),
        ToDataplane::VtepUpdate("n2".into(), end(MAC, 2, CLIENT)),
        ToDataplane::RouteUpdate(Route {
            ip_pool_type: IpPoolType::None,
            ..route("192.0.2.9/32", RouteTypes::REMOTE_HOST)
        }),
        ToDataplane::RouteUpdate(route("10.66.2.0/26", RouteTypes::REMOTE_WORKLOAD)),
    ]
}

#[test]
fn the_host_is_seen_by_the_configured_address() -> Result<()> {
    let mut node = Node::new()?;
    node.has_vxlan = true;
    let (here, far) = (IpAddr::from(NODE), IpAddr::from(ELSEWHERE));
    node.client.batch(&format!(
        "link add vx address {MAC} type vxlan id 4096 dstport 4789 local {} dev eth0 nolearning\nlink set vx up\n\
         addr add {far}/32 dev lo\nroute add {}/32 via {here}",
        IpAddr::from(CLIENT),
        IpAddr::from(TUNNEL)
    ))?;
    // Answers take a shorter path.
    for device in ["all", "eth0", "vx"] {
        node.client.set(&format!("net/ipv4/conf/{device}/rp_filter"), "0")?;
    }
    let target = SocketAddr::new(far, TARGET + 1);
    let listener = node.client.run(|| TcpListener::bind(target))??;
    listener.set_nonblocking(true)?;
    for (source, expected) in [
        (OverlayHostSource::HostAddress, NODE),
        (OverlayHostSource::TunnelAddress, TUNNEL),
        (OverlayHostSource::HostAddress, NODE),
    ] {
        let config = Config {
            bpf_overlay_host_source_ip: Some(source),
            ipv4_vxlan_tunnel_addr: Some(TUNNEL.into()),
            ..Node::config()
        };
        node.start(config, messages())?;
        node.wait_until_ready()?;
        let seen = testkit::eventually("a connection by that address", || -> Result<bool> {
            let moment = Duration::from_millis(500);
            let Ok(client) = node.host.run(|| TcpStream::connect_timeout(&target, moment))? else {
                return Ok(false);
            };
            let Ok((_, from)) = listener.accept() else { return Ok(false) };
            Ok(from.ip() == IpAddr::from(expected) && client.local_addr()?.port() == from.port())
        });
        let device = node.host.shell("ip -4 addr show dev vxlan.calico; ip route")?;
        seen.with_context(|| format!("{source:?}: {device}"))?;
        let has_address = device.contains(&format!("inet {}/32", IpAddr::from(TUNNEL)));
        ensure!(has_address == (source == OverlayHostSource::TunnelAddress), "{source:?}: {device}");
        node.stop()?;
    }
    Ok(())
}
