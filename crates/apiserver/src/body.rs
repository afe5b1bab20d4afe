//! Decodes the bodies of requests: JSON or YAML to an object of a kind. Unknown and duplicate fields are handled as the
//! request specifies.
//!
//! Whatever a body contains, it never yields an object of another kind, name or namespace than its path.

use crate::kinds::{Served, VERSION};
use crate::request::{FieldValidation, Target};
use crate::status::{Outcome, Refusal};
use api::kind::API_VERSION;
use api::schema::{Schema as _, for_kind, property};
use api::{FieldPath, ObjectMeta, Resource};
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, json};
use std::fmt;
use std::sync::OnceLock;

/// The longest body that is accepted; Kubernetes' own limit.
pub(crate) const LIMIT: usize = 3 << 20;

/// Parses a body into a value and the paths of its duplicate fields.
///
/// # Errors
/// When it is neither JSON nor YAML.
pub(crate) fn read(content_type: &str, bytes: &[u8]) -> Outcome<(Value, Vec<String>)> {
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    match media_type {
        "" | "application/json" | "*/*" => from_json(bytes),
        "application/yaml" | "application/x-yaml" | "text/yaml" => {
            from_yaml(bytes).map(|value| (value, Vec::new()))
        }
        _ => Err(Refusal::media_type(&["application/json", "application/yaml"])),
    }
}

/// Parses JSON into a value and the paths of its duplicate fields.
///
/// # Errors
/// When it is not JSON.
pub(crate) fn from_json(bytes: &[u8]) -> Outcome<(Value, Vec<String>)> {
    let mut twice = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let seed = Tracked { path: FieldPath::root(), twice: &mut twice };
    let value = seed.deserialize(&mut deserializer).and_then(|value| deserializer.end().map(|()| value));
    value
        .map(|value| (value, twice))
        .map_err(|error| Refusal::bad_request(format!("couldn't read the body: {error}")))
}

/// Parses YAML (or JSON) into a value.
///
/// # Errors
/// When it is neither, or has more than one document.
pub(crate) fn from_yaml(bytes: &[u8]) -> Outcome<Value> {
    use saphyr::{LoadableYamlNode as _, Yaml};
    if let Ok(value) = serde_json::from_slice(bytes) {
        return Ok(value);
    }
    let wrong = |why: String| Refusal::bad_request(format!("error decoding YAML: {why}"));
    let text = std::str::from_utf8(bytes).map_err(|error| wrong(error.to_string()))?;
    let documents = Yaml::load_from_str(text).map_err(|error| wrong(error.to_string()))?;
    match documents.as_slice() {
        [document] => {
            yaml_value(document).ok_or_else(|| wrong("a key is not text, or a number is too large".into()))
        }
        _ => Err(wrong("expected one document".into())),
    }
}

fn yaml_value(node: &saphyr::Yaml<'_>) -> Option<Value> {
    use saphyr::{Scalar, Yaml};
    Some(match node {
        Yaml::Value(Scalar::Null) => Value::Null,
        Yaml::Value(Scalar::Boolean(flag)) => Value::Bool(*flag),
        Yaml::Value(Scalar::Integer(number)) => Value::from(*number),
        Yaml::Value(Scalar::FloatingPoint(number)) => {
            serde_json::Number::from_f64(number.into_inner()).map(Value::Number)?
        }
        Yaml::Value(Scalar::String(text)) => Value::String(text.to_string()),
        Yaml::Sequence(items) => Value::Array(items.iter().map(yaml_value).collect::<Option<_>>()?),
        Yaml::Mapping(fields) => {
            let mut map = Map::new();
            for (name, field) in fields {
                map.insert(name.as_str()?.to_owned(), yaml_value(field)?);
            }
            Value::Object(map)
        }
        _ => return None,
    })
}

/// A decoded object and the warnings for its author.
#[derive(Debug)]
pub(crate) struct Decoded {
    /// The object.
    pub resource: Resource,
    /// The body as JSON, without unknown fields.
    pub value: Value,
    /// Warnings for the client.
    pub warnings: Vec<String>,
}

/// Decodes the object that a value describes for this target.
///
/// # Errors
/// When its kind, name or namespace is a different one, or it is not an object of the kind at all.
pub(crate) fn decode(
    target: &Target,
    mut value: Value,
    twice: &[String],
    validation: FieldValidation,
) -> Outcome<Decoded> {
    let served = target.served;
    let Value::Object(fields) = &mut value else {
        return Err(cannot_be(served, "expected an object"));
    };
    for (field, wanted) in [("apiVersion", API_VERSION), ("kind", served.kind.as_str())] {
        match fields.get(field).and_then(Value::as_str) {
            None | Some("") => {
                fields.insert(field.into(), wanted.into());
            }
            Some(found) if found == wanted => {}
            Some(found) if field == "kind" => {
                return Err(Refusal::bad_request(format!(
                    "{found} in version {VERSION:?} cannot be handled as a {wanted}: the kind in the data ({found}) does not \
                     match the expected kind ({wanted})"
                )));
            }
            Some(found) => {
                return Err(Refusal::bad_request(format!(
                    "the API version in the data ({found}) does not match the expected API version ({wanted})"
                )));
            }
        }
    }
    let mut unknown = Vec::new();
    prune(object_schema(served), &mut value, &FieldPath::root(), &mut unknown);
    let mut problems: Vec<String> = twice.iter().map(|path| format!("duplicate field \"{path}\"")).collect();
    problems.extend(unknown.iter().map(|path| format!("unknown field \"{path}\"")));
    if validation == FieldValidation::Strict && !problems.is_empty() {
        return Err(cannot_be(served, &format!("strict decoding error: {}", problems.join(", "))));
    }
    if validation == FieldValidation::Ignore {
        problems.clear();
    }
    let mut resource = Resource::from_value(served.kind, value.clone())
        .map_err(|error| cannot_be(served, &error.to_string()))?;
    let metadata = resource.metadata_mut();
    if !target.name.is_empty() {
        if metadata.name.is_empty() {
            target.name.clone_into(&mut metadata.name);
        } else if metadata.name != target.name {
            return Err(Refusal::bad_request(format!(
                "the name of the object ({}) does not match the name on the URL ({})",
                metadata.name, target.name
            )));
        }
    }
    if metadata.namespace.is_empty() {
        target.namespace.clone_into(&mut metadata.namespace);
    } else if metadata.namespace != target.namespace {
        return Err(Refusal::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(Decoded { resource, value, warnings: problems })
}

fn cannot_be(served: &Served, why: &str) -> Box<Refusal> {
    let kind = served.kind;
    Refusal::bad_request(format!("{kind} in version {VERSION:?} cannot be handled as a {kind}: {why}"))
}

/// The schema of a whole object including its metadata.
#[must_use]
pub(crate) fn object_schema(served: &Served) -> &'static Map<String, Value> {
    static BUILT: [OnceLock<Map<String, Value>>; crate::kinds::SERVED.len()] =
        [const { OnceLock::new() }; crate::kinds::SERVED.len()];
    BUILT[served.index()].get_or_init(|| {
        let mut metadata = ObjectMeta::schema();
        if let Some(Value::Object(properties)) = metadata.get_mut("properties") {
            let anything = json!({"type": "array", "items": {"x-kubernetes-preserve-unknown-fields": true}});
            properties.insert("managedFields".into(), anything);
        }
        let mut schema = for_kind(served.kind).clone();
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            properties.insert("metadata".into(), Value::Object(metadata));
        }
        schema
    })
}

/// Removes fields that are not in the schema, and records their paths.
fn prune(schema: &Map<String, Value>, value: &mut Value, path: &FieldPath, unknown: &mut Vec<String>) {
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true)) {
        return;
    }
    match value {
        Value::Object(fields) => {
            let other = schema.get("additionalProperties");
            if other.is_none() && !schema.contains_key("properties") {
                return;
            }
            fields.retain(|name, field| {
                let path = path.child(name);
                if let Some(known) = property(schema, name) {
                    prune(known, field, &path, unknown);
                    return true;
                }
                match other {
                    Some(Value::Object(other)) => {
                        prune(other, field, &path, unknown);
                        true
                    }
                    Some(Value::Bool(true)) => true,
                    _ => {
                        unknown.push(path.to_string());
                        false
                    }
                }
            });
        }
        Value::Array(items) => {
            if let Some(Value::Object(item)) = schema.get("items") {
                for (place, value) in items.iter_mut().enumerate() {
                    prune(item, value, &path.index(place), unknown);
                }
            }
        }
        _ => {}
    }
}

/// Reads a value and records duplicate fields.
struct Tracked<'a> {
    path: FieldPath,
    twice: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Tracked<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tracked<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let seed = Tracked { path: self.path.index(list.len()), twice: self.twice };
            match items.next_element_seed(seed)? {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let path = self.path.child(&name);
            let value = fields.next_value_seed(Tracked { path: path.clone(), twice: self.twice })?;
            if map.insert(name, value).is_some() {
                self.twice.push(path.to_string());
            }
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Route;

    fn tier(text: &str, validation: FieldValidation) -> Outcome<Decoded> {
        let Route::Objects(target) = Route::of("/apis/projectcalico.org/v3/tiers/t") else { panic!() };
        let (value, twice) = from_json(text.as_bytes())?;
        decode(&target, value, &twice, validation)
    }

    #[test]
    fn unknown_and_duplicate_fields_are_reported() {
        let text =
            r#"{"metadata":{"name":"t"},"spec":{"order":1,"order":2,"oder":3,"defaultAction":"Deny"}}"#;
        let refusal = tier(text, FieldValidation::Strict).unwrap_err();
        assert_eq!(refusal.code, 400);
        assert!(
            refusal.message.ends_with("duplicate field \"spec.order\", unknown field \"spec.oder\""),
            "{refusal:?}"
        );
        let warned = tier(text, FieldValidation::Warn).unwrap();
        assert_eq!(warned.warnings.len(), 2);
        assert_eq!(warned.value["spec"], json!({"order": 2, "defaultAction": "Deny"}));
        assert!(tier(text, FieldValidation::Ignore).unwrap().warnings.is_empty());
    }

    #[test]
    fn a_body_must_match_its_path() {
        for (text, expected) in [
            (r#"{"spec":{}}"#, Ok(())),
            (r#"{"kind":"Tier","apiVersion":"projectcalico.org/v3","metadata":{"name":"t"}}"#, Ok(())),
            (r#"{"kind":"IPPool"}"#, Err("the kind in the data (IPPool)")),
            (r#"{"apiVersion":"v1"}"#, Err("the API version in the data (v1)")),
            (r#"{"metadata":{"name":"other"}}"#, Err("does not match the name on the URL (t)")),
            (r#"{"metadata":{"namespace":"n"}}"#, Err("namespace")),
            (r#"{"spec":{"order":[]}}"#, Err("cannot be handled as a Tier")),
            ("[]", Err("expected an object")),
            ("{", Err("couldn't read the body")),
        ] {
            let found = tier(text, FieldValidation::Warn);
            match (found, expected) {
                (Ok(_), Ok(())) => {}
                (Err(refusal), Err(part)) => {
                    assert!(refusal.message.contains(part), "{text}: {}", refusal.message);
                }
                (found, expected) => panic!("{text}: {found:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn yaml_is_read() {
        let value = from_yaml(b"kind: Tier\nspec:\n  order: 1.5\n  list: [a, 2, true, null]\n").unwrap();
        assert_eq!(value, json!({"kind": "Tier", "spec": {"order": 1.5, "list": ["a", 2, true, null]}}));
        assert!(from_yaml(b"a: b\n---\nc: d\n").is_err() && from_yaml(b"1: b\n").is_err());
    }
}
