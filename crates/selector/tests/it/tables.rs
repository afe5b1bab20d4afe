//! Table tests. Each table is a file of `tests/data`; a failure names the row.
//!
//! Ids were taken from IP sets programmed by Calico for policies with these selectors (set names contain the first 23
//! characters), and from published ids.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use selector::{LabelRestriction, MAX_LABEL_LENGTH, MAX_LENGTH, ParseErrorKind, Selector, unique_id};

fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    table
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| line.split('\t').collect())
}

fn unescape(cell: &str) -> String {
    match cell {
        "(empty)" => String::new(),
        _ => cell.replace("\\t", "\t").replace("\\n", "\n"),
    }
}

#[test]
fn canonical_forms_and_ids() {
    let mut ids = 0;
    for row in rows(include_str!("../data/canonical.tsv")) {
        let [input, canonical, id] = row[..] else { panic!("three columns expected: {row:?}") };
        let selector = Selector::parse(&unescape(input)).unwrap_or_else(|e| panic!("{input}: {e}"));
        assert_eq!(selector.canonical(), canonical, "canonical form of {input}");
        assert_eq!(selector.unique_id(), unique_id("s", canonical), "id of {input}");
        assert_eq!(selector.unique_id().len(), 40);
        if id != "-" {
            ids += 1;
            assert!(id.len() >= 23, "id of {input} is too short to mean anything");
            assert!(selector.unique_id().starts_with(id), "id of {input}: {}", selector.unique_id());
        }
    }
    assert!(ids >= 9, "only {ids} known ids in the table");
}

#[test]
fn evaluation() {
    for row in rows(include_str!("../data/evaluate.tsv")) {
        let [text, labels, verdict] = row[..] else { panic!("three columns expected: {row:?}") };
        let selector = Selector::parse(&unescape(text)).unwrap_or_else(|e| panic!("{text}: {e}"));
        let labels: BTreeMap<String, String> = match labels {
            "(none)" => BTreeMap::new(),
            _ => labels
                .split(',')
                .filter_map(|pair| pair.split_once('='))
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        };
        assert_eq!(selector.evaluate(&labels), verdict == "yes", "{text} on {labels:?}");
        // The other representations of labels agree.
        let pairs: Vec<(String, String)> = labels.clone().into_iter().collect();
        let hashed: std::collections::HashMap<String, String> = pairs.iter().cloned().collect();
        assert_eq!(selector.evaluate(pairs.as_slice()), verdict == "yes");
        assert_eq!(selector.evaluate(&hashed), verdict == "yes");
    }
}

#[test]
fn refusals() {
    let mut actual = String::new();
    for line in include_str!("../data/errors.txt").lines().filter(|line| !line.starts_with('#')) {
        // Trailing blanks matter here, so rows are whole lines.
        let text = unescape(line);
        match Selector::parse(&text) {
            Ok(selector) => panic!("accepted {line}: {selector}"),
            Err(error) => {
                assert!(error.position() <= text.len());
                assert!(text.is_char_boundary(error.position()));
                writeln!(actual, "{}\n= {error}\n", error.render(&text)).unwrap();
            }
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/errors.expected");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &actual).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert_eq!(actual, expected, "run with UPDATE_EXPECT=1 and review the difference");
}

#[test]
fn bounds() {
    let label = "a".repeat(MAX_LABEL_LENGTH);
    assert!(Selector::parse(&format!("{label} == 'x'")).is_ok());
    assert!(Selector::parse(&format!("{label}a == 'x'")).is_err());

    let value = "x".repeat(MAX_LENGTH - "a == ''".len());
    let longest = Selector::parse(&format!("a == '{value}'")).unwrap();
    assert_eq!(longest.canonical().len(), MAX_LENGTH);
    let error = Selector::parse(&format!("a == '{value}x'")).unwrap_err();
    assert_eq!(error.kind(), &ParseErrorKind::TooLong { length: MAX_LENGTH + 1 });

    // Short as written, too long in canonical form: whatever is accepted can always be parsed again.
    let dense = vec!["a!=''"; MAX_LENGTH / 7].join("||");
    assert!(dense.len() <= MAX_LENGTH);
    assert!(matches!(Selector::parse(&dense).unwrap_err().kind(), ParseErrorKind::TooLong { .. }));
}

#[test]
fn key_prefix() {
    for (input, expected) in [
        ("k == 'v'", r#"pcns.k == "v""#),
        ("k != 'v'", r#"pcns.k != "v""#),
        ("k contains 'v'", r#"pcns.k contains "v""#),
        ("k starts with 'v'", r#"pcns.k starts with "v""#),
        ("k ends with 'v'", r#"pcns.k ends with "v""#),
        ("k in {'v'}", r#"pcns.k in {"v"}"#),
        ("k not in {'v'}", r#"pcns.k not in {"v"}"#),
        ("!has(k)", "!has(pcns.k)"),
        ("all() || global()", "(all() || global())"),
        ("has(a) && (has(b) || !(c == 'pcns.'))", r#"(has(pcns.a) && (has(pcns.b) || !pcns.c == "pcns."))"#),
    ] {
        let prefixed = Selector::parse(input).unwrap().with_key_prefix("pcns.");
        assert_eq!(prefixed.canonical(), expected);
        assert_eq!(prefixed, Selector::parse(expected).unwrap());
        assert_eq!(prefixed.unique_id(), unique_id("s", expected));
    }
}

#[test]
fn uses_of_functions() {
    for (text, all, global) in [
        ("", true, false),
        ("all()", true, false),
        ("global()", false, true),
        ("has(all) && all == 'global()'", false, false),
        ("has(a) || !(has(b) && global())", false, true),
        ("!all() && global()", true, true),
    ] {
        let selector = Selector::parse(text).unwrap();
        assert_eq!((selector.uses_all(), selector.uses_global()), (all, global), "{text}");
    }
    assert!(Selector::parse(" (global( ))").unwrap().is_global());
    assert!(!Selector::parse("!global()").unwrap().is_global());
    assert!(Selector::parse("").unwrap().is_all());
}

#[test]
fn nodes_in_reading_order() {
    let selector = Selector::parse("has(a) && !(has(b) || c == 'x') && d in {}").unwrap();
    let labels: Vec<&str> = selector.nodes().filter_map(|node| node.label()).collect();
    assert_eq!(labels, ["a", "b", "c", "d"]);
    assert_eq!(selector.nodes().count(), 7);
}

/// Restrictions are written `+` for present, `-` for absent, and then the values, if they are limited.
#[test]
fn label_restrictions() {
    for (text, expected) in [
        ("", ""),
        ("global()", ""),
        ("a == 'v'", "a+[v]"),
        ("has(a)", "a+"),
        ("a in {'v1','v2'}", "a+[v1 v2]"),
        ("a in {}", "a+[]"),
        ("a not in {'v1'}", ""),
        ("a != 'v'", ""),
        ("a contains 'v'", "a+"),
        ("a starts with 'v'", "a+"),
        ("a ends with 'v'", "a+"),
        ("a == 'v1' && a == 'v1'", "a+[v1]"),
        ("a == 'v1' && a == 'v2'", "a+[]"),
        ("a == 'v1' && has(a)", "a+[v1]"),
        ("has(a) && a == 'v1'", "a+[v1]"),
        ("a in {'v1','v2','v3'} && a in {'v2','v3','v4'}", "a+[v2 v3]"),
        ("has(a) && !has(a)", "a+-"),
        ("a == 'v1' && b == 'v2'", "a+[v1] b+[v2]"),
        ("all() && a == 'v1'", "a+[v1]"),
        ("a == 'v1' || a == 'v2'", "a+[v1 v2]"),
        ("has(a) || a == 'v2'", "a+"),
        ("a == 'v2' || has(a)", "a+"),
        ("a == 'v2' || has(b)", ""),
        ("a == 'v2' || has(b) && has(a)", "a+"),
        ("a == 'v1' && has(b) || has(c) && a == 'v2' && b == 'x'", "a+[v1 v2] b+"),
        ("!has(a) || !has(a) && has(b)", "a-"),
        ("has(a) || !has(a)", ""),
        ("a == 'v1' || all()", ""),
        ("!(a == 'v')", ""),
        ("!has(a)", "a-"),
        ("!!has(a)", "a+"),
        ("!(!has(a))", ""),
    ] {
        let plain = Selector::parse(text).unwrap();
        assert_eq!(describe(&plain), expected, "{text}");
        if !text.is_empty() {
            let wrapped = Selector::parse(&format!("all() && ({text})")).unwrap();
            assert_eq!(describe(&wrapped), expected, "all() && ({text})");
        }
    }
    let values = |values: &[&str]| values.iter().map(|v| Box::from(*v)).collect::<BTreeSet<Box<str>>>();
    let never = LabelRestriction { must_have_one_of_values: Some(values(&[])), ..Default::default() };
    assert!(!never.possible_to_satisfy());
    assert!(LabelRestriction { must_be_absent: true, ..Default::default() }.possible_to_satisfy());
}

fn describe(selector: &Selector) -> String {
    let restrictions = selector.label_restrictions();
    let mut words = Vec::new();
    for (label, restriction) in &restrictions {
        let mut word = label.to_string();
        word.push_str(if restriction.must_be_present { "+" } else { "" });
        word.push_str(if restriction.must_be_absent { "-" } else { "" });
        if let Some(values) = &restriction.must_have_one_of_values {
            let values: Vec<&str> = values.iter().map(AsRef::as_ref).collect();
            write!(word, "[{}]", values.join(" ")).unwrap();
        }
        words.push(word);
    }
    words.join(" ")
}

#[test]
fn cheap_clone_and_equality() {
    let one = Selector::parse("a in {'y', 'x'}").unwrap();
    let other: Selector = "(a in {\"x\",'y','x'})".parse().unwrap();
    assert_eq!(one, other);
    assert_eq!(one.clone(), other);
    assert_ne!(one, Selector::parse("a in {'x'}").unwrap());
    let set = std::collections::HashSet::from([one, other]);
    assert_eq!(set.len(), 1);
}

#[test]
fn text_in_non_canonical_form_selects_nothing() {
    let labels: [(&str, &str); 1] = [("a", "x")];
    for text in ["has(", "a ==", "((a == \"x\")"] {
        let selector = Selector::from_canonical(text);
        assert_eq!(selector, Selector::nothing(), "{text}");
        assert!(!selector.evaluate(&labels), "{text}");
    }
    assert!(Selector::default().is_all());
}
