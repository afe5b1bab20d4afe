//! Typha as a process of its own on an etcd, with up to 5,000 clients on this machine, compared with the floor: one
//! process that writes the same compressed bytes to as many sockets.
//!
//! Clients count the bytes of a snapshot, which the kernel discards without a copy, and decode only what follows, so
//! that the server is what is measured; the clients' share of the processors is part of both figures. If
//! `TORTIE_PEER_BIN` names a folder with Calico's `calico-typha`, that is measured beside ours on the same store. Words
//! on the command line select measurements whose name contains one of them. Needs etcd. Counts a client as in sync only
//! once the server has said so.

#![expect(clippy::print_stdout, reason = "the table is this program's output")]

mod agents;
mod changes;
mod clients;
mod fan_out;
mod servers;
mod store;

use anyhow::{Context as _, Result};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use testkit::Report;

const LIMIT: Duration = Duration::from_secs(300);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        // The roles of this program when it starts itself: the server, the floor, or one of the agents.
        ["typha", "-c", file] => return typha(file),
        ["floor", file, port] => servers::floor(file, port),
        ["agent", how, place] => agents::run(how, place),
        _ => measure(&words),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Once standard error is gone, there is nowhere left to report to.
            let _ = writeln!(std::io::stderr(), "{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn typha(file: &str) -> ExitCode {
    let arguments = typha::cli::Arguments { config_file: PathBuf::from(file) };
    typha::cli::main(&arguments, "bench").unwrap_or(ExitCode::FAILURE)
}

/// Ends a measurement that hangs, and names it.
async fn limited<T>(what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    let begin = Instant::now();
    let outcome = tokio::time::timeout(LIMIT, work).await.with_context(|| format!("{what} stands still"))?;
    let _ = writeln!(std::io::stderr(), "{what}: {:.1} s", begin.elapsed().as_secs_f64());
    outcome.with_context(|| what.to_owned())
}

/// Every client is an open file at both ends.
fn allow_many_files() -> Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}

fn measure(words: &[&str]) -> Result<()> {
    allow_many_files()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut report = Report::new("typha");
    let outcome = runtime.block_on(measure_all(words, &mut report));
    // Results obtained before a failure are shown, too.
    println!("{}", report.markdown());
    outcome?;
    report.record()
}

async fn measure_all(words: &[&str], report: &mut Report) -> Result<()> {
    let wanted = |name: &str| {
        let words: Vec<&&str> = words.iter().filter(|word| !word.starts_with("--")).collect();
        words.is_empty() || words.iter().any(|word| name.contains(**word))
    };
    let store = limited("filling the store", store::Filled::start()).await?;
    if wanted("calico") {
        limited("calico", fan_out::beside_calico(&store, report)).await?;
    }
    limited("filling the store up", store.fill_up()).await?;
    if wanted("snapshot") {
        limited("snapshot", fan_out::snapshots(&store, report)).await?;
    }
    if wanted("storm") {
        limited("storm", fan_out::storms(&store, report)).await?;
    }
    if wanted("changes") {
        limited("changes", changes::measure(&store, report)).await?;
    }
    if wanted("agent") {
        limited("agent", agents::measure(&store, report)).await?;
    }
    Ok(())
}
