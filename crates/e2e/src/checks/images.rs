//! Images as manifests start them: with arguments only, not as root, in an empty root, resolving names with
//! `/etc/hosts` and DNS.

use crate::bed::{Bed, items};
use crate::control_plane::SERVER_NAME;
use crate::manifest::{REGISTRY, TAG};
use crate::names::NameServer;
use crate::waiting::until;
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

const NAMESPACE: &str = "kube-system";

/// A pod that runs to its end.
struct Once {
    name: &'static str,
    image: &'static str,
    arguments: Vec<&'static str>,
    environment: Vec<(&'static str, &'static str)>,
    /// Further fields of its specification.
    more: Value,
}

/// Runs one pod of each kind, and checks their output.
pub(super) fn run(bed: &mut Bed) -> Result<String> {
    let address = bed.plane.families.api();
    let server = NameServer::start(bed.plane.namespace(), address, SERVER_NAME)?;
    let address = address.to_string();
    let api = [
        ("KUBERNETES_SERVICE_HOST", SERVER_NAME),
        ("KUBERNETES_SERVICE_PORT", "6443"),
        ("DATASTORE_TYPE", "kubernetes"),
    ];
    let pods = [
        Once {
            name: "by-hosts",
            image: "ctl",
            arguments: vec!["get", "nodes"],
            environment: api.to_vec(),
            more: json!({"hostAliases": [{"ip": address, "hostnames": [SERVER_NAME]}]}),
        },
        Once {
            name: "by-dns",
            image: "ctl",
            arguments: vec!["get", "nodes"],
            environment: api.to_vec(),
            more: json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": [address]}}),
        },
        Once {
            name: "tree",
            image: "calico",
            arguments: vec!["ctl", "get", "nodes"],
            environment: api[2..].to_vec(),
            more: json!({}),
        },
        Once {
            name: "old-name",
            image: "ctl",
            arguments: vec!["version", "--poll=1m"],
            environment: api[2..].to_vec(),
            more: json!({}),
        },
    ];
    let pods: &[Once] = &pods;
    let account = account(bed)?;
    // The last one polls forever: it is only started.
    for pod in &pods[..3] {
        let said = once(bed, pod, &account)?;
        for node in &bed.nodes {
            ensure!(said.contains(&node.name), "{} did not list {}: {said}", pod.name, node.name);
        }
    }
    ensure!(server.questions() > 0, "the name server received no query");
    // Images that no manifest here starts under their own name.
    let silent = [
        ("old-apiserver", "apiserver"),
        ("old-webhooks", "webhooks"),
        ("old-key-cert", "key-cert-provisioner"),
    ];
    for (name, image) in silent {
        let pod = Once { name, image, arguments: vec!["--help"], environment: Vec::new(), more: json!({}) };
        let said = once(bed, &pod, &account)?;
        ensure!(said.contains("Usage: "), "{name} said: {said}");
    }
    bed.apply(&[manifest(&pods[3], &account)])?;
    let said = until("the version to be printed", || {
        let said = bed.plane.kubectl(&["logs", "-n", NAMESPACE, pods[3].name])?;
        ensure!(said.contains("Client Version"), "it said: {said}");
        Ok(said)
    });
    remove(bed, pods[3].name)?;
    said?;
    Ok(format!("{} pods", pods.len() + silent.len()))
}

/// The account of the node's pods, whose name depends on the manifest.
fn account(bed: &Bed) -> Result<String> {
    let sets = bed.plane.get(&["daemonsets", "-n", NAMESPACE])?;
    let account =
        items(&sets).iter().find_map(|set| set["spec"]["template"]["spec"]["serviceAccountName"].as_str());
    account.map(str::to_owned).context("no daemon set has an account")
}

fn manifest(pod: &Once, account: &str) -> Value {
    let environment: Vec<Value> =
        pod.environment.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    let mut object = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod.name, "namespace": NAMESPACE},
        "spec": {
            "restartPolicy": "Never", "serviceAccountName": account, "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "it", "image": format!("{REGISTRY}/{}:{TAG}", pod.image), "imagePullPolicy": "Never",
                "args": pod.arguments, "env": environment,
                "securityContext": {
                    "runAsNonRoot": true, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
                },
            }],
        },
    });
    if let (Some(spec), Some(more)) = (object["spec"].as_object_mut(), pod.more.as_object()) {
        spec.extend(more.clone());
    }
    object
}

/// Runs a pod to its end, which must be successful; returns its log.
fn once(bed: &Bed, pod: &Once, account: &str) -> Result<String> {
    bed.apply(&[manifest(pod, account)])?;
    let outcome = until(&format!("pod {} to end", pod.name), || {
        let object = bed.plane.get(&["pod", "-n", NAMESPACE, pod.name])?;
        let phase = object["status"]["phase"].as_str().unwrap_or_default().to_owned();
        ensure!(phase == "Succeeded" || phase == "Failed", "it is {phase}: {}", object["status"]);
        Ok(phase)
    });
    let said = bed.plane.kubectl(&["logs", "-n", NAMESPACE, pod.name]);
    remove(bed, pod.name)?;
    let (phase, said) = (outcome?, said.context("reading its log")?);
    if phase != "Succeeded" {
        bail!("pod {} failed: {said}", pod.name);
    }
    Ok(said)
}

fn remove(bed: &Bed, name: &str) -> Result<()> {
    bed.plane.kubectl(&["delete", "pod", "-n", NAMESPACE, name, "--wait=true", "--timeout=100s"]).map(drop)
}
