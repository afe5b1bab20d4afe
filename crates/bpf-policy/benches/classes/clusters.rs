//! Clusters for counting: random ones of five families, and a few worst cases.

use crate::shapes::LOCAL;
use api::{Kind, Profile};
use ipnet::{IpNet, Ipv4Net};
use model::feed::{self, FeedEntry, PolicyType, Port, PortRange, Protocol, RuleAction, RuleEnd};
use model::v1::{PolicyKey, WorkloadEndpointKey};
use selector::Selector;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The families of random clusters.
#[derive(Clone, Copy)]
pub(crate) enum Family {
    /// Namespaces with a handful of applications, each with realistic policies.
    Applications,
    /// Namespaces that may only communicate internally and with DNS.
    Tenants,
    /// Random labels on pods, and policies about single labels in every namespace.
    Labels,
    /// Network sets and networks in rules that overlap.
    Networks,
    /// Policies with many ranges of ports.
    Ports,
}

/// Pseudo-random numbers, always the same for a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit.max(1)
    }

    fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }
}

type Updates = Box<dyn Iterator<Item = FeedEntry>>;

impl Family {
    pub(crate) const ALL: [Self; 5] =
        [Self::Applications, Self::Tenants, Self::Labels, Self::Networks, Self::Ports];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Applications => "applications in namespaces",
            Self::Tenants => "isolated tenants",
            Self::Labels => "labels thrown at pods",
            Self::Networks => "overlapping networks",
            Self::Ports => "ranges of ports",
        }
    }

    pub(crate) fn cluster(self, seed: u64) -> Updates {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self as u64);
        let updates = match self {
            Self::Applications => applications(&mut random),
            Self::Tenants => tenants(&mut random),
            Self::Labels => {
                let (pods, labels) = (random.between(100, 3000), random.between(3, 24));
                let local = random.between(10, 110);
                thrown_labels(&mut random, pods, local, labels)
            }
            Self::Networks => networks(&mut random),
            Self::Ports => ports(&mut random),
        };
        Box::new(updates.into_iter())
    }
}

/// The worst-case clusters.
pub(crate) fn hostile() -> Vec<(&'static str, Updates)> {
    vec![
        ("10,000 endpoints, one selector per pod, one policy with a rule for each", one_selector_per_pod()),
        ("10,000 endpoints, one policy per pod that names 5 pods", one_policy_per_pod()),
        ("10,000 endpoints with 20 of 40 labels each, 110 local, a policy per label", all_different(110)),
        ("the same with 250 local", all_different(250)),
    ]
}

fn parsed(selector: &str) -> Selector {
    Selector::parse(selector).expect("a selector")
}

fn address(number: usize) -> IpNet {
    let number = u32::try_from(number).expect("a small number");
    IpNet::V4(Ipv4Net::from(Ipv4Addr::from(0x0a00_0001 + number)))
}

fn pod(number: usize, local: bool, namespace: &str, labels: BTreeMap<String, String>) -> FeedEntry {
    let key = WorkloadEndpointKey {
        host: if local { LOCAL } else { "remote" }.into(),
        orchestrator: "k8s".into(),
        workload: format!("{namespace}/pod-{number}"),
        endpoint: "eth0".into(),
    };
    let value = feed::WorkloadEndpoint {
        name: format!("cali{number}"),
        labels: labels.into(),
        ipv4_nets: vec![address(number)],
        profile_ids: vec![format!("kns.{namespace}").into()],
        ..feed::WorkloadEndpoint::default()
    };
    FeedEntry::WorkloadEndpoint(key, Some(Box::new(value)))
}

fn namespace(name: &str) -> [FeedEntry; 2] {
    let profile_name = format!("kns.{name}");
    let mut profile = Profile::default();
    profile.metadata.name.clone_from(&profile_name);
    profile.spec.labels_to_apply = BTreeMap::from([("pcns.name".to_owned(), name.to_owned())]);
    [
        FeedEntry::Profile(profile_name.as_str().into(), Some(Box::new(profile))),
        FeedEntry::ProfileRules(profile_name.into(), Some(Box::default())),
    ]
}

fn policy(
    namespace: &str,
    name: &str,
    selector: &str,
    inbound: Vec<feed::Rule>,
    outbound: Vec<feed::Rule>,
) -> FeedEntry {
    let types = match outbound.is_empty() {
        true => vec![PolicyType::Ingress],
        false => vec![PolicyType::Ingress, PolicyType::Egress],
    };
    let policy = feed::Policy {
        namespace: namespace.into(),
        tier: "default".into(),
        selector: parsed(selector),
        inbound_rules: inbound,
        outbound_rules: outbound,
        types,
        ..feed::Policy::default()
    };
    let kind = if namespace.is_empty() { Kind::GlobalNetworkPolicy } else { Kind::NetworkPolicy };
    let key = PolicyKey { kind, namespace: namespace.into(), name: name.into() };
    FeedEntry::Policy(key, Some(Box::new(policy)))
}

fn selected(selector: &str) -> RuleEnd {
    RuleEnd { selector: Some(parsed(selector)), ..RuleEnd::default() }
}

fn port_range(first: usize, last: usize) -> Port {
    let port = |port: usize| u16::try_from(port.min(65_535)).expect("a port");
    Port::Range(PortRange { first: port(first), last: port(last) })
}

fn allow(protocol: Option<Protocol>, source: RuleEnd, destination: RuleEnd) -> feed::Rule {
    feed::Rule { action: RuleAction::Allow, protocol, source, destination, ..feed::Rule::default() }
}

fn to_ports(ports: Vec<Port>) -> RuleEnd {
    RuleEnd { ports, ..RuleEnd::default() }
}

fn dns() -> feed::Rule {
    let server = RuleEnd { ports: vec![port_range(53, 53)], ..selected("k8s-app == 'kube-dns'") };
    allow(Some(Protocol::Udp), RuleEnd::default(), server)
}

fn applications(random: &mut Random) -> Vec<FeedEntry> {
    let (namespaces, nodes) = (random.between(2, 60), random.between(1, 30));
    let mut updates = Vec::new();
    let mut number = 0;
    for space in (0..namespaces).map(|space| format!("ns-{space}")) {
        updates.extend(namespace(&space));
        let apps = random.between(1, 12);
        for app in 0..apps {
            for _ in 0..random.between(1, 8) {
                let labels = [("app", format!("app-{app}")), ("tier", format!("t{}", app % 3))];
                let labels = labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
                updates.push(pod(number, number == 0 || random.below(nodes) == 0, &space, labels));
                number += 1;
            }
            let here = format!("pcns.name == '{space}'");
            let own = format!("{here} && app == 'app-{app}'");
            let mut inbound = Vec::new();
            for _ in 0..random.between(0, 3) {
                let from = match random.below(4) {
                    0 => here.clone(),
                    1 => format!("pcns.name == 'ns-{}'", random.below(namespaces)),
                    2 => format!("{here} && tier == 't{}'", random.below(3)),
                    _ => format!("{here} && app == 'app-{}'", random.below(apps)),
                };
                let port = 8000 + random.below(5);
                inbound.push(allow(
                    Some(Protocol::Tcp),
                    selected(&from),
                    to_ports(vec![port_range(port, port)]),
                ));
            }
            let outside = RuleEnd {
                nets: vec!["0.0.0.0/0".parse().expect("a network")],
                not_nets: vec!["10.0.0.0/8".parse().expect("a network")],
                ..RuleEnd::default()
            };
            let mut outbound = vec![dns()];
            if random.below(2) == 0 {
                outbound.push(allow(Some(Protocol::Tcp), RuleEnd::default(), outside));
            }
            updates.push(policy(&space, &format!("app-{app}"), &own, inbound, outbound));
        }
        updates.push(policy(&space, "default-deny", &format!("pcns.name == '{space}'"), vec![], vec![]));
    }
    updates
}

fn tenants(random: &mut Random) -> Vec<FeedEntry> {
    let (tenants, nodes) = (random.between(20, 1500), random.between(2, 40));
    let mut updates = Vec::new();
    let mut number = 0;
    for space in (0..tenants).map(|tenant| format!("tenant-{tenant}")) {
        updates.extend(namespace(&space));
        for _ in 0..random.between(1, 6) {
            updates.push(pod(number, number == 0 || random.below(nodes) == 0, &space, BTreeMap::new()));
            number += 1;
        }
        let own = format!("pcns.name == '{space}'");
        let same = |end| if end { selected(&own) } else { RuleEnd::default() };
        let inbound = vec![allow(None, same(true), same(false))];
        let outbound = vec![allow(None, same(false), same(true)), dns()];
        updates.push(policy(&space, "isolate", &own, inbound, outbound));
    }
    updates
}

/// Each pod has about half of the labels, and for each label a policy allows traffic from pods with another label.
fn thrown_labels(random: &mut Random, pods: usize, local: usize, labels: usize) -> Vec<FeedEntry> {
    let mut updates: Vec<FeedEntry> = namespace("all").into();
    for number in 0..pods {
        let own = (0..labels).filter(|_| random.below(2) == 0);
        let own = own.map(|label| (format!("label-{label}"), "x".to_owned())).collect();
        updates.push(pod(number, number < local, "all", own));
    }
    for label in 0..labels {
        let from = selected(&format!("has(label-{})", random.below(labels)));
        let not = selected(&format!("!has(label-{})", random.below(labels)));
        let port = 8000 + label;
        let inbound = vec![
            allow(Some(Protocol::Tcp), from, to_ports(vec![port_range(port, port)])),
            allow(Some(Protocol::Udp), not, RuleEnd::default()),
        ];
        updates.push(policy("", &format!("p{label}"), &format!("has(label-{label})"), inbound, vec![]));
    }
    updates
}

fn all_different(local: usize) -> Updates {
    Box::new(thrown_labels(&mut Random(1), 10_000, local, 40).into_iter())
}

fn one_selector_per_pod() -> Updates {
    let labels = |number: usize| BTreeMap::from([("name".to_owned(), format!("pod-{number}"))]);
    let pods = (0..10_000).map(move |number| pod(number, number < 110, "all", labels(number)));
    let rule = |number| {
        let from = selected(&format!("name == 'pod-{number}'"));
        allow(Some(Protocol::Tcp), from, to_ports(vec![port_range(80, 80)]))
    };
    let all = policy("", "all", "all()", (0..10_000).map(rule).collect(), vec![]);
    Box::new(namespace("all").into_iter().chain(pods).chain([all]))
}

fn one_policy_per_pod() -> Updates {
    let labels = |number: usize| BTreeMap::from([("name".to_owned(), format!("pod-{number}"))]);
    let pods = (0..10_000).map(move |number| pod(number, number < 110, "all", labels(number)));
    let policies = (0..10_000).map(|number| {
        let peers = (1..=5).map(|step| (number + step * 37) % 10_000);
        let inbound =
            peers.map(|peer| allow(None, selected(&format!("name == 'pod-{peer}'")), RuleEnd::default()));
        policy("", &format!("p{number}"), &format!("name == 'pod-{number}'"), inbound.collect(), vec![])
    });
    Box::new(namespace("all").into_iter().chain(pods).chain(policies))
}

fn networks(random: &mut Random) -> Vec<FeedEntry> {
    let mut updates: Vec<FeedEntry> = namespace("all").into();
    let net = |random: &mut Random| {
        let length = u8::try_from(random.between(8, 32)).expect("a length");
        let address = 0x0a00_0000_u32 + u32::try_from(random.below(1 << 24)).expect("in a /8");
        IpNet::V4(Ipv4Net::new(Ipv4Addr::from(address), length).expect("a network").trunc())
    };
    for number in 0..random.between(20, 1000) {
        updates.push(pod(number, number < 40, "all", BTreeMap::new()));
    }
    for number in 0..random.between(5, 200) {
        let name = format!("set-{number}");
        let nets = (0..random.between(1, 40)).map(|_| net(random)).collect();
        let labels = BTreeMap::from([("set".to_owned(), format!("{}", number % 60))]);
        let set = feed::NetworkSet { nets, labels: labels.into(), profile_ids: Vec::new() };
        updates.push(FeedEntry::NetworkSet(name, Some(Box::new(set))));
    }
    for number in 0..random.between(1, 60) {
        let from = match random.below(2) {
            0 => selected(&format!("set == '{number}'")),
            _ => RuleEnd {
                nets: (0..random.between(1, 10)).map(|_| net(random)).collect(),
                not_nets: (0..random.below(3)).map(|_| net(random)).collect(),
                ..RuleEnd::default()
            },
        };
        let rules = vec![allow(None, from, RuleEnd::default())];
        updates.push(policy("", &format!("p{number}"), "all()", rules, vec![]));
    }
    updates
}

fn ports(random: &mut Random) -> Vec<FeedEntry> {
    let mut updates: Vec<FeedEntry> = namespace("all").into();
    for number in 0..random.between(20, 500) {
        let labels = BTreeMap::from([("app".to_owned(), format!("app-{}", number % 20))]);
        updates.push(pod(number, number < 40, "all", labels));
    }
    for number in 0..random.between(1, 300) {
        let protocol = if random.below(2) == 0 { Protocol::Tcp } else { Protocol::Udp };
        let ranges = (0..random.between(1, 15)).map(|_| {
            let first = random.below(65_000);
            let width = if random.below(2) == 0 { 0 } else { random.below(3000) };
            port_range(first, first + width)
        });
        let to = to_ports(ranges.collect());
        let from = selected(&format!("app == 'app-{}'", random.below(20)));
        let app = format!("app == 'app-{}'", random.below(20));
        updates.push(policy("", &format!("p{number}"), &app, vec![allow(Some(protocol), from, to)], vec![]));
    }
    updates
}
