//! BGP in a lab: two or more racks, each with a router that reflects routes to its nodes and peers with the other
//! racks' routers.
//!
//! The routers are Calico nodes without pods: they run the same speaker as nodes do, and are configured in the
//! datastore as they would be in a cluster. This module makes no decisions about routes: it waits until they exist.

use crate::inside::node_program;
use crate::keeper::Request;
use crate::lab::Lab;
use crate::screen::Screen;
use crate::topology::{Bgp, Encap, Topology, rack_router};
use crate::{interrupt, settings, typha, wire};
use anyhow::{Result, bail};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How long routes may take to reach all nodes.
const PATIENCE: Duration = Duration::from_secs(180);

/// Describes how routes get from node to node.
pub(crate) fn carrier(topology: &Topology) -> &'static str {
    match (topology.bgp, topology.encap) {
        (Bgp::Native, _) => "BGP, with this program's own speaker",
        (Bgp::Bird, _) => "BGP, with BIRD",
        (Bgp::None, Encap::None) if topology.subnets > 1 => "static routes on the router",
        (Bgp::None, _) => "Felix",
    }
}

/// Configures the racks in the datastore and starts the speakers of their routers.
///
/// # Errors
/// When a resource cannot be written or a speaker cannot be started.
pub(crate) fn start_routers(lab: &Lab, screen: &mut Screen) -> Result<()> {
    let topology = lab.topology();
    if !topology.bgp.is_spoken() {
        return Ok(());
    }
    screen.begin("starting the routers of racks");
    let objects: Vec<String> = resources(topology).iter().map(Value::to_string).collect();
    lab.apply(&objects.join("\n---\n"))?;
    let component = if topology.bgp == Bgp::Bird { "confd" } else { "bgp" };
    for rack in topology.racks() {
        let name = rack_router(rack);
        let mut environment = lab.environment();
        environment.extend(settings::datastore_for_node(&lab.folder, topology));
        environment.extend(typha::for_agents(&lab.folder, topology, rack));
        environment.insert("NODENAME".to_owned(), name.clone());
        let words = lab.place(&name)?.words(lab.keeper_pid(), &[&node_program(), "component", component]);
        lab.keeper.ask(&Request::Start { name, words, environment })?;
    }
    screen.done("every rack has a router that speaks BGP with its nodes and with the other racks");
    Ok(())
}

/// The racks in the datastore: no mesh; each rack is an AS of its own; its router is a reflector for its nodes.
fn resources(topology: &Topology) -> Vec<Value> {
    let object = |kind: &str, name: &str, labels: Value, spec: Value| {
        json!({
            "apiVersion": "projectcalico.org/v3", "kind": kind,
            "metadata": {"name": name, "labels": labels}, "spec": spec,
        })
    };
    let mut objects = vec![object(
        "BGPConfiguration",
        "default",
        json!({}),
        json!({"nodeToNodeMeshEnabled": false, "asNumber": topology.rack_as(0)}),
    )];
    for rack in topology.racks() {
        let mut bgp = json!({
            "asNumber": topology.rack_as(rack),
            "routeReflectorClusterID": format!("0.0.0.{}", rack + 1),
        });
        for address in topology.router_addresses(rack) {
            let field = if address.addr().is_ipv4() { "ipv4Address" } else { "ipv6Address" };
            bgp[field] = json!(address.to_string());
        }
        let labels = json!({"rack": format!("{}", rack + 1), "router": "true"});
        objects.push(object("Node", &rack_router(rack), labels, json!({"bgp": bgp})));
        let (nodes, router) = (
            format!("rack == '{}' && !has(router)", rack + 1),
            format!("rack == '{}' && has(router)", rack + 1),
        );
        objects.push(object(
            "BGPPeer",
            &format!("rack{}", rack + 1),
            json!({}),
            json!({"nodeSelector": nodes, "peerSelector": router}),
        ));
    }
    if topology.subnets > 1 {
        let routers = json!({"nodeSelector": "has(router)", "peerSelector": "has(router)"});
        objects.push(object("BGPPeer", "between-racks", json!({}), routers));
    }
    // Nodes register themselves; their AS is known beforehand.
    for node in &topology.nodes {
        let labels = json!({"rack": format!("{}", node.subnet + 1)});
        let mut bgp = json!({"asNumber": topology.rack_as(node.subnet)});
        for address in [node.v4, node.v6].into_iter().flatten() {
            let field = if address.addr().is_ipv4() { "ipv4Address" } else { "ipv6Address" };
            bgp[field] = json!(address.to_string());
        }
        objects.push(object("Node", &node.name, labels, json!({"bgp": bgp})));
    }
    objects
}

/// Waits until every node has a route to every pod of another node, if BGP is to provide it.
///
/// # Errors
/// When a route is still missing after a long time.
pub(crate) fn wait_for_routes(lab: &Lab, screen: &mut Screen) -> Result<()> {
    let topology = lab.topology();
    if !topology.bgp.is_spoken() || topology.encap != Encap::None {
        return Ok(());
    }
    screen.begin("waiting for routes");
    let deadline = Instant::now() + PATIENCE;
    while let Some((node, address)) = missing(lab)? {
        interrupt::check()?;
        if Instant::now() > deadline {
            let routers = topology.racks().map(rack_router);
            let logs: String = std::iter::once(node.clone())
                .chain(routers)
                .map(|name| format!("\nthe log of {name} ends with:\n{}", lab.folder.log_tail(&name, 20)))
                .collect();
            bail!(
                "{node} has no route to {address} after {} s; what is known where:\n{}{logs}",
                PATIENCE.as_secs(),
                learnt(lab)?,
            );
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    screen.done(&format!("every node has a route to every pod, by {}", carrier(topology)));
    Ok(())
}

/// A node and a pod's address to which it has no route.
fn missing(lab: &Lab) -> Result<Option<(String, IpAddr)>> {
    for node in &lab.topology().nodes {
        let learnt = wire::learnt_routes(&lab.place(&node.name)?.netns)?;
        let others = lab.state().pods.values().filter(|pod| pod.pod.node != node.name);
        for address in others.flat_map(|pod| pod.addresses.iter()) {
            if !learnt.iter().any(|(net, _)| net.contains(address)) {
                return Ok(Some((node.name.clone(), *address)));
            }
        }
    }
    Ok(None)
}

/// The routes that nodes learnt, one per line.
///
/// # Errors
/// When a kernel cannot be queried.
pub(crate) fn learnt(lab: &Lab) -> Result<String> {
    let topology = lab.topology();
    let routers = topology.racks().map(rack_router);
    let mut text = String::new();
    for name in topology.nodes.iter().map(|node| node.name.clone()).chain(routers) {
        for (net, via) in wire::learnt_routes(&lab.place(&name)?.netns)? {
            text.push_str(&format!("{name:<8} {net} via {via}\n"));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Datastore, Wish, plan};

    fn racks() -> Topology {
        plan("lab", &Wish { bgp: Some(Bgp::Native), ..Wish::default() }).expect("a plan")
    }

    #[test]
    fn each_rack_is_an_as_with_a_reflector() {
        let topology = racks();
        assert_eq!((topology.encap, topology.racks()), (Encap::None, 0..2));
        assert_eq!(topology.server_address().to_string(), "192.0.2.254");
        let objects = resources(&topology);
        let named = |kind: &str, name: &str| {
            objects
                .iter()
                .find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
                .cloned()
        };
        let router = named("Node", "tor2").expect("a router");
        assert_eq!(router["spec"]["bgp"]["asNumber"], 64602);
        assert_eq!(router["spec"]["bgp"]["ipv4Address"], "10.65.1.254/24");
        assert_eq!(named("Node", "node1").expect("a node")["metadata"]["labels"]["rack"], "1");
        assert!(named("BGPPeer", "between-racks").is_some());
        let told = settings::node(&topology, &topology.nodes[2]);
        assert_eq!((told["AS"].as_str(), told["CALICO_NETWORKING_BACKEND"].as_str()), ("64602", "bird"));
        assert!(!told.contains_key("FELIX_PROGRAMCLUSTERROUTES"), "both divide the work as by default");
    }

    #[test]
    fn impossible_combinations() {
        let wish = Wish { bgp: Some(Bgp::Bird), datastore: Some(Datastore::Kubernetes), ..Wish::default() };
        let error = plan("lab", &wish).expect_err("no routers there").to_string();
        assert!(error.contains("embedded datastore or etcd"), "{error}");
        let node = crate::topology::NodeWish { name: "tor1".to_owned(), ..Default::default() };
        let wish = Wish { bgp: Some(Bgp::Native), nodes: vec![node], ..Wish::default() };
        let error = plan("lab", &wish).expect_err("the router's name").to_string();
        assert!(error.contains("'tor1'"), "{error}");
    }
}
