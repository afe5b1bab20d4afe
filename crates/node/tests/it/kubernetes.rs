//! Nodes on a real kube-apiserver: start-up writes the same as Calico's own did on a captured cluster, the condition is
//! set both ways, a GKE-style node writes nothing of its own, tokens are renewed.
//!
//! All scenarios run in turn on one server, because starting it takes longer than all of them.

use crate::support::{TestHost, TestNode, eventually};
use api::scalars::Ip;
use daemon::ShutdownHandle;
use node::for_tests::startup::{StartupError, run};
use node::for_tests::{condition, shutdown, token_monitor, tunnel};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use testkit::{ApiServer, Etcd};

pub(crate) struct Cluster {
    pub(crate) api_server: ApiServer,
    _etcd: Etcd,
}

impl Cluster {
    pub(crate) fn start() -> Self {
        let etcd = Etcd::start().expect("etcd");
        let api_server = ApiServer::start(&etcd.endpoint()).expect("kube-apiserver");
        let definitions: Vec<Value> =
            api::crds::all().iter().map(|crd| serde_json::to_value(crd).expect("JSON")).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": definitions});
        api_server
            .kubectl_with_input(&["apply", "--server-side", "-f", "-"], &list.to_string())
            .expect("the CRDs");
        let wait = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"];
        assert!(
            api_server.kubectl(&wait).expect("kubectl").status.success(),
            "the CRDs were not established"
        );
        Self { api_server, _etcd: etcd }
    }

    fn kubeconfig(&self) -> String {
        self.api_server.kubeconfig().display().to_string()
    }

    /// A node as a kubelet would register it.
    pub(crate) fn add_node(&self, name: &str, address: &str, pod_cidr: &str) {
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": {"podCIDR": pod_cidr, "podCIDRs": [pod_cidr]},
        });
        self.api_server.kubectl_with_input(&["create", "-f", "-"], &node.to_string()).expect("a node");
        let status = json!({"status": {"addresses": [
            {"type": "Hostname", "address": name}, {"type": "InternalIP", "address": address}]}});
        let patch = ["patch", "node", name, "--subresource=status", "-p", &status.to_string()];
        assert!(self.api_server.kubectl(&patch).expect("kubectl").status.success());
    }

    pub(crate) fn get(&self, arguments: &[&str]) -> Value {
        let mut all = vec!["get", "-o", "json"];
        all.extend_from_slice(arguments);
        let output = self.api_server.kubectl(&all).expect("kubectl");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    pub(crate) fn delete_all(&self, kinds: &[&str]) {
        for kind in kinds {
            let kind = format!("{kind}.crd.projectcalico.org");
            assert!(self.api_server.kubectl(&["delete", &kind, "--all"]).expect("kubectl").status.success());
        }
    }
}

fn captured(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kubernetes").join(name);
    serde_json::from_str(&std::fs::read_to_string(&path).expect("a capture")).expect("JSON")
}

/// The objects of a list as `kind/name` with the parts that are equal in every run.
fn essence(list: &Value, keep: impl Fn(&str) -> bool) -> Vec<Value> {
    let mut objects = Vec::new();
    for object in list["items"].as_array().expect("a list") {
        let mut object = object.clone();
        if !keep(object["metadata"]["name"].as_str().unwrap_or_default()) {
            continue;
        }
        let metadata = object["metadata"].as_object_mut().expect("metadata");
        for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
            metadata.remove(field);
        }
        if let Some(text) =
            metadata.get("annotations").and_then(|all| all["projectcalico.org/metadata"].as_str())
        {
            let mut inner: Value = serde_json::from_str(text).expect("Calico's metadata");
            if let Some(time) = inner.get_mut("creationTimestamp") {
                *time = json!("TIME");
            }
            metadata["annotations"]["projectcalico.org/metadata"] = inner;
        }
        if let Some(guid) = object["spec"].get_mut("clusterGUID") {
            assert_eq!(guid.as_str().map(str::len), Some(32));
            *guid = json!("GUID");
        }
        objects.push(object);
    }
    objects
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_start_on_a_kubernetes_cluster() {
    let cluster = Cluster::start();
    as_captured(&cluster).await;
    conflicts_and_missing_nodes(&cluster).await;
    the_condition_goes_both_ways(&cluster).await;
    tokens_are_renewed(&cluster).await;
    a_stranger_is_refused(&cluster).await;
    kubeadm_and_a_changed_type(&cluster).await;
    a_node_of_gke(&cluster).await;
}

/// The captured cluster: VXLAN, one pool, one card.
async fn as_captured(cluster: &Cluster) {
    cluster.add_node("kc-node1", "10.99.0.11", "10.244.0.0/24");
    let kubeconfig = cluster.kubeconfig();
    let variables = [
        ("DATASTORE_TYPE", "kubernetes"),
        ("KUBECONFIG", kubeconfig.as_str()),
        ("NODENAME", "kc-node1"),
        ("IP", "autodetect"),
        ("CALICO_NETWORKING_BACKEND", "vxlan"),
        ("CALICO_IPV4POOL_CIDR", "10.244.0.0/16"),
        ("CALICO_IPV4POOL_VXLAN", "Always"),
        ("CLUSTER_TYPE", "k8s"),
        ("FELIX_IPV6SUPPORT", "false"),
        ("WAIT_FOR_DATASTORE", "true"),
    ];
    let mut node = TestNode::new(&variables);
    // The captured build had no version.
    node.context.calico_version = String::new();
    assert!(run(&node.context).await.expect("a start").node_written);
    tunnel::run_once(&node.context).await.expect("tunnel addresses");

    for (kind, file) in [
        ("ippools", "ippools.json"),
        ("clusterinformations", "clusterinformations.json"),
        ("felixconfigurations", "felixconfigurations.json"),
        ("ipamconfigs", "ipamconfigs.json"),
        ("tiers", "tiers.json"),
    ] {
        let found = cluster.get(&[&format!("{kind}.crd.projectcalico.org")]);
        assert_eq!(essence(&found, |_| true), essence(&captured(file), |_| true), "{kind}");
    }
    let handle = |name: &str| name == "vxlan-tunnel-addr-kc-node1";
    let handles = cluster.get(&["ipamhandles.crd.projectcalico.org"]);
    let (mut ours, mut theirs) = (essence(&handles, handle), essence(&captured("ipamhandles.json"), handle));
    // It is not specified which block a node starts with.
    let found = cluster.get(&["node", "kc-node1"]);
    let annotations = &found["metadata"]["annotations"];
    let address = annotations["projectcalico.org/IPv4VXLANTunnelAddr"].as_str().expect("a tunnel address");
    let address = Ip::from(address).parse().expect("an address");
    let block = ipnet::IpNet::new(address, 26).expect("a block").trunc();
    assert_eq!(block.network(), address, "the first address of the block");
    for handle in [&mut ours, &mut theirs] {
        let blocks = handle[0]["spec"]["block"].as_object_mut().expect("blocks");
        assert_eq!(blocks.values().cloned().collect::<Vec<_>>(), [json!(1)]);
        blocks.clear();
    }
    assert_eq!(ours, theirs);
    let affinities = cluster.get(&["blockaffinities.crd.projectcalico.org"]);
    let mut ours = essence(&affinities, |_| true);
    let mut theirs = essence(&captured("blockaffinities.json"), |name| name.starts_with("kc-node1"));
    assert_eq!(ours[0]["spec"]["cidr"], json!(block.to_string()));
    for affinity in [&mut ours, &mut theirs] {
        affinity[0]["metadata"]["name"] = json!("NAME");
        affinity[0]["spec"]["cidr"] = json!("CIDR");
    }
    assert_eq!(ours, theirs);

    let expected = captured("node.json");
    for annotation in ["projectcalico.org/IPv4Address", "projectcalico.org/Interfaces"] {
        assert_eq!(annotations[annotation], expected["metadata"]["annotations"][annotation], "{annotation}");
    }
    assert_eq!(node.file("/var/lib/calico/nodename"), "kc-node1");

    // A second start changes nothing.
    let before = everything(cluster);
    assert!(!run(&node.context).await.expect("a second start").node_written);
    tunnel::run_once(&node.context).await.expect("tunnel addresses");
    assert_eq!(everything(cluster), before);
}

/// Names and revisions of everything that start-up could write.
fn everything(cluster: &Cluster) -> Vec<String> {
    let kinds = "nodes,ippools.crd.projectcalico.org,clusterinformations.crd.projectcalico.org,\
                 felixconfigurations.crd.projectcalico.org,bgpconfigurations.crd.projectcalico.org,\
                 ipamconfigs.crd.projectcalico.org,ipamblocks.crd.projectcalico.org,\
                 ipamhandles.crd.projectcalico.org,blockaffinities.crd.projectcalico.org,tiers.crd.projectcalico.org";
    let found = cluster.get(&[kinds]);
    let row = |object: &Value| {
        let metadata = &object["metadata"];
        format!("{} {} {}", object["kind"], metadata["name"], metadata["resourceVersion"])
    };
    found["items"].as_array().expect("a list").iter().map(row).collect()
}

fn variables<'a>(kubeconfig: &'a str, name: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        ("DATASTORE_TYPE", "kubernetes"),
        ("KUBECONFIG", kubeconfig),
        ("NODENAME", name),
        ("IP", "autodetect"),
        ("CALICO_NETWORKING_BACKEND", "vxlan"),
        ("CALICO_IPV6POOL_CIDR", "none"),
    ]
}

async fn conflicts_and_missing_nodes(cluster: &Cluster) {
    let kubeconfig = cluster.kubeconfig();
    let error =
        run(&TestNode::new(&variables(&kubeconfig, "nobody")).context).await.expect_err("no such node");
    assert!(error.to_string().contains("reading Kubernetes node nobody"), "{error}");
    cluster.add_node("kc-node2", "10.99.0.12", "10.244.1.0/24");
    let same = TestNode::new(&variables(&kubeconfig, "kc-node2"));
    let error = run(&same.context).await.expect_err("a conflict");
    assert!(matches!(error, StartupError::Conflict(_)), "{error}");
    let mut by_kubernetes = variables(&kubeconfig, "kc-node2");
    by_kubernetes.push(("IP_AUTODETECTION_METHOD", "kubernetes-internal-ip"));
    let own = TestHost::new(&[("eth0", &["10.99.0.12/24"]), ("eth1", &["10.98.0.12/24"])]);
    let own = TestNode::on(own, &by_kubernetes);
    run(&own.context).await.expect("a start");
    let node = cluster.get(&["node", "kc-node2"]);
    assert_eq!(node["metadata"]["annotations"]["projectcalico.org/IPv4Address"], json!("10.99.0.12/24"));
}

fn network_condition(cluster: &Cluster, name: &str) -> Value {
    let node = cluster.get(&["node", name]);
    let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let mut found = conditions.into_iter().filter(|condition| condition["type"] == "NetworkUnavailable");
    let mut condition = found.next().unwrap_or(Value::Null);
    assert_eq!(found.next(), None);
    if let Some(condition) = condition.as_object_mut() {
        condition.remove("lastHeartbeatTime");
        condition.remove("lastTransitionTime");
    }
    condition
}

async fn the_condition_goes_both_ways(cluster: &Cluster) {
    let kubeconfig = cluster.kubeconfig();
    let node = TestNode::new(&variables(&kubeconfig, "kc-node1"));
    std::fs::create_dir_all(node.context.path("/var/lib/calico")).expect("a folder");
    let mut up = captured("node.json")["conditions"][0].clone();
    let up_fields = up.as_object_mut().expect("a condition");
    up_fields.remove("lastHeartbeatTime");
    up_fields.remove("lastTransitionTime");
    condition::mark_available(&node.context).await.expect("a condition");
    assert_eq!(network_condition(cluster, "kc-node1"), up);
    shutdown::run(&node.context).await.expect("a shutdown");
    let down = json!({"type": "NetworkUnavailable", "status": "True", "reason": "CalicoIsDown",
        "message": "Calico is shutting down on this node"});
    assert_eq!(network_condition(cluster, "kc-node1"), down);
    assert!(node.file("/var/lib/calico/shutdownTS").ends_with('Z'));

    // As a service there is nothing to wait for, so the condition is set at once; the file of the shutdown is removed.
    let (handle, ended) = ShutdownHandle::new();
    let context = node.context.clone();
    let service =
        tokio::spawn(async move { condition::manage(&context, condition::READY_PATIENCE, ended).await });
    eventually("the network is available", || async { network_condition(cluster, "kc-node1") == up }).await;
    eventually("the shutdown is forgotten", || async { node.file("/var/lib/calico/shutdownTS").is_empty() })
        .await;
    handle.request();
    service.await.expect("no panic").expect("an orderly end");

    // The node's name in Kubernetes may differ.
    let mut renamed = variables(&kubeconfig, "other-name");
    renamed.push(("CALICO_K8S_NODE_REF", "kc-node2"));
    let renamed = node.with(&renamed);
    shutdown::run(&renamed.context).await.expect("a shutdown");
    assert_eq!(network_condition(cluster, "kc-node2"), down);
}

async fn tokens_are_renewed(cluster: &Cluster) {
    let account = ["create", "serviceaccount", "calico-cni-plugin", "-n", "kube-system"];
    assert!(cluster.api_server.kubectl(&account).expect("kubectl").status.success());
    let kubeconfig = cluster.kubeconfig();
    let node = TestNode::new(&variables(&kubeconfig, "kc-node1"));
    let secrets = node.context.path("/var/run/secrets/kubernetes.io/serviceaccount");
    std::fs::create_dir_all(&secrets).expect("a folder");
    std::fs::write(secrets.join("namespace"), "kube-system\n").expect("writing");
    std::fs::write(secrets.join("token"), "own").expect("writing");
    let file = node.context.path("/host/etc/cni/net.d/calico-kubeconfig");
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
    let (handle, ended) = ShutdownHandle::new();
    let context = node.context.clone();
    let service = tokio::spawn(async move { token_monitor::run(&context, ended).await });
    eventually("the kubeconfig is written", || async { file.exists() }).await;
    let first = std::fs::read_to_string(&file).expect("the kubeconfig");
    assert_eq!(std::fs::metadata(&file).expect("metadata").permissions().mode() & 0o777, 0o600);
    let kubectl = testkit::kubernetes_program("kubectl").expect("kubectl");
    let who = std::process::Command::new(kubectl)
        .arg("--kubeconfig")
        .arg(&file)
        .args(["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"])
        .output()
        .expect("kubectl");
    assert_eq!(
        String::from_utf8_lossy(&who.stdout),
        "system:serviceaccount:kube-system:calico-cni-plugin",
        "{}",
        String::from_utf8_lossy(&who.stderr)
    );
    // When the kubelet renews the pod's own token, ours is renewed at once.
    std::fs::write(secrets.join("..data"), "renewed").expect("writing");
    eventually("the kubeconfig is renewed", || async {
        std::fs::read_to_string(&file).is_ok_and(|text| text != first)
    })
    .await;
    handle.request();
    service.await.expect("no panic").expect("an orderly end");
    let leftovers = std::fs::read_dir(file.parent().expect("a folder")).expect("a folder").count();
    assert_eq!(leftovers, 1, "nothing but the kubeconfig");
}

async fn a_stranger_is_refused(cluster: &Cluster) {
    let stranger = cluster.api_server.kubeconfig_without_rights().display().to_string();
    let mut waiting = variables(&stranger, "kc-node1");
    waiting.push(("WAIT_FOR_DATASTORE", "true"));
    let error = run(&TestNode::new(&waiting).context).await.expect_err("no rights");
    assert!(matches!(error, StartupError::Unauthorized(_)), "{error}");
}

async fn kubeadm_and_a_changed_type(cluster: &Cluster) {
    cluster.delete_all(&["ippools"]);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "kubeadm-config", "namespace": "kube-system"},
        "data": {"ClusterConfiguration": "networking:\n  podSubnet: 10.177.0.0/16\n"}});
    cluster.api_server.kubectl_with_input(&["create", "-f", "-"], &map.to_string()).expect("a config map");
    let kubeconfig = cluster.kubeconfig();
    run(&TestNode::new(&variables(&kubeconfig, "kc-node1")).context).await.expect("a start");
    let pools = cluster.get(&["ippools.crd.projectcalico.org"]);
    assert_eq!(pools["items"][0]["spec"]["cidr"], json!("10.177.0.0/16"));
    let information = cluster.get(&["clusterinformations.crd.projectcalico.org", "default"]);
    assert_eq!(information["spec"]["clusterType"], json!("k8s,kdd,kubeadm"));
    assert_eq!(information["spec"]["calicoVersion"], json!("v3.32.1"));
}

/// Policy only, host-local addresses: Calico does not write the node's own resource.
async fn a_node_of_gke(cluster: &Cluster) {
    cluster.delete_all(&[
        "ippools",
        "clusterinformations",
        "felixconfigurations",
        "ipamconfigs",
        "ipamblocks",
    ]);
    cluster.add_node("gke-a", "10.0.0.5", "192.168.1.0/24");
    let before = cluster.get(&["node", "gke-a"])["metadata"]["resourceVersion"].clone();
    let kubeconfig = cluster.kubeconfig();
    let variables = [
        ("CALICO_MANAGE_CNI", "true"),
        ("CALICO_DISABLE_FILE_LOGGING", "true"),
        ("CALICO_NETWORKING_BACKEND", "none"),
        ("DATASTORE_TYPE", "kubernetes"),
        ("KUBECONFIG", kubeconfig.as_str()),
        ("FELIX_DEFAULTENDPOINTTOHOSTACTION", "ACCEPT"),
        ("FELIX_HEALTHENABLED", "true"),
        ("FELIX_IPV6SUPPORT", "false"),
        ("FELIX_TYPHAK8SSERVICENAME", "calico-typha"),
        ("USE_POD_CIDR", "true"),
        ("IP", "autodetect"),
        ("IP_AUTODETECTION_METHOD", "kubernetes-internal-ip"),
        ("NO_DEFAULT_POOLS", "true"),
        ("NODENAME", "gke-a"),
        ("WAIT_FOR_DATASTORE", "true"),
        ("CLUSTER_TYPE", "typha"),
    ];
    let node = TestNode::on(TestHost::new(&[("eth0", &["10.0.0.5/32"])]), &variables);
    assert!(!run(&node.context).await.expect("a start").node_written);
    tunnel::run_once(&node.context).await.expect("nothing to do");
    condition::mark_available(&node.context).await.expect("nothing to do");
    assert_eq!(cluster.get(&["node", "gke-a"])["metadata"]["resourceVersion"], before);
    assert_eq!(cluster.get(&["ippools.crd.projectcalico.org"])["items"], json!([]));
    assert_eq!(cluster.get(&["ipamblocks.crd.projectcalico.org"])["items"], json!([]));
    let configuration = cluster.get(&["ipamconfigs.crd.projectcalico.org", "default"]);
    assert_eq!(
        (&configuration["spec"]["strictAffinity"], &configuration["spec"]["autoAllocateBlocks"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(node.file("/var/lib/calico/nodename"), "gke-a");
    assert!(!node.context.path("/var/log/calico").exists());
    // In Calico's view, the node uses the first address of its own range for tunnels.
    let calico = node.client().await.resource::<api::NodeSpec>().get("", "gke-a").await.expect("the node");
    assert_eq!(calico.spec.bgp.expect("bgp").ipv4_ipip_tunnel_addr.as_str(), "192.168.1.1");
}
