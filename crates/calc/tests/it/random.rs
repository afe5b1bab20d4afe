//! Random worlds from a small vocabulary, so that the same names, labels, addresses and selectors collide again and
//! again. After every flush the state must be that of a recomputation.

use crate::run::{HOST, Run, WAYS, go};
use crate::world::{World, difference, named_port, profile, put, slice, workload_key};
use api::Kind;
use model::ProfileName;
use model::feed::{self, FeedEntry, PolicyType, Port, PortRange, Protocol, RuleAction};
use model::v1::{HostEndpointKey, PolicyKey};
use proptest::option::of as maybe;
use proptest::prelude::*;
use selector::Selector;
use std::collections::BTreeMap;

fn pick<T: Clone + std::fmt::Debug + 'static>(from: &[T]) -> impl Strategy<Value = T> + Clone + use<T> {
    prop::sample::select(from.to_vec())
}

fn text(from: &[&'static str]) -> impl Strategy<Value = String> + Clone + use<> {
    pick(from).prop_map(str::to_owned)
}

fn labels() -> impl Strategy<Value = BTreeMap<String, String>> {
    let value = text(&["", "x", "y", "xy"]);
    prop::collection::btree_map(text(&["a", "b", "c", "pcns.n"]), value, 0..4)
}

fn selector() -> impl Strategy<Value = Selector> {
    selector_text().prop_map(|text| Selector::parse(&text).unwrap())
}

fn selector_text() -> impl Strategy<Value = String> {
    let leaf = text(&[
        "all()",
        "",
        "a == 'x'",
        "a == 'y'",
        "a in {'x', 'xy'}",
        "a != 'x'",
        "a not in {'x', 'y'}",
        "has(a)",
        "!has(a)",
        "has(b)",
        "b == 'x'",
        "b starts with 'x'",
        "c contains 'y'",
        "pcns.n == 'x'",
        "pcns.n == 'y'",
        "has(pcns.n)",
        "a == 'x' && a == 'y'",
    ]);
    let other = leaf.clone();
    (leaf, other, 0..6u8).prop_map(|(left, right, kind)| match (left.as_str(), right.as_str(), kind) {
        ("", _, _) | (_, "", _) => left,
        (_, _, 0) => format!("({left}) && ({right})"),
        (_, _, 1) => format!("({left}) || ({right})"),
        (_, _, 2) => format!("!({left})"),
        _ => left,
    })
}

fn profiles() -> impl Strategy<Value = Vec<ProfileName>> {
    prop::collection::vec(text(&["p1", "p2", "p3"]).prop_map(ProfileName::from), 0..3)
}

fn endpoint_ports() -> impl Strategy<Value = Vec<feed::EndpointPort>> {
    let port =
        (text(&["http", "dns"]), text(&["TCP", "UDP", "SCTP", "6", "0", "UDPLite"]), pick(&[80, 8080]));
    prop::collection::vec(port.prop_map(|(name, protocol, port)| named_port(&name, &protocol, port)), 0..3)
}

fn item() -> impl Strategy<Value = FeedEntry> {
    let ip = text(&["10.0.0.1/32", "10.0.0.2/32", "10.0.1.1/32"]).prop_map(|net| net.parse().unwrap());
    let ip6 = text(&["fd00::1/128", "fd00::2/128"]).prop_map(|net| net.parse().unwrap());
    let workload = (
        (text(&[HOST, "h2"]), text(&["n1/a", "n2/a", "n1/b"])),
        (prop::collection::vec(ip, 0..3), prop::collection::vec(ip6, 0..2)),
        (labels(), profiles(), endpoint_ports()),
    )
        .prop_map(|((host, name), (ipv4_nets, ipv6_nets), (labels, profile_ids, ports))| {
            let value = feed::WorkloadEndpoint {
                name: "cali1".into(),
                ipv4_nets,
                ipv6_nets,
                labels: labels.into(),
                profile_ids,
                ports,
                ..feed::WorkloadEndpoint::default()
            };
            FeedEntry::WorkloadEndpoint(workload_key(&host, &name), Some(Box::new(value)))
        });
    let host = (
        (text(&[HOST, "h2"]), text(&["eth0", "eth1"])),
        text(&["10.0.0.1", "192.168.0.1", "fd00::1"]).prop_map(|ip| ip.parse::<std::net::IpAddr>().unwrap()),
        (labels(), profiles(), endpoint_ports()),
    )
        .prop_map(|((host, endpoint), ip, (labels, profile_ids, ports))| {
            let value = feed::HostEndpoint {
                name: endpoint.clone(),
                expected_ipv4_addrs: Some(ip).filter(std::net::IpAddr::is_ipv4).into_iter().collect(),
                expected_ipv6_addrs: Some(ip).filter(std::net::IpAddr::is_ipv6).into_iter().collect(),
                labels: labels.into(),
                profile_ids,
                ports,
                qos_controls: None,
            };
            FeedEntry::HostEndpoint(HostEndpointKey { host: host.into(), endpoint }, Some(Box::new(value)))
        });
    let nets = text(&["10.0.0.0/8", "10.0.0.0/24", "10.0.0.1/32", "0.0.0.0/0", "fd00::/64", "10.0.0.9/24"]);
    let nets = prop::collection::vec(nets.prop_map(|net| net.parse().unwrap()), 0..4);
    let set =
        (text(&["s1", "n1/s1"]), nets, labels(), profiles()).prop_map(|(name, nets, labels, profile_ids)| {
            let value = feed::NetworkSet { nets, labels: labels.into(), profile_ids };
            FeedEntry::NetworkSet(name, Some(Box::new(value)))
        });
    prop_oneof![3 => workload, 1 => host, 1 => set]
}

fn ports() -> impl Strategy<Value = Vec<Port>> {
    let port = prop_oneof![
        Just(Port::Range(PortRange { first: 80, last: 80 })),
        Just(Port::Range(PortRange { first: 1, last: 5 })),
        text(&["http", "dns", "none"]).prop_map(Port::Named)
    ];
    prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(port, 1..3)]
}

fn end() -> impl Strategy<Value = feed::RuleEnd> {
    let service = (text(&["n1", "n2"]), text(&["web", "dns"]));
    (maybe(selector()), maybe(selector()), ports(), ports(), maybe(service)).prop_map(
        |(selector, not_selector, ports, not_ports, service)| feed::RuleEnd {
            selector,
            not_selector,
            ports,
            not_ports,
            service,
            ..feed::RuleEnd::default()
        },
    )
}

fn rules() -> impl Strategy<Value = Vec<feed::Rule>> {
    let action = pick(&[RuleAction::Allow, RuleAction::Deny, RuleAction::Log, RuleAction::Pass]);
    let protocol = pick(&[
        None,
        Some(Protocol::Tcp),
        Some(Protocol::Udp),
        Some(Protocol::Icmp),
        Some(Protocol::Number(132)),
    ]);
    let end = || prop_oneof![2 => Just(feed::RuleEnd::default()), 3 => end()];
    let rule = (action, protocol, end(), end()).prop_map(|(action, protocol, source, destination)| {
        feed::Rule { action, protocol, source, destination, ..feed::Rule::default() }
    });
    prop::collection::vec(rule, 0..3)
}

fn policy() -> impl Strategy<Value = FeedEntry> {
    let key = pick(&[
        (Kind::GlobalNetworkPolicy, ""),
        (Kind::NetworkPolicy, "n1"),
        (Kind::NetworkPolicy, "n2"),
        (Kind::StagedGlobalNetworkPolicy, ""),
    ]);
    let types = pick(&[
        vec![],
        vec![PolicyType::Ingress],
        vec![PolicyType::Egress],
        vec![PolicyType::Ingress, PolicyType::Egress],
    ]);
    let hints = pick(&[vec![], vec![], vec!["AssumeNeededOnEveryNode".to_owned()], vec!["other".to_owned()]]);
    (
        (key, text(&["a", "b"])),
        (text(&["", "default", "t1"]), pick(&[None, Some(1.0), Some(-0.0), Some(0.0)])),
        selector(),
        (rules(), rules()),
        (any::<bool>(), pick(&[0u8, 0, 0, 1, 2])),
        types,
        hints,
    )
        .prop_map(|((kind, name), (tier, order), selector, rules, (forward, special), types, hints)| {
            let (kind, namespace) = kind;
            let value = feed::Policy {
                namespace: namespace.into(),
                tier: tier.into(),
                order,
                inbound_rules: rules.0,
                outbound_rules: rules.1,
                selector,
                do_not_track: special == 1,
                pre_dnat: special == 2,
                apply_on_forward: forward,
                types,
                performance_hints: hints,
                staged_action: None,
            };
            let key = PolicyKey { kind, namespace: namespace.into(), name };
            FeedEntry::Policy(key, Some(Box::new(value)))
        })
}

fn entry() -> impl Strategy<Value = FeedEntry> {
    let tier = (text(&["default", "t1"]), pick(&[None, Some(1.0), Some(2.0)]), any::<bool>());
    let tier = tier.prop_map(|(name, order, pass)| {
        let default_action = if pass { RuleAction::Pass } else { RuleAction::Deny };
        FeedEntry::Tier(name.into(), Some(feed::Tier { order, default_action }))
    });
    let profile_labels = (text(&["p1", "p2"]), labels()).prop_map(|(name, labels)| profile(&name, labels));
    let profile_rules =
        (text(&["p1", "p2"]), rules(), rules()).prop_map(|(name, inbound_rules, outbound_rules)| {
            let value = feed::ProfileRules { inbound_rules, outbound_rules };
            FeedEntry::ProfileRules(name.into(), Some(Box::new(value)))
        });
    let addresses = prop::collection::vec(text(&["10.0.0.1", "10.0.0.2", "fd00::1", "name.example"]), 0..3);
    let slice_ports = prop::collection::vec((text(&["TCP", "UDP"]), pick(&[80, 53])), 0..3);
    let slices = (text(&["n1", "n2"]), text(&["s-1", "s-2"]), text(&["web", "dns"]), addresses, slice_ports)
        .prop_map(|(namespace, name, service, addresses, ports)| {
            slice(&namespace, &name, &service, &addresses, &ports)
        });
    prop_oneof![5 => item(), 4 => policy(), 1 => tier, 2 => profile_labels, 1 => profile_rules, 1 => slices]
}

#[derive(Clone, Debug)]
enum Step {
    Put(Box<FeedEntry>),
    Delete(usize),
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => entry().prop_map(|entry| Step::Put(Box::new(entry))),
        2 => any::<prop::sample::Index>().prop_map(|index| Step::Delete(index.index(1000))),
        2 => Just(Step::Flush),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn any_history_gives_the_state_of_its_end(
        steps in prop::collection::vec(step(), 1..60),
        suppress: bool,
    ) {
        let mut run = Run::new(suppress);
        run.in_sync();
        for step in steps.into_iter().chain([Step::Flush]) {
            match step {
                Step::Put(entry) => run.update(*entry),
                Step::Delete(place) if !run.world.is_empty() => {
                    let key = run.world.keys().nth(place % run.world.len()).cloned();
                    run.update(key.unwrap().gone());
                }
                Step::Delete(_) => {}
                Step::Flush => {
                    run.flush();
                    run.check(&"random");
                    prop_assert_eq!(run.flush(), 0);
                }
            }
        }
        // Back to nothing: no trace may remain.
        for update in difference(&run.world, &World::new()) {
            run.update(update);
        }
        run.flush();
        run.check(&"emptied");
        let stats = run.graph.stats();
        prop_assert_eq!(stats.active_local_selectors + stats.cluster_num_policies + stats.cluster_num_profiles, 0);
        prop_assert_eq!(stats.label_index_num_endpoints + stats.active_local_endpoints + stats.cluster_num_hosts, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn random_worlds_in_every_way(
        worlds in prop::collection::vec(prop::collection::vec(entry(), 1..12), 1..5),
        suppress: bool,
    ) {
        let worlds: Vec<World> = worlds
            .into_iter()
            .map(|entries| {
                let mut world = World::new();
                entries.into_iter().for_each(|entry| put(&mut world, entry));
                world
            })
            .collect();
        for way in WAYS {
            go(&worlds, way, suppress, |_, _| ());
        }
    }
}
