//! The worlds of the benchmark. Names, labels, counts and order are those of Calico's own benchmark.

use api::{Kind, Profile};
use ipnet::{IpNet, Ipv4Net};
use model::feed::{self, FeedEntry, PolicyType, Port, PortRange, Protocol, RuleAction};
use model::v1::{PolicyKey, WorkloadEndpointKey};
use selector::Selector;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The host whose graph is measured.
pub(crate) const LOCAL: &str = "localhost";

const REMOTE: &str = "remotehost";
const NAMESPACES: usize = 100;
const NAME_LABEL: &str = "pcns.projectcalico.org/name";
const FIRST_ADDRESS: u32 = 0x0a00_0001;

const MARKERS: [&str; 31] = [
    "FOO_BAR",
    "FOO_BAR",
    "BIFF_BOP",
    "calico/FizzBuzz",
    "calico/BoffBip",
    "calico/Bazzle",
    "calico/Razzle",
    "calico/DoopDeeDoo",
    "calico/SOME_LABEL",
    "calico/BORED_NOW",
    "MyMarkerLabel",
    "xFOO_BAR",
    "xBIFF_BOP",
    "xcalico/FizzBuzz",
    "xcalico/BoffBip",
    "xcalico/Bazzle",
    "xcalico/Razzle",
    "xcalico/DoopDeeDoo",
    "xcalico/SOME_LABEL",
    "xcalico/BORED_NOW",
    "yxMyMarkerLabel",
    "yxFOO_BAR",
    "yxBIFF_BOP",
    "yxcalico/FizzBuzz",
    "yxcalico/BoffBip",
    "yxcalico/Bazzle",
    "yxcalico/Razzle",
    "yxcalico/DoopDeeDoo",
    "yxcalico/SOME_LABEL",
    "yxcalico/BORED_NOW",
    "yxMyMarkerLabel",
];

/// The number of networks in each network set, in turn.
const SET_SIZES: [u32; 10] = [1, 1, 1, 1, 2, 3, 4, 5, 100, 1000];

/// A world, as the updates that build it, in order.
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) locals: usize,
    make: fn() -> Box<dyn Iterator<Item = FeedEntry>>,
}

impl Shape {
    pub(crate) fn updates(&self) -> Box<dyn Iterator<Item = FeedEntry>> {
        (self.make)()
    }

    /// 250,000 endpoints with labels that policies name, 10,000 policies.
    pub(crate) fn tags() -> Self {
        Self {
            name: "250,000 endpoints, 10,000 policies",
            locals: 200,
            make: || snapshot(250_000, 10_000, 0),
        }
    }

    /// 10,000 endpoints, 10,000 network sets with a policy for each.
    pub(crate) fn network_sets() -> Self {
        Self {
            name: "10,000 endpoints, 10,000 network sets with policies",
            locals: 200,
            make: || snapshot(10_000, 0, 10_000),
        }
    }

    /// 100,000 customers, each with a namespace, a policy and a pod.
    pub(crate) fn customers() -> Self {
        Self {
            name: "100,000 endpoints of isolated customers",
            locals: 100,
            make: || customers(100_000, 100),
        }
    }
}

fn parsed(selector: &str) -> Selector {
    Selector::parse(selector).expect("a selector")
}

fn snapshot(
    endpoints: usize,
    tag_policies: usize,
    network_sets: usize,
) -> Box<dyn Iterator<Item = FeedEntry>> {
    let policies = (0..tag_policies).map(tag_policy);
    let namespaces = (0..NAMESPACES).flat_map(|number| {
        let name = format!("namespace-{number}");
        let profile_name = format!("kns.{name}");
        [profile(&profile_name, &[(NAME_LABEL, &name)]), profile_rules(&profile_name)]
    });
    let remote = (0..endpoints).map(|number| endpoint(REMOTE, number, number));
    let sets = (0..network_sets).flat_map(network_set);
    // Addresses and labels continue where those of the other endpoints end.
    let local = (0..200).map(move |number| endpoint(LOCAL, number, endpoints + number));
    Box::new(policies.chain(namespaces).chain(remote).chain(sets).chain(local))
}

fn tag_policy(number: usize) -> FeedEntry {
    let marker = |number: usize| format!("has({})", MARKERS[number % MARKERS.len()]);
    let rules = (0..5).map(|rule| allow_from(&marker(number + rule))).collect();
    let policy = feed::Policy {
        tier: "default".into(),
        selector: parsed(&marker(number)),
        inbound_rules: rules,
        ..feed::Policy::default()
    };
    policy_update("", &format!("tag-pol-{number}"), policy)
}

/// A policy with one rule.
pub(crate) fn selector_policy(number: usize, selector: &str, source: &str) -> FeedEntry {
    let policy = feed::Policy {
        tier: "default".into(),
        selector: parsed(selector),
        inbound_rules: vec![allow_from(source)],
        ..feed::Policy::default()
    };
    policy_update("", &format!("edited-{number}"), policy)
}

fn allow_from(selector: &str) -> feed::Rule {
    feed::Rule {
        action: RuleAction::Allow,
        source: feed::RuleEnd { selector: Some(parsed(selector)), ..feed::RuleEnd::default() },
        ..feed::Rule::default()
    }
}

fn policy_update(namespace: &str, name: &str, policy: feed::Policy) -> FeedEntry {
    let kind = if namespace.is_empty() { Kind::GlobalNetworkPolicy } else { Kind::NetworkPolicy };
    let key = PolicyKey { kind, namespace: namespace.into(), name: name.into() };
    FeedEntry::Policy(key, Some(Box::new(policy)))
}

/// A profile with labels.
pub(crate) fn profile(name: &str, labels: &[(&str, &str)]) -> FeedEntry {
    let mut profile = Profile::default();
    profile.metadata.name = name.into();
    profile.spec.labels_to_apply =
        labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    FeedEntry::Profile(name.into(), Some(Box::new(profile)))
}

fn profile_rules(name: &str) -> FeedEntry {
    FeedEntry::ProfileRules(name.into(), Some(Box::default()))
}

fn address(number: usize) -> IpNet {
    let number = u32::try_from(number).expect("a small number");
    IpNet::V4(Ipv4Net::from(Ipv4Addr::from(FIRST_ADDRESS + number)))
}

fn workload(host: &str, workload: &str, value: feed::WorkloadEndpoint) -> FeedEntry {
    // An endpoint without an interface would be ignored.
    let value = feed::WorkloadEndpoint { name: format!("cali-{workload}"), ..value };
    let key = WorkloadEndpointKey {
        host: host.into(),
        orchestrator: "k8s".into(),
        workload: workload.into(),
        endpoint: "eth0".into(),
    };
    FeedEntry::WorkloadEndpoint(key, Some(Box::new(value)))
}

/// An endpoint of the first shape.
pub(crate) fn tag_endpoint(host: &str, number: usize) -> FeedEntry {
    endpoint(host, number, number)
}

fn endpoint(host: &str, number: usize, serial: usize) -> FeedEntry {
    let seed = serial + 1;
    let mut labels: BTreeMap<String, String> = [10, 11, 20, 30, 40]
        .map(|n| (format!("one-in-{n}"), format!("value-{}", seed % n)))
        .into_iter()
        .collect();
    labels.insert(MARKERS[seed % MARKERS.len()].to_owned(), "true".into());
    let value = feed::WorkloadEndpoint {
        labels: labels.into(),
        ipv4_nets: vec![address(serial)],
        profile_ids: vec![format!("kns.namespace-{}", number % NAMESPACES).into()],
        ..feed::WorkloadEndpoint::default()
    };
    workload(host, &format!("wep-{number}"), value)
}

fn network_set(number: usize) -> [FeedEntry; 2] {
    let whole: u32 = SET_SIZES.iter().sum();
    let turn = number / SET_SIZES.len();
    let within: u32 = SET_SIZES[..number % SET_SIZES.len()].iter().sum();
    let first = turn * whole as usize + within as usize;
    let size = SET_SIZES[number % SET_SIZES.len()] as usize;
    let name = format!("network-set-{number}");
    let set = feed::NetworkSet {
        nets: (first..first + size).map(address).collect(),
        labels: [("network-set-name", &name)].into(),
        profile_ids: Vec::new(),
    };
    let policy = feed::Policy {
        tier: "default".into(),
        selector: Selector::default(),
        inbound_rules: vec![allow_from(&format!("network-set-name == '{name}'"))],
        ..feed::Policy::default()
    };
    [
        FeedEntry::NetworkSet(name, Some(Box::new(set))),
        policy_update("", &format!("network-set-pol-{number}"), policy),
    ]
}

fn customers(count: usize, locals: usize) -> Box<dyn Iterator<Item = FeedEntry>> {
    let policies = (0..count).map(customer_policy);
    let namespaces = (0..count).flat_map(|number| {
        let name = format!("customer-{number}");
        let profile_name = format!("kns.{name}");
        let production = number.is_multiple_of(2).to_string();
        let labels = [
            (NAME_LABEL, name.as_str()),
            ("namespace-id", &hex_text(number, 20)),
            ("production", &production),
        ];
        [profile(&profile_name, &labels), profile_rules(&profile_name)]
    });
    let stride = count / locals;
    let remote = (0..count)
        .filter(move |number| !number.is_multiple_of(stride))
        .map(|number| customer_pod(REMOTE, number));
    let local = (0..count).step_by(stride).map(|number| customer_pod(LOCAL, number));
    Box::new(policies.chain(namespaces).chain(remote).chain(local))
}

fn customer_policy(number: usize) -> FeedEntry {
    let namespace = format!("customer-{number}");
    let selector = format!("{NAME_LABEL} == '{namespace}'");
    let to = |end: feed::RuleEnd, protocol| feed::Rule {
        action: RuleAction::Allow,
        protocol,
        destination: end,
        ..feed::Rule::default()
    };
    let dns = feed::RuleEnd {
        nets: vec!["10.96.0.10/32".parse().expect("a network")],
        ports: vec![Port::Range(PortRange { first: 53, last: 53 })],
        ..feed::RuleEnd::default()
    };
    let own = feed::RuleEnd { selector: Some(parsed(&selector)), ..feed::RuleEnd::default() };
    let policy = feed::Policy {
        namespace: namespace.clone(),
        tier: "default".into(),
        inbound_rules: vec![allow_from(&selector)],
        outbound_rules: vec![to(own, None), to(dns, Some(Protocol::Udp))],
        selector: parsed(&selector),
        types: vec![PolicyType::Ingress, PolicyType::Egress],
        ..feed::Policy::default()
    };
    policy_update(&namespace, &format!("customer-{number}/isolation"), policy)
}

fn customer_pod(host: &str, number: usize) -> FeedEntry {
    let namespace = format!("customer-{number}");
    let pod = format!("app-{:09x}-{:05x}", number * 7 + 3, (number * 17 + 5) % 65_536);
    let one_of = |texts: &[&str]| texts[number % texts.len()].to_owned();
    let labels = [
        ("pod-id", hex_text(number * 5, 20)),
        ("instance-id", hex_text(number * 5 + 1, 20)),
        ("short-id", hex_text(number * 5 + 2, 10)),
        ("config-hash", hex_text(number * 5 + 3, 20)),
        ("version-tag", hex_text(number * 5 + 4, 8)),
        ("enabled", (number % 2).to_string()),
        ("debug", (number / 2 % 2).to_string()),
        ("canary", (number / 4 % 2).to_string()),
        ("managed", (number / 8 % 2).to_string()),
        ("environment", one_of(&["dev", "staging", "prod"])),
        ("tier", one_of(&["frontend", "backend", "middleware", "data"])),
        ("region", one_of(&["us-east", "us-west", "eu-west", "ap-south"])),
        ("team", one_of(&["platform", "payments", "identity", "growth", "infra"])),
        ("managed-by", "saas-controller".to_owned()),
        ("tenant-id", hex_text(number % 5000, 10)),
    ];
    let value = feed::WorkloadEndpoint {
        labels: labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        ipv4_nets: vec![address(number)],
        profile_ids: vec![format!("kns.{namespace}").into()],
        ..feed::WorkloadEndpoint::default()
    };
    workload(host, &format!("{namespace}/{pod}"), value)
}

/// A text that looks like an id and is always the same for the same number.
fn hex_text(number: usize, length: usize) -> String {
    let mut value = (number as u64).wrapping_mul(2_654_435_761).wrapping_add(1);
    (0..length)
        .map(|_| {
            let character = char::from(b"abcdef0123456789"[usize::try_from(value % 16).unwrap_or_default()]);
            value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            character
        })
        .collect()
}

/// Ten thousand selectors on one label, and a hundred thousand profiles that give it, with an endpoint each.
pub(crate) fn many_selectors_and_parents() -> impl Iterator<Item = FeedEntry> {
    let policies =
        (0..10_000).map(|number| selector_policy(number, "all()", &format!("{NAME_LABEL} == 'n{number}'")));
    let parents =
        (0..100_000).map(|number| profile(&format!("p{number}"), &[(NAME_LABEL, &format!("n{number}"))]));
    let endpoints = (0..100_001).map(|number| {
        let host = if number == 100_000 { LOCAL } else { REMOTE };
        let value = feed::WorkloadEndpoint {
            ipv4_nets: vec![address(number)],
            profile_ids: vec![format!("p{}", number % 100_000).into()],
            ..feed::WorkloadEndpoint::default()
        };
        workload(host, &format!("w{number}"), value)
    });
    policies.chain(parents).chain(endpoints)
}
