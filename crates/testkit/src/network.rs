//! Hosts and pods as network namespaces, and packets between them.
//!
//! - [`Namespace`]: one machine's network, removed when dropped.
//! - [`Station`]: answers in a namespace and records what arrives.
//! - [`Probe`] and [`probe`]: send many packets at once, and return their fates.
//!
//! Needs root and `ip`; reports when they are missing. Wires nothing by itself: the test creates interfaces, addresses
//! and routes, with commands of `ip -batch`.

mod packets;
mod probe;
mod station;

pub use probe::{Fate, Probe, Traffic, probe};
pub use station::Station;

use crate::process::{finish, program};
use anyhow::{Context, Result, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::AsFd as _;
use std::process::Command;

/// A named network namespace that exists as long as this value.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    file: File,
}

impl Namespace {
    /// A new namespace with only a loopback interface, which is up. IPv6 addresses are usable at once: addresses on
    /// these wires are unique, so duplicate address detection is off.
    ///
    /// # Errors
    /// When it cannot be created, mostly because root or the program `ip` is missing.
    pub fn new(name: &str) -> Result<Self> {
        let ip = program("ip", "install Debian's iproute2")?;
        let output = Command::new(ip).args(["netns", "add", name]).output()?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            bail!("making the network namespace {name} (this needs root): {}", words.trim());
        }
        let path = format!("/var/run/netns/{name}");
        let file = File::open(&path).with_context(|| format!("opening {path}"))?;
        let namespace = Self { name: name.to_owned(), file };
        namespace.set("net/ipv6/conf/default/accept_dad", "0")?;
        namespace.set("net/ipv6/conf/all/accept_dad", "0")?;
        namespace.batch("link set lo up")?;
        Ok(namespace)
    }

    /// Its name in `ip netns`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs code in the namespace, in a thread that ends there. Sockets opened by it stay in the namespace, even when
    /// they are used elsewhere later.
    ///
    /// # Errors
    /// When the namespace cannot be entered.
    ///
    /// # Panics
    /// When the code panics.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let outcome = std::thread::scope(|scope| {
            let thread = scope.spawn(|| -> Result<T> {
                move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))
                    .with_context(|| format!("entering the network namespace {}", self.name))?;
                Ok(work())
            });
            thread.join()
        });
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Sets a kernel parameter of the namespace, such as `net/ipv4/ip_forward`.
    ///
    /// # Errors
    /// When there is no such parameter, or it rejects the value.
    pub fn set(&self, parameter: &str, value: &str) -> Result<()> {
        self.run(|| std::fs::write(format!("/proc/sys/{parameter}"), value))?
            .with_context(|| format!("setting {parameter} to {value}"))
    }

    /// Runs lines of `ip` commands, stopping at the first that fails.
    ///
    /// # Errors
    /// When a command fails.
    pub fn batch(&self, lines: &str) -> Result<()> {
        let ip = program("ip", "install Debian's iproute2")?;
        let mut command = Command::new(ip);
        command.args(["-n", &self.name, "-batch", "-"]);
        printed(command, lines).map(drop)
    }

    /// Runs a shell in the namespace; returns its output.
    ///
    /// # Errors
    /// When the script fails.
    pub fn shell(&self, script: &str) -> Result<String> {
        self.feed(script, "")
    }

    /// Runs a shell in the namespace with this input; returns its output.
    ///
    /// # Errors
    /// When the script fails.
    pub fn feed(&self, script: &str, input: &str) -> Result<String> {
        let mut command = self.command("sh");
        command.args(["-ec", script]);
        printed(command, input)
    }

    /// A command that runs a program in the namespace.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Everything in it is removed with it. It is not an error if the namespace is already gone.
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}

/// The output of a command that must succeed.
fn printed(command: Command, input: &str) -> Result<String> {
    let shown = format!("{command:?}");
    let output = finish(command, input)?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!("{shown} ended with {}: {}\n{input}", output.status, words.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::{Fate, Namespace, Probe, Station, Traffic, probe};
    use anyhow::Result;
    use std::time::{Duration, Instant};

    const MOMENT: Duration = Duration::from_millis(400);
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Two stations on one wire: everything arrives and is answered, until a rule prevents it.
    #[test]
    fn packets_arrive_and_are_answered_or_not() -> Result<()> {
        let id = std::process::id();
        let (one, two) = (Namespace::new(&format!("tk{id}a"))?, Namespace::new(&format!("tk{id}b"))?);
        one.batch(&format!(
            "link add eth0 type veth peer name eth0 netns {}\naddr add 10.9.0.1/24 dev eth0\naddr add fd09::1/64 dev eth0\nlink set eth0 up",
            two.name()
        ))?;
        two.batch("addr add 10.9.0.2/24 dev eth0\naddr add fd09::2/64 dev eth0\nlink set eth0 up")?;
        let station = Station::open(&two, &[80], &[53], &[])?;
        let all = |source_port| -> Vec<Probe<'_>> {
            let kinds = [
                Traffic::Tcp(80),
                Traffic::Udp(53),
                Traffic::Sctp(99),
                Traffic::Icmp(8, 0),
                Traffic::Other(99),
            ];
            let probes = kinds.into_iter().flat_map(|traffic| {
                ["10.9.0.2", "fd09::2"].map(|to| Probe {
                    from: &one,
                    source: None,
                    source_port,
                    to: to.parse().expect("an address"),
                    receiver: &station,
                    traffic,
                })
            });
            probes.collect()
        };
        let open = all(None);
        // A wire that has just been connected may need a moment, and on a busy machine a long one.
        let wanted = vec![true; open.len()];
        let deadline = Instant::now() + PATIENCE;
        loop {
            let fates = probe(&open, &wanted, MOMENT)?;
            let wrong: Vec<_> =
                open.iter().zip(fates).filter(|(probe, fate)| !fate.is_through(probe.traffic)).collect();
            if wrong.is_empty() {
                break;
            }
            assert!(Instant::now() < deadline, "{wrong:?}");
        }
        two.shell("nft add table inet t; nft 'add chain inet t i { type filter hook input priority 0; }'; nft 'add rule inet t i meta l4proto != ipv6-icmp drop'; nft 'add rule inet t i icmpv6 type echo-request drop'")?;
        for (probe, fate) in open.iter().zip(probe(&open, &[], MOMENT)?) {
            assert_eq!(fate, Fate::Lost, "{probe:?}");
        }
        // A request that arrives but whose answer is lost has a fate of its own.
        two.shell("nft flush chain inet t i; nft 'add chain inet t o { type filter hook output priority 0; }'; nft 'add rule inet t o meta l4proto tcp drop'")?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let fates = probe(&open[..2], &[], MOMENT)?;
            if fates == [Fate::Arrived, Fate::Arrived] {
                return Ok(());
            }
            let is_answered = fates.iter().any(|fate| matches!(fate, Fate::Answered(_)));
            assert!(Instant::now() < deadline && !is_answered, "{fates:?}");
        }
    }
}
