//! JSON values as YAML text: block style, keys in the order of the map, one form for each value.
//!
//! Only writes. Text that any reader could mistake for something else is written in double quotes, as in JSON.

use serde_json::Value;

/// The values as a stream of documents, each opened by `---`.
pub(super) fn documents(values: &[Value]) -> String {
    let mut out = String::new();
    for value in values {
        out.push_str("---\n");
        match value {
            Value::Object(_) | Value::Array(_) => block(value, 0, &mut out),
            scalar => {
                out.push_str(&inline(scalar));
                out.push('\n');
            }
        }
    }
    out
}

/// Writes a map or a list, each line indented by `depth` levels. Empty ones cannot be blocks and never get here.
fn block(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                indent(depth, out);
                out.push_str(&text(name));
                out.push(':');
                nested(value, depth + 1, out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                indent(depth, out);
                out.push('-');
                nested(item, depth + 1, out);
            }
        }
        other => {
            indent(depth, out);
            out.push_str(&inline(other));
            out.push('\n');
        }
    }
}

/// Writes the value after a `name:` or a `-`: on the same line if it fits there, otherwise as a block below.
fn nested(value: &Value, depth: usize, out: &mut String) {
    let is_block = match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    if is_block {
        out.push('\n');
        block(value, depth, out);
    } else {
        out.push(' ');
        out.push_str(&inline(value));
        out.push('\n');
    }
}

fn indent(depth: usize, out: &mut String) {
    for _ in 0..depth {
        out.push_str("  ");
    }
}

/// A value that needs no lines of its own.
fn inline(value: &Value) -> String {
    match value {
        Value::String(string) => text(string),
        other => other.to_string(),
    }
}

/// Text, plain if no reader can mistake it.
fn text(string: &str) -> String {
    // Words that some version of YAML reads as a boolean or as null.
    const WORDS: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    let plain = string.starts_with(|c: char| c.is_ascii_alphabetic())
        && !string.ends_with(' ')
        && string
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, ' ' | '.' | ',' | '-' | '_' | '/' | '(' | ')'))
        && !WORDS.iter().any(|word| string.eq_ignore_ascii_case(word));
    if plain { string.to_owned() } else { Value::from(string).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_value_has_one_form() {
        let value = json!({
            "a": {"list": [1, {"v": [], "w": {}}, ["z"]], "none": null},
            "b": "plain text, with marks.",
            "c": ["", "true", "No", "- x", "a: b", "a #b", "1", "tab\t", "end ", "^(?i)(A|B)?$", "\\d", "\"q\""],
        });
        let expected = "\
---
a:
  list:
    - 1
    -
      v: []
      w: {}
    -
      - z
  none: null
b: plain text, with marks.
c:
  - \"\"
  - \"true\"
  - \"No\"
  - \"- x\"
  - \"a: b\"
  - \"a #b\"
  - \"1\"
  - \"tab\\t\"
  - \"end \"
  - \"^(?i)(A|B)?$\"
  - \"\\\\d\"
  - \"\\\"q\\\"\"
";
        assert_eq!(documents(&[value]), expected);
    }
}
