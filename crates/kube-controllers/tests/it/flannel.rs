//! The migration from flannel, with a stand-in for the kubelets and for Kubernetes' own controllers.

use crate::stage::{Stage, Store, eventually};
use crate::world::World;
use anyhow::{Context as _, Result, bail, ensure};
use api::{FelixConfigurationSpec, IPPoolSpec, NodeSpec, VXLANMode};
use daemon::{ShutdownHandle, Variables};
use flannel_migration::{FlannelConfig, FlannelMigration};
use kube_access::cluster::Cluster;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

const NETWORK: &str = "projectcalico.org/node-network-during-migration";
const PROGRESS: &str = "projectcalico.org/node-flannel-migration-in-progress";
const SUBNET: &str =
    "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n";

/// Plays the role of a kubelet on every node and of Kubernetes' controllers.
struct Attendant {
    cluster: Cluster,
    /// Whether errands are carried out; otherwise they hang.
    works: Arc<AtomicBool>,
    /// How often flannel's network was removed from a node.
    removals: Arc<AtomicUsize>,
}

impl Attendant {
    async fn list(&self, path: &str) -> Vec<Value> {
        let list: Result<Value, _> = self.cluster.get("look", path).await;
        list.ok().and_then(|list| list["items"].as_array().cloned()).unwrap_or_default()
    }

    async fn patch(&self, path: &str, patch: &Value) {
        let content = kube_access::cluster::MERGE_PATCH;
        let _: Result<Value, _> = self.cluster.send("act", http::Method::PATCH, path, patch, content).await;
    }

    async fn attend(&self) {
        for pod in self.list("/api/v1/pods").await {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
            let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
            if !pod["metadata"]["deletionTimestamp"].is_null() {
                let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0});
                let _: Result<Value, _> =
                    self.cluster.send("end", http::Method::DELETE, &path, &body, "application/json").await;
                continue;
            }
            let is_errand = !pod["metadata"]["labels"]["flannel-migration"].is_null();
            if is_errand && pod["status"]["phase"] == "Pending" && self.works.load(Ordering::SeqCst) {
                let words = if name.starts_with("read-flannel") { SUBNET } else { "done" };
                if name.starts_with("remove-flannel") {
                    self.removals.fetch_add(1, Ordering::SeqCst);
                }
                let state = json!({"terminated": {"exitCode": 0, "message": words}});
                let container = json!({"name": pod["spec"]["containers"][0]["name"], "image": "i", "imageID": "i", "ready": false, "restartCount": 0, "state": state});
                let status = json!({"phase": "Succeeded", "containerStatuses": [container]});
                self.patch(&format!("{path}/status"), &json!({"status": status})).await;
            }
        }
        // calico-node runs on nodes with its label.
        for node in self.list("/api/v1/nodes").await {
            let name = node["metadata"]["name"].as_str().unwrap_or_default();
            if node["metadata"]["labels"][NETWORK] != "calico" {
                continue;
            }
            let pods = "/api/v1/namespaces/kube-system/pods";
            let pod = json!({
                "metadata": {
                    "name": format!("calico-node-{name}"), "labels": {"k8s-app": "calico-node"},
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "calico-node", "uid": "u", "controller": true}],
                },
                "spec": {"nodeName": name, "hostNetwork": true, "containers": [{"name": "c", "image": "i"}]},
            });
            let made: Result<Value, _> = self.cluster.create("make calico-node", pods, &pod).await;
            if made.is_ok() {
                let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
                self.patch(&format!("{pods}/calico-node-{name}/status"), &json!({"status": status})).await;
            }
        }
        // A DaemonSet that is being deleted is removed when its pods are gone.
        for set in self.list("/apis/apps/v1/namespaces/kube-flannel/daemonsets").await {
            if !set["metadata"]["deletionTimestamp"].is_null() {
                let name = set["metadata"]["name"].as_str().unwrap_or_default();
                let path = format!("/apis/apps/v1/namespaces/kube-flannel/daemonsets/{name}");
                self.patch(&path, &json!({"metadata": {"finalizers": null}})).await;
            }
        }
    }
}

fn daemonset(name: &str, containers: &Value, selector: &Value) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"initContainers": containers["init"], "containers": containers["main"], "nodeSelector": selector},
            },
        },
    })
}

async fn flannel_node(stage: &Stage, name: &str, number: u8) -> Result<()> {
    let node = json!({
        "metadata": {
            "name": name,
            "annotations": {
                "flannel.alpha.coreos.com/backend-data": format!("{{\"VtepMAC\":\"56:1d:8d:30:79:{number:02x}\"}}"),
                "flannel.alpha.coreos.com/backend-type": "vxlan",
                "flannel.alpha.coreos.com/public-ip": format!("172.16.0.{number}"),
            },
        },
        "spec": {"podCIDR": format!("10.244.{number}.0/24"), "podCIDRs": [format!("10.244.{number}.0/24")]},
    });
    stage.create("/api/v1/nodes", &node).await.map(drop)
}

const FLANNEL_SETS: &str = "/apis/apps/v1/namespaces/kube-flannel/daemonsets";
const CALICO_SETS: &str = "/apis/apps/v1/namespaces/kube-system/daemonsets";

/// Creates these nodes with flannel on them, and Calico's DaemonSet, which selects none of them yet.
async fn flannel_cluster(stage: &Stage, nodes: &[&str]) -> Result<()> {
    for (number, name) in nodes.iter().enumerate() {
        flannel_node(stage, name, u8::try_from(number + 1)?).await?;
    }
    let main = json!([{"name": "kube-flannel", "image": "flannel"}]);
    let flannel = daemonset("kube-flannel-ds", &json!({"init": [], "main": main}), &json!({}));
    stage.create(FLANNEL_SETS, &flannel).await?;
    let containers = json!({
        "init": [{"name": "install-cni", "image": "i", "env": [{"name": "CNI_CONF_NAME", "value": "10-calico.conflist"}]}],
        "main": [{"name": "calico-node", "image": "calico/node"}],
    });
    let calico = daemonset("calico-node", &containers, &json!({NETWORK: "calico"}));
    stage.create(CALICO_SETS, &calico).await?;
    for name in ["flannel-migration-config", "calico-config"] {
        let map = json!({"metadata": {"name": name}, "data": {"x": "y"}});
        stage.create("/api/v1/namespaces/kube-system/configmaps", &map).await?;
    }
    Ok(())
}

/// Starts an attendant. Returns its switch, the count of flannel's removals, and its task.
fn attend(stage: &Stage) -> (Arc<AtomicBool>, Arc<AtomicUsize>, JoinHandle<()>) {
    let attendant = Attendant {
        cluster: stage.cluster.clone(),
        works: Arc::new(AtomicBool::new(true)),
        removals: Arc::default(),
    };
    let (works, removals) = (Arc::clone(&attendant.works), Arc::clone(&attendant.removals));
    let attending = tokio::spawn(async move {
        loop {
            attendant.attend().await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    (works, removals, attending)
}

fn migration(stage: &Stage) -> Result<Box<FlannelMigration>> {
    let config = FlannelConfig::read(&Variables::new([("POD_NODE_NAME", "f-own")]))?;
    Ok(Box::new(
        FlannelMigration::new(stage.client.clone(), stage.cluster.clone(), config)
            .with_kubelet_pause(Duration::from_millis(10)),
    ))
}

async fn label(stage: &Stage, node: &str, label: &str) -> Result<Value> {
    let node = stage.get(&format!("/api/v1/nodes/{node}")).await?.context("the node")?;
    Ok(node["metadata"]["labels"][label].clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_migrated_node_by_node_and_resumed_after_a_stop() -> Result<()> {
    let stage = Stage::start(Store::Kubernetes).await?;
    // Without flannel there is nothing to do.
    let (_end, shutdown) = ShutdownHandle::new();
    stage.namespace("kube-flannel").await?;
    migration(&stage)?.run(shutdown).await?;

    flannel_cluster(&stage, &["f-1", "f-2", "f-own"]).await?;
    stage.namespace("shop").await?;
    stage.pod("shop", "web", "f-1", &["10.244.1.7".parse()?]).await?;

    let (works, removals, attending) = attend(&stage);

    // Stopped in the middle of the second node: its errand hangs.
    let (end, shutdown) = ShutdownHandle::new();
    let mut task = tokio::spawn(migration(&stage)?.run(shutdown));
    let first = eventually("the first node is Calico's", || async {
        let network = label(&stage, "f-1", NETWORK).await?;
        Ok(network == "calico" && label(&stage, "f-1", PROGRESS).await?.is_null())
    });
    tokio::select! {
        outcome = &mut task => bail!("it ended before the first node: {outcome:?}"),
        first = first => first?,
    }
    works.store(false, Ordering::SeqCst);
    ensure!(stage.get("/api/v1/namespaces/shop/pods/web").await?.is_none(), "the node was drained");
    eventually("the second node is being worked on", || async {
        Ok(label(&stage, "f-2", PROGRESS).await? == "true")
    })
    .await?;
    end.request();
    task.await??;
    let stopped_at = label(&stage, "f-2", NETWORK).await?;
    ensure!(label(&stage, "f-own", NETWORK).await? == "flannel", "the next node was not touched");
    works.store(true, Ordering::SeqCst);

    // Resumed according to the labels.
    let (_end, shutdown) = ShutdownHandle::new();
    migration(&stage)?.run(shutdown).await.with_context(|| format!("resuming from {stopped_at}"))?;
    ensure!(removals.load(Ordering::SeqCst) >= 3);
    for node in ["f-1", "f-2", "f-own"] {
        ensure!(
            label(&stage, node, NETWORK).await?.is_null() && label(&stage, node, PROGRESS).await?.is_null()
        );
        let object = stage.get(&format!("/api/v1/nodes/{node}")).await?.context("the node")?;
        ensure!(object["spec"]["unschedulable"].is_null(), "{node} takes pods again");
    }
    ensure!(stage.get(&format!("{FLANNEL_SETS}/kube-flannel-ds")).await?.is_none());
    let calico = stage.get(&format!("{CALICO_SETS}/calico-node")).await?.context("calico-node")?;
    ensure!(calico["spec"]["template"]["spec"]["nodeSelector"][NETWORK].is_null());
    let map = stage.get("/api/v1/namespaces/kube-system/configmaps/calico-config").await?.context("a map")?;
    ensure!(map["data"]["veth_mtu"] == "1450", "{map}");
    let map = stage.get("/api/v1/namespaces/kube-system/configmaps/flannel-migration-config").await?;
    ensure!(
        map.context("a map")?["data"]["flannel_subnet_env"].as_str()
            == Some(SUBNET.replace('\n', ";").as_str())
    );

    // Calico has flannel's network, blocks and tunnels.
    let pool = stage.client.resource::<IPPoolSpec>().get("", "default-ipv4-ippool").await?;
    ensure!(pool.spec.cidr.as_str() == "10.244.0.0/16" && pool.spec.vxlan_mode == VXLANMode::Always);
    let felix = stage.client.resource::<FelixConfigurationSpec>().get("", "default").await?.spec;
    ensure!(
        (felix.vxlan_enabled, felix.vxlan_vni, felix.vxlan_port, felix.vxlan_mtu)
            == (None, Some(1), Some(8472), Some(1450))
    );
    let node = stage.client.resource::<NodeSpec>().get("", "f-2").await?.spec;
    ensure!(
        node.ipv4_vxlan_tunnel_addr.as_str() == "10.244.2.0"
            && node.vxlan_tunnel_mac_addr.as_str() == "56:1d:8d:30:79:02"
    );
    ensure!(stage.is_taken("10.244.2.0".parse()?).await?);
    // Once more: there is nothing to do.
    let (_end, shutdown) = ShutdownHandle::new();
    migration(&stage)?.run(shutdown).await?;
    attending.abort();
    Ok(())
}

/// The same migration by the whole program: its variables select it, it opens everything itself, and keeps running
/// afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_migrates_if_its_variables_select_it() -> Result<()> {
    let stage = Stage::start(Store::Kubernetes).await?;
    stage.namespace("kube-flannel").await?;
    let world = World::as_it_is(&stage.api).await?;
    let variables = [("ENABLED_CONTROLLERS", "flannelmigration"), ("POD_NODE_NAME", "f-own")];
    // Without the node's name it does not start, and reports that.
    let refused = world.start(&variables[..1]).outcome().await.err().map(|error| format!("{error:#}"));
    ensure!(refused.as_ref().is_some_and(|words| words.contains("POD_NODE_NAME")), "{refused:?}");
    // If Calico is not ready to replace flannel, it ends with the reason, so that it is restarted.
    flannel_cluster(&stage, &["f-own"]).await?;
    let calico = stage.get(&format!("{CALICO_SETS}/calico-node")).await?.context("calico-node")?;
    stage.delete(&format!("{CALICO_SETS}/calico-node")).await?;
    eventually("calico-node is gone", || async {
        Ok(stage.get(&format!("{CALICO_SETS}/calico-node")).await?.is_none())
    })
    .await?;
    let failed = world.start(&variables).outcome().await.err().map(|error| format!("{error:#}"));
    ensure!(
        failed.as_ref().is_some_and(|words| words.contains("kube-system/calico-node does not exist")),
        "{failed:?}"
    );
    let again = json!({"metadata": {"name": "calico-node"}, "spec": calico["spec"]});
    stage.create(CALICO_SETS, &again).await?;

    let (_works, removals, attending) = attend(&stage);
    let running = world.start(&variables);
    eventually("the node is Calico's and flannel is gone", || async {
        ensure!(running.is_running(), "it ended");
        Ok(stage.get(&format!("{FLANNEL_SETS}/kube-flannel-ds")).await?.is_none()
            && label(&stage, "f-own", NETWORK).await?.is_null()
            && removals.load(Ordering::SeqCst) > 0)
    })
    .await?;
    let pool = stage.client.resource::<IPPoolSpec>().get("", "default-ipv4-ippool").await?;
    ensure!(pool.spec.cidr.as_str() == "10.244.0.0/16");
    eventually("probes see that all is well", || async {
        Ok(kube_controllers::for_tests::check(&world.status_file()).1)
    })
    .await?;
    ensure!(running.is_running(), "it keeps running, or it would be restarted");
    running.stop().await?;
    attending.abort();
    Ok(())
}
