//! Verdicts as data: each file under `tests/data/validation` is a list of objects with the effect of defaulting and
//! every validation error.
//!
//! One object per line: a kind and its JSON, without `kind` and `apiVersion`; a missing name is `p`, a missing
//! namespace `n`. Below it, indented: `= field: value` for each field that defaulting sets (`!` if it removes it), then
//! one `path: reason` for each error; without such a line the object is accepted. `# text` is a comment. Refresh the
//! expectations with `UPDATE_EXPECT=1` and review the difference.

use api::{Kind, Resource};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The object of a case line, with the parts that the line may omit.
fn object(line: &str) -> (Kind, Value) {
    let (kind, json) = line.split_once(' ').unwrap_or_else(|| panic!("no object in: {line}"));
    let kind = Kind::from_name(kind).unwrap_or_else(|| panic!("no such kind: {line}"));
    let mut value: Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{line}: {error}"));
    let metadata = value.as_object_mut().unwrap().entry("metadata").or_insert_with(|| json!({}));
    let metadata = metadata.as_object_mut().unwrap();
    metadata.entry("name").or_insert_with(|| "p".into());
    if kind.is_namespaced() {
        metadata.entry("namespace").or_insert_with(|| "n".into());
    }
    (kind, value)
}

/// The correct content of a file: the cases unchanged, the expectations as found.
fn found(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        if line.starts_with("  ") {
            continue;
        }
        out.push_str(line);
        out.push('\n');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (kind, value) = object(line);
        let mut resource = Resource::from_value(kind, value)
            .unwrap_or_else(|error| panic!("cannot be read: {line}: {error}"));
        let before = serde_json::to_value(&resource).unwrap();
        resource.set_defaults();
        let after = serde_json::to_value(&resource).unwrap();
        for part in ["/metadata/labels", "/spec"] {
            let fields =
                |object: &Value| object.pointer(part).and_then(Value::as_object).cloned().unwrap_or_default();
            let (before, after) = (fields(&before), fields(&after));
            let place = part.trim_start_matches('/').replace('/', ".");
            for (name, value) in after.iter().filter(|(name, value)| before.get(*name) != Some(*value)) {
                writeln!(out, "  = {place}.{name}: {value}").unwrap();
            }
            for name in before.keys().filter(|name| !after.contains_key(*name)) {
                writeln!(out, "  ! {place}.{name}").unwrap();
            }
        }
        if let Err(errors) = resource.validate() {
            for error in errors.as_slice() {
                writeln!(out, "  {}: {}", error.path, error.reason).unwrap();
            }
        }
    }
    out
}

#[test]
fn verdicts() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/validation");
    let mut files = 0;
    let mut differences = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let expected = std::fs::read_to_string(&path).unwrap();
        let found = found(&expected);
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&path, &found).unwrap();
        } else if found != expected {
            differences.push(first_difference(&path, &found, &expected));
        }
        files += 1;
    }
    assert!(files > 0, "no cases found");
    assert!(
        differences.is_empty(),
        "run with UPDATE_EXPECT=1 and review the difference\n{}",
        differences.join("\n")
    );
}

/// The first line at which a file differs from what is expected, below the object that it belongs to.
fn first_difference(path: &std::path::Path, found: &str, expected: &str) -> String {
    let mut object = "";
    let (mut found, mut expected) = (found.lines(), expected.lines());
    loop {
        let (now, before) = (found.next(), expected.next());
        if now != before || now.is_none() {
            let show = |line: Option<&str>| line.unwrap_or("(end of file)").to_owned();
            return format!(
                "{}\n{object}\n  expected {}\n  found    {}",
                path.display(),
                show(before),
                show(now)
            );
        }
        object = now.filter(|line| !line.starts_with("  ")).unwrap_or(object);
    }
}

#[test]
fn lists_and_texts_have_limits() {
    let rules = |count: usize| json!(vec![json!({"action": "Allow"}); count]);
    let ports = |count: u16| {
        json!([{"action": "Allow", "protocol": "TCP",
        "destination": {"ports": (1..=count).collect::<Vec<_>>()}}])
    };
    let nets = |count: usize| {
        let nets: Vec<String> =
            (0..count).map(|index| format!("10.{}.{}.0/24", index / 256, index % 256)).collect();
        json!([{"action": "Allow", "source": {"nets": nets}}])
    };
    let selector = |length: usize| json!([{"action": "Allow", "source": {"selector": format!("has({})", "a".repeat(length - 5))}}]);
    for (fits, is_too_much, path) in [
        (rules(1024), rules(1025), "spec.ingress"),
        (ports(50), ports(51), "spec.ingress[0].destination.ports"),
        (nets(256), nets(257), "spec.ingress[0].source.nets"),
        (selector(500), selector(1025), "spec.ingress[0].source.selector"),
    ] {
        let verdict = |ingress: Value| {
            let value = json!({"metadata": {"name": "p"}, "spec": {"ingress": ingress}});
            Resource::from_value(Kind::GlobalNetworkPolicy, value).unwrap().validate()
        };
        assert_eq!(verdict(fits), Ok(()), "{path}");
        let errors = verdict(is_too_much).unwrap_err();
        assert_eq!(errors.as_slice()[0].path.as_str(), path);
    }
}
