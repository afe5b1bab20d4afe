//! Go templates over the objects, with the field names of Calico's Go types.
//!
//! Our objects have the names of JSON (`ipNetworks`), templates use those of Go (`IPNetworks`); the two differ in case
//! only, so every name that the template mentions is looked up case-insensitively. Fields of embedded Go structs are
//! available where Go promotes them: `.Name` is `.ObjectMeta.Name` is `metadata.name`. Maps with user-defined keys
//! (labels) are left as they are. A missing field has the zero value of its type if the schema gives the type, as in
//! Go.

use super::Answer;
use crate::failure::{Failure, Result};
use crate::kinds::Settings;
use api::schema::{for_kind, property};
use gotmpl::{Template, TemplateError, Value};
use serde_json::{Map, Value as Json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Renders a template.
///
/// # Errors
/// When the template is wrong, or refers to something that does not exist.
pub(crate) fn render(text: &str, answers: &[Answer], settings: &Settings) -> Result<String> {
    check_ends(text)?;
    let names = Names::of(text);
    let mut data = Vec::with_capacity(answers.len());
    for answer in answers {
        let schema = for_kind(answer.kind());
        data.push(match answer {
            Answer::One(resource) => names.object(&serde_json::to_value(resource)?, schema),
            Answer::List { items, .. } => {
                let mut list = match serde_json::to_value(answer)? {
                    Json::Object(fields) => fields,
                    _ => Map::new(),
                };
                list.remove("items");
                let mut fields = names.fields(&list, None);
                let mut values = Vec::with_capacity(items.len());
                for item in items {
                    values.push(names.object(&serde_json::to_value(item)?, schema));
                }
                names.insert(&mut fields, "items", Value::List(values.into()));
                Value::Map(Arc::new(fields))
            }
        });
    }
    let as_number = settings.as_number.clone();
    let template = Template::new("get")
        .func("join", |arguments| joined(arguments, 2))
        .func("joinAndTruncate", |arguments| joined(arguments, 3))
        .func("config", move |arguments| match arguments.first().and_then(Value::as_str) {
            Some(name) if name.eq_ignore_ascii_case("asnumber") => {
                Ok(Value::String(as_number.as_str().into()))
            }
            _ => Err(TemplateError::Exec("unhandled config type: only \"asnumber\" is known".into())),
        })
        .parse(text)
        .map_err(|error| wrong(&error))?;
    template.execute_to_string(&Value::List(data.into())).map_err(|error| wrong(&error))
}

/// Refuses a template that ends inside a block; the library would treat the end of the text as the block's end.
fn check_ends(text: &str) -> Result<()> {
    let mut open = 0_usize;
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("{{") {
        let inside = after.strip_prefix("- ").unwrap_or(after).trim_start();
        let word: &str = inside.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
        match word {
            "if" | "range" | "with" | "define" | "block" => open += 1,
            "end" => open = open.saturating_sub(1),
            _ => {}
        }
        rest = &after[action_length(after)..];
    }
    if open > 0 {
        Err(Failure::new("template: get: unexpected EOF: a block lacks its {{end}}"))
    } else {
        Ok(())
    }
}

/// The length of an action up to its closing braces; braces in quotes do not count.
fn action_length(text: &str) -> usize {
    let mut quote = None;
    let mut escaped = false;
    for (place, character) in text.char_indices() {
        match (quote, character) {
            (Some('"'), '\\') if !escaped => {
                escaped = true;
                continue;
            }
            (Some(open), _) if character == open && !escaped => quote = None,
            (Some(_), _) => {}
            (None, '"' | '`') => quote = Some(character),
            (None, '}') if text[place..].starts_with("}}") => return place,
            (None, _) => {}
        }
        escaped = false;
    }
    text.len()
}

fn wrong(error: &TemplateError) -> Failure {
    Failure::new(error.to_string())
}

/// `join LIST SEPARATOR` and `joinAndTruncate LIST SEPARATOR LENGTH`.
fn joined(arguments: &[Value], expected: usize) -> std::result::Result<Value, TemplateError> {
    if arguments.len() != expected {
        return Err(TemplateError::Exec(format!("expected {expected} arguments, found {}", arguments.len())));
    }
    let separator = arguments[1].as_str().unwrap_or_default().to_owned();
    let parts: Vec<String> = match &arguments[0] {
        Value::Nil => Vec::new(),
        Value::List(items) => items.iter().map(ToString::to_string).collect(),
        Value::Map(entries) => entries.iter().map(|(name, value)| format!("{name}={value}")).collect(),
        other => vec![other.to_string()],
    };
    let mut text = parts.join(&separator);
    let longest =
        arguments.get(2).and_then(Value::as_int).and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
    if longest > 3 && text.len() > longest {
        text.truncate(text.floor_char_boundary(longest - 3));
        text.push_str("...");
    }
    Ok(Value::String(text.into()))
}

/// The field names that a template mentions.
struct Names(BTreeSet<String>);

impl Names {
    /// Collects every word after a dot. Some may be in text or strings; those do no harm.
    fn of(template: &str) -> Self {
        let mut names = BTreeSet::new();
        for (place, _) in template.match_indices('.') {
            let rest = &template[place + 1..];
            let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
            if end > 0 {
                names.insert(rest[..end].to_owned());
            }
        }
        Self(names)
    }

    /// Inserts a value under every spelling of its name that the template uses, or under its own name.
    fn insert(&self, fields: &mut BTreeMap<Arc<str>, Value>, name: &str, value: Value) {
        let mut used = false;
        for spelling in self.0.iter().filter(|spelling| spelling.eq_ignore_ascii_case(name)) {
            fields.insert(spelling.as_str().into(), value.clone());
            used = true;
        }
        if !used {
            fields.insert(name.into(), value);
        }
    }

    /// A whole object, with embedded fields promoted as in Go.
    fn object(&self, json: &Json, schema: &Map<String, Json>) -> Value {
        let Json::Object(top) = json else { return self.value(json, None) };
        let mut fields = BTreeMap::new();
        // Promoted fields first: the object's own fields override them.
        if let Some(Json::Object(metadata)) = top.get("metadata") {
            let inner = self.metadata(metadata);
            for (name, value) in &inner {
                fields.insert(Arc::clone(name), value.clone());
            }
            self.insert(&mut fields, "ObjectMeta", Value::Map(Arc::new(inner)));
        }
        let types: Map<String, Json> = top
            .iter()
            .filter(|(name, _)| matches!(name.as_str(), "kind" | "apiVersion"))
            .map(|(n, v)| (n.clone(), v.clone()))
            .collect();
        let types = self.fields(&types, None);
        self.insert(&mut fields, "TypeMeta", Value::Map(Arc::new(types)));
        for (name, value) in top {
            let value = match (name.as_str(), value) {
                ("metadata", Json::Object(metadata)) => Value::Map(Arc::new(self.metadata(metadata))),
                _ => self.value(value, property(schema, name)),
            };
            self.insert(&mut fields, name, value);
        }
        Value::Map(Arc::new(fields))
    }

    fn metadata(&self, metadata: &Map<String, Json>) -> BTreeMap<Arc<str>, Value> {
        let mut fields = BTreeMap::new();
        for name in ["name", "generateName", "namespace", "selfLink", "uid", "resourceVersion"] {
            self.insert(&mut fields, name, Value::String("".into()));
        }
        for name in ["labels", "annotations"] {
            self.insert(&mut fields, name, Value::Map(Arc::new(BTreeMap::new())));
        }
        for (name, value) in metadata {
            let value = match (name.as_str(), value) {
                ("labels" | "annotations", Json::Object(map)) => own_names(map),
                _ => self.value(value, None),
            };
            self.insert(&mut fields, name, value);
        }
        fields
    }

    fn fields(
        &self,
        map: &Map<String, Json>,
        schema: Option<&Map<String, Json>>,
    ) -> BTreeMap<Arc<str>, Value> {
        let mut fields = BTreeMap::new();
        if let Some(Json::Object(properties)) = schema.and_then(|schema| schema.get("properties")) {
            for (name, property) in properties {
                self.insert(&mut fields, name, zero(property));
            }
        }
        for (name, value) in map {
            self.insert(
                &mut fields,
                name,
                self.value(value, schema.and_then(|schema| property(schema, name))),
            );
        }
        fields
    }

    fn value(&self, json: &Json, schema: Option<&Map<String, Json>>) -> Value {
        match json {
            Json::Null => Value::Nil,
            Json::Bool(truth) => Value::Bool(*truth),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(whole), _) => Value::Int(whole),
                (None, Some(whole)) => Value::Uint(whole),
                (None, None) => Value::Float(number.as_f64().unwrap_or_default()),
            },
            Json::String(text) => Value::String(text.as_str().into()),
            Json::Array(items) => {
                let inner = schema.and_then(|schema| schema.get("items")).and_then(Json::as_object);
                Value::List(items.iter().map(|item| self.value(item, inner)).collect::<Vec<_>>().into())
            }
            // A map with user-defined keys has no properties in its schema.
            Json::Object(map) if schema.is_some_and(|schema| !schema.contains_key("properties")) => {
                own_names(map)
            }
            Json::Object(map) => Value::Map(Arc::new(self.fields(map, schema))),
        }
    }
}

fn own_names(map: &Map<String, Json>) -> Value {
    let names = Names(BTreeSet::new());
    Value::Map(Arc::new(names.fields(map, None)))
}

/// The zero value of a field of this type in Go; `None` for objects and numbers, which may be pointers there.
fn zero(schema: &Json) -> Value {
    match schema.get("type").and_then(Json::as_str) {
        Some("string") => Value::String("".into()),
        Some("boolean") => Value::Bool(false),
        Some("array") => Value::List(Vec::new().into()),
        _ => Value::Nil,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{Kind, Resource};

    fn answer(json: &str, kind: Kind) -> Answer {
        Answer::One(Box::new(Resource::from_json(kind, json.as_bytes()).unwrap()))
    }

    #[test]
    fn go_names_find_json_fields() {
        let json = r#"{"metadata":{"name":"w","namespace":"ns","labels":{"Name":"own"}},"spec":{"ipNetworks":["1.1.1.1/32","2.2.2.2/32"],"node":"n"}}"#;
        let answers = [answer(json, Kind::WorkloadEndpoint)];
        let settings = Settings { as_number: "64512".into() };
        for (template, expected) in [
            (
                "{{range .}}{{.ObjectMeta.Name}} {{.Name}} {{.metadata.name}} {{.Kind}}{{end}}",
                "w w w WorkloadEndpoint",
            ),
            (r#"{{range .}}{{join .Spec.IPNetworks ","}}{{end}}"#, "1.1.1.1/32,2.2.2.2/32"),
            (r#"{{range .}}{{joinAndTruncate .Spec.IPNetworks "," 10}}{{end}}"#, "1.1.1.1..."),
            ("{{range .}}{{range $k, $v := .Labels}}{{$k}}={{$v}}{{end}}{{end}}", "Name=own"),
            ("{{range .}}[{{.Spec.Workload}}]{{if .Spec.IPNATs}}x{{end}}{{end}}", "[]"),
            (r#"{{config "asnumber"}}"#, "64512"),
        ] {
            assert_eq!(render(template, &answers, &settings).unwrap(), expected, "{template}");
        }
    }

    #[test]
    fn a_wrong_template_is_an_error() {
        let settings = Settings::default();
        assert!(render("{{range .}}", &[], &settings).is_err());
        assert!(render("{{if true}}{{\"}}{{end\"}}", &[], &settings).is_err());
        assert_eq!(render("{{if true}}{{\"{{if\"}}{{- end}}", &[], &settings).unwrap(), "{{if");
        assert!(render("{{nosuch .}}", &[], &settings).is_err());
        assert!(render(r#"{{config "x"}}"#, &[], &settings).is_err());
    }
}
