//! The namespace that serves as host in the measurement: interfaces, cleaning, and the kernel's state.

use anyhow::{Context as _, Result, ensure};
use std::io::Write as _;
use std::process::{Command, Stdio};

/// One of the packet filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    Nftables,
    Iptables,
}

impl Filter {
    pub(crate) const BOTH: [Self; 2] = [Self::Nftables, Self::Iptables];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nftables => "nft",
            Self::Iptables => "iptables",
        }
    }

    /// The number of policy chains in the kernel, by direction `i` or `o`.
    pub(crate) fn policy_chains(self) -> Result<usize> {
        let listed = shell("nft list chains ip", "")?;
        let mark = match self {
            Self::Nftables => "chain filter-cali-pi-",
            Self::Iptables => "chain cali-pi-",
        };
        Ok(listed.matches(mark).count())
    }
}

/// Runs a shell script with this input, which must succeed; returns its output.
pub(crate) fn shell(script: &str, input: &str) -> Result<String> {
    let mut child = Command::new("sh")
        .args(["-ec", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let stdin = child.stdin.take().context("no standard input")?;
    let output = std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut stdin = stdin;
            // A shell that ended early reports the reason itself.
            let _ = stdin.write_all(input.as_bytes());
        });
        child.wait_with_output()
    })?;
    ensure!(output.status.success(), "`{script}`: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Creates the host's own interface, if it does not exist yet.
pub(crate) fn make_uplink() -> Result<()> {
    if shell("ip -o link", "")?.contains(" eth0@") {
        return Ok(());
    }
    shell(
        "ip link add eth0 address 02:00:00:00:00:01 type veth peer name wire0
         ip addr add 10.65.0.1/24 dev eth0
         ip link set wire0 up
         ip link set eth0 up
         ip route add default via 10.65.0.254",
        "",
    )
    .map(drop)
}

/// Creates interfaces of pods, whose other ends lead nowhere.
pub(crate) fn make_interfaces(names: impl Iterator<Item = String>) -> Result<()> {
    let mut batch = String::new();
    for (number, name) in names.enumerate() {
        batch.push_str(&format!(
            "link add {name} type veth peer name pod{number}\nlink set pod{number} up\nlink set {name} up\n"
        ));
    }
    shell("ip -batch -", &batch).map(drop)
}

/// Removes the interfaces of pods.
pub(crate) fn remove_interfaces(names: impl Iterator<Item = String>) -> Result<()> {
    let batch: String = names.map(|name| format!("link del {name}\n")).collect();
    shell("ip -batch -", &batch).map(drop)
}

/// Removes everything a Felix programmed.
pub(crate) fn clean() -> Result<()> {
    shell(
        "nft flush ruleset; ipset destroy; ip route flush proto 80; ip route flush proto boot scope link",
        "",
    )
    .map(drop)
}
