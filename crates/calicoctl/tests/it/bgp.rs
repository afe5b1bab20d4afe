//! `calicoctl bgp` and `calicoctl explain route` on a cluster of two nodes, of which one reports.

use crate::harness::Shell;
use testkit::{Etcd, Folder};

const CLUSTER: &str = "\
apiVersion: projectcalico.org/v3
kind: Node
metadata: {name: n1}
spec: {bgp: {ipv4Address: 10.65.0.1/24}}
---
apiVersion: projectcalico.org/v3
kind: Node
metadata: {name: n2}
spec: {bgp: {ipv4Address: 10.65.0.2/24}}
---
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: pods}
spec: {cidr: 10.66.0.0/16}
---
apiVersion: projectcalico.org/v3
kind: BGPPeer
metadata: {name: tor}
spec: {node: n1, peerIP: 192.0.2.1, asNumber: 65000}
---
apiVersion: projectcalico.org/v3
kind: BGPPeer
metadata: {name: tor-again}
spec: {node: n1, peerIP: 192.0.2.1, asNumber: 65001}
";

const REPORT: &str = r#"{"kind":"CalicoNodeStatus","apiVersion":"projectcalico.org/v3","metadata":{"name":"one","uid":"00000000-0000-4000-8000-000000000001","creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"node":"n1","classes":["Agent","BGP","Routes"],"updatePeriodSeconds":10},"status":{"lastUpdated":"2026-11-15T19:47:49Z","agent":{"birdV4":{"state":"Ready","version":"1.6.8","routerID":"10.65.0.1"},"birdV6":{"state":"NotReady"}},"bgp":{"numberEstablishedV4":1,"numberNotEstablishedV4":1,"numberEstablishedV6":0,"numberNotEstablishedV6":0,"peersV4":[{"peerIP":"10.65.0.2","type":"NodeMesh","state":"Established","since":"09:40:46"},{"peerIP":"10.65.0.77","type":"NodeMesh","state":"Active","since":"09:00:00"}]},"routes":{"routesV4":[{"type":"FIB","destination":"10.66.2.0/26","gateway":"10.65.0.2","interface":"eth0","learnedFrom":{"sourceType":"NodeMesh","peerIP":"10.65.0.2"}}]}}}"#;

fn cluster() -> (Etcd, Shell) {
    let etcd = Etcd::start().expect("etcd");
    let folder = Folder::new("bgp").expect("a folder");
    let shell = Shell::with(&[("DATASTORE_TYPE", "etcdv3"), ("ETCD_ENDPOINTS", &etcd.endpoint())], folder);
    let file = shell.file("cluster.yaml", CLUSTER);
    let applied = shell.run(&format!("apply -f {file}"));
    assert!(applied.success, "{applied:?}");
    for (path, value) in [
        ("/calico/ipam/v2/host/n1/ipv4/block/10.66.1.0-26", r#"{"state":"confirmed"}"#),
        ("/calico/ipam/v2/host/n2/ipv4/block/10.66.2.0-26", r#"{"state":"confirmed"}"#),
        ("/calico/resources/v3/projectcalico.org/caliconodestatuses/one", REPORT),
    ] {
        let output = etcd.etcdctl(&["put", path, value]).expect("etcdctl");
        assert!(output.status.success(), "{output:?}");
    }
    (etcd, shell)
}

#[test]
fn sessions_and_routes_of_all_nodes() {
    let (_etcd, shell) = cluster();
    let lines = |line: &str| -> Vec<String> {
        let text = shell.run(line).text();
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    assert_eq!(
        lines("bgp peers"),
        [
            "NODE PEER TYPE ASN STATE SINCE ORIGIN",
            "n1 10.65.0.2 NodeMesh 64512 Established 09:40:46 node-to-node mesh with n2",
            "n1 192.0.2.1 NodePeer 65000 missing BGPPeer tor",
            "n1 10.65.0.77 0 Active 09:00:00 reported by the node, but no longer intended",
            "n2 10.65.0.1 NodeMesh 64512 not reported node-to-node mesh with n1",
        ]
    );
    assert_eq!(
        lines("bgp routes --node n1"),
        [
            "NODE DESTINATION GATEWAY INTERFACE TYPE LEARNED FROM",
            "n1 10.66.2.0/26 10.65.0.2 eth0 FIB NodeMesh 10.65.0.2",
        ]
    );
    assert_eq!(
        lines("bgp summary"),
        [
            "NODE ROUTER ID ASN REFLECTOR SESSIONS ESTABLISHED BLOCKS BACKEND PROBLEMS",
            "n1 10.65.0.1 64512 2 1 1 1.6.8 BGPPeers tor and tor-again both describe the session with 192.0.2.1: tor is used",
            "n2 10.65.0.2 64512 1 not reported 1",
        ]
    );
    let json = shell.run("bgp peers --node n2 -o json").text();
    assert!(json.contains(r#""peerIP": "10.65.0.1""#) && json.contains(r#""type": "NodeMesh""#), "{json}");
    assert_eq!(shell.run("bgp peers --node n9").error(), "node n9 was not found\n");
}

#[test]
fn a_route_is_explained() {
    let (_etcd, shell) = cluster();
    let text = shell.run("explain route --from n1 --to 10.66.2.5").text();
    assert!(text.starts_with("n1 -> 10.66.2.5: programmed by BGP: 10.66.2.0/26 via 10.65.0.2\n"), "{text}");
    let json = shell.run("explain route --from n1 --to 10.66.2.5 -o json").text();
    assert!(json.contains(r#""owner": "n2""#) && json.contains(r#""routed": true"#), "{json}");
    assert_eq!(
        shell.run("explain route --from n9 --to 10.66.2.5").error(),
        "node n9 was not found in the datastore\n"
    );
    assert_eq!(shell.run("explain route --from n1 --to nowhere").error(), "'nowhere' is not an IP address\n");
}
