//! Rules of the house that no compiler checks, over the files git knows.

use crate::{dependencies, generate, layers, programs};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// A file longer than this holds a second idea.
const LONGEST_FILE: usize = 900;

/// Words that mean unfinished work, split so that this file does not contain them.
const UNFINISHED: [&str; 3] =
    [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("#[", "ignore")];

/// Checks everything and reports all problems at once.
pub(crate) fn run(root: &Path) -> Result<()> {
    let mut problems = layers::check(root)?;
    problems.extend(generate::stale(root)?);
    let files = tracked_files(root)?;
    problems.extend(programs::check(root, &files)?);
    problems.extend(dependencies::check_licences(root)?);
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
