//! `BPFHostConntrackBypass` with real packets: services and connections work, Linux does not track forwarded
//! connections, and connections that foreign rules translate still work.

use super::node::{CLIENT, NODE, Node, PODS, TARGET, wait};
use super::{Config, check, everything};
use anyhow::{Context as _, Result, ensure};
use netlink::Family;
use netlink::netfilter::conntrack::{Client as Conntrack, ConnectionTable};
use std::net::IpAddr;

impl Node {
    /// Connections that Linux tracks between workloads and any peer but the host, after NAT.
    fn tracked(&self) -> Result<Vec<String>> {
        let pods = PODS.map(IpAddr::from);
        let mut found = Vec::new();
        let mut table = self.host.run(ConnectionTable::open)??;
        table.read(Family::V4, |entry| {
            let ends = [entry.reply.source, entry.reply.dest];
            if ends.iter().any(|end| pods.contains(end)) && !ends.contains(&NODE.into()) {
                found.push(format!("{:?}", entry.reply));
            }
        })?;
        Ok(found)
    }
}

#[test]
fn linux_does_not_track_forwarded_connections() -> Result<()> {
    let mut node = Node::new()?;
    // The rules of a chained plugin for a container's host port.
    node.host.feed(
        "nft -f -",
        "table ip portmap {\n chain pre {\n  type nat hook prerouting priority dstnat;\n\
         fib daddr type local tcp dport 9999 dnat to 10.65.0.2:8080\n }\n}\n",
    )?;
    for bypasses in [false, true] {
        let config = Config { bpf_host_conntrack_bypass: bypasses, ..Node::config() };
        node.start(config, everything())?;
        node.wait_until_ready()?;
        node.client.batch(&format!(
            "route replace {}/32 via {}",
            IpAddr::from(PODS[1]),
            IpAddr::from(NODE)
        ))?;
        node.host.run(Conntrack::open)??.forget(&PODS.map(IpAddr::from).into())?;
        check(&node).with_context(|| format!("bypass: {bypasses}"))?;
        for how in ["tcp", "udp"] {
            wait(&node.client, how, (PODS[1], TARGET), &["b"]).context("from outside to a workload")?;
            wait(&node.pods[1], how, (CLIENT, TARGET), &["client"]).context("from a workload to outside")?;
        }
        let tracked = node.tracked()?;
        ensure!(tracked.is_empty() == bypasses, "bypass: {bypasses}; {tracked:?}");
        wait(&node.client, "tcp", (NODE, 9999), &["a"])
            .with_context(|| format!("a host port, bypass: {bypasses}"))?;
        wait(&node.pods[1], "tcp", (NODE, 9999), &["a"])
            .with_context(|| format!("a host port from a workload, bypass: {bypasses}"))?;
        node.stop()?;
    }
    Ok(())
}
