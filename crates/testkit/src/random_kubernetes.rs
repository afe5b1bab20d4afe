//! Random objects of Kubernetes: nodes, namespaces, accounts, pods in every state, services, and policies of both kinds with
//! everything that they can say. Generators of Calico's own objects use the same names and labels.
//!
//! A cluster is a list of [`Request`]s, so that any client can send it.

use crate::Dice;
use serde_json::{Value, json};

/// Pods of the first node.
pub const LOCAL: usize = 6;
/// Pods of the other nodes.
pub const REMOTE: usize = 8;
/// The nodes with their addresses; the last one is in another subnet.
pub const NODES: [(&str, &str, &str); 3] = [
    ("node1", "10.65.0.1/24", "fd00:65::1/64"),
    ("node2", "10.65.0.2/24", "fd00:65::2/64"),
    ("node3", "10.66.0.3/24", "fd00:66::3/64"),
];
/// The namespaces of pods and policies.
pub const NAMESPACES: [&str; 2] = ["shop", "bank"];

/// Service accounts in each namespace; pods may also name one that does not exist.
const ACCOUNTS: [&str; 2] = ["web", "db"];
const POLICIES: &str = "clusternetworkpolicies";
const POLICY_GROUP: &str = "policy.networking.k8s.io";

/// A request to the Kubernetes API.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method: `POST`, `PATCH` (as a merge patch) or `DELETE`.
    pub method: &'static str,
    /// The path.
    pub path: String,
    /// The body.
    pub body: Value,
}

/// An object and the collection that it is created in. `status` is patched in afterwards; `deleted` stands for a deletion.
type Object = (String, Value);

/// The namespace and the name of a pod; those of the first node come first.
#[must_use]
pub fn pod_name(number: usize) -> (&'static str, String) {
    (NAMESPACES[number % 2], format!("web-{number}"))
}

/// The requests that create a random cluster. A cluster network policy may be refused for a moment, until its definition is
/// served.
#[must_use]
pub fn requests(dice: &mut Dice, with_vxlan: bool) -> Vec<Request> {
    let mut requests = vec![definition_of_cluster_policies()];
    for (collection, mut object) in objects(dice, with_vxlan) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let mut take = |field: &str| object.as_object_mut().and_then(|fields| fields.remove(field));
        let (status, deleted) = (take("status"), take("deleted"));
        let path = format!("{collection}/{name}");
        requests.push(Request { method: "POST", path: collection, body: object });
        if let Some(status) = status {
            requests.push(Request {
                method: "PATCH",
                path: format!("{path}/status"),
                body: json!({"status": status}),
            });
        }
        if deleted.is_some() {
            requests.push(Request { method: "DELETE", path, body: json!({"gracePeriodSeconds": 600}) });
        }
    }
    requests
}

/// The definition of ClusterNetworkPolicy without its rules, so that readers meet more than a strict API server accepts.
fn definition_of_cluster_policies() -> Request {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let body = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{POLICIES}.{POLICY_GROUP}"), "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
        "spec": {"group": POLICY_GROUP, "scope": "Cluster",
            "names": {"plural": POLICIES, "singular": "clusternetworkpolicy", "kind": "ClusterNetworkPolicy", "listKind": "ClusterNetworkPolicyList"},
            "versions": [{"name": "v1alpha2", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    Request {
        method: "POST",
        path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(),
        body,
    }
}

fn objects(dice: &mut Dice, with_vxlan: bool) -> Vec<Object> {
    let mut made: Vec<Object> = nodes(with_vxlan);
    for namespace in NAMESPACES {
        let labels = json!({"name": namespace, "team": dice.one_of(&["red", "blue"])});
        let object = json!({"metadata": {"name": namespace, "labels": labels}});
        made.push(("/api/v1/namespaces".to_owned(), object));
        for account in ACCOUNTS {
            let labels = json!({"role": account, "app": dice.one_of(&["app-1", "app-2"])});
            let object = json!({"metadata": {"name": account, "labels": labels}});
            made.push((format!("/api/v1/namespaces/{namespace}/serviceaccounts"), object));
        }
    }
    made.extend((0..LOCAL + REMOTE).map(|number| pod(dice, number)));
    made.push(host_network_pod());
    made.extend(service(dice));
    let policies = 1 + dice.below(6);
    made.extend((0..policies).map(|number| network_policy(dice, number)));
    let policies = dice.below(5);
    made.extend((0..policies).map(|number| cluster_policy(dice, number)));
    made
}

fn nodes(with_vxlan: bool) -> Vec<Object> {
    let node = |(number, (name, v4, v6)): (usize, &(&str, &str, &str))| {
        let mut annotations =
            json!({"projectcalico.org/IPv4Address": v4, "projectcalico.org/IPv6Address": v6});
        if with_vxlan {
            annotations["projectcalico.org/IPv4VXLANTunnelAddr"] = json!(format!("10.128.{number}.0"));
            annotations["projectcalico.org/IPv6VXLANTunnelAddr"] = json!(format!("fd00:128::{number}:0"));
        }
        let address = v4.split('/').next().unwrap_or_default();
        let object = json!({"metadata": {"name": name, "annotations": annotations, "labels": {"zone": number.to_string()}},
            "status": {"addresses": [{"type": "InternalIP", "address": address}, {"type": "ExternalIP", "address": "198.51.100.1"}]}});
        ("/api/v1/nodes".to_owned(), object)
    };
    NODES.iter().enumerate().map(node).collect()
}

fn pod(dice: &mut Dice, number: usize) -> Object {
    let node = if number < LOCAL { 0 } else { 1 + number % 2 };
    let (namespace, name) = pod_name(number);
    let (v4, v6) = (format!("10.128.{node}.{}", number + 5), format!("fd00:128::{node}:{:x}", number + 5));
    let mut annotations = match dice.below(3) {
        0 => {
            json!({"cni.projectcalico.org/podIP": format!("{v4}/32"), "cni.projectcalico.org/podIPs": format!("{v4}/32,{v6}/128")})
        }
        1 => json!({"cni.projectcalico.org/podIP": format!("{v4}/32")}),
        _ => {
            json!({"cni.projectcalico.org/podIPs": format!("{v4}/32,{v6}/128"), "cni.projectcalico.org/containerID": "abc"})
        }
    };
    let mut add = |name: &str, value: &str| annotations[name] = json!(value);
    if dice.chance(5) {
        add("cni.projectcalico.org/floatingIPs", &format!("[\"192.0.2.{}\"]", number + 1));
    }
    if dice.chance(5) {
        add("cni.projectcalico.org/allowedSourcePrefixes", "[\"172.16.0.0/16\", \"10.9.0.1/32\"]");
    }
    if dice.chance(5) {
        add("qos.projectcalico.org/ingressBandwidth", "1M");
        add("qos.projectcalico.org/ingressBurst", "200k");
    }
    if dice.chance(5) {
        add("qos.projectcalico.org/egressPacketRate", "2k");
        add("qos.projectcalico.org/ingressMaxConnections", "20");
    }
    if dice.chance(6) {
        let dscp = *dice.one_of(&["EF", "20", "AF11"]);
        add("qos.projectcalico.org/dscp", dscp);
    }
    let ports = match dice.below(3) {
        0 => json!([]),
        1 => {
            json!([{"name": "http", "containerPort": 8080}, {"name": "dns", "containerPort": 53, "protocol": "UDP"}])
        }
        _ => {
            json!([{"name": "http", "containerPort": 81, "protocol": "SCTP"}, {"name": "http2", "containerPort": 82}, {"containerPort": 83, "hostPort": 8083}])
        }
    };
    let mut spec = json!({"nodeName": NODES[node].0, "automountServiceAccountToken": false,
        "containers": [{"name": "c", "image": "x", "ports": ports}]});
    if !dice.chance(4) {
        spec["serviceAccountName"] = json!(dice.one_of(&["web", "db", "gone"]));
    }
    if dice.chance(6) {
        spec["initContainers"] = json!([{"name": "side", "image": "x", "restartPolicy": "Always", "ports": [{"name": "dns", "containerPort": 5353, "protocol": "UDP"}]}]);
    }
    let mut labels = json!({"app": format!("app-{}", number % LOCAL)});
    if dice.chance(3) {
        labels["tier"] = json!(dice.one_of(&["front", "back"]));
    }
    let mut metadata = json!({"name": name, "labels": labels, "annotations": annotations});
    let mut object = json!({"metadata": {}, "spec": spec});
    match dice.below(8) {
        0 => {
            object["status"] = json!({"phase": dice.one_of(&["Succeeded", "Failed"]), "podIP": v4, "podIPs": [{"ip": v4}, {"ip": v6}]});
        }
        1 | 2 => {
            object["status"] = json!({"phase": "Running", "podIP": v4, "podIPs": [{"ip": v4}, {"ip": v6}]});
        }
        3 => object["status"] = json!({"phase": "Running", "podIP": v4, "podIPs": [{"ip": v4}]}),
        4 => {
            // Deletion only marks a pod that something holds on to; and the plugin takes back the addresses of some of those.
            metadata["finalizers"] = json!(["example.org/hold"]);
            object["deleted"] = json!(true);
            if dice.chance(2) {
                metadata["annotations"]["cni.projectcalico.org/podIP"] = json!("");
                metadata["annotations"]["cni.projectcalico.org/podIPs"] = json!("");
            }
        }
        _ => {}
    }
    object["metadata"] = metadata;
    (format!("/api/v1/namespaces/{namespace}/pods"), object)
}

fn host_network_pod() -> Object {
    let object = json!({"metadata": {"name": "agent", "labels": {"app": "app-1"}},
        "spec": {"nodeName": NODES[0].0, "hostNetwork": true, "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "x"}]},
        "status": {"phase": "Running", "podIP": "10.65.0.1", "podIPs": [{"ip": "10.65.0.1"}]}});
    ("/api/v1/namespaces/shop/pods".to_owned(), object)
}

/// The service that rules name, with endpoints in two slices.
fn service(dice: &mut Dice) -> Vec<Object> {
    let mut made = vec![(
        "/api/v1/namespaces/shop/services".to_owned(),
        json!({"metadata": {"name": "web"}, "spec": {"clusterIP": "10.0.0.9", "ports": [{"name": "http", "port": 80}]}}),
    )];
    for (name, family, address, port) in
        [("web-a", "IPv4", "10.128.0.5", 8080), ("web-b", "IPv6", "fd00:128::1:b", 8081)]
    {
        let ports = match dice.below(3) {
            0 => json!([{"name": "http", "port": port, "protocol": "TCP"}]),
            1 => {
                json!([{"name": "http", "port": port, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"}])
            }
            _ => json!([{"name": "dns", "port": 53, "protocol": "UDP"}]),
        };
        let ready = dice.chance(2);
        made.push((
            "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices".to_owned(),
            json!({"metadata": {"name": name, "labels": {"kubernetes.io/service-name": "web"}}, "addressType": family,
                "endpoints": [{"addresses": [address], "conditions": {"ready": ready}}], "ports": ports}),
        ));
    }
    made
}

/// A label selector; `None` where the field is left out.
fn selector(dice: &mut Dice) -> Option<Value> {
    Some(match dice.below(9) {
        0 => return None,
        1 => json!({}),
        2 | 3 => json!({"matchLabels": {"app": dice.one_of(&["app-1", "app-2", "app-3"])}}),
        4 => json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["app-2", "app-0"]}]}),
        5 => {
            json!({"matchExpressions": [{"key": "tier", "operator": dice.one_of(&["Exists", "DoesNotExist"])}]})
        }
        6 => json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["app-4", "app-5"]}]}),
        7 => json!({"matchLabels": {"tier": "front", "app": "app-1"}}),
        _ => {
            json!({"matchLabels": {"app": "app-3"}, "matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]})
        }
    })
}

fn namespace_selector(dice: &mut Dice) -> Value {
    match dice.below(5) {
        0 => json!({}),
        1 => json!({"matchLabels": {"kubernetes.io/metadata.name": dice.one_of(&NAMESPACES)}}),
        2 => json!({"matchLabels": {"team": dice.one_of(&["red", "blue"])}}),
        3 => json!({"matchExpressions": [{"key": "name", "operator": "In", "values": ["bank", "nowhere"]}]}),
        _ => json!({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["red"]}]}),
    }
}

fn network_policy(dice: &mut Dice, number: u64) -> Object {
    let mut spec = json!({"podSelector": selector(dice).unwrap_or_else(|| json!({}))});
    match dice.below(4) {
        0 => spec["policyTypes"] = json!(["Ingress"]),
        1 => spec["policyTypes"] = json!(["Egress"]),
        2 => spec["policyTypes"] = json!(["Ingress", "Egress"]),
        _ => {}
    }
    for (field, peers) in [("ingress", "from"), ("egress", "to")] {
        if dice.chance(3) {
            continue;
        }
        let rules = (0..dice.below(3)).map(|_| {
            let mut rule = json!({});
            if !dice.chance(4) {
                rule[peers] = (0..dice.below(3)).map(|_| peer(dice)).collect();
            }
            if !dice.chance(3) {
                rule["ports"] = (0..dice.below(4)).map(|_| port(dice)).collect();
            }
            rule
        });
        spec[field] = rules.collect();
    }
    let namespace = dice.one_of(&NAMESPACES);
    let name = if number == 2 {
        "with.dots-and-quite-a-long-name-for-a-chain".to_owned()
    } else {
        format!("np{number}")
    };
    (
        format!("/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"),
        json!({"metadata": {"name": name}, "spec": spec}),
    )
}

fn peer(dice: &mut Dice) -> Value {
    match dice.below(6) {
        0 => json!({"ipBlock": {"cidr": dice.one_of(&["10.0.0.0/8", "192.0.2.7/32", "0.0.0.0/0"])}}),
        1 => json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16", "10.2.3.0/24"]}}),
        2 => json!({"ipBlock": {"cidr": dice.one_of(&["fd00::/16", "::/0"]), "except": ["fd00:9::/32"]}}),
        3 => json!({"podSelector": selector(dice).unwrap_or_else(|| json!({}))}),
        4 => json!({"namespaceSelector": namespace_selector(dice)}),
        _ => {
            json!({"namespaceSelector": namespace_selector(dice), "podSelector": selector(dice).unwrap_or_else(|| json!({}))})
        }
    }
}

fn port(dice: &mut Dice) -> Value {
    match dice.below(7) {
        0 => json!({"port": 80}),
        1 => json!({"port": 53, "protocol": "UDP"}),
        2 => json!({"port": dice.one_of(&["http", "dns", "none"])}),
        3 => json!({"port": "dns", "protocol": "UDP"}),
        4 => {
            json!({"port": 8000, "endPort": 8000 + dice.below(100), "protocol": dice.one_of(&["TCP", "UDP", "SCTP"])})
        }
        5 => json!({"protocol": dice.one_of(&["TCP", "SCTP"])}),
        _ => json!({"port": 79 + dice.below(3), "protocol": "TCP"}),
    }
}

fn cluster_policy(dice: &mut Dice, number: u64) -> Object {
    let pods = |dice: &mut Dice| json!({"namespaceSelector": namespace_selector(dice), "podSelector": selector(dice).unwrap_or_else(|| json!({}))});
    let peer = |dice: &mut Dice, is_egress: bool| match dice.below(if is_egress { 3 } else { 2 }) {
        0 => json!({"namespaces": namespace_selector(dice)}),
        1 => json!({"pods": pods(dice)}),
        _ => {
            let networks =
                [json!(["10.0.0.0/8"]), json!(["fd00:1::/48"]), json!(["10.1.0.0/16", "fd00:1::/48"])];
            json!({"networks": dice.one_of(&networks)})
        }
    };
    let mut spec = json!({"tier": dice.one_of(&["Admin", "Baseline"]), "priority": dice.below(5),
        "subject": if dice.chance(2) { json!({"namespaces": namespace_selector(dice)}) } else { json!({"pods": pods(dice)}) }});
    for (field, peers, is_egress) in [("ingress", "from", false), ("egress", "to", true)] {
        let rules = (0..dice.below(4)).map(|rule| {
            let mut object = json!({"action": dice.one_of(&["Accept", "Deny", "Pass"]),
                peers: (0..1 + dice.below(2)).map(|_| peer(dice, is_egress)).collect::<Vec<_>>()});
            if dice.chance(2) {
                object["name"] = json!(format!("rule-{rule}"));
            }
            if dice.chance(2) {
                object["protocols"] = (0..1 + dice.below(3)).map(|_| protocol(dice)).collect();
            }
            object
        });
        spec[field] = rules.collect();
    }
    (
        format!("/apis/{POLICY_GROUP}/v1alpha2/{POLICIES}"),
        json!({"apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy",
            "metadata": {"name": format!("cnp{number}")}, "spec": spec}),
    )
}

fn protocol(dice: &mut Dice) -> Value {
    match dice.below(5) {
        0 => json!({"tcp": {"destinationPort": {"number": 80 + dice.below(4)}}}),
        1 => json!({"udp": {"destinationPort": {"range": {"start": 5000, "end": 5000 + dice.below(50)}}}}),
        2 => json!({"destinationNamedPort": dice.one_of(&["http", "dns"])}),
        3 => json!({"sctp": {}}),
        _ => json!({"tcp": {"destinationPort": {"number": 443}}}),
    }
}
