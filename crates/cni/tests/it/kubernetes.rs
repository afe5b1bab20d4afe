//! Pods of Kubernetes, on a real kube-apiserver: annotations, status patches, `usePodCidr`, stale DELs; and the same
//! with etcd as the datastore.

use crate::world::{
    Call, Node, Pod, address_of, answer, merge, open_etcd, pool, port_of, prepare, reach, refusal, told,
};
use anyhow::{Context as _, Result, ensure};
use client::{Client, ClientConfig, DatastoreType};
use serde_json::{Value, json};
use std::time::Duration;
use testkit::{ApiServer, Etcd};

/// An API server with Calico's resources, one node and one namespace in it.
pub(crate) struct World {
    _etcd: Etcd,
    pub(crate) api: ApiServer,
    pub(crate) node: Node,
    pub(crate) client: Client,
}

const POOLS: [(&str, &str, u8); 3] =
    [("pool-a", "10.10.0.0/16", 26), ("pool-b", "10.20.0.0/16", 26), ("pool-v6", "fd00:10::/48", 122)];

impl World {
    pub(crate) async fn start() -> Result<Self> {
        let (etcd, api) = tokio::task::spawn_blocking(|| -> Result<(Etcd, ApiServer)> {
            let etcd = Etcd::start()?;
            let api = ApiServer::start(&etcd.endpoint())?;
            Ok((etcd, api))
        })
        .await??;
        let kubeconfig = api.kubeconfig().display().to_string();
        let config = ClientConfig {
            datastore_type: DatastoreType::Kubernetes,
            etcd: Default::default(),
            kubernetes: client::config::KubernetesSettings {
                kubeconfig: kubeconfig.clone(),
                ..Default::default()
            },
            embedded_path: String::new(),
        };
        let client = Client::open(&config).await?;
        client.backend().install().await?;
        apply(
            &api,
            &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"},
            "spec": {"podCIDRs": ["10.30.0.0/24"], "podCIDR": "10.30.0.0/24"}}),
        )?;
        apply(
            &api,
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"team": "red"}}}),
        )?;
        let pools: Vec<Value> = POOLS.iter().map(|(name, cidr, size)| pool(name, cidr, *size)).collect();
        prepare(&client, &pools).await?;
        let node = Node::new(
            "node-a",
            json!({
                "datastore_type": "kubernetes", "nodename": "node-a", "policy": {"type": "k8s"},
                "kubernetes": {"kubeconfig": kubeconfig}, "calico_api_group": "crd.projectcalico.org/v1"
            }),
        )?;
        node.forward(port_of(&api.endpoint())?)?;
        Ok(Self { _etcd: etcd, api, node, client })
    }

    /// A pod as the scheduler leaves it.
    pub(crate) fn pod(&self, name: &str, container: &str, annotations: &Value) -> Result<Pod> {
        apply(&self.api, &pod_object(name, annotations))?;
        Pod::of_kubernetes(container, "shop", name)
    }

    fn annotation(&self, pod: &str, name: &str) -> Result<String> {
        let object: Value =
            serde_json::from_str(&self.kubectl(&["get", "pod", "-n", "shop", pod, "-o", "json"])?)?;
        Ok(object["metadata"]["annotations"][format!("cni.projectcalico.org/{name}")]
            .as_str()
            .unwrap_or_default()
            .to_owned())
    }

    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let output = self.api.kubectl(arguments)?;
        ensure!(output.status.success(), "kubectl {arguments:?}: {}", told(&output));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Checks that no address is taken and no handle is left.
    pub(crate) async fn assert_bare(&self) -> Result<()> {
        let blocks =
            self.client.backend().list(&model::ListOptions::Block { ip_version: None }, None).await?;
        for entry in blocks.items {
            let model::Value::Block(block) = entry.value else { continue };
            ensure!(block.allocations.iter().all(Option::is_none), "addresses are left: {block:?}");
        }
        let handles = self.kubectl(&["get", "ipamhandles.crd.projectcalico.org", "-o", "name"])?;
        ensure!(handles.trim().is_empty(), "handles are left: {handles}");
        self.node.assert_bare()
    }
}

pub(crate) fn pod_object(name: &str, annotations: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": name}, "annotations": annotations},
        "spec": {"nodeName": "node-a", "serviceAccountName": "default", "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "x",
            "ports": [{"name": "http", "containerPort": 80}]}]}})
}

pub(crate) fn apply(api: &ApiServer, object: &Value) -> Result<()> {
    api.kubectl_with_input(&["apply", "-f", "-"], &object.to_string()).map(drop)
}

fn annotations(pairs: &[(&str, &str)]) -> Value {
    pairs
        .iter()
        .map(|(name, value)| (format!("cni.projectcalico.org/{name}"), Value::from(*value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_on_the_kubernetes_datastore() -> Result<()> {
    let world = World::start().await?;
    let node = &world.node;
    let one = world.pod("one", "cid1", &json!({}))?;
    let two = world.pod(
        "two",
        "cid2",
        &annotations(&[("ipv4pools", r#"["pool-b"]"#), ("hwAddr", "1c:0c:0a:c0:ff:ee")]),
    )?;
    let first = address_of(&node.add(&one, json!({}))?)?;
    let result = node.add(&two, json!({}))?;
    let second = address_of(&result)?;
    assert!(first.starts_with("10.10.") && second.starts_with("10.20."), "{first} {second}");
    assert_eq!(result["interfaces"][1]["mac"], "1c:0c:0a:c0:ff:ee");
    assert_eq!(world.annotation("one", "podIP")?, format!("{first}/32"));
    assert_eq!(world.annotation("one", "podIPs")?, format!("{first}/32"));
    assert_eq!(world.annotation("one", "containerID")?, "cid1");
    reach(&one.netns, &two.netns, &second)?;

    // The pod's sandbox is replaced: the new container gets its own address, and the late DEL of the old one does no
    // harm.
    let again = Pod::of_kubernetes("cid1b", "shop", "one")?;
    let fresh = address_of(&node.add(&again, json!({}))?)?;
    assert_ne!(fresh, first);
    node.del(&one, json!({}))?;
    assert_eq!(world.annotation("one", "podIP")?, format!("{fresh}/32"));
    reach(&again.netns, &two.netns, &second)?;
    node.del(&again, json!({}))?;
    assert_eq!(world.annotation("one", "podIP")?, "");
    node.del(&again, json!({}))?;

    // The pod is deleted from the API before its DEL.
    world.kubectl(&["delete", "pod", "-n", "shop", "two", "--force", "--grace-period=0"])?;
    node.del(&two, json!({}))?;
    world.assert_bare().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn annotations_are_applied() -> Result<()> {
    let world = World::start().await?;
    let node = &world.node;
    let asked = world.pod(
        "asked",
        "a1",
        &annotations(&[
            ("ipAddrs", r#"["10.20.5.5"]"#),
            ("floatingIPs", r#"["192.0.2.7"]"#),
            ("allowedSourcePrefixes", r#"["198.51.100.0/24"]"#),
        ]),
    )?;
    let refused = |changes: Value| -> Result<(u64, String)> {
        refusal(&node.call(&asked.call("ADD"), &node.configuration(changes))?)
    };
    let (code, message) = refused(json!({}))?;
    assert!(code == 105 && message == "requested feature is not enabled: floating_ips", "{message}");
    let floating = json!({"feature_control": {"floating_ips": true}});
    assert_eq!(address_of(&node.add(&asked, floating.clone())?)?, "10.20.5.5");
    // Another pod requests the same address.
    let thief = world.pod("thief", "t1", &annotations(&[("ipAddrs", r#"["10.20.5.5"]"#)]))?;
    let (code, message) = refusal(&node.call(&thief.call("ADD"), &node.configuration(json!({})))?)?;
    assert!(code == 103 && message.contains("error getting IP from IPAM"), "{code} {message}");
    node.del(&thief, json!({}))?;
    // A new container of the same pod takes over the address.
    let again = Pod::of_kubernetes("a2", "shop", "asked")?;
    assert_eq!(address_of(&node.add(&again, floating.clone())?)?, "10.20.5.5");
    node.del(&asked, floating.clone())?;
    node.del(&again, floating)?;

    let families = world.pod("families", "f1", &annotations(&[("ipFamilies", r#"["IPv4","IPv6"]"#)]))?;
    assert_eq!(node.add(&families, json!({}))?["ips"].as_array().map(Vec::len), Some(2));
    assert!(world.annotation("families", "podIPs")?.contains(','));
    node.del(&families, json!({}))?;

    let free = world.pod("free", "n1", &annotations(&[("ipAddrsNoIpam", r#"["10.99.0.9"]"#)]))?;
    let (_, message) = refusal(&node.call(&free.call("ADD"), &node.configuration(json!({})))?)?;
    assert_eq!(message, "requested feature is not enabled: ip_addrs_no_ipam");
    let allowed = json!({"feature_control": {"ip_addrs_no_ipam": true}});
    assert_eq!(address_of(&node.add(&free, allowed.clone())?)?, "10.99.0.9");
    node.del(&free, allowed)?;
    let bad = world.pod("bad", "b1", &annotations(&[("ipv4pools", "pool-a")]))?;
    assert_eq!(refusal(&node.call(&bad.call("ADD"), &node.configuration(json!({})))?)?.0, 105);
    world.assert_bare().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_local_with_the_nodes_range_and_the_wait_for_policy() -> Result<()> {
    let world = World::start().await?;
    let node = &world.node;
    let data = node.root().join("host-local");
    let settings = json!({
        "ipam": {"type": "host-local", "subnet": "usePodCidr", "dataDir": data, "routes": [{"dst": "10.0.0.0/8"}]},
        "policy_setup_timeout_seconds": 60, "endpoint_status_dir": node.root().join("status"),
    });
    std::fs::create_dir_all(node.root().join("status"))?;
    let pod = world.pod("local", "l1", &json!({}))?;
    let plugin = node.root().join("bin/calico");
    let waiting = node.start(&plugin, &pod.call("ADD"), &node.configuration(settings.clone()))?;
    // The pod is written to the API before the wait; Felix then reports that it is programmed.
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while world.annotation("local", "podIP")?.is_empty() {
        ensure!(std::time::Instant::now() < deadline, "the pod's address was never written");
        std::thread::sleep(Duration::from_millis(50));
    }
    std::fs::write(node.root().join("status/k8s shop%2Flocal eth0"), "")?;
    let output = waiting.wait_with_output()?;
    let result = answer(&output)?;
    ensure!(!told(&output).contains("not in place yet"), "{}", told(&output));
    assert!(address_of(&result)?.starts_with("10.30.0."), "{result}");
    let routes = pod.netns.ip(&["route"])?;
    assert!(routes.contains("10.0.0.0/8 via 169.254.1.1") && !routes.contains("default"), "{routes}");
    node.del(&pod, settings)?;
    world.assert_bare().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubernetes_policy_on_etcd() -> Result<()> {
    let world = World::start().await?;
    let etcd = tokio::task::spawn_blocking(Etcd::start).await??;
    let client = open_etcd(&etcd).await?;
    prepare(&client, &[pool("pool", "10.40.0.0/16", 26)]).await?;
    crate::world::add_node(&client, "node-a").await?;
    world.node.forward(port_of(&etcd.endpoint())?)?;
    let mut settings = json!({"datastore_type": "etcdv3", "etcd_endpoints": etcd.endpoint()});
    merge(&mut settings, json!({"calico_api_group": null}));
    let pod = world.pod("web", "w1", &json!({}))?;
    let result = world.node.add(&pod, settings.clone())?;
    let stored = client.resource::<api::WorkloadEndpointSpec>().get("shop", "node--a-k8s-web-eth0").await?;
    assert_eq!(stored.spec.profiles, ["kns.shop", "ksa.shop.default"]);
    assert_eq!(stored.spec.ports.first().map(|port| (port.name.as_str(), port.port)), Some(("http", 80)));
    assert_eq!(stored.metadata.labels.get("app").map(String::as_str), Some("web"));
    assert_eq!(
        stored.metadata.labels.get("projectcalico.org/serviceaccount").map(String::as_str),
        Some("default")
    );
    assert_eq!(result["interfaces"][0]["name"], stored.spec.interface_name);
    assert_eq!(stored.spec.container_id, "w1");
    // A late DEL of an older container leaves the endpoint alone.
    let old = Call { command: "DEL", container: "w0", netns: "", ifname: "eth0", args: &pod.args };
    let output = world.node.call(&old, &world.node.configuration(settings.clone()))?;
    ensure!(output.status.success(), "{}", told(&output));
    client
        .resource::<api::WorkloadEndpointSpec>()
        .get("shop", "node--a-k8s-web-eth0")
        .await
        .context("the endpoint is gone")?;
    world.node.del(&pod, settings)?;
    assert!(
        client.resource::<api::WorkloadEndpointSpec>().get("shop", "node--a-k8s-web-eth0").await.is_err()
    );
    world.node.assert_bare()
}
