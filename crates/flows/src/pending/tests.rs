//! Every form of rule, tiers, staged policies, changing sets.

use super::*;
use api::Kind;
use messages::{IcmpMatch, IpSetId, IpSetMember, IpSetType, PortRange, Profile, ProfileName, Rule, RuleEnd};
use model::IpVersion;
use model::v1::PolicyKey;

fn tuple(source: &str, dest: &str, protocol: u8, dest_port: u16) -> Tuple {
    let address = |text: &str| text.parse().unwrap();
    Tuple { source: address(source), dest: address(dest), protocol, source_port: 40_000, dest_port }
}

fn id(kind: Kind, name: &str) -> PolicyId {
    Arc::new(PolicyKey { kind, namespace: String::new(), name: name.to_owned() })
}

fn workload_id() -> WorkloadEndpointId {
    WorkloadEndpointId { orchestrator: "k8s".into(), workload: "ns/pod".into(), endpoint: "eth0".into() }
}

fn endpoint_id() -> LocalEndpoint {
    LocalEndpoint::Workload(workload_id())
}

fn rule(action: RuleAction) -> Rule {
    Rule { action, ..Rule::default() }
}

fn policy(id: &PolicyId, rules: &[Rule]) -> ToDataplane {
    let policy = messages::Policy {
        tier: "default".into(),
        inbound_rules: rules.to_vec(),
        outbound_rules: rules.to_vec(),
        ..messages::Policy::default()
    };
    ToDataplane::PolicyUpdate(Arc::clone(id), Arc::new(policy))
}

fn tier(name: &str, default_action: RuleAction, policies: &[&PolicyId]) -> TierInfo {
    let policies: Vec<PolicyId> = policies.iter().map(|id| Arc::clone(id)).collect();
    TierInfo {
        name: name.into(),
        default_action,
        ingress_policies: policies.clone(),
        egress_policies: policies,
    }
}

fn endpoint(tiers: Vec<TierInfo>, profiles: &[&str]) -> ToDataplane {
    let profile_ids = profiles.iter().map(|name| ProfileName::from(*name)).collect();
    let endpoint = WorkloadEndpoint { tiers, profile_ids, ..WorkloadEndpoint::default() };
    ToDataplane::WorkloadEndpointUpdate(workload_id(), Box::new(endpoint))
}

fn shown(evaluator: &mut Evaluator, tuple: &Tuple) -> Vec<String> {
    let answer = evaluator.evaluate(&endpoint_id(), Direction::Ingress, tuple).expect("an endpoint");
    answer.iter().map(ToString::to_string).collect()
}

/// Whether one rule of a policy, alone, matches.
fn is_match(rule: Rule, tuple: &Tuple, sets: &[ToDataplane]) -> bool {
    let only = id(Kind::GlobalNetworkPolicy, "only");
    let mut evaluator = Evaluator::default();
    for set in sets {
        evaluator.take(set);
    }
    evaluator.take(&policy(&only, &[Rule { action: RuleAction::Allow, ..rule }]));
    evaluator.take(&endpoint(vec![tier("default", RuleAction::Deny, &[&only])], &[]));
    shown(&mut evaluator, tuple) == ["0|default|gnp:only|allow|0"]
}

#[test]
fn clauses() {
    let tcp = tuple("10.0.0.1", "10.0.0.2", 6, 80);
    let six = tuple("fd00::1", "fd00::2", 6, 80);
    let ping = tuple("10.0.0.1", "10.0.0.2", 1, 0x0800);
    let sets = [
        ToDataplane::IpSetUpdate {
            id: "s:addresses".into(),
            set_type: IpSetType::Net,
            members: vec![
                IpSetMember::Ip("10.0.0.1".parse().unwrap()),
                IpSetMember::Net("fd00::/64".parse().unwrap()),
            ],
        },
        ToDataplane::IpSetUpdate {
            id: "n:http".into(),
            set_type: IpSetType::IpAndPort,
            members: vec![IpSetMember::IpAndPort {
                address: "10.0.0.2".parse().unwrap(),
                protocol: 6,
                port: 80,
            }],
        },
    ];
    let source = |end: RuleEnd| Rule { source: end, ..Rule::default() };
    let dest = |end: RuleEnd| Rule { destination: end, ..Rule::default() };
    let protocol = |name: &str| Some(api::scalars::Protocol::from_name(name));
    let nets = |text: &str| vec![text.parse().unwrap()];
    let ports = |first, last| vec![PortRange { first, last }];
    let set = |name: &str| vec![IpSetId::from(name)];
    let icmp = |icmp_type, code| Some(IcmpMatch { icmp_type, code });
    let any = Rule::default;
    let end = RuleEnd::default;
    // The rule, and whether it matches a TCP connection over IPv4, one over IPv6, and a ping.
    let table: Vec<(Rule, [bool; 3])> = vec![
        (any(), [true, true, true]),
        (Rule { protocol: protocol("TCP"), ..any() }, [true, true, false]),
        (Rule { protocol: protocol("nonsense"), ..any() }, [false, false, false]),
        (Rule { not_protocol: protocol("TCP"), ..any() }, [false, false, true]),
        (Rule { ip_version: Some(IpVersion::V6), ..any() }, [false, true, false]),
        (Rule { icmp: icmp(8, None), ..any() }, [false, false, true]),
        (Rule { icmp: icmp(8, Some(1)), ..any() }, [false, false, false]),
        (Rule { not_icmp: icmp(3, None), ..any() }, [false, false, true]),
        (Rule { not_icmp: icmp(8, Some(0)), ..any() }, [false, false, false]),
        (source(RuleEnd { nets: nets("10.0.0.0/8"), ..end() }), [true, false, true]),
        (source(RuleEnd { not_nets: nets("10.0.0.0/8"), ..end() }), [false, false, false]),
        (source(RuleEnd { not_nets: nets("11.0.0.0/8"), ..end() }), [true, false, true]),
        (source(RuleEnd { ip_set_ids: set("s:addresses"), ..end() }), [true, true, true]),
        (source(RuleEnd { not_ip_set_ids: set("s:addresses"), ..end() }), [false, false, false]),
        (dest(RuleEnd { ip_set_ids: set("s:addresses"), ..end() }), [false, true, false]),
        (dest(RuleEnd { ports: ports(80, 90), ..end() }), [true, true, false]),
        (dest(RuleEnd { not_ports: ports(80, 90), ..end() }), [false, false, true]),
        (source(RuleEnd { ports: ports(39_000, 40_000), ..end() }), [true, true, true]),
        (dest(RuleEnd { named_port_ip_set_ids: set("n:http"), ..end() }), [true, false, false]),
        (
            dest(RuleEnd { named_port_ip_set_ids: set("n:http"), ports: ports(1, 100), ..end() }),
            [true, true, false],
        ),
        (dest(RuleEnd { not_named_port_ip_set_ids: set("n:http"), ..end() }), [false, true, true]),
        (dest(RuleEnd { ip_port_set_ids: set("n:http"), ..end() }), [true, false, false]),
        (dest(RuleEnd { ip_set_ids: set("s:unknown"), ..end() }), [false, false, false]),
    ];
    for (rule, expected) in table {
        let found = [&tcp, &six, &ping].map(|tuple| is_match(rule.clone(), tuple, &sets));
        assert_eq!(found, expected, "{rule:?}");
    }
}

#[test]
fn staged_policies_decide_and_tiers_pass() {
    let (staged, enforced) =
        (id(Kind::StagedGlobalNetworkPolicy, "tried"), id(Kind::GlobalNetworkPolicy, "real"));
    let first = id(Kind::GlobalNetworkPolicy, "first");
    let http = Rule {
        destination: RuleEnd { ports: vec![PortRange { first: 80, last: 80 }], ..RuleEnd::default() },
        ..rule(RuleAction::Deny)
    };
    let mut evaluator = Evaluator::default();
    evaluator.take(&policy(&staged, &[rule(RuleAction::Log), http]));
    evaluator.take(&policy(&enforced, &[rule(RuleAction::Allow)]));
    evaluator.take(&policy(&first, &[rule(RuleAction::Pass)]));
    let tiers = vec![
        tier("platform", RuleAction::Deny, &[&first]),
        tier("default", RuleAction::Deny, &[&staged, &enforced]),
    ];
    evaluator.take(&endpoint(tiers.clone(), &[]));
    let (web, other) = (tuple("10.0.0.1", "10.0.0.2", 6, 80), tuple("10.0.0.1", "10.0.0.2", 6, 81));
    assert_eq!(
        shown(&mut evaluator, &web),
        ["0|default|gnp:first|pass|0", "0|default|sgnp:tried|deny|1"],
        "a log rule has a number but decides nothing"
    );
    assert_eq!(shown(&mut evaluator, &other), ["0|default|gnp:first|pass|0", "0|default|gnp:real|allow|0"]);

    // Nothing matches in the tier: its default action decides, on behalf of its first policy.
    evaluator.take(&policy(&enforced, &[]));
    assert_eq!(shown(&mut evaluator, &other), ["0|default|gnp:first|pass|0", "0|default|sgnp:tried|deny|-1"]);
    let mut passing = tiers;
    passing[1].default_action = RuleAction::Pass;
    evaluator.take(&endpoint(passing, &["kns.ns"]));
    let end = "0|default|sgnp:tried|pass|-1";
    assert_eq!(
        shown(&mut evaluator, &other),
        ["0|default|gnp:first|pass|0", end, "0|__PROFILE__|pro:__NO_MATCH__|deny|-1"]
    );
    let profile = Profile { inbound_rules: vec![rule(RuleAction::Allow)], ..Profile::default() };
    evaluator.take(&ToDataplane::ProfileUpdate("kns.ns".into(), Arc::new(profile)));
    assert_eq!(
        shown(&mut evaluator, &other),
        ["0|default|gnp:first|pass|0", end, "0|__PROFILE__|pro:kns.ns|allow|0"]
    );
    // A profile that passes leaves the decision to the next one; here there is none.
    let profile = Profile { inbound_rules: vec![rule(RuleAction::Pass)], ..Profile::default() };
    evaluator.take(&ToDataplane::ProfileUpdate("kns.ns".into(), Arc::new(profile)));
    assert_eq!(
        shown(&mut evaluator, &other),
        ["0|default|gnp:first|pass|0", end, "0|__PROFILE__|pro:__NO_MATCH__|deny|-1"]
    );
    evaluator.take(&ToDataplane::WorkloadEndpointRemove(workload_id()));
    assert!(evaluator.evaluate(&endpoint_id(), Direction::Ingress, &other).is_none());
}

#[test]
fn host_policies_are_evaluated_untracked_first_then_before_nat_then_normal() {
    let name = |name: &str| id(Kind::StagedGlobalNetworkPolicy, name);
    let (early, open, usual, passing) = (name("early"), name("open"), name("usual"), name("passing"));
    let port = |action, port| Rule {
        destination: RuleEnd { ports: vec![PortRange { first: port, last: port }], ..RuleEnd::default() },
        ..rule(action)
    };
    let mut evaluator = Evaluator::default();
    evaluator.take(&policy(&early, &[port(RuleAction::Deny, 1)]));
    evaluator.take(&policy(&open, &[port(RuleAction::Allow, 2)]));
    evaluator.take(&policy(&usual, &[port(RuleAction::Allow, 3)]));
    let host = |interface: &str| {
        let endpoint = HostEndpoint {
            name: interface.to_owned(),
            untracked_tiers: vec![tier("default", RuleAction::Deny, &[&early])],
            pre_dnat_tiers: vec![tier("default", RuleAction::Deny, &[&open])],
            forward_tiers: vec![tier("default", RuleAction::Deny, &[&passing])],
            tiers: vec![tier("default", RuleAction::Deny, &[&usual])],
            ..HostEndpoint::default()
        };
        ToDataplane::HostEndpointUpdate("eth0".into(), Box::new(endpoint))
    };
    evaluator.take(&host("eth0"));
    let own = LocalEndpoint::Host("eth0".into());
    let shown = |evaluator: &mut Evaluator, direction, port| -> Vec<String> {
        let answer = evaluator.evaluate(&own, direction, &tuple("10.0.0.1", "10.0.0.2", 6, port));
        answer.expect("a host").iter().map(ToString::to_string).collect()
    };
    let denied_early = "0|default|sgnp:early|deny|0";
    let end = "0|default|sgnp:usual|deny|-1";
    for (direction, port, expected) in [
        (Direction::Ingress, 1, denied_early),
        (Direction::Ingress, 2, "0|default|sgnp:open|allow|0"),
        (Direction::Ingress, 3, "0|default|sgnp:usual|allow|0"),
        (Direction::Ingress, 4, end),
        (Direction::Egress, 1, denied_early),
        // Destinations are translated only on the way in.
        (Direction::Egress, 2, end),
        (Direction::Egress, 3, "0|default|sgnp:usual|allow|0"),
    ] {
        assert_eq!(shown(&mut evaluator, direction, port), [expected], "{direction:?} {port}");
    }
    // There is no untracked policy for all interfaces at once.
    evaluator.take(&host("*"));
    assert_eq!(shown(&mut evaluator, Direction::Ingress, 1), [end]);
    // A workload of the same name is another endpoint.
    assert!(evaluator.evaluate(&endpoint_id(), Direction::Ingress, &tuple("::1", "::1", 6, 1)).is_none());
    evaluator.take(&ToDataplane::HostEndpointRemove("eth0".into()));
    assert!(evaluator.evaluate(&own, Direction::Ingress, &tuple("::1", "::1", 6, 1)).is_none());
}

#[test]
fn answers_are_cached_until_something_changes() {
    let only = id(Kind::GlobalNetworkPolicy, "only");
    let members = |address: &str| vec![IpSetMember::Ip(address.parse().unwrap())];
    let from_set = Rule {
        source: RuleEnd { ip_set_ids: vec!["s:a".into()], ..RuleEnd::default() },
        ..rule(RuleAction::Allow)
    };
    let mut evaluator = Evaluator::default();
    let set_type = IpSetType::Ip;
    evaluator.take(&ToDataplane::IpSetUpdate { id: "s:a".into(), set_type, members: members("10.0.0.1") });
    evaluator.take(&policy(&only, &[from_set]));
    evaluator.take(&endpoint(vec![tier("default", RuleAction::Deny, &[&only])], &[]));
    let tuple = tuple("10.0.0.1", "10.0.0.2", 6, 80);
    let generation = evaluator.generation();
    for source_port in 1..100 {
        let tuple = Tuple { source_port, ..tuple };
        assert_eq!(shown(&mut evaluator, &tuple), ["0|default|gnp:only|allow|0"]);
    }
    assert_eq!((evaluator.evaluations(), evaluator.generation()), (1, generation));
    evaluator.take(&ToDataplane::IpSetDelta {
        id: "s:a".into(),
        added: members("10.0.0.3"),
        removed: members("10.0.0.1"),
    });
    assert_eq!(shown(&mut evaluator, &tuple), ["0|default|gnp:only|deny|-1"]);
    assert_ne!(evaluator.generation(), generation);
    // Messages that do not concern policies do not invalidate answers.
    let generation = evaluator.generation();
    evaluator.take(&ToDataplane::InSync);
    assert_eq!(evaluator.generation(), generation);
}
