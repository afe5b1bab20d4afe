//! Work is proportional to change: measured in evaluations of selectors, not in seconds.

use crate::run::Run;
use crate::text::apply;
use crate::world::{World, difference};

fn run(text: &str) -> Run {
    let mut run = Run::new(false);
    run.in_sync();
    let mut world = World::new();
    apply(&mut world, text);
    for update in difference(&World::new(), &world) {
        run.update(update);
    }
    run.flush();
    run
}

fn change(run: &mut Run, text: &str) {
    let mut next = World::new();
    apply(&mut next, text);
    for entry in next.into_values() {
        run.update(entry);
    }
    run.flush();
}

fn evaluations(run: &Run) -> u64 {
    let stats = run.graph.stats();
    stats.label_index_evaluations_true + stats.label_index_evaluations_false
}

#[test]
fn ten_thousand_selectors_on_one_label_cost_an_endpoint_nothing() {
    let mut text = String::from("workload h1 n/local ip=10.0.0.1 labels=local=yes\n");
    for number in 0..10_000 {
        text += &format!(
            "policy GlobalNetworkPolicy/p{number} selector=has(local)\n  in allow src=\"app == 'v{number}'\"\n"
        );
    }
    let mut run = run(&text);
    assert_eq!(run.graph.stats().active_local_selectors, 10_000);
    let before = evaluations(&run);
    change(&mut run, "workload h2 n/a ip=10.0.0.2 labels=app=v77,other=v78");
    change(&mut run, "workload h2 n/b ip=10.0.0.3 labels=app=none");
    assert!(evaluations(&run) - before <= 2, "{}", evaluations(&run) - before);
    run.check(&"10,000 selectors");
}

#[test]
fn a_selector_looks_only_at_candidates() {
    let mut text = String::from("workload h1 n/local ip=10.255.0.1 labels=local=yes\n");
    text += "policy GlobalNetworkPolicy/p selector=has(local)\n  in allow src=\"app == 'none'\"\n";
    for number in 0..2_000u32 {
        let [_, _, high, low] = number.to_be_bytes();
        text += &format!(
            "workload h2 n/w{number} ip=10.0.{high}.{low} labels=app=v{number} profiles=p{}\n",
            number % 50
        );
    }
    for number in 0..50 {
        text += &format!("profile p{number} labels=pcns.name=n{number}\n");
    }
    let mut run = run(&text);
    let before = evaluations(&run);
    change(&mut run, "policy GlobalNetworkPolicy/p selector=has(local)\n  in allow src=\"app == 'v7'\"");
    assert_eq!(evaluations(&run) - before, 1);
    change(
        &mut run,
        "policy GlobalNetworkPolicy/p selector=has(local)\n  in allow src=\"pcns.name == 'n3'\"",
    );
    assert_eq!(evaluations(&run) - before, 41, "the members of one profile");
    change(
        &mut run,
        "policy GlobalNetworkPolicy/p selector=has(local)\n  in allow src=\"app == 'a' && app == 'b'\"",
    );
    assert_eq!(evaluations(&run) - before, 41, "nothing can match it");
    run.check(&"candidates");

    // A label that no selector mentions: no item is looked at.
    change(&mut run, "profile p3 labels=pcns.name=n3,unused=1");
    assert_eq!(evaluations(&run) - before, 41);
    change(&mut run, "policy GlobalNetworkPolicy/p selector=has(local)\n  in allow src=\"unused == '1'\"");
    change(&mut run, "profile p3 labels=pcns.name=n3,unused=2");
    assert_eq!(evaluations(&run) - before, 41 + 80, "40 members when it comes, 40 when it goes");
    run.check(&"profiles");
}

#[test]
fn a_policy_that_selects_nothing_has_no_sets() {
    let mut run = run("workload h1 n/local ip=10.0.0.1 labels=a=x\n\
         policy GlobalNetworkPolicy/p selector=\"a == 'y'\"\n  in allow src=\"has(a)\"");
    let stats = run.graph.stats();
    assert_eq!(
        (stats.cluster_num_policies, stats.active_local_policies, stats.active_local_selectors),
        (1, 0, 0)
    );
    change(&mut run, "workload h1 n/local ip=10.0.0.1 labels=a=y");
    let stats = run.graph.stats();
    assert_eq!(
        (stats.cluster_num_policies, stats.active_local_policies, stats.active_local_selectors),
        (1, 1, 1)
    );
    run.check(&"selects");
}
