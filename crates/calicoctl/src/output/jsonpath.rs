//! kubectl's JSONPath: `-o jsonpath='{range .items[*]}{.metadata.name}{"\n"}{end}'`.
//!
//! It is a dialect of its own (text outside braces is printed, `range` and `end`, a dot in a name is written `\.`), so
//! crates for the standard cannot parse it. A path that finds nothing prints nothing, as in kubectl.
//!
//! - [`parse`]: the template as a value, or its mistake.
//! - [`walk`]: the values that a path finds.
//! - this file: prints them.

mod parse;
mod walk;

use crate::failure::{Failure, Result};
use parse::{Part, Template};
use serde_json::Value;

/// Renders the template for an object.
///
/// # Errors
/// When the template is wrong.
pub(crate) fn render(template: &str, object: &Value) -> Result<String> {
    let template = Template::parse(template)
        .map_err(|reason| Failure::new(format!("error parsing jsonpath {template}, {reason}")))?;
    let mut out = String::new();
    print(&template.parts, object, object, &mut out)?;
    Ok(out)
}

fn print(parts: &[Part], root: &Value, current: &Value, out: &mut String) -> Result<()> {
    for part in parts {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Path(path) => {
                let found = walk::find(path, root, current).map_err(Failure::new)?;
                let texts = found.into_iter().map(text).collect::<Result<Vec<_>>>()?;
                out.push_str(&texts.join(" "));
            }
            Part::Range { over, body } => {
                for value in walk::find(over, root, current).map_err(Failure::new)? {
                    print(body, root, value, out)?;
                }
            }
        }
    }
    Ok(())
}

/// A value as kubectl prints it: strings as they are, everything else as JSON.
fn text(value: &Value) -> Result<String> {
    Ok(match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => serde_json::to_string(other)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cluster() -> Value {
        json!({
            "kind": "List",
            "items": [
                {"kind": "None", "metadata": {"name": "127.0.0.1", "labels": {"kubernetes.io/hostname": "127.0.0.1"}},
                 "status": {"capacity": {"cpu": "4"}, "addresses": [{"type": "LegacyHostIP", "address": "127.0.0.1"}]},
                 "order": 1, "ready": true},
                {"kind": "None", "metadata": {"name": "127.0.0.2"},
                 "status": {"capacity": {"cpu": "8"}, "addresses": [
                    {"type": "LegacyHostIP", "address": "127.0.0.2"}, {"type": "another", "address": "127.0.0.3"}]},
                 "order": 2.5, "ready": false}
            ],
            "users": [
                {"name": "myself", "user": {}},
                {"name": "e2e", "user": {"username": "admin", "password": "secret"}}
            ]
        })
    }

    #[test]
    fn templates_print_what_kubectl_prints() {
        let cluster = cluster();
        for (template, expected) in [
            // The examples of kubectl's documentation.
            ("kind is {.kind}", "kind is List"),
            ("{.kind}", "List"),
            ("{['kind']}", "List"),
            ("{..name}", "127.0.0.1 127.0.0.2 myself e2e"),
            ("{.items[*].metadata.name}", "127.0.0.1 127.0.0.2"),
            ("{.users[0].name}", "myself"),
            (
                "{.items[*]['metadata.name', 'status.capacity']}",
                "127.0.0.1 127.0.0.2 {\"cpu\":\"4\"} {\"cpu\":\"8\"}",
            ),
            (r#"{.users[?(@.name=="e2e")].user.password}"#, "secret"),
            (
                r#"{range .items[*]}[{.metadata.name}, {.status.capacity}] {end}"#,
                "[127.0.0.1, {\"cpu\":\"4\"}] [127.0.0.2, {\"cpu\":\"8\"}] ",
            ),
            (r"{.items[*].metadata.labels.kubernetes\.io/hostname}", "127.0.0.1"),
            // Literals, and text around them.
            (
                r#"{range .items[*]}{.metadata.name}{"\t"}{.status.capacity.cpu}{"\n"}{end}"#,
                "127.0.0.1\t4\n127.0.0.2\t8\n",
            ),
            (r#"{"a"}{'b'}{"it's \"x\""}c"#, r#"abit's "x"c"#),
            ("", ""),
            ("plain .text", "plain .text"),
            // Indexes and slices.
            ("{.items[-1].metadata.name}", "127.0.0.2"),
            ("{.items[5].metadata.name}", ""),
            ("{.items[0:1].metadata.name}", "127.0.0.1"),
            ("{.items[1:].metadata.name}", "127.0.0.2"),
            ("{.items[:-1].metadata.name}", "127.0.0.1"),
            ("{.items[0:2:2].metadata.name}", "127.0.0.1"),
            ("{.items[0,1].metadata.name}", "127.0.0.1 127.0.0.2"),
            ("{.users[*].user.*}", "secret admin"),
            // Filters.
            (r#"{.items[*].status.addresses[?(@.type == 'another')].address}"#, "127.0.0.3"),
            (r#"{.items[?(@.order > 1)].metadata.name}"#, "127.0.0.2"),
            (r#"{.items[?(@.order <= 2.5)].metadata.name}"#, "127.0.0.1 127.0.0.2"),
            (r#"{.items[?(@.metadata.name < "127.0.0.2")].order}"#, "1"),
            (r#"{.items[?(@.ready == true)].metadata.name}"#, "127.0.0.1"),
            (r#"{.items[?(@.ready != true)].metadata.name}"#, "127.0.0.2"),
            (r#"{.users[?(@.user.username)].name}"#, "e2e"),
            (r#"{.items[?(@.status.addresses[0].address == "127.0.0.2")].metadata.name}"#, "127.0.0.2"),
            // The root, the current value, and missing fields.
            ("{$.kind} {@.kind}", "List List"),
            ("{range .users[*]}{@.name}{' '}{$.kind};{end}", "myself List;e2e List;"),
            (
                "{range .items[*]}{range .status.addresses[*]}{.type} {end}{end}",
                "LegacyHostIP LegacyHostIP another ",
            ),
            ("{.nothing.at.all}|{.users[*].nothing}", "|"),
            ("{.users[0]}", "{\"name\":\"myself\",\"user\":{}}"),
            ("{.items[0].order} {.items[0].ready}", "1 true"),
        ] {
            assert_eq!(
                render(template, &cluster).unwrap_or_else(|e| panic!("{template}: {e}")),
                expected,
                "{template}"
            );
        }
    }

    #[test]
    fn a_wrong_template_is_reported_with_its_position() {
        for (template, message) in [
            ("{.kind", "unclosed action"),
            ("{range .items[*]}{.x}", "unexpected end of text: a range lacks its {end}"),
            ("{end}", "there is no range to end"),
            ("{.items[}", "unterminated array"),
            ("{.items[x]}", "'x' is not an index"),
            ("{.items[?(@.x ~ 1)]}", "unrecognized operator '~'"),
            ("{.items[?(@.x == )]}", "expected a value"),
            ("{.items[::0]}", "step must be greater than 0"),
            ("{\"a}", "unterminated quoted string"),
            ("{nosuch}", "unrecognized identifier nosuch"),
            ("{.a b}", "unexpected"),
        ] {
            let error = render(template, &json!({})).expect_err(template);
            assert!(error.message().contains(message), "{template}: {error}");
        }
    }
}
