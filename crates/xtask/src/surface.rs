//! Finds public items that nothing names: neither another crate, nor the crate itself, nor a test. The compiler cannot
//! report them, because code outside might use them.
//!
//! The comparison is by word, not by type: an item that shares its name with another item counts as used.

use crate::words::production;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// The keywords of public items.
const ITEMS: [&str; 7] = ["fn", "struct", "enum", "const", "static", "trait", "type"];

/// Crates whose public items are for tests, or for this repository.
const EXEMPT: [&str; 2] = ["crates/testkit/", "crates/xtask/"];

/// The items that nothing names.
pub(crate) fn check(root: &Path, files: &[String]) -> Vec<String> {
    let mut sources = Vec::new();
    for name in files.iter().filter(|name| name.starts_with("crates/") && name.ends_with(".rs")) {
        if let Ok(text) = std::fs::read_to_string(root.join(name)) {
            sources.push((name.as_str(), text));
        }
    }
    dead(&sources)
}

fn dead(sources: &[(&str, String)]) -> Vec<String> {
    let mut named: HashMap<&str, usize> = HashMap::new();
    let mut items = Vec::new();
    for (file, text) in sources {
        let is_exempt = EXEMPT.iter().any(|exempt| file.starts_with(exempt)) || !file.contains("/src/");
        let production: HashSet<usize> = production(text).map(|(number, _)| number).collect();
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            // A re-export names an item without using it.
            if code.trim_start().starts_with("pub use ") {
                continue;
            }
            for word in words(code) {
                *named.entry(word).or_default() += 1;
            }
            if let Some(item) = public_item(code).filter(|_| !is_exempt && production.contains(&(number + 1)))
            {
                items.push((*file, number + 1, item));
            }
        }
    }
    let mut defined: HashMap<&str, usize> = HashMap::new();
    for (_, _, item) in &items {
        *defined.entry(item).or_default() += 1;
    }
    let is_dead = |item: &str| named.get(item) <= defined.get(item);
    let dead = items.into_iter().filter(|(_, _, item)| is_dead(item));
    dead.map(|(file, line, item)| {
        format!("{file}:{line}: nothing uses `{item}`: delete it, or make it private")
    })
    .collect()
}

/// The name of the public item that a line declares.
fn public_item(code: &str) -> Option<&str> {
    let mut words = words(code.trim_start().strip_prefix("pub ")?);
    let mut kind = words.next()?;
    while ["async", "unsafe"].contains(&kind) || (kind == "const" && code.contains(" fn ")) {
        kind = words.next()?;
    }
    ITEMS.contains(&kind).then(|| words.next()).flatten()
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_that_nothing_names_are_found() {
        let sources = [
            ("crates/a/src/lib.rs", "pub use inner::Unused;\npub struct Unused;\npub const fn used() {}\npub fn tested() {}\n// unused\n".to_owned()),
            ("crates/b/src/lib.rs", "fn main() { a::used() }\n#[cfg(test)]\nmod tests { fn t() { a::tested() } pub fn helper() {} }\n".to_owned()),
            ("crates/b/tests/it/main.rs", "pub fn helper_of_tests() {}\n".to_owned()),
        ];
        let found = dead(&sources);
        assert_eq!(found, ["crates/a/src/lib.rs:2: nothing uses `Unused`: delete it, or make it private"]);
    }

    #[test]
    fn declarations() {
        for (code, expected) in [
            ("    pub async fn run(self) {", Some("run")),
            ("pub const fn new() -> Self {", Some("new")),
            ("pub const LIMIT: u8 = 1;", Some("LIMIT")),
            ("pub(crate) fn inner() {}", None),
            ("pub field: String,", None),
        ] {
            assert_eq!(public_item(code), expected, "{code}");
        }
    }
}
