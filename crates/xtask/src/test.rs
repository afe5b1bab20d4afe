//! Runs every test of the workspace and prints one count at the end.
//!
//! Some tests start `tortie` itself: cargo builds it with the tests, because it has integration tests of its own, and runs
//! nothing before everything is built. A build of its own first would build most dependencies twice, with other features.

use anyhow::{Context, Result, bail};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs `cargo test` on the workspace, with further arguments passed on.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> Result<()> {
    let mut child = Command::new("cargo")
        .args(["test", "--workspace", "--locked", "--no-fail-fast"])
        .args(arguments)
        .current_dir(root)
        .stdout(Stdio::piped())
        .spawn()
        .context("running cargo test")?;
    let output = child.stdout.take().context("cargo test has no output")?;
    let (mut passed, mut failed, mut ignored) = (0_u64, 0_u64, 0_u64);
    for line in BufReader::new(output).lines() {
        let line = line?;
        println!("{line}");
        if let Some(counts) = line.strip_prefix("test result: ") {
            passed += count(counts, "passed");
            failed += count(counts, "failed");
            ignored += count(counts, "ignored");
        }
    }
    let status = child.wait()?;
    println!("{passed} passed, {failed} failed, {ignored} skipped");
    if ignored > 0 {
        bail!("{ignored} test(s) were skipped: a test either runs or is deleted");
    }
    if !status.success() || failed > 0 || passed == 0 {
        bail!("tests failed");
    }
    Ok(())
}

/// The number before `word` in a line such as `ok. 3 passed; 0 failed; 0 ignored`.
fn count(line: &str, word: &str) -> u64 {
    let words: Vec<&str> = line.split([' ', ';']).filter(|part| !part.is_empty()).collect();
    words.windows(2).find(|pair| pair[1] == word).and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn counts_are_read_from_the_result_line() {
        let line = "ok. 12 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.01s";
        assert_eq!(
            (super::count(line, "passed"), super::count(line, "failed"), super::count(line, "ignored")),
            (12, 1, 2)
        );
        assert_eq!(super::count(line, "lost"), 0);
    }
}
