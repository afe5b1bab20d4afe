//! Converts objects to other forms of JSON and back, through their text.
//!
//! `serde` generates code for every pair of a type and a reader, or a type and a writer. With thirty kinds of objects,
//! one more reader is a megabyte of program. So objects are only read and written as text, and other forms are
//! converted from the text. That costs microseconds per object, for values that a person or an API client waits for:
//! feeds read and write text anyway.

use super::to_go_json;
use serde::de::{DeserializeOwned, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Error, Number, Value};
use std::fmt;

/// The JSON value of an object, or of a part of one.
///
/// # Errors
/// Never for objects of our types; the signature is serde's.
pub fn to_value<T: Serialize + ?Sized>(object: &T) -> Result<Value, Error> {
    serde_json::from_slice(&to_go_json(object)?)
}

/// Reads a part of an object from a JSON value.
///
/// # Errors
/// When a field holds a value of the wrong type.
pub fn from_value<T: DeserializeOwned>(value: &Value) -> Result<T, Error> {
    serde_json::from_str(&value.to_string()).map_err(without_place)
}

/// The error without its position in an intermediate text.
pub(crate) fn without_place(error: Error) -> Error {
    let place = format!(" at line {} column {}", error.line(), error.column());
    match error.to_string().strip_suffix(&place) {
        Some(text) => Error::custom(text),
        None => error,
    }
}

/// A JSON value whose fields keep the order of the text.
pub(crate) enum Ordered {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Ordered>),
    Fields(Vec<(String, Ordered)>),
}

impl Serialize for Ordered {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(value) => value.serialize(serializer),
            Self::Text(value) => serializer.serialize_str(value),
            Self::List(items) => serializer.collect_seq(items),
            Self::Fields(fields) => serializer.collect_map(fields.iter().map(|(name, value)| (name, value))),
        }
    }
}

impl<'de> Deserialize<'de> for Ordered {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Ordered;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any JSON value")
            }

            fn visit_unit<E>(self) -> Result<Ordered, E> {
                Ok(Ordered::Null)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Ordered, E> {
                Ok(Ordered::Bool(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Ordered, E> {
                Ok(Ordered::Number(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Ordered, E> {
                Ok(Ordered::Number(value.into()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Ordered, E> {
                Ok(Number::from_f64(value).map_or(Ordered::Null, Ordered::Number))
            }

            fn visit_str<E>(self, value: &str) -> Result<Ordered, E> {
                Ok(Ordered::Text(value.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Ordered, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    items.push(item);
                }
                Ok(Ordered::List(items))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ordered, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Ordered::Fields(fields))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::{Ordered, from_value, to_value};
    use crate::{IPPoolSpec, Kind, Resource};
    use serde_json::json;

    #[test]
    fn other_forms_keep_field_order_and_values() {
        let text =
            r#"{"z":[1,-2,1.5,1e300,18446744073709551615,null,true],"a":{"é&<":"x\u0000\"y"},"m":{},"e":[]}"#;
        let ordered: Ordered = serde_json::from_str(text).unwrap();
        let compact = serde_json::to_string(&ordered).unwrap();
        assert_eq!(compact, text.replace("1e300", "1e+300"));
        assert_eq!(
            serde_json::to_value(&ordered).unwrap(),
            serde_json::from_str::<serde_json::Value>(text).unwrap()
        );
    }

    #[test]
    fn a_resource_is_the_same_in_every_form() {
        let value = json!({
            "kind": "IPPool", "apiVersion": "projectcalico.org/v3",
            "metadata": {"name": "a<b", "labels": {"z": "1", "a": "2"}},
            "spec": {"cidr": "10.0.0.0/16", "blockSize": 26, "later": [1.0, {"x": null}]},
        });
        let resource = Resource::from_value(Kind::IPPool, value.clone()).unwrap();
        assert_eq!(serde_json::to_value(&resource).unwrap()["spec"]["later"], value["spec"]["later"]);
        assert_eq!(to_value(&resource).unwrap(), serde_json::to_value(&resource).unwrap());
        let text = String::from_utf8(resource.to_json().unwrap()).unwrap();
        assert!(text.contains(r"a\u003cb"), "{text}");
        // The same text except for what only Go escapes.
        assert_eq!(serde_json::to_string(&resource).unwrap(), text.replace(r"\u003c", "<"));
        let read: Resource = Resource::from_json(Kind::IPPool, text.as_bytes()).unwrap();
        assert_eq!(read, resource);
    }

    #[test]
    fn errors_name_the_fault_without_a_place_in_an_intermediate_text() {
        let wrong = json!({"blockSize": "many"});
        let error = from_value::<IPPoolSpec>(&wrong).unwrap_err().to_string();
        assert_eq!(error, serde_json::from_value::<IPPoolSpec>(wrong.clone()).unwrap_err().to_string());
        let error = Resource::from_value(Kind::IPPool, json!({ "spec": wrong })).unwrap_err().to_string();
        assert!(error.contains("invalid type: string") && !error.contains("line"), "{error}");
        let broken = b"{\"metadata\": {\"name\": \"a\xff\"}}";
        assert!(Resource::from_json(Kind::IPPool, broken).is_err());
    }
}
