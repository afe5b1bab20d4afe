//! Walks an object against its kind's schema: each value is converted to the type that the schema requires, and
//! everything that does not fit is reported, without stopping there.
//!
//! Limits (lengths, ranges, patterns) and rules between fields are not checked here; they need the whole object. A
//! value reported here is omitted from the JSON, so that those checks do not report it again.

use crate::document::Checks;
use crate::document::kinds::Object;
use crate::document::report::{Diagnostic, Diagnostics};
use crate::document::scalar::{Meaning, as_text, meaning};
use crate::document::source::Span;
use crate::document::suggest::{for_unknown_field, nearest, other_end};
use crate::document::trail::Trail;
use crate::document::tree::{Content, Entry, Node, Scalar};
use crate::kind::API_VERSION;
use crate::meta::ObjectMeta;
use crate::scalars::ASNumber;
use crate::schema::{READS, Schema as _, for_kind, object as json_object};
use serde_json::{Map, Number, Value, json};
use std::collections::HashSet;
use std::sync::OnceLock;

/// After this many mistakes no more names are suggested: the file is something else entirely, and searching for the
/// nearest name is the slow part.
const MAX_SUGGESTIONS: usize = 200;

type SchemaMap = Map<String, Value>;

/// The object as JSON; mistakes go to `diagnostics`.
pub(super) fn object(object: &Object, checks: Checks, diagnostics: &mut Diagnostics) -> Value {
    let mut walk = Walk { diagnostics, checks, ancestors: Vec::new() };
    let schema = for_kind(object.kind);
    let mut value = match walk.map(schema, &object.node, &Trail::Root) {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    // Items of a typed list need not repeat the list's kind.
    value.entry("kind").or_insert_with(|| object.kind.as_str().into());
    value.entry("apiVersion").or_insert_with(|| API_VERSION.into());
    Value::Object(value)
}

/// Converts a value of any schema to JSON, if possible; mistakes go to `diagnostics`.
pub(super) fn plain(schema: &'static SchemaMap, node: &Node, diagnostics: &mut Diagnostics) -> Option<Value> {
    let mut walk = Walk { diagnostics, checks: Checks::Everything, ancestors: Vec::new() };
    walk.value(schema, node, &Trail::Root)
}

/// The metadata schema of a CRD is just a map, because the API server knows the rest.
fn metadata_schema() -> &'static SchemaMap {
    static BUILT: OnceLock<SchemaMap> = OnceLock::new();
    BUILT.get_or_init(|| {
        let mut schema = ObjectMeta::schema();
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            // Written by the API server, and part of what `kubectl get -o yaml` prints.
            let anything = json!({"type": "array", "items": {"x-kubernetes-preserve-unknown-fields": true}});
            properties.insert("managedFields".into(), anything);
        }
        schema
    })
}

struct Walk<'a> {
    diagnostics: &'a mut Diagnostics,
    checks: Checks,
    /// The maps around the current one, by name, for suggestions.
    ancestors: Vec<(String, &'static SchemaMap)>,
}

impl Walk<'_> {
    fn report(&mut self, node: &Node, trail: &Trail<'_>, message: String, help: Option<String>) {
        let mut diagnostic = Diagnostic::new(node.first_span(), trail.path(), message);
        if let Some(help) = help {
            diagnostic = diagnostic.with_help(help);
        }
        self.diagnostics.add(diagnostic);
    }

    fn warn(&mut self, span: Span, trail: &Trail<'_>, message: String, help: String) {
        self.diagnostics.warn(Diagnostic::new(span, trail.path(), message).with_help(help));
    }

    /// The value as JSON, or `None` if it is null or was reported.
    fn value(&mut self, schema: &'static SchemaMap, node: &Node, trail: &Trail<'_>) -> Option<Value> {
        if node.is_null() {
            return None;
        }
        if is_true(schema, "x-kubernetes-int-or-string") {
            return self.int_or_string(node, trail);
        }
        match schema.get("type").and_then(Value::as_str) {
            Some("object") => match &node.content {
                Content::Map(_) => Some(self.map(schema, node, trail)),
                _ => self.wrong_type(
                    node,
                    trail,
                    "a map",
                    Some("write its fields on lines of their own, indented".into()),
                ),
            },
            Some("array") => match &node.content {
                Content::List(items) => self.list(schema, items, trail),
                Content::Scalar(scalar) => {
                    let help = format!("write it as a list: [{}]", shorten(&scalar.text));
                    self.wrong_type(node, trail, "a list", Some(help))
                }
                Content::Map(_) => {
                    self.wrong_type(node, trail, "a list", Some("begin each item with `- `".into()))
                }
            },
            Some("string") => self.text(schema, node, trail),
            Some("boolean") => self.boolean(node, trail),
            Some("integer") => self.integer(schema, node, trail),
            Some("number") => self.number(node, trail),
            _ => self.anything(node, trail),
        }
    }

    fn wrong_type(
        &mut self,
        node: &Node,
        trail: &Trail<'_>,
        expected: &str,
        help: Option<String>,
    ) -> Option<Value> {
        self.report(node, trail, format!("expected {expected}, found {}", node.describe()), help);
        None
    }

    fn map(&mut self, schema: &'static SchemaMap, node: &Node, trail: &Trail<'_>) -> Value {
        let Content::Map(entries) = &node.content else { return Value::Null };
        let properties = schema.get("properties").and_then(Value::as_object);
        let open = schema.get("additionalProperties").and_then(Value::as_object);
        let keeps_unknown = is_true(schema, "x-kubernetes-preserve-unknown-fields");
        let mut fields = Map::new();
        let mut seen = HashSet::with_capacity(entries.len());
        let mut misspelt: Vec<&str> = Vec::new();
        let depth = self.ancestors.len();
        if properties.is_some() {
            let name = match trail {
                Trail::Field(_, name) => (*name).to_owned(),
                _ => String::new(),
            };
            self.ancestors.push((name, schema));
        }
        for entry in entries {
            let known = properties.and_then(|known| spelled(known, &entry.key.text));
            let name = known.map_or(entry.key.text.as_str(), |(name, _)| name);
            if !seen.insert(name) {
                // Fields from a merge key give way to those of the map itself, in whatever case.
                if !entry.merged {
                    self.given_twice(entry, name, trail);
                }
                continue;
            }
            let value = if let Some((_, property)) = known {
                if name != entry.key.text {
                    self.other_case(entry, name, trail);
                }
                let property = if matches!(trail, Trail::Root) && name == "metadata" {
                    metadata_schema()
                } else {
                    property
                };
                self.value(property, &entry.value, &Trail::Field(trail, name))
            } else if let Some(entry_schema) = open {
                let Some(key) = self.key(entry, trail) else { continue };
                // A label without a value is a label with an empty value, also to Go.
                let value = if entry.value.is_null() {
                    Some(placeholder(entry_schema))
                } else {
                    self.value(entry_schema, &entry.value, &Trail::Entry(trail, name))
                };
                if let Some(value) = value
                    && fields.insert(key, value).is_some()
                {
                    self.given_twice(entry, name, trail);
                }
                continue;
            } else if keeps_unknown || properties.is_none() {
                self.anything(&entry.value, &Trail::Field(trail, name))
            } else {
                if let Some(meant) = self.unknown_field(schema, entry, trail) {
                    // It is present, only misspelt: do not also report it as missing.
                    misspelt.push(meant);
                }
                None
            };
            if let Some(value) = value {
                fields.insert(name.to_owned(), value);
            }
        }
        self.ancestors.truncate(depth);
        // A required field without a value is missing.
        for entry in entries.iter().filter(|entry| entry.value.is_null()) {
            let known = properties.and_then(|known| spelled(known, &entry.key.text));
            seen.remove(known.map_or(entry.key.text.as_str(), |(name, _)| name));
        }
        seen.extend(misspelt);
        // A file for a delete need not be complete, and a missing `spec` is read as an empty one.
        if self.checks == Checks::Everything && !matches!(trail, Trail::Root) {
            self.check_required(schema, node, &seen, trail);
        }
        Value::Object(fields)
    }

    /// Reports a field that the schema does not have, and returns the name that was probably meant.
    fn unknown_field<'s>(
        &mut self,
        schema: &'s SchemaMap,
        entry: &Entry,
        trail: &Trail<'_>,
    ) -> Option<&'s str> {
        let name = &entry.key.text;
        if self.diagnostics.len() >= MAX_SUGGESTIONS {
            let message = format!("unknown field `{}`", shorten(name));
            self.diagnostics.add(Diagnostic::new(entry.key_span, Trail::Field(trail, name).path(), message));
            return None;
        }
        let around = self.ancestors.len().saturating_sub(1);
        let ancestors: Vec<(&str, &SchemaMap)> =
            self.ancestors[..around].iter().map(|(name, schema)| (name.as_str(), *schema)).collect();
        let path = Trail::Field(trail, name).path();
        let (help, meant) = match other_end(name, path.as_str()) {
            Some((help, meant))
                if schema.get("properties").is_some_and(|known| known.get(meant).is_some()) =>
            {
                (help, Some(meant))
            }
            _ => for_unknown_field(name, schema, &ancestors),
        };
        let message = format!("unknown field `{}`", shorten(name));
        self.diagnostics.add(Diagnostic::new(entry.key_span, path, message).with_help(help));
        meant
    }

    fn check_required(&mut self, schema: &SchemaMap, node: &Node, seen: &HashSet<&str>, trail: &Trail<'_>) {
        let Some(required) = schema.get("required").and_then(Value::as_array) else { return };
        // Go has no missing booleans and structs: they are false and empty, and Calico's tool stores them as such.
        let has_zero = |name: &str| {
            let kind = schema
                .get("properties")
                .and_then(|fields| fields.get(name))
                .and_then(|field| field.get("type"));
            matches!(kind.and_then(Value::as_str), Some("boolean" | "object"))
        };
        for name in required.iter().filter_map(Value::as_str) {
            if !seen.contains(name) && !has_zero(name) {
                let span = node.find("").map_or(node.span, |found| found.span);
                let path = Trail::Field(trail, name).path();
                self.diagnostics.add(Diagnostic::new(span, path, format!("missing field `{name}`")));
            }
        }
    }

    fn given_twice(&mut self, entry: &Entry, name: &str, trail: &Trail<'_>) {
        let path = Trail::Field(trail, name).path();
        let written = &entry.key.text;
        let mut diagnostic =
            Diagnostic::new(entry.key_span, path, format!("field `{}` is given twice", shorten(name)));
        if written != name {
            diagnostic = diagnostic.with_help(format!("`{}` is the same field: keep one", shorten(written)));
        }
        self.diagnostics.add(diagnostic);
    }

    /// Go accepts field names in any case, so Calico's tool does, and files that work there must work here.
    fn other_case(&mut self, entry: &Entry, name: &str, trail: &Trail<'_>) {
        let message = format!("field `{}` is read as `{name}`", entry.key.text);
        self.warn(
            entry.key_span,
            &Trail::Field(trail, name),
            message,
            format!("write `{name}`: kubectl and the Kubernetes API take no other case"),
        );
    }

    /// The key of a free-form map. Keys are text too: Go reads `yes` and writes `true`.
    fn key(&mut self, entry: &Entry, trail: &Trail<'_>) -> Option<String> {
        let written = entry.key.text.as_str();
        if !entry.key.plain {
            return Some(written.to_owned());
        }
        let trail = Trail::Entry(trail, written);
        match as_text(written) {
            Some(read) => {
                if read != written {
                    self.warn(entry.key_span, &trail, read_as(written, &read), quote(written));
                }
                Some(read.into_owned())
            }
            None => {
                let message = "expected text, found nothing".to_owned();
                let diagnostic = Diagnostic::new(entry.key_span, trail.path(), message);
                self.diagnostics.add(diagnostic.with_help(quote(written)));
                None
            }
        }
    }

    fn list(
        &mut self,
        schema: &'static SchemaMap,
        items: &[std::sync::Arc<Node>],
        trail: &Trail<'_>,
    ) -> Option<Value> {
        static ANYTHING: OnceLock<SchemaMap> = OnceLock::new();
        let item_schema = match schema.get("items").and_then(Value::as_object) {
            Some(item_schema) => item_schema,
            None => ANYTHING.get_or_init(|| json_object(json!({}))),
        };
        let mut values = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let trail = Trail::Item(trail, index);
            let before = self.diagnostics.len();
            match self.value(item_schema, item, &trail) {
                Some(value) => values.push(value),
                None if self.diagnostics.len() > before => values.push(placeholder(item_schema)),
                None => {
                    self.report(item, &trail, "this item is empty".into(), None);
                    values.push(placeholder(item_schema));
                }
            }
        }
        if schema.get("x-kubernetes-list-type").and_then(Value::as_str) == Some("set") {
            self.warn_of_repetitions(&values, items, trail);
        }
        Some(Value::Array(values))
    }

    fn warn_of_repetitions(&mut self, values: &[Value], items: &[std::sync::Arc<Node>], trail: &Trail<'_>) {
        let mut seen = HashSet::with_capacity(values.len());
        for (index, (value, item)) in values.iter().zip(items).enumerate() {
            if value.as_str().is_some_and(|text| !text.is_empty() && !seen.insert(text)) {
                self.warn(
                    item.first_span(),
                    &Trail::Item(trail, index),
                    "this item is in the list already".to_owned(),
                    "remove it: a Kubernetes API server refuses a list that has an item twice".to_owned(),
                );
            }
        }
    }

    fn text(&mut self, schema: &SchemaMap, node: &Node, trail: &Trail<'_>) -> Option<Value> {
        let Content::Scalar(scalar) = &node.content else {
            return self.wrong_type(node, trail, "text", None);
        };
        let text = scalar.text.as_str();
        if let Some(Value::Array(allowed)) = schema.get("enum") {
            return self.one_of(allowed, scalar, node, trail);
        }
        if !scalar.plain {
            return Some(text.into());
        }
        if schema.get(READS).and_then(Value::as_str) == Some("text") && meaning(text) != Meaning::Text {
            // The types behind these fields only read text, also in Calico.
            let is_time = schema.get("format").and_then(Value::as_str) == Some("date-time");
            let example = if is_time {
                "a time such as 2026-11-17T08:00:00Z"
            } else {
                "a unit too, as in 90s or 1h30m"
            };
            return self.wrong_type(node, trail, "text", Some(format!("write {example}")));
        }
        let read = as_text(text)?;
        if read != text {
            self.warn(node.span, trail, read_as(text, &read), quote(text));
        }
        Some(read.into())
    }

    fn one_of(
        &mut self,
        allowed: &[Value],
        scalar: &Scalar,
        node: &Node,
        trail: &Trail<'_>,
    ) -> Option<Value> {
        let text = scalar.text.as_str();
        // Empty text means "not set", as everywhere in Calico's API.
        if text.is_empty() || allowed.iter().any(|value| value.as_str() == Some(text)) {
            return Some(text.into());
        }
        let names: Vec<&str> =
            allowed.iter().filter_map(Value::as_str).filter(|name| !name.is_empty()).collect();
        let all = names.join(", ");
        let help = match nearest(text, names.iter().copied()) {
            Some(meant) if names.len() > 1 => format!("did you mean `{meant}`? allowed: {all}"),
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("allowed: {all}"),
        };
        self.report(node, trail, format!("`{}` is not allowed here", shorten(text)), Some(help));
        None
    }

    fn boolean(&mut self, node: &Node, trail: &Trail<'_>) -> Option<Value> {
        if let Content::Scalar(scalar) = &node.content {
            if let (true, Meaning::Bool(value)) = (scalar.plain, meaning(&scalar.text)) {
                return Some(value.into());
            }
            let unquoted = matches!(meaning(&scalar.text), Meaning::Bool(_));
            let help = if unquoted { "write it without quotes" } else { "write true or false" };
            return self.wrong_type(node, trail, "true or false", Some(help.into()));
        }
        self.wrong_type(node, trail, "true or false", None)
    }

    fn integer(&mut self, schema: &SchemaMap, node: &Node, trail: &Trail<'_>) -> Option<Value> {
        if schema.get(READS).and_then(Value::as_str) == Some("as-number")
            && let Content::Scalar(scalar) = &node.content
        {
            return self.as_number(scalar, node, trail);
        }
        let value = match self.numeric(node) {
            Ok(Meaning::Integer(value)) => Value::from(value),
            Ok(Meaning::Unsigned(value)) => Value::from(value),
            Ok(Meaning::Float(value)) => match whole(value) {
                Some(value) => Value::from(value),
                None => {
                    self.report(node, trail, format!("expected a whole number, found {value}"), None);
                    return None;
                }
            },
            Ok(_) => return self.wrong_type(node, trail, "a whole number", None),
            Err(help) => return self.wrong_type(node, trail, "a whole number", help),
        };
        let narrow = schema.get("format").and_then(Value::as_str) == Some("int32");
        if narrow
            && value
                .as_i64()
                .is_none_or(|value| i32::try_from(value).is_err() && u32::try_from(value).is_err())
        {
            self.report(node, trail, format!("{value} is out of range"), None);
            return None;
        }
        Some(value)
    }

    /// The number of an autonomous system may be text, including the dotted form.
    fn as_number(&mut self, scalar: &Scalar, node: &Node, trail: &Trail<'_>) -> Option<Value> {
        let number = match (scalar.plain, meaning(&scalar.text)) {
            (true, Meaning::Integer(value)) => u32::try_from(value).ok(),
            (true, Meaning::Float(value)) => whole(value).and_then(|value| u32::try_from(value).ok()),
            (true, Meaning::Text) | (false, _) => {
                ASNumber::from_text(&scalar.text).ok().map(|number| number.0)
            }
            _ => None,
        };
        if number.is_none() {
            let dotted = scalar.plain && ASNumber::from_text(&scalar.text).is_ok();
            let help = if dotted {
                // YAML reads 1.10 and 1.1 as the same number.
                format!("put it in quotes: \"{}\"", scalar.text)
            } else {
                "write a number up to 4294967295, or two up to 65535 as in \"1.10\"".to_owned()
            };
            let message = format!("`{}` is not an AS number", shorten(&scalar.text));
            self.report(node, trail, message, Some(help));
        }
        number.map(Value::from)
    }

    fn number(&mut self, node: &Node, trail: &Trail<'_>) -> Option<Value> {
        match self.numeric(node) {
            Ok(Meaning::Integer(value)) => Some(value.into()),
            Ok(Meaning::Unsigned(value)) => Some(value.into()),
            Ok(Meaning::Float(value)) => match (whole(value), Number::from_f64(value)) {
                (Some(whole), _) => Some(whole.into()),
                (None, Some(number)) => Some(Value::Number(number)),
                (None, None) => self.wrong_type(node, trail, "a finite number", None),
            },
            Ok(_) => self.wrong_type(node, trail, "a number", None),
            Err(help) => self.wrong_type(node, trail, "a number", help),
        }
    }

    /// The meaning of a scalar where a number is expected, or a hint for the user.
    fn numeric(&self, node: &Node) -> Result<Meaning, Option<String>> {
        match &node.content {
            Content::Scalar(scalar) if scalar.plain => Ok(meaning(&scalar.text)),
            Content::Scalar(scalar) => match meaning(&scalar.text) {
                Meaning::Integer(_) | Meaning::Unsigned(_) | Meaning::Float(_) => {
                    Err(Some("write it without quotes".into()))
                }
                _ => Err(None),
            },
            _ => Err(None),
        }
    }

    fn int_or_string(&mut self, node: &Node, trail: &Trail<'_>) -> Option<Value> {
        let Content::Scalar(scalar) = &node.content else {
            return self.wrong_type(node, trail, "a number or text", None);
        };
        if !scalar.plain {
            return Some(scalar.text.as_str().into());
        }
        match meaning(&scalar.text) {
            Meaning::Integer(value) => Some(value.into()),
            Meaning::Unsigned(value) => Some(value.into()),
            Meaning::Text => Some(scalar.text.as_str().into()),
            Meaning::Float(value) if whole(value).is_some() => whole(value).map(Value::from),
            Meaning::Float(_) => self.wrong_type(node, trail, "a whole number or text", None),
            Meaning::Bool(_) | Meaning::Null => {
                self.wrong_type(node, trail, "a number or text", Some(quote(&scalar.text)))
            }
        }
    }

    /// A value whose schema allows anything.
    fn anything(&mut self, node: &Node, trail: &Trail<'_>) -> Option<Value> {
        match &node.content {
            Content::Scalar(scalar) if !scalar.plain => Some(scalar.text.as_str().into()),
            Content::Scalar(scalar) => match meaning(&scalar.text) {
                Meaning::Null => Some(Value::Null),
                Meaning::Bool(value) => Some(value.into()),
                Meaning::Integer(value) => Some(value.into()),
                Meaning::Unsigned(value) => Some(value.into()),
                Meaning::Float(value) => match Number::from_f64(value) {
                    Some(number) => Some(Value::Number(number)),
                    None => self.wrong_type(node, trail, "a finite number", None),
                },
                Meaning::Text => Some(scalar.text.as_str().into()),
            },
            Content::List(items) => {
                let values = items.iter().enumerate().map(|(index, item)| {
                    self.anything(item, &Trail::Item(trail, index)).unwrap_or(Value::Null)
                });
                Some(Value::Array(values.collect()))
            }
            Content::Map(entries) => {
                let mut fields = Map::new();
                let mut seen = HashSet::with_capacity(entries.len());
                for entry in entries {
                    let name = entry.key.text.as_str();
                    let below = Trail::Field(trail, name);
                    if entry.repeats(&mut seen) {
                        let message = format!("field `{name}` is given twice");
                        self.diagnostics.add(Diagnostic::new(entry.key_span, below.path(), message));
                    } else if let Some(value) = self.anything(&entry.value, &below) {
                        fields.insert(name.to_owned(), value);
                    }
                }
                Some(Value::Object(fields))
            }
        }
    }
}

fn is_true(schema: &SchemaMap, keyword: &str) -> bool {
    schema.get(keyword) == Some(&Value::Bool(true))
}

/// An integer written with a point or an exponent, as Go writes large ones.
fn whole(value: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "whole and within the range that a double holds exactly"
    )]
    (value.fract() == 0.0 && value.abs() <= EXACT).then_some(value as i64)
}

/// A placeholder for a reported item, so that the items after it keep their index.
fn placeholder(schema: &SchemaMap) -> Value {
    match schema.get("type").and_then(Value::as_str) {
        Some("object") => Value::Object(Map::new()),
        Some("array") => Value::Array(Vec::new()),
        Some("boolean") => Value::Bool(false),
        Some("integer" | "number") => Value::from(0),
        _ => Value::from(""),
    }
}

fn read_as(written: &str, read: &str) -> String {
    format!("YAML reads `{}` as `{read}`, and that is stored", shorten(written))
}

fn quote(text: &str) -> String {
    format!("put it in quotes if you mean the text: \"{}\"", shorten(text))
}

/// The property of this name, in this spelling or, failing that, in another case.
fn spelled<'a>(properties: &'a SchemaMap, name: &str) -> Option<(&'a str, &'a SchemaMap)> {
    let exact = properties.get_key_value(name);
    let found = exact.or_else(|| properties.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)))?;
    Some((found.0.as_str(), found.1.as_object()?))
}

fn shorten(text: &str) -> String {
    const LONGEST: usize = 60;
    let mut shown: String =
        text.chars().take(LONGEST).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(LONGEST).is_some() {
        shown.push_str("...");
    }
    shown
}
