//! Walk-throughs of real clusters, played in a lab with a kube-apiserver as datastore, with a verdict on each line.
//!
//! - [`block_ipam`] (A): four nodes, block IPAM, tunnels, what a pod's chains look like, and the same data in etcd.
//! - [`policy_only`] (B): addresses of the nodes' own ranges, policy, then a pool beside them.
//!
//! A line that does not hold does not stop the others; all of them are told at the end. Where this kernel has no IP in IP,
//! tunnels are VXLAN and the lines about `tunl0` are left out, with a word.

mod block_ipam;
mod policy_only;

use crate::lab::Lab;
use crate::pods;
use crate::screen::Screen;
use crate::settings::Variables;
use crate::topology::{PodWish, plan_pod};
use anyhow::{Context as _, Result, bail};
use std::time::{Duration, Instant};

/// The walk-throughs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Which {
    /// Four nodes, block IPAM, tunnels.
    A,
    /// Policy only, addresses of the nodes' own ranges.
    B,
}

/// How long something may take to come true.
const PATIENCE: Duration = Duration::from_secs(30);

/// Plays one.
///
/// # Errors
/// When it cannot be played, or a line does not hold.
pub fn run(which: Which, screen: &mut Screen) -> Result<()> {
    match which {
        Which::A => block_ipam::play(screen),
        Which::B => policy_only::play(screen),
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

    /// One line of the walk-through; `seen` is told when it does not hold.
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

    fn left_out(&mut self, line: &str, why: &str) {
        self.screen.say(&format!("- left out: {line} ({why})"));
    }

    fn show(&mut self, text: &str) {
        self.screen.indented(text);
    }

    /// Runs a program in a place; what it printed, on either stream.
    fn at(&self, place: &str, words: &[&str]) -> Result<String> {
        let output = self.lab.run_in(place, words, &Variables::new(), "")?;
        Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
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
        pods::add(&mut self.lab, vec![pod])
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
            if holds(self)? {
                return Ok(true);
            }
            if Instant::now() > deadline {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Takes the lab down and tells what did not hold.
    fn end(self, played: Result<()>, name: &str) -> Result<()> {
        self.screen.heading("The end");
        let removed = self.lab.down();
        played?;
        removed?;
        if !self.wrong.is_empty() {
            bail!("scenario {name}: {} line(s) do not hold: {}", self.wrong.len(), self.wrong.join("; "));
        }
        self.screen.print(&format!("\nScenario {name}: {} lines hold.\n", self.held));
        Ok(())
    }
}

/// Whether this kernel has IP in IP: then every network namespace has its first tunnel device.
fn has_ipip() -> bool {
    std::path::Path::new("/proc/sys/net/ipv4/conf/tunl0").exists()
}
