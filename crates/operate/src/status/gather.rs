//! Reads what a status is made of. What may not be read is noted, and the rest is read all the same.

use super::Facts;
use crate::cluster::{Reference, Target};
use manifests::NAMESPACE;
use serde_json::Value;

/// Where Calico's data may be: custom resources as its manifests define them, or those of `projectcalico.org/v3` in their place. The
/// first that is served counts: an aggregated server shows the same objects a second time.
const GROUPS: [&str; 2] = ["/apis/crd.projectcalico.org/v1", "/apis/projectcalico.org/v3"];

/// Where Calico's components may be: kind, namespace, name.
const WORKLOADS: [(&str, &str, &str); 16] = [
    ("DaemonSet", NAMESPACE, "calico-node"),
    ("DaemonSet", NAMESPACE, "canal"),
    ("Deployment", NAMESPACE, "calico-typha"),
    ("Deployment", NAMESPACE, "calico-kube-controllers"),
    ("DaemonSet", "calico-system", "calico-node"),
    ("Deployment", "calico-system", "calico-typha"),
    ("Deployment", "calico-system", "calico-kube-controllers"),
    ("Deployment", "calico-apiserver", "calico-apiserver"),
    ("Deployment", "calico-system", "calico-apiserver"),
    ("Deployment", NAMESPACE, "calico-webhooks"),
    ("Deployment", NAMESPACE, "goldmane"),
    ("Deployment", NAMESPACE, "whisker"),
    ("Deployment", "calico-system", "calico-webhooks"),
    ("Deployment", "calico-system", "goldmane"),
    ("Deployment", "calico-system", "whisker"),
    ("Deployment", "tigera-operator", "tigera-operator"),
];

/// Reads the facts.
pub async fn gather(target: &Target) -> Facts {
    let mut facts = Facts { server: target.server().to_owned(), ..Facts::default() };
    for (kind, namespace, name) in WORKLOADS {
        match target.get(&Reference::new(kind, namespace, name)).await {
            Ok(found) => facts.workloads.extend(found.map(|mut object| {
                // A single object has it, an item of a list has not; who reads wants it.
                object["kind"] = kind.into();
                object
            })),
            Err(error) => facts.unread.push(format!("{kind} {namespace}/{name}: {error:#}")),
        }
    }
    let mut unread = Vec::new();
    let mut list = async |path: String| match target.list(&path).await {
        Ok(items) => items,
        Err(error) => {
            unread.push(format!("{error:#}"));
            Vec::new()
        }
    };
    let data = data_path(target).await;
    let labels = "calico-node,canal,calico-typha,calico-kube-controllers,calico-apiserver,calico-webhooks,goldmane,whisker";
    facts.pods = list(format!("/api/v1/pods?labelSelector=k8s-app%20in%20%28{labels}%29")).await;
    facts.nodes = list("/api/v1/nodes".to_owned()).await;
    facts.felix = list(format!("{data}/felixconfigurations")).await;
    facts.pools = list(format!("{data}/ippools")).await;
    facts.bgp = list(format!("{data}/bgpconfigurations")).await;
    facts.peers = list(format!("{data}/bgppeers")).await;
    facts.node_statuses = list(format!("{data}/caliconodestatuses")).await;
    facts.unread.extend(unread);
    match target.look(&format!("{data}/clusterinformations/default")).await {
        Ok(found) => facts.cluster_information = found,
        Err(error) => facts.unread.push(format!("{error:#}")),
    }
    if let Ok(Some(map)) = target.get(&Reference::new("ConfigMap", NAMESPACE, "kube-proxy")).await {
        facts.kube_proxy = map["data"]["config.conf"].as_str().map(str::to_owned);
    }
    for name in ["calico-config", "canal-config"] {
        if let Ok(Some(map)) = target.get(&Reference::new("ConfigMap", NAMESPACE, name)).await {
            facts.config = Some(map);
        }
    }
    facts
}

/// Where Calico's data is.
async fn data_path(target: &Target) -> &'static str {
    for group in GROUPS {
        // Any account may ask this; what cannot be asked here fails below, where it is reported.
        if matches!(target.look(group).await, Ok(Some(_))) {
            return group;
        }
    }
    GROUPS[0]
}

/// The mode that kube-proxy's configuration asks for; empty for its default.
#[must_use]
pub(crate) fn proxy_mode(configuration: &str) -> &str {
    let line = configuration.lines().find_map(|line| line.strip_prefix("mode:"));
    line.map(|mode| mode.trim().trim_matches('"')).unwrap_or_default()
}

/// A text of an object.
pub(crate) fn text<'a>(object: &'a Value, place: &str) -> &'a str {
    object.pointer(place).and_then(Value::as_str).unwrap_or_default()
}
