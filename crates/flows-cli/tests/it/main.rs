//! Flows in the terminal: every output format as a file, filters compared with a slow evaluator, and real servers.

mod filters;
mod golden;
mod recommendations;
mod servers;

use clap::{Args as _, Command, FromArgMatches as _};
use flows_cli::{Clusters, Failure, FlowsArgs, Shell};
use std::io::Write;
use std::path::PathBuf;

/// Shortly after the recorded flows.
const NOW: i64 = 1_763_388_200;

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn parse(words: &[&str]) -> Result<FlowsArgs, clap::Error> {
    const NAME: &str = "flows";
    let command = FlowsArgs::augment_args(Command::new(NAME));
    let words = std::iter::once(NAME).chain(words.iter().copied());
    command.try_get_matches_from(words).and_then(|matches| FlowsArgs::from_arg_matches(&matches))
}

/// Runs a command with an output of the caller's; returns the warnings.
async fn run_to(
    words: &[&str],
    stdin: &str,
    stdout: &mut dyn Write,
    clusters: Option<Clusters>,
    now: i64,
) -> (Result<(), Failure>, String) {
    let args = parse(words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
    let mut said = String::new();
    let mut warn = |text: &str| said.push_str(&format!("{text}\n"));
    let mut shell = Shell {
        stdin: &mut stdin.as_bytes(),
        stdout,
        warn: &mut warn,
        variable: &|_| None,
        colours: false,
        now,
    };
    let outcome = flows_cli::run(&args, &mut shell, clusters).await;
    (outcome, said)
}

async fn run(
    words: &[&str],
    stdin: &str,
    clusters: Option<Clusters>,
) -> (Result<(), Failure>, String, String) {
    let mut out = Vec::new();
    let (outcome, said) = run_to(words, stdin, &mut out, clusters, NOW).await;
    (outcome, String::from_utf8(out).unwrap(), said)
}
