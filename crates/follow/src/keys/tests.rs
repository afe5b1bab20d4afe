//! Keys of every kind, encoded and decoded.

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
        FeedKey::Wireguard("n1".into()),
        FeedKey::Block("10.0.0.0/26".parse().unwrap()),
        FeedKey::Block("fd00::/122".parse().unwrap()),
        FeedKey::BlockAffinity(BlockAffinityKey {
            cidr: "10.0.0.0/26".parse().unwrap(),
            host: "n1".into(),
            affinity_type: AffinityType::Virtual,
        }),
        FeedKey::Node("n1".into()),
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
    encode(key.borrow(), &mut bytes);
    bytes
}

#[test]
fn every_key_survives_the_trip() {
    let mut seen = std::collections::BTreeSet::new();
    for key in keys() {
        let bytes = bytes(&key);
        assert_eq!(decode(&bytes).as_ref(), Some(&key));
        for length in 0..bytes.len() {
            assert_ne!(decode(&bytes[..length]).as_ref(), Some(&key), "cut at {length}");
        }
        assert!(seen.insert(bytes), "{key}");
    }
}

#[test]
fn stamps_distinguish_revisions() {
    let texts = ["", "0", "1", "12/", "12/3", "/3", "9223372036854775807", "9223372036854775808", "x"];
    let stamps: std::collections::BTreeSet<u64> = texts.iter().map(|text| stamp(text)).collect();
    assert_eq!(stamps.len(), texts.len());
}
