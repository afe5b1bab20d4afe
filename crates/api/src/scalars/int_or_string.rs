//! A field that contains either an integer or a string, kept in the form in which it was written.

use crate::schema::{Schema, object};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value, json};
use std::fmt;

/// A whole number or a string.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IntOrString {
    /// A number.
    Int(i64),
    /// A string.
    String(String),
}

impl Default for IntOrString {
    fn default() -> Self {
        Self::Int(0)
    }
}

impl From<i64> for IntOrString {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<&str> for IntOrString {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl fmt::Display for IntOrString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(number) => number.fmt(f),
            Self::String(text) => f.write_str(text),
        }
    }
}

impl Serialize for IntOrString {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Int(number) => serializer.serialize_i64(*number),
            Self::String(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for IntOrString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_either(deserializer, Self::Int, |text| Self::String(text.to_owned()))
    }
}

/// Reads an integer or a string and converts it.
pub(super) fn read_either<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    number: fn(i64) -> T,
    text: fn(&str) -> T,
) -> Result<T, D::Error> {
    deserializer.deserialize_any(Either { number, text })
}

struct Either<T> {
    number: fn(i64) -> T,
    text: fn(&str) -> T,
}

impl<T> de::Visitor<'_> for Either<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number or a string")
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        Ok((self.number)(number))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        let small = i64::try_from(number);
        small
            .map(self.number)
            .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(number), &"a whole number or a string"))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        Ok((self.text)(text))
    }
}

impl Schema for IntOrString {
    fn schema() -> Map<String, Value> {
        object(json!({
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": true,
        }))
    }
}

/// The schema of Calico's own number-or-text types, which have a pattern that matches everything.
pub(super) fn with_open_pattern() -> Map<String, Value> {
    let mut schema = IntOrString::schema();
    schema.insert("pattern".into(), "^.*".into());
    schema
}
