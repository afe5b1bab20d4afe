//! Reads the facts for a status. What may not be read is recorded, and the rest is read nevertheless.

use super::Facts;
use crate::cluster::{Reference, Target};
use manifests::NAMESPACE;
use serde_json::Value;

/// Where Calico's data may be: custom resources as defined by its manifests, or those of `projectcalico.org/v3`
/// instead. The first that is served counts: an aggregated server shows the same objects a second time.
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
                // List items have no kind, unlike single objects; add it for the readers.
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

/// The group in which Calico's data is.
async fn data_path(target: &Target) -> &'static str {
    for group in GROUPS {
        // Any account may read this; other errors occur again below, where they are reported.
        if matches!(target.look(group).await, Ok(Some(_))) {
            return group;
        }
    }
    GROUPS[0]
}

/// The mode in kube-proxy's configuration; empty for its default.
#[must_use]
pub(crate) fn proxy_mode(configuration: &str) -> &str {
    let line = configuration.lines().find_map(|line| line.strip_prefix("mode:"));
    line.map(|mode| mode.trim().trim_matches('"')).unwrap_or_default()
}

/// The string at a JSON pointer.
pub(crate) fn text<'a>(object: &'a Value, place: &str) -> &'a str {
    object.pointer(place).and_then(Value::as_str).unwrap_or_default()
}
