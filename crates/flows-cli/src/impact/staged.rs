//! Staged policies in the files that are tried: they count as if they were enforced.

use api::{Kind, Resource};
use explain::Cluster;
use serde_json::{Value, json};

/// Enforces the staged policies that only the second cluster has, or that differ there; returns a note on each.
pub(super) fn enforce_new(before: &Cluster, after: &mut Cluster) -> Vec<String> {
    let staged: Vec<Resource> = after
        .resources()
        .filter(|resource| enforced_kind(resource.kind()).is_some())
        .filter(|resource| {
            before.get(resource.kind(), resource.namespace(), resource.name()) != Some(resource)
        })
        .cloned()
        .collect();
    let mut notes = Vec::new();
    for resource in staged {
        let Some(kind) = enforced_kind(resource.kind()) else { continue };
        let (namespace, name) = (resource.namespace().to_owned(), resource.name().to_owned());
        let what = if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") };
        let Ok(mut value) = serde_json::to_value(&resource) else { continue };
        let action = value["spec"].as_object_mut().and_then(|spec| spec.remove("stagedAction"));
        after.remove(resource.kind(), &namespace, &name);
        if action.as_ref().and_then(Value::as_str) == Some("Delete") {
            after.remove(kind, &namespace, &name);
            notes.push(format!("{} {what} is treated as the deletion that it stages", resource.kind()));
            continue;
        }
        let version = match kind {
            Kind::KubernetesNetworkPolicy => "networking.k8s.io/v1",
            _ => api::kind::API_VERSION,
        };
        let word = if kind == Kind::KubernetesNetworkPolicy { "NetworkPolicy" } else { kind.as_str() };
        value["apiVersion"] = json!(version);
        value["kind"] = json!(word);
        match after.add_manifest(value) {
            Ok(()) => notes.push(format!("{} {what} is treated as enforced", resource.kind())),
            Err(error) => notes.push(format!("{} {what} cannot be tried: {error}", resource.kind())),
        }
    }
    notes
}

fn enforced_kind(kind: Kind) -> Option<Kind> {
    match kind {
        Kind::StagedNetworkPolicy => Some(Kind::NetworkPolicy),
        Kind::StagedGlobalNetworkPolicy => Some(Kind::GlobalNetworkPolicy),
        Kind::StagedKubernetesNetworkPolicy => Some(Kind::KubernetesNetworkPolicy),
        _ => None,
    }
}
