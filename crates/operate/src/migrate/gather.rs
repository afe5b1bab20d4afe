//! Reads the facts that a migration is planned from.

use super::plan::Facts;
use crate::cluster::{Reference, Target};
use crate::install::Existing;
use anyhow::Result;
use manifests::NAMESPACE;
use serde_json::Value;

/// Reads the facts.
///
/// # Errors
/// When something cannot be read: a plan from incomplete facts would be wrong.
pub async fn gather(target: &Target) -> Result<Facts> {
    let mut facts = Facts::default();
    for name in ["calico-node", "canal"] {
        if let Some(set) = target.get(&Reference::new("DaemonSet", NAMESPACE, name)).await? {
            let path = format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=k8s-app%3D{name}");
            facts.pods = target.list(&path).await?;
            facts.daemon_set = Some(set);
        }
    }
    facts.pods.retain(|pod| pod.pointer("/metadata/deletionTimestamp").is_none());
    facts.controllers =
        target.get(&Reference::new("Deployment", NAMESPACE, "calico-kube-controllers")).await?;
    facts.typha = target.get(&Reference::new("Deployment", NAMESPACE, "calico-typha")).await?;
    let nodes = target.list("/api/v1/nodes").await?;
    let name = |node: &Value| node.pointer("/metadata/name").and_then(Value::as_str).map(str::to_owned);
    facts.nodes = nodes.iter().filter_map(name).collect();
    facts.nodes.sort();
    facts.has_operator = Existing::gather(target).await?.has_operator;
    facts.felix = target.look("/apis/crd.projectcalico.org/v1/felixconfigurations/default").await?;
    let definition = Reference::new("CustomResourceDefinition", "", "ippools.crd.projectcalico.org");
    facts.has_definitions = target.get(&definition).await?.is_some();
    Ok(facts)
}
