//! Checks a JSON value against a structural schema, and fills in the schema's defaults, like a kube-apiserver.
//!
//! Covers the keywords that our schemas use: types, enums, patterns, ranges, lengths, required fields. It does not run
//! CEL: the rules have Rust equivalents (see [`crate::rules`]). Nor does it check for unknown fields, which is done
//! where users' files are read, or for duplicate items of lists: Calico's client accepts those, and only a Kubernetes
//! API server refuses them.

use crate::errors::{FieldErrors, FieldPath};
use regex::Regex;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Adds an error for each place where `value` violates `schema`.
pub fn check(schema: &Map<String, Value>, value: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if value.is_null() {
        // A null means "not set" to Go and, in a field that is not nullable, to the API server's pruning.
        return;
    }
    if !type_matches(schema, value) {
        errors.add(path.clone(), plain(value), format!("must be {}", wanted_type(schema)));
        return;
    }
    if let Some(Value::Array(allowed)) = schema.get("enum")
        && !allowed.contains(value)
    {
        let names: Vec<String> = allowed.iter().map(plain).collect();
        errors.add(path.clone(), plain(value), format!("must be one of: {}", names.join(", ")));
    }
    match value {
        Value::String(text) => check_text(schema, text, path, errors),
        Value::Number(number) => check_number(schema, number, path, errors),
        Value::Array(items) => check_list(schema, items, path, errors),
        Value::Object(fields) => check_object(schema, fields, path, errors),
        Value::Null | Value::Bool(_) => {}
    }
}

/// Fills in the defaults of `schema` for everything that `value` lacks, at every depth.
pub fn apply_defaults(schema: &Map<String, Value>, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::Object(properties)) = schema.get("properties") {
                for (name, property) in properties {
                    let Some(property) = property.as_object() else { continue };
                    if let Some(default) = property.get("default")
                        && fields.get(name).is_none_or(Value::is_null)
                    {
                        fields.insert(name.clone(), default.clone());
                    }
                    if let Some(field) = fields.get_mut(name) {
                        apply_defaults(property, field);
                    }
                }
            }
        }
        Value::Array(items) => {
            if let Some(Value::Object(item_schema)) = schema.get("items") {
                for item in items {
                    apply_defaults(item_schema, item);
                }
            }
        }
        _ => {}
    }
}

fn is_int_or_string(schema: &Map<String, Value>) -> bool {
    schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true))
}

fn type_matches(schema: &Map<String, Value>, value: &Value) -> bool {
    if is_int_or_string(schema) {
        return value.is_string() || value.is_i64() || value.is_u64();
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => {
            value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0)
        }
        Some("number") => value.is_number(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => true,
    }
}

fn wanted_type(schema: &Map<String, Value>) -> &'static str {
    if is_int_or_string(schema) {
        return "a number or a string";
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("string") => "a string",
        Some("boolean") => "true or false",
        Some("integer") => "a whole number",
        Some("number") => "a number",
        Some("array") => "a list",
        _ => "a map",
    }
}

fn check_text(schema: &Map<String, Value>, text: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let length = || u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
    if let Some(max) = schema.get("maxLength").and_then(Value::as_u64)
        && length() > max
    {
        errors.add(path.clone(), shorten(text), format!("must be at most {max} {} long", characters(max)));
    }
    if let Some(min) = schema.get("minLength").and_then(Value::as_u64)
        && length() < min
    {
        errors.add(path.clone(), text, format!("must be at least {min} {} long", characters(min)));
    }
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str)
        && !matches(pattern, text)
    {
        errors.add(path.clone(), shorten(text), in_words(pattern));
    }
}

fn characters(count: u64) -> &'static str {
    if count == 1 { "character" } else { "characters" }
}

fn check_number(
    schema: &Map<String, Value>,
    number: &serde_json::Number,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let Some(value) = number.as_f64() else { return };
    if let Some(min) = schema.get("minimum").and_then(Value::as_f64)
        && value < min
    {
        errors.add(path.clone(), number, format!("must be at least {min}"));
    }
    if let Some(max) = schema.get("maximum").and_then(Value::as_f64)
        && value > max
    {
        errors.add(path.clone(), number, format!("must be at most {max}"));
    }
}

fn check_list(schema: &Map<String, Value>, items: &[Value], path: &FieldPath, errors: &mut FieldErrors) {
    let count = u64::try_from(items.len()).unwrap_or(u64::MAX);
    if let Some(max) = schema.get("maxItems").and_then(Value::as_u64)
        && count > max
    {
        errors.add(path.clone(), count_of(count), format!("must have at most {}", count_of(max)));
    }
    if let Some(min) = schema.get("minItems").and_then(Value::as_u64)
        && count < min
    {
        errors.add(path.clone(), count_of(count), format!("must have at least {}", count_of(min)));
    }
    if let Some(Value::Object(item_schema)) = schema.get("items") {
        for (index, item) in items.iter().enumerate() {
            check(item_schema, item, &path.index(index), errors);
        }
    }
}

fn count_of(items: u64) -> String {
    if items == 1 { "1 item".to_owned() } else { format!("{items} items") }
}

fn check_object(
    schema: &Map<String, Value>,
    fields: &Map<String, Value>,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    if let Some(Value::Array(required)) = schema.get("required") {
        for name in required.iter().filter_map(Value::as_str) {
            if !fields.contains_key(name) {
                errors.add(path.child(name), "", "is required");
            }
        }
    }
    if let Some(Value::Object(properties)) = schema.get("properties") {
        for (name, value) in fields {
            if let Some(Value::Object(property)) = properties.get(name) {
                check(property, value, &path.child(name), errors);
            }
        }
    } else if let Some(Value::Object(entry_schema)) = schema.get("additionalProperties") {
        for (name, value) in fields {
            check(entry_schema, value, &path.key(name), errors);
        }
    }
}

/// A description of the text that a pattern requires, where its form can be put into words.
fn in_words(pattern: &str) -> String {
    let words = pattern.strip_prefix("^(?i)(").and_then(|rest| rest.strip_suffix(")?$"));
    match words {
        Some(words) if words.chars().all(|c| c.is_ascii_alphanumeric() || c == '|') => {
            format!("must be one of: {} (in any case)", words.replace('|', ", "))
        }
        _ if pattern.ends_with("(ms|s|m|h))*$") => "must be a duration such as 90s or 1h30m".to_owned(),
        _ => format!("must match the pattern {}", shorten(pattern)),
    }
}

/// Whether `text` matches; patterns are compiled once per process. A pattern of ours that does not compile is a bug
/// that the schema test finds; here the text is then refused rather than accepted.
fn matches(pattern: &str, text: &str) -> bool {
    static COMPILED: OnceLock<Mutex<HashMap<String, Option<Regex>>>> = OnceLock::new();
    let compiled = COMPILED.get_or_init(Mutex::default);
    let mut compiled = compiled.lock().unwrap_or_else(PoisonError::into_inner);
    compiled
        .entry(pattern.to_owned())
        .or_insert_with(|| Regex::new(pattern).ok())
        .as_ref()
        .is_some_and(|regex| regex.is_match(text))
}

/// The value as a user would write it.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => shorten(text),
        other => shorten(&other.to_string()),
    }
}

fn shorten(text: &str) -> String {
    if text.chars().count() <= 120 {
        text.to_owned()
    } else {
        text.chars().take(117).collect::<String>() + "..."
    }
}
