//! Field ownership (`metadata.managedFields`) and server-side apply.
//!
//! An apply states what its manager wants: those fields get its values; fields that it wanted before but no longer does
//! are removed unless another manager owns them; and a field that another manager has set differently is a conflict.
//! Every other write makes its manager the owner of what it changed.

pub(crate) mod sets;
pub(crate) mod shape;

use crate::status::{Cause, Outcome, Refusal};
use api::Kind;
use api::kind::API_VERSION;
use serde_json::{Map, Value, json};
use sets::FieldSet;

/// Fields without an owner: the server's own, and those that identify the object.
const OF_THE_SERVER: [&str; 9] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "selfLink",
    "managedFields",
];

/// How a manager came to own its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Apply,
    Update,
}

/// One manager and its fields.
#[derive(Clone, Debug, PartialEq)]
struct Owner {
    manager: String,
    operation: Operation,
    is_status: bool,
    time: String,
    fields: FieldSet,
}

/// The manager that writes, and the time of the write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer<'a> {
    /// The name of the manager.
    pub manager: &'a str,
    /// Whether the write is to the status.
    pub is_status: bool,
    /// The time, in Kubernetes' format.
    pub now: &'a str,
}

fn owners(object: &Value) -> Vec<Owner> {
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    let owner = |entry: &Value| {
        let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        Some(Owner {
            manager: text("manager"),
            operation: match entry["operation"].as_str()? {
                "Apply" => Operation::Apply,
                _ => Operation::Update,
            },
            is_status: entry["subresource"] == "status",
            time: text("time"),
            fields: FieldSet::from_value(&entry["fieldsV1"]),
        })
    };
    entries.into_iter().flatten().filter_map(owner).collect()
}

fn set_owners(object: &mut Value, owners: &[Owner]) {
    let entry = |owner: &Owner| {
        let mut entry = json!({
            "manager": owner.manager,
            "operation": match owner.operation { Operation::Apply => "Apply", Operation::Update => "Update" },
            "apiVersion": API_VERSION,
            "time": owner.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": owner.fields.to_value(),
        });
        if owner.is_status {
            entry["subresource"] = "status".into();
        }
        entry
    };
    let written: Vec<Value> = owners.iter().filter(|owner| !owner.fields.is_empty()).map(entry).collect();
    if let Some(metadata) = metadata(object) {
        if written.is_empty() {
            metadata.remove("managedFields");
        } else {
            metadata.insert("managedFields".into(), Value::Array(written));
        }
    }
}

fn metadata(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.as_object_mut()?.entry("metadata").or_insert_with(|| json!({})).as_object_mut()
}

/// The part of an object that can be owned.
fn ownable(object: &Value, is_status: bool) -> Value {
    let mut value = object.clone();
    if let Some(fields) = value.as_object_mut() {
        fields.remove("kind");
        fields.remove("apiVersion");
        if is_status {
            fields.retain(|name, _| name == "status");
        } else {
            fields.remove("status");
        }
    }
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|name, _| !OF_THE_SERVER.contains(&name.as_str()));
        if metadata.is_empty()
            && let Some(fields) = value.as_object_mut()
        {
            fields.remove("metadata");
        }
    }
    // Empty objects carry no information: our types write an empty `spec` even if none was given.
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, field| !field.as_object().is_some_and(Map::is_empty));
    }
    value
}

/// Updates owners after an ordinary write: the writer becomes the sole owner of each field it changed.
pub(crate) fn track_update(kind: Kind, old: Option<&Value>, new: &mut Value, writer: &Writer<'_>) {
    let schema = Some(shape::object_schema(kind));
    let before = old.map(|old| ownable(old, writer.is_status)).unwrap_or_else(|| json!({}));
    let after = ownable(new, writer.is_status);
    let (changed, removed) = shape::changes(schema, &before, &after);
    // The new object's own list of owners counts: an empty one forgets all owners.
    let reset = new.pointer("/metadata/managedFields").and_then(Value::as_array).is_some_and(Vec::is_empty);
    let mut all = match (old, reset) {
        (_, true) | (None, _) => Vec::new(),
        (Some(old), false) => owners(old),
    };
    for owner in all.iter_mut().filter(|owner| owner.is_status == writer.is_status) {
        owner.fields = owner.fields.difference(&changed).difference(&removed);
    }
    let mine = all.iter_mut().find(|owner| {
        owner.manager == writer.manager
            && owner.operation == Operation::Update
            && owner.is_status == writer.is_status
    });
    if !changed.is_empty() {
        match mine {
            Some(owner) => {
                owner.fields = owner.fields.union(&changed);
                writer.now.clone_into(&mut owner.time);
            }
            None => all.push(Owner {
                manager: writer.manager.to_owned(),
                operation: Operation::Update,
                is_status: writer.is_status,
                time: writer.now.to_owned(),
                fields: changed,
            }),
        }
    }
    set_owners(new, &all);
}

/// Applies what a manager wants to the live object (an empty object if there is none).
///
/// # Errors
/// On a conflict, unless `force` takes the fields over.
pub(crate) fn apply(
    kind: Kind,
    live: &Value,
    config: &Value,
    writer: &Writer<'_>,
    force: bool,
) -> Outcome<Value> {
    let schema = Some(shape::object_schema(kind));
    if config.pointer("/metadata/managedFields").is_some_and(|fields| !fields.is_null()) {
        return Err(Refusal::bad_request("metadata.managedFields must be nil"));
    }
    let wanted = ownable(config, writer.is_status);
    let current = ownable(live, writer.is_status);
    let wanted_fields = shape::fields_of(schema, &wanted);
    let mut merged = current.clone();
    shape::merge(schema, &mut merged, &wanted);
    // If the values are equal, both managers may own a field.
    let (changed, _) = shape::changes(schema, &current, &merged);
    let mut all = owners(live);
    let is_mine = |owner: &Owner| {
        owner.manager == writer.manager
            && owner.operation == Operation::Apply
            && owner.is_status == writer.is_status
    };
    let mut causes = Vec::new();
    for owner in all.iter_mut().filter(|owner| !is_mine(owner) && owner.is_status == writer.is_status) {
        let contested = owner.fields.intersection(&wanted_fields).intersection(&changed);
        if contested.is_empty() {
            continue;
        }
        if force {
            owner.fields = owner.fields.difference(&contested);
            continue;
        }
        let using = match owner.operation {
            Operation::Apply => String::new(),
            Operation::Update => format!(" using {API_VERSION}"),
        };
        causes.extend(contested.paths().into_iter().map(|field| Cause {
            reason: "FieldManagerConflict",
            message: format!("conflict with {:?}{using}", owner.manager),
            field,
        }));
    }
    if !causes.is_empty() {
        return Err(Refusal::apply_conflict(causes));
    }
    let before =
        all.iter().find(|owner| is_mine(owner)).map(|owner| owner.fields.clone()).unwrap_or_default();
    let mut given_up = before.difference(&wanted_fields);
    for owner in all.iter().filter(|owner| !is_mine(owner) && owner.is_status == writer.is_status) {
        given_up = given_up.difference(&owner.fields);
    }
    shape::remove(schema, &mut merged, &given_up);
    let is_same = merged == current && before == wanted_fields;
    match all.iter_mut().find(|owner| is_mine(owner)) {
        Some(owner) => {
            if !is_same {
                writer.now.clone_into(&mut owner.time);
            }
            owner.fields = wanted_fields;
        }
        None => all.push(Owner {
            manager: writer.manager.to_owned(),
            operation: Operation::Apply,
            is_status: writer.is_status,
            time: writer.now.to_owned(),
            fields: wanted_fields,
        }),
    }
    let mut result = with_owned(live, merged, writer.is_status);
    set_owners(&mut result, &all);
    Ok(result)
}

/// The object with its ownable part replaced.
fn with_owned(live: &Value, merged: Value, is_status: bool) -> Value {
    let mut result = live.clone();
    let Value::Object(merged) = merged else { return result };
    let Some(fields) = result.as_object_mut() else { return result };
    if is_status {
        fields.remove("status");
    } else {
        fields.retain(|name, _| ["kind", "apiVersion", "metadata", "status"].contains(&name.as_str()));
    }
    for (name, value) in merged {
        if name != "metadata" {
            fields.insert(name, value);
            continue;
        }
        if let Some(metadata) = fields.entry("metadata").or_insert_with(|| json!({})).as_object_mut() {
            metadata.retain(|name, _| OF_THE_SERVER.contains(&name.as_str()));
            metadata.extend(value.as_object().cloned().unwrap_or_default());
        }
    }
    result
}

#[cfg(test)]
mod tests;
