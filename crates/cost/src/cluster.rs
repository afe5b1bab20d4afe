//! A cluster as a plan: every entry follows from its number, so that a large cluster takes no memory before it is read.
//!
//! Namespaces of fifty pods in five applications, two policies for each application: one for ingress, one for egress.
//! Addresses come in blocks of 64, two for each node, behind VXLAN. Pods of a namespace are spread over the nodes.

use api::words::{
    KUBERNETES, LABEL_NAME, LABEL_NAMESPACE, LABEL_ORCHESTRATOR, NAMESPACE_LABEL_PREFIX,
    NAMESPACE_PROFILE_PREFIX,
};
use api::{IPIPMode, Kind, Node, NodeBGPSpec, Profile, VXLANMode};
use ipnet::{IpNet, Ipv4Net};
use model::AllocationBlock;
use model::convert::{self, Faults};
use model::feed::{self, FeedEntry, IpPool, PolicyType, Port, PortRange, Protocol, RuleAction};
use model::v1::{PolicyKey, WorkloadEndpointKey};
use selector::Selector;
use std::net::Ipv4Addr;

/// Pods of one namespace.
const PODS_OF_NAMESPACE: usize = 50;
/// Applications of one namespace.
const APPLICATIONS: usize = 5;
const FIRST_NODE: u32 = 0xac10_0001;
const FIRST_POD: u32 = 0x0a00_0000;
const BLOCK: u32 = 64;

/// The size of a cluster, and its rate of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The number of nodes.
    pub nodes: usize,
    /// The number of pods on each node; at most 126.
    pub pods_of_node: usize,
    /// How many pods are replaced per second.
    pub pods_a_second: usize,
    /// How many policies are edited per second.
    pub edits_a_second: usize,
}

impl Cluster {
    /// A cluster with a hundred pods on each node, of which a hundred per second are replaced, and ten edits of
    /// policies per second.
    #[must_use]
    pub fn of(nodes: usize) -> Self {
        Self { nodes, pods_of_node: 100, pods_a_second: 100, edits_a_second: 10 }
    }

    /// The number of pods at any time.
    #[must_use]
    pub fn pods(&self) -> usize {
        self.nodes * self.pods_of_node
    }

    /// The number of policies.
    #[must_use]
    pub fn policies(&self) -> usize {
        self.namespaces() * APPLICATIONS * 2
    }

    fn namespaces(&self) -> usize {
        self.pods().div_ceil(PODS_OF_NAMESPACE)
    }

    /// The name of a node.
    #[must_use]
    pub fn node_name(number: usize) -> String {
        format!("node-{number:05}")
    }

    /// Everything that exists at the start.
    pub fn start(self) -> impl Iterator<Item = FeedEntry> {
        let nodes = (0..self.nodes).flat_map(|number| [node(number), block(number, 0), block(number, 1)]);
        let namespaces = (0..self.namespaces()).flat_map(namespace);
        let policies = (0..self.policies()).map(|number| policy(number, 0));
        let pods = (0..self.pods()).map(move |slot| self.pod(slot, 0));
        std::iter::once(pool()).chain(nodes).chain(namespaces).chain(policies).chain(pods)
    }

    /// The changes of one second, in order: a pod is replaced by another, and now and then a policy is edited.
    pub fn second(self, second: usize) -> impl Iterator<Item = FeedEntry> {
        let turnover = (0..self.pods_a_second).flat_map(move |turn| {
            let turns = second * self.pods_a_second + turn;
            // A step that has no common divisor with the number of pods visits all of them before it repeats one.
            let slot = turns * 7919 % self.pods();
            let generation = turns / self.pods();
            let gone = self.pod(slot, generation).key().to_owned().gone();
            [gone, self.pod(slot, generation + 1)]
        });
        let edits = (0..self.edits_a_second).map(move |turn| {
            let turns = second * self.edits_a_second + turn;
            policy(turns * 7919 % self.policies(), turns / self.policies() + 1)
        });
        turnover.chain(edits)
    }

    /// The pod in a slot; `generation` counts its predecessors.
    fn pod(self, slot: usize, generation: usize) -> FeedEntry {
        let (node, index) = (slot % self.nodes, slot / self.nodes);
        let (namespace, application) = (slot / PODS_OF_NAMESPACE, slot % APPLICATIONS);
        let namespace_name = namespace_name(namespace);
        let pod = format!("app-{application}-5d4f8c7b9-{slot:06x}{generation:02x}");
        // The first address of a block is the node's own.
        let address = FIRST_POD + small(node) * 2 * BLOCK + 1 + small(index);
        let labels = [
            ("app", format!("app-{application}")),
            ("pod-template-hash", "5d4f8c7b9".to_owned()),
            ("team", format!("team-{}", namespace % 40)),
            (LABEL_NAMESPACE, namespace_name.clone()),
            (LABEL_ORCHESTRATOR, KUBERNETES.to_owned()),
        ];
        let value = feed::WorkloadEndpoint {
            state: "active".to_owned(),
            name: format!("cali{slot:08x}{generation:02x}"),
            ipv4_nets: vec![IpNet::V4(Ipv4Net::from(Ipv4Addr::from(address)))],
            profile_ids: vec![format!("{NAMESPACE_PROFILE_PREFIX}{namespace_name}").into()],
            labels: labels.into(),
            generate_name: format!("app-{application}-5d4f8c7b9-"),
            ..feed::WorkloadEndpoint::default()
        };
        let key = WorkloadEndpointKey {
            host: Self::node_name(node).into(),
            orchestrator: KUBERNETES.into(),
            workload: format!("{namespace_name}/{pod}"),
            endpoint: "eth0".into(),
        };
        FeedEntry::WorkloadEndpoint(key, Some(Box::new(value)))
    }
}

fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn namespace_name(number: usize) -> String {
    format!("shop-{number:05}")
}

fn pool() -> FeedEntry {
    let cidr = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::from(FIRST_POD), 8));
    let pool = IpPool {
        cidr,
        ipip_interface: String::new(),
        ipip_mode: IPIPMode::Never,
        vxlan_mode: VXLANMode::Always,
        masquerade: true,
        ipam: true,
        disabled: false,
        disable_bgp_export: false,
        assigned_automatically: true,
        allowed_uses: Vec::new(),
    };
    FeedEntry::IpPool(cidr, Some(Box::new(pool)))
}

fn node(number: usize) -> FeedEntry {
    let mut node = Node::default();
    node.metadata.name = Cluster::node_name(number);
    let address = Ipv4Addr::from(FIRST_NODE + small(number));
    node.spec.bgp =
        Some(NodeBGPSpec { ipv4_address: format!("{address}/16").into(), ..NodeBGPSpec::default() });
    let tunnel = Ipv4Addr::from(FIRST_POD + small(number) * 2 * BLOCK);
    node.spec.ipv4_vxlan_tunnel_addr = tunnel.to_string().into();
    let name = node.metadata.name.as_str().into();
    FeedEntry::Node(name, Some(Box::new(convert::node::node(node, &mut Faults::new()))))
}

fn block(number: usize, half: u32) -> FeedEntry {
    let first = FIRST_POD + (small(number) * 2 + half) * BLOCK;
    let cidr = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::from(first), 26));
    let host = format!("host:{}", Cluster::node_name(number));
    let value = serde_json::json!({
        "cidr": cidr.to_string(), "affinity": host, "allocations": vec![serde_json::Value::Null; BLOCK as usize],
        "unallocated": (0..BLOCK).collect::<Vec<_>>(), "attributes": [],
    });
    let block: Option<AllocationBlock> = serde_json::from_value(value).ok();
    FeedEntry::Block(cidr, block.map(Box::new))
}

fn namespace(number: usize) -> [FeedEntry; 2] {
    let name = format!("{NAMESPACE_PROFILE_PREFIX}{}", namespace_name(number));
    let mut profile = Profile::default();
    profile.metadata.name.clone_from(&name);
    let label = |name: &str, value: String| (format!("{NAMESPACE_LABEL_PREFIX}{name}"), value);
    profile.spec.labels_to_apply =
        [label(LABEL_NAME, namespace_name(number)), label("team", format!("team-{}", number % 40))].into();
    let allow = feed::Rule { action: RuleAction::Allow, ..feed::Rule::default() };
    let rules = feed::ProfileRules { inbound_rules: vec![allow.clone()], outbound_rules: vec![allow] };
    [
        FeedEntry::Profile(name.as_str().into(), Some(Box::new(profile))),
        FeedEntry::ProfileRules(name.into(), Some(Box::new(rules))),
    ]
}

/// A policy of an application: ingress for even numbers, egress for odd ones. An edit changes a port.
fn policy(number: usize, edition: usize) -> FeedEntry {
    let (application, namespace) = (number / 2 % APPLICATIONS, number / 2 / APPLICATIONS);
    let namespace_name = namespace_name(namespace);
    let of =
        |application: usize| format!("{LABEL_NAMESPACE} == '{namespace_name}' && app == 'app-{application}'");
    let port = u16::try_from(8000 + edition % 1000).unwrap_or(8000);
    let neighbour = |selector: String, ports: Vec<Port>| feed::RuleEnd {
        selector: Some(parsed(&selector)),
        ports,
        ..feed::RuleEnd::default()
    };
    let rule = |source: feed::RuleEnd, destination: feed::RuleEnd| feed::Rule {
        action: RuleAction::Allow,
        protocol: Some(Protocol::Tcp),
        source,
        destination,
        ..feed::Rule::default()
    };
    let ports = vec![Port::Range(PortRange { first: port, last: port })];
    let mut policy = feed::Policy {
        namespace: namespace_name.clone(),
        tier: "default".into(),
        selector: parsed(&of(application)),
        ..feed::Policy::default()
    };
    if number.is_multiple_of(2) {
        let here = feed::RuleEnd { ports: ports.clone(), ..feed::RuleEnd::default() };
        let team = format!("{NAMESPACE_LABEL_PREFIX}team == 'team-{}'", namespace % 40);
        policy.types = vec![PolicyType::Ingress];
        policy.inbound_rules = vec![
            rule(neighbour(of((application + 1) % APPLICATIONS), Vec::new()), here.clone()),
            rule(neighbour(team, Vec::new()), here),
        ];
    } else {
        policy.types = vec![PolicyType::Egress];
        let there = neighbour(of((application + 4) % APPLICATIONS), ports);
        policy.outbound_rules = vec![rule(feed::RuleEnd::default(), there)];
    }
    let key = PolicyKey {
        kind: Kind::NetworkPolicy,
        namespace: namespace_name,
        name: format!("app-{application}-{}", if number.is_multiple_of(2) { "in" } else { "out" }),
    };
    FeedEntry::Policy(key, Some(Box::new(policy)))
}

/// Parses a selector of this file; one that does not parse selects nothing, and the tests would notice.
fn parsed(text: &str) -> Selector {
    Selector::parse(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn a_cluster_keeps_its_size_and_every_pod_its_own_address() {
        let cluster = Cluster { nodes: 3, pods_of_node: 40, pods_a_second: 7, edits_a_second: 2 };
        let mut there = BTreeMap::new();
        let mut apply = |entry: FeedEntry| {
            let key = entry.key().to_owned();
            if entry.is_gone() {
                assert!(there.remove(&key).is_some(), "{key:?} was not there");
            } else {
                there.insert(key, entry);
            }
        };
        cluster.start().for_each(&mut apply);
        for second in 0..40 {
            cluster.second(second).for_each(&mut apply);
        }
        let addresses: Vec<IpNet> = there
            .values()
            .filter_map(|entry| match entry {
                FeedEntry::WorkloadEndpoint(_, Some(pod)) => Some(pod.ipv4_nets[0]),
                _ => None,
            })
            .collect();
        assert_eq!(addresses.len(), 120);
        assert_eq!(addresses.iter().collect::<BTreeSet<_>>().len(), 120);
        let policies = there.keys().filter(|key| matches!(key, feed::FeedKey::Policy(_))).count();
        assert_eq!(policies, cluster.policies());
    }
}
