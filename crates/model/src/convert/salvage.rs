//! Salvages the readable parts of a policy or profile that cannot be read as a whole.
//!
//! Reading an object is all or nothing: one rule with a number in place of text loses the policy, and with it
//! everything that the policy denies. Here the object is read again field by field. A field that cannot be read is
//! moved, under its own name, to the fields that this version does not know. There the conversion of rules and policies
//! finds it and fails closed.
//!
//! Only for code that enforces policy. A salvaged object must never be written back.

use crate::key::ResourceKey;
use crate::names::{policy_tier, restore_policy_name};
use api::codec::{Extra, from_value};
use api::{EntityRule, Kind, ObjectMeta, Resource, Rule};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Returns the readable part of an object whose kind has rules; `None` for other kinds, and for what is not an object
/// at all.
#[must_use]
pub fn salvage(kind: Kind, mut object: Value) -> Option<Resource> {
    if !has_rules(kind) {
        return None;
    }
    let fields = object.as_object_mut()?;
    let mut metadata = fields.remove("metadata").unwrap_or_default();
    take_unreadable::<ObjectMeta>(&mut metadata);
    let mut spec = fields.remove("spec").unwrap_or_default();
    let ingress = take_rules(&mut spec, "ingress");
    let egress = take_rules(&mut spec, "egress");
    let mut unread =
        take_unreadable_with(&mut spec, |field| Resource::from_value(kind, json!({ "spec": field })).is_ok());
    let mut resource = Resource::from_value(kind, json!({ "metadata": metadata, "spec": spec })).ok()?;
    let parts = parts(&mut resource)?;
    for (name, rules, place) in [("ingress", ingress, parts.0), ("egress", egress, parts.1)] {
        match rules {
            Ok(rules) => *place = rules,
            Err(value) => _ = unread.insert(name.to_owned(), value),
        }
    }
    parts.2.append(&mut unread);
    Some(resource)
}

/// Returns the readable part of bytes in etcd that are not a valid value of their key.
#[must_use]
pub fn from_store(key: &ResourceKey, bytes: &[u8]) -> Option<Resource> {
    if !has_rules(key.kind) {
        return None;
    }
    let mut resource = salvage(key.kind, serde_json::from_slice(bytes).ok()?)?;
    if let Some(tier) = policy_tier(&resource).map(str::to_owned) {
        // The name in the key can replace one that cannot be read.
        let _ = restore_policy_name(resource.metadata_mut(), &tier);
    }
    let metadata = resource.metadata_mut();
    key.namespace.clone_into(&mut metadata.namespace);
    if metadata.name.is_empty() {
        key.name.clone_into(&mut metadata.name);
    }
    Some(resource)
}

/// Returns the fields of an unreadable object that cannot be read even individually, such as `spec.cidr`: the places to
/// look for the mistake. Empty when the bytes are not an object at all.
#[must_use]
pub fn unreadable_fields(kind: Kind, bytes: &[u8]) -> Vec<String> {
    let Ok(Value::Object(mut object)) = serde_json::from_slice(bytes) else { return Vec::new() };
    let mut paths = Vec::new();
    for part in ["metadata", "spec", "status"] {
        let Some(mut value) = object.remove(part) else { continue };
        if !value.is_object() && !value.is_null() {
            paths.push(part.to_owned());
            continue;
        }
        let unread = take_unreadable_with(&mut value, |field| {
            Resource::from_value(kind, json!({ part: field })).is_ok()
        });
        paths.extend(unread.keys().map(|name| format!("{part}.{name}")));
    }
    paths
}

/// Whether objects of this kind have rules that are enforced.
#[must_use]
pub fn has_rules(kind: Kind) -> bool {
    kind == Kind::Profile || kind.is_tiered_policy()
}

type Parts<'a> = (&'a mut Vec<Rule>, &'a mut Vec<Rule>, &'a mut Extra);

fn parts(resource: &mut Resource) -> Option<Parts<'_>> {
    macro_rules! parts_of {
        ($object:expr) => {{
            let spec = &mut $object.spec;
            Some((&mut spec.ingress, &mut spec.egress, &mut spec.extra))
        }};
    }
    match resource {
        Resource::NetworkPolicy(object) => parts_of!(object),
        Resource::GlobalNetworkPolicy(object) => parts_of!(object),
        Resource::StagedNetworkPolicy(object) => parts_of!(object),
        Resource::StagedGlobalNetworkPolicy(object) => parts_of!(object),
        Resource::Profile(object) => parts_of!(object),
        _ => None,
    }
}

/// The rules of one direction; the value itself if it is not a list.
fn take_rules(spec: &mut Value, name: &str) -> Result<Vec<Rule>, Value> {
    match spec.as_object_mut().and_then(|fields| fields.remove(name)) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(rules)) => Ok(rules.into_iter().map(rule).collect()),
        Some(other) => Err(other),
    }
}

/// Reads a rule. Everything that cannot be read goes into its `extra`, or into that of its ends.
fn rule(mut value: Value) -> Rule {
    if let Ok(rule) = from_value::<Rule>(&value) {
        return rule;
    }
    if !value.is_object() {
        // A rule of a profile may lack an action. Something that is not a rule at all must not pass for such a rule.
        return Rule { extra: Extra::from_iter([("value".to_owned(), value)]), ..Rule::default() };
    }
    let source = take_end(&mut value, "source");
    let destination = take_end(&mut value, "destination");
    let unread = take_unreadable::<Rule>(&mut value);
    let mut rule = from_value::<Rule>(&value).unwrap_or_default();
    rule.extra.extend(unread);
    for (name, place, end) in
        [("source", &mut rule.source, source), ("destination", &mut rule.destination, destination)]
    {
        match end {
            Ok(end) => *place = end,
            Err(value) => _ = rule.extra.insert(name.to_owned(), value),
        }
    }
    rule
}

fn take_end(rule: &mut Value, name: &str) -> Result<EntityRule, Value> {
    match rule.as_object_mut().and_then(|fields| fields.remove(name)) {
        None | Some(Value::Null) => Ok(EntityRule::default()),
        Some(mut value @ Value::Object(_)) => {
            let unread = take_unreadable::<EntityRule>(&mut value);
            let mut end = from_value::<EntityRule>(&value).unwrap_or_default();
            end.extra.extend(unread);
            Ok(end)
        }
        Some(other) => Err(other),
    }
}

fn take_unreadable<T: DeserializeOwned>(object: &mut Value) -> Extra {
    take_unreadable_with(object, |field| from_value::<T>(field).is_ok())
}

/// Removes the fields of an object that cannot be read even individually. What is not an object is removed as a whole,
/// under the name `value`.
fn take_unreadable_with(object: &mut Value, readable: impl Fn(&Value) -> bool) -> Extra {
    let Value::Object(fields) = object else {
        let value = std::mem::replace(object, Value::Object(Map::new()));
        return if value.is_null() { Extra::new() } else { Extra::from([("value".to_owned(), value)]) };
    };
    let mut unread = Extra::new();
    let mut kept = Map::new();
    for (name, value) in std::mem::take(fields) {
        let mut alone = Map::new();
        alone.insert(name.clone(), value);
        let alone = Value::Object(alone);
        let is_readable = readable(&alone);
        let Value::Object(alone) = alone else { continue };
        if is_readable {
            kept.extend(alone);
        } else {
            unread.extend(alone);
        }
    }
    *fields = kept;
    unread
}
