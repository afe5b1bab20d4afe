//! Patches: applies the body of a PATCH to an object.
//!
//! A strategic merge patch is treated as a merge patch, except that lists of the metadata are merged as Kubernetes
//! does: our kinds have no other lists that it would merge. Its directives (`$patch` and the like) are refused.

use crate::status::{Outcome, Refusal};
use serde_json::{Map, Value};

/// The types of patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchType {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Kubernetes' own.
    Strategic,
    /// Server-side apply.
    Apply,
}

impl PatchType {
    /// The patch type of this content type.
    ///
    /// # Errors
    /// When the content type is not that of a patch.
    pub(crate) fn of(content_type: &str) -> Outcome<Self> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            _ => Err(Refusal::media_type(&[
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/strategic-merge-patch+json",
                "application/apply-patch+yaml",
            ])),
        }
    }
}

/// The maximum number of operations in a JSON patch.
const MOST_OPERATIONS: usize = 10_000;

/// The object after a patch other than an apply.
///
/// # Errors
/// When the patch cannot be read or applied.
pub(crate) fn patched(patch_type: PatchType, object: &Value, patch: &[u8]) -> Outcome<Value> {
    let mut object = object.clone();
    match patch_type {
        PatchType::Json => {
            let operations: json_patch::Patch =
                serde_json::from_slice(patch).map_err(|error| unreadable(&error))?;
            if operations.0.len() > MOST_OPERATIONS {
                let message = format!("The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}");
                return Err(Refusal::too_large(0)).map_err(|r| Box::new(Refusal { message, ..*r }));
            }
            json_patch::patch(&mut object, &operations).map_err(|error| {
                Refusal::unprocessable(format!(
                    "the server rejected our request due to an error in our request: {error}"
                ))
            })?;
        }
        PatchType::Merge | PatchType::Apply => {
            json_patch::merge(&mut object, &document(patch)?);
        }
        PatchType::Strategic => {
            let patch = document(patch)?;
            if let Some(name) = directive(&patch) {
                return Err(Refusal::bad_request(format!(
                    "the directive {name} of strategic merge patches is not supported here"
                )));
            }
            let before = object.clone();
            json_patch::merge(&mut object, &patch);
            merge_lists(&before, &mut object);
        }
    }
    if object.is_object() { Ok(object) } else { Err(Refusal::unprocessable("the patch leaves no object")) }
}

fn document(patch: &[u8]) -> Outcome<Value> {
    let patch: Value = serde_json::from_slice(patch).map_err(|error| unreadable(&error))?;
    if patch.is_object() {
        Ok(patch)
    } else {
        Err(Refusal::bad_request("error decoding patch: expected an object"))
    }
}

fn unreadable(error: &serde_json::Error) -> Box<Refusal> {
    Refusal::bad_request(format!("error decoding patch: {error}"))
}

/// Finds a directive of a strategic merge patch, at any depth.
fn directive(value: &Value) -> Option<&str> {
    match value {
        Value::Object(fields) => {
            fields.iter().find_map(
                |(name, field)| {
                    if name.starts_with('$') { Some(name.as_str()) } else { directive(field) }
                },
            )
        }
        Value::Array(items) => items.iter().find_map(directive),
        _ => None,
    }
}

/// Appends to finalizers and owners instead of replacing them.
fn merge_lists(before: &Value, after: &mut Value) {
    for (list, key) in [("finalizers", None), ("ownerReferences", Some("uid"))] {
        let Some(old) = before.pointer(&format!("/metadata/{list}")).and_then(Value::as_array) else {
            continue;
        };
        let Some(new) = after.pointer_mut(&format!("/metadata/{list}")).and_then(Value::as_array_mut) else {
            continue;
        };
        let same = |a: &Value, b: &Value| match key {
            Some(key) => a.get(key) == b.get(key),
            None => a == b,
        };
        let kept: Vec<Value> =
            old.iter().filter(|old| !new.iter().any(|new| same(old, new))).cloned().collect();
        new.splice(0..0, kept);
    }
}

/// Restores what a patch may not change: the object's identity and the server's own fields. Returns the revision that
/// the patch requires, if it changed it.
pub(crate) fn keep_identity(before: &Value, after: &mut Value) -> Option<String> {
    let empty = Map::new();
    let old = before["metadata"].as_object().unwrap_or(&empty).clone();
    let metadata = after.as_object_mut()?.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let metadata = metadata.as_object_mut()?;
    let wanted = metadata.get("resourceVersion").and_then(Value::as_str).map(str::to_owned);
    for field in ["uid", "creationTimestamp", "selfLink", "generation", "resourceVersion"] {
        match old.get(field) {
            Some(value) => {
                metadata.insert(field.into(), value.clone());
            }
            None => {
                metadata.remove(field);
            }
        }
    }
    // The request's path already names these. A different name has been refused.
    for field in ["name", "namespace"] {
        let is_said = metadata.get(field).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        if let (false, Some(value)) = (is_said, old.get(field)) {
            metadata.insert(field.into(), value.clone());
        }
    }
    let current = old.get("resourceVersion").and_then(Value::as_str).unwrap_or_default();
    wanted.filter(|wanted| !wanted.is_empty() && wanted != current)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn patches_of_every_type() {
        let object =
            json!({"metadata": {"name": "p", "finalizers": ["a"]}, "spec": {"nat": true, "list": [1]}});
        for (patch_type, patch, expected) in [
            (PatchType::Json, json!([{"op": "remove", "path": "/spec/nat"}]), Ok(json!({"list": [1]}))),
            (PatchType::Json, json!([{"op": "test", "path": "/spec/nat", "value": false}]), Err(422)),
            (PatchType::Json, json!({"op": "add"}), Err(400)),
            (PatchType::Merge, json!({"spec": {"nat": null, "list": [2]}}), Ok(json!({"list": [2]}))),
            (PatchType::Merge, json!(5), Err(400)),
            (PatchType::Strategic, json!({"spec": {"list": [3]}}), Ok(json!({"nat": true, "list": [3]}))),
            (PatchType::Strategic, json!({"spec": {"$patch": "replace"}}), Err(400)),
        ] {
            let found = patched(patch_type, &object, patch.to_string().as_bytes());
            let found = found.map(|value| value["spec"].clone()).map_err(|refusal| refusal.code);
            assert_eq!(found, expected, "{patch_type:?} {patch}");
        }
        let patch = json!({"metadata": {"finalizers": ["b"]}}).to_string();
        let merged = patched(PatchType::Strategic, &object, patch.as_bytes()).unwrap();
        assert_eq!(merged["metadata"]["finalizers"], json!(["a", "b"]));
    }

    #[test]
    fn an_object_stays_itself() {
        let before = json!({"metadata": {"uid": "u", "resourceVersion": "5"}});
        let mut after = json!({"metadata": {"uid": "x", "resourceVersion": "4", "generation": 3}});
        assert_eq!(keep_identity(&before, &mut after), Some("4".into()));
        assert_eq!(after, before);
        assert_eq!(keep_identity(&before, &mut before.clone()), None);
    }
}
