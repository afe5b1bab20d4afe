//! The variables of the lab's programs: the datastore, the identity of the node, the wiring of pods. Pure.

use crate::accounts;
use crate::state::Folder;
use crate::topology::{Bgp, Dataplane, Datastore, Encap, Node, Pod, Topology};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Variables of a program.
pub(crate) type Variables = BTreeMap<String, String>;

/// The port of the lab's etcd.
pub(crate) const ETCD_PORT: u16 = 2379;
/// The port of the lab's kube-apiserver.
pub(crate) const API_PORT: u16 = 6443;

/// The range of pods' IPv6 addresses.
pub(crate) const POD_RANGE_V6: &str = "fd65:1:2::/48";

/// An address and a port in the form used in URLs.
pub(crate) fn host_and_port(address: IpAddr, port: u16) -> String {
    std::net::SocketAddr::new(address, port).to_string()
}

/// The datastore's variables.
pub(crate) fn datastore(folder: &Folder, topology: &Topology) -> Variables {
    let path = |name: &str| folder.file(name).display().to_string();
    let pairs: Vec<(&str, String)> = match topology.datastore {
        Datastore::Embedded => {
            vec![("DATASTORE_TYPE", "embedded".to_owned()), ("EMBEDDED_PATH", path("store"))]
        }
        Datastore::Etcd => vec![
            ("DATASTORE_TYPE", "etcdv3".to_owned()),
            ("ETCD_ENDPOINTS", format!("http://{}", host_and_port(topology.server_address(), ETCD_PORT))),
        ],
        Datastore::Kubernetes => {
            vec![("DATASTORE_TYPE", "kubernetes".to_owned()), ("KUBECONFIG", path("kubeconfig"))]
        }
    };
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The datastore's variables for a node's programs: on Kubernetes with the rights that Calico's manifests grant.
pub(crate) fn datastore_for_node(folder: &Folder, topology: &Topology) -> Variables {
    let mut variables = datastore(folder, topology);
    if topology.datastore == Datastore::Kubernetes {
        let (file, _, _) = accounts::login(accounts::NODE);
        variables.insert("KUBECONFIG".to_owned(), folder.file(&file).display().to_string());
    }
    variables
}

/// Describes how nodes are connected.
pub(crate) fn network_in_words(topology: &Topology) -> String {
    match topology.subnets {
        _ if topology.nodes.len() == 1 => "a network namespace".to_owned(),
        1 => "each a network namespace, in one subnet".to_owned(),
        subnets if topology.bgp.is_spoken() => {
            format!("each a network namespace, in {subnets} racks with a top-of-rack router each")
        }
        subnets => format!("each a network namespace, in {subnets} subnets with a router between them"),
    }
}

/// The variables of a node, in addition to the datastore's.
pub(crate) fn node(topology: &Topology, node: &Node) -> Variables {
    let address =
        |address: Option<ipnet::IpNet>| address.map_or("none".to_owned(), |address| address.to_string());
    let (families, bgp) = (topology.families, topology.bgp);
    let vxlan = match topology.encap {
        Encap::None | Encap::Ipip => "Never",
        Encap::Vxlan => "Always",
        Encap::CrossSubnet => "CrossSubnet",
    };
    let ipip = if topology.encap == Encap::Ipip { "Always" } else { "Never" };
    let nftables = match topology.dataplane {
        Dataplane::Iptables => "Disabled",
        Dataplane::Nftables | Dataplane::Ebpf => "Enabled",
    };
    let programs = topology.dataplane == Dataplane::Ebpf;
    let pool = |has: bool, range: &str| if has { range.to_owned() } else { "none".to_owned() };
    let pairs: Vec<(&str, String)> = vec![
        ("NODENAME", node.name.clone()),
        ("IP", address(node.v4)),
        ("IP6", address(node.v6)),
        ("CALICO_NETWORKING_BACKEND", if bgp.is_spoken() { "bird" } else { "vxlan" }.to_owned()),
        ("TORTIE_BGP_SPEAKER", if bgp == Bgp::Bird { "bird" } else { "native" }.to_owned()),
        ("AS", if bgp.is_spoken() { topology.rack_as(node.subnet).to_string() } else { String::new() }),
        ("CLUSTER_TYPE", "tortie,lab".to_owned()),
        ("CALICO_IPV4POOL_CIDR", pool(families.has_v4(), &topology.pod_cidr.to_string())),
        ("CALICO_IPV4POOL_BLOCK_SIZE", topology.block_size.to_string()),
        ("CALICO_IPV4POOL_VXLAN", vxlan.to_owned()),
        ("CALICO_IPV4POOL_IPIP", ipip.to_owned()),
        ("CALICO_IPV6POOL_CIDR", pool(families.has_v6(), POD_RANGE_V6)),
        ("CALICO_IPV6POOL_VXLAN", vxlan.to_owned()),
        ("CALICO_MANAGE_CNI", "false".to_owned()),
        ("CALICO_DISABLE_FILE_LOGGING", "true".to_owned()),
        ("WAIT_FOR_DATASTORE", "true".to_owned()),
        ("FELIX_FELIXHOSTNAME", node.name.clone()),
        ("FELIX_IPV6SUPPORT", families.has_v6().to_string()),
        ("FELIX_NFTABLESMODE", nftables.to_owned()),
        ("FELIX_BPFENABLED", if programs { "true" } else { "" }.to_owned()),
        // Its memory is allocated up front, and a lab has many nodes.
        ("FELIX_BPFMAPSIZECONNTRACK", if programs { "16384" } else { "" }.to_owned()),
        ("FELIX_HEALTHENABLED", "true".to_owned()),
        ("FELIX_HEALTHHOST", "127.0.0.1".to_owned()),
        ("FELIX_LOGSEVERITYSCREEN", "info".to_owned()),
        ("FELIX_PROGRAMCLUSTERROUTES", cluster_routes(topology).to_owned()),
    ];
    let mut variables: Variables = pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    variables.extend(topology.node_environment.clone());
    variables.extend(node.environment.clone());
    // Empty means not set.
    variables.retain(|_, value| !value.is_empty());
    variables
}

/// The value of the setting for routes between nodes. Without BGP Felix programs them; but without encapsulation Felix
/// treats every node as a neighbour on the same network, and between subnets the router needs the routes to pods. With
/// BGP, Felix and the speaker divide the work as they do by default.
fn cluster_routes(topology: &Topology) -> &'static str {
    if topology.bgp.is_spoken() {
        return "";
    }
    if topology.encap == Encap::None && topology.subnets > 1 { "Disabled" } else { "Enabled" }
}

/// The network configuration that a container runtime would find in `/etc/cni/net.d`.
pub(crate) fn network(folder: &Folder, topology: &Topology, node: &str) -> Value {
    let families = topology.families;
    let mut conf = json!({
        "cniVersion": "1.0.0",
        "name": "k8s-pod-network",
        "type": "calico",
        "log_level": "info",
        "log_file_path": "/var/log/calico/cni/cni.log",
        "nodename": node,
        "policy_setup_timeout_seconds": 60,
        "ipam": {
            "type": "calico-ipam",
            "assign_ipv4": families.has_v4().to_string(),
            "assign_ipv6": families.has_v6().to_string(),
        },
    });
    let Some(fields) = conf.as_object_mut() else { return conf };
    for (name, value) in datastore(folder, topology) {
        let name = match name.as_str() {
            "DATASTORE_TYPE" => "datastore_type",
            "EMBEDDED_PATH" => "embedded_path",
            "ETCD_ENDPOINTS" => "etcd_endpoints",
            _ => continue,
        };
        fields.insert(name.to_owned(), Value::String(value));
    }
    if topology.datastore == Datastore::Kubernetes {
        fields.insert("policy".to_owned(), json!({"type": "k8s"}));
        let (file, _, _) = accounts::login(accounts::PLUGIN);
        let kubeconfig = folder.file(&file).display().to_string();
        fields.insert("kubernetes".to_owned(), json!({"kubeconfig": kubeconfig}));
    }
    conf
}

/// The variables that a container runtime passes to the plugin about a pod.
pub(crate) fn cni(command: &str, pod: &Pod, container: &str, netns: &str) -> Variables {
    [
        ("CNI_COMMAND", command.to_owned()),
        ("CNI_CONTAINERID", container.to_owned()),
        ("CNI_NETNS", netns.to_owned()),
        ("CNI_IFNAME", "eth0".to_owned()),
        ("CNI_PATH", "/opt/cni/bin:/usr/lib/cni".to_owned()),
        (
            "CNI_ARGS",
            format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={}", pod.namespace, pod.name),
        ),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// The pod as the Kubernetes API has it after scheduling.
pub(crate) fn pod_object(pod: &Pod) -> Value {
    let ports: Vec<Value> = pod.ports.iter().map(|port| json!({"containerPort": port})).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "labels": pod.labels},
        "spec": {
            "nodeName": pod.node, "serviceAccountName": "default", "automountServiceAccountToken": false,
            "containers": [{"name": "responder", "image": "tortie", "ports": ports}],
        },
    })
}

/// A kubelet's report of a node that is ready.
pub(crate) fn node_status(node: &Node) -> Value {
    let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "the lab's node is ready"});
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name}, "status": {"conditions": [ready]},
    })
}

/// A kubelet's report of a running pod.
pub(crate) fn pod_status(pod: &Pod, addresses: &[IpAddr], node: Option<IpAddr>) -> Value {
    let condition = |name: &str| json!({"type": name, "status": "True"});
    let conditions: Vec<Value> =
        ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map(condition).to_vec();
    let all: Vec<Value> = addresses.iter().map(|address| json!({"ip": address})).collect();
    let mut status = json!({
        "phase": "Running", "podIP": addresses.first(), "podIPs": all, "conditions": conditions,
        "containerStatuses": [{
            "name": "responder", "image": "tortie", "imageID": "", "ready": true, "started": true,
            "restartCount": 0, "state": {"running": {}},
        }],
    });
    if let Some(node) = node {
        status["hostIP"] = json!(node);
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": pod.name, "namespace": pod.namespace}, "status": status,
    })
}

#[cfg(test)]
mod tests {
    use super::{cni, datastore, network, node};
    use crate::state::Folder;
    use crate::topology::{Datastore, Encap, Families, Wish, plan};

    #[test]
    fn a_node_of_each_kind() {
        let folder = Folder::of("lab").unwrap();
        let wish = Wish { family: Some(Families::V6), encap: Some(Encap::CrossSubnet), ..Wish::default() };
        let topology = plan("lab", &wish).unwrap();
        let told = node(&topology, &topology.nodes[2]);
        let value = |name: &str| told.get(name).map(String::as_str);
        assert_eq!((value("IP"), value("IP6")), (Some("none"), Some("fd65:0:0:1::3/64")));
        assert_eq!(
            (value("CALICO_IPV4POOL_CIDR"), value("CALICO_IPV6POOL_VXLAN")),
            (Some("none"), Some("CrossSubnet"))
        );
        let conf = network(&folder, &topology, "node3");
        assert_eq!(
            (&conf["ipam"]["assign_ipv4"], &conf["ipam"]["assign_ipv6"]),
            (&"false".into(), &"true".into())
        );
        assert_eq!(conf["datastore_type"], "embedded");
        let etcd = plan("lab", &Wish { datastore: Some(Datastore::Etcd), ..wish }).unwrap();
        assert_eq!(datastore(&folder, &etcd)["ETCD_ENDPOINTS"], "http://[fd65::fe]:2379");
        let told = cni("ADD", &etcd.pods[0], "c1", "/proc/1/fd/3");
        assert!(told["CNI_ARGS"].ends_with("K8S_POD_NAMESPACE=shop;K8S_POD_NAME=frontend"));
    }
}
