//! Forwarded ports, tested with real connections.

use crate::bed::{Bed, seen};
use anyhow::Result;
use cni_plugins::ReferencePlugin::Portmap;
use serde_json::{Value, json};

fn mapping(backend: &str) -> Value {
    json!({"backend": backend, "snat": true, "runtimeConfig": {"portMappings": [
        {"hostPort": 18080, "containerPort": 8080, "protocol": "tcp"},
        {"hostPort": 18081, "containerPort": 8080, "protocol": "TCP", "hostIP": "192.0.2.1"},
        {"hostPort": 18082, "containerPort": 8080, "protocol": "tcp", "hostIP": "2001:db8:1::1"},
        {"hostPort": 18083, "containerPort": 8080, "protocol": "udp"}
    ]}})
}

fn address(text: &str) -> Option<std::net::IpAddr> {
    text.parse().ok()
}

/// Checks both families: from outside, from the host via localhost, and from the container to itself.
fn everything_answers(bed: &Bed) -> Result<()> {
    assert_eq!(seen(&bed.client, "192.0.2.1", 18080)?, address("192.0.2.2"));
    assert_eq!(seen(&bed.client, "192.0.2.1", 18081)?, address("192.0.2.2"));
    assert_eq!(seen(&bed.client, "192.0.2.1", 18082)?, None, "mapped for the IPv6 address only");
    assert_eq!(seen(&bed.client, "2001:db8:1::1", 18080)?, address("2001:db8:1::2"));
    assert_eq!(seen(&bed.client, "2001:db8:1::1", 18082)?, address("2001:db8:1::2"));
    assert_eq!(seen(&bed.client, "2001:db8:1::1", 18081)?, None, "mapped for the IPv4 address only");
    assert!(seen(&bed.host, "127.0.0.1", 18080)?.is_some(), "by localhost");
    assert!(seen(&bed.container, "192.0.2.1", 18080)?.is_some(), "the container to itself");
    Ok(())
}

fn life(backend: &str) -> Result<()> {
    let bed = Bed::new()?;
    bed.serve(8080)?;
    assert_eq!(seen(&bed.client, "192.0.2.1", 18080)?, None);
    let result = bed.ours(Portmap, "ADD", mapping(backend))?;
    assert_eq!(result["ips"], bed.previous()["ips"], "the result goes through");
    everything_answers(&bed)?;
    bed.ours(Portmap, "CHECK", mapping(backend))?;
    // Again: nothing is duplicated, and everything still answers.
    bed.ours(Portmap, "ADD", mapping(backend))?;
    everything_answers(&bed)?;
    bed.ours(Portmap, "DEL", mapping(backend))?;
    assert_eq!(seen(&bed.client, "192.0.2.1", 18080)?, None);
    assert!(bed.ours(Portmap, "CHECK", mapping(backend)).is_err());
    bed.ours(Portmap, "DEL", mapping(backend))?;
    Ok(())
}

#[test]
fn ports_by_nftables() -> Result<()> {
    life("nftables")
}

#[test]
fn ports_by_iptables() -> Result<()> {
    life("iptables")
}

#[test]
fn a_repeated_add_leaves_no_rule_twice() -> Result<()> {
    let bed = Bed::new()?;
    bed.ours(Portmap, "ADD", mapping("nftables"))?;
    let once = bed.host.shell("nft -s list ruleset")?;
    bed.ours(Portmap, "ADD", mapping("nftables"))?;
    assert_eq!(bed.host.shell("nft -s list ruleset")?, once);
    assert!(once.contains("dnat to 10.0.0.2:8080"), "{once}");
    Ok(())
}

#[test]
fn rules_of_the_reference_plugin_are_removed() -> Result<()> {
    let bed = Bed::new()?;
    bed.serve(8080)?;
    let mut conf = mapping("iptables");
    // Debian's build is older than the setting.
    conf.as_object_mut().map(|conf| conf.remove("backend"));
    bed.theirs(Portmap, "ADD", conf.clone())?;
    assert_eq!(seen(&bed.client, "192.0.2.1", 18080)?, address("192.0.2.2"));
    // Without iptables selected by name: a node whose plugin was replaced.
    bed.ours(Portmap, "DEL", conf)?;
    assert_eq!(seen(&bed.client, "192.0.2.1", 18080)?, None);
    let left = bed.host.shell("iptables-save -t nat; ip6tables-save -t nat")?;
    assert!(!left.contains("CNI-DN-"), "{left}");
    Ok(())
}

#[test]
fn the_reference_plugin_checks_and_removes_our_iptables_rules() -> Result<()> {
    let bed = Bed::new()?;
    bed.serve(8080)?;
    let mut theirs = mapping("iptables");
    theirs.as_object_mut().map(|conf| conf.remove("backend"));
    bed.ours(Portmap, "ADD", mapping("iptables"))?;
    bed.theirs(Portmap, "DEL", theirs)?;
    assert_eq!(seen(&bed.client, "192.0.2.1", 18080)?, None);
    let left = bed.host.shell("iptables-save -t nat; ip6tables-save -t nat")?;
    assert!(!left.contains("CNI-DN-"), "{left}");
    Ok(())
}

#[test]
fn a_chain_without_ports_and_one_without_a_result() -> Result<()> {
    let bed = Bed::new()?;
    assert_eq!(bed.ours(Portmap, "ADD", json!({}))?["ips"], bed.previous()["ips"]);
    bed.ours(Portmap, "DEL", json!({}))?;
    let error = bed.ours(Portmap, "ADD", json!({"prevResult": null})).unwrap_err();
    assert_eq!(error.to_string(), "must be called as chained plugin");
    Ok(())
}
