//! `BPFDisableGROForIfaces` on real interfaces: those that are there, and one that comes later.

use super::node::Node;
use anyhow::{Context as _, Result, ensure};
use felix_config::{Config, Pattern};
use netlink::ethtool::{Features, GENERIC_RECEIVE_OFFLOAD};

impl Node {
    fn number(&self, interface: &str) -> Result<u32> {
        let text = self.host.shell(&format!("ip -o link show dev {interface}"))?;
        text.split(':').next().context("no number")?.trim().parse().context("not a number")
    }

    fn receives_together(&self, features: &mut Features, interface: &str) -> Result<bool> {
        features.is_on(self.number(interface)?, GENERIC_RECEIVE_OFFLOAD)?.context("no such interface")
    }
}

#[test]
fn receive_offload_is_off_where_it_is_asked_for() -> Result<()> {
    let mut node = Node::new()?;
    let mut features = node.host.run(Features::open)??;
    node.host.batch("link add other0 type veth peer name wire0")?;
    for interface in ["eth0", "cali0", "other0"] {
        features.switch(node.number(interface)?, GENERIC_RECEIVE_OFFLOAD, true)?;
    }
    let config = Config { bpf_disable_gro_for_ifaces: Pattern::new("^(eth[01]|other1)$"), ..Node::config() };
    node.start(config, Vec::new())?;
    testkit::eventually("packets of the card one by one", || -> Result<bool> {
        Ok(!node.receives_together(&mut features, "eth0")?)
    })?;
    node.wait_until_ready()?;
    for interface in ["cali0", "other0"] {
        ensure!(node.receives_together(&mut features, interface)?, "{interface} was not asked for");
    }

    // Somebody has other wishes. He is heard, and an interface that comes is switched.
    features.switch(node.number("eth0")?, GENERIC_RECEIVE_OFFLOAD, true)?;
    node.host.batch("link add other1 type veth peer name wire1")?;
    testkit::eventually("packets of a later card one by one", || -> Result<bool> {
        Ok(!node.receives_together(&mut features, "other1")?)
    })?;
    ensure!(node.receives_together(&mut features, "eth0")?, "what was switched on again was switched off");
    Ok(())
}
