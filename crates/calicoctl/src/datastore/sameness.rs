//! Whether a stored object equals the one in a file.
//!
//! Stores fill in defaults, identities and revisions, and Kubernetes drops fields that its definitions do not know.
//! None of that counts as a difference. Status is left out too: it is observed, and is updated by its writers.

use api::schema::{apply_defaults, for_kind, property};
use api::{Kind, Resource};
use serde_json::{Map, Value};

/// The part of a resource that matters for equality.
///
/// # Errors
/// When the resource cannot be encoded as JSON.
pub fn essence(resource: &Resource) -> Result<Value, serde_json::Error> {
    let mut resource = resource.clone();
    resource.set_defaults();
    let kind = resource.kind();
    let mut value = serde_json::to_value(&resource)?;
    if let (Some(schema), Some(spec)) = (property(for_kind(kind), "spec"), value.get_mut("spec")) {
        apply_defaults(schema, spec);
    }
    let metadata = resource.metadata();
    Ok(serde_json::json!({
        "name": metadata.name,
        "namespace": metadata.namespace,
        "labels": metadata.labels,
        "annotations": metadata.annotations,
        "ownerReferences": metadata.owner_references,
        "finalizers": metadata.finalizers,
        "spec": value.get("spec"),
    }))
}

/// The status; `None` if it is empty.
///
/// # Errors
/// When the resource cannot be encoded as JSON.
pub fn status(resource: &Resource) -> Result<Option<Value>, serde_json::Error> {
    let mut value = serde_json::to_value(resource)?;
    let status = value.get_mut("status").map(Value::take);
    Ok(status
        .filter(|status| !status.is_null() && status.as_object().is_none_or(|fields| !fields.is_empty())))
}

/// The resource without the fields of its spec and status that Kubernetes' definitions do not know, and the paths of
/// those fields.
///
/// # Errors
/// When the resource cannot be encoded as JSON.
pub(crate) fn pruned(resource: &Resource) -> Result<(Resource, Vec<String>), serde_json::Error> {
    let kind: Kind = resource.kind();
    let mut value = serde_json::to_value(resource)?;
    let mut removed = Vec::new();
    for part in ["spec", "status"] {
        if let (Some(schema), Some(field)) = (property(for_kind(kind), part), value.get_mut(part)) {
            prune(schema, field, part, &mut removed);
        }
    }
    if removed.is_empty() {
        return Ok((resource.clone(), removed));
    }
    Ok((Resource::from_value(kind, value)?, removed))
}

fn prune(schema: &Map<String, Value>, value: &mut Value, path: &str, removed: &mut Vec<String>) {
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true)) {
        return;
    }
    match value {
        Value::Object(fields) => {
            if let Some(Value::Object(properties)) = schema.get("properties") {
                fields.retain(|name, _| {
                    let is_known = properties.contains_key(name);
                    if !is_known {
                        removed.push(format!("{path}.{name}"));
                    }
                    is_known
                });
                for (name, field) in fields {
                    if let Some(Value::Object(schema)) = properties.get(name) {
                        prune(schema, field, &format!("{path}.{name}"), removed);
                    }
                }
            } else if let Some(Value::Object(schema)) = schema.get("additionalProperties") {
                for (name, field) in fields {
                    prune(schema, field, &format!("{path}.{name}"), removed);
                }
            }
        }
        Value::Array(items) => {
            if let Some(Value::Object(schema)) = schema.get("items") {
                for (index, item) in items.iter_mut().enumerate() {
                    prune(schema, item, &format!("{path}[{index}]"), removed);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pool(value: Value) -> Resource {
        Resource::from_value(Kind::IPPool, value).expect("a pool")
    }

    #[test]
    fn defaults_and_identities_are_ignored() {
        let bare = pool(json!({"metadata": {"name": "a"}, "spec": {"cidr": "10.0.0.0/16"}}));
        let mut stored = bare.clone();
        stored.set_defaults();
        stored.metadata_mut().uid = "u".into();
        stored.metadata_mut().resource_version = "5".into();
        let essences = [&bare, &stored].map(|resource| essence(resource).expect("JSON"));
        assert_eq!(essences[0], essences[1]);
        let other =
            pool(json!({"metadata": {"name": "a"}, "spec": {"cidr": "10.0.0.0/16", "natOutgoing": true}}));
        assert_ne!(essence(&other).expect("JSON"), essences[0]);
        let labelled =
            pool(json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {"cidr": "10.0.0.0/16"}}));
        assert_ne!(essence(&labelled).expect("JSON"), essences[0]);
    }

    #[test]
    fn unknown_fields_are_listed() {
        let value = json!({"metadata": {"name": "a"}, "spec": {"selector": "all()", "new": 1,
            "ingress": [{"action": "Allow", "newer": {}}, {"action": "Deny", "source": {"newest": []}}]}});
        let policy = Resource::from_value(Kind::GlobalNetworkPolicy, value).expect("a policy");
        let (kept, removed) = pruned(&policy).expect("JSON");
        assert_eq!(removed, ["spec.new", "spec.ingress[0].newer", "spec.ingress[1].source.newest"]);
        assert!(pruned(&kept).expect("JSON").1.is_empty());
    }
}
