//! Volumes that connect a pod to Felix: the CSI driver and its registrar as in Calico's csi-driver.yaml, the FlexVolume
//! driver as in Calico's node, and a pod on each node with a volume of either kind. Felix opens a socket in both.

use crate::bed::{Bed, items, name};
use crate::images::BUSYBOX;
use crate::manifest::{REGISTRY, TAG};
use crate::waiting::until;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// The namespace of the drivers, as in Calico's manifest, and of pods with volumes here.
const SYSTEM: &str = "calico-system";
const PODS: &str = "e2e-volumes";
const DRIVER: &str = "csi.tigera.io";
const DAEMON_SET: &str = "csi-node-driver";
/// Where kubelets look for FlexVolume drivers.
const PLUGINS: &str = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/nodeagent~uds";

pub(super) fn run(bed: &mut Bed) -> Result<String> {
    serve_sockets(bed)?;
    bed.apply(&[namespace(SYSTEM), namespace(PODS), csi_driver(), daemon_set()])?;
    let installers: Vec<Value> = bed.nodes.iter().map(|node| installer(&node.name)).collect();
    bed.apply(&installers)?;
    bed.settled_sets(SYSTEM)?;
    registered(bed, true)?;
    until("the FlexVolume driver to be in place", || -> Result<()> {
        for node in &bed.nodes {
            let pod = bed.plane.get(&["pod", "-n", SYSTEM, &installer_name(&node.name)])?;
            ensure!(pod["status"]["phase"] == "Succeeded", "{}: {}", node.name, pod["status"]);
        }
        Ok(())
    })?;
    let names: Vec<String> = bed.nodes.iter().map(|node| node.name.clone()).collect();
    let pods: Vec<Value> = names.iter().enumerate().map(|(index, node)| pod(node, index > 0)).collect();
    bed.apply(&pods)?;
    for node in &names {
        sockets(bed, node)?;
    }
    // Drivers that are killed and restarted find what they created.
    bed.plane.kubectl(&[
        "delete",
        "pods",
        "-n",
        SYSTEM,
        "-l",
        "name=csi-node-driver",
        "--grace-period=0",
        "--force",
    ])?;
    bed.settled_sets(SYSTEM)?;
    registered(bed, true)?;
    for node in &names {
        sockets(bed, node)?;
    }
    bed.remove(&[PODS])?;
    for node in &bed.nodes {
        until(&format!("volumes to be gone from {}", node.name), || -> Result<()> {
            let table = node.machine.must("cat", &["/proc/self/mountinfo"])?;
            let left = table
                .lines()
                .find(|line| line.contains("kubernetes.io~csi") || line.contains("nodeagent~uds"));
            ensure!(left.is_none(), "{left:?}");
            let files = node.machine.must("find", &["/run/nodeagent", "-mindepth", "2"])?;
            ensure!(files.is_empty(), "{files}");
            Ok(())
        })?;
    }
    bed.plane.kubectl(&["delete", "daemonset", "-n", SYSTEM, DAEMON_SET, "--timeout=100s"])?;
    registered(bed, false)?;
    bed.plane.kubectl(&["delete", "csidriver", DRIVER])?;
    bed.remove(&[SYSTEM])?;
    Ok(format!("{} pods with a volume of either kind", names.len()))
}

/// Makes Felix open sockets; its other settings are kept.
fn serve_sockets(bed: &Bed) -> Result<()> {
    let kind = bed.kind("felixconfigurations")?;
    let spec = json!({"policySyncPathPrefix": "/var/run/nodeagent"});
    let patch = json!({"spec": spec}).to_string();
    if bed.plane.kubectl(&["patch", &kind, "default", "--type=merge", "-p", &patch]).is_ok() {
        return Ok(());
    }
    let group = if kind.contains(".crd.") { "crd.projectcalico.org/v1" } else { "projectcalico.org/v3" };
    bed.apply(&[json!({"apiVersion": group, "kind": "FelixConfiguration", "metadata": {"name": "default"}, "spec": spec})])
}

/// Waits until every kubelet knows the driver, or none does.
fn registered(bed: &Bed, wanted: bool) -> Result<()> {
    until("kubelets to take the driver", || -> Result<()> {
        let nodes = bed.plane.get(&["csinodes"])?;
        ensure!(items(&nodes).len() == bed.nodes.len(), "{} kubelets speak of drivers", items(&nodes).len());
        for node in items(&nodes) {
            let mut drivers = node["spec"]["drivers"].as_array().into_iter().flatten();
            let found = drivers.find(|driver| driver["name"] == DRIVER);
            ensure!(found.is_some() == wanted, "{}: {}", name(node), node["spec"]);
            if let Some(driver) = found {
                ensure!(driver["nodeID"] == node["metadata"]["name"], "{driver}");
            }
        }
        Ok(())
    })
}

/// Waits until a pod that is not root finds a socket in both volumes, and may write to it.
fn sockets(bed: &Bed, node: &str) -> Result<()> {
    let script = "test -S /csi/nodeagent/socket && test -w /csi/nodeagent/socket && test -S /flex/nodeagent/socket && \
                  ! echo x >/csi/file && id -u";
    until(&format!("sockets in the volumes of the pod on {node}"), || -> Result<()> {
        let said = bed.plane.kubectl(&["exec", "-n", PODS, node, "--", "sh", "-c", script]);
        let said = said.with_context(|| {
            bed.plane.kubectl(&["get", "pod", "-n", PODS, node, "-o", "wide"]).unwrap_or_default()
        })?;
        ensure!(said.trim() == "1000", "{said}");
        Ok(())
    })
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn csi_driver() -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER},
        "spec": {"podInfoOnMount": true, "volumeLifecycleModes": ["Ephemeral"]}})
}

/// Like Calico's manifests up to v3.32: images with their own entry points, and only arguments.
fn daemon_set() -> Value {
    let node = json!({"name": "KUBE_NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}});
    let socket = json!({"name": "socket-dir", "mountPath": "/csi"});
    let path =
        |name: &str, path: &str, kind: &str| json!({"name": name, "hostPath": {"path": path, "type": kind}});
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": DAEMON_SET, "namespace": SYSTEM},
        "spec": {"selector": {"matchLabels": {"name": DAEMON_SET}}, "template": {
            "metadata": {"labels": {"name": DAEMON_SET}},
            "spec": {
                "containers": [
                    {"name": "calico-csi", "image": format!("{REGISTRY}/csi:{TAG}"), "imagePullPolicy": "Never",
                        "args": ["--nodeid=$(KUBE_NODE_NAME)", "--loglevel=$(LOG_LEVEL)"],
                        "securityContext": {"privileged": true},
                        "env": [{"name": "LOG_LEVEL", "value": "info"}, node],
                        "volumeMounts": [
                            {"name": "varrun", "mountPath": "/var/run"},
                            {"name": "etccalico", "mountPath": "/etc/calico"},
                            socket,
                            {"name": "kubelet-dir", "mountPath": "/var/lib/kubelet/", "mountPropagation": "Bidirectional"}]},
                    {"name": "csi-node-driver-registrar", "image": format!("{REGISTRY}/node-driver-registrar:{TAG}"),
                        "imagePullPolicy": "Never",
                        "args": ["--v=5", "--csi-address=$(ADDRESS)", "--kubelet-registration-path=$(DRIVER_REG_SOCK_PATH)"],
                        "securityContext": {"privileged": true},
                        "env": [
                            {"name": "ADDRESS", "value": "/csi/csi.sock"},
                            {"name": "DRIVER_REG_SOCK_PATH", "value": format!("/var/lib/kubelet/plugins/{DRIVER}/csi.sock")},
                            node],
                        "volumeMounts": [socket, {"name": "registration-dir", "mountPath": "/registration"}]}],
                "volumes": [
                    path("varrun", "/var/run", ""),
                    path("etccalico", "/etc/calico", ""),
                    path("kubelet-dir", "/var/lib/kubelet", "Directory"),
                    path("socket-dir", &format!("/var/lib/kubelet/plugins/{DRIVER}/"), "DirectoryOrCreate"),
                    path("registration-dir", "/var/lib/kubelet/plugins_registry/", "Directory")]}}}})
}

fn installer_name(node: &str) -> String {
    format!("flexvol-driver-{node}")
}

/// Like the init container of Calico's node.
fn installer(node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": installer_name(node), "namespace": SYSTEM},
        "spec": {"nodeName": node, "restartPolicy": "Never", "hostNetwork": true,
            "containers": [{"name": "flexvol-driver", "image": format!("{REGISTRY}/pod2daemon-flexvol:{TAG}"),
                "imagePullPolicy": "Never", "securityContext": {"privileged": true},
                "volumeMounts": [{"name": "flexvol-driver-host", "mountPath": "/host/driver"}]}],
            "volumes": [{"name": "flexvol-driver-host", "hostPath": {"path": PLUGINS, "type": "DirectoryOrCreate"}}]}})
}

fn pod(node: &str, is_read_only: bool) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": node, "namespace": PODS},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
            "securityContext": {"runAsUser": 1000},
            "containers": [{"name": "it", "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sleep", "2147483647"],
                "volumeMounts": [{"name": "csi", "mountPath": "/csi"}, {"name": "flex", "mountPath": "/flex"}]}],
            "volumes": [
                {"name": "csi", "csi": {"driver": DRIVER, "readOnly": is_read_only}},
                {"name": "flex", "flexVolume": {"driver": "nodeagent/uds"}}]}})
}
