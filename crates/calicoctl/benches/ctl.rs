//! How fast the command line is, compared with what it cannot do without.
//!
//! - `get ippool` against `etcdctl get` of the same key, as whole processes, in interleaved rounds.
//! - The peak memory of such a process.
//! - `apply` of 5,000 policies, pipelined against one at a time.
//!
//! The command runs in a process of its own: this program starts itself again as `calicoctl` (the same library, built
//! with the same options). A failed command ends the benchmark.

#![expect(clippy::print_stdout, reason = "the table is this program's output")]

use anyhow::{Context as _, Result, ensure};
use calicoctl::Surroundings;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::Instant;
use testkit::{Etcd, Folder, Report, median};

/// Set in the processes that run as `calicoctl`.
const ROLE: &str = "TORTIE_BENCH_AS_CALICOCTL";
const ROUNDS: usize = 41;
const POLICIES: usize = 5_000;
const KEY: &str = "/calico/resources/v3/projectcalico.org/ippools/default-ipv4-ippool";
const POOL: &str = "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata:\n  name: default-ipv4-ippool\nspec:\n  cidr: 192.168.0.0/16\n";

fn main() -> ExitCode {
    if std::env::var_os(ROLE).is_some() {
        return as_calicoctl();
    }
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the command line of this process, then reports how much memory it used.
fn as_calicoctl() -> ExitCode {
    let arguments: Vec<OsString> =
        std::iter::once("calicoctl".into()).chain(std::env::args_os().skip(1)).collect();
    let code = calicoctl::run(&arguments, Surroundings::of_process());
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    // If the reader is gone, nothing needs the figure.
    let _ = writeln!(std::io::stderr(), "peak {}", peak.trim());
    code
}

fn measure() -> Result<()> {
    let etcd = Etcd::start()?;
    let folder = Folder::new("bench-ctl")?;
    let endpoint = etcd.endpoint();
    let run = |words: &[&str], input: &str| calicoctl(&endpoint, words, input);
    run(&["apply", "-f", "-"], POOL)?;

    let (mut ours, mut theirs, mut peaks) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let started = Instant::now();
        let output = run(&["get", "ippool", "default-ipv4-ippool"], "")?;
        let ours_took = milliseconds(started);
        ensure!(String::from_utf8_lossy(&output.stdout).contains("192.168.0.0/16"), "get printed {output:?}");
        let started = Instant::now();
        let output = Command::new("etcdctl")
            .args(["--endpoints", &endpoint, "get", KEY])
            .output()
            .context("etcdctl")?;
        let theirs_took = milliseconds(started);
        ensure!(
            String::from_utf8_lossy(&output.stdout).contains("192.168.0.0/16"),
            "etcdctl printed {output:?}"
        );
        // The first round warms both up.
        if round > 0 {
            ours.push(ours_took);
            theirs.push(theirs_took);
            peaks.push(peak_kib(&run(&["get", "ippool", "-o", "wide"], "")?)?);
        }
    }
    let (ours, theirs) = (median(ours), median(theirs));
    let peak = peaks.iter().copied().fold(0.0, f64::max) / 1024.0;

    let file = folder.path().join("policies.yaml");
    std::fs::write(&file, policies()?)?;
    let file = file.display().to_string();
    let mut rates = Vec::new();
    for parallel in ["1", "64"] {
        let wiped = etcd.etcdctl(&[
            "del",
            "--prefix",
            "/calico/resources/v3/projectcalico.org/globalnetworkpolicies",
        ])?;
        ensure!(wiped.status.success(), "etcdctl del failed");
        let started = Instant::now();
        run(&["apply", "-f", &file, "--parallel", parallel], "")?;
        rates.push(POLICIES as f64 / started.elapsed().as_secs_f64());
    }
    let [single, pipelined] = rates[..] else { anyhow::bail!("two rates were to be measured") };

    let mut report = Report::new("ctl");
    report.row(
        "calicoctl get ippool, wall time p50",
        &format!("{ours:.1} ms"),
        &format!("etcdctl get of the same key: {theirs:.1} ms"),
        &format!("{:.2}", ours / theirs),
        "at most 1",
    );
    report.row(
        "calicoctl get ippool, peak resident memory",
        &format!("{peak:.1} MiB"),
        "",
        "",
        "under 20 MiB",
    );
    report.row(
        "apply of 5,000 policies",
        &format!("{pipelined:.0}/s"),
        &format!("one at a time: {single:.0}/s"),
        &format!("{:.1}", pipelined / single),
        "at least 5",
    );
    println!("{}", report.markdown());
    report.record()
}

fn calicoctl(endpoint: &str, words: &[&str], input: &str) -> Result<Output> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(words)
        .env_clear()
        .envs([(ROLE, "1"), ("DATASTORE_TYPE", "etcdv3"), ("ETCD_ENDPOINTS", endpoint)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    ensure!(
        output.status.success(),
        "calicoctl {words:?} failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output)
}

fn peak_kib(output: &Output) -> Result<f64> {
    let text = String::from_utf8_lossy(&output.stderr);
    let figure =
        text.lines().find_map(|line| line.strip_prefix("peak ")).and_then(|line| line.split(' ').next());
    Ok(figure.context("the process did not say its memory")?.parse()?)
}

fn milliseconds(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e3
}

/// Realistic policies: two rules, selectors, ports.
fn policies() -> Result<String> {
    let mut text = String::new();
    for number in 0..POLICIES {
        write!(
            text,
            "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata:\n  name: policy-{number:05}\nspec:\n  \
             order: {number}\n  selector: app == 'app-{number}' && environment in {{'production', 'staging'}}\n  types: [Ingress, \
             Egress]\n  ingress:\n  - action: Allow\n    protocol: TCP\n    source: {{selector: role == 'frontend'}}\n    \
             destination: {{ports: [6379, '7000:7010']}}\n  egress:\n  - action: Allow\n---\n"
        )?;
    }
    Ok(text)
}
