//! Finds the crates with examples in their documentation.
//!
//! Comments are parsed like rustdoc: a code block is an example unless it names another language. A false positive here
//! costs a few seconds; rustdoc decides what it runs.

use anyhow::{Context, Result};
use std::path::Path;

/// Languages of blocks that are not examples.
const OTHER_LANGUAGES: [&str; 7] = ["text", "yaml", "json", "sh", "console", "toml", "ignore"];

/// The crates below `folder` that have examples, by name, in order.
pub(super) fn crates(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let entry = entry?;
        let source = entry.path().join("src");
        if source.is_dir() && any_file(&source)? {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Whether a file below `folder` has an example.
fn any_file(folder: &Path) -> Result<bool> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        let is_found = if path.is_dir() {
            any_file(&path)?
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path);
            has_example(&text.with_context(|| format!("reading {}", path.display()))?)
        } else {
            false
        };
        if is_found {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a source file's documentation has a block of code that rustdoc would run.
fn has_example(source: &str) -> bool {
    let mut is_inside = false;
    for line in source.lines().map(str::trim_start) {
        let Some(comment) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            is_inside = false;
            continue;
        };
        let comment = comment.trim_start();
        let Some(words) = comment.strip_prefix("```").or_else(|| comment.strip_prefix("~~~")) else {
            continue;
        };
        let language = words.split([',', ' ']).next().unwrap_or_default();
        if !is_inside && !OTHER_LANGUAGES.contains(&language) {
            return true;
        }
        is_inside = !is_inside;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{crates, has_example};
    use std::path::Path;

    #[test]
    fn a_block_without_another_language_is_an_example() {
        for (source, expected) in [
            ("/// ```\n/// assert!(true);\n/// ```", true),
            ("//! Text.\n//!\n//! ```no_run\n//! loop {}\n//! ```", true),
            (
                "    /// ```text\n    /// a picture\n    /// ```\nfn f() {}\n    /// ```\n    /// f();\n    /// ```",
                true,
            ),
            ("/// ```text\n/// a picture\n/// ```\n/// ```yaml\n/// a: 1\n/// ```", false),
            ("// ```\n// not documentation\n// ```", false),
            ("let text = \"```\";", false),
        ] {
            assert_eq!(has_example(source), expected, "{source}");
        }
    }

    #[test]
    fn examples_in_this_repository_are_found() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lives among the crates");
        let found = crates(folder).expect("readable");
        assert!(found.contains(&"settings".to_owned()), "{found:?}");
        assert!(!found.contains(&"calc".to_owned()), "{found:?}");
    }
}
