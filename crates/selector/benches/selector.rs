//! Parse and evaluation speed on selectors of the kind that policies use, on one core.
//!
//! Each figure has its floor measured in the same rounds: for a parse, the hash that the id needs anyway; for an
//! evaluation, the one look-up in the label map that it cannot do without.

#![expect(clippy::print_stdout, reason = "the table is this program's output")]

use selector::Selector;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;
use testkit::{Report, median};

const SIMPLE: &str = "app == 'web'";
const TYPICAL: &str = "projectcalico.org/namespace == 'shop' && app in {'web', 'api'} && !has(quarantine)";
const ROUNDS: usize = 25;
const CALLS: u32 = 20_000;

fn main() -> anyhow::Result<()> {
    let labels: BTreeMap<String, String> = [
        ("app", "web"),
        ("pod-template-hash", "5d4f8c7b9"),
        ("projectcalico.org/namespace", "shop"),
        ("projectcalico.org/orchestrator", "k8s"),
        ("projectcalico.org/serviceaccount", "default"),
        ("tier", "frontend"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    let simple = Selector::parse(SIMPLE)?;
    let typical = Selector::parse(TYPICAL)?;
    let canonical = typical.canonical().to_owned();

    let mut times: [Vec<f64>; 5] = Default::default();
    for _ in 0..ROUNDS {
        times[0].push(nanoseconds(|| Selector::parse(black_box(TYPICAL)).is_ok()));
        times[1].push(nanoseconds(|| selector::unique_id("s", black_box(&canonical)).len() == 43));
        times[2].push(nanoseconds(|| black_box(&simple).evaluate(black_box(&labels))));
        times[3].push(nanoseconds(|| black_box(&labels).get(black_box("app")).is_some()));
        times[4].push(nanoseconds(|| black_box(&typical).evaluate(black_box(&labels))));
    }
    let [parse, hash, evaluate, look_up, evaluate_typical] = times.map(median);

    let mut report = Report::new("selector");
    report.row(
        "parse of a typical selector, id included",
        &format!("{:.2} µs", parse / 1000.0),
        &format!("the id's hash alone: {:.2} µs", hash / 1000.0),
        &format!("{:.2}", parse / hash),
        "under 2 µs",
    );
    for (what, time) in
        [("simple evaluations", evaluate), ("evaluations of the typical selector", evaluate_typical)]
    {
        report.row(
            &format!("{what}, one core"),
            &format!("{:.1} M/s", 1000.0 / time),
            &format!("one look-up in the labels: {:.1} M/s", 1000.0 / look_up),
            &format!("{:.2}", time / look_up),
            "at least 10 M/s for simple ones",
        );
    }
    print!("{}", report.markdown());
    report.record()
}

/// The time of one call, from a batch large enough that the clock's own cost does not show.
fn nanoseconds(mut call: impl FnMut() -> bool) -> f64 {
    let start = Instant::now();
    for _ in 0..CALLS {
        black_box(call());
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
}
