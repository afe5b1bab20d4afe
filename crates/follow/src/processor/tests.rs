//! Processors on single entries, and Felix's whole feed on a datastore that Calico itself has written.

#![expect(clippy::needless_pass_by_value, reason = "rows of tables are made where they are used")]

use super::host_endpoint::HostEndpoints;
use super::node::Nodes;
use super::pool::Pools;
use super::settings::Settings;
use super::*;
use crate::feeds::{BgpOptions, FelixOptions, FollowedKind, bgp, felix};
use model::KvPair;
use serde_json::{Value as Json, json};
use std::fmt::Write as _;

fn pair(kind: Kind, namespace: &str, name: &str, revision: &str, rest: Json) -> KvPair {
    let mut object = json!({"metadata": {"name": name, "namespace": namespace}});
    for (field, value) in rest.as_object().unwrap() {
        object[field] = value.clone();
    }
    let mut pair = KvPair::resource(Resource::from_value(kind, object).unwrap());
    pair.set_revision(revision);
    pair
}

/// The outputs in short: `key = value` or `key gone`.
fn show(outputs: &Outputs) -> Vec<String> {
    outputs
        .entries
        .iter()
        .map(|output| {
            let key = Key::from(output.entry.key()).path().unwrap();
            let again = if output.replaces { " again" } else { "" };
            match &output.entry {
                entry if !output.is_readable => {
                    format!("{key} unreadable, substitute: {}", !entry.is_gone())
                }
                FeedEntry::GlobalConfig(_, Some(text)) | FeedEntry::HostConfig(_, Some(text)) => {
                    format!("{key} = {text}{again}")
                }
                FeedEntry::Ready(_, Some(ready)) => format!("{key} = {ready}{again}"),
                entry if entry.is_gone() => format!("{key} gone"),
                _ => format!("{key} @{}{again}", output.revision),
            }
        })
        .collect()
}

fn put(processor: &mut dyn Processor, pair: KvPair) -> Vec<String> {
    let mut outputs = Outputs::default();
    processor.process(&pair.key, pair.value, &pair.revision, &mut outputs);
    show(&outputs)
}

fn remove(processor: &mut dyn Processor, key: &Key) -> Vec<String> {
    let mut outputs = Outputs::default();
    processor.remove(key, &mut outputs);
    show(&outputs)
}

fn finish(processor: &mut dyn Processor) -> Vec<String> {
    let mut outputs = Outputs::default();
    processor.finish(&mut outputs);
    show(&outputs)
}

fn pool(name: &str, cidr: &str, revision: &str) -> KvPair {
    pair(Kind::IPPool, "", name, revision, json!({"spec": {"cidr": cidr}}))
}

fn pool_key(name: &str) -> Key {
    Key::resource(Kind::IPPool, "", name)
}

const NOTHING: [&str; 0] = [];
const TEN: &str = "/calico/v1/ipam/v4/pool/10.0.0.0-8";
const ELEVEN: &str = "/calico/v1/ipam/v4/pool/11.0.0.0-8";

#[test]
fn of_two_pools_with_one_range_the_lowest_name_wins() {
    let mut pools = Pools::default();
    assert_eq!(put(&mut pools, pool("b", "10.0.0.0/8", "1")), [format!("{TEN} @1")]);
    assert_eq!(put(&mut pools, pool("c", "10.0.0.0/8", "2")), NOTHING);
    assert_eq!(put(&mut pools, pool("a", "10.0.0.0/8", "3")), [format!("{TEN} @3 again")]);
    assert_eq!(put(&mut pools, pool("b", "10.0.0.0/8", "4")), NOTHING);
    assert_eq!(remove(&mut pools, &pool_key("a")), [format!("{TEN} @4 again")]);
    // It moves away: the next pool gets the range.
    let moved = [format!("{TEN} @2 again"), format!("{ELEVEN} @5")];
    assert_eq!(put(&mut pools, pool("b", "11.0.0.0/8", "5")), moved);
    // An unreadable pool keeps its range.
    assert_eq!(
        put(&mut pools, pool("b", "nonsense", "6")),
        [format!("{ELEVEN} unreadable, substitute: false")]
    );
    assert_eq!(remove(&mut pools, &pool_key("b")), [format!("{ELEVEN} gone")]);
    assert_eq!(remove(&mut pools, &pool_key("b")), NOTHING);
    // A list without the first pool gives the range to the second.
    put(&mut pools, pool("a", "10.0.0.0/8", "7"));
    pools.begin();
    assert_eq!(put(&mut pools, pool("c", "10.0.0.0/8", "2")), NOTHING);
    assert_eq!(finish(&mut pools), [format!("{TEN} @2 again")]);
    // A pool that is unreadable in a list keeps its range.
    put(&mut pools, pool("a", "10.0.0.0/8", "8"));
    pools.begin();
    pools.keep(&pool_key("a"));
    put(&mut pools, pool("c", "10.0.0.0/8", "2"));
    assert_eq!(finish(&mut pools), NOTHING);
    assert_eq!(pools.keys(&pool_key("a")).len(), 1);
    assert_eq!(pools.keys(&pool_key("c")), []);
}

#[test]
fn a_host_endpoint_may_move() {
    let mut endpoints = HostEndpoints::default();
    let endpoint = |node: &str, revision: &str| {
        pair(Kind::HostEndpoint, "", "e", revision, json!({"spec": {"node": node, "interfaceName": "eth0"}}))
    };
    let key = Key::resource(Kind::HostEndpoint, "", "e");
    let path = |host: &str| format!("/calico/v1/host/{host}/endpoint/e");
    assert_eq!(put(&mut endpoints, endpoint("n1", "1")), [format!("{} @1", path("n1"))]);
    assert_eq!(put(&mut endpoints, endpoint("n1", "2")), [format!("{} @2", path("n1"))]);
    let moved = [format!("{} gone", path("n1")), format!("{} @3", path("n2"))];
    assert_eq!(put(&mut endpoints, endpoint("n2", "3")), moved);
    assert_eq!(
        put(&mut endpoints, endpoint("", "4")),
        [format!("{} unreadable, substitute: false", path("n2"))]
    );
    endpoints.begin();
    endpoints.keep(&key);
    assert_eq!(finish(&mut endpoints), NOTHING);
    endpoints.begin();
    assert_eq!(finish(&mut endpoints), [format!("{} gone", path("n2"))]);
    put(&mut endpoints, endpoint("n3", "5"));
    assert_eq!(remove(&mut endpoints, &key), [format!("{} gone", path("n3"))]);
}

#[test]
fn ranges_of_nodes_stand_for_blocks() {
    let node = |name: &str, revision: &str, cidrs: &[&str]| {
        pair(Kind::Node, "", name, revision, json!({"status": {"podCIDRs": cidrs}}))
    };
    let block = |third: &str| format!("/calico/ipam/v2/assignment/ipv4/block/10.244.{third}.0-24");
    let blocks = |shown: Vec<String>| -> Vec<String> {
        shown.into_iter().filter(|line| line.starts_with("/calico/ipam")).collect()
    };
    let mut nodes = Nodes::new(true);
    assert_eq!(
        blocks(put(&mut nodes, node("a", "1", &["10.244.1.0/24", "10.244.2.0/24"]))),
        [format!("{} @1", block("1")), format!("{} @1", block("2"))]
    );
    // Another node gets a range before the first node's loss of it is seen.
    assert_eq!(
        blocks(put(&mut nodes, node("b", "2", &["10.244.2.0/24"]))),
        [format!("{} @2 again", block("2"))]
    );
    assert_eq!(
        blocks(put(&mut nodes, node("a", "3", &["10.244.3.0/24"]))),
        [format!("{} gone", block("1")), format!("{} @3", block("3"))]
    );
    let key = |name: &str| Key::resource(Kind::Node, "", name);
    assert_eq!(blocks(remove(&mut nodes, &key("a"))), [format!("{} gone", block("3"))]);
    assert_eq!(blocks(remove(&mut nodes, &key("b"))), [format!("{} gone", block("2"))]);
    let mut nodes = Nodes::new(false);
    assert_eq!(blocks(put(&mut nodes, node("a", "1", &["10.244.1.0/24"]))), NOTHING);
}

#[test]
fn a_node_is_several_things() {
    let mut nodes = Nodes::new(false);
    let rest = json!({
        "spec": {"ipv4VXLANTunnelAddr": "10.0.0.1", "ipv6VXLANTunnelAddr": "nonsense"},
        "status": {"wireguardPublicKey": "k"},
    });
    let expected = [
        "/calico/v1/host/n1/config/IpInIpTunnelAddr gone",
        "/calico/v1/host/n1/config/IPv4VXLANTunnelAddr = 10.0.0.1",
        "/calico/v1/host/n1/config/VXLANTunnelMACAddr gone",
        "/calico/v1/host/n1/config/IPv6VXLANTunnelAddr unreadable, substitute: false",
        "/calico/v1/host/n1/config/VXLANTunnelMACAddrV6 gone",
        "/calico/resources/v3/projectcalico.org/nodes/n1 @1",
        "/calico/v1/host/n1/wireguard @1",
    ];
    assert_eq!(put(&mut nodes, pair(Kind::Node, "", "n1", "1", rest)), expected);
    let gone = remove(&mut nodes, &Key::resource(Kind::Node, "", "n1"));
    assert_eq!(gone.len(), 7);
    assert!(gone.iter().all(|line| line.ends_with(" gone")), "{gone:?}");
}

#[test]
fn settings_come_and_go_one_by_one() {
    let mut settings = Settings::default();
    let configuration = |name: &str, annotations: Json, spec: Json| {
        let mut pair = pair(Kind::FelixConfiguration, "", name, "1", json!({"spec": spec}));
        if let Value::Resource(resource) = &mut pair.value {
            resource.metadata_mut().annotations = serde_json::from_value(annotations).unwrap();
        }
        pair
    };
    let set = |shown: Vec<String>| -> Vec<String> {
        shown.into_iter().filter(|line| !line.ends_with(" gone")).collect()
    };
    let annotations = json!({"config.projectcalico.org/Secret": "x"});
    let shown = put(&mut settings, configuration("default", annotations, json!({"logPrefix": "a"})));
    assert_eq!(set(shown.clone()), ["/calico/v1/config/LogPrefix = a", "/calico/v1/config/Secret = x"]);
    assert!(shown.contains(&"/calico/v1/config/Ipv6Support gone".to_owned()));
    // The annotation is removed, and with it the setting that no table contains.
    let shown = put(&mut settings, configuration("default", json!({}), json!({"logPrefix": "a"})));
    assert!(shown.contains(&"/calico/v1/config/Secret gone".to_owned()));
    let shown = put(&mut settings, configuration("node.n1", json!({}), json!({"logPrefix": "b"})));
    assert_eq!(set(shown), ["/calico/v1/host/n1/config/LogPrefix = b"]);
    // A value that cannot be read is not the same as no value.
    let shown =
        put(&mut settings, configuration("default", json!({}), json!({"routeRefreshInterval": "soon"})));
    assert!(
        shown.contains(&"/calico/v1/config/RouteRefreshInterval unreadable, substitute: false".to_owned())
    );
    let shown = put(&mut settings, configuration("some", json!({}), json!({"nodeSelector": "has(gpu)"})));
    assert_eq!(shown, ["/calico/resources/v3/projectcalico.org/felixconfigurations/some @1"]);
    let shown = remove(&mut settings, &Key::resource(Kind::FelixConfiguration, "", "default"));
    assert!(shown.contains(&"/calico/v1/config/Secret gone".to_owned()));
    assert!(shown.len() > 180, "{}", shown.len());

    let information =
        json!({"spec": {"clusterGUID": "g", "datastoreReady": false, "clusterType": "k8s,bgp"}});
    let information = pair(Kind::ClusterInformation, "", "default", "1", information);
    let expected = [
        "/calico/v1/config/ClusterGUID = g",
        "/calico/v1/config/ClusterType = k8s,bgp",
        "/calico/v1/Ready = false",
    ];
    assert_eq!(set(put(&mut settings, information)), expected);
}

#[test]
fn keys_of_kinds_converted_one_by_one() {
    let mut converted = Converted;
    for (kind, namespace, name, path) in [
        (Kind::NetworkPolicy, "shop", "p", "/calico/v1/policy/NetworkPolicy/shop/p"),
        (Kind::KubernetesNetworkPolicy, "shop", "p", "/calico/v1/policy/KubernetesNetworkPolicy/shop/p"),
        (Kind::GlobalNetworkPolicy, "", "t.p", "/calico/v1/policy/GlobalNetworkPolicy//t.p"),
        (Kind::StagedGlobalNetworkPolicy, "", "p", "/calico/v1/policy/StagedGlobalNetworkPolicy//p"),
        (Kind::NetworkSet, "shop", "s", "/calico/v1/netset/shop%2fs"),
        (Kind::GlobalNetworkSet, "", "s", "/calico/v1/netset/s"),
        (Kind::Tier, "", "t", "/calico/v1/policy/tier/t/metadata"),
    ] {
        let pair = pair(kind, namespace, name, "7", json!({}));
        let key = pair.key.clone();
        assert_eq!(put(&mut converted, pair), [format!("{path} @7")]);
        assert_eq!(remove(&mut converted, &key), [format!("{path} gone")]);
    }
    // An endpoint without addresses does not exist yet; one with an unusual name has no key in the feed.
    let endpoint = |name: &str| pair(Kind::WorkloadEndpoint, "shop", name, "1", json!({}));
    let path = "/calico/v1/host/n-1/workload/k8s/shop%2fweb/endpoint/eth0";
    assert_eq!(put(&mut converted, endpoint("n--1-k8s-web-eth0")), [format!("{path} gone")]);
    let mut outputs = Outputs::default();
    let odd = endpoint("odd");
    converted.process(&odd.key, odd.value, "1", &mut outputs);
    assert_eq!((outputs.entries.len(), outputs.faults.iter().count()), (0, 1));
    // A staged deletion produces no entry.
    let staged = json!({"spec": {"stagedAction": "Delete"}});
    let staged = pair(Kind::StagedNetworkPolicy, "shop", "p", "1", staged);
    assert_eq!(put(&mut converted, staged), ["/calico/v1/policy/StagedNetworkPolicy/shop/p gone"]);
}

/// Resources as they are stored, other values as in this program.
fn show_value(entry: &FeedEntry) -> String {
    let json = match entry {
        FeedEntry::Node(_, Some(value)) => serde_json::to_string(&value.object),
        FeedEntry::Profile(_, Some(value)) => serde_json::to_string(value),
        FeedEntry::BgpConfiguration(_, Some(value)) => serde_json::to_string(value),
        FeedEntry::BgpPeer(_, Some(value)) => serde_json::to_string(&value.object),
        FeedEntry::BgpFilter(_, Some(value)) => serde_json::to_string(value),
        FeedEntry::Block(_, Some(value)) => serde_json::to_string(value),
        other => return format!("{other:?}"),
    };
    json.unwrap()
}

/// Runs stored entries through the kinds of a feed.
fn run(kinds: Vec<FollowedKind>, stored: &str) -> String {
    let lines: Vec<&str> = stored.lines().collect();
    let mut text = String::new();
    for mut kind in kinds {
        for (number, entry) in lines.chunks(2).enumerate() {
            let key = Key::parse(entry[0]).unwrap();
            if !kind.list.matches(&key) {
                continue;
            }
            let value = model::decode(&key, entry[1].as_bytes()).unwrap();
            let mut outputs = Outputs::default();
            kind.processor.process(&key, value, &(number + 1).to_string(), &mut outputs);
            assert!(outputs.faults.is_empty(), "{key}: {}", outputs.faults);
            for output in outputs.entries {
                let path = Key::from(output.entry.key()).path().unwrap();
                let value = show_value(&output.entry);
                if !output.entry.is_gone() {
                    writeln!(text, "{path} @{}\n    {value}", output.revision).unwrap();
                }
            }
        }
    }
    text
}

#[test]
fn the_feeds_of_a_datastore_that_calico_has_written() {
    let stored = include_str!("../../tests/data/felix-etcd.txt");
    let felix = felix(FelixOptions { kubernetes: false, use_pod_cidr: false, leader: true });
    let text = format!("felix\n{}\nbgp\n{}", run(felix, stored), run(bgp(&BgpOptions::default()), stored));
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/felix-feed.txt");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(file, &text).unwrap();
    }
    let expected = std::fs::read_to_string(file).unwrap_or_default();
    assert!(text == expected, "the feed differs from {file}; UPDATE_EXPECT=1 rewrites it");
}
