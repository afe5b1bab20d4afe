//! Network namespaces of a test: named after the process, removed when dropped.

use anyhow::{Context as _, Result, ensure};
use netlink::namespace::Namespace;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A namespace of its own, removed when dropped.
pub(crate) struct TestNamespace {
    name: String,
    pub(crate) namespace: Namespace,
}

static COUNTER: AtomicU32 = AtomicU32::new(0);

impl TestNamespace {
    pub(crate) fn new() -> Result<Self> {
        let name = format!("nl-{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        ip(&["netns", "add", &name])?;
        let namespace = Namespace::open(&Path::new("/var/run/netns").join(&name))?;
        Ok(Self { name, namespace })
    }

    /// Runs `ip` inside, as a second opinion, and returns its output.
    pub(crate) fn ip(&self, arguments: &[&str]) -> Result<String> {
        let mut all = vec!["-n", &self.name];
        all.extend(arguments);
        ip(&all)
    }
}

impl TestNamespace {
    /// Loads nftables rules.
    pub(crate) fn nft(&self, rules: &str) -> Result<()> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, "nft", "-f", "-"]);
        let output = testkit::finish(command, rules)?;
        ensure!(output.status.success(), "nft: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }
}

impl Drop for TestNamespace {
    fn drop(&mut self) {
        let _ = ip(&["netns", "del", &self.name]);
    }
}

fn ip(arguments: &[&str]) -> Result<String> {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .context("this test needs the program 'ip': install Debian's iproute2")?;
    ensure!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn only_the_started_thread_is_in_the_namespace() -> Result<()> {
    let there = TestNamespace::new()?;
    let inode = |path: &str| std::fs::read_link(path).map(|link| link.display().to_string());
    let before = inode("/proc/thread-self/ns/net")?;
    let inside = there.namespace.run(|| inode("/proc/thread-self/ns/net"))??;
    assert_ne!(before, inside);
    assert_eq!(before, inode("/proc/thread-self/ns/net")?);
    Ok(())
}

#[test]
fn paths_that_are_not_namespaces_are_reported() {
    let missing = Namespace::open(Path::new("/var/run/netns/nl-there-is-none")).unwrap_err();
    assert!(missing.is_missing() && missing.to_string().contains("no network namespace"), "{missing}");
    let other = Namespace::open(Path::new("/proc/version")).unwrap_err();
    assert!(other.is_missing() && other.to_string().contains("is not a network namespace"), "{other}");
}

#[test]
fn settings_belong_to_the_namespace() -> Result<()> {
    let there = TestNamespace::new()?;
    there.namespace.run(|| {
        netlink::sysctl::write("net/ipv4/ip_forward", "1")?;
        assert!(!netlink::sysctl::ensure("net/ipv4/ip_forward", "1")?);
        assert_eq!(netlink::sysctl::read("net/ipv4/ip_forward")?, "1");
        let missing = netlink::sysctl::write("net/ipv4/conf/none/forwarding", "1").unwrap_err();
        assert!(missing.is_missing(), "{missing}");
        Ok::<(), netlink::sysctl::SysctlError>(())
    })??;
    Ok(())
}
