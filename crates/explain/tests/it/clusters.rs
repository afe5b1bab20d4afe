//! Random clusters from a small vocabulary, so that things collide: the same labels, addresses, ports and selectors
//! recur. Two nodes, a few pods, host endpoints, sets, services, and policies of most kinds, some of them unreadable.

use api::scalars::{GoFloat, IpOrCidr, Port, Protocol, SelectorText};
use api::{
    Action, EndpointPort, EntityRule, GlobalNetworkPolicy, GlobalNetworkPolicySpec, GlobalNetworkSet,
    GlobalNetworkSetSpec, HostEndpoint, HostEndpointSpec, ICMPFields, KubernetesEndpointSlice, NetworkPolicy,
    NetworkPolicySpec, NetworkSet, NetworkSetSpec, Node, NodeBGPSpec, NodeSpec, PolicyType, Profile,
    ProfileSpec, Resource, Rule, ServiceAccountMatch, ServiceMatch, StagedGlobalNetworkPolicy,
    StagedGlobalNetworkPolicySpec, Tier, TierSpec, WorkloadEndpoint, WorkloadEndpointPort,
    WorkloadEndpointSpec,
};
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::BTreeMap;

/// Pods: node, namespace, name, number of the address, interface.
pub(crate) const PODS: [(&str, &str, &str, u8, &str); 4] = [
    ("h1", "n1", "a", 1, "cali1a"),
    ("h1", "n2", "b", 2, "cali1b"),
    ("h2", "n1", "c", 3, "cali2c"),
    ("h2", "n2", "d", 4, "cali2d"),
];

fn text(from: &[&'static str]) -> impl Strategy<Value = String> + Clone + use<> {
    select(from.to_vec()).prop_map(str::to_owned)
}

fn labels() -> impl Strategy<Value = BTreeMap<String, String>> {
    proptest::collection::btree_map(text(&["a", "b", "role"]), text(&["", "x", "y"]), 0..3)
}

fn selector() -> impl Strategy<Value = SelectorText> + Clone {
    let leaf = text(&[
        "all()",
        "a == 'x'",
        "a == 'y'",
        "a != 'x'",
        "has(a)",
        "!has(b)",
        "b in {'x', 'y'}",
        "b not in {'x'}",
        "role == 'x'",
        "a contains 'x'",
    ]);
    (leaf.clone(), leaf, 0..6_u8).prop_map(|(one, other, how)| {
        SelectorText::from(match how {
            0 => format!("{one} && {other}"),
            1 => format!("{one} || {other}"),
            2 => format!("!({one})"),
            _ => one,
        })
    })
}

fn maybe_selector(chance: f64) -> impl Strategy<Value = SelectorText> {
    weighted(chance, selector()).prop_map(Option::unwrap_or_default)
}

fn namespaces(in_rule: bool) -> impl Strategy<Value = SelectorText> {
    let mut known = vec![
        "",
        "",
        "",
        "all()",
        "team == 'x'",
        "!has(team)",
        "projectcalico.org/name == 'n1'",
        "all() || has(x)",
    ];
    if in_rule {
        known.push("global()");
    }
    select(known).prop_map(SelectorText::from)
}

fn accounts() -> impl Strategy<Value = SelectorText> {
    select(vec!["", "", "", "", "", "all()", "level == 'x'", "!has(level)"]).prop_map(SelectorText::from)
}

fn nets() -> impl Strategy<Value = Vec<IpOrCidr>> {
    let net = select(vec![
        "10.0.0.0/24",
        "10.0.0.1/32",
        "10.0.0.2",
        "10.0.0.0/30",
        "192.0.2.0/24",
        "203.0.113.0/24",
        "0.0.0.0/0",
        "fd00::/64",
        "fd00::1",
        "2001:db8::/32",
        "::/0",
    ]);
    prop_oneof![4 => Just(Vec::new()), 1 => vec(net.prop_map(IpOrCidr::from), 1..3)]
}

fn ports() -> impl Strategy<Value = Vec<Port>> {
    let port = select(vec![
        Port::single(80),
        Port::single(53),
        Port::range(20, 90),
        Port::single(443),
        Port::named("http"),
        Port::named("dns"),
    ]);
    prop_oneof![3 => Just(Vec::new()), 2 => vec(port, 1..3)]
}

fn end() -> impl Strategy<Value = EntityRule> {
    let accounts = (vec(text(&["sa1", "sa2"]), 0..2), accounts()).prop_map(|(names, selector)| {
        Box::new(ServiceAccountMatch { names, selector, ..ServiceAccountMatch::default() })
    });
    let service = (text(&["web", "dns"]), text(&["n1", "n2"]))
        .prop_map(|(name, namespace)| Box::new(ServiceMatch { name, namespace, ..ServiceMatch::default() }));
    let plain = (
        nets(),
        nets(),
        maybe_selector(0.5),
        maybe_selector(0.15),
        namespaces(true),
        (ports(), ports()),
        weighted(0.1, accounts),
        weighted(0.08, service),
    )
        .prop_map(
            |(
                nets,
                not_nets,
                selector,
                not_selector,
                namespace_selector,
                ports,
                service_accounts,
                services,
            )| {
                EntityRule {
                    nets,
                    not_nets,
                    selector,
                    not_selector,
                    namespace_selector,
                    ports: ports.0,
                    not_ports: if ports.1.len() == 1 { ports.1 } else { Vec::new() },
                    service_accounts,
                    services,
                    ..EntityRule::default()
                }
            },
        );
    // Anything unreadable must deny on both sides.
    let broken = select(vec!["a == ", "a == 'x' b"])
        .prop_map(|text| EntityRule { selector: text.into(), ..EntityRule::default() });
    prop_oneof![40 => Just(EntityRule::default()), 60 => plain, 1 => broken]
}

/// A rule with three or four lists that do not fit into one rule of the kernel, and little else.
fn rule_with_lists() -> impl Strategy<Value = Rule> {
    let nets = || {
        let v4 = ["10.0.0.1/32", "10.0.0.2/31", "192.0.2.0/24", "203.0.113.0/24"];
        let v6 = ["fd00::1/128", "fd00::2/127", "2001:db8::/32", "2001:db9::/32"];
        let of = |nets: [&'static str; 4]| proptest::sample::subsequence(nets.to_vec(), 2..=3);
        (of(v4), of(v6)).prop_map(|(v4, v6)| [v4, v6].concat().into_iter().map(IpOrCidr::from).collect())
    };
    // Ephemeral ports as sources; enough single ones for more than one rule.
    let source_ports = || {
        vec(select(vec![53, 1]), 17).prop_map(|ports| {
            let single = ports.into_iter().map(Port::single);
            single.chain([Port::range(1024, 65535)]).collect::<Vec<Port>>()
        })
    };
    let ports = || {
        vec(select(vec![80, 443, 53]), 17)
            .prop_map(|ports| ports.into_iter().map(Port::single).collect::<Vec<Port>>())
    };
    let actions = select(vec![Action::Allow, Action::Allow, Action::Deny]);
    (actions, select(vec![Protocol::Tcp, Protocol::Udp]), nets(), nets(), source_ports(), ports(), 0..5)
        .prop_map(|(action, protocol, from, to, source_ports, ports, left_out)| {
            let mut source = EntityRule { nets: from, ports: source_ports, ..EntityRule::default() };
            let mut destination = EntityRule { nets: to, ports, ..EntityRule::default() };
            match left_out {
                0 => source.ports.clear(),
                1 => destination.ports.clear(),
                2 => source.nets.clear(),
                3 => destination.nets.clear(),
                _ => {}
            }
            Rule { action, protocol: Some(protocol), source, destination, ..Rule::default() }
        })
}

fn rule() -> impl Strategy<Value = Rule> {
    prop_oneof![5 => rule_of_anything(), 1 => rule_with_lists()]
}

fn rule_of_anything() -> impl Strategy<Value = Rule> {
    let action =
        select(vec![Action::Allow, Action::Allow, Action::Allow, Action::Deny, Action::Pass, Action::Log]);
    let action = prop_oneof![60 => action, 1 => Just(Action::Other("Hold".into()))];
    let protocol = select(vec![
        None,
        None,
        Some(Protocol::Tcp),
        Some(Protocol::Tcp),
        Some(Protocol::Tcp),
        Some(Protocol::Udp),
        Some(Protocol::Udp),
        Some(Protocol::Icmp),
        Some(Protocol::Icmpv6),
        Some(Protocol::Sctp),
        Some(Protocol::Number(47)),
        Some(Protocol::Number(6)),
    ]);
    let not_protocol = weighted(0.1, select(vec![Protocol::Tcp, Protocol::Udp, Protocol::Icmp]));
    let icmp = (select(vec![8_i64, 128, 3]), weighted(0.3, 0_i64..2)).prop_map(|(icmp_type, code)| {
        Box::new(ICMPFields { icmp_type: Some(icmp_type), code, ..ICMPFields::default() })
    });
    let version = weighted(0.1, select(vec![4_i64, 6]));
    (action, protocol, not_protocol, weighted(0.5, icmp.clone()), weighted(0.2, icmp), version, end(), end())
        .prop_map(|(action, protocol, not_protocol, icmp, not_icmp, ip_version, source, destination)| {
            let about_icmp =
                protocol.as_ref().is_some_and(|protocol| protocol.is_icmp() || protocol.is_icmpv6());
            Rule {
                action,
                protocol,
                not_protocol,
                icmp: icmp.filter(|_| about_icmp),
                not_icmp: not_icmp.filter(|_| about_icmp),
                ip_version,
                source,
                destination,
                ..Rule::default()
            }
        })
}

fn types() -> impl Strategy<Value = Vec<PolicyType>> {
    select(vec![
        vec![PolicyType::Ingress],
        vec![PolicyType::Egress],
        vec![PolicyType::Ingress, PolicyType::Egress],
        vec![PolicyType::Ingress, PolicyType::Egress],
        vec![],
    ])
}

fn order() -> impl Strategy<Value = Option<GoFloat>> {
    select(vec![None, Some(GoFloat(1.0)), Some(GoFloat(2.0)), Some(GoFloat(-1.0))])
}

fn policy() -> impl Strategy<Value = Resource> {
    let common = (text(&["p1", "p2", "p3"]), text(&["default", "", "t1", "nowhere"]), order(), types());
    let body = (vec(rule(), 0..3), vec(rule(), 0..3), maybe_selector(0.8), accounts(), namespaces(false));
    (common, body, select(vec!["n1", "n2"]), 0..8_u8, (any::<bool>(), 0..8_u8)).prop_map(
        |(
            (name, tier, order, types),
            (ingress, egress, selector, accounts, namespaces),
            namespace,
            kind,
            special,
        )| {
            let (forward, special) = special;
            let namespaced = NetworkPolicySpec {
                tier: tier.clone(),
                order,
                ingress: ingress.clone(),
                egress: egress.clone(),
                selector: selector.clone(),
                types: types.clone(),
                service_account_selector: accounts.clone(),
                ..NetworkPolicySpec::default()
            };
            match kind {
                0..3 => NetworkPolicy::new(namespace, &name, namespaced).into(),
                3 => {
                    let spec = api::KubernetesNetworkPolicySpec(namespaced);
                    api::KubernetesNetworkPolicy::new(namespace, &name, spec).into()
                }
                4 => {
                    let spec = StagedGlobalNetworkPolicySpec {
                        tier,
                        order,
                        ingress,
                        egress,
                        selector,
                        types,
                        ..StagedGlobalNetworkPolicySpec::default()
                    };
                    StagedGlobalNetworkPolicy::new("", &name, spec).into()
                }
                _ => {
                    let spec = GlobalNetworkPolicySpec {
                        tier,
                        order,
                        ingress,
                        egress,
                        selector,
                        types,
                        service_account_selector: accounts,
                        namespace_selector: namespaces,
                        do_not_track: special == 0,
                        pre_dnat: special == 1,
                        apply_on_forward: forward || special < 2,
                        ..GlobalNetworkPolicySpec::default()
                    };
                    GlobalNetworkPolicy::new("", &name, spec).into()
                }
            }
        },
    )
}

fn pod(index: usize) -> impl Strategy<Value = Resource> {
    let port = (text(&["http", "dns"]), select(vec![Protocol::Tcp, Protocol::Udp]), select(vec![80_u16, 53]))
        .prop_map(|(name, protocol, port)| WorkloadEndpointPort {
            name,
            protocol,
            port,
            ..WorkloadEndpointPort::default()
        });
    (labels(), text(&["sa1", "sa2", ""]), vec(port, 0..3), any::<bool>()).prop_map(
        move |(labels, account, ports, missing_profile)| {
            let (node, namespace, name, number, interface) = PODS[index];
            let mut profiles = vec![format!("kns.{namespace}")];
            if !account.is_empty() {
                profiles.push(format!("ksa.{namespace}.{account}"));
            }
            if missing_profile && number == 4 {
                profiles.push("nobody-wrote-this".to_owned());
            }
            let spec = WorkloadEndpointSpec {
                orchestrator: "k8s".to_owned(),
                node: node.to_owned(),
                pod: name.to_owned(),
                endpoint: "eth0".to_owned(),
                service_account_name: account,
                ip_networks: vec![format!("10.0.0.{number}/32").into(), format!("fd00::{number}/128").into()],
                profiles,
                interface_name: interface.to_owned(),
                ports,
                ..WorkloadEndpointSpec::default()
            };
            let mut endpoint = WorkloadEndpoint::new(namespace, "", spec);
            endpoint.metadata.labels = labels;
            endpoint.set_defaults();
            endpoint.into()
        },
    )
}

pub(crate) fn host_endpoint(node: &'static str, number: u8) -> impl Strategy<Value = Resource> {
    let port = (text(&["http", "dns"]), select(vec![80_u16, 53])).prop_map(|(name, port)| EndpointPort {
        name,
        protocol: Protocol::Tcp,
        port,
        ..EndpointPort::default()
    });
    (labels(), text(&["eth0", "*"]), vec(port, 0..2), any::<bool>(), any::<bool>()).prop_map(
        move |(labels, interface_name, ports, profile, expected)| {
            let addresses = vec![format!("192.0.2.{number}").into(), format!("2001:db8::{number}").into()];
            let spec = HostEndpointSpec {
                node: node.to_owned(),
                interface_name,
                expected_ips: if expected { addresses } else { Vec::new() },
                profiles: if profile { vec!["hosts".to_owned()] } else { Vec::new() },
                ports,
                ..HostEndpointSpec::default()
            };
            let mut endpoint = HostEndpoint::new("", &format!("{node}-endpoint"), spec);
            endpoint.metadata.labels = labels;
            endpoint.into()
        },
    )
}

fn profile(
    name: String,
    handed_down: BTreeMap<String, String>,
    always: bool,
) -> impl Strategy<Value = Resource> {
    let allow = || vec![Rule { action: Action::Allow, ..Rule::default() }];
    // Calico accepts rules of profiles without an action.
    let unset = || vec![Rule { action: Action::Unset, ..Rule::default() }];
    let rules = || {
        let usual = Just(if always { allow() } else { Vec::new() });
        prop_oneof![8 => usual, 2 => vec(rule(), 0..2), 1 => Just(unset())]
    };
    (rules(), rules()).prop_map(move |(ingress, egress)| {
        let spec =
            ProfileSpec { ingress, egress, labels_to_apply: handed_down.clone(), ..ProfileSpec::default() };
        Profile::new("", &name, spec).into()
    })
}

fn slice() -> impl Strategy<Value = Resource> {
    let ports = vec((select(vec!["TCP", "UDP"]), select(vec![80, 53])), 0..3);
    let addresses = vec(select(vec!["10.0.0.1", "10.0.0.3", "fd00::2", "192.0.2.1"]), 0..3);
    (text(&["n1", "n2"]), text(&["web", "dns"]), addresses, ports).prop_map(
        |(namespace, service, addresses, ports)| {
            let mut slice =
                KubernetesEndpointSlice::new(&namespace, &format!("{service}-1"), Default::default());
            slice.metadata.labels.insert("kubernetes.io/service-name".into(), service);
            slice.spec.0.endpoints = vec![api::kubernetes::service::Endpoint {
                addresses: addresses.into_iter().map(str::to_owned).collect(),
                ..Default::default()
            }];
            slice.spec.0.ports = ports
                .into_iter()
                .map(|(protocol, port)| api::kubernetes::service::EndpointPort {
                    protocol: Some(protocol.to_owned()),
                    port: Some(port),
                    ..Default::default()
                })
                .collect();
            slice.into()
        },
    )
}

fn set() -> impl Strategy<Value = Resource> {
    (labels(), nets(), any::<bool>()).prop_map(|(labels, nets, global)| {
        if global {
            let spec = GlobalNetworkSetSpec { nets, ..GlobalNetworkSetSpec::default() };
            let mut set = GlobalNetworkSet::new("", "s", spec);
            set.metadata.labels = labels;
            return set.into();
        }
        let mut set = NetworkSet::new("n1", "s", NetworkSetSpec { nets, ..NetworkSetSpec::default() });
        set.metadata.labels = labels;
        set.into()
    })
}

fn tier() -> impl Strategy<Value = Resource> {
    (text(&["t1", "default"]), order(), any::<bool>()).prop_map(|(name, order, pass)| {
        let action = if pass { Action::Pass } else { Action::Deny };
        Tier::new("", &name, TierSpec { order, default_action: Some(action), ..TierSpec::default() }).into()
    })
}

/// The two nodes, whose addresses never change.
fn nodes() -> Vec<Resource> {
    let node = |name: &str, number: u8| {
        let bgp = NodeBGPSpec {
            ipv4_address: format!("192.0.2.{number}/24").into(),
            ipv6_address: format!("2001:db8::{number}/64").into(),
            ..NodeBGPSpec::default()
        };
        Node::new("", name, NodeSpec { bgp: Some(bgp), ..NodeSpec::default() }).into()
    };
    vec![node("h1", 1), node("h2", 2)]
}

/// A cluster, as its resources.
pub(crate) fn resources() -> impl Strategy<Value = Vec<Resource>> {
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let fixed = (
        (pod(0), pod(1), pod(2), pod(3)),
        profile("kns.n1".to_owned(), map(&[("pcns.team", "x"), ("pcns.projectcalico.org/name", "n1")]), true),
        profile("kns.n2".to_owned(), map(&[("pcns.projectcalico.org/name", "n2")]), true),
        profile("ksa.n1.sa1".to_owned(), map(&[("pcsa.level", "x")]), false),
        profile("ksa.n2.sa2".to_owned(), map(&[("pcsa.level", "y"), ("a", "y")]), false),
        profile("hosts".to_owned(), map(&[("role", "x")]), true),
    )
        .prop_map(|((a, b, c, d), one, two, three, four, hosts)| {
            vec![a, b, c, d, one, two, three, four, hosts]
        });
    let hosts = (weighted(0.4, host_endpoint("h1", 1)), weighted(0.4, host_endpoint("h2", 2)));
    (fixed, hosts, vec(policy(), 1..7), vec(set(), 0..2), vec(slice(), 0..3), vec(tier(), 0..2)).prop_map(
        |(mut all, (one, two), policies, sets, slices, tiers)| {
            all.extend(nodes());
            all.extend(one);
            all.extend(two);
            all.extend(policies);
            all.extend(sets);
            all.extend(slices);
            all.extend(tiers);
            all
        },
    )
}
