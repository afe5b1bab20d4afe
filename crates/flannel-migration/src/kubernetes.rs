//! The Kubernetes part of the migration: labels, DaemonSets, ConfigMaps, draining, and pods that run one script on a
//! node.

use crate::config::FlannelConfig;
use crate::facts::{DrainedPod, NodeFacts, WireNode};
use daemon::Shutdown;
use http::Method;
use kube_access::cluster::{Cluster, ClusterError, Collection, MERGE_PATCH, Page, encode};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const NODES: Collection = Collection { prefix: "/api/v1", plural: "nodes" };
const PODS: Collection = Collection { prefix: "/api/v1", plural: "pods" };
const CONFIG_MAPS: Collection = Collection { prefix: "/api/v1", plural: "configmaps" };
const DAEMONSETS: Collection = Collection { prefix: "/apis/apps/v1", plural: "daemonsets" };

/// How often the progress of slow operations is checked.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause after a disruption budget blocked an eviction.
const EVICTION_PAUSE: Duration = Duration::from_secs(5);
/// How long a script may run, a pod may take to become ready, or a DaemonSet to go.
const PATIENCE: Duration = Duration::from_secs(300);

/// Why a step in Kubernetes failed.
#[derive(Debug, thiserror::Error)]
pub enum KubernetesError {
    /// The API returned an error.
    #[error(transparent)]
    Api(#[from] ClusterError),
    /// It took too long.
    #[error("{what} took longer than {} s", PATIENCE.as_secs())]
    Late {
        /// The operation and its object.
        what: String,
    },
    /// A pod with a script failed.
    #[error("pod {pod} on node {node} failed: {message}")]
    PodFailed {
        /// The pod; it is kept for inspection.
        pod: String,
        /// The node.
        node: String,
        /// The end of its output.
        message: String,
    },
    /// There are several pods where there should be one.
    #[error("node {node} has {count} pods of {label}, and should have one")]
    TooMany {
        /// The node.
        node: String,
        /// The label of the pods.
        label: &'static str,
        /// How many.
        count: usize,
    },
    /// The shutdown was requested.
    #[error("stopped")]
    Stopped,
}

type Result<T> = std::result::Result<T, KubernetesError>;

/// A pod that runs one script on a node and ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errand {
    /// The prefix of its name.
    pub name: &'static str,
    /// The node.
    pub node: String,
    /// A folder of the node, mounted at the same path below `/host`.
    pub folder: String,
    /// The shell script.
    pub script: String,
}

impl Errand {
    /// The pod. It bypasses the scheduler, tolerates every taint, and puts the end of its output into its status, so
    /// that no permission to read logs is needed.
    #[must_use]
    pub fn pod(&self, image: &str) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "generateName": format!("{}-", self.name),
                "labels": {"flannel-migration": self.node},
            },
            "spec": {
                "containers": [{
                    "name": self.name,
                    "image": image,
                    "command": ["/bin/sh"],
                    "args": ["-c", self.script],
                    "volumeMounts": [{"name": "host-dir", "mountPath": format!("/host{}", absolute(&self.folder))}],
                    "securityContext": {"privileged": true},
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                }],
                "tolerations": [{"operator": "Exists"}],
                "hostNetwork": true,
                "nodeName": self.node,
                "restartPolicy": "Never",
                "volumes": [{"name": "host-dir", "hostPath": {"path": self.folder, "type": "Directory"}}],
            },
        })
    }
}

fn absolute(folder: &str) -> String {
    if folder.starts_with('/') { folder.to_owned() } else { format!("/{folder}") }
}

/// Quotes a text as one word of a shell script.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// An errand that reads flannel's own network settings.
#[must_use]
pub fn read_subnet(config: &FlannelConfig) -> Errand {
    Errand {
        name: "read-flannel",
        node: config.own_node.clone(),
        folder: "/run/flannel".to_owned(),
        script: "cat /host/run/flannel/subnet.env > /dev/termination-log".to_owned(),
    }
}

/// An errand that puts a CNI configuration which rejects pods before flannel's, and deletes flannel's devices and with
/// them their routes and neighbours. Does nothing on a node without flannel's tunnel.
#[must_use]
pub fn remove_flannel(config: &FlannelConfig, node: &str, cni_file: &str) -> Errand {
    let refusing = r#"{ "name": "dummy", "plugins": [{ "type": "flannel-migration-in-progress" }]}"#;
    let tunnel = format!("flannel.{}", config.vni);
    let file = quoted(&format!("/host{}/{cni_file}", absolute(&config.cni_directory)));
    // Canal has no bridge.
    let bridge = match config.is_canal() {
        true => "",
        false => "if ip link show cni0 >/dev/null 2>&1; then ip link delete cni0 type bridge || exit 1; fi\n",
    };
    Errand {
        name: "remove-flannel",
        node: node.to_owned(),
        folder: config.cni_directory.clone(),
        script: format!(
            "ip link show {tunnel} >/dev/null 2>&1 || exit 0\nprintf '%s\\n' {} > {file} || exit 1\n{bridge}ip link delete {tunnel}\n",
            quoted(refusing)
        ),
    }
}

/// An errand that waits a short time for Calico's tunnel device.
#[must_use]
pub fn check_tunnel(config: &FlannelConfig, node: &str) -> Errand {
    Errand {
        name: "check-calico",
        node: node.to_owned(),
        folder: config.cni_directory.clone(),
        script: "for attempt in 1 2 3 4 5 6 7 8 9 10; do ip link show vxlan.calico && exit 0; sleep 1; done; exit 1".to_owned(),
    }
}

/// Carries out the migration's steps on Kubernetes' objects.
#[derive(Clone, Debug)]
pub struct KubernetesSide {
    /// The Kubernetes API.
    pub cluster: Cluster,
    /// Ends waiting early.
    pub shutdown: Shutdown,
}

impl KubernetesSide {
    /// Lists all nodes.
    ///
    /// # Errors
    /// When the API returns an error.
    pub async fn nodes(&self) -> Result<Vec<NodeFacts>> {
        let mut nodes = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let page: Page<WireNode> = self.cluster.page(NODES, token.as_deref()).await?;
            token = page.next().map(str::to_owned);
            nodes.extend(page.items.into_iter().map(NodeFacts::from));
            if token.is_none() {
                return Ok(nodes);
            }
        }
    }

    /// Reads a node; `None` if it does not exist.
    ///
    /// # Errors
    /// When the API returns an error.
    pub async fn node(&self, name: &str) -> Result<Option<NodeFacts>> {
        let found = self.cluster.get::<WireNode>(&format!("read node {name}"), &NODES.object("", name)).await;
        Ok(existing(found)?.map(NodeFacts::from))
    }

    /// Sets a label of a node, or removes it.
    ///
    /// # Errors
    /// When the API returns an error.
    pub async fn label(&self, node: &str, label: &str, value: Option<&str>) -> Result<()> {
        let patch = json!({"metadata": {"labels": {label: value}}});
        self.patch_node(&format!("label node {node}"), node, &patch).await
    }

    /// Keeps new pods away from a node, or allows them again.
    ///
    /// # Errors
    /// When the API returns an error.
    pub async fn cordon(&self, node: &str, cordoned: bool) -> Result<()> {
        let what = format!("{} node {node}", if cordoned { "cordon" } else { "uncordon" });
        // Kubernetes omits the field when it is false.
        let value = if cordoned { json!(true) } else { Value::Null };
        self.patch_node(&what, node, &json!({"spec": {"unschedulable": value}})).await
    }

    async fn patch_node(&self, what: &str, node: &str, patch: &Value) -> Result<()> {
        let path = NODES.object("", node);
        let _: Value = self.cluster.send(what, Method::PATCH, &path, patch, MERGE_PATCH).await?;
        Ok(())
    }

    /// Reads a DaemonSet; `None` if it does not exist.
    ///
    /// # Errors
    /// When the API returns an error.
    pub async fn daemonset(&self, namespace: &str, name: &str) -> Result<Option<Value>> {
        let path = DAEMONSETS.object(namespace, name);
        existing(self.cluster.get(&format!("read DaemonSet {namespace}/{name}"), &path).await)
    }

    /// Adds an entry to a DaemonSet's node selector, or removes it if it has this value.
    ///
    /// # Errors
    /// When the API returns an error.
    pub async fn select_nodes(
        &self,
        namespace: &str,
        name: &str,
        label: &str,
        value: &str,
        wanted: bool,
    ) -> Result<()> {
        loop {
            let Some(mut set) = self.daemonset(namespace, name).await? else { return Ok(()) };
            let selector = &mut set["spec"]["template"]["spec"]["nodeSelector"];
            if (selector[label] == value) == wanted {
                return Ok(());
            }
            match (wanted, selector.as_object_mut()) {
                (true, Some(entries)) => drop(entries.insert(label.to_owned(), json!(value))),
                (true, None) => *selector = json!({label: value}),
                (false, Some(entries)) => drop(entries.remove(label)),
                (false, None) => return Ok(()),
            }
            let what = format!("change the node selector of DaemonSet {namespace}/{name}");
            let written: std::result::Result<Value, ClusterError> =
                self.cluster.replace(&what, &DAEMONSETS.object(namespace, name), &set).await;
            match written {
                Err(error) if error.is_conflict() => self.sleep(PAUSE).await?,
                written => return written.map(drop).map_err(Into::into),
            }
        }
    }

    /// Deletes a DaemonSet and its pods, and waits until it is gone.
    ///
    /// # Errors
    /// [`KubernetesError::Late`] after five minutes.
    pub async fn delete_daemonset(&self, namespace: &str, name: &str) -> Result<()> {
        let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"});
        let what = format!("delete DaemonSet {namespace}/{name}");
        let path = DAEMONSETS.object(namespace, name);
        let deleted: std::result::Result<Value, ClusterError> =
            self.cluster.send(&what, Method::DELETE, &path, &body, "application/json").await;
        existing(deleted)?;
        let start = Instant::now();
        while self.daemonset(namespace, name).await?.is_some() {
            self.wait(start, || format!("the deletion of DaemonSet {namespace}/{name}")).await?;
        }
        Ok(())
    }

    /// Sets a value of a ConfigMap.
    ///
    /// # Errors
    /// When the API returns an error, or the ConfigMap does not exist.
    pub async fn set_config(&self, namespace: &str, name: &str, key: &str, value: &str) -> Result<()> {
        let path = CONFIG_MAPS.object(namespace, name);
        loop {
            let what = format!("read ConfigMap {namespace}/{name}");
            let mut map: Value = self.cluster.get(&what, &path).await?;
            if map["data"][key] == value {
                return Ok(());
            }
            map["data"][key] = json!(value);
            let what = format!("write {key} of ConfigMap {namespace}/{name}");
            let written: std::result::Result<Value, ClusterError> =
                self.cluster.replace(&what, &path, &map).await;
            match written {
                Err(error) if error.is_conflict() => self.sleep(PAUSE).await?,
                written => return written.map(drop).map_err(Into::into),
            }
        }
    }

    async fn pods_on(&self, node: &str, path: &str, selector: &str) -> Result<Vec<DrainedPod>> {
        let field = encode(&format!("spec.nodeName={node}"));
        let path = format!("{path}?fieldSelector={field}{selector}");
        let page: Page<DrainedPod> = self.cluster.get(&format!("list pods on node {node}"), &path).await?;
        Ok(page.items)
    }

    /// Evicts all pods from a node except those of DaemonSets, and waits until they are gone. Disruption budgets are
    /// respected for as long as they block an eviction.
    ///
    /// # Errors
    /// When the API returns an error; [`KubernetesError::Stopped`] on shutdown.
    pub async fn drain(&self, node: &str) -> Result<()> {
        let leaving = |pods: Vec<DrainedPod>| pods.into_iter().filter(DrainedPod::leaves).collect::<Vec<_>>();
        loop {
            let pods = leaving(self.pods_on(node, &PODS.path(), "").await?);
            if pods.is_empty() {
                return Ok(());
            }
            tracing::info!(node, pods = pods.len(), "draining");
            let mut pause = PAUSE;
            for pod in &pods {
                if !self.evict(pod).await? {
                    pause = EVICTION_PAUSE;
                }
            }
            self.sleep(pause).await?;
        }
    }

    /// Evicts a pod. Returns false if a disruption budget blocks this for now.
    async fn evict(&self, pod: &DrainedPod) -> Result<bool> {
        let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
        let body = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
            "deleteOptions": {"preconditions": {"uid": pod.metadata.uid}},
        });
        let path = format!("{}/eviction", PODS.object(namespace, name));
        let outcome: std::result::Result<Value, ClusterError> =
            self.cluster.create(&format!("evict pod {namespace}/{name}"), &path, &body).await;
        match outcome {
            Ok(_) => Ok(true),
            // The pod is gone, or another pod has its name.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(true),
            Err(ClusterError::Refused { code: 429, message, .. }) => {
                tracing::info!(pod = format!("{namespace}/{name}"), message, "a pod cannot be evicted yet");
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes the pods on a node that have their own network.
    ///
    /// # Errors
    /// When the API returns an error.
    pub async fn delete_networked_pods(&self, node: &str) -> Result<()> {
        for pod in self.pods_on(node, &PODS.path(), "").await? {
            if pod.has_own_network() {
                self.delete_pod(&pod.metadata.namespace, &pod.metadata.name).await?;
            }
        }
        Ok(())
    }

    async fn delete_pod(&self, namespace: &str, name: &str) -> Result<()> {
        let body = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
        let what = format!("delete pod {namespace}/{name}");
        let path = PODS.object(namespace, name);
        let deleted: std::result::Result<Value, ClusterError> =
            self.cluster.send(&what, Method::DELETE, &path, &body, "application/json").await;
        existing(deleted).map(drop)
    }

    /// Waits until calico-node is ready on a node.
    ///
    /// # Errors
    /// [`KubernetesError::Late`] after five minutes.
    pub async fn wait_for_calico(&self, namespace: &str, node: &str) -> Result<()> {
        const LABEL: &str = "k8s-app=calico-node";
        let path = format!("/api/v1/namespaces/{}/pods", encode(namespace));
        let start = Instant::now();
        loop {
            let selector = format!("&labelSelector={}", encode(LABEL));
            let pods = self.pods_on(node, &path, &selector).await?;
            match pods.as_slice() {
                [pod] if pod.is_ready() => return Ok(()),
                [] | [_] => {}
                pods => {
                    return Err(KubernetesError::TooMany {
                        node: node.to_owned(),
                        label: LABEL,
                        count: pods.len(),
                    });
                }
            }
            self.wait(start, || format!("the start of calico-node on node {node}")).await?;
        }
    }

    /// Runs an errand on a node to its end. Returns the end of its output. A failed pod is kept.
    ///
    /// # Errors
    /// [`KubernetesError::PodFailed`] with the end of its output.
    pub async fn run(&self, errand: &Errand, namespace: &str, image: &str) -> Result<String> {
        let what = format!("create pod {} on node {}", errand.name, errand.node);
        let path = format!("/api/v1/namespaces/{}/pods", encode(namespace));
        let made: Value = self.cluster.create(&what, &path, &errand.pod(image)).await?;
        let name = made["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let start = Instant::now();
        loop {
            let what = format!("read pod {namespace}/{name}");
            let pod: Value = self.cluster.get(&what, &PODS.object(namespace, &name)).await?;
            let words = last_words(&pod);
            match pod["status"]["phase"].as_str() {
                Some("Succeeded") => {
                    self.delete_pod(namespace, &name).await?;
                    return Ok(words);
                }
                Some("Failed") => {
                    let node = errand.node.clone();
                    return Err(KubernetesError::PodFailed { pod: name, node, message: words });
                }
                _ => self.wait(start, || format!("pod {name} on node {}", errand.node)).await?,
            }
        }
    }

    /// Sleeps, unless the shutdown is requested.
    ///
    /// # Errors
    /// [`KubernetesError::Stopped`].
    pub async fn sleep(&self, time: Duration) -> Result<()> {
        if self.shutdown.sleep(time).await { Ok(()) } else { Err(KubernetesError::Stopped) }
    }

    async fn wait(&self, start: Instant, what: impl Fn() -> String) -> Result<()> {
        if start.elapsed() > PATIENCE {
            return Err(KubernetesError::Late { what: what() });
        }
        self.sleep(PAUSE).await
    }
}

fn last_words(pod: &Value) -> String {
    let terminated = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    let words = [&terminated["message"], &pod["status"]["message"], &terminated["reason"]];
    words.into_iter().find_map(Value::as_str).unwrap_or_default().to_owned()
}

/// Turns "not found" into `None`.
fn existing<T>(outcome: std::result::Result<T, ClusterError>) -> Result<Option<T>> {
    match outcome {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use daemon::Variables;

    fn config() -> FlannelConfig {
        FlannelConfig::read(&Variables::new([("POD_NODE_NAME", "own")])).expect("settings")
    }

    #[test]
    fn flannel_is_removed_with_its_bridge_but_canal_has_none() {
        let mut config = config();
        let errand = remove_flannel(&config, "n1", "10-calico.conflist");
        assert!(errand.script.contains("ip link delete cni0 type bridge"));
        assert!(errand.script.contains("> '/host/etc/cni/net.d/10-calico.conflist' || exit 1"));
        assert!(errand.script.trim_end().ends_with("ip link delete flannel.1"));
        config.variables.flannel_daemonset = "canal".to_owned();
        assert!(!remove_flannel(&config, "n1", "x").script.contains("cni0"));
        assert!(remove_flannel(&config, "n1", "a'b").script.contains(r"/a'\''b"));
    }

    #[test]
    fn errands_bypass_the_scheduler() {
        let pod = check_tunnel(&config(), "n1").pod("calico/node:v3");
        assert_eq!(pod["spec"]["nodeName"], "n1");
        assert_eq!(pod["spec"]["containers"][0]["volumeMounts"][0]["mountPath"], "/host/etc/cni/net.d");
        assert_eq!(pod["metadata"]["generateName"], "check-calico-");
        assert_eq!(read_subnet(&config()).node, "own");
    }

    #[test]
    fn last_words_are_the_most_telling_ones() {
        let pod = |terminated: Value| json!({"status": {"message": "evicted", "containerStatuses": [{"state": {"terminated": terminated}}]}});
        assert_eq!(last_words(&pod(json!({"message": "no device", "reason": "Error"}))), "no device");
        assert_eq!(last_words(&pod(json!({"reason": "Error"}))), "evicted");
        assert_eq!(last_words(&json!({})), "");
    }
}
