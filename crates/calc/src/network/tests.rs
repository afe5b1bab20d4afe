//! Entries of a feed, each for the parts that it concerns.

use super::fixtures::{NodeText, flushed, from_json, pool};
use super::*;
use messages::ToDataplane;
use model::AllocationBlock;
use model::feed::{Change, WorkloadEndpoint};
use serde_json::json;

fn update(key: Key, value: Option<FeedValue>) -> Update {
    let change = if value.is_some() { Change::New } else { Change::Deleted };
    Update { key, value, revision: String::new(), change }
}

fn resource(kind: Kind, name: &str, value: Resource) -> Update {
    let key = ResourceKey { kind, namespace: String::new(), name: name.into() };
    update(Key::Resource(key), Some(FeedValue::Resource(Box::new(value))))
}

/// One entry of each kind that the network half knows.
fn entries() -> Vec<Update> {
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
        resource(Kind::Node, "other", Resource::Node(Box::new(node))),
        update(
            Key::V1(V1Key::HostConfig { host: "other".into(), name: "IPv4VXLANTunnelAddr".into() }),
            Some(FeedValue::Text("10.0.0.1".into())),
        ),
        update(Key::V1(V1Key::IpPool { cidr: pool.cidr }), Some(FeedValue::IpPool(Box::new(pool)))),
        update(Key::Block { cidr: block.cidr }, Some(FeedValue::Block(Box::new(block)))),
        update(
            Key::V1(V1Key::WorkloadEndpoint {
                host: "me".into(),
                orchestrator: "k8s".into(),
                workload: "shop/web".into(),
                endpoint: "eth0".into(),
            }),
            Some(FeedValue::WorkloadEndpoint(Box::new(endpoint))),
        ),
        update(
            Key::V1(V1Key::Wireguard { node: "other".into() }),
            Some(FeedValue::Wireguard(Box::new(model::feed::Wireguard {
                public_key: "key".into(),
                ..model::feed::Wireguard::default()
            }))),
        ),
        resource(Kind::Profile, "kns.shop", Resource::Profile(Box::new(profile))),
        resource(Kind::BGPConfiguration, "default", Resource::BGPConfiguration(Box::default())),
        // Not for us: another BGP configuration, a setting of the policy half.
        resource(Kind::BGPConfiguration, "node.other", Resource::BGPConfiguration(Box::default())),
        update(Key::V1(V1Key::Tier { name: "default".into() }), None),
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

fn run(settings: NetworkSettings, entries: &[Update]) -> (Network, Sequencer, Vec<String>) {
    let (mut network, mut out) = (Network::new("me".into(), settings), Sequencer::default());
    for entry in entries {
        network.on_update(entry, &mut out);
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
        network.on_update(&Update { value: None, change: Change::Deleted, ..entry.clone() }, &mut out);
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
            // The settings of BGP are the defaults again, as they were: nothing to tell.
            "Encapsulation",
        ]
    );
}

#[test]
fn parts_that_nobody_needs_are_left_out() {
    let settings = NetworkSettings { without_routes: true, ..NetworkSettings::default() };
    let without: Vec<&str> = ALL.into_iter().filter(|name| *name != "RouteUpdate").collect();
    assert_eq!(run(settings, &entries()).2, without);
    let settings = NetworkSettings { without_vteps: true, ..NetworkSettings::default() };
    let without: Vec<&str> = ALL.into_iter().filter(|name| *name != "VtepUpdate").collect();
    assert_eq!(run(settings, &entries()).2, without);
}
