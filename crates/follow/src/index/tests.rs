//! The index against an ordinary map.

use super::*;
use api::Kind;
use model::feed::{NamespacedName, ReadyFlag};
use model::v1::{HostConfigKey, HostEndpointKey, PolicyKey, WorkloadEndpointKey};
use model::{AffinityType, BlockAffinityKey, ResourceKey};

fn keys() -> Vec<FeedKey> {
    let long = "x".repeat(300);
    let policy = |kind, namespace: &str, name: &str| {
        FeedKey::Policy(PolicyKey { kind, namespace: namespace.into(), name: name.into() })
    };
    let name = || "n1".to_owned();
    let namespaced = || NamespacedName { namespace: "shop".into(), name: "web".into() };
    vec![
        FeedKey::Ready(ReadyFlag),
        FeedKey::GlobalConfig("A".into()),
        FeedKey::HostConfig(HostConfigKey { host: "A".into(), name: "B".into() }),
        policy(Kind::NetworkPolicy, "a", "bc"),
        policy(Kind::NetworkPolicy, "ab", "c"),
        policy(Kind::GlobalNetworkPolicy, "", &long),
        FeedKey::Tier("t%2f".into()),
        FeedKey::Profile("kns.a".into()),
        FeedKey::ProfileRules("kns.a".into()),
        FeedKey::WorkloadEndpoint(WorkloadEndpointKey {
            host: "n1".into(),
            orchestrator: "k8s".into(),
            workload: "shop/web-1".into(),
            endpoint: "eth0".into(),
        }),
        FeedKey::HostEndpoint(HostEndpointKey { host: "n1".into(), endpoint: "e".into() }),
        FeedKey::NetworkSet("a/b".into()),
        FeedKey::IpPool("10.0.0.0/8".parse().unwrap()),
        FeedKey::Wireguard(name()),
        FeedKey::Block("10.0.0.0/26".parse().unwrap()),
        FeedKey::Block("fd00::/122".parse().unwrap()),
        FeedKey::BlockAffinity(BlockAffinityKey {
            cidr: "10.0.0.0/26".parse().unwrap(),
            host: "n1".into(),
            affinity_type: AffinityType::Virtual,
        }),
        FeedKey::Node(name()),
        FeedKey::BgpConfiguration(name()),
        FeedKey::BgpPeer(name()),
        FeedKey::BgpFilter(name()),
        FeedKey::Service(namespaced()),
        FeedKey::EndpointSlice(namespaced()),
        FeedKey::LiveMigration(namespaced()),
        FeedKey::FelixConfiguration(name()),
        FeedKey::NodeStatus(name()),
        FeedKey::Resource(ResourceKey { kind: Kind::Node, namespace: String::new(), name: name() }),
    ]
}

fn bytes(key: &FeedKey) -> Vec<u8> {
    let mut bytes = Vec::new();
    key_of(key.borrow(), &mut bytes);
    bytes
}

fn find(index: &Index, key: &FeedKey) -> Option<Place> {
    index.find(&bytes(key)).1
}

fn insert(index: &mut Index, key: &FeedKey, known: Known) {
    let (hash, found) = index.find(&bytes(key));
    assert!(found.is_none());
    index.insert(&bytes(key), hash, known);
}

#[test]
fn every_key_survives_the_trip() {
    let mut seen = std::collections::BTreeSet::new();
    for key in keys() {
        let bytes = bytes(&key);
        assert_eq!(codec::decode(&bytes).as_ref(), Some(&key));
        for length in 0..bytes.len() {
            assert_ne!(codec::decode(&bytes[..length]).as_ref(), Some(&key), "cut at {length}");
        }
        assert!(seen.insert(bytes), "{key}");
    }
}

#[test]
fn entries_are_found_changed_and_taken() {
    let mut index = Index::new();
    for (number, key) in keys().iter().enumerate() {
        insert(&mut index, key, Known { stamp: number as u64, degraded: number % 2 == 0 });
    }
    for (number, key) in keys().iter().enumerate() {
        let place = find(&index, key).unwrap();
        assert_eq!(index.known(place), Known { stamp: number as u64, degraded: number % 2 == 0 });
    }
    index.begin();
    let kept = keys()[3].clone();
    let place = find(&index, &kept).unwrap();
    index.touch(place);
    let gone = index.take(false);
    let expected: Vec<FeedKey> = keys().into_iter().filter(|key| *key != kept).collect();
    assert_eq!(gone, expected);
    assert_eq!(index.len(), 1);
    assert!(find(&index, &kept).is_some());
    assert_eq!(index.take(true), [kept]);
    assert_eq!(index.len(), 0);
}

#[test]
fn gaps_are_closed() {
    let mut index = Index::new();
    let key = |number: usize| FeedKey::Tier(format!("tier-{number}"));
    for number in 0..20_000 {
        insert(&mut index, &key(number), Known { stamp: number as u64, degraded: false });
    }
    let full = index.buffer.len();
    for number in 0..20_000 {
        if number % 10 != 0 {
            let place = find(&index, &key(number)).unwrap();
            index.remove(place);
        }
    }
    assert_eq!(index.len(), 2000);
    assert!(index.buffer.len() < full / 2, "{} of {full}", index.buffer.len());
    for number in 0..20_000 {
        let found = find(&index, &key(number)).map(|place| index.known(place).stamp);
        assert_eq!(found, (number % 10 == 0).then_some(number as u64));
    }
}

#[test]
fn stamps_tell_revisions_apart() {
    let texts = ["", "0", "1", "12/", "12/3", "/3", "9223372036854775807", "9223372036854775808", "x"];
    let stamps: std::collections::BTreeSet<u64> = texts.iter().map(|text| stamp(text)).collect();
    assert_eq!(stamps.len(), texts.len());
}
