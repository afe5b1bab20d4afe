//! Reports about healthy, incomplete and broken clusters.

use super::*;
use serde_json::json;

fn healthy() -> Facts {
    let images =
        json!([{"image": "r/node:v1", "env": [{"name": "CALICO_NETWORKING_BACKEND", "value": "vxlan"}]}]);
    Facts {
        server: "https://10.0.0.1:6443".into(),
        workloads: vec![
            json!({
                "kind": "DaemonSet",
                "metadata": {"name": "calico-node", "namespace": "kube-system", "generation": 1},
                "spec": {"template": {"spec": {"containers": images}}},
                "status": {"observedGeneration": 1, "desiredNumberScheduled": 1, "numberReady": 1, "numberAvailable": 1, "updatedNumberScheduled": 1},
            }),
            json!({
                "kind": "Deployment",
                "metadata": {"name": "calico-kube-controllers", "namespace": "kube-system", "generation": 1},
                "spec": {"replicas": 1, "template": {"spec": {"containers": [{"image": "r/kube-controllers:v1"}]}}},
                "status": {"observedGeneration": 1, "readyReplicas": 1, "availableReplicas": 1, "updatedReplicas": 1},
            }),
        ],
        pods: vec![json!({
            "metadata": {"namespace": "kube-system", "labels": {"k8s-app": "calico-node"}},
            "spec": {"nodeName": "n1", "containers": [{"image": "r/node:v1"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        })],
        nodes: vec![
            json!({"metadata": {"name": "n1"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
        ],
        cluster_information: Some(json!({"spec": {"calicoVersion": "v3.32.1", "datastoreReady": true}})),
        pools: vec![
            json!({"metadata": {"name": "default-ipv4-ippool"}, "spec": {"cidr": "10.0.0.0/16", "vxlanMode": "CrossSubnet"}}),
        ],
        kube_proxy: Some("kind: KubeProxyConfiguration\nmode: \"nftables\"\n".into()),
        ..Facts::default()
    }
}

#[test]
fn a_healthy_cluster() {
    let report = report(&healthy());
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!(
        report.to_text(),
        "Cluster      https://10.0.0.1:6443\n\
         Calico       v3.32.1\n\
         calico-node              1/1 ready   r/node:v1\n\
         calico-kube-controllers  1/1 ready   r/kube-controllers:v1\n\
         Dataplane    nftables: as kube-proxy, whose mode is nftables (nftablesMode is Auto)\n\
         Routes       VXLAN, without BGP\n\
         Pool         default-ipv4-ippool 10.0.0.0/16: IPIP Never, VXLAN CrossSubnet\n\
         No problems.\n"
    );
}

#[test]
fn each_problem_is_reported() {
    type Break = fn(&mut Facts);
    let cases: [(&str, Break); 8] = [
        ("nothing is installed", |facts| facts.workloads.clear()),
        ("0 ready", |facts| facts.workloads[0]["status"]["numberAvailable"] = json!(0)),
        ("datastore is locked", |facts| {
            facts.cluster_information = Some(json!({"spec": {"datastoreReady": false}}));
        }),
        ("there is no IP pool", |facts| facts.pools.clear()),
        ("BGP: n1 has no IPv4 session with 10.0.0.9 (Idle)", |facts| {
            facts.node_statuses = vec![
                json!({"spec": {"node": "n1"}, "status": {"bgp": {"peersV4": [{"peerIP": "10.0.0.9", "state": "Idle"}]}}}),
            ];
        }),
        ("node n1 is not ready: kubelet stopped", |facts| {
            facts.nodes[0]["status"]["conditions"] =
                json!([{"type": "Ready", "status": "Unknown", "message": "kubelet stopped"}]);
        }),
        ("node n1 has no pod of calico-node", |facts| facts.pods.clear()),
        ("could not be read: x", |facts| facts.unread.push("x".into())),
    ];
    for (expected, spoil) in cases {
        let mut facts = healthy();
        spoil(&mut facts);
        let problems = report(&facts).problems;
        assert!(problems.iter().any(|problem| problem.contains(expected)), "{expected}: {problems:?}");
    }
}

#[test]
fn the_dataplane_is_reported_with_its_reason() {
    let mode = |facts: &Facts| {
        let report = report(facts);
        format!("{}: {}", report.dataplane, report.dataplane_reason)
    };
    let mut facts = healthy();
    facts.kube_proxy = None;
    assert!(mode(&facts).starts_with("nftables or iptables: each node decides"));
    facts.kube_proxy = Some("mode: \"\"\n".into());
    assert_eq!(
        mode(&facts),
        "iptables: as kube-proxy, whose mode is iptables, its default (nftablesMode is Auto)"
    );
    facts.felix = vec![json!({"metadata": {"name": "default"}, "spec": {"nftablesMode": "Enabled"}})];
    assert_eq!(mode(&facts), "nftables: FelixConfiguration default has nftablesMode");
    facts.felix.clear();
    facts.workloads[0]["spec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "FELIX_NFTABLESMODE", "value": "Disabled"}]);
    assert_eq!(mode(&facts), "iptables: calico-node has the variable FELIX_NFTABLESMODE");
}
