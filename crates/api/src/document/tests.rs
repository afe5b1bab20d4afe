//! Whole files as data: each file of `tests/documents` is read with all checks, and the result (the objects as JSON, or
//! the mistakes) is compared with the `.expected` file beside it. `UPDATE_EXPECT=1` rewrites those.

use super::*;
use proptest::prelude::*;
use std::fmt::Write as _;
use std::path::Path;

fn outcome(name: &str, bytes: &[u8]) -> String {
    match read(name, bytes, Checks::Everything) {
        Ok(documents) => {
            let mut text = String::new();
            for found in warnings(&documents) {
                writeln!(text, "{found}\n").unwrap();
            }
            for document in documents {
                let json = serde_json::to_string_pretty(&document.value).unwrap();
                writeln!(text, "{} {}\n{json}\n", document.kind(), document.resource.name()).unwrap();
            }
            text
        }
        Err(diagnostics) => format!("{diagnostics}\n"),
    }
}

#[test]
fn files_read_as_expected() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/documents");
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut compared = 0;
    let mut differences = String::new();
    for path in files.iter().filter(|path| path.extension().is_some_and(|ext| ext != "expected")) {
        let name = path.file_name().unwrap().to_str().unwrap();
        let actual = outcome(name, &std::fs::read(path).unwrap());
        let expected_path = folder.join(format!("{name}.expected"));
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&expected_path, &actual).unwrap();
        }
        let expected = std::fs::read_to_string(&expected_path).unwrap_or_default();
        if actual != expected {
            write!(differences, "== {name}: expected\n{expected}\n== found\n{actual}\n").unwrap();
        }
        compared += 1;
    }
    assert!(compared >= 16, "only {compared} files compared");
    assert!(differences.is_empty(), "{differences}\nrun with UPDATE_EXPECT=1 and review the difference");
}

#[test]
fn structure_alone_leaves_rules_unchecked() {
    let text =
        "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: x}\nspec: {cidr: nonsense}\n";
    let documents = read("pool", text.as_bytes(), Checks::Structure).unwrap();
    assert_eq!(documents.len(), 1);
    let found = documents[0].validate().unwrap_err();
    assert!(found.as_slice().iter().any(|diagnostic| diagnostic.path.as_str() == "spec.cidr"), "{found}");
    assert!(read("pool", text.as_bytes(), Checks::Everything).is_err());
}

#[test]
fn spans_of_fields() {
    let text = "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata:\n  name: x\n  labels: {a.b/c: d}\nspec:\n  nets:\n  - 10.0.0.0/8\n";
    let documents = read("set", text.as_bytes(), Checks::Everything).unwrap();
    let place = |path: &str| {
        documents[0].span(&FieldPath::new(path)).map(|span| (span.line, span.column, span.end_column))
    };
    assert_eq!(place("metadata.name"), Some((4, 9, 10)));
    assert_eq!(place("metadata.labels[a.b/c]"), Some((5, 19, 20)));
    assert_eq!(place("spec.nets"), Some((7, 3, 7)));
    assert_eq!(place("spec.nets[0]"), Some((8, 5, 15)));
    assert_eq!(place("spec.nets[1]"), None);
    assert_eq!(place("spec.other"), None);
}

#[test]
fn nesting_is_bounded() {
    let deep = |levels: usize| {
        format!(
            "apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {{name: x, managedFields: {}{}}}\n",
            "[".repeat(levels),
            "]".repeat(levels)
        )
    };
    read("deep", deep(50).as_bytes(), Checks::Structure).unwrap_or_else(|found| panic!("{found}"));
    for text in [
        deep(200),
        deep(100_000),
        format!("a: {}", "- ".repeat(100_000)),
        "- ".repeat(100_000),
        "? ".repeat(100_000),
        "a:\n".repeat(70_000),
    ] {
        let found = read("deep", text.as_bytes(), Checks::Structure).unwrap_err();
        assert!(!found.is_empty());
    }
}

#[test]
fn sizes_are_bounded() {
    let mut text = "a: b # ".to_owned();
    text.push_str(&"x".repeat(MAX_DOCUMENT_LENGTH));
    let found = read("long", text.as_bytes(), Checks::Structure).unwrap_err();
    assert!(found.as_slice()[0].message.contains("the limit is 10485760"), "{}", found.as_slice()[0].message);
}

/// One long line with very many mistakes of each kind: all are counted, the display is truncated. If a path through the
/// reader became quadratic again, this test would take minutes instead of seconds.
#[test]
fn very_many_mistakes() {
    const COUNT: usize = 5000;
    let mut text = r#"{"apiVersion": "projectcalico.org/v3", "kind": "GlobalNetworkSet", "metadata": {"name": "x"}, "spec": {"nets": ["#.to_owned();
    text.push_str(&"\"bad\",".repeat(COUNT));
    text.push_str("[]],");
    for index in 0..COUNT {
        write!(text, "\"unknown{index}\": 1,").unwrap();
    }
    text.push_str("\"nets\": 1}}");
    let found = read("many", text.as_bytes(), Checks::Everything).unwrap_err();
    assert!(found.len() > COUNT, "{}", found.len());
    assert!(found.to_string().contains("more\n"));
}

#[test]
fn text_that_is_not_utf8() {
    let found = read("bytes", b"kind: a\nname: \xe9\n", Checks::Structure).unwrap_err();
    assert_eq!((found.as_slice()[0].span.line, found.as_slice()[0].span.column), (2, 7));
    assert!(found.to_string().contains("not UTF-8"), "{found}");
    // A byte order mark is not a mistake.
    assert!(read("bom", b"\xef\xbb\xbf# nothing\n", Checks::Structure).unwrap().is_empty());
}

/// Pieces of documents, put together at random.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "apiVersion: projectcalico.org/v3\n",
        "kind: NetworkPolicy\n",
        "kind: IPPool\n",
        "metadata: {name: x}\n",
        "spec:\n",
        "  cidr: 10.0.0.0/8\n",
        "  ingress:\n",
        "  - action: Allow\n",
        "    source: {nets: [10.0.0.0/8]}\n",
        "  selector: all()\n",
        "---\n",
        "- ",
        "  ",
        "{",
        "}",
        "[",
        "]",
        ": ",
        "\n",
        "\t",
        "&a ",
        "*a",
        "<<: ",
        "!!str ",
        "'",
        "\"",
        "|\n",
        ">-\n",
        "#",
        "? ",
        "%YAML 1.2\n",
        "...\n",
        "é",
        "\u{feff}",
        "yes",
        "1.10",
        "null",
        "\\",
        "\r\n",
        "kind: List\nitems:\n",
    ]);
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check_any(&bytes)?;
    }

    #[test]
    fn any_pieces_are_read_or_refused(text in pieces()) {
        check_any(text.as_bytes())?;
    }
}

fn check_any(bytes: &[u8]) -> Result<(), TestCaseError> {
    match read("any", bytes, Checks::Everything) {
        Ok(documents) => {
            for document in documents {
                prop_assert!(document.validate().is_ok());
            }
        }
        Err(diagnostics) => {
            prop_assert!(!diagnostics.is_empty());
            let shown = diagnostics.to_string();
            prop_assert!(shown.ends_with("in any"));
        }
    }
    Ok(())
}

#[test]
fn a_file_with_a_schema_of_its_own() {
    static SCHEMA: std::sync::OnceLock<Map<String, Value>> = std::sync::OnceLock::new();
    let schema = SCHEMA.get_or_init(|| {
        let schema = serde_json::json!({
            "type": "object",
            "properties": {"nodes": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}}},
        });
        schema.as_object().cloned().unwrap_or_default()
    });
    let values = read_as("t.yaml", b"nodes:\n- name: a\n", schema).unwrap();
    assert_eq!(values, [serde_json::json!({"nodes": [{"name": "a"}]})]);
    let text = read_as("t.yaml", b"nodes:\n- nam: a\nnodez: 1\n", schema).unwrap_err().to_string();
    assert!(text.contains("t.yaml:2:3") && text.contains("did you mean `name`?"), "{text}");
    assert!(text.contains("t.yaml:3:1") && text.contains("did you mean `nodes`?"), "{text}");
}
