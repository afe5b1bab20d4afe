//! Whatever fails, in whichever order, no packet passes that every policy since the last complete one denies; and once
//! nothing fails any more, the kernel reaches the desired state.
//!
//! A scenario of updates runs against kernels built from maps. From each call on, one or more calls are made to fail,
//! in each of several ways. After each round, packets are sent through the kernel's rules at that time.

mod kernels;
mod scenario;
mod world;

use crate::iptables;
use kernels::{Plan, WAYS, Way, lock};
use rules::Backend;
use scenario::{Policy, scenario};
use std::time::Duration;
use world::{Known, World};

/// Runs the scenario with these calls failing; returns how many calls there were.
fn run(
    backend: Backend,
    variant: iptables::Backend,
    failing: std::ops::Range<usize>,
    way: Way,
    rules_only: bool,
    known: &Known,
) -> usize {
    let what = format!("{backend:?} {variant:?}: calls {failing:?} fail: {way:?} (only rules: {rules_only})");
    let scenario = scenario(backend);
    let mut world = World::new(backend, variant);
    world.tell(&Policy::default(), &scenario[0]);
    assert!(world.round().0, "{what}");
    *lock(&world.plan) = Plan { calls: 0, failing, way: Some(way), rules_only };
    // The sources that may pass: those that some policy since the last complete one lets pass.
    let mut may_pass = scenario[0].passing(backend);
    for (place, pair) in scenario.windows(2).enumerate() {
        let (before, next) = (&pair[0], &pair[1]);
        let wanted = next.passing(backend);
        may_pass.extend(&wanted);
        world.tell(before, next);
        for _ in 0..2 {
            let (complete, _) = world.round();
            let pass = world.passing(known);
            assert!(
                pass.is_subset(&may_pass),
                "{what}, moment {place}: {pass:?} pass, and only {may_pass:?} may"
            );
            if complete {
                assert_eq!(pass, wanted, "{what}, moment {place}");
                may_pass.clone_from(&wanted);
            }
            world.now += Duration::from_millis(200);
        }
    }
    let calls = lock(&world.plan).calls;
    // From here on nothing fails, and time passes.
    lock(&world.plan).way = None;
    for _ in 0..12 {
        let (complete, again) = world.round();
        world.now += again.unwrap_or(Duration::from_millis(200));
        if complete && again.is_none_or(|again| again > Duration::from_secs(1)) {
            break;
        }
    }
    let wanted = scenario[scenario.len() - 1].passing(backend);
    assert_eq!(world.passing(known), wanted, "{what}: in the end");
    assert!(
        !world.has_refused,
        "{what}: {:?} {:?}",
        world.filter.rules.refused(),
        world.filter.sets.refused()
    );
    calls
}

fn fail_everywhere(backend: Backend, variant: iptables::Backend) {
    let known = Known::new(backend);
    let calls = run(backend, variant, 0..0, Way::Odd, false, &known);
    assert!(calls > 20, "{calls}");
    for way in WAYS {
        for first in 1..=calls {
            for count in [1, 2, 3, 10, 1000] {
                for rules_only in [false, true] {
                    run(backend, variant, first..first + count, way, rules_only, &known);
                }
            }
        }
    }
}

#[test]
fn nothing_is_let_through_by_iptables_nft() {
    fail_everywhere(Backend::Iptables, iptables::Backend::Nft);
}

#[test]
fn nothing_is_let_through_by_iptables_legacy() {
    fail_everywhere(Backend::Iptables, iptables::Backend::Legacy);
}

#[test]
fn nothing_is_let_through_by_nftables() {
    fail_everywhere(Backend::Nftables, iptables::Backend::Nft);
}
