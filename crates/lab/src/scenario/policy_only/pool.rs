//! A pool in addition to the nodes' own ranges, and another encapsulation for it.

use super::{NODE, write_conflist};
use crate::inside::node_program;
use crate::lab::ROUTER;
use crate::scenario::{Play, has_ipip};
use crate::settings::Variables;
use anyhow::Result;
use serde_json::json;

pub(super) const POOL: &str = "apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: pool-zone-1}
spec: {cidr: 192.168.50.0/24, vxlanMode: Always, natOutgoing: true}
";

pub(super) fn a_pool_beside(play: &mut Play<'_>) -> Result<()> {
    play.step("7. A pool beside the nodes' ranges");
    let told = play.lab.calicoctl(&["create", "-f", "-"], POOL)?;
    play.check("it is created", told.trim() == "Successfully created 1 'IPPool' resource(s)", &told);
    let shown = play.lab.calicoctl(&["ipam", "show"], "")?;
    let holds = shown.lines().any(|line| line.contains("192.168.50.0/24") && line.contains("256 (100%)"));
    play.check("ipam show has it with 256 free", holds, &shown);
    write_conflist(play, &json!({"type": "calico-ipam"}))?;
    play.pod("default", "test-web3", NODE, &[("app", "test3")])?;
    let (old, new) = (play.address("default/test-web1")?, play.address("default/test-web3")?);
    play.check("the next pod gets its first address", new == "192.168.50.0", &new);
    play.check("the old one keeps its own", old.starts_with("192.168.1."), &old);
    for (from, to) in [("default/test-web1", &new), ("default/test-web3", &old)] {
        let holds = play.soon(|play| {
            Ok(play.at(from, &["busybox", "ping", "-c", "1", "-W", "1", to])?.contains("ttl=63"))
        })?;
        play.check(&format!("{from} pings {to}"), holds, "no answer");
    }
    Ok(())
}

pub(super) fn another_encapsulation(play: &mut Play<'_>) -> Result<()> {
    play.step("8. Another encapsulation for the pool");
    let stored = play.calicoctl(&["get", "ippool", "pool-zone-1", "-o", "yaml"], "")?;
    let edited = stored
        .replace("ipipMode: Never", "ipipMode: CrossSubnet")
        .replace("vxlanMode: Always", "vxlanMode: Never");
    let holds = edited.contains("ipipMode: CrossSubnet") && edited.contains("vxlanMode: Never");
    play.check("the stored pool can be edited", holds, &stored);
    let file = play.lab.folder.file("pool.yaml");
    std::fs::write(&file, edited)?;
    let told = play.calicoctl(&["apply", "-f", &file.display().to_string()], "")?;
    play.check("and applied", told.starts_with("Successfully applied 1 'IPPool' resource(s)"), &told);
    let shown = play.calicoctl(&["get", "ippool", "-o", "wide"], "")?;
    play.show(&shown);
    let row = shown.lines().find(|line| line.starts_with("pool-zone-1")).unwrap_or_default();
    let words: Vec<&str> = row.split_whitespace().collect();
    let holds = words.windows(2).any(|pair| pair == ["CrossSubnet", "Never"]);
    play.check("the table shows it: CrossSubnet and Never", holds, &shown);
    // As the node itself is configured; elsewhere nothing indicates that addresses come from the nodes' own ranges.
    let variables = Variables::from([("USE_POD_CIDR".to_owned(), "true".to_owned())]);
    let program = node_program();
    let words = [program.as_str(), "ctl", "get", "node", NODE, "-o", "yaml", "--allow-version-mismatch"];
    let mut stored = String::new();
    let holds = play.soon(|play| {
        let output = play.lab.run_in(ROUTER, &words, &variables, "")?;
        stored = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(stored.lines().any(|line| line.trim() == "ipv4IPIPTunnelAddr: 192.168.1.1"))
    })?;
    play.check("the node's tunnel address is the podCIDR's first, 192.168.1.1", holds, &stored);
    let line = "tunl0 comes up with MTU 1440 and the podCIDR's first address, 192.168.1.1/32";
    if !has_ipip() {
        play.elsewhere(line);
        return Ok(());
    }
    let holds = play.soon(|play| {
        let device = play.at(NODE, &["ip", "-4", "addr", "show", "dev", "tunl0"])?;
        Ok(device.contains("mtu 1440 ") && device.contains("inet 192.168.1.1/32 ") && device.contains("UP"))
    })?;
    let device = play.at(NODE, &["ip", "-4", "addr", "show", "dev", "tunl0"])?;
    play.check(line, holds, &device);
    Ok(())
}
