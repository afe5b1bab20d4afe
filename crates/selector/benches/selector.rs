//! Parse and evaluation speed on selectors of the kind that policies use. Goals: a typical selector parses in under
//! two microseconds, and a simple one is evaluated ten million times per second on one core.

use std::collections::{BTreeMap, HashMap};

use divan::{Bencher, black_box, counter::ItemsCount};
use selector::Selector;

fn main() {
    divan::main();
}

const SIMPLE: &str = "app == 'web'";
const TYPICAL: &str = "projectcalico.org/namespace == 'shop' && app in {'web', 'api'} && !has(quarantine)";

/// Evaluations per timed sample, so that the clock's own cost does not show.
const BATCH: usize = 1000;

fn labels() -> BTreeMap<String, String> {
    [
        ("app", "web"),
        ("pod-template-hash", "5d4f8c7b9"),
        ("projectcalico.org/namespace", "shop"),
        ("projectcalico.org/orchestrator", "k8s"),
        ("projectcalico.org/serviceaccount", "default"),
        ("tier", "frontend"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

#[divan::bench(args = ["all()", SIMPLE, TYPICAL])]
fn parse(text: &str) -> Selector {
    Selector::parse(black_box(text)).unwrap()
}

#[divan::bench(args = [SIMPLE, "app != 'web'", "has(app)", "app in {'web', 'api'}", "app starts with 'w'", "has(absent)", TYPICAL])]
fn evaluate_sorted_map(bencher: Bencher<'_, '_>, text: &str) {
    let selector = Selector::parse(text).unwrap();
    let labels = labels();
    bencher
        .counter(ItemsCount::new(BATCH))
        .bench_local(|| (0..BATCH).filter(|_| black_box(&selector).evaluate(black_box(&labels))).count());
}

#[divan::bench(args = [SIMPLE, TYPICAL])]
fn evaluate_hash_map(bencher: Bencher<'_, '_>, text: &str) {
    let selector = Selector::parse(text).unwrap();
    let labels: HashMap<String, String> = labels().into_iter().collect();
    bencher
        .counter(ItemsCount::new(BATCH))
        .bench_local(|| (0..BATCH).filter(|_| black_box(&selector).evaluate(black_box(&labels))).count());
}

#[divan::bench(args = [SIMPLE, TYPICAL])]
fn evaluate_pairs(bencher: Bencher<'_, '_>, text: &str) {
    let selector = Selector::parse(text).unwrap();
    let labels: Vec<(String, String)> = labels().into_iter().collect();
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        (0..BATCH).filter(|_| black_box(&selector).evaluate(black_box(labels.as_slice()))).count()
    });
}
