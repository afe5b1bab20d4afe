//! Calico's words are written once, in `api::words`: a literal of one of them in other production code is a problem.
//!
//! Tests write words out on purpose: they document what users see.

use anyhow::{Context as _, Result};
use std::path::Path;

/// The file that defines the words.
const HOME: &str = "crates/api/src/words.rs";

/// Words that are also ordinary: they have other meanings elsewhere.
const ORDINARY: [&str; 1] = ["default"];

/// Crates whose production code is for tests, or for this repository.
const EXEMPT: [&str; 3] = ["crates/e2e/", "crates/testkit/", "crates/xtask/"];

/// Finds literals of words outside the file that defines them.
pub(crate) fn check(root: &Path, files: &[String]) -> Result<Vec<String>> {
    let home = std::fs::read_to_string(root.join(HOME)).with_context(|| format!("reading {HOME}"))?;
    let words = words(&home);
    let mut problems = Vec::new();
    for name in files.iter().filter(|name| is_production(name)) {
        let Ok(text) = std::fs::read_to_string(root.join(name)) else { continue };
        problems.extend(literals(&text, &words).into_iter().map(|(line, word, constant)| {
            format!("{name}:{line}: \"{word}\" is one of Calico's words: use api::words::{constant}")
        }));
    }
    Ok(problems)
}

/// Whether a file contains production code, which must use the constants.
pub(crate) fn is_production(name: &str) -> bool {
    name.starts_with("crates/")
        && name.contains("/src/")
        && name.ends_with(".rs")
        && !name.ends_with("/tests.rs")
        && !name.contains("/tests/")
        && name != HOME
        && !EXEMPT.iter().any(|exempt| name.starts_with(exempt))
}

/// The lines of a file that are not only for tests, with their numbers. Relies on rustfmt: an item ends where its
/// indentation recurs.
pub(crate) fn production(text: &str) -> impl Iterator<Item = (usize, &str)> {
    // The indentation of the item that is skipped.
    let mut skipped: Option<usize> = None;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let code = line.trim_start();
        let indentation = line.len() - code.len();
        let Some(outer) = skipped else {
            if code == "#[cfg(test)]" {
                skipped = Some(indentation);
                return None;
            }
            return Some((index + 1, line));
        };
        let is_code = !code.starts_with("//") && !code.starts_with("#[");
        if is_code && indentation == outer && code.ends_with([';', '}', ',']) {
            skipped = None;
        }
        None
    })
}

/// The constants in the defining file, by value.
fn words(home: &str) -> Vec<(String, String)> {
    let constant = |line: &str| {
        let (name, value) = line.trim().strip_prefix("pub const ")?.split_once(": &str = \"")?;
        let value = value.strip_suffix("\";")?;
        (!ORDINARY.contains(&value)).then(|| (value.to_owned(), name.to_owned()))
    };
    home.lines().filter_map(constant).collect()
}

fn literals<'a>(text: &str, words: &'a [(String, String)]) -> Vec<(usize, &'a str, &'a str)> {
    let mut found = Vec::new();
    for (number, line) in production(text) {
        let code = line.trim_start();
        // An attribute's argument must be a literal.
        if code.starts_with("//") || code.starts_with("#[") {
            continue;
        }
        for (word, constant) in words {
            // A prefix is also found at the start of a longer string.
            let end = if word.ends_with('.') { "" } else { "\"" };
            if is_literal(code, &format!("\"{word}{end}")) || is_within(code, word) {
                found.push((number, word.as_str(), constant.as_str()));
            }
        }
    }
    found
}

/// Whether a line of code contains a literal with this beginning, except as a member of a JSON document: those show
/// what users write.
fn is_literal(code: &str, beginning: &str) -> bool {
    let Some(start) = code.find(beginning) else { return false };
    let rest = code[start + 1..].split_once('"').map_or("", |(_, rest)| rest);
    !code[..start].ends_with("\": ") && !rest.starts_with(':')
}

/// Whether a longer literal, except as a member of a JSON document, contains this name of a label or annotation.
fn is_within(code: &str, word: &str) -> bool {
    let is_name = |next: char| next.is_ascii_alphanumeric() || "-_.".contains(next);
    word.split_once('/').is_some_and(|(_, name)| !name.is_empty())
        && code.match_indices(word).any(|(start, _)| {
            let (before, rest) = (&code[..start], &code[start + word.len()..]);
            let is_quoted = before.matches('"').count() % 2 == 1;
            let is_whole = before.ends_with('"') && rest.starts_with('"');
            let is_member = rest.split_once('"').is_some_and(|(_, after)| after.starts_with(':'));
            is_quoted && !is_whole && !is_member && !rest.starts_with(is_name)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_labels_are_found_within_longer_literals() {
        let words = words("pub const NAME: &str = \"projectcalico.org/name\";\n");
        let text = "format!(\"the label projectcalico.org/name is missing\");\nlet a = \"projectcalico.org/names\";\n\
                    json!({\"pcns.projectcalico.org/name\": 1});\nlet b = \"a\"; // projectcalico.org/name\n";
        assert_eq!(literals(text, &words), [(1, "projectcalico.org/name", "NAME")]);
    }

    #[test]
    fn words_are_found_in_code_and_not_in_comments_attributes_or_tests() {
        let home = "pub const TIER: &str = \"default\";\npub const KUBERNETES: &str = \"k8s\";\n    pub const PREFIX: &str = \"kns.\";\n";
        let words = words(home);
        assert_eq!(words.len(), 2);
        let text = "// \"k8s\"\n#[serde(rename = \"k8s\")]\nlet a = \"k8s\";\nlet b = format!(\"kns.{name}\");\n\
                    let c = \"k8s-pod-network\";\njson!({\"type\": \"k8s\", \"kns.x\": 1});\n#[cfg(test)]\nmod tests {\n    \"k8s\"\n}\n";
        assert_eq!(literals(text, &words), [(3, "k8s", "KUBERNETES"), (4, "kns.", "PREFIX")]);
    }

    #[test]
    fn only_the_items_of_tests_are_skipped() {
        let text = "//! Header.\n#[cfg(test)]\nmod tests;\nfn a() {}\n    #[cfg(test)]\n    #[must_use]\n    fn b(\n        c: u8,\n    ) \
                    -> u8 {\n        1\n    }\nfn d() {}\n#[cfg(test)]\nmod more {\n    fn e() {}\n}\nfn f() {}\n";
        let lines: Vec<_> = production(text).collect();
        assert_eq!(lines, [(1, "//! Header."), (4, "fn a() {}"), (12, "fn d() {}"), (17, "fn f() {}")]);
    }

    #[test]
    fn tests_may_write_words_out() {
        assert!(is_production("crates/calc/src/policy.rs"));
        for name in [
            "crates/calc/src/policy/tests.rs",
            "crates/calc/tests/it/main.rs",
            "crates/testkit/src/lib.rs",
            HOME,
        ] {
            assert!(!is_production(name), "{name}");
        }
    }
}
