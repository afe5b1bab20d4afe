//! How values of a kind are split and merged: the schema defines which maps and lists are atomic, and which have parts
//! that can have different owners.
//!
//! A list is atomic unless the schema says otherwise (`x-kubernetes-list-type`), as for every custom resource.

use super::sets::FieldSet;
use api::Kind;
use api::schema::{for_kind, property};
use serde_json::{Map, Value, json};
use std::sync::OnceLock;

type Schema = Map<String, Value>;

/// How one value is split.
enum Shape<'a> {
    /// An atomic value.
    Whole,
    /// Fields by name.
    Fields,
    /// A list of items identified by these fields.
    Items(Vec<&'a str>),
    /// A list of values that identify themselves.
    Set,
}

fn shape<'a>(schema: Option<&'a Schema>, value: &Value) -> Shape<'a> {
    let word = |name: &str| schema.and_then(|schema| schema.get(name)).and_then(Value::as_str);
    match value {
        Value::Object(_) if word("x-kubernetes-map-type") == Some("atomic") => Shape::Whole,
        Value::Object(_) => Shape::Fields,
        Value::Array(_) => match word("x-kubernetes-list-type") {
            Some("set") => Shape::Set,
            Some("map") => {
                let keys = schema.and_then(|schema| schema.get("x-kubernetes-list-map-keys"));
                let keys = keys.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
                Shape::Items(keys.collect())
            }
            _ => Shape::Whole,
        },
        _ => Shape::Whole,
    }
}

fn below<'a>(schema: Option<&'a Schema>, name: &str) -> Option<&'a Schema> {
    let schema = schema?;
    property(schema, name).or_else(|| schema.get("additionalProperties")?.as_object())
}

fn items(schema: Option<&Schema>) -> Option<&Schema> {
    schema?.get("items")?.as_object()
}

/// The schema of a whole object, including the metadata that users own.
#[must_use]
pub(crate) fn object_schema(kind: Kind) -> &'static Map<String, Value> {
    static BUILT: [OnceLock<Map<String, Value>>; Kind::ALL.len()] =
        [const { OnceLock::new() }; Kind::ALL.len()];
    BUILT[kind as usize].get_or_init(|| {
        let mut schema = for_kind(kind).clone();
        let text = json!({"type": "object", "additionalProperties": {"type": "string"}});
        let metadata = json!({"type": "object", "properties": {
            "labels": text, "annotations": text,
            "finalizers": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "ownerReferences": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"]},
        }});
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            properties.insert("metadata".into(), metadata);
        }
        schema
    })
}

fn item_step(item: &Value, keys: &[&str]) -> String {
    let named: Map<String, Value> =
        keys.iter().filter_map(|key| Some(((*key).to_owned(), item.get(*key)?.clone()))).collect();
    format!("k:{}", Value::Object(named))
}

fn value_step(item: &Value) -> String {
    format!("v:{item}")
}

/// The fields that are present in a value.
#[must_use]
pub(crate) fn fields_of(schema: Option<&Schema>, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    match (shape(schema, value), value) {
        (Shape::Fields, Value::Object(fields)) if !fields.is_empty() => {
            for (name, field) in fields {
                set.below.insert(format!("f:{name}"), fields_of(below(schema, name), field));
            }
        }
        (Shape::Items(keys), Value::Array(list)) if !list.is_empty() => {
            for item in list {
                let mut inner = fields_of(items(schema), item);
                inner.here = true;
                set.below.insert(item_step(item, &keys), inner);
            }
        }
        (Shape::Set, Value::Array(list)) if !list.is_empty() => {
            for item in list {
                set.below.insert(value_step(item), FieldSet::leaf());
            }
        }
        _ => set.here = true,
    }
    set
}

/// The fields that differ between two values: those of `new` that are missing or different in `old`, and those only in
/// `old`.
#[must_use]
pub(crate) fn changes(schema: Option<&Schema>, old: &Value, new: &Value) -> (FieldSet, FieldSet) {
    if old == new {
        return Default::default();
    }
    let (mut changed, mut removed) = (FieldSet::default(), FieldSet::default());
    let mut child = |step: String, schema: Option<&Schema>, old: Option<&Value>, new: Option<&Value>| {
        let (c, r) = match (old, new) {
            (Some(old), Some(new)) => changes(schema, old, new),
            (None, Some(new)) => (fields_of(schema, new), FieldSet::default()),
            (Some(old), None) => (FieldSet::default(), fields_of(schema, old)),
            (None, None) => Default::default(),
        };
        if !c.is_empty() {
            changed.below.insert(step.clone(), c);
        }
        if !r.is_empty() {
            removed.below.insert(step, r);
        }
    };
    match (shape(schema, new), old, new) {
        (Shape::Fields, Value::Object(old), Value::Object(new)) => {
            let names: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for name in names {
                child(format!("f:{name}"), below(schema, name), old.get(name), new.get(name));
            }
            (changed, removed)
        }
        (Shape::Items(keys), Value::Array(old), Value::Array(new)) => {
            let find =
                |list: &[Value], step: &str| list.iter().find(|item| item_step(item, &keys) == step).cloned();
            let steps: std::collections::BTreeSet<String> =
                old.iter().chain(new).map(|item| item_step(item, &keys)).collect();
            for step in steps {
                let (old, new) = (find(old, &step), find(new, &step));
                child(step, items(schema), old.as_ref(), new.as_ref());
            }
            (changed, removed)
        }
        (Shape::Set, Value::Array(old), Value::Array(new)) => {
            for item in old.iter().filter(|item| !new.contains(item)) {
                child(value_step(item), None, Some(item), None);
            }
            for item in new.iter().filter(|item| !old.contains(item)) {
                child(value_step(item), None, None, Some(item));
            }
            (changed, removed)
        }
        _ => (FieldSet::leaf(), FieldSet::default()),
    }
}

/// Merges the fields of `config` into `live`, where they take precedence.
pub(crate) fn merge(schema: Option<&Schema>, live: &mut Value, config: &Value) {
    match (shape(schema, config), live, config) {
        (Shape::Fields, Value::Object(live), Value::Object(config)) => {
            for (name, field) in config {
                match live.get_mut(name) {
                    Some(present) => merge(below(schema, name), present, field),
                    None => {
                        live.insert(name.clone(), field.clone());
                    }
                }
            }
        }
        (Shape::Items(keys), Value::Array(live), Value::Array(config)) => {
            for item in config {
                let step = item_step(item, &keys);
                match live.iter_mut().find(|present| item_step(present, &keys) == step) {
                    Some(present) => merge(items(schema), present, item),
                    None => live.push(item.clone()),
                }
            }
        }
        (Shape::Set, Value::Array(live), Value::Array(config)) => {
            for item in config.iter().filter(|item| !live.contains(item)).cloned().collect::<Vec<_>>() {
                live.push(item);
            }
        }
        (_, live, config) => *live = config.clone(),
    }
}

/// Removes these fields from a value.
pub(crate) fn remove(schema: Option<&Schema>, value: &mut Value, fields: &FieldSet) {
    let shape = shape(schema, value);
    match (shape, value) {
        (Shape::Fields, Value::Object(map)) => {
            for (step, inner) in &fields.below {
                let Some(name) = step.strip_prefix("f:") else { continue };
                let Some(field) = map.get_mut(name) else { continue };
                remove(below(schema, name), field, inner);
                let is_empty = match &*field {
                    Value::Object(map) => map.is_empty(),
                    Value::Array(list) => list.is_empty(),
                    _ => false,
                };
                if inner.here && (inner.below.is_empty() || is_empty) || (!inner.below.is_empty() && is_empty)
                {
                    map.remove(name);
                }
            }
        }
        (Shape::Items(keys), Value::Array(list)) => {
            list.retain_mut(|item| match fields.below.get(&item_step(item, &keys)) {
                Some(inner) if inner.here => false,
                Some(inner) => {
                    remove(items(schema), item, inner);
                    true
                }
                None => true,
            });
        }
        (Shape::Set, Value::Array(list)) => {
            list.retain(|item| !fields.below.contains_key(&value_step(item)));
        }
        _ => {}
    }
}
