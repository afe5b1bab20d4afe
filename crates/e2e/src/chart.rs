//! Tests the Helm chart with Helm itself: lints it, renders it for every kind of installation, compares it with `tortie
//! manifests`, installs it on the bed, and removes it.

use crate::bed::{Bed, items};
use crate::manifest::{REGISTRY, TAG};
use crate::{checks, documents, waiting};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use testkit::kubernetes_program;

const RELEASE: &str = "tortie";
const NAMESPACE: &str = "kube-system";

/// Each of our manifests, with the values that give the same objects.
const KINDS: [(&str, &[&str]); 6] = [
    ("calico", &[]),
    ("calico-vxlan", &["vxlan=true"]),
    ("calico-typha", &["typha.enabled=true"]),
    ("calico-policy-only", &["network=none", "typha.enabled=true"]),
    ("canal", &["network=flannel"]),
    ("calico-etcd", &["datastore=etcd", "etcd.endpoints=http://10.0.0.5:2379"]),
];

/// Variables that a chart always contains but a manifest only on request, or the reverse.
const OPTIONAL: [&str; 4] = [
    "CNI_NET_DIR",
    "FELIX_PROMETHEUSMETRICSENABLED",
    "TYPHA_PROMETHEUSMETRICSENABLED",
    "FELIX_TYPHAK8SSERVICENAME",
];

/// Helm on the control plane's machine, with its own configuration files.
fn helm(bed: &Bed, words: &[&str]) -> Result<Command> {
    let mut command = bed.plane.command(&kubernetes_program("helm")?)?;
    for part in ["CACHE", "CONFIG", "DATA"] {
        command.env(format!("HELM_{part}_HOME"), bed.folder().join("helm").join(part));
    }
    command.arg("--kubeconfig").arg(bed.plane.admin()).args(words);
    Ok(command)
}

/// Runs a program that must succeed; returns its output.
fn must(what: &str, command: Command) -> Result<String> {
    let output = testkit::finish(command, "")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{what}: {}{said}", String::from_utf8_lossy(&output.stdout));
    Ok(String::from_utf8(output.stdout)?)
}

/// Lints the chart and compares its objects with the manifests.
pub(crate) fn compare(bed: &Bed, chart: &Path) -> Result<Vec<String>> {
    let chart = chart.display().to_string();
    for (like, values) in KINDS {
        let mut settings: Vec<&str> = values.iter().flat_map(|value| ["--set", value]).collect();
        let words = [vec!["lint", "--strict", &chart], settings.clone()].concat();
        must(&format!("helm lint as {like}"), helm(bed, &words)?)?;
        // The definitions are the same text in both; without them, parsing takes only a moment.
        settings.extend(["--set", "includeCRDs=false", "--namespace", NAMESPACE]);
        let words = [vec!["template", RELEASE, &chart], settings].concat();
        let theirs = objects(bed, &must(&format!("helm template as {like}"), helm(bed, &words)?)?)?;
        let mut command = Command::new(&bed.program);
        command.args(["manifests", "--like", like, "--set", "includeCRDs=false"]);
        if like == "calico-etcd" {
            command.args(["--set", "etcd.endpoints=http://10.0.0.5:2379"]);
        }
        let ours = objects(bed, &must("tortie manifests", command)?)?;
        for (name, object) in &ours {
            let other = theirs.get(name).with_context(|| format!("{like}: the chart has no {name}"))?;
            ensure!(
                object == other,
                "{like}: {name} is\n{other}\nin the chart, and\n{object}\nin the manifest"
            );
        }
        ensure!(
            theirs.len() == ours.len(),
            "{like}: the chart has {} objects, the manifest {}",
            theirs.len(),
            ours.len()
        );
        println!("e2e: ✓ Helm renders {like} as our manifest: {} objects", ours.len());
    }
    Ok(Vec::new())
}

/// The objects of a text, by kind and name, without empty fields.
fn objects(bed: &Bed, text: &str) -> Result<BTreeMap<String, Value>> {
    let words = ["create", "--dry-run=client", "--validate=false", "-o", "json", "-f", "-"];
    let said = bed.plane.kubectl_with_input(&words, text)?;
    // One document for each object, or a list of all.
    let mut found = Vec::new();
    for document in serde_json::Deserializer::from_str(&said).into_iter::<Value>() {
        let document = document?;
        if document["kind"] == "List" {
            found.extend(items(&document).to_vec());
        } else {
            found.push(document);
        }
    }
    let name = |object: &Value| format!("{} {}", object["kind"], object["metadata"]["name"]);
    Ok(found
        .into_iter()
        .map(|mut object| {
            if object["kind"] == "Secret" {
                // An empty string is not a certificate.
                object["data"] = Value::Null;
            }
            (name(&object), plain(&object).unwrap_or_default())
        })
        .collect())
}

/// A value without empty fields, and without the variables that only one side has.
fn plain(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Object(fields) => {
            if fields.get("name").and_then(Value::as_str).is_some_and(|name| OPTIONAL.contains(&name)) {
                return None;
            }
            let kept: serde_json::Map<String, Value> =
                fields.iter().filter_map(|(key, value)| Some((key.clone(), plain(value)?))).collect();
            (!kept.is_empty()).then(|| kept.into())
        }
        Value::Array(all) => {
            let kept: Vec<Value> = all.iter().filter_map(plain).collect();
            (!kept.is_empty()).then(|| json!(kept))
        }
        other => Some(other.clone()),
    }
}

/// Installs the chart with the command of docs/install.md, with our images and the bed's range.
pub(crate) fn install(bed: &Bed) -> Result<()> {
    let (registry, version) = (format!("registry={REGISTRY}"), format!("version={TAG}"));
    let ranges = bed.plane.families.pod_ranges();
    let range = ranges.split(',').next().unwrap_or_default();
    for line in documents::lines("install.md", "helm install")? {
        let line = line.replace("10.244.0.0/16", range);
        let mut words: Vec<&str> = line.split_whitespace().skip(1).collect();
        for value in ["imagePullPolicy=Never", &registry, &version] {
            words.extend(["--set", value]);
        }
        must(&line, helm(bed, &words)?)?;
    }
    Ok(())
}

/// Runs every check, then an upgrade, then the removal.
pub(crate) fn run(bed: &mut Bed, chart: &Path) -> Result<()> {
    checks::run(bed)?;
    let chart = chart.display().to_string();
    let words = [
        "upgrade",
        RELEASE,
        &chart,
        "--namespace",
        NAMESPACE,
        "--reuse-values",
        "--set",
        "metrics.enabled=true",
    ];
    must("helm upgrade", helm(bed, &words)?)?;
    bed.settled(NAMESPACE)?;
    let set = bed.plane.get(&["daemonset", "-n", NAMESPACE, "calico-node"])?;
    ensure!(set["metadata"]["generation"] == 2, "the upgrade changed nothing: {}", set["metadata"]);
    println!("e2e: ✓ helm upgrade");
    must("helm uninstall", helm(bed, &["uninstall", RELEASE, "--namespace", NAMESPACE, "--wait"])?)?;
    waiting::until("everything to be gone", || {
        let left = bed.plane.kubectl(&["get", "daemonsets,customresourcedefinitions", "-A", "-o", "name"])?;
        ensure!(left.trim().is_empty(), "{left}");
        Ok(())
    })?;
    println!("e2e: ✓ helm uninstall");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::plain;
    use serde_json::json;

    #[test]
    fn empty_fields_are_left_out() {
        let object = json!({"a": {}, "b": [], "c": null, "d": {"e": [{"name": "CNI_NET_DIR", "value": "x"}]},
            "f": [{"name": "OTHER"}], "g": 0});
        assert_eq!(plain(&object).unwrap(), json!({"f": [{"name": "OTHER"}], "g": 0}));
    }
}
