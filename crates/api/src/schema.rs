//! The permitted values of fields, as data: the structural schema (OpenAPI v3) of a CRD.
//!
//! Built from the types by `#[resource_struct]`. It is printed in CRDs and used when a user's file is read; it is never
//! built for objects that come from a store.

use crate::kind::Kind;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

mod check;

pub use check::{apply_defaults, check};

/// Our own keyword beside those of Kubernetes: the permitted values in a user's file where the type alone does not
/// determine them, because Calico's type has a reader of its own. `text`: text, never a number. `as-number`: a number,
/// or text. Omitted from CRDs.
pub const READS: &str = "x-tortie-reads";

/// A type that knows its own schema.
pub trait Schema {
    /// The schema, as the value of a property.
    fn schema() -> Map<String, Value>;
}

/// Converts a `json!({...})` literal to a map.
#[must_use]
pub fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

macro_rules! plain {
    ($($ty:ty => $json:tt),* $(,)?) => {
        $(impl Schema for $ty {
            fn schema() -> Map<String, Value> {
                object(json!($json))
            }
        })*
    };
}

plain! {
    String => {"type": "string"},
    bool => {"type": "boolean"},
    i32 => {"type": "integer", "format": "int32"},
    i64 => {"type": "integer"},
    u8 => {"type": "integer"},
    u16 => {"type": "integer"},
    u32 => {"type": "integer", "format": "int32"},
    u64 => {"type": "integer", "format": "int64"},
    Value => {"x-kubernetes-preserve-unknown-fields": true},
}

impl<T: Schema> Schema for Option<T> {
    fn schema() -> Map<String, Value> {
        T::schema()
    }
}

impl<T: Schema> Schema for Box<T> {
    fn schema() -> Map<String, Value> {
        T::schema()
    }
}

impl<T: Schema> Schema for Vec<T> {
    fn schema() -> Map<String, Value> {
        object(json!({"type": "array", "items": T::schema()}))
    }
}

impl<T: Schema> Schema for BTreeMap<String, T> {
    fn schema() -> Map<String, Value> {
        object(json!({"type": "object", "additionalProperties": T::schema()}))
    }
}

impl<T: Schema> Schema for BTreeSet<T> {
    fn schema() -> Map<String, Value> {
        object(json!({"type": "array", "items": T::schema()}))
    }
}

/// Collects the properties of one struct; used by the generated code.
#[derive(Debug)]
pub struct ObjectBuilder {
    description: &'static str,
    properties: Map<String, Value>,
    required: Vec<Value>,
}

impl ObjectBuilder {
    /// Starts an object schema with this description.
    #[must_use]
    pub fn new(description: &'static str) -> Self {
        Self { description, properties: Map::new(), required: Vec::new() }
    }

    /// Adds a property. The field's own doc comment takes precedence over its type's.
    pub fn field(&mut self, name: &str, description: &str, required: bool, mut schema: Map<String, Value>) {
        if !description.is_empty() {
            schema.insert("description".into(), description.into());
        }
        if required {
            self.required.push(name.into());
        }
        self.properties.insert(name.to_owned(), Value::Object(schema));
    }

    /// The finished schema.
    #[must_use]
    pub fn build(self) -> Map<String, Value> {
        let mut schema = Map::new();
        if !self.description.is_empty() {
            schema.insert("description".into(), self.description.into());
        }
        schema.insert("type".into(), "object".into());
        if !self.properties.is_empty() {
            schema.insert("properties".into(), Value::Object(self.properties));
        }
        if !self.required.is_empty() {
            schema.insert("required".into(), Value::Array(self.required));
        }
        schema
    }
}

/// Sets one limit on a field; used by the generated code.
pub fn limit(field: &mut Map<String, Value>, keyword: &str, value: Value) {
    field.insert(keyword.to_owned(), value);
}

/// Sets one limit on a list's items; used by the generated code.
pub fn limit_items(field: &mut Map<String, Value>, keyword: &str, value: Value) {
    if let Some(Value::Object(items)) = field.get_mut("items") {
        items.insert(keyword.to_owned(), value);
    }
}

/// Sets the list type (`set`, `atomic`, or `map:KEY,KEY`); used by the generated code.
pub fn list_type(field: &mut Map<String, Value>, list: &str) {
    let (name, keys) = list.split_once(':').unwrap_or((list, ""));
    field.insert("x-kubernetes-list-type".into(), name.into());
    if !keys.is_empty() {
        let keys: Vec<Value> = keys.split(',').map(Value::from).collect();
        field.insert("x-kubernetes-list-map-keys".into(), Value::Array(keys));
    }
}

/// Sets the default, given as JSON text; used by the generated code.
pub fn default_value(field: &mut Map<String, Value>, text: &str) {
    // A default that is not JSON is a bug in our own source: fall back to a plain string, which the CRD test detects.
    let value = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
    field.insert("default".into(), value);
}

/// The schema of a whole object of this kind: `apiVersion`, `kind`, `metadata`, `spec` and, if any, `status`. Built
/// once per process and kind.
#[must_use]
pub fn for_kind(kind: Kind) -> &'static Map<String, Value> {
    static BUILT: [OnceLock<Map<String, Value>>; Kind::ALL.len()] =
        [const { OnceLock::new() }; Kind::ALL.len()];
    BUILT[kind as usize].get_or_init(|| crate::object::schema_of(kind))
}

/// The schema of a property of an object schema; the empty schema, which allows everything, if there is none.
#[must_use]
pub fn property<'a>(schema: &'a Map<String, Value>, name: &str) -> Option<&'a Map<String, Value>> {
    schema.get("properties")?.get(name)?.as_object()
}
