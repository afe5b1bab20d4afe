//! The whole graph at the sizes of Calico's own benchmark: the time from nothing to the messages of the first flush,
//! the memory that this takes and keeps, and the cost of one change after that.
//!
//! The shapes (endpoints, labels, policies, order of delivery) are those of Calico's `calc_graph_bench_test.go`, so the
//! figures can be compared with its own. Memory is measured in one process per shape, which counts every heap
//! allocation.

#![expect(clippy::print_stdout, reason = "the table is this program's output")]

mod shapes;

use calc::network::NetworkSettings;
use calc::{CalcGraph, GraphConfig};
use messages::ToDataplane;
use model::feed::{FeedEntry, Status};
use shapes::{LOCAL, Shape};
use std::time::Instant;
use testkit::{Report, heap, median};

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

const ROUNDS: usize = 3;

/// The processor's seconds in this thread so far. The graph works in one thread, so on an idle machine this is the time
/// that passes; on a busy machine it is the time that would pass on an idle one.
fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Seconds and megabytes of Calico's own graph, on the machine on which the goals were set.
struct Calico {
    seconds: f64,
    megabytes: f64,
}

fn main() -> anyhow::Result<()> {
    if let Ok(shape) = std::env::var("TORTIE_CALC_MEMORY_OF") {
        return memory_of(&shape);
    }
    let mut report = Report::new("calc");
    let calico = [
        (Shape::tags(), Calico { seconds: 8.7, megabytes: 283.0 }),
        (Shape::network_sets(), Calico { seconds: 21.0, megabytes: 792.0 }),
        (Shape::customers(), Calico { seconds: 14.0, megabytes: 316.0 }),
    ];
    for (shape, calico) in &calico {
        full_load(&mut report, shape, calico)?;
    }
    changes(&mut report);
    label_index(&mut report);
    report.note(
        "Calico's figures are those of its own benchmark, measured on an idle machine before this run. Ours are the \
         processor's time, which is the time that passes on an idle machine, because the graph is one thread. Kept memory is what the graph holds after the first flush, as in Calico's benchmark; the peak is \
         that of the whole load and flush, with each message dropped as it comes.",
    );
    print!("{}", report.markdown());
    report.record()
}

fn graph() -> CalcGraph {
    // As in Calico's benchmark, which is configured without routes.
    let network = NetworkSettings { without_routes: true, without_vteps: true, ..NetworkSettings::default() };
    CalcGraph::new(GraphConfig { host: LOCAL.into(), network, ..GraphConfig::default() })
}

/// From nothing to the messages of the first flush.
fn load(updates: impl Iterator<Item = FeedEntry>) -> (CalcGraph, Vec<ToDataplane>) {
    let mut graph = graph();
    for update in updates {
        graph.on_entry(update);
    }
    graph.on_status(Status::InSync);
    let mut out = Vec::new();
    graph.flush(&mut out);
    (graph, out)
}

fn full_load(report: &mut Report, shape: &Shape, calico: &Calico) -> anyhow::Result<()> {
    let (mut seconds, mut passed) = (Vec::new(), Vec::new());
    let mut facts = String::new();
    for _ in 0..ROUNDS {
        let updates: Vec<FeedEntry> = shape.updates().collect();
        let (start, wall) = (processor_seconds(), Instant::now());
        let (graph, out) = load(updates.into_iter());
        seconds.push(processor_seconds() - start);
        passed.push(wall.elapsed().as_secs_f64());
        let stats = graph.stats();
        let endpoints = out.iter().filter(|it| matches!(it, ToDataplane::WorkloadEndpointUpdate(..))).count();
        anyhow::ensure!(endpoints == shape.locals, "{endpoints} local endpoints were sent");
        facts = format!(
            "{} sets, {} policies, {} messages",
            stats.active_local_selectors,
            stats.active_local_policies,
            out.len()
        );
    }
    let ours = median(seconds);
    report.row(
        &format!("{}: first flush ({facts})", shape.name),
        &format!("{ours:.2} s ({:.2} s passed)", median(passed)),
        &format!("Calico: {} s", calico.seconds),
        &format!("{:.1}x", calico.seconds / ours),
        &format!("at most {:.1} s", calico.seconds / 5.0),
    );
    let [kept, peak, resident] = child(shape.name)?;
    report.row(
        &format!("{}: memory kept", shape.name),
        &format!("{kept:.0} MB (peak {peak:.0} MB, resident peak {resident:.0} MB)"),
        &format!("Calico: {} MB", calico.megabytes),
        &format!("{:.2}", kept / calico.megabytes),
        &format!("at most {:.0} MB", calico.megabytes / 4.0),
    );
    Ok(())
}

/// Measures the memory of a shape in another process: kept, peak and resident, in megabytes.
fn child(shape: &str) -> anyhow::Result<[f64; 3]> {
    let output =
        std::process::Command::new(std::env::current_exe()?).env("TORTIE_CALC_MEMORY_OF", shape).output()?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let numbers: Vec<f64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    numbers.try_into().map_err(|_| anyhow::anyhow!("{text}: three numbers expected"))
}

/// In the other process: updates are created one at a time, so that only the graph and its messages count.
fn memory_of(name: &str) -> anyhow::Result<()> {
    let shapes = [Shape::tags(), Shape::network_sets(), Shape::customers()];
    let shape = shapes.iter().find(|shape| shape.name == name);
    let shape = shape.ok_or_else(|| anyhow::anyhow!("no shape {name}"))?;
    let before = heap::now();
    heap::reset_peak();
    let mut graph = graph();
    for update in shape.updates() {
        graph.on_entry(update);
    }
    graph.on_status(Status::InSync);
    // The dataplane takes each message as it comes.
    graph.flush_each(drop);
    let peak = heap::peak() - before;
    let kept = heap::now() - before;
    drop(graph);
    let megabytes = |bytes: usize| bytes as f64 / 1024.0 / 1024.0;
    println!("{} {} {}", megabytes(kept), megabytes(peak), heap::resident_peak()? / 1024.0);
    Ok(())
}

/// One change at a time on the largest shape.
fn changes(report: &mut Report) {
    let shape = Shape::tags();
    let (mut graph, _) = load(shape.updates());
    let update = |entry: FeedEntry, there: bool| if there { entry } else { entry.key().to_owned().gone() };
    let times = measure(&mut graph, 2000, |round| {
        let entry = shapes::tag_endpoint("remotehost", 1_000_000 + round / 2);
        vec![update(entry, round.is_multiple_of(2))]
    });
    row(report, "an endpoint of another host comes or goes", &times);

    let times = measure(&mut graph, 400, |round| {
        let entry = shapes::tag_endpoint(LOCAL, 500 + round / 2);
        vec![update(entry, round.is_multiple_of(2))]
    });
    row(report, "an endpoint of this host comes or goes (with its 645 policies)", &times);

    // A profile with another ten thousand members, whose label a set depends on.
    for number in 0..10_000 {
        let mut entry = shapes::tag_endpoint("remotehost", 2_000_000 + number);
        if let FeedEntry::WorkloadEndpoint(_, Some(endpoint)) = &mut entry {
            endpoint.profile_ids = vec!["kns.big".into()];
        }
        graph.on_entry(entry);
    }
    graph.on_entry(shapes::selector_policy(0, "has(FOO_BAR)", "pcns.stage == 'blue'"));
    graph.flush(&mut Vec::new());
    let times = measure(&mut graph, 60, |round| {
        let stage = if round.is_multiple_of(2) { "blue" } else { "green" };
        vec![shapes::profile("kns.big", &[("pcns.stage", stage)])]
    });
    row(report, "a label of a profile with 10,000 members changes (10,000 addresses come or go)", &times);
    let times = measure(&mut graph, 200, |round| {
        vec![shapes::profile("kns.big", &[("pcns.stage", "green"), ("unused", &round.to_string())])]
    });
    row(report, "the same with a label that no selector names", &times);

    let times = measure(&mut graph, 400, |round| {
        let selector = if round.is_multiple_of(2) { "has(BIFF_BOP)" } else { "has(FOO_BAR)" };
        vec![shapes::selector_policy(0, selector, "pcns.stage == 'blue'")]
    });
    row(report, "the selector of a policy is edited", &times);
    let times = measure(&mut graph, 200, |round| {
        vec![shapes::selector_policy(0, "has(FOO_BAR)", &format!("one-in-40 == 'value-{}'", round % 40))]
    });
    row(
        report,
        "the selector of a rule is edited (a set of 6,250 addresses is made and one removed)",
        &times,
    );
}

/// Microseconds from update to messages, sorted.
fn measure(
    graph: &mut CalcGraph,
    rounds: usize,
    mut updates: impl FnMut(usize) -> Vec<FeedEntry>,
) -> Vec<f64> {
    let mut times = Vec::with_capacity(rounds);
    for round in 0..rounds {
        let updates = updates(round);
        let mut out = Vec::new();
        let start = processor_seconds();
        for update in updates {
            graph.on_entry(update);
        }
        graph.flush(&mut out);
        times.push((processor_seconds() - start) * 1e6);
    }
    times.sort_by(f64::total_cmp);
    times
}

fn row(report: &mut Report, what: &str, times: &[f64]) {
    let at = |share: usize| times[(times.len() * share / 100).min(times.len() - 1)];
    report.row(
        &format!("at 260,000 endpoints and 10,000 policies, {what}: update to messages"),
        &format!("p50 {:.0} µs, p99 {:.0} µs", at(50), at(99)),
        "",
        "",
        "proportional to change",
    );
}

/// Ten thousand selectors on one label, a hundred thousand profiles.
fn label_index(report: &mut Report) {
    let mut seconds = Vec::new();
    for _ in 0..ROUNDS {
        let updates: Vec<FeedEntry> = shapes::many_selectors_and_parents().collect();
        let count = updates.len();
        let start = processor_seconds();
        let (graph, _out) = load(updates.into_iter());
        seconds.push(processor_seconds() - start);
        assert_eq!(graph.stats().active_local_selectors, 10_000, "of {count} updates");
    }
    report.row(
        "label index: 10,000 selectors on one label, 100,000 profiles with an endpoint each: first flush",
        &format!("{:.2} s", median(seconds)),
        "",
        "",
        "",
    );
}
