//! Clusters of three nodes, and explanations of the first one's routes.

use super::*;
use serde_json::{Value, json};

fn resource(kind: &str, name: &str, labels: &Value, spec: &Value) -> Resource {
    let document = json!({
        "apiVersion": "projectcalico.org/v3", "kind": kind,
        "metadata": {"name": name, "labels": labels}, "spec": spec,
    });
    let text = document.to_string();
    let documents = api::document::read("test", text.as_bytes(), api::document::Checks::Everything);
    documents.expect("a document").remove(0).resource
}

fn cluster(configuration: &Value, more: &[(&str, &str, Value)]) -> Cluster {
    let mut cluster = Cluster::default();
    for (name, address, labels) in
        [("n1", 1, json!({})), ("n2", 2, json!({})), ("rr", 9, json!({"rr": "yes"}))]
    {
        let mut bgp = json!({"ipv4Address": format!("10.65.0.{address}/24")});
        if configuration.get("nodeToNodeMeshEnabled") == Some(&json!(false)) && name == "rr" {
            bgp["routeReflectorClusterID"] = json!("244.0.0.1");
        }
        cluster.add(resource("Node", name, &labels, &json!({"bgp": bgp})));
    }
    cluster.add(resource("IPPool", "pods", &json!({}), &json!({"cidr": "10.66.0.0/16"})));
    cluster.add(resource(
        "IPPool",
        "hidden",
        &json!({}),
        &json!({"cidr": "10.67.0.0/16", "disableBGPExport": true}),
    ));
    cluster.add(resource(
        "IPPool",
        "vxlan",
        &json!({}),
        &json!({"cidr": "10.68.0.0/16", "vxlanMode": "Always"}),
    ));
    cluster.add(resource("BGPConfiguration", "default", &json!({}), configuration));
    for (kind, name, spec) in more {
        cluster.add(resource(kind, name, &json!({}), spec));
    }
    for (host, cidr) in
        [("n2", "10.66.2.0/26"), ("n2", "10.67.2.0/26"), ("n2", "10.68.2.0/26"), ("n1", "10.66.1.0/26")]
    {
        let key = BlockAffinityKey {
            cidr: cidr.parse().expect("a network"),
            host: host.to_owned(),
            affinity_type: AffinityType::Host,
        };
        let affinity = serde_json::from_value(json!({"state": "confirmed"})).expect("an affinity");
        cluster.add_affinity(key, affinity);
    }
    cluster
}

fn explained(cluster: &Cluster, to: &str) -> RouteExplanation {
    route(cluster, "n1", to.parse().expect("an address")).expect("an answer")
}

#[test]
fn a_route_of_the_mesh() {
    let answer = explained(&cluster(&json!({}), &[]), "10.66.2.5");
    assert_eq!(
        answer.text(),
        "n1 -> 10.66.2.5: programmed by BGP: 10.66.2.0/26 via 10.65.0.2\n\
         \x20 pool   pods (10.66.0.0/16)\n\
         \x20 block  10.66.2.0/26\n\
         \x20 owner  n2\n\
         \x20 n2 Mesh_10_65_0_1 (node-to-node mesh with n1): announced: the node's own block\n\
         \x20 n1 Mesh_10_65_0_2 (node-to-node mesh with n2): accepted\n"
    );
}

#[test]
fn the_outcome_for_each_kind_of_address() {
    let mesh = cluster(&json!({"serviceClusterIPs": [{"cidr": "10.96.0.0/16"}]}), &[]);
    for (to, routed, outcome) in [
        ("10.66.1.5", true, "an address of the node's own block"),
        ("10.67.2.5", false, "no route: the announcement of 10.67.2.0/26 by n2 does not arrive"),
        ("10.68.2.5", true, "programmed by Felix over VXLAN"),
        ("10.66.200.1", false, "no node has a block with this address"),
        ("192.0.2.1", false, "not an address of a pool"),
        ("10.96.0.1", false, "a service address in 10.96.0.0/16"),
    ] {
        let answer = explained(&mesh, to);
        assert_eq!(answer.routed, routed, "{to}: {}", answer.outcome);
        assert!(answer.outcome.starts_with(outcome), "{to}: {}", answer.outcome);
    }
    let hidden = explained(&mesh, "10.67.2.5");
    assert_eq!(hidden.steps[0].decision, "held back: pool 10.67.0.0/16 has disableBGPExport");
    assert!(route(&mesh, "gone", "10.66.2.5".parse().expect("an address")).is_err());
}

#[test]
fn reflected_or_withheld_by_a_filter() {
    let off = json!({"nodeToNodeMeshEnabled": false});
    let clients = json!({"nodeSelector": "!has(rr)", "peerSelector": "has(rr)"});
    let reflected = explained(&cluster(&off, &[("BGPPeer", "clients", clients.clone())]), "10.66.2.5");
    assert!(reflected.routed, "{}", reflected.text());
    let places: Vec<&str> = reflected.steps.iter().map(|step| step.node.as_str()).collect();
    assert_eq!(places, ["n2", "rr", "rr", "n1"]);
    assert_eq!(
        reflected.outcome, "programmed by BGP: 10.66.2.0/26 via 10.65.0.2",
        "reflectors keep the next hop"
    );

    let mut filtered = clients;
    filtered["filters"] = json!(["quiet"]);
    let quiet = json!({"importV4": [{"action": "Reject", "matchOperator": "In", "cidr": "10.66.2.0/24"}]});
    let more = [("BGPPeer", "clients", filtered), ("BGPFilter", "quiet", quiet)];
    let answer = explained(&cluster(&off, &more), "10.66.2.5");
    assert!(!answer.routed, "{}", answer.text());

    let alone = explained(&cluster(&off, &[]), "10.66.2.5");
    assert_eq!(alone.steps[0].decision, "no session leads to n1, neither directly nor over route reflectors");
}
