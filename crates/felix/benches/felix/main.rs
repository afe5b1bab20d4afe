//! Measures Felix as a separate process with an etcd, with each packet filter: the time until everything is programmed,
//! its cost, the time for a change to reach the kernel, and the cost of packets.
//!
//! It restarts itself in network and mount namespaces of its own, so that everything it creates disappears with it; the
//! measured Felix is this program too. Calico's figures are those of its Felix on the same shapes, taken once on the
//! machine that this was written on; packets are compared with plain routing in the same run. It needs root, etcd,
//! iproute2, nftables, iptables and ipset; and for services kube-apiserver and kube-proxy. Words on the command line
//! select measurements whose name has one of them. With `TORTIE_BENCH_OUT=<folder>` the table is also written there. A
//! start counts as done only when every chain is in the kernel. With the word `compare` it measures nothing, and
//! compares the states that this and another Felix program.

#![expect(clippy::print_stdout, reason = "the table is this program's output")]

mod cluster;
mod compare;
mod daemon;
mod ebpf;
mod host;
mod packets;
mod programming;
mod services;
mod traffic;
mod two_hosts;

use anyhow::{Context as _, Result, bail};
use std::ffi::OsString;
use std::io::Write as _;
use std::process::{Command, ExitCode};
use testkit::Report;

/// The role of this process: unset in the first one, then the one that measures, then Felix.
const ROLE: &str = "TORTIE_BENCH_ROLE";

fn main() -> ExitCode {
    let outcome = match std::env::var(ROLE).as_deref() {
        Ok("felix") => return felix::cli::main(&[OsString::from("felix")]),
        Ok("measure") => measure(),
        _ => enter(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If standard error is gone, there is nowhere left to report to.
            let _ = writeln!(std::io::stderr(), "{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Restarts this program where it cannot disturb anything else.
fn enter() -> Result<()> {
    let script = "mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && mount -t tmpfs tmpfs /var/lib \
                  && mount -t bpf bpf /sys/fs/bpf && ip link set lo up && exec \"$@\"";
    let status = Command::new("unshare")
        .args(["--net", "--mount", "--fork", "--kill-child", "sh", "-ec", script, "sh"])
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(ROLE, "measure")
        .status()
        .context("`unshare` (package util-linux)")?;
    if !status.success() {
        bail!("the measurement ended with {status}; it creates network namespaces and needs root");
    }
    Ok(())
}

/// The requested measurements.
struct Wanted(Vec<String>);

impl Wanted {
    fn from_arguments() -> Self {
        // `cargo bench` adds `--bench`.
        Self(std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect())
    }

    fn has(&self, name: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|word| name.contains(word.as_str()))
    }
}

fn measure() -> Result<()> {
    let wanted = Wanted::from_arguments();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    if compare::run(&runtime)? {
        return Ok(());
    }
    let mut report = Report::new("felix");
    let outcome = cluster::SHAPES
        .iter()
        .try_for_each(|shape| programming::measure(&runtime, shape, &wanted, &mut report))
        .and_then(|()| ebpf::updates(&runtime, &wanted, &mut report))
        .and_then(|()| packets::measure(&runtime, &wanted, &mut report))
        .and_then(|()| services::measure(&runtime, &wanted, &mut report));
    report.note(
        "Start: from the start of the process until all chains are in the kernel, median of the rounds; CPU at that moment, with \
         helpers, and memory 0.3 s later, when Felix has let go of freed memory and of the pages of its code that only the \
         start needed. An update changes the port of a rule of one policy; its time starts before the \
         write to etcd, whose own share is beside it. Policies select local pods evenly, and all of them are programmed. \
         Calico's figures are from the same machine and shapes, not from this run.",
    );
    // Results from before a failure are useful, too.
    print!("{}", report.markdown());
    outcome?;
    report.record()
}
