//! Two equally good paths to one network: one kernel route with two next hops, and with one when a path is lost.

use crate::harness::{OURS, Running, THEIRS, Wire, wait_for};
use anyhow::Result;
use bgp::intent::{Remote, Session, SessionKind, SessionName};
use speaker::for_tests as simulation;
use std::net::IpAddr;
use std::sync::Arc;
use testkit::network::Namespace;

/// The network that both peers announce.
const BLOCK: &str = "172.28.0.64/26";

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn between(own: &str, remote: &str) -> Session {
    let (own, remote) = (address(own), Remote::address(address(remote)));
    Session {
        name: SessionName::of(SessionKind::Mesh, &remote, None),
        source: Some(own),
        remote,
        ..simulation::session(own, own)
    }
}

#[test]
fn equal_paths_are_one_route_with_two_next_hops() -> Result<()> {
    let wire = Wire::new()?;
    let third = Arc::new(Namespace::new(&format!("{}c", wire.ours.name()))?);
    wire.ours.batch(&format!(
        "link add eth1 type veth peer name eth0 netns {}\naddr add 10.98.0.1/24 dev eth1\nlink set eth1 up",
        third.name()
    ))?;
    third.batch("addr add 10.98.0.2/24 dev eth0\nlink set eth0 up")?;
    let announcing = |own: &str, remote: &str| {
        simulation::intent(address(own), [between(own, remote)], &[BLOCK.parse().expect("a network")])
    };
    let one = Running::start_in(&wire.theirs, announcing(THEIRS[0], OURS[0]))?;
    let _other = Running::start_in(&third, announcing("10.98.0.2", "10.98.0.1"))?;
    let sessions = [between(OURS[0], THEIRS[0]), between("10.98.0.1", "10.98.0.2")];
    let running = Running::start(&wire, simulation::intent(address(OURS[0]), sessions, &[]))?;
    running.wait_established(2)?;
    wait_for("both ways in the kernel", || {
        let routes = wire.kernel_routes()?;
        Ok(routes.contains("nexthop via 10.99.0.2 dev eth0")
            && routes.contains("nexthop via 10.98.0.2 dev eth1"))
    })?;
    one.end(false);
    wait_for("the way that is left", || {
        let routes = wire.kernel_routes()?;
        Ok(routes.contains(&format!("{BLOCK} via 10.98.0.2")) && !routes.contains("nexthop"))
    })
}
