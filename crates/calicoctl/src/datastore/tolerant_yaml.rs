//! YAML as plain values, with every field kept.
//!
//! The strict reader of users' files refuses fields that this version does not know; an exported file may come from a
//! newer version, and nothing in it may be lost.

use saphyr::{LoadableYamlNode as _, MarkedYaml, Scalar, YamlData};
use serde_json::{Map, Number, Value};
use std::collections::BTreeMap;

/// The lines of a document, by path: `spec.ingress[1]`.
pub(crate) type Lines = BTreeMap<String, usize>;

/// Deeper than any resource; a file that nests deeper is not an export.
const DEEPEST: usize = 100;

/// All documents of the text; empty documents are left out.
///
/// # Errors
/// The first mistake, with its line.
pub(crate) fn documents(text: &str) -> Result<Vec<Value>, String> {
    let values = load(text)?.iter().map(|document| value(document, 0)).collect::<Result<Vec<_>, _>>()?;
    Ok(values.into_iter().filter(|value| !value.is_null()).collect())
}

/// All documents of the text, each with the line of every path in it; empty documents are left out.
///
/// # Errors
/// The first mistake, with its line.
pub(crate) fn documents_with_lines(text: &str) -> Result<Vec<(Value, Lines)>, String> {
    let mut found = Vec::new();
    for document in &load(text)? {
        let value = value(document, 0)?;
        if !value.is_null() {
            let mut lines = Lines::new();
            note_lines(document, "", &mut lines);
            found.push((value, lines));
        }
    }
    Ok(found)
}

fn load(text: &str) -> Result<Vec<MarkedYaml<'_>>, String> {
    check_depth(text)?;
    MarkedYaml::load_from_str(text)
        .map_err(|error| format!("line {}: {}", error.marker().line(), error.info()))
}

/// Records where a node and everything below it begin. A field begins where its name is written.
fn note_lines(node: &MarkedYaml<'_>, path: &str, lines: &mut Lines) {
    lines.entry(path.to_owned()).or_insert_with(|| node.span.start.line());
    match &node.data {
        YamlData::Sequence(items) => {
            for (index, item) in items.iter().enumerate() {
                note_lines(item, &format!("{path}[{index}]"), lines);
            }
        }
        YamlData::Mapping(fields) => {
            for (name, field) in fields {
                if let YamlData::Value(Scalar::String(text)) = &name.data {
                    let place = crate::explain::join(path, text);
                    lines.insert(place.clone(), name.span.start.line());
                    note_lines(field, &place, lines);
                }
            }
        }
        _ => {}
    }
}

fn value(node: &MarkedYaml<'_>, depth: usize) -> Result<Value, String> {
    let mistake = |reason: &str| format!("line {}: {reason}", node.span.start.line());
    if depth > DEEPEST {
        return Err(mistake("nested too deeply"));
    }
    Ok(match &node.data {
        YamlData::Value(scalar) => match scalar {
            Scalar::Null => Value::Null,
            Scalar::Boolean(truth) => Value::Bool(*truth),
            Scalar::Integer(number) => Value::Number((*number).into()),
            Scalar::FloatingPoint(number) => {
                Value::Number(Number::from_f64(number.0).ok_or_else(|| mistake("not a finite number"))?)
            }
            Scalar::String(text) => Value::String(text.clone().into_owned()),
        },
        YamlData::Sequence(items) => {
            Value::Array(items.iter().map(|item| value(item, depth + 1)).collect::<Result<_, _>>()?)
        }
        YamlData::Mapping(fields) => {
            let mut map = Map::new();
            for (name, field) in fields {
                let name = match value(name, depth + 1)? {
                    Value::String(text) => text,
                    Value::Null => "null".to_owned(),
                    scalar @ (Value::Bool(_) | Value::Number(_)) => scalar.to_string(),
                    Value::Array(_) | Value::Object(_) => {
                        return Err(mistake("a name must be a single value"));
                    }
                };
                map.insert(name, value(field, depth + 1)?);
            }
            Value::Object(map)
        }
        _ => return Err(mistake("tags and aliases are not part of an export")),
    })
}

/// Refuses text with excessive nesting before a parser recurses into it.
fn check_depth(text: &str) -> Result<(), String> {
    let (mut depth, mut line) = (0usize, 1usize);
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'\n' => line += 1,
            _ => {}
        }
        // Brackets may also appear in strings, unclosed: allow many more than real nesting needs.
        if depth > 100 * DEEPEST {
            return Err(format!("line {line}: nested too deeply"));
        }
    }
    match text.lines().position(|line| line.len() - line.trim_start_matches([' ', '-']).len() > 4 * DEEPEST) {
        Some(index) => Err(format!("line {}: nested too deeply", index + 1)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::documents;
    use serde_json::json;

    #[test]
    fn every_field_is_kept() {
        let text = "kind: A\nspec:\n  known: 1\n  unknown: {x: [true, null, '1', 1.5]}\n---\n---\n- a\n---\n";
        let expected = [
            json!({"kind": "A", "spec": {"known": 1, "unknown": {"x": [true, null, "1", 1.5]}}}),
            json!(["a"]),
        ];
        assert_eq!(documents(text).expect("YAML"), expected);
    }

    #[test]
    fn what_is_printed_is_read_back() {
        let value = json!({"text": "a: b # c", "lines": "one\ntwo\n", "yes": "yes", "number": "0123", "null": "null",
            "long": "word ".repeat(40), "empty": {}, "none": [], "date": "2026-11-15", "tilde": "~", "port": 1e6});
        let text = api::yaml::to_string(&value);
        let read = documents(&text).expect(&text);
        assert_eq!(read.len(), 1);
        for (name, expected) in value.as_object().expect("a map") {
            let found = &read[0][name];
            assert!(
                found == expected || found.as_f64() == expected.as_f64() && found.is_number(),
                "{name}: {found}\n{text}"
            );
        }
    }

    #[test]
    fn mistakes_have_a_line() {
        for (text, expected) in [("a: 1\nb: [", "line "), ("a: 1\nb: &x 1\nc: *y\n", "line ")] {
            let error = documents(text).expect_err(text);
            assert!(error.starts_with(expected), "{error}");
        }
        let deep = format!("a: {}{}", "[".repeat(20_000), "]".repeat(20_000));
        assert_eq!(documents(&deep).expect_err("too deep"), "line 1: nested too deeply");
    }
}
