//! Walk-throughs of real clusters, played in a lab with a kube-apiserver as datastore, with a verdict on each line.
//!
//! - [`block_ipam`] (A): four nodes, block IPAM, tunnels, what a pod's chains look like, and the same data in etcd.
//! - [`policy_only`] (B): addresses of the nodes' own ranges, policy, then a pool beside them.
//!
//! A line that does not hold does not stop the others; all of them are reported at the end. Where this kernel has no IP in IP,
//! the tunnels of A are VXLAN, and the lines about `tunl0` are not played: the output names them. Whoever has another
//! machine plays them there with `--only-ipip`, and the tests do so in a guest.

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
    /// Policy only, addresses of the nodes' own ranges.
    B,
}

/// Which lines of a walk-through are played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lines {
    /// All that this kernel can do.
    All,
    /// Those that need IP in IP, and what they need to come about.
    OnlyIpip,
}

/// How long something may take to come true. An emulated processor is slow, and what never comes is never in time.
const PATIENCE: Duration = Duration::from_secs(180);

/// Plays one.
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

/// A walk-through under way.
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

    /// One line of the walk-through; `seen` is shown when it does not hold.
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

    /// A line that another kernel must play.
    fn elsewhere(&mut self, line: &str) {
        self.screen.say(&format!(
            "- not here: {line}. This kernel has no IP in IP: play it on one that has, with `--only-ipip`"
        ));
    }

    fn show(&mut self, text: &str) {
        self.screen.indented(text);
    }

    /// Runs a program in a place; what it printed, on either stream.
    fn at(&self, place: &str, words: &[&str]) -> Result<String> {
        interrupt::check()?;
        let output = self.lab.run_in(place, words, &Variables::new(), "")?;
        Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    }

    /// What iptables lists on a node, of the kind of tables that Felix chose: each has its own program.
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

    /// What `calicoctl` prints, where the processor may be an emulated one: slower than the tool is patient.
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

    /// What `calicoctl` prints on its two streams.
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

    /// Whether something comes true in time.
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

    /// Takes the lab down and reports what did not hold.
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

/// Whether this kernel has IP in IP: then every network namespace has its first tunnel device, or asking for one brings it.
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
