//! The index against an ordinary map.

use super::*;
use api::Kind;
use model::v1::PolicyKey;
use model::{AffinityType, BlockAffinityKey, V1Key};

fn keys() -> Vec<Key> {
    let long = "x".repeat(300);
    let policy = |kind, namespace: &str, name: &str| {
        Key::V1(V1Key::Policy(PolicyKey { kind, namespace: namespace.into(), name: name.into() }))
    };
    vec![
        Key::resource(Kind::Node, "", "n1"),
        Key::resource(Kind::KubernetesService, "shop", "web"),
        Key::Block { cidr: "10.0.0.0/26".parse().unwrap() },
        Key::Block { cidr: "fd00::/122".parse().unwrap() },
        Key::BlockAffinity(BlockAffinityKey {
            cidr: "10.0.0.0/26".parse().unwrap(),
            host: "n1".into(),
            affinity_type: AffinityType::Virtual,
        }),
        Key::V1(V1Key::ReadyFlag),
        Key::V1(V1Key::GlobalConfig { name: "A".into() }),
        Key::V1(V1Key::HostConfig { host: "A".into(), name: "B".into() }),
        Key::V1(V1Key::Wireguard { node: "n1".into() }),
        Key::V1(V1Key::WorkloadEndpoint {
            host: "n1".into(),
            orchestrator: "k8s".into(),
            workload: "shop/web-1".into(),
            endpoint: "eth0".into(),
        }),
        Key::V1(V1Key::HostEndpoint { host: "n1".into(), endpoint: "e".into() }),
        Key::V1(V1Key::NetworkSet { name: "a/b".into() }),
        policy(Kind::NetworkPolicy, "a", "bc"),
        policy(Kind::NetworkPolicy, "ab", "c"),
        policy(Kind::GlobalNetworkPolicy, "", &long),
        Key::V1(V1Key::Tier { name: "t%2f".into() }),
        Key::V1(V1Key::ProfileRules { name: "kns.a".into() }),
        Key::V1(V1Key::ProfileLabels { name: "kns.a".into() }),
        Key::V1(V1Key::IpPool { cidr: "10.0.0.0/8".parse().unwrap() }),
        Key::V1(V1Key::BgpNode { host: "n1".into() }),
        Key::IpamConfig,
    ]
}

#[test]
fn every_key_survives_the_trip() {
    let mut seen = std::collections::BTreeSet::new();
    for key in keys() {
        let mut bytes = Vec::new();
        codec::encode(&key, &mut bytes);
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
        assert!(index.find(key).is_none());
        index.insert(key, Known { stamp: number as u64, degraded: number % 2 == 0 });
    }
    for (number, key) in keys().iter().enumerate() {
        let place = index.find(key).unwrap();
        assert_eq!(index.known(place), Known { stamp: number as u64, degraded: number % 2 == 0 });
    }
    index.begin();
    let kept = keys()[3].clone();
    let place = index.find(&kept).unwrap();
    index.touch(place);
    let gone = index.take(false);
    let expected: Vec<Key> = keys().into_iter().filter(|key| *key != kept).collect();
    assert_eq!(gone, expected);
    assert_eq!(index.len(), 1);
    assert!(index.find(&kept).is_some());
    assert_eq!(index.take(true), [kept]);
    assert_eq!(index.len(), 0);
}

#[test]
fn gaps_are_closed() {
    let mut index = Index::new();
    let key = |number: usize| Key::V1(V1Key::Tier { name: format!("tier-{number}") });
    for number in 0..20_000 {
        index.insert(&key(number), Known { stamp: number as u64, degraded: false });
    }
    let full = index.buffer.len();
    for number in 0..20_000 {
        if number % 10 != 0 {
            let place = index.find(&key(number)).unwrap();
            index.remove(place);
        }
    }
    assert_eq!(index.len(), 2000);
    assert!(index.buffer.len() < full / 2, "{} of {full}", index.buffer.len());
    for number in 0..20_000 {
        let found = index.find(&key(number)).map(|place| index.known(place).stamp);
        assert_eq!(found, (number % 10 == 0).then_some(number as u64));
    }
}

#[test]
fn stamps_tell_revisions_apart() {
    let texts = ["", "0", "1", "12/", "12/3", "/3", "9223372036854775807", "9223372036854775808", "x"];
    let stamps: std::collections::BTreeSet<u64> = texts.iter().map(|text| stamp(text)).collect();
    assert_eq!(stamps.len(), texts.len());
}
