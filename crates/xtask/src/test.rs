//! Runs every test of the workspace and prints one count at the end.
//!
//! Cargo builds everything first and runs one test binary after another. Most of ours wait for servers and kernels
//! rather than compute, so several run at once here; the output of each is printed whole when it ends. Some tests start
//! `tortie` itself: cargo builds it with the tests, because it has integration tests of its own. A separate build
//! beforehand would build most dependencies twice, with other features.
//!
//! A failed test is run once more, alone, after all others have ended. If it passes then, it is reported as unsteady
//! and the run continues: a busy machine must not block a change, and the name in the output is the reason to repair
//! the test. A run forgives at most five of them. In a binary that hung or died, every test that had not ended counts
//! as failed.
//!
//! Property tests try the same cases in every run ([`SEED`]): rare counterexamples are found by searching for them
//! (`PROPTEST_RNG_SEED=random`, more `PROPTEST_CASES`), not by an unrelated change. Counterexamples that were found are
//! kept in files and are tried first.

mod examples;
mod process;

use anyhow::{Context, Result, bail};
use process::{Ended, PATIENCE, finish};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// How many test binaries run at once. Each has as many threads as the machine has cores.
const AT_ONCE: usize = 3;

/// The crates with the slowest tests, slowest first: the last ones to start should be short.
const LONGEST: [&str; 14] = [
    "tortie",
    "datastore",
    "dataplane",
    "kube-controllers",
    "cni",
    "apiserver",
    "node",
    "bpf-driver",
    "follow",
    "speaker",
    "bpf",
    "calicoctl",
    "typha",
    "operate",
];

/// Crates whose tests mostly wait for other processes: twice as many of them run at once as there are cores.
const WAITING: [&str; 1] = ["tortie"];

/// Tests with this word in their names run in a guest on an emulated processor. Beside other tests they take ten times
/// as long as alone, and programs in the guest time out: so they wait until all others have ended.
const IN_A_GUEST: &str = "guest";

/// The seed of property tests, unless the variable sets another one; `random` is a new one for each test.
const SEED: (&str, &str) = ("PROPTEST_RNG_SEED", "20261117");

/// How many tests may fail beside others and pass alone. More than that have a cause.
const MOST_UNSTEADY: usize = 5;

/// A test binary, ready to run.
#[derive(Clone, Debug, PartialEq)]
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
    /// Binaries that ended abnormally, by name.
    broken: Vec<String>,
    /// Tests that failed, with their binaries.
    suspects: Vec<(Binary, String)>,
    /// Tests that failed beside others but passed alone.
    unsteady: Vec<String>,
}

/// Builds and runs all tests, with further arguments passed to the build (such as `-p CRATE`).
pub(crate) fn run(root: &Path, arguments: &[&str]) -> Result<()> {
    let mut binaries = build(root, arguments)?;
    binaries.sort_by_key(|binary| {
        LONGEST.iter().position(|name| *name == binary.package).unwrap_or(LONGEST.len())
    });
    // Each on its own: a guest has one processor, and the next one starts as soon as a core is free.
    let guests: Vec<(Binary, String)> = binaries.iter().flat_map(in_guests).collect();
    let outcome = Mutex::new(Outcome::default());
    let run = |binary: &Binary, arguments: &[&str]| {
        let (text, is_success) = execute(binary, arguments);
        let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
        println!("{text}");
        outcome.add(binary, &text, is_success, || list(binary, arguments));
    };
    each(AT_ONCE, binaries, |binary| run(&binary, &["--skip", IN_A_GUEST]));
    each(cores(), guests, |(binary, test)| run(&binary, &["--exact", &test]));
    let mut outcome = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
    documentation(root, &mut outcome)?;
    outcome.try_alone(execute_alone);
    for name in &outcome.unsteady {
        println!("unsteady: {name} failed beside other tests and passed alone");
    }
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

/// Runs `act` on all items in order, at most `at_once` of them at a time.
fn each<T: Send>(at_once: usize, work: Vec<T>, act: impl Fn(T) + Sync) {
    let queue = Mutex::new(work.into_iter());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(piece) = next() {
                    act(piece);
                }
            });
        }
    });
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Has cargo build all test binaries, and returns them.
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

/// The test binary in a message of cargo, if it contains one.
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

/// The tests of a binary that run in a guest.
fn in_guests(binary: &Binary) -> impl Iterator<Item = (Binary, String)> + use<> {
    let binary = binary.clone();
    list(&binary, &[IN_A_GUEST]).into_iter().map(move |test| (binary.clone(), test))
}

/// The tests of a binary that these arguments select.
fn list(binary: &Binary, arguments: &[&str]) -> Vec<String> {
    let mut command = command(binary);
    command.arg("--list").args(arguments);
    finish(command, PATIENCE)
        .text
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .map(str::to_owned)
        .collect()
}

/// Runs a test binary like cargo; returns its output and whether it succeeded.
fn execute(binary: &Binary, arguments: &[&str]) -> (String, bool) {
    let begin = Instant::now();
    let mut command = command(binary);
    command.args(arguments);
    if WAITING.contains(&binary.package.as_str()) && std::env::var_os("RUST_TEST_THREADS").is_none() {
        command.env("RUST_TEST_THREADS", (2 * cores()).to_string());
    }
    let Ended { text, is_success, processor } = finish(command, PATIENCE);
    let name = format!("{} {}", binary.package, binary.target);
    let (seconds, busy) = (begin.elapsed().as_secs(), processor.as_secs());
    (
        format!(
            "     Running {name} ({})\n{text}({name} took {seconds} s, {busy} s of processor time)",
            binary.executable.display()
        ),
        is_success,
    )
}

/// Runs a single test of a binary; returns its output and whether it succeeded.
fn execute_alone(binary: &Binary, test: &str) -> (String, bool) {
    let mut command = command(binary);
    command.args(["--exact", test]);
    let Ended { text, is_success, .. } = finish(command, PATIENCE);
    (format!("     Running {} {} {test} alone\n{text}", binary.package, binary.target), is_success)
}

/// A test binary's command, in the environment that cargo provides.
fn command(binary: &Binary) -> Command {
    let mut command = Command::new(&binary.executable);
    command
        .current_dir(&binary.manifest)
        .env("CARGO_MANIFEST_DIR", &binary.manifest)
        .env("CARGO_PKG_NAME", &binary.package)
        .stdin(Stdio::null());
    match std::env::var(SEED.0).as_deref() {
        Ok("random") => command.env_remove(SEED.0),
        Ok(_) => &mut command,
        Err(_) => command.env(SEED.0, SEED.1),
    };
    command
}

/// Examples in documentation are tests, too, and only cargo can run them. It parses a crate's whole source again for
/// that, and few of our crates have any: the others are skipped.
fn documentation(root: &Path, outcome: &mut Outcome) -> Result<()> {
    let packages = examples::crates(&root.join("crates"))?;
    if packages.is_empty() {
        return Ok(());
    }
    let output = crate::cargo()
        .args(["test", "--locked", "--doc", "--no-fail-fast"])
        .args(packages.iter().flat_map(|package| ["-p", package]))
        .current_dir(root)
        .output()
        .context("running cargo test --doc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    outcome.count(result_lines(&text));
    if !output.status.success() {
        println!("{text}{}", String::from_utf8_lossy(&output.stderr));
        outcome.broken.push("examples in documentation".to_owned());
    }
    Ok(())
}

impl Outcome {
    fn add(&mut self, binary: &Binary, text: &str, is_success: bool, selected: impl FnOnce() -> Vec<String>) {
        // The last line counts: a test that runs in a guest also prints the guest's result line.
        let result = result_lines(text).last();
        self.count(result);
        if is_success {
            return;
        }
        let name = format!("{} {}", binary.package, binary.target);
        let mut failed: Vec<String> = ended_tests(text, "FAILED").map(str::to_owned).collect();
        if result.is_none() {
            // It died, or hung and was killed: there is no count of the tests that had passed by then.
            let passed: BTreeSet<&str> = ended_tests(text, "ok").collect();
            failed = selected().into_iter().filter(|test| !passed.contains(test.as_str())).collect();
            self.passed += passed.len() as u64;
            self.failed += failed.len() as u64;
            println!("{name} did not get to its end; without a result: {}", failed.join(", "));
        }
        if failed.is_empty() {
            self.broken.push(name);
        }
        self.suspects.extend(failed.into_iter().map(|test| (binary.clone(), test)));
    }

    /// Runs each failed test once more, alone.
    fn try_alone(&mut self, execute: impl Fn(&Binary, &str) -> (String, bool)) {
        let suspects = std::mem::take(&mut self.suspects);
        let are_too_many = suspects.len() > MOST_UNSTEADY;
        for (binary, test) in suspects {
            let name = format!("{} {} {test}", binary.package, binary.target);
            if are_too_many {
                self.broken.push(name);
                continue;
            }
            let (text, is_success) = execute(&binary, &test);
            println!("{text}");
            if is_success {
                (self.passed, self.failed) = (self.passed + 1, self.failed.saturating_sub(1));
                self.unsteady.push(name);
            } else {
                self.broken.push(name);
            }
        }
    }

    fn count<'text>(&mut self, results: impl IntoIterator<Item = &'text str>) {
        for counts in results {
            self.passed += count(counts, "passed");
            self.failed += count(counts, "failed");
            self.ignored += count(counts, "ignored");
        }
    }
}

/// The result lines of the test harness, one per run in this output.
fn result_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.strip_prefix("test result: "))
}

/// The tests with this outcome, from the lines that the test harness prints for them.
fn ended_tests<'text>(text: &'text str, how: &str) -> impl Iterator<Item = &'text str> {
    text.lines().filter_map(move |line| line.strip_prefix("test ")?.strip_suffix(how)?.strip_suffix(" ... "))
}

/// The number before `word` in a line such as `ok. 3 passed; 0 failed; 0 ignored`.
fn count(line: &str, word: &str) -> u64 {
    let words: Vec<&str> = line.split([' ', ';']).filter(|part| !part.is_empty()).collect();
    words.windows(2).find(|pair| pair[1] == word).and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{Binary, MOST_UNSTEADY, Outcome, binary, count, each};
    use serde_json::json;
    use std::sync::Mutex;

    #[test]
    fn every_piece_of_work_is_done_once() {
        let done = Mutex::new(Vec::new());
        each(3, (0..20).collect(), |piece: u8| done.lock().unwrap().push(piece));
        let mut done = done.into_inner().unwrap();
        done.sort_unstable();
        assert_eq!(done, (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn counts_are_read_from_the_result_line() {
        let line = "ok. 12 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.01s";
        assert_eq!((count(line, "passed"), count(line, "failed"), count(line, "ignored")), (12, 1, 2));
        assert_eq!(count(line, "lost"), 0);
    }

    fn calc() -> Binary {
        let message = json!({
            "reason": "compiler-artifact",
            "profile": {"test": true},
            "manifest_path": "/src/crates/calc/Cargo.toml",
            "target": {"name": "it"},
            "executable": "/src/target/debug/deps/it-1",
        });
        binary(&message).expect("a binary")
    }

    #[test]
    fn only_a_test_that_passes_alone_is_forgiven() {
        for (failures, passes_alone, expected) in
            [(1, true, (8, 0, 1, 0)), (1, false, (7, 1, 0, 1)), (MOST_UNSTEADY + 1, true, (7, 6, 0, 6))]
        {
            let lines: String =
                (0..failures).map(|test| format!("test number_{test} ... FAILED\n")).collect();
            let text = format!(
                "{lines}test other ... ok\ntest result: FAILED. 0 passed; 1 failed; 0 ignored (in a guest)\n\
                 test result: FAILED. 7 passed; {failures} failed; 0 ignored"
            );
            let mut outcome = Outcome::default();
            outcome.add(&calc(), &text, false, Vec::new);
            outcome.try_alone(|_, test| {
                assert!(test.starts_with("number_"), "{test}");
                (String::new(), passes_alone)
            });
            let found = (outcome.passed, outcome.failed, outcome.unsteady.len(), outcome.broken.len());
            assert_eq!(found, expected, "{failures} {passes_alone}");
        }
    }

    #[test]
    fn a_binary_that_ends_badly_counts_even_without_a_failed_test() {
        let calc = calc();
        assert_eq!((calc.package.as_str(), calc.target.as_str()), ("calc", "it"));
        let mut outcome = Outcome::default();
        outcome.add(
            &calc,
            "test one ... ok\ntest result: ok. 1 passed; 0 failed; 0 ignored",
            false,
            Vec::new,
        );
        assert_eq!((outcome.passed, outcome.broken.len()), (1, 1));
    }

    #[test]
    fn unfinished_tests_of_a_dead_binary_are_tried_alone() {
        for (passes_alone, expected) in [(true, (3, 0, 2, 0)), (false, (1, 2, 0, 2))] {
            let mut outcome = Outcome::default();
            let text = "running 3 tests\ntest a::one ... ok\ntest two ... FAILED\nfatal runtime error";
            outcome.add(&calc(), text, false, || ["a::one", "three", "two"].map(str::to_owned).to_vec());
            outcome.try_alone(|_, test| {
                assert!(["two", "three"].contains(&test), "{test}");
                (String::new(), passes_alone)
            });
            let found = (outcome.passed, outcome.failed, outcome.unsteady.len(), outcome.broken.len());
            assert_eq!(found, expected, "{passes_alone}");
        }
    }

    #[test]
    fn libraries_are_not_test_binaries() {
        let message = json!({"reason": "compiler-artifact", "profile": {"test": false}, "executable": null});
        assert_eq!(binary(&message), None::<Binary>);
    }
}
