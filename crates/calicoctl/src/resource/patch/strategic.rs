//! Strategic merge patches, as Kubernetes defines them, for Calico's types.
//!
//! Maps are merged and `null` removes a field. Lists are replaced, except the few for which Kubernetes' metadata
//! defines a merge: owner references by their uid, finalizers as a set. `$patch: replace` and `$patch: delete` in a
//! map, and `$deleteFromPrimitiveList/NAME`, work as in Kubernetes. Other directives are refused, not ignored.

use serde_json::{Map, Value};

const DIRECTIVE: &str = "$patch";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const SET_ORDER: &str = "$setElementOrder/";

/// Applies a patch to an object.
///
/// # Errors
/// When the patch is invalid.
pub(super) fn apply(object: &mut Value, patch: &Value) -> Result<(), String> {
    let (Value::Object(fields), Value::Object(changes)) = (object, patch) else {
        return Err("the patch must be an object".to_owned());
    };
    merge(fields, changes, "")
}

fn merge(fields: &mut Map<String, Value>, changes: &Map<String, Value>, path: &str) -> Result<(), String> {
    match changes.get(DIRECTIVE).map(|directive| directive.as_str().unwrap_or_default()) {
        None | Some("merge") => {}
        Some("replace") => {
            *fields = changes
                .iter()
                .filter(|(name, _)| *name != DIRECTIVE)
                .map(|(n, v)| (n.clone(), v.clone()))
                .collect();
            return Ok(());
        }
        Some("delete") => {
            fields.clear();
            return Ok(());
        }
        Some(other) => return Err(format!("unknown directive $patch: {other}")),
    }
    for (name, change) in changes {
        if name == DIRECTIVE {
            continue;
        }
        if let Some(list) = name.strip_prefix(DELETE_FROM) {
            remove_items(fields, list, change)?;
            continue;
        }
        // The order only matters for merged lists, whose items have no order.
        if name.starts_with(SET_ORDER) {
            continue;
        }
        if name.starts_with('$') {
            return Err(format!("unknown directive {name}"));
        }
        let inner = format!("{path}.{name}");
        match (fields.get_mut(name), change) {
            (_, Value::Null) => {
                fields.remove(name);
            }
            (Some(Value::Object(old)), Value::Object(new)) => {
                let removes = new.get(DIRECTIVE).and_then(Value::as_str) == Some("delete");
                merge(old, new, &inner)?;
                if removes {
                    fields.remove(name);
                }
            }
            (Some(Value::Array(old)), Value::Array(new)) if inner == ".metadata.finalizers" => {
                for item in new {
                    if !old.contains(item) {
                        old.push(item.clone());
                    }
                }
            }
            (Some(Value::Array(old)), Value::Array(new)) if inner == ".metadata.ownerReferences" => {
                merge_by(old, new, "uid", &inner)?;
            }
            (None, Value::Object(new)) => {
                // Merging into an empty map drops the patch directives.
                let mut fresh = Map::new();
                merge(&mut fresh, new, &inner)?;
                fields.insert(name.clone(), Value::Object(fresh));
            }
            (_, change) => {
                fields.insert(name.clone(), change.clone());
            }
        }
    }
    Ok(())
}

fn remove_items(fields: &mut Map<String, Value>, list: &str, removed: &Value) -> Result<(), String> {
    let Value::Array(removed) = removed else { return Err(format!("{DELETE_FROM}{list} must be a list")) };
    if let Some(Value::Array(items)) = fields.get_mut(list) {
        items.retain(|item| !removed.contains(item));
    }
    Ok(())
}

/// Merges items that have the same key; others are added, and items marked for deletion are removed.
fn merge_by(old: &mut Vec<Value>, new: &[Value], key: &str, path: &str) -> Result<(), String> {
    for item in new {
        let Value::Object(change) = item else { return Err(format!("{path}: expected objects")) };
        let Some(id) = change.get(key) else { return Err(format!("{path}: every item needs `{key}`")) };
        let place = old.iter().position(|item| item.get(key) == Some(id));
        let deletes = change.get(DIRECTIVE).and_then(Value::as_str) == Some("delete");
        match (place, deletes) {
            (Some(place), true) => {
                old.remove(place);
            }
            (Some(place), false) => {
                if let Some(Value::Object(fields)) = old.get_mut(place) {
                    merge(fields, change, path)?;
                }
            }
            (None, true) => {}
            (None, false) => old.push(item.clone()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::apply;
    use serde_json::json;

    #[test]
    fn maps_are_merged_and_lists_replaced() {
        let cases = [
            (
                json!({"spec": {"a": 1, "b": {"c": 2}}}),
                json!({"spec": {"b": {"d": 3}}}),
                json!({"spec": {"a": 1, "b": {"c": 2, "d": 3}}}),
            ),
            (json!({"spec": {"a": 1}}), json!({"spec": {"a": null}}), json!({"spec": {}})),
            (json!({"l": [1, 2]}), json!({"l": [3]}), json!({"l": [3]})),
            (json!({"m": {"a": 1}}), json!({"m": {"$patch": "replace", "b": 2}}), json!({"m": {"b": 2}})),
            (json!({"m": {"a": 1}}), json!({"m": {"$patch": "delete"}}), json!({})),
            (json!({}), json!({"m": {"a": null, "b": {"c": 1}}}), json!({"m": {"b": {"c": 1}}})),
            (
                json!({"metadata": {"finalizers": ["a"]}}),
                json!({"metadata": {"finalizers": ["b", "a"], "$setElementOrder/finalizers": ["b", "a"]}}),
                json!({"metadata": {"finalizers": ["a", "b"]}}),
            ),
            (
                json!({"metadata": {"finalizers": ["a", "b"]}}),
                json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}),
                json!({"metadata": {"finalizers": ["b"]}}),
            ),
            (
                json!({"metadata": {"ownerReferences": [{"uid": "1", "name": "x"}, {"uid": "2"}]}}),
                json!({"metadata": {"ownerReferences": [{"uid": "1", "name": "y"}, {"uid": "2", "$patch": "delete"}, {"uid": "3"}]}}),
                json!({"metadata": {"ownerReferences": [{"uid": "1", "name": "y"}, {"uid": "3"}]}}),
            ),
        ];
        for (mut object, patch, expected) in cases {
            apply(&mut object, &patch).unwrap();
            assert_eq!(object, expected, "{patch}");
        }
    }

    #[test]
    fn unknown_directives_are_refused() {
        for patch in [
            json!([]),
            json!({"m": {"$patch": "x"}}),
            json!({"$retainKeys": ["a"]}),
            json!({"metadata": {"ownerReferences": [{}]}}),
        ] {
            let mut object = json!({"m": {}, "metadata": {"ownerReferences": []}});
            assert!(apply(&mut object, &patch).is_err(), "{patch}");
        }
    }
}
