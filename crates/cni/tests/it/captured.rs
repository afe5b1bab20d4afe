//! Repeats the steps of the captures of Calico's own plugin, and compares the stored data.

use crate::world::{Cluster, Node, Pod, add_node, pool};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What Calico's plugin left in etcd.
const AFTER_ADD: &str = include_str!("../../../testkit/data/cni-etcd-after-add.txt");
const AFTER_DEL: &str = include_str!("../../../testkit/data/cni-etcd-after-del.txt");
const RESULT: &str = include_str!("../../../cni-protocol/tests/data/add-c1.json");

/// Keys and values with everything masked that differs from run to run: times, uids, hardware addresses, sequence
/// numbers, and where the search for a block began.
fn masked(entries: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>> {
    // The block of each node, from its claim.
    let mut blocks = BTreeMap::new();
    for key in entries.keys().filter(|key| key.contains("/ipam/v2/host/")) {
        let parts: Vec<&str> = key.split('/').collect();
        let (node, block) = (parts[5], parts[8]);
        blocks.insert(block.to_owned(), format!("BLOCK-{node}"));
    }
    let mut out = BTreeMap::new();
    for (key, value) in entries {
        let mut value: Value = serde_json::from_str(value).with_context(|| key.clone())?;
        mask(&mut value);
        let (mut key, mut text) = (key.clone(), value.to_string());
        for (block, name) in &blocks {
            let (base, length) = block.split_once('-').context("no length")?;
            key = key.replace(block, name);
            text = text.replace(&format!("{base}/{length}"), name);
            // Addresses as the offset from the block's first address.
            let first: std::net::Ipv4Addr = base.parse()?;
            for offset in 0..8 {
                let address = std::net::Ipv4Addr::from(u32::from(first) + offset);
                text = text.replace(&format!("\"{address}/32\""), &format!("\"{name}+{offset}\""));
            }
        }
        out.insert(key, text);
    }
    Ok(out)
}

fn mask(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                match name.as_str() {
                    "affinity_claim_time"
                    | "creationTimestamp"
                    | "timestamp"
                    | "uid"
                    | "mac"
                    | "sequenceNumber" => {
                        *field = format!("<{name}>").into();
                    }
                    "sequenceNumberForAllocation" => {
                        let keys: Vec<String> =
                            field.as_object().map(|it| it.keys().cloned().collect()).unwrap_or_default();
                        *field = json!(keys);
                    }
                    _ => mask(field),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask),
        _ => {}
    }
}

fn captured(text: &str) -> BTreeMap<String, String> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    lines.chunks(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect()
}

/// The keys that the captures show: addresses, endpoints, and (after ADD) the network's profile.
fn shown(all: BTreeMap<String, String>, like: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let profiles = like.keys().any(|key| key.contains("/profiles/"));
    let is_shown = |key: &String| {
        (key.contains("/ipam/v2/") && !key.ends_with("/config"))
            || key.contains("/workloadendpoints/")
            || (profiles && key.contains("/profiles/"))
    };
    all.into_iter().filter(|(key, _)| is_shown(key)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stored_data_and_wiring_equal_calicos() -> Result<()> {
    let cluster = Cluster::start(&[pool("pool", "172.16.0.0/16", 29)]).await?;
    for name in ["node-a", "node-b"] {
        add_node(&cluster.client, name).await?;
    }
    let (a, b) = (Node::on_etcd("node-a", &cluster.etcd)?, Node::on_etcd("node-b", &cluster.etcd)?);
    let pods = [Pod::new("c1")?, Pod::new("c2")?, Pod::new("c3")?];
    let result = a.add(&pods[0], json!({}))?;
    a.add(&pods[1], json!({}))?;
    b.add(&pods[2], json!({}))?;

    let theirs = captured(AFTER_ADD);
    assert_eq!(masked(&shown(cluster.dump()?, &theirs))?, masked(&theirs)?);

    let mut expected: Value = serde_json::from_str(RESULT)?;
    let address = result["ips"][0]["address"].clone();
    let network = address.as_str().unwrap_or_default().replace("/32", "/29");
    expected["interfaces"][1]["mac"] = result["interfaces"][1]["mac"].clone();
    expected["interfaces"][1]["sandbox"] = pods[0].netns.path().into();
    expected["ips"][0]["address"] = address.clone();
    expected["routes"][0]["dst"] = network.into();
    assert_eq!(result, expected);

    check_wiring(
        &a,
        &pods[0],
        address.as_str().unwrap_or_default(),
        result["interfaces"][1]["mac"].as_str().unwrap_or_default(),
    )?;

    a.del(&pods[0], json!({}))?;
    let theirs = captured(AFTER_DEL);
    let ours: BTreeMap<String, String> = shown(cluster.dump()?, &theirs)
        .into_iter()
        .filter(|(key, _)| !key.contains("/workloadendpoints/"))
        .collect();
    assert_eq!(masked(&ours)?, masked(&theirs)?);
    assert!(!cluster.dump()?.keys().any(|key| key.ends_with("node--a-cni-c1-eth0")));
    Ok(())
}

/// Checks the pod's and the host's side as `ip` shows them.
fn check_wiring(node: &Node, pod: &Pod, address: &str, mac: &str) -> Result<()> {
    let plain = address.replace("/32", "");
    let inside = pod.netns.ip(&["-d", "addr", "show", "eth0"])?;
    for part in [
        "mtu 1450",
        "numtxqueues 1 numrxqueues 1",
        &format!("link/ether {mac}"),
        &format!("inet {address} scope global eth0"),
    ] {
        assert!(inside.contains(part), "{part}: {inside}");
    }
    let routes = pod.netns.ip(&["route"])?;
    assert_eq!(
        routes.lines().map(str::trim).collect::<Vec<_>>(),
        ["default via 169.254.1.1 dev eth0", "169.254.1.1 dev eth0 scope link"]
    );
    let outside = node.host.ip(&["-d", "link", "show", "calic1"])?;
    for part in [
        "mtu 1450",
        "link/ether ee:ee:ee:ee:ee:ee",
        "state UP",
        "numtxqueues 1 numrxqueues 1",
        "addrgenmode eui64",
    ] {
        assert!(outside.contains(part), "{part}: {outside}");
    }
    assert!(node.host.ip(&["route"])?.contains(&format!("{plain} dev calic1 scope link")));
    let setting = |name: &str| {
        node.host.namespace.run(|| netlink::sysctl::read(&format!("net/ipv4/conf/calic1/{name}")))
    };
    for (name, value) in
        [("proxy_arp", "1"), ("forwarding", "1"), ("rp_filter", "0"), ("route_localnet", "1")]
    {
        assert_eq!(setting(name)??, value, "{name}");
    }
    let forward = pod.netns.namespace.run(|| netlink::sysctl::read("net/ipv4/ip_forward"))??;
    assert_eq!(forward, "0");
    Ok(())
}
