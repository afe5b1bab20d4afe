//! Runs every test of the workspace and prints one count at the end.
//!
//! Cargo builds everything first and runs one test binary after the other. Most of ours wait for servers and kernels rather
//! than work, so several run at once here; what each prints comes out whole when it ends. Some tests start `tortie`
//! itself: cargo builds it with the tests, because it has integration tests of its own. A build of its own first would build
//! most dependencies twice, with other features.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// How many test binaries run at once. Each has as many threads as the machine has cores.
const AT_ONCE: usize = 3;

/// Crates whose tests take longest, longest first: what begins last should be short.
const LONGEST: [&str; 8] =
    ["tortie", "kube-controllers", "dataplane", "cni", "node", "ipam", "datastore", "calicoctl"];

/// A test binary, ready to run.
#[derive(Debug, PartialEq)]
struct Binary {
    package: String,
    target: String,
    executable: PathBuf,
    manifest: PathBuf,
}

#[derive(Default)]
struct Outcome {
    passed: u64,
    failed: u64,
    ignored: u64,
    /// Binaries that ended badly, by name.
    broken: Vec<String>,
}

/// Builds and runs all tests, with further arguments passed to the build (such as `-p CRATE`).
pub(crate) fn run(root: &Path, arguments: &[&str]) -> Result<()> {
    let mut binaries = build(root, arguments)?;
    binaries.sort_by_key(|binary| {
        LONGEST.iter().position(|name| *name == binary.package).unwrap_or(LONGEST.len())
    });
    let queue = Mutex::new(VecDeque::from(binaries));
    let outcome = Mutex::new(Outcome::default());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(binary) = take(&queue) {
                    let (text, is_success) = execute(&binary);
                    let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
                    println!("{text}");
                    outcome.add(&binary, &text, is_success);
                }
            });
        }
    });
    let mut outcome = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
    documentation(root, &mut outcome)?;
    for name in &outcome.broken {
        println!("failed: {name}");
    }
    println!("{} passed, {} failed, {} skipped", outcome.passed, outcome.failed, outcome.ignored);
    if outcome.ignored > 0 {
        bail!("{} test(s) were skipped: a test either runs or is deleted", outcome.ignored);
    }
    if !outcome.broken.is_empty() || outcome.failed > 0 || outcome.passed == 0 {
        bail!("tests failed");
    }
    Ok(())
}

fn take(queue: &Mutex<VecDeque<Binary>>) -> Option<Binary> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
}

/// Has cargo build all test binaries; which they are.
fn build(root: &Path, arguments: &[&str]) -> Result<Vec<Binary>> {
    let scope: &[&str] = if arguments.is_empty() { &["--workspace"] } else { arguments };
    let mut child = crate::cargo()
        .args(["test", "--locked", "--no-run", "--message-format=json-render-diagnostics"])
        .args(scope)
        .current_dir(root)
        .stdout(Stdio::piped())
        .spawn()
        .context("running cargo test --no-run")?;
    let output = child.stdout.take().context("cargo has no output")?;
    let mut binaries = Vec::new();
    for line in BufReader::new(output).lines() {
        binaries.extend(binary(&serde_json::from_str(&line?).context("reading cargo's messages")?));
    }
    if !child.wait()?.success() {
        bail!("the tests do not build");
    }
    Ok(binaries)
}

/// The test binary that a message of cargo is about, if it is about one.
fn binary(message: &Value) -> Option<Binary> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let manifest = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    Some(Binary {
        package: manifest.file_name()?.to_string_lossy().into_owned(),
        target: message["target"]["name"].as_str()?.to_owned(),
        executable: message["executable"].as_str()?.into(),
        manifest,
    })
}

/// Runs a test binary as cargo would; what it printed, and whether it succeeded.
fn execute(binary: &Binary) -> (String, bool) {
    let begin = Instant::now();
    let output = Command::new(&binary.executable)
        .current_dir(&binary.manifest)
        .env("CARGO_MANIFEST_DIR", &binary.manifest)
        .env("CARGO_PKG_NAME", &binary.package)
        .stdin(Stdio::null())
        .output();
    let head = format!("     Running {} {} ({})", binary.package, binary.target, binary.executable.display());
    match output {
        Ok(output) => {
            let text = format!(
                "{head}\n{}{}({} {} took {:.0} s)",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr),
                binary.package,
                binary.target,
                begin.elapsed().as_secs_f64()
            );
            (text, output.status.success())
        }
        Err(error) => (format!("{head}\ncannot be run: {error}"), false),
    }
}

/// Examples in documentation are tests, too, and only cargo can run them.
fn documentation(root: &Path, outcome: &mut Outcome) -> Result<()> {
    let output = crate::cargo()
        .args(["test", "--workspace", "--locked", "--doc", "--no-fail-fast"])
        .current_dir(root)
        .output()
        .context("running cargo test --doc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    outcome.count(&text);
    if !output.status.success() {
        println!("{text}{}", String::from_utf8_lossy(&output.stderr));
        outcome.broken.push("examples in documentation".to_owned());
    }
    Ok(())
}

impl Outcome {
    fn add(&mut self, binary: &Binary, text: &str, is_success: bool) {
        self.count(text);
        if !is_success {
            self.broken.push(format!("{} {}", binary.package, binary.target));
        }
    }

    fn count(&mut self, text: &str) {
        for counts in text.lines().filter_map(|line| line.strip_prefix("test result: ")) {
            self.passed += count(counts, "passed");
            self.failed += count(counts, "failed");
            self.ignored += count(counts, "ignored");
        }
    }
}

/// The number before `word` in a line such as `ok. 3 passed; 0 failed; 0 ignored`.
fn count(line: &str, word: &str) -> u64 {
    let words: Vec<&str> = line.split([' ', ';']).filter(|part| !part.is_empty()).collect();
    words.windows(2).find(|pair| pair[1] == word).and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{Binary, Outcome, binary, count};
    use serde_json::json;

    #[test]
    fn counts_are_read_from_the_result_line() {
        let line = "ok. 12 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.01s";
        assert_eq!((count(line, "passed"), count(line, "failed"), count(line, "ignored")), (12, 1, 2));
        assert_eq!(count(line, "lost"), 0);
    }

    #[test]
    fn a_binary_that_ends_badly_counts_even_without_a_failed_test() {
        let message = json!({
            "reason": "compiler-artifact",
            "profile": {"test": true},
            "manifest_path": "/src/crates/calc/Cargo.toml",
            "target": {"name": "it"},
            "executable": "/src/target/debug/deps/it-1",
        });
        let calc = binary(&message).expect("a binary");
        assert_eq!((calc.package.as_str(), calc.target.as_str()), ("calc", "it"));
        let mut outcome = Outcome::default();
        outcome.add(&calc, "running 2 tests\nfatal runtime error", false);
        assert_eq!((outcome.passed, outcome.broken.len()), (0, 1));
    }

    #[test]
    fn libraries_are_not_test_binaries() {
        let message = json!({"reason": "compiler-artifact", "profile": {"test": false}, "executable": null});
        assert_eq!(binary(&message), None::<Binary>);
    }
}
