//! What cannot be read or is missing restricts, all the way from the stored resource: a policy with a broken selector
//! selects nothing, a broken rule denies, a missing profile denies everything.

use crate::run::{HOST, Run};
use crate::text::apply;
use crate::world::{World, difference};
use calc::GraphConfig;
use model::convert::{Faults, policy};
use model::feed::{FeedEntry, RuleAction};
use model::v1::PolicyKey;
use serde_json::{Value, json};

fn run(world: &World) -> Run {
    let mut run = Run::new(false);
    run.in_sync();
    for update in difference(&World::new(), world) {
        run.update(update);
    }
    run.flush();
    run
}

/// A stored global policy, converted for the feed.
fn stored(spec: Value) -> FeedEntry {
    let spec = serde_json::from_value(spec).unwrap();
    let value = policy::global(spec, &mut Faults::new());
    let kind = api::Kind::GlobalNetworkPolicy;
    let key = PolicyKey { kind, namespace: String::new(), name: "p".into() };
    FeedEntry::Policy(key, Some(Box::new(value)))
}

#[test]
fn a_policy_whose_selector_cannot_be_read_selects_nothing() {
    let mut world = World::new();
    apply(&mut world, "workload h1 n/a ip=10.0.0.1 labels=a=x");
    let mut run = run(&world);
    // It can be broken, repaired, broken again and removed.
    for (selector, active) in [("a ==", 0), ("a == 'x'", 1), ("a ==", 0), ("has(a)", 1), ("((", 0)] {
        run.update(stored(json!({"selector": selector, "ingress": [{"action": "Allow"}]})));
        run.flush();
        assert_eq!(run.dataplane.policy.policies.len(), active, "{selector}");
        run.check(&selector);
    }
    for update in difference(&run.world, &World::new()) {
        run.update(update);
    }
    run.flush();
    assert_eq!(run.dataplane.policy, Default::default());
}

#[test]
fn a_rule_that_cannot_be_read_denies_what_the_rest_of_it_matches() {
    let mut world = World::new();
    apply(&mut world, "workload h1 n/a ip=10.0.0.1 labels=a=x");
    let mut run = run(&world);
    let values: Vec<String> = (0..2500).map(|number| format!("'value-number-{number}'")).collect();
    let long = format!("a in {{{}}}", values.join(", "));
    let to_80 = |source: Value, ports: Value| json!({"action": "Allow", "protocol": "TCP", "source": source, "destination": {"ports": ports}});
    let rules = [
        to_80(json!({"selector": "has(a)"}), json!([80])),
        to_80(json!({"selector": "has("}), json!([80])),
        to_80(json!({"selector": "has(a)", "notSelector": "nonsense"}), json!([80])),
        to_80(json!({"selector": "has(a)"}), json!([80, "90:80"])),
        // Each selector alone is short enough, but not both joined.
        to_80(json!({"selector": &long, "notSelector": &long}), json!([80])),
    ];
    run.update(stored(json!({"selector": "all()", "ingress": rules})));
    run.flush();
    let policy = run.dataplane.policy.policies.values().next().expect("the policy is active");
    let seen: Vec<(RuleAction, usize, usize)> = policy
        .inbound_rules
        .iter()
        .map(|rule| (rule.action, rule.source.ip_set_ids.len(), rule.destination.ports.len()))
        .collect();
    let expected = [
        (RuleAction::Allow, 1, 1),
        (RuleAction::Deny, 0, 1),
        (RuleAction::Deny, 1, 1),
        (RuleAction::Deny, 1, 0),
        (RuleAction::Deny, 1, 1),
    ];
    assert_eq!(seen, expected);
    run.check(&"broken rules");
}

#[test]
fn a_missing_profile_denies_everything() {
    let mut world = World::new();
    apply(&mut world, "workload h1 n/a ip=10.0.0.1 profiles=gone");
    let run = run(&world);
    let profile = &run.dataplane.policy.profiles["gone"];
    for rules in [&profile.inbound_rules, &profile.outbound_rules] {
        assert_eq!(rules.iter().map(|rule| rule.action).collect::<Vec<_>>(), [RuleAction::Deny]);
    }
}

#[test]
fn a_spoofing_endpoint_is_missing_unless_spoofing_is_allowed() {
    let mut plain = World::new();
    apply(
        &mut plain,
        "workload h1 n/a ip=10.0.0.1 labels=a=x\n\
         workload h2 n/b ip=10.0.0.2 labels=a=x\n\
         policy GlobalNetworkPolicy/p selector=\"a == 'x'\"\n\
         \x20 in allow src=\"a == 'x'\"\n\
         workload h1 n/c ip=10.0.0.3",
    );
    let mut spoofing = plain.clone();
    for entry in spoofing.values_mut() {
        // One is on this host and one elsewhere: no policy may rely on the address of either.
        let FeedEntry::WorkloadEndpoint(key, Some(endpoint)) = entry else { continue };
        if key.workload != "n/c" {
            endpoint.allow_spoofed_source_prefixes.push("172.16.189.0/24".parse().unwrap());
        }
    }
    for (allowed, expected) in [(false, 1), (true, 2)] {
        let mut config = GraphConfig { host: HOST.into(), ..GraphConfig::default() };
        config.allows_source_spoofing = allowed;
        let mut run = Run::with(config, false);
        run.in_sync();
        let mut before = World::new();
        // An endpoint is also removed when it asks to spoof later, and added again when it stops asking.
        for (world, workloads) in [(&spoofing, expected), (&plain, 2), (&spoofing, expected), (&plain, 2)] {
            for update in difference(&before, world) {
                run.update(update);
            }
            before.clone_from(world);
            run.flush();
            let state = &run.dataplane.policy;
            assert_eq!(state.workloads.len(), workloads, "allowed: {allowed}");
            let members: usize = state.sets.values().map(|(_, members)| members.len()).sum();
            assert_eq!(members, if workloads == 2 { 2 } else { 0 }, "allowed: {allowed}");
        }
    }
}

#[test]
fn an_endpoint_without_an_interface_is_missing() {
    let mut world = World::new();
    apply(&mut world, "workload h1 n/a ip=10.0.0.1");
    for value in world.values_mut() {
        if let FeedEntry::WorkloadEndpoint(_, Some(endpoint)) = value {
            endpoint.name.clear();
        }
    }
    assert!(run(&world).dataplane.policy.workloads.is_empty());
}
