//! The CustomResourceDefinitions that Kubernetes needs, generated from the types.
//!
//! Two groups contain the same kinds: `crd.projectcalico.org/v1`, where every released version keeps its data, and
//! `projectcalico.org/v3`, the form that newer clusters can serve without an aggregated API server. Only what a type
//! cannot express is written by hand: the differences between the groups, and the columns that `kubectl` prints.
//!
//! Definitions of other projects (such as ClusterNetworkPolicy) are not ours to install.

use crate::kind::{CRD_GROUP, Kind, KubernetesForm};
use crate::schema::{READS, for_kind};
use serde_json::{Map, Value, json};

mod columns;
mod yaml;

#[cfg(test)]
mod tests;

/// The group of the definitions that are served to users directly.
const V3_GROUP: &str = "projectcalico.org";

/// The definitions of `crd.projectcalico.org/v1`, ordered by kind.
#[must_use]
pub fn all() -> Vec<Value> {
    Kind::ALL.iter().filter_map(|kind| definition_v1(*kind)).collect()
}

/// The definitions of `projectcalico.org/v3`, ordered by kind.
#[must_use]
pub fn all_v3() -> Vec<Value> {
    Kind::ALL.iter().filter_map(|kind| definition_v3(*kind)).collect()
}

/// The definitions of `crd.projectcalico.org/v1` as one stream of YAML documents; the same bytes each time.
#[must_use]
pub fn to_yaml() -> String {
    yaml::documents(&all())
}

/// The definitions of `projectcalico.org/v3` as one stream of YAML documents; the same bytes each time.
#[must_use]
pub fn to_yaml_v3() -> String {
    yaml::documents(&all_v3())
}

fn definition_v1(kind: Kind) -> Option<Value> {
    let KubernetesForm::CustomResource { plural, kind: custom_kind, status } = kind.info().kubernetes else {
        return None;
    };
    let mut schema = published(kind);
    loosen_for_v1(kind, &mut schema);
    let names = names(custom_kind, plural, &[]);
    Some(definition(CRD_GROUP, &names, kind.is_namespaced(), &version("v1", &schema, status)))
}

fn definition_v3(kind: Kind) -> Option<Value> {
    let KubernetesForm::CustomResource { status, .. } = kind.info().kubernetes else { return None };
    let mut schema = published(kind);
    schema.insert("required".into(), json!(["metadata", "spec"]));
    let mut version = version("v3", &schema, status);
    let columns = columns::printed(kind);
    if !columns.is_empty() {
        version.insert("additionalPrinterColumns".into(), Value::Array(columns));
        version.entry("subresources").or_insert_with(|| json!({}));
    }
    if kind.is_tiered_policy() {
        version.insert("selectableFields".into(), json!([{"jsonPath": ".spec.tier"}]));
    }
    let names = names(kind.as_str(), kind.plural(), kind.info().short_names);
    Some(definition(V3_GROUP, &names, kind.is_namespaced(), &version))
}

/// The schema of a kind, without our own reader's keywords.
fn published(kind: Kind) -> Map<String, Value> {
    let mut schema = for_kind(kind).clone();
    schema.values_mut().for_each(without_our_keywords);
    schema
}

fn without_our_keywords(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove(READS);
            fields.values_mut().for_each(without_our_keywords);
        }
        Value::Array(items) => items.iter_mut().for_each(without_our_keywords),
        _ => {}
    }
}

fn names(kind: &str, plural: &str, short_names: &[&str]) -> Value {
    let mut names = json!({
        "kind": kind,
        "listKind": format!("{kind}List"),
        "plural": plural,
        "singular": kind.to_lowercase(),
    });
    if !short_names.is_empty() {
        names["shortNames"] = json!(short_names);
    }
    names
}

fn version(name: &str, schema: &Map<String, Value>, status: bool) -> Map<String, Value> {
    let mut version = Map::new();
    version.insert("name".into(), name.into());
    version.insert("served".into(), true.into());
    version.insert("storage".into(), true.into());
    version.insert("schema".into(), json!({"openAPIV3Schema": schema}));
    if status {
        version.insert("subresources".into(), json!({"status": {}}));
    }
    version
}

fn definition(group: &str, names: &Value, namespaced: bool, version: &Map<String, Value>) -> Value {
    let plural = names["plural"].as_str().unwrap_or_default();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "names": names,
            "preserveUnknownFields": false,
            "scope": if namespaced { "Namespaced" } else { "Cluster" },
            "versions": [version],
        },
    })
}

/// The four kinds kept by IPAM are older than their v3 form, and their v1 definitions are less strict: data written by
/// old versions must stay valid.
fn loosen_for_v1(kind: Kind, schema: &mut Map<String, Value>) {
    let Some(Value::Object(fields)) =
        schema.get_mut("properties").and_then(|p| p.pointer_mut("/spec/properties"))
    else {
        return;
    };
    let mut drop = |field: &str, keywords: &[&str]| {
        if let Some(Value::Object(field)) = fields.get_mut(field) {
            for keyword in keywords {
                field.remove(*keyword);
            }
        }
    };
    match kind {
        Kind::BlockAffinity => {
            drop("cidr", &["format"]);
            drop("state", &["enum"]);
            drop("deleted", &["default"]);
            // The deletion mark is text here: "true" or "false".
            limit(fields, "deleted", "type", "string".into());
        }
        Kind::IPAMConfiguration => {
            drop("autoAllocateBlocks", &["default"]);
            drop("strictAffinity", &["default"]);
            drop("ipCooldownSeconds", &["format"]);
            drop("maxBlocksPerHost", &["default", "format"]);
            limit(fields, "maxBlocksPerHost", "maximum", i32::MAX.into());
        }
        Kind::IPAMBlock => {
            drop("affinity", &["pattern"]);
            drop("cidr", &["format"]);
            for list in ["allocations", "attributes", "unallocated"] {
                drop(list, &["x-kubernetes-list-type"]);
            }
        }
        _ => {}
    }
}

fn limit(fields: &mut Map<String, Value>, field: &str, keyword: &str, value: Value) {
    if let Some(Value::Object(field)) = fields.get_mut(field) {
        field.insert(keyword.to_owned(), value);
    }
}
