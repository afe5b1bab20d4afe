//! Random policies: rendered chains must agree with the meaning of policy for every packet, on both backends and in
//! both IP versions.

use crate::naive;
use crate::world::World;
use api::Kind;
use api::scalars::{IntOrString, Protocol};
use ipnet::IpNet;
use messages::{
    IcmpMatch, IpSetId, IpSetMember, Policy, PolicyId, PortRange, Profile, ProfileName, Rule, RuleEnd,
    TierInfo, WorkloadEndpoint,
};
use model::feed::RuleAction;
use model::v1::PolicyKey;
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::select;
use rules::simulate::{Packet, Simulation, Tracking, Verdict};
use rules::tree::{Action, IpVersion, Table};
use rules::{Allowed, Backend, Denied, Direction, Marks, RulesConfig, names};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

const INTERFACES: [&str; 5] = ["cali0a", "cali0b", "cali1", "cali", "cali2ab"];
/// The marks of the default settings.
const MARKS: Marks = Marks {
    accept: 0x1_0000,
    pass: 0x2_0000,
    drop: 0x4_0000,
    scratch0: 0x8_0000,
    scratch1: 0x10_0000,
    wireguard: 0,
    endpoint: 0xffe0_0000,
    non_calico_endpoint: 0x20_0000,
};
/// Enough for unions.
const MANY_SETS: [&str; 14] = [
    "s:m0", "s:m1", "s:m2", "s:m3", "s:m4", "s:m5", "s:m6", "s:m7", "s:m8", "s:m9", "s:m10", "s:m11",
    "s:m12", "s:m13",
];
const PORTS: [u16; 7] = [22, 53, 80, 81, 443, 8080, 9000];

fn addresses(version: IpVersion) -> Vec<IpAddr> {
    let texts = match version {
        IpVersion::V4 => ["10.0.0.1", "10.0.0.2", "10.0.0.5", "11.0.0.1", "192.0.2.1"],
        IpVersion::V6 => ["fd00::1", "fd00::2", "fd00::5", "fd01::1", "2001:db8::1"],
    };
    texts.map(|text| text.parse().expect("an address")).to_vec()
}

fn networks() -> Vec<IpNet> {
    [
        "10.0.0.0/8",
        "10.0.0.0/30",
        "10.0.0.2/32",
        "192.0.2.0/24",
        "0.0.0.0/0",
        "fd00::/16",
        "fd00::/126",
        "fd00::2/128",
        "2001:db8::/32",
        "::/0",
    ]
    .map(|text| text.parse().expect("a network"))
    .to_vec()
}

fn sets() -> naive::Sets {
    let net = |text: &str| IpSetMember::Net(text.parse().expect("a network"));
    let both = |index: usize| [IpVersion::V4, IpVersion::V6].map(|version| addresses(version)[index]);
    let ports = |entries: &[(usize, u8, u16)]| {
        let member = |&(index, protocol, port): &(usize, u8, u16)| {
            both(index).map(|address| IpSetMember::IpAndPort { address, protocol, port })
        };
        entries.iter().flat_map(member).collect::<Vec<_>>()
    };
    BTreeMap::from([
        ("s:low", vec![net("10.0.0.0/30"), net("fd00::/126")]),
        ("s:first", both(0).map(|address| IpSetMember::Net(address.into())).to_vec()),
        ("s:none", Vec::new()),
        ("n:web", ports(&[(0, 6, 80), (1, 6, 80), (2, 6, 8080)])),
        ("n:dns", ports(&[(0, 17, 53), (3, 17, 53), (3, 132, 53)])),
    ])
    .into_iter()
    .chain(MANY_SETS.iter().enumerate().map(|(index, id)| {
        let addresses = [index % 5, (index * 3 + 1) % 5].map(both).concat();
        let members = addresses.into_iter().map(|address| IpSetMember::Net(address.into()));
        (*id, members.take(index % 4).collect())
    }))
    .collect()
}

fn address_sets() -> impl Strategy<Value = IpSetId> {
    select(vec!["s:low", "s:first", "s:none"]).prop_map(Into::into)
}

fn port_sets() -> impl Strategy<Value = IpSetId> {
    select(vec!["n:web", "n:dns"]).prop_map(Into::into)
}

/// Mostly empty, otherwise up to `most` entries: a rule with all conditions matches nothing.
fn few<S: Strategy>(entry: S, most: usize) -> impl Strategy<Value = Vec<S::Value>>
where
    S::Value: Clone,
{
    prop_oneof![4 => Just(Vec::new()), 1 => vec(entry, 1..=most)]
}

fn port_range() -> impl Strategy<Value = PortRange> + Clone {
    (select(PORTS.to_vec()), prop_oneof![3 => Just(0_u16), 1 => 0_u16..30])
        .prop_map(|(first, more)| PortRange { first, last: first.saturating_add(more) })
}

fn rule_end(is_destination: bool) -> impl Strategy<Value = RuleEnd> {
    let port_set_count = usize::from(is_destination);
    let nets = || few(select(networks()), 3);
    // Also long lists, so that lists are split.
    let ports =
        || prop_oneof![4 => Just(Vec::new()), 2 => vec(port_range(), 1..4), 1 => vec(port_range(), 10..40)];
    let not_ports =
        || prop_oneof![6 => Just(Vec::new()), 1 => vec(port_range(), 1..4), 1 => vec(port_range(), 130..160)];
    (
        (nets(), nets(), ports(), not_ports()),
        (few(port_sets(), 2), few(port_sets(), 2), few(address_sets(), 2), few(address_sets(), 1)),
        prop_oneof![9 => Just(Vec::new()), 1 => vec(port_sets(), port_set_count)],
    )
        .prop_map(
            |((nets, not_nets, ports, not_ports), (named, not_named, sets, not_sets), port_sets)| RuleEnd {
                nets,
                ports,
                named_port_ip_set_ids: named,
                ip_set_ids: sets,
                ip_port_set_ids: port_sets,
                not_nets,
                not_ports,
                not_named_port_ip_set_ids: not_named,
                not_ip_set_ids: not_sets,
                original: None,
            },
        )
}

fn protocol() -> impl Strategy<Value = Protocol> {
    use Protocol::{Icmp, Icmpv6, Number, Other, Sctp, Tcp, Udp};
    let strange = || Other(IntOrString::from("strange"));
    prop_oneof![
        12 => select(vec![Tcp, Udp, Sctp, Number(6), Number(17)]),
        4 => select(vec![Icmp, Icmpv6, Number(1), Number(58), Number(47)]),
        1 => select(vec![Number(0), strange()]),
    ]
}

fn icmp() -> impl Strategy<Value = IcmpMatch> {
    (select(vec![0_u8, 3, 8]), proptest::option::of(0_u8..2))
        .prop_map(|(icmp_type, code)| IcmpMatch { icmp_type, code })
}

fn action() -> impl Strategy<Value = RuleAction> {
    select(vec![RuleAction::Allow, RuleAction::Deny, RuleAction::Pass, RuleAction::Log])
}

/// A rule with three or four lists of which any entry may match, each too long for one rule of the kernel, and few
/// other conditions: so that packets match some of the lists.
fn rule_with_lists() -> impl Strategy<Value = Rule> {
    let ports = || vec(port_range(), 16..20);
    // Enough of both versions, and never everything.
    let nets = || {
        let of = |is_v6: bool| {
            let narrow = move |net: &IpNet| net.prefix_len() > 0 && net.addr().is_ipv6() == is_v6;
            let of_version: Vec<IpNet> = networks().into_iter().filter(narrow).collect();
            proptest::sample::subsequence(of_version, 2..=3)
        };
        (of(false), of(true)).prop_map(|(v4, v6)| [v4, v6].concat())
    };
    let end =
        move || (ports(), nets()).prop_map(|(ports, nets)| RuleEnd { nets, ports, ..RuleEnd::default() });
    let actions = select(vec![RuleAction::Allow, RuleAction::Allow, RuleAction::Deny, RuleAction::Pass]);
    (actions, select(vec![Protocol::Tcp, Protocol::Udp]), end(), end(), 0..5).prop_map(
        |(action, protocol, mut source, mut destination, left_out)| {
            match left_out {
                0 => source.ports.clear(),
                1 => destination.ports.clear(),
                2 => source.nets.clear(),
                3 => destination.nets.clear(),
                _ => {}
            }
            Rule { action, protocol: Some(protocol), source, destination, ..Rule::default() }
        },
    )
}

fn rule() -> impl Strategy<Value = Rule> {
    prop_oneof![3 => rule_of_anything(), 1 => rule_with_lists()]
}

fn rule_of_anything() -> impl Strategy<Value = Rule> {
    let version = select(vec![IpVersion::V4, IpVersion::V6]);
    (
        action(),
        weighted(0.1, version),
        weighted(0.6, protocol()),
        weighted(0.2, protocol()),
        (weighted(0.1, icmp()), weighted(0.1, icmp())),
        rule_end(false),
        rule_end(true),
    )
        .prop_map(
            |(action, ip_version, protocol, not_protocol, (icmp, not_icmp), source, destination)| Rule {
                action,
                ip_version,
                protocol,
                not_protocol,
                icmp,
                not_icmp,
                source,
                destination,
                ..Rule::default()
            },
        )
}

/// A typical rule: an address or a set of the other side, a protocol, a few ports. Many of them have the same ports.
fn plain_rule() -> impl Strategy<Value = Rule> {
    let action = prop_oneof![
        20 => Just(RuleAction::Allow), 2 => Just(RuleAction::Deny), 1 => Just(RuleAction::Pass), 1 => Just(RuleAction::Log)
    ];
    let nets = (0_u8..40).prop_map(|last| -> Vec<IpNet> {
        let texts = [format!("10.0.0.{last}/32"), format!("fd00::{last:x}/128")];
        texts.iter().map(|text| text.parse().expect("a network")).collect()
    });
    let far = prop_oneof![
        6 => select(MANY_SETS.to_vec()).prop_map(|id| RuleEnd { ip_set_ids: vec![id.into()], ..RuleEnd::default() }),
        4 => nets.prop_map(|nets| RuleEnd { nets, ..RuleEnd::default() }),
        1 => few(select(networks()), 2).prop_map(|nets| RuleEnd { nets, ..RuleEnd::default() }),
    ];
    let single = (70_u16..90).prop_map(|port| vec![PortRange { first: port, last: port }]);
    let ports = prop_oneof![
        4 => Just(vec![PortRange { first: 80, last: 80 }]),
        1 => Just(Vec::new()),
        4 => single,
        1 => vec(port_range(), 1..3),
    ];
    (action, prop_oneof![8 => Just(Protocol::Tcp), 1 => Just(Protocol::Udp)], far, ports, any::<bool>())
        .prop_map(|(action, protocol, far, ports, is_source)| {
            let (source, mut destination) = match is_source {
                true => (far, RuleEnd::default()),
                false => (RuleEnd::default(), far),
            };
            destination.ports = ports;
            Rule { action, protocol: Some(protocol), source, destination, ..Rule::default() }
        })
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    vec(rule(), 0..5)
}

fn policy() -> impl Strategy<Value = (Kind, Policy)> {
    let kinds = [Kind::GlobalNetworkPolicy, Kind::GlobalNetworkPolicy, Kind::StagedGlobalNetworkPolicy];
    (select(kinds.to_vec()), rules(), rules(), select(vec!["all()", "has(app)"])).prop_map(
        |(kind, inbound_rules, outbound_rules, selector)| {
            let policy = Policy {
                inbound_rules,
                outbound_rules,
                original_selector: selector.to_owned(),
                ..Policy::default()
            };
            (kind, policy)
        },
    )
}

/// Which policies are in which tier, for both directions, and how tiers end.
type TierPlan = Vec<(Vec<prop::sample::Index>, Vec<prop::sample::Index>, bool)>;

fn tiers() -> impl Strategy<Value = TierPlan> {
    let policies = || vec(any::<prop::sample::Index>(), 0..9);
    vec((policies(), policies(), any::<bool>()), 0..4)
}

fn world() -> impl Strategy<Value = World> {
    (
        vec(policy(), 1..6),
        vec((rules(), rules()), 1..3),
        vec((tiers(), vec(any::<prop::sample::Index>(), 0..3), prop::bool::weighted(0.95)), INTERFACES.len()),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(policies, profiles, endpoints, reject, returns, flow_logs)| {
            let policies: Vec<(PolicyId, Arc<Policy>)> = policies
                .into_iter()
                .enumerate()
                .map(|(index, (kind, policy))| {
                    let name = format!("policy-{index}");
                    (Arc::new(PolicyKey { kind, namespace: String::new(), name }), Arc::new(policy))
                })
                .collect();
            let profiles: Vec<(ProfileName, Profile)> = profiles
                .into_iter()
                .enumerate()
                .map(|(index, (inbound_rules, outbound_rules))| {
                    let [inbound_rules, outbound_rules] = [inbound_rules, outbound_rules].map(without_pass);
                    (format!("profile-{index}").into(), Profile { inbound_rules, outbound_rules })
                })
                .collect();
            let chosen = |plan: Vec<prop::sample::Index>| {
                plan.into_iter().map(|index| index.get(&policies).0.clone()).collect::<Vec<_>>()
            };
            let workloads = endpoints
                .into_iter()
                .zip(INTERFACES)
                .map(|((tiers, profile_ids, active), name)| WorkloadEndpoint {
                    state: if active { "active" } else { "inactive" }.to_owned(),
                    name: name.into(),
                    profile_ids: profile_ids.iter().map(|index| index.get(&profiles).0.clone()).collect(),
                    tiers: tiers
                        .into_iter()
                        .enumerate()
                        .map(|(index, (ingress, egress, pass))| TierInfo {
                            name: format!("tier-{index}").into(),
                            default_action: if pass { RuleAction::Pass } else { RuleAction::Deny },
                            ingress_policies: chosen(ingress),
                            egress_policies: chosen(egress),
                        })
                        .collect(),
                    ..WorkloadEndpoint::default()
                })
                .collect();
            World {
                config: RulesConfig {
                    filter_deny_action: if reject { Denied::Reject } else { Denied::Drop },
                    filter_allow_action: if returns { Allowed::Return } else { Allowed::Accept },
                    flow_logs,
                    ..RulesConfig::default()
                },
                policies: policies.iter().cloned().collect(),
                profiles: profiles.iter().cloned().collect(),
                workloads,
                ..World::default()
            }
        })
}

/// After profiles there is nothing to pass to. Like Calico, we render such a rule so that, after a tier that passed, it
/// ends the profile for every packet: the packet is denied where the oracle would continue.
fn without_pass(mut rules: Vec<Rule>) -> Vec<Rule> {
    for rule in rules.iter_mut().filter(|rule| rule.action == RuleAction::Pass) {
        rule.action = RuleAction::Deny;
    }
    rules
}

/// A packet that begins a connection; its other end is outside if there is no workload.
fn packet(version: IpVersion) -> impl Strategy<Value = Packet> {
    let own_icmp = if version == IpVersion::V6 { 58 } else { 1 };
    let interface =
        || prop_oneof![6 => select(INTERFACES.to_vec()), 1 => select(vec!["eth0", "cali9", "cali0"])];
    (
        (select(addresses(version)), select(addresses(version))),
        select(vec![6, 6, 17, 17, 132, own_icmp, own_icmp, 47, 4]),
        (select(PORTS.to_vec()), select(PORTS.to_vec())),
        (select(vec![0_u8, 3, 8]), 0_u8..2),
        (interface(), interface()),
        any::<u32>(),
    )
        .prop_map(|((source, destination), protocol, ports, icmp, (from, to), mark)| Packet {
            ports,
            icmp,
            in_interface: from.into(),
            out_interface: to.into(),
            // Foreign bits, and those of ours that are cleared first.
            mark: mark & !(MARKS.accept | MARKS.drop),
            ..Packet::new(source, destination, protocol)
        })
}

/// Whether the two workloads' policies allow the packet. Packets of an unknown interface with a workload's prefix are
/// denied; an interface without the prefix has no policy.
fn policy_allows(world: &World, packet: &Packet) -> bool {
    let sets = sets();
    let side = |interface: &str, direction| {
        if !interface.starts_with("cali") {
            return true;
        }
        let endpoint = world.workloads.iter().find(|workload| *workload.name == *interface);
        endpoint.is_some_and(|endpoint| naive::allows(world, endpoint, direction, packet, &sets))
    };
    side(&packet.in_interface, Direction::Outbound) && side(&packet.out_interface, Direction::Inbound)
}

fn simulation(world: &World, version: IpVersion) -> Simulation {
    let rendered = world.render(Table::Filter, version).programmed();
    for chain in rendered.chains.values() {
        assert!(chain.name.len() <= world.config.backend.max_chain_name(), "{}", chain.name);
        if chain.name.starts_with("cali-p") {
            let last = chain.rules.last().expect("a policy's chain has at least its comment");
            assert_ne!(last.action, Some(Action::Return), "{}", chain.name);
        }
    }
    let mut simulation = Simulation::new(world.config.backend);
    simulation.add_chains(["INPUT", "FORWARD", "OUTPUT"].map(|name| rendered.kernel_chain(name)));
    simulation.add_chains(rendered.chains.into_values());
    simulation.add_maps(rendered.maps);
    let own = |member: &IpSetMember| member.is_ipv6() == (version == IpVersion::V6);
    let sets = sets();
    for (id, union) in rendered.unions {
        let members = union.sets.iter().flat_map(|set| sets[&**set].iter().copied());
        let members = members.chain(union.nets.iter().copied().map(IpSetMember::Net));
        simulation.add_set(names::ip_set(version, &id), members.filter(own).collect());
    }
    for (id, members) in sets {
        simulation.add_set(names::ip_set(version, id), members.into_iter().filter(own).collect());
    }
    simulation
}

/// One workload whose only policy has these rules, in both directions.
fn world_of_rules(rules: Vec<Rule>) -> World {
    let id = Arc::new(PolicyKey {
        kind: Kind::GlobalNetworkPolicy,
        namespace: String::new(),
        name: "lists".to_owned(),
    });
    let policy = Policy { inbound_rules: rules.clone(), outbound_rules: rules, ..Policy::default() };
    let tier = TierInfo {
        name: "default".into(),
        default_action: RuleAction::Deny,
        ingress_policies: vec![id.clone()],
        egress_policies: vec![id.clone()],
    };
    World {
        policies: BTreeMap::from([(id, Arc::new(policy))]),
        workloads: vec![WorkloadEndpoint {
            state: "active".to_owned(),
            name: "cali1".into(),
            tiers: vec![tier],
            ..WorkloadEndpoint::default()
        }],
        ..World::default()
    }
}

/// Sends the packets through the chains of both backends, with policies as chains and compiled, and compares with the
/// meaning of policy.
fn agree(world: &World, packets: [(IpVersion, &[Packet]); 2]) -> Result<(), TestCaseError> {
    for (backend, compiled) in [
        (Backend::Iptables, false),
        (Backend::Nftables, false),
        (Backend::Iptables, true),
        (Backend::Nftables, true),
    ] {
        let mut world = world.clone();
        world.config.backend = backend;
        world.config.compile_policies = compiled;
        world.config.flow_logs &= !compiled;
        for (version, packets) in packets {
            let mut simulation = simulation(&world, version);
            for packet in packets {
                let allowed = policy_allows(&world, packet);
                let mut walked = packet.clone();
                let verdict = simulation.run("FORWARD", &mut walked);
                let passed = match &verdict {
                    // With the setting `Return`, packets that policy allows continue to foreign rules.
                    Ok(Verdict::Accept | Verdict::Continue) => true,
                    Ok(Verdict::Drop | Verdict::Reject) => false,
                    Err(error) => panic!("{backend:?} {version} compiled {compiled}: {error}"),
                };
                let how = (backend, version, compiled);
                prop_assert_eq!(passed, allowed, "{:?} {:?}: {:?}", how, packet, verdict);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn rendered_chains_do_what_policy_says(
        world in world(),
        packets in vec(packet(IpVersion::V4), 40),
        packets_v6 in vec(packet(IpVersion::V6), 40),
    ) {
        agree(&world, [(IpVersion::V4, &packets), (IpVersion::V6, &packets_v6)])?;
    }

    /// Every list of a rule is checked, however many there are.
    #[test]
    fn rules_with_many_lists_do_what_they_say(
        rules in vec(rule_with_lists(), 1..3),
        packets in vec(packet(IpVersion::V4), 60),
        packets_v6 in vec(packet(IpVersion::V6), 60),
        inbound in any::<bool>(),
    ) {
        let directed = |packets: Vec<Packet>| -> Vec<Packet> {
            let (from, to) = if inbound { ("eth0", "cali1") } else { ("cali1", "eth0") };
            packets
                .into_iter()
                .map(|packet| Packet { in_interface: from.into(), out_interface: to.into(), ..packet })
                .collect()
        };
        let (packets, packets_v6) = (directed(packets), directed(packets_v6));
        agree(&world_of_rules(rules), [(IpVersion::V4, &packets), (IpVersion::V6, &packets_v6)])?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Long runs of rules, whose unions and trees of ports mean what the rules mean.
    #[test]
    fn long_runs_do_what_their_rules_say(
        rules in vec(plain_rule(), 30..120),
        packets in vec((0_u8..6, 70_u16..90, select(vec![6_u8, 17]), any::<bool>()), 80),
    ) {
        let of = |version: IpVersion| -> Vec<Packet> {
            packets
                .iter()
                .map(|&(last, port, protocol, inbound)| {
                    let (from, to) = if inbound { ("eth0", "cali1") } else { ("cali1", "eth0") };
                    let own = addresses(version)[4];
                    let other: IpAddr = match version {
                        IpVersion::V4 => format!("10.0.0.{last}"),
                        IpVersion::V6 => format!("fd00::{last:x}"),
                    }
                    .parse()
                    .expect("an address");
                    let (source, destination) = if inbound { (other, own) } else { (own, other) };
                    Packet {
                        ports: (5000, port),
                        in_interface: from.into(),
                        out_interface: to.into(),
                        ..Packet::new(source, destination, protocol)
                    }
                })
                .collect()
        };
        let (v4, v6) = (of(IpVersion::V4), of(IpVersion::V6));
        agree(&world_of_rules(rules), [(IpVersion::V4, &v4), (IpVersion::V6, &v6)])?;
    }
}

/// A thousand policies that allow become a handful of rules, whatever their sources and ports are.
#[test]
fn a_thousand_policies_are_few_lookups() {
    let rule = |index: u16, port: u16| Rule {
        action: RuleAction::Allow,
        protocol: Some(Protocol::Tcp),
        source: RuleEnd { ip_set_ids: vec![format!("s:{index}x").into()], ..RuleEnd::default() },
        destination: RuleEnd { ports: vec![PortRange { first: port, last: port }], ..RuleEnd::default() },
        ..Rule::default()
    };
    let longest_way = |port_of: fn(u16) -> u16| {
        let mut world = world_of_rules((0..1000).map(|index| rule(index, port_of(index))).collect());
        world.config.backend = Backend::Nftables;
        world.config.compile_policies = true;
        let rendered = world.render(Table::Filter, IpVersion::V4).programmed();
        let compiled = rendered.chains.values().filter(|chain| chain.name.starts_with("cali-ci-"));
        let (count, longest) =
            compiled.fold((0, 0), |(count, longest), chain| (count + 1, longest.max(chain.rules.len())));
        (count, longest, rendered.unions.len())
    };
    // Chains, rules of the longest chain, unions.
    assert_eq!(longest_way(|_| 80), (1, 8, 8), "one port: all sources, in several sets");
    assert_eq!(longest_way(|index| 1000 + index), (69, 16, 0), "a port each: a tree of ports");
}

/// Known connections pass without policy, and packets that fit none are dropped.
#[test]
fn connection_tracking_comes_first() {
    let deny_all = TierInfo {
        name: "default".into(),
        default_action: RuleAction::Deny,
        ingress_policies: vec![Arc::new(PolicyKey {
            kind: Kind::GlobalNetworkPolicy,
            namespace: String::new(),
            name: "none".to_owned(),
        })],
        ..TierInfo::default()
    };
    for backend in [Backend::Iptables, Backend::Nftables] {
        let policy = (deny_all.ingress_policies[0].clone(), Arc::new(Policy::default()));
        let world = World {
            config: RulesConfig { backend, ..RulesConfig::default() },
            policies: BTreeMap::from([policy]),
            workloads: vec![WorkloadEndpoint {
                state: "active".to_owned(),
                name: "cali1".into(),
                tiers: vec![deny_all.clone()],
                ..WorkloadEndpoint::default()
            }],
            ..World::default()
        };
        let mut simulation = simulation(&world, IpVersion::V4);
        for (tracking, expected) in [
            (Tracking::New, Verdict::Drop),
            (Tracking::Established, Verdict::Accept),
            (Tracking::Invalid, Verdict::Drop),
        ] {
            let mut packet = Packet {
                tracking,
                in_interface: "eth0".into(),
                out_interface: "cali1".into(),
                ..Packet::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 6)
            };
            assert_eq!(simulation.run("FORWARD", &mut packet), Ok(expected), "{backend:?} {tracking:?}");
        }
    }
}
