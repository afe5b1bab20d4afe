//! Entries of a feed, each with the parts that it concerns.

use super::fixtures::{NodeText, flushed, from_json, pool};
use super::*;
use messages::ToDataplane;
use model::AllocationBlock;
use model::feed::WorkloadEndpoint;
use model::v1::{HostConfigKey, WorkloadEndpointKey};
use serde_json::json;

/// One entry of each kind that the network half knows.
fn entries() -> Vec<FeedEntry> {
    let node = NodeText { ipv4: "192.0.2.2/24", ..NodeText::default() }.node();
    let pool = pool("10.0.0.0/16", "Never", "Always");
    let block: AllocationBlock = from_json(json!({
        "cidr": "10.0.0.0/26", "affinity": "host:other", "allocations": [], "unallocated": [], "attributes": []
    }));
    let endpoint = WorkloadEndpoint {
        ipv4_nets: vec!["10.0.1.1/32".parse().expect("a net")],
        ..WorkloadEndpoint::default()
    };
    let profile = from_json(json!({
        "kind": "Profile", "apiVersion": "projectcalico.org/v3", "metadata": {"name": "kns.shop"}, "spec": {}
    }));
    vec![
        FeedEntry::Node("other".into(), Some(Box::new(node))),
        FeedEntry::HostConfig(
            HostConfigKey { host: "other".into(), name: "IPv4VXLANTunnelAddr".into() },
            Some("10.0.0.1".into()),
        ),
        FeedEntry::IpPool(pool.cidr, Some(Box::new(pool))),
        FeedEntry::Block(block.cidr, Some(Box::new(block))),
        FeedEntry::WorkloadEndpoint(
            WorkloadEndpointKey {
                host: "me".into(),
                orchestrator: "k8s".into(),
                workload: "shop/web".into(),
                endpoint: "eth0".into(),
            },
            Some(Box::new(endpoint)),
        ),
        FeedEntry::Wireguard(
            "other".into(),
            Some(Box::new(model::feed::Wireguard {
                public_key: "key".into(),
                ..model::feed::Wireguard::default()
            })),
        ),
        FeedEntry::Profile("kns.shop".into(), Some(Box::new(profile))),
        FeedEntry::BgpConfiguration("default".into(), Some(Box::default())),
        // Entries that must be ignored: another BGP configuration, an entry of the policy half.
        FeedEntry::BgpConfiguration("node.other".into(), Some(Box::default())),
        FeedEntry::Tier("default".into(), None),
    ]
}

/// The names of the messages, without their contents.
fn names(messages: &[ToDataplane]) -> Vec<String> {
    let name = |message: &ToDataplane| {
        let text = format!("{message:?}");
        text.split(['(', ' ']).next().unwrap_or_default().to_owned()
    };
    messages.iter().map(name).collect()
}

fn run(settings: NetworkSettings, entries: &[FeedEntry]) -> (Network, Sequencer, Vec<String>) {
    let (mut network, mut out) = (Network::new("me".into(), settings), Sequencer::default());
    for entry in entries {
        network.on_entry(entry, &mut out);
    }
    network.on_status(Status::InSync, &mut out);
    network.flush(&mut out);
    let names = names(&flushed(&mut out));
    (network, out, names)
}

const ALL: [&str; 11] = [
    "NamespaceUpdate",
    "VtepUpdate",
    "RouteUpdate",
    "RouteUpdate",
    "RouteUpdate",
    "RouteUpdate",
    "WireguardUpdate",
    "HostMetadataUpdate",
    "IpamPoolUpdate",
    "Encapsulation",
    "GlobalBgpConfig",
];

#[test]
fn each_entry_reaches_its_parts_and_so_does_its_removal() {
    let entries = entries();
    let (mut network, mut out, told) = run(NetworkSettings::default(), &entries);
    assert_eq!(told, ALL);
    for entry in &entries {
        network.on_entry(&entry.key().to_owned().gone(), &mut out);
    }
    network.flush(&mut out);
    assert_eq!(
        names(&flushed(&mut out)),
        [
            "NamespaceRemove",
            "RouteRemove",
            "RouteRemove",
            "RouteRemove",
            "RouteRemove",
            "VtepRemove",
            "WireguardRemove",
            "HostMetadataRemove",
            "IpamPoolRemove",
            // The BGP settings are the defaults again, as before: nothing is sent.
            "Encapsulation",
        ]
    );
}

#[test]
fn parts_that_are_not_needed_are_left_out() {
    let settings = NetworkSettings { without_routes: true, ..NetworkSettings::default() };
    let without: Vec<&str> = ALL.into_iter().filter(|name| *name != "RouteUpdate").collect();
    assert_eq!(run(settings, &entries()).2, without);
    let settings = NetworkSettings { without_vteps: true, ..NetworkSettings::default() };
    let without: Vec<&str> = ALL.into_iter().filter(|name| *name != "VtepUpdate").collect();
    assert_eq!(run(settings, &entries()).2, without);
}
