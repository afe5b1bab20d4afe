//! The documents that describe this API: OpenAPI v2 and v3, from the schemas of the kinds. `kubectl explain` reads
//! them, and `kubectl` learns from them that the server does dry runs and field validation.

use crate::body::object_schema;
use crate::kinds::{GROUP, SERVED, Served, VERSION};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::OnceLock;

/// An OpenAPI document and its hash.
#[derive(Debug)]
pub(crate) struct Document {
    /// The document.
    pub json: Bytes,
    /// Changes whenever the document changes.
    pub hash: String,
}

impl Document {
    fn new(value: &Value) -> Self {
        let json = Bytes::from(value.to_string());
        let mut hasher = DefaultHasher::new();
        json.hash(&mut hasher);
        Self { hash: format!("{:016X}", hasher.finish()), json }
    }
}

/// The document of version 3.
#[must_use]
pub(crate) fn v3() -> &'static Document {
    static BUILT: OnceLock<Document> = OnceLock::new();
    BUILT.get_or_init(|| {
        let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
        let mut schemas = Map::new();
        for served in &SERVED {
            schemas.insert(name(served.kind.as_str()), schema(served, &reference(META)));
            schemas.insert(name(&served.list_kind()), list_schema(served, &reference));
        }
        schemas.insert(META.into(), metadata());
        schemas.insert(LIST_META.into(), list_metadata());
        let body = |content: Value| json!({"application/json": {"schema": content}});
        let parameter = |name: &str, location: &str, value_type: &str| {
            json!({"name": name, "in": location, "required": location == "path", "schema": {"type": value_type, "uniqueItems": true}})
        };
        let response = |content: Value| json!({"200": {"description": "OK", "content": body(content)}});
        let paths = paths(&reference, &parameter, &response, &|content| ("requestBody", json!({"content": body(content), "required": true})));
        Document::new(&json!({
            "openapi": "3.0.0", "info": info(), "paths": paths, "components": {"schemas": schemas},
        }))
    })
}

/// The document of version 2.
#[must_use]
pub(crate) fn v2() -> &'static Document {
    static BUILT: OnceLock<Document> = OnceLock::new();
    BUILT.get_or_init(|| {
        let reference = |name: &str| json!({"$ref": format!("#/definitions/{name}")});
        let mut definitions = Map::new();
        for served in &SERVED {
            let mut whole = schema(served, &reference(META));
            simplify(&mut whole);
            definitions.insert(name(served.kind.as_str()), whole);
            definitions.insert(name(&served.list_kind()), list_schema(served, &reference));
        }
        let mut meta = metadata();
        simplify(&mut meta);
        definitions.insert(META.into(), meta);
        definitions.insert(LIST_META.into(), list_metadata());
        let parameter = |name: &str, location: &str, value_type: &str| {
            json!({"name": name, "in": location, "required": location == "path", "type": value_type, "uniqueItems": true})
        };
        let response = |content: Value| json!({"200": {"description": "OK", "schema": content}});
        let paths = paths(&reference, &parameter, &response, &|content| {
            ("parameters", json!([{"name": "body", "in": "body", "required": true, "schema": content}]))
        });
        Document::new(&json!({"swagger": "2.0", "info": info(), "paths": paths, "definitions": definitions}))
    })
}

/// `/openapi/v3`: the list of documents.
#[must_use]
pub(crate) fn index() -> Value {
    let path = format!("apis/{GROUP}/{VERSION}");
    let address = format!("/openapi/v3/{path}?hash={}", v3().hash);
    json!({"paths": {path: {"serverRelativeURL": address}}})
}

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

fn name(kind: &str) -> String {
    format!("org.projectcalico.v3.{kind}")
}

fn info() -> Value {
    json!({"title": "Calico", "version": format!("v{}", env!("CARGO_PKG_VERSION"))})
}

fn group_version_kind(kind: &str) -> Value {
    json!({"group": GROUP, "version": VERSION, "kind": kind})
}

fn schema(served: &Served, metadata: &Value) -> Value {
    let mut schema = Value::Object(object_schema(served).clone());
    clean(&mut schema);
    schema["properties"]["metadata"] =
        json!({"allOf": [metadata], "default": {}, "description": "Standard object's metadata."});
    if metadata["$ref"].as_str().is_some_and(|text| text.contains("/definitions/")) {
        schema["properties"]["metadata"] = metadata.clone();
    }
    schema["description"] = format!("{} of {GROUP}/{VERSION}.", served.kind).into();
    schema["x-kubernetes-group-version-kind"] = json!([group_version_kind(served.kind.as_str())]);
    schema
}

fn list_schema(served: &Served, reference: &dyn Fn(&str) -> Value) -> Value {
    json!({
        "description": format!("A list of {}.", served.plural()),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": reference(LIST_META),
            "items": {"type": "array", "items": reference(&name(served.kind.as_str()))},
        },
        "x-kubernetes-group-version-kind": [group_version_kind(&served.list_kind())],
    })
}

fn metadata() -> Value {
    use api::schema::Schema as _;
    let mut schema = Value::Object(api::ObjectMeta::schema());
    clean(&mut schema);
    schema["description"] = "The metadata of an object.".into();
    schema
}

fn list_metadata() -> Value {
    json!({"description": "The metadata of a list.", "type": "object", "properties": {
        "continue": {"type": "string"}, "remainingItemCount": {"type": "integer", "format": "int64"},
        "resourceVersion": {"type": "string"},
    }})
}

/// Removes the keywords that only our own reader knows.
fn clean(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove(api::schema::READS);
            fields.values_mut().for_each(clean);
        }
        Value::Array(items) => items.iter_mut().for_each(clean),
        _ => {}
    }
}

/// Removes what version 2 cannot express.
fn simplify(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for keyword in ["oneOf", "anyOf", "allOf", "not", "nullable", "x-kubernetes-validations"] {
                fields.remove(keyword);
            }
            if fields.remove("x-kubernetes-int-or-string").is_some() {
                fields.insert("type".into(), "string".into());
                fields.insert("format".into(), "int-or-string".into());
            }
            fields.values_mut().for_each(simplify);
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        _ => {}
    }
}

/// Writes a body: returns the name of the field and its value.
type BodyWriter<'a> = dyn Fn(Value) -> (&'static str, Value) + 'a;

fn paths(
    reference: &dyn Fn(&str) -> Value,
    parameter: &dyn Fn(&str, &str, &str) -> Value,
    response: &dyn Fn(Value) -> Value,
    body: &BodyWriter<'_>,
) -> Value {
    let mut paths = Map::new();
    for served in &SERVED {
        let kind = group_version_kind(served.kind.as_str());
        let object = reference(&name(served.kind.as_str()));
        let operation = |verb: &str, id: &str, queries: &[&str], content: &Value, sends: Option<Value>| {
            let mut parameters: Vec<Value> = queries
                .iter()
                .map(|query| {
                    let value_type = match *query {
                        "watch" | "allowWatchBookmarks" | "force" => "boolean",
                        "limit" | "timeoutSeconds" => "integer",
                        _ => "string",
                    };
                    parameter(query, "query", value_type)
                })
                .collect();
            let mut operation = json!({
                "operationId": id, "responses": response(content.clone()), "x-kubernetes-action": verb,
                "x-kubernetes-group-version-kind": kind, "tags": ["projectcalico_v3"],
            });
            if let Some(sends) = sends {
                match body(sends) {
                    ("parameters", Value::Array(more)) => parameters.extend(more),
                    (field, value) => operation[field] = value,
                }
            }
            operation["parameters"] = Value::Array(parameters);
            operation
        };
        let writes = ["dryRun", "fieldManager", "fieldValidation"];
        let patches = ["dryRun", "fieldManager", "fieldValidation", "force"];
        let lists = [
            "allowWatchBookmarks",
            "continue",
            "fieldSelector",
            "labelSelector",
            "limit",
            "resourceVersion",
            "resourceVersionMatch",
            "timeoutSeconds",
            "watch",
        ];
        let (place, scope) = match served.kind.is_namespaced() {
            true => ("/namespaces/{namespace}", "Namespaced"),
            false => ("", ""),
        };
        let shared = |names: &[&str]| -> Value {
            names.iter().map(|name| parameter(name, "path", "string")).collect()
        };
        let outer: &[&str] = if place.is_empty() { &[] } else { &["namespace"] };
        let inner: Vec<&str> = outer.iter().chain(&["name"]).copied().collect();
        let id = |verb: &str, rest: &str| format!("{verb}Projectcalico{}{scope}{}{rest}", "V3", served.kind);
        let list = reference(&name(&served.list_kind()));
        let collection = format!("/apis/{GROUP}/{VERSION}{place}/{}", served.plural());
        paths.insert(
            collection.clone(),
            json!({
                "parameters": shared(outer),
                "get": operation("list", &id("list", ""), &lists, &list, None),
                "post": operation("post", &id("create", ""), &writes, &object, Some(object.clone())),
                "delete": operation("deletecollection", &id("delete", "Collection"), &lists, &list, None),
            }),
        );
        let mut one = vec![(format!("{collection}/{{name}}"), "")];
        if served.has_status {
            one.push((format!("{collection}/{{name}}/status"), "Status"));
        }
        for (path, rest) in one {
            let mut item = json!({
                "parameters": shared(&inner),
                "get": operation("get", &id("read", rest), &[], &object, None),
                "put": operation("put", &id("replace", rest), &writes, &object, Some(object.clone())),
                "patch": operation("patch", &id("patch", rest), &patches, &object, Some(json!({"type": "object"}))),
            });
            if rest.is_empty() {
                item["delete"] = operation("delete", &id("delete", rest), &["dryRun"], &object, None);
            }
            paths.insert(path, item);
        }
        if !place.is_empty() {
            let path = format!("/apis/{GROUP}/{VERSION}/{}", served.plural());
            let id = format!("listProjectcalicoV3{}ForAllNamespaces", served.kind);
            paths.insert(path, json!({"get": operation("list", &id, &lists, &list, None)}));
        }
    }
    Value::Object(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that every reference resolves and that no keyword of ours is published.
    fn check(document: &Document, prefix: &str) {
        let value: Value = serde_json::from_slice(&document.json).unwrap();
        let text = String::from_utf8_lossy(&document.json);
        assert!(!text.contains("x-tortie"));
        let mut count = 0;
        for part in text.split("\"$ref\":\"").skip(1) {
            let name = part.split('"').next().unwrap();
            let pointer = name.strip_prefix('#').unwrap();
            assert!(name.starts_with(prefix) && value.pointer(pointer).is_some(), "{name}");
            count += 1;
        }
        assert!(count > SERVED.len());
        for served in &SERVED {
            let place = if served.kind.is_namespaced() { "/namespaces/{namespace}" } else { "" };
            let path = format!("/apis/projectcalico.org/v3{place}/{}/{{name}}", served.plural());
            let patch = &value["paths"][&path]["patch"];
            assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], served.kind.as_str(), "{path}");
            assert!(patch["parameters"].to_string().contains("fieldValidation"));
        }
    }

    #[test]
    fn references_of_documents_resolve() {
        check(v3(), "#/components/schemas/");
        check(v2(), "#/definitions/");
        assert!(index().to_string().contains(&v3().hash));
    }
}
