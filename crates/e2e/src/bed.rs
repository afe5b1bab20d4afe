//! The complete test bed: a control plane, two nodes, and what is installed on them. Dropping it removes everything.

use crate::chart;
use crate::control_plane::{ControlPlane, PORT};
use crate::dns;
use crate::images;
use crate::manifest::with_images;
use crate::node::{Node, PAUSE};
use crate::settings::{Proxy, Settings};
use crate::waiting::until;
use crate::wires;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::Folder;

/// The number of nodes.
const NODES: usize = 2;

/// A cluster. Nodes stop before the control plane, and both before their folder is removed.
#[derive(Debug)]
pub(crate) struct Bed {
    pub(crate) nodes: Vec<Node>,
    pub(crate) plane: ControlPlane,
    /// Our program.
    pub(crate) program: PathBuf,
    folder: Folder,
}

impl Bed {
    /// Starts everything; nodes are not ready, because no network is installed. `more` contains further image archives.
    pub(crate) fn start(settings: &Settings, more: &[(&str, Vec<u8>)]) -> Result<Self> {
        let id = format!("te{}", std::process::id());
        let folder = Folder::new("e2e")?;
        let plane_folder = folder.path().join("control-plane");
        std::fs::create_dir_all(&plane_folder)?;
        let plane = ControlPlane::start(
            wires::control_plane(&id, settings.families)?,
            &plane_folder,
            settings.families,
        )?;
        let mut archives = vec![settings.images.clone()];
        let helpers = [("helpers", images::helpers(PAUSE)?), ("name-server", images::name_server()?)];
        for (name, bytes) in helpers.iter().chain(more) {
            let path = folder.path().join(format!("{name}.tar"));
            std::fs::write(&path, bytes)?;
            archives.push(path);
        }
        let archives: Vec<&Path> = archives.iter().map(PathBuf::as_path).collect();
        let mut bed = Self { nodes: Vec::new(), plane, program: settings.program.clone(), folder };
        for number in 1..=NODES {
            bed.nodes.push(Node::start(&id, number, &bed.plane, bed.folder.path(), &archives, settings)?);
        }
        Ok(bed)
    }

    /// The folder with the logs.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Applies the manifest, and waits until nodes and components are ready. Returns how long that took.
    pub(crate) fn install(&mut self, settings: &Settings) -> Result<Took> {
        until("nodes to register", || -> Result<()> {
            self.check_running()?;
            let nodes = self.plane.get(&["nodes"])?;
            ensure!(items(&nodes).len() == NODES, "{} nodes are known", items(&nodes).len());
            Ok(())
        })?;
        let manifest = manifest(settings)?;
        if has_foreign_routes(&manifest) {
            self.foreign_routes()?;
        }
        until("the namespace kube-system", || {
            self.apply(&dns::objects(&self.plane.families.name_server()))?;
            if settings.proxy == Proxy::None { self.apply(&[api_address(&self.plane)]) } else { Ok(()) }
        })?;
        let start = Instant::now();
        if settings.chart.is_some() {
            chart::install(self)?;
        } else {
            // Definitions first: objects of their kinds may follow in the same file.
            self.plane.kubectl_with_input(
                &["apply", "--server-side", "--force-conflicts", "-f", "-"],
                &with_images(&manifest, settings.source),
            )?;
        }
        if settings.proxy == Proxy::None {
            self.services_by_bpf()?;
        }
        until("nodes to be ready", || -> Result<()> {
            self.check_running()?;
            let nodes = self.plane.get(&["nodes"])?;
            for node in items(&nodes) {
                ensure!(is_true(node, "Ready"), "{} is not ready", name(node));
            }
            Ok(())
        })?;
        let nodes = start.elapsed();
        self.settled("kube-system")?;
        Ok(Took { nodes, everything: start.elapsed() })
    }

    /// Enables the eBPF dataplane, like users of Calico.
    fn services_by_bpf(&self) -> Result<()> {
        until("the definition of FelixConfiguration", || {
            let kind = self.kind("felixconfigurations")?;
            let version =
                if kind.contains(".crd.") { "crd.projectcalico.org/v1" } else { "projectcalico.org/v3" };
            self.apply(&[json!({"apiVersion": version, "kind": "FelixConfiguration",
                "metadata": {"name": "default"}, "spec": {"bpfEnabled": true}})])
        })
    }

    /// The other half of a network whose manifest contains policy only: routes to every node's pod range, on nodes as
    /// flannel adds them, and on the control plane's machine as a cloud does.
    fn foreign_routes(&self) -> Result<()> {
        until("ranges of nodes", || -> Result<()> {
            let nodes = self.plane.get(&["nodes"])?;
            for (index, node) in self.nodes.iter().enumerate() {
                let object = items(&nodes).iter().find(|object| name(object) == node.name);
                let ranges = object.and_then(|object| object["spec"]["podCIDRs"].as_array());
                let ranges =
                    ranges.with_context(|| format!("{} has no range of pod addresses", node.name))?;
                for (range, address) in ranges.iter().zip(self.plane.families.node(index + 1)) {
                    let line = format!("route replace {} via {address}", range.as_str().unwrap_or_default());
                    self.plane.namespace().batch(&line)?;
                    for other in self.nodes.iter().filter(|other| other.name != node.name) {
                        other.machine.must("ip", &line.split(' ').collect::<Vec<_>>())?;
                    }
                }
            }
            Ok(())
        })
    }

    /// Routes from the control plane's machine to pods with their own network, since a cluster's API server must reach
    /// those that it calls.
    pub(crate) fn lead_to_pods(&self) -> Result<()> {
        for pod in items(&self.plane.get(&["pods", "-A"])?) {
            let (address, node) = (&pod["status"]["podIP"], &pod["status"]["hostIP"]);
            if let (Some(address), Some(node)) = (address.as_str(), node.as_str())
                && address != node
            {
                self.plane.namespace().batch(&format!("route replace {address} via {node}"))?;
            }
        }
        Ok(())
    }

    /// Routes from the control plane's machine to the pod ranges through the first node, as if it were a node itself:
    /// the API server forwards requests to pods.
    pub(crate) fn lead_to_ranges(&self) -> Result<()> {
        let families = self.plane.families;
        for (range, router) in families.pod_ranges().split(',').zip(families.node(1)) {
            self.plane.namespace().batch(&format!("route replace {range} via {router}"))?;
        }
        Ok(())
    }

    /// Disables IP in IP on pools if this machine's kernel lacks it: nodes are neighbours, so they then route without a
    /// tunnel. Returns whether anything was changed.
    pub(crate) fn without_missing_tunnels(&self) -> Result<bool> {
        let node = &self.nodes[0].machine;
        let made = node.run("ip", &["link", "add", "e2e-probe", "type", "ipip", "local", "10.88.0.11"])?;
        if made.status.success() {
            node.must("ip", &["link", "del", "e2e-probe"])?;
            return Ok(false);
        }
        let mut is_changed = false;
        let kind = self.kind("ippools")?;
        for pool in items(&self.plane.get(&[&kind])?) {
            if pool["spec"]["ipipMode"].as_str().is_some_and(|mode| mode != "Never") {
                let words = ["patch", kind.as_str(), name(pool), "--type=merge", "-p"];
                let patch = r#"{"spec":{"ipipMode":"Never"}}"#;
                self.plane.kubectl(&[words.as_slice(), &[patch]].concat())?;
                is_changed = true;
            }
        }
        Ok(is_changed)
    }

    /// A kind of Calico's with the group that stores it: custom resources of the old group, or of the new one.
    pub(crate) fn kind(&self, resource: &str) -> Result<String> {
        let known = self.plane.kubectl(&["get", "customresourcedefinitions", "-o", "name"])?;
        let old = format!("{resource}.crd.projectcalico.org");
        Ok(if known.contains(&old) { old } else { format!("{resource}.projectcalico.org") })
    }

    /// Waits until every pod of a namespace is ready, and every controller has created its pods.
    pub(crate) fn settled(&mut self, namespace: &str) -> Result<()> {
        self.settled_sets(namespace)?;
        until(&format!("pods of {namespace} to be ready"), || -> Result<()> {
            self.check_running()?;
            for pod in items(&self.plane.get(&["pods", "-n", namespace])?) {
                ensure!(is_true(pod, "Ready"), "pod {} is not ready", name(pod));
            }
            Ok(())
        })
    }

    /// Waits until every controller in a namespace has created its pods, and they are ready.
    pub(crate) fn settled_sets(&mut self, namespace: &str) -> Result<()> {
        until(&format!("what makes pods in {namespace}"), || -> Result<()> {
            self.check_running()?;
            for owner in items(&self.plane.get(&["daemonsets,deployments", "-n", namespace])?) {
                let status = &owner["status"];
                let (wanted, ready) = if owner["kind"] == "DaemonSet" {
                    (&status["desiredNumberScheduled"], &status["numberReady"])
                } else {
                    (&owner["spec"]["replicas"], &status["readyReplicas"])
                };
                let observed = status["observedGeneration"] == owner["metadata"]["generation"];
                ensure!(
                    observed && wanted.as_u64() > Some(0) && wanted == ready,
                    "{}: {status}",
                    name(owner)
                );
            }
            Ok(())
        })
    }

    /// Checks that every program of the bed is still running.
    pub(crate) fn check_running(&mut self) -> Result<()> {
        self.plane.check_running()?;
        self.nodes.iter_mut().try_for_each(Node::check_running)
    }

    /// Saves everything that helps to understand a failure, in a folder that is kept.
    pub(crate) fn keep_logs(&self, to: &Path) -> Result<()> {
        let _ = std::fs::remove_dir_all(to);
        std::fs::create_dir_all(to)?;
        for folder in std::fs::read_dir(self.folder())?.flatten().filter(|entry| entry.path().is_dir()) {
            let target = to.join(folder.file_name());
            std::fs::create_dir_all(&target)?;
            for file in std::fs::read_dir(folder.path())?.flatten() {
                if file.path().extension().is_some_and(|extension| extension == "log") {
                    std::fs::copy(file.path(), target.join(file.file_name()))?;
                }
            }
        }
        for node in &self.nodes {
            // Containers' own output: one folder per pod.
            let pods = node.machine.run("tar", &["-c", "-h", "-C", "/var/log", "pods"])?;
            std::fs::write(to.join(&node.name).join("pods.tar"), pods.stdout)?;
        }
        for (file, words) in [
            ("pods.txt", ["get", "pods", "-A", "-o", "wide"].as_slice()),
            ("described.txt", &["describe", "pods", "-A"]),
            ("nodes.txt", &["describe", "nodes"]),
            ("events.txt", &["get", "events", "-A", "--sort-by=.lastTimestamp"]),
        ] {
            std::fs::write(to.join(file), self.plane.try_kubectl(words, "")?.stdout)?;
        }
        Ok(())
    }
}

/// How long an installation took, from apply on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Took {
    /// Until all nodes were ready.
    pub(crate) nodes: Duration,
    /// Until everything in `kube-system` was.
    pub(crate) everything: Duration,
}

/// The API's address without services, in the form that Calico's manifests use.
fn api_address(plane: &ControlPlane) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "kubernetes-services-endpoint", "namespace": "kube-system"},
        "data": {"KUBERNETES_SERVICE_HOST": plane.families.api().to_string(), "KUBERNETES_SERVICE_PORT": PORT.to_string()}})
}

/// The manifest to install: the user's, or ours.
fn manifest(settings: &Settings) -> Result<String> {
    if let Some(path) = &settings.manifest {
        return std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()));
    }
    let mut command = Command::new(&settings.program);
    command.args(["manifests", "--like", &settings.like]);
    for setting in settings.families.settings().iter().chain(&settings.chosen) {
        command.args(["--set", setting]);
    }
    let output = command.output()?;
    ensure!(output.status.success(), "tortie manifests: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// Whether pods' addresses come from the node ranges, so that routes must be added by other means.
fn has_foreign_routes(manifest: &str) -> bool {
    manifest.contains("usePodCidr")
}

pub(crate) fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

pub(crate) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Whether the object has this condition and it is true.
pub(crate) fn is_true(object: &Value, condition: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|it| it["type"] == condition && it["status"] == "True")
}
