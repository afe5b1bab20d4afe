//! Walk-throughs of real clusters, played in a lab with a kube-apiserver as datastore, with a verdict on each line.
//!
//! - [`block_ipam`] (A): four nodes, block IPAM, tunnels, a pod's chains, and the same data in etcd.
//! - [`policy_only`] (B): addresses from the nodes' own ranges, policy, then a pool in addition.
//!
//! A line that does not hold does not stop the others; all failures are reported at the end. If this kernel has no IP
//! in IP, the tunnels of A are VXLAN, and the lines about `tunl0` are not played: the output names them. They can be
//! played on another machine with `--only-ipip`; the tests do so in a guest.

mod block_ipam;
mod policy_only;

use crate::lab::Lab;
use crate::screen::Screen;
use crate::settings::Variables;
use crate::topology::{PodWish, plan_pod};
use crate::{interrupt, pods, wire};
use anyhow::{Context as _, Result, bail};
use std::time::{Duration, Instant};

/// The walk-throughs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Which {
    /// Four nodes, block IPAM, tunnels.
    A,
    /// Policy only, addresses from the nodes' own ranges.
    B,
}

/// The lines of a walk-through to play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lines {
    /// All lines that this kernel supports.
    All,
    /// The lines that need IP in IP, and their prerequisites.
    OnlyIpip,
}

/// How long a condition may take to become true. An emulated processor is slow, so a condition that is never met takes
/// this long.
const PATIENCE: Duration = Duration::from_secs(180);

/// Plays a walk-through.
///
/// # Errors
/// When it cannot be played, or a line does not hold.
pub(crate) fn run(which: Which, lines: Lines, screen: &mut Screen) -> Result<()> {
    if lines == Lines::OnlyIpip && !has_ipip() {
        bail!("this kernel has no IP in IP tunnels (CONFIG_NET_IPIP): play these lines on another machine");
    }
    match which {
        Which::A => block_ipam::play(lines, screen),
        Which::B => policy_only::play(lines, screen),
    }
}

/// A walk-through in progress.
struct Play<'a> {
    lab: Lab,
    screen: &'a mut Screen,
    held: usize,
    wrong: Vec<String>,
}

impl<'a> Play<'a> {
    fn new(lab: Lab, screen: &'a mut Screen) -> Self {
        Self { lab, screen, held: 0, wrong: Vec::new() }
    }

    fn step(&mut self, text: &str) {
        self.screen.heading(text);
    }

    /// Checks one line of the walk-through; `seen` is shown when it does not hold.
    fn check(&mut self, line: &str, holds: bool, seen: &str) {
        if holds {
            self.held += 1;
            self.screen.done(line);
        } else {
            self.screen.failed(line);
            self.screen.indented(seen);
            self.wrong.push(line.to_owned());
        }
    }

    /// Reports a line that another kernel must play.
    fn elsewhere(&mut self, line: &str) {
        self.screen.say(&format!(
            "- not here: {line}. This kernel has no IP in IP: play it on one that has, with `--only-ipip`"
        ));
    }

    fn show(&mut self, text: &str) {
        self.screen.indented(text);
    }

    /// Runs a program in a place; returns its output, from both streams.
    fn at(&self, place: &str, words: &[&str]) -> Result<String> {
        interrupt::check()?;
        let output = self.lab.run_in(place, words, &Variables::new(), "")?;
        Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    }

    /// Runs the iptables variant that Felix chose on a node: each kind of tables has its own program.
    fn iptables(&self, node: &str, words: &[&str]) -> Result<String> {
        let mut listed = String::new();
        for program in ["iptables-nft", "iptables-legacy"] {
            let own = self.at(node, &[program, "-n", "-t", "filter", "-L", "cali-FORWARD"])?;
            let mut all = vec![program];
            all.extend(words);
            if listed.is_empty() || own.starts_with("Chain cali-FORWARD") {
                listed = self.at(node, &all)?;
            }
        }
        Ok(listed)
    }

    /// The output of `calicoctl`, retried because an emulated processor may be slower than the tool's timeout.
    fn calicoctl(&self, arguments: &[&str], input: &str) -> Result<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            interrupt::check()?;
            match self.lab.calicoctl(arguments, input) {
                Err(error) if error.to_string().contains("no answer within") && Instant::now() < deadline => {
                }
                outcome => return outcome,
            }
        }
    }

    /// The output of `calicoctl` on both of its streams.
    fn calicoctl_streams(&self, arguments: &[&str]) -> Result<(String, String)> {
        let program = crate::inside::node_program();
        let mut words = vec![program.as_str(), "ctl"];
        words.extend(arguments);
        let output = self.lab.run_in(crate::lab::ROUTER, &words, &Variables::new(), "")?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if !output.status.success() {
            bail!("calicoctl {}: {}{}", arguments.join(" "), text(&output.stdout), text(&output.stderr));
        }
        Ok((text(&output.stdout), text(&output.stderr)))
    }

    fn pod(&mut self, namespace: &str, name: &str, node: &str, labels: &[(&str, &str)]) -> Result<()> {
        let wish = PodWish {
            name: name.to_owned(),
            namespace: Some(namespace.to_owned()),
            node: Some(node.to_owned()),
            labels: labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            ports: vec![80, 8080],
        };
        let pod = plan_pod(&wish, &self.lab.topology().nodes, 0)?;
        pods::add(&mut self.lab, &[pod])
    }

    /// The first address of a pod.
    fn address(&self, pod: &str) -> Result<String> {
        let state = self.lab.state().pods.get(pod).with_context(|| format!("no pod {pod}"))?;
        Ok(state.addresses.first().context("no address")?.to_string())
    }

    /// Whether a condition becomes true in time.
    fn soon(&self, mut holds: impl FnMut(&Self) -> Result<bool>) -> Result<bool> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            interrupt::check()?;
            if holds(self)? {
                return Ok(true);
            }
            if Instant::now() > deadline {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Removes the lab and reports the lines that did not hold.
    fn end(self, played: Result<()>, name: &str) -> Result<()> {
        self.screen.heading("The end");
        let removed = self.lab.down();
        played?;
        removed?;
        if !self.wrong.is_empty() {
            let verb = if self.wrong.len() == 1 { "does" } else { "do" };
            let lines = crate::called::count(self.wrong.len(), "line");
            bail!("scenario {name}: {lines} {verb} not hold: {}", self.wrong.join("; "));
        }
        self.screen.print(&format!("\nScenario {name}: {} lines hold.\n", self.held));
        Ok(())
    }
}

/// Whether this kernel supports IP in IP: then every network namespace has a first tunnel device, or querying for it
/// creates it.
fn has_ipip() -> bool {
    let is_there = || std::path::Path::new("/proc/sys/net/ipv4/conf/tunl0").exists();
    is_there() || std::thread::spawn(wire::makes_ipip).join().unwrap_or(false)
}

/// The rows of `calicoctl ipam show`: grouping, range, addresses, in use, reserved, free.
fn ipam_rows(table: &str) -> Vec<[String; 6]> {
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    table
        .lines()
        .filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'))
        .filter_map(|line| cells(line).try_into().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn rows_of_a_table() {
        let table = "+---+\n| GROUPING | CIDR | IPS TOTAL | IPS IN USE | IPS RESERVED | IPS FREE |\n+---+\n\
                     | Block | 10.0.0.0/24 | 256 | 4 (2%) | 0 (0%) | 252 (98%) |\n| other | table |\n";
        let rows = super::ipam_rows(table);
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[1], ["Block", "10.0.0.0/24", "256", "4 (2%)", "0 (0%)", "252 (98%)"]);
    }
}
