//! What cannot be read restricts: a policy with a broken selector selects nothing, a broken rule denies, a missing profile
//! closes.

use crate::run::{HOST, Run};
use crate::text::apply;
use crate::world::{World, difference};
use api::scalars::{IntOrString, Port};
use calc::GraphConfig;
use model::feed::{FeedValue, RuleAction};
use model::{Key, V1Key};

fn run(world: &World) -> Run {
    let mut run = Run::new(false);
    run.in_sync();
    for update in difference(&World::new(), world) {
        run.update(update);
    }
    run.flush();
    run
}

fn rules(world: &World) -> Vec<(RuleAction, usize, usize)> {
    let run = run(world);
    let policy = run.dataplane.policy.policies.into_values().next().expect("the policy is active");
    policy
        .inbound_rules
        .iter()
        .map(|rule| (rule.action, rule.source.ip_set_ids.len(), rule.destination.ports.len()))
        .collect()
}

#[test]
fn a_policy_whose_selector_cannot_be_read_selects_nothing() {
    let mut world = World::new();
    apply(
        &mut world,
        "workload h1 n/a ip=10.0.0.1 labels=a=x\npolicy GlobalNetworkPolicy/p selector=\"a ==\"\n  in allow",
    );
    let mut run = run(&world);
    assert!(run.dataplane.policy.policies.is_empty());
    // It can be mended, broken again and removed.
    for (selector, active) in [("a == 'x'", 1), ("a ==", 0), ("has(a)", 1), ("((", 0)] {
        let mut next = world.clone();
        apply(&mut next, &format!("policy GlobalNetworkPolicy/p selector=\"{selector}\"\n  in allow"));
        for update in difference(&run.world, &next) {
            run.update(update);
        }
        run.flush();
        assert_eq!(run.dataplane.policy.policies.len(), active, "{selector}");
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
    apply(
        &mut world,
        "workload h1 n/a ip=10.0.0.1 labels=a=x\n\
         policy GlobalNetworkPolicy/p selector=all()\n\
         \x20 in allow src=\"has(a)\" dst-ports=80\n\
         \x20 in allow src=\"has(\" dst-ports=80\n\
         \x20 in log src=\"has(a)\" src-not=\"nonsense\" dst-ports=80",
    );
    assert_eq!(
        rules(&world),
        [(RuleAction::Allow, 1, 1), (RuleAction::Deny, 0, 1), (RuleAction::Deny, 0, 1)]
    );
    for value in world.values_mut() {
        if let FeedValue::Policy(policy) = value {
            policy.inbound_rules.truncate(1);
            policy.inbound_rules[0].destination.ports.push(Port::Other(IntOrString::from("70000")));
        }
    }
    assert_eq!(rules(&world), [(RuleAction::Deny, 1, 1)]);
}

#[test]
fn a_profile_that_is_not_there_closes() {
    let mut world = World::new();
    apply(&mut world, "workload h1 n/a ip=10.0.0.1 profiles=gone");
    let run = run(&world);
    let profile = &run.dataplane.policy.profiles["gone"];
    for rules in [&profile.inbound_rules, &profile.outbound_rules] {
        assert_eq!(rules.iter().map(|rule| rule.action).collect::<Vec<_>>(), [RuleAction::Deny]);
    }
}

#[test]
fn a_value_of_another_kind_than_its_key_changes_nothing() {
    let mut world = World::new();
    apply(
        &mut world,
        "workload h1 n/a ip=10.0.0.1 labels=a=x\npolicy GlobalNetworkPolicy/p selector=has(a)\n  in allow",
    );
    let mut run = run(&world);
    for key in world.keys() {
        let wrong = FeedValue::Text("nonsense".into());
        run.graph.on_update(crate::world::update(key.clone(), Some(wrong), model::feed::Change::Updated));
    }
    let tier = Key::V1(V1Key::Tier { name: "default".into() });
    run.graph.on_update(crate::world::update(tier, Some(FeedValue::Ready(true)), model::feed::Change::New));
    assert_eq!(run.flush(), 0);
    run.check(&"wrong values");
}

#[test]
fn an_endpoint_that_asks_to_spoof_is_missing_unless_that_is_allowed() {
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
    for (key, value) in &mut spoofing {
        // One here and one elsewhere: neither has an address that a policy may trust.
        let FeedValue::WorkloadEndpoint(endpoint) = value else { continue };
        if !matches!(key, Key::V1(V1Key::WorkloadEndpoint { workload, .. }) if workload == "n/c") {
            endpoint.allow_spoofed_source_prefixes.push("172.16.189.0/24".parse().unwrap());
        }
    }
    for (allowed, expected) in [(false, 1), (true, 2)] {
        let mut config = GraphConfig { host: HOST.into(), ..GraphConfig::default() };
        config.allows_source_spoofing = allowed;
        let mut run = Run::with(config, false);
        run.in_sync();
        let mut before = World::new();
        // It also goes when it asks later, and comes back when it stops.
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
        if let FeedValue::WorkloadEndpoint(endpoint) = value {
            endpoint.name.clear();
        }
    }
    assert!(run(&world).dataplane.policy.workloads.is_empty());
}
