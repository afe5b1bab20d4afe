//! Rules of the project that no compiler checks, over the files in git.

use crate::{
    bpf, dependencies, doors, environment, generate, layers, links, page, programs, quotes, surface, words,
};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// A file longer than this probably contains a second idea.
const LONGEST_FILE: usize = 900;

/// Markers of unfinished work, split so that this file does not contain them.
const UNFINISHED: [&str; 3] =
    [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("#[", "ignore")];

/// The files that may contain unsafe code.
const UNSAFE: [&str; 5] = [
    "crates/bpf/src/system.rs",
    "crates/netlink/src/discovery/link_address.rs",
    "crates/netlink/src/session_options.rs",
    "crates/telemetry/src/memory.rs",
    "crates/testkit/src/heap.rs",
];

/// The lint that forbids it everywhere else, split so that this file does not contain it.
const UNSAFE_LINT: &str = concat!("unsafe", "_code");

/// Checks everything and reports all problems at once.
pub(crate) fn run(root: &Path) -> Result<()> {
    let mut problems = layers::check(root)?;
    problems.extend(generate::stale(root)?);
    let files = tracked_files(root)?;
    problems.extend(programs::check(root, &files)?);
    problems.extend(dependencies::check_licences(root)?);
    problems.extend(words::check(root, &files)?);
    problems.extend(links::check(root, &files));
    problems.extend(environment::check(root, &files));
    problems.extend(quotes::check(root, &files));
    problems.extend(surface::check(root, &files));
    problems.extend(doors::check(root, &files));
    problems.extend(module_style(&files));
    problems.extend(doubles(root, &files));
    problems.extend(page::check(root)?);
    problems.extend(bpf::check(root)?);
    let mut checked = 0_usize;
    for name in files.iter().filter(|name| name.ends_with(".rs")) {
        let Ok(text) = std::fs::read_to_string(root.join(name)) else { continue };
        checked += 1;
        problems.extend(check_source(name, &text));
    }
    for name in [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
        "LICENSE",
        "Cargo.lock",
    ] {
        if !files.iter().any(|file| file == name) {
            problems.push(format!("{name} is missing"));
        }
    }
    if problems.is_empty() {
        println!("tidy: {checked} source files, no problems");
        return Ok(());
    }
    for problem in &problems {
        println!("tidy: {problem}");
    }
    bail!("tidy: {} problem(s)", problems.len());
}

/// A module of several files is `name.rs` beside `name/`: an editor's tabs then show names instead of many `mod.rs`.
fn module_style(files: &[String]) -> Vec<String> {
    let old = files.iter().filter(|name| name.ends_with("/mod.rs") && name.starts_with("crates/"));
    old.map(|name| {
        let folder = name.trim_end_matches("/mod.rs");
        format!("{name}: a module of several files is {folder}.rs beside {folder}/")
    })
    .collect()
}

/// Test doubles are behind the feature `testing`, which only dev-dependencies and fuzzing enable: a release contains
/// none of them.
fn doubles(root: &Path, files: &[String]) -> Vec<String> {
    let mut problems = Vec::new();
    let manifests = files.iter().filter(|name| name.starts_with("crates/") && name.ends_with("/Cargo.toml"));
    for name in manifests.filter(|name| !name.ends_with("/fuzz/Cargo.toml")) {
        let Ok(text) = std::fs::read_to_string(root.join(name)) else { continue };
        let mut section = "";
        for (number, line) in text.lines().enumerate() {
            if line.starts_with('[') {
                section = line;
            } else if line.contains("\"testing\"") && !section.contains("dev-dependencies") {
                problems.push(format!(
                    "{name}:{}: only dev-dependencies may have the feature `testing`",
                    number + 1
                ));
            }
        }
    }
    problems
}

fn check_source(name: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let first = text.lines().find(|line| !line.trim().is_empty() && !line.starts_with("#!["));
    if !first.is_some_and(|line| line.starts_with("//!")) {
        problems.push(format!("{name} has no module header (`//!` as its first line)"));
    }
    let lines = text.lines().count();
    if lines > LONGEST_FILE {
        problems.push(format!("{name} has {lines} lines: look for the second idea in it"));
    }
    if words::is_production(name) && words::production(text).any(|(_, line)| has_untyped_value(line)) {
        problems.push(format!("{name}: a value of any type: use an enum, or a type parameter"));
    }
    if name.contains("/src/") && text.contains(UNSAFE_LINT) && !UNSAFE.contains(&name) {
        problems.push(format!("{name}: unsafe code is only in {UNSAFE:?}"));
    }
    for word in UNFINISHED {
        for (number, line) in text.lines().enumerate() {
            if line.contains(word) && !line.trim_start().starts_with("//") {
                problems.push(format!("{name}:{}: unfinished or skipped: {}", number + 1, line.trim()));
            }
        }
    }
    problems
}

fn tracked_files(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("running git ls-files")?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

/// Whether code stores values whose type is only determined at run time.
fn has_untyped_value(code: &str) -> bool {
    let mut ends = code.split(concat!("dyn ", "Any")).skip(1);
    ends.any(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lint_may_only_be_off_in_the_listed_files() {
        let text = format!("//! Header.\n#[expect({UNSAFE_LINT}, reason = \"none\")]\n");
        assert_eq!(check_source("crates/api/src/lib.rs", &text).len(), 1);
        assert!(check_source(UNSAFE[0], &text).is_empty());
    }

    #[test]
    fn values_of_any_type_are_found() {
        assert!(has_untyped_value(concat!("fn f(x: &dyn ", "Any) {}")));
        assert!(!has_untyped_value("fn f(x: &dyn AnyInformer) {}"));
    }
}
