//! Policy without connection tracking, of a host's interface, with real packets: at the driver (XDP) where possible, at
//! traffic control in any case; also while Felix is not running, and after the policy is removed.

use super::node::{NODE, NODE6, Node, TARGET, address6, ask, wait};
use anyhow::{Context as _, Result, ensure};
use api::scalars::Protocol;
use bpf::layout::network::{CounterKey, Counters};
use bpf::{Link, PerCpu};
use felix_config::Config;
use messages::{HostEndpoint, Policy, PolicyId, Rule, TierInfo, ToDataplane};
use model::feed::RuleAction;
use model::v1::PolicyKey;
use std::sync::Arc;

const UDP: u8 = 17;
const DENIED: usize = 4;
const AT_DRIVER: u32 = 2;
const NOBODY: [&str; 2] = ["TimedOut", "WouldBlock"];

fn policy(action: RuleAction) -> Vec<ToDataplane> {
    let key = PolicyKey {
        kind: api::Kind::GlobalNetworkPolicy,
        namespace: String::new(),
        name: "untracked".into(),
    };
    let id = PolicyId::new(key);
    let rule = |action| Rule { action, ..Rule::default() };
    let udp = Rule { protocol: Some(Protocol::Number(UDP)), ..rule(action) };
    let policy = Policy {
        tier: "default".into(),
        inbound_rules: vec![udp, rule(RuleAction::Allow)],
        outbound_rules: vec![rule(RuleAction::Allow)],
        untracked: true,
        ..Policy::default()
    };
    let tier = TierInfo {
        name: "default".into(),
        default_action: RuleAction::Deny,
        ingress_policies: vec![id.clone()],
        egress_policies: vec![id.clone()],
    };
    let endpoint = HostEndpoint {
        name: "eth0".into(),
        profile_ids: vec!["allow".into()],
        untracked_tiers: vec![tier],
        ..HostEndpoint::default()
    };
    vec![
        ToDataplane::PolicyUpdate(id, Arc::new(policy)),
        ToDataplane::HostEndpointUpdate("host".into(), Box::new(endpoint)),
    ]
}

fn config() -> Config {
    Config { ipv6_support: true, ..Node::config() }
}

impl Node {
    fn device(&self) -> Result<u32> {
        let text = self.host.shell("ip -o link show dev eth0")?;
        text.split(':').next().context("no number")?.trim().parse().context("not a number")
    }

    /// Whether `ip` shows this mode of program at the driver of the host's interface.
    fn has_xdp(&self, word: &str) -> bool {
        let text = self.host.shell("ip -d link show dev eth0").unwrap_or_default();
        text.split_whitespace().any(|found| found == word)
    }

    fn pinned(&self, mode: &str) -> Result<bool> {
        let pin = format!("cali_xdp/eth0_{}_{mode}", self.device()?);
        Ok(self.files.path().join(pin).exists())
    }

    /// The numbers of packets denied at the driver and at traffic control.
    fn denied(&self) -> Result<[u64; 2]> {
        let map = bpf::Map::open(&self.files.path().join("tc/globals/cali_counters6"))?;
        let counters = PerCpu::<CounterKey, Counters>::new(&map)?;
        let device = self.device()?;
        let sum = |hook| -> Result<u64> {
            let key = CounterKey { device, hook };
            Ok(counters.get(&key)?.iter().map(|one| one.0[DENIED]).sum())
        };
        Ok([sum(AT_DRIVER)?, sum(0)?])
    }
}

#[test]
fn untracked_policy_is_enforced_in_the_driver() -> Result<()> {
    let mut node = Node::new()?;
    node.start(config(), policy(RuleAction::Deny))?;
    node.wait_until_ready()?;
    testkit::eventually("a program in the driver", || node.has_xdp("xdp"))?;
    for address in [NODE.into(), address6(NODE6)] {
        wait(&node.client, "tcp", (address, TARGET), &["host"])?;
        let before = node.denied()?;
        ensure!(NOBODY.contains(&ask(&node.client, "udp", (address, TARGET))?.as_str()), "UDP arrived");
        let after = node.denied()?;
        ensure!(after[0] > before[0] && after[1] == before[1], "{before:?}, then {after:?}");
    }

    // Another policy takes a few writes. Allowed packets are not tracked.
    node.send(policy(RuleAction::Allow))?;
    for address in [NODE.into(), address6(NODE6)] {
        wait(&node.client, "udp", (address, TARGET), &["host"])?;
    }
    node.send(policy(RuleAction::Deny))?;
    wait(&node.client, "udp", (NODE, TARGET), &NOBODY)?;

    // It is enforced while Felix is not running; the next process puts its own program into the same place.
    let pin = node.files.path().join(format!("cali_xdp/eth0_{}_native", node.device()?));
    let first = Link::open(&pin)?.program_id()?;
    node.stop()?;
    ensure!(
        NOBODY.contains(&ask(&node.client, "udp", (NODE, TARGET))?.as_str()),
        "UDP arrived while Felix was not running"
    );
    node.start(config(), policy(RuleAction::Deny))?;
    node.wait_until_ready()?;
    testkit::eventually("a program of the new process", || {
        Link::open(&pin).and_then(|link| link.program_id()).is_ok_and(|id| id != first)
    })?;
    ensure!(NOBODY.contains(&ask(&node.client, "udp", (NODE, TARGET))?.as_str()));

    // Without such a policy the driver has no program.
    node.send(vec![ToDataplane::HostEndpointRemove("host".into())])?;
    testkit::eventually("the driver without a program", || !node.has_xdp("xdp"))?;
    ensure!(!node.pinned("native")?);
    wait(&node.client, "udp", (NODE, TARGET), &["host"])?;

    // Nor does it have one when eBPF is disabled.
    node.send(policy(RuleAction::Deny))?;
    testkit::eventually("a program in the driver", || node.has_xdp("xdp"))?;
    node.stop()?;
    node.start(Config { bpf_enabled: false, ..config() }, policy(RuleAction::Deny))?;
    testkit::eventually("the driver without a program", || !node.has_xdp("xdp"))?;
    wait(&node.client, "udp", (NODE, TARGET), &NOBODY)?;
    Ok(())
}

/// Where the driver must not have a program, or another one has its program there, the policy is the same.
#[test]
fn untracked_policy_needs_no_driver() -> Result<()> {
    let mut node = Node::new()?;
    node.start(Config { xdp_enabled: false, ..config() }, policy(RuleAction::Deny))?;
    node.wait_until_ready()?;
    let at_control = |node: &Node| -> Result<()> {
        wait(&node.client, "tcp", (NODE, TARGET), &["host"])?;
        let before = node.denied()?;
        ensure!(NOBODY.contains(&ask(&node.client, "udp", (NODE, TARGET))?.as_str()), "UDP arrived");
        let after = node.denied()?;
        ensure!(after[0] == before[0] && after[1] > before[1], "{before:?}, then {after:?}");
        Ok(())
    };
    at_control(&node)?;
    ensure!(!node.has_xdp("xdp"));
    node.stop()?;

    // A driver that refuses: packets of this length are too long for it.
    node.host.batch("link set eth0 mtu 9000")?;
    node.client.batch("link set eth0 mtu 9000")?;
    node.start(config(), policy(RuleAction::Deny))?;
    node.wait_until_ready()?;
    at_control(&node)?;
    ensure!(!node.has_xdp("xdp") && !node.has_xdp("xdpgeneric"));
    node.stop()?;

    // After the driver, if that is enabled.
    node.start(Config { generic_xdp_enabled: true, ..config() }, policy(RuleAction::Deny))?;
    node.wait_until_ready()?;
    testkit::eventually("a program behind the driver", || node.has_xdp("xdpgeneric"))?;
    ensure!(node.pinned("generic")?);
    let before = node.denied()?;
    wait(&node.client, "udp", (NODE, TARGET), &NOBODY)?;
    ensure!(node.denied()?[0] > before[0]);
    wait(&node.client, "tcp", (NODE, TARGET), &["host"])?;
    Ok(())
}
