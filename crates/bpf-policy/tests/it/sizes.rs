//! Large lists, lists that are too large, and the cost of one change among many entries.

use crate::state::{State, workload_id};
use api::Kind;
use bpf_policy::{EndpointId, Packet, Policies, TooLarge, Verdict, evaluate, rule_id};
use messages::{IpSetMember, Policy, PolicyId, Rule, RuleEnd, TierInfo, ToDataplane, WorkloadEndpoint};
use model::feed::RuleAction;
use model::v1::PolicyKey;
use std::net::IpAddr;
use std::sync::Arc;

fn id(name: &str) -> PolicyId {
    let (namespace, name) = (String::new(), name.to_owned());
    Arc::new(PolicyKey { kind: Kind::GlobalNetworkPolicy, namespace, name })
}

/// The address in rule `number`.
fn address(number: usize) -> IpAddr {
    let [.., high, middle, low] = number.to_be_bytes();
    [10, high, middle, low].into()
}

fn rules(count: usize, action: impl Fn(usize) -> RuleAction) -> Vec<Rule> {
    let rule = |number| Rule {
        action: action(number),
        source: RuleEnd { nets: vec![address(number).into()], ..RuleEnd::default() },
        ..Rule::default()
    };
    (0..count).map(rule).collect()
}

fn tier(name: &str, default_action: RuleAction, policy: &str) -> TierInfo {
    TierInfo {
        name: name.into(),
        default_action,
        ingress_policies: vec![id(policy)],
        egress_policies: Vec::new(),
    }
}

fn state(policies: Vec<(&str, Vec<Rule>)>, tiers: Vec<TierInfo>) -> State {
    let policy = |rules| Arc::new(Policy { inbound_rules: rules, ..Policy::default() });
    let endpoint = WorkloadEndpoint {
        state: "active".to_owned(),
        name: "cali1".into(),
        tiers,
        ..WorkloadEndpoint::default()
    };
    State {
        policies: policies.into_iter().map(|(name, rules)| (id(name), policy(rules))).collect(),
        workloads: [(workload_id("one"), endpoint)].into(),
        ..State::default()
    }
}

/// Evaluates a packet to the workload; returns the verdict and the rules that were hit.
fn ask(policies: &Policies, source: IpAddr) -> (Verdict, Vec<u64>) {
    let tables = policies.tables();
    let lists = tables.endpoints.get(&EndpointId::Workload(workload_id("one"))).expect("an endpoint");
    let destination = [192, 0, 2, 1].into();
    let packet = Packet { source, destination, protocol: 6, ports: (1024, 80), icmp: (0, 0) };
    let said = evaluate(tables, lists.v4.ingress, &packet);
    (said.verdict, said.hits)
}

#[test]
fn lists_span_several_segments() {
    let first = rules(1500, |number| if number == 3 { RuleAction::Pass } else { RuleAction::Allow });
    let second = rules(1600, |_| RuleAction::Deny);
    let tiers = vec![tier("t1", RuleAction::Pass, "p1"), tier("t2", RuleAction::Deny, "p2")];
    let policies = state(vec![("p1", first), ("p2", second)], tiers).fresh();
    let check = |number: usize, verdict: Verdict, hits: &[&str]| {
        let hits = hits.iter().map(|text| rule_id(text)).collect();
        assert_eq!(ask(&policies, address(number)), (verdict, hits), "rule {number}");
    };
    for number in [0, 2, 4, 1023, 1024, 1499] {
        check(number, Verdict::Allow, &[&format!("API{number}|gnp/p1")]);
    }
    check(3, Verdict::Deny, &["PPI3|gnp/p1", "DPI3|gnp/p2"]);
    check(1500, Verdict::Deny, &["PPI|t1", "DPI1500|gnp/p2"]);
    check(1599, Verdict::Deny, &["PPI|t1", "DPI1599|gnp/p2"]);
    check(1600, Verdict::Deny, &["PPI|t1", "DPI|t2"]);
}

#[test]
fn a_list_that_is_too_large_denies_and_is_reported() {
    let many = rules(70_000, |_| RuleAction::Allow);
    let policies = state(vec![("p1", many)], vec![tier("t1", RuleAction::Pass, "p1")]).fresh();
    assert_eq!(ask(&policies, address(1)), (Verdict::Deny, Vec::new()));
    let problems: Vec<TooLarge> = policies.problems().map(|(_, why)| why).collect();
    // Including the ends of the tier and of the list; for IPv6 no rule remains.
    assert_eq!(problems, [TooLarge::Rules(70_002)]);
    let tiers = (0..65).map(|number| tier(&format!("t{number}"), RuleAction::Pass, "p1")).collect();
    let mut policies = state(vec![("p1", rules(1, |_| RuleAction::Allow))], tiers).fresh();
    assert_eq!(ask(&policies, address(0)), (Verdict::Deny, Vec::new()));
    assert!(policies.problems().all(|(_, why)| why == TooLarge::Parts(65)));
    assert_eq!(policies.problems().count(), 2, "both versions");
    policies.update(&ToDataplane::WorkloadEndpointRemove(workload_id("one")));
    policies.flush();
    assert_eq!(policies.problems().count(), 0);
}

#[test]
fn an_address_that_joins_a_set_changes_one_entry() {
    let from_set = Rule {
        action: RuleAction::Allow,
        source: RuleEnd { ip_set_ids: vec!["s:a".into()], ..RuleEnd::default() },
        ..Rule::default()
    };
    let mut state = state(vec![("p1", vec![from_set])], vec![tier("t1", RuleAction::Deny, "p1")]);
    let members = (0..5000).map(|number| IpSetMember::Ip(address(number)));
    state.sets.insert("s:a".into(), members.collect());
    let mut policies = state.fresh();
    let tables = policies.tables_mut();
    assert_eq!(tables.addresses.take_changed().len(), 5000);
    tables.rows.take_changed();
    tables.endpoints.take_changed();
    let changed = |policies: &mut Policies| {
        let tables = policies.tables_mut();
        let others = tables.rows.take_changed().len() + tables.endpoints.take_changed().len();
        (tables.addresses.take_changed().len(), others)
    };
    let member = vec![IpSetMember::Ip(address(9999))];
    policies.update(&ToDataplane::IpSetDelta { id: "s:a".into(), added: member.clone(), removed: vec![] });
    policies.flush();
    assert_eq!(changed(&mut policies), (1, 0));
    assert_eq!(ask(&policies, address(9999)).0, Verdict::Allow);
    policies.update(&ToDataplane::IpSetDelta { id: "s:a".into(), added: vec![], removed: member });
    policies.flush();
    assert_eq!(changed(&mut policies), (1, 0));
    assert_eq!(ask(&policies, address(9999)).0, Verdict::Deny);
}
