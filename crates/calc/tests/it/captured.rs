//! A whole small cluster as Calico stored it, and the sets that Calico's Felix programmed for it on one of its hosts.

use crate::dataplane::Dataplane;
use api::{Kind, Resource};
use calc::{CalcGraph, GraphConfig};
use messages::{IpSetMember, TierInfo};
use model::convert::{Faults, endpoint, node, policy, set};
use model::feed::{FeedEntry, Status};
use model::v1::{HostEndpointKey, PolicyKey, WorkloadEndpointKey};
use model::{Key, Value};
use std::collections::{BTreeMap, BTreeSet};

const ETCD: &str = include_str!("../../../testkit/data/felix-etcd.txt");
const IPSETS: &str = include_str!("../data/captured-ipsets.txt");

/// The longest name of a set in the kernel.
const NAME_LENGTH: usize = 31;

fn entries() -> Vec<FeedEntry> {
    let mut entries = Vec::new();
    let mut lines = ETCD.lines();
    while let (Some(path), Some(json)) = (lines.next(), lines.next()) {
        let key = Key::parse(path).expect(path);
        let Value::Resource(resource) = model::decode(&key, json.as_bytes()).expect(path) else {
            panic!("{path}")
        };
        let mut faults = Faults::new();
        entries.extend(feed(&resource, &mut faults));
        assert!(faults.is_empty(), "{path}: {faults:?}");
    }
    entries
}

/// Converts a resource for the feed, if its kind concerns policy.
fn feed(resource: &Resource, faults: &mut Faults) -> Vec<FeedEntry> {
    let metadata = resource.metadata().clone();
    let name = metadata.name.clone();
    let policy_key =
        |kind: Kind| PolicyKey { kind, namespace: metadata.namespace.clone(), name: name.clone() };
    vec![match resource.clone() {
        Resource::WorkloadEndpoint(it) => {
            let key = WorkloadEndpointKey {
                host: it.spec.node.as_str().into(),
                orchestrator: it.spec.orchestrator.clone(),
                workload: format!("{}/{}", metadata.namespace, it.spec.pod),
                endpoint: it.spec.endpoint.clone(),
            };
            FeedEntry::WorkloadEndpoint(key, endpoint::workload(*it, faults).map(Box::new))
        }
        Resource::HostEndpoint(it) => {
            let key = HostEndpointKey { host: it.spec.node.as_str().into(), endpoint: name };
            FeedEntry::HostEndpoint(key, Some(Box::new(endpoint::host(*it, faults))))
        }
        Resource::GlobalNetworkSet(it) => {
            FeedEntry::NetworkSet(name, Some(Box::new(set::global_set(*it, faults))))
        }
        Resource::NetworkPolicy(it) => {
            let value = policy::namespaced(&metadata.namespace, it.spec, faults);
            FeedEntry::Policy(policy_key(Kind::NetworkPolicy), Some(Box::new(value)))
        }
        Resource::GlobalNetworkPolicy(it) => {
            let value = policy::global(it.spec, faults);
            FeedEntry::Policy(policy_key(Kind::GlobalNetworkPolicy), Some(Box::new(value)))
        }
        Resource::Tier(it) => FeedEntry::Tier(name.into(), Some(set::tier(&it.spec))),
        Resource::Profile(it) => {
            let rules = policy::profile_rules(it.spec.clone(), faults);
            return vec![
                FeedEntry::ProfileRules(name.as_str().into(), Some(Box::new(rules))),
                FeedEntry::Profile(name.into(), Some(it)),
            ];
        }
        Resource::Node(it) => FeedEntry::Node(name.into(), Some(Box::new(node::node(*it, faults)))),
        _ => return Vec::new(),
    }]
}

fn dataplane() -> Dataplane {
    let mut graph = CalcGraph::new(GraphConfig { host: "n1".into(), ..GraphConfig::default() });
    for entry in entries() {
        graph.on_entry(entry);
    }
    graph.on_status(Status::InSync);
    let mut out = Vec::new();
    graph.flush(&mut out);
    let mut dataplane = Dataplane::default();
    dataplane.apply(out);
    dataplane
}

#[test]
fn sets_have_the_names_and_members_that_calico_gave_them() {
    let mut captured: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in IPSETS.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let members = captured.entry(words[1].to_owned()).or_default();
        if words[0] == "add" {
            members.insert(words[2].to_owned());
        }
    }
    let ours: BTreeMap<String, BTreeSet<String>> = dataplane()
        .policy
        .sets
        .into_iter()
        .map(|(id, (_, members))| {
            let mut name = format!("cali40{id}");
            name.truncate(NAME_LENGTH);
            // The kernel shows a network of one address as that address.
            let text = |member: &IpSetMember| member.to_string().trim_end_matches("/32").to_owned();
            (name, members.iter().map(text).collect())
        })
        .collect();
    assert!(captured.len() >= 5);
    assert_eq!(ours, captured);
}

#[test]
fn endpoints_have_the_policies_that_calico_gave_them() {
    let state = dataplane().policy;
    let names = |tiers: &[TierInfo]| -> Vec<String> {
        let list =
            |ids: &[messages::PolicyId]| ids.iter().map(|id| id.name.clone()).collect::<Vec<_>>().join(",");
        tiers
            .iter()
            .map(|tier| {
                format!("{}: {} / {}", tier.name, list(&tier.ingress_policies), list(&tier.egress_policies))
            })
            .collect()
    };
    let block_list = "security: security.block-list / security.block-list";
    let workload = |name: &str| {
        let found = state.workloads.iter().find(|(id, _)| *id.workload == *name);
        names(&found.expect(name).1.tiers)
    };
    assert_eq!(state.workloads.len(), 3);
    assert_eq!(workload("shop/web-1"), [block_list, "default: web-ingress / "]);
    assert_eq!(workload("shop/db-1"), [block_list, "default: db-only-from-web / db-only-from-web"]);
    assert_eq!(workload("shop/free-1"), [block_list]);
    let host = &state.hosts["n1-eth0"];
    assert_eq!(names(&host.tiers), [block_list, "default: host-ssh / host-ssh"]);
    assert_eq!(names(&host.untracked_tiers), ["default: host-untracked / host-untracked"]);
    assert_eq!(names(&host.pre_dnat_tiers), ["default: host-prednat / "]);
    assert!(host.forward_tiers.is_empty());
    assert_eq!(
        state.profiles.keys().map(|name| &**name).collect::<Vec<_>>(),
        ["kns.shop", "ksa.shop.default"]
    );
}
