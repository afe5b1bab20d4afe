//! `BPFDisableGROForIfaces` on real interfaces: existing ones, and one that appears later.

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
fn receive_offload_is_off_where_configured() -> Result<()> {
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

    // A user switches the feature on again. That is respected, and a new interface is switched off.
    features.switch(node.number("eth0")?, GENERIC_RECEIVE_OFFLOAD, true)?;
    node.host.batch("link add other1 type veth peer name wire1")?;
    testkit::eventually("packets of a later card one by one", || -> Result<bool> {
        Ok(!node.receives_together(&mut features, "other1")?)
    })?;
    ensure!(node.receives_together(&mut features, "eth0")?, "what was switched on again was switched off");
    Ok(())
}
