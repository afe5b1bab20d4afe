//! Ingest and queries in this process, in virtual time.

use crate::world::{Flows, INTERVAL};
use anyhow::{Context as _, Result};
use flows::query::{
    Filter, GroupBy, HintType, HintsRequest, ListRequest, Page, Sort, StatisticType, StatisticsRequest,
    StringMatch, TimeRange, hints, list, statistics,
};
use goldmane::for_tests::{Aggregator, AggregatorOptions};
use goldmane_api::convert::from_row;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};
use testkit::Report;

const BUCKETS: i64 = 240;
/// The time that Calico's tests allow per flow.
const CALICOS_LIMIT: Duration = Duration::from_micros(13);
/// The memory of Calico's structures for a key that is always active: 242 windows of 88 bytes, and an entry in 242
/// sets.
const CALICOS_BYTES_PER_KEY: f64 = 242.0 * 88.0 + 242.0 * 17.0;
/// About the number of flows in one frame of a connection.
const BATCH: usize = 32;
/// How often each query is repeated.
const TIMES: usize = 60;

/// A server's memory with a clock that the benchmark advances.
struct World {
    aggregator: Arc<Aggregator>,
    time: Arc<AtomicI64>,
    flows: Flows,
}

impl World {
    fn new(keys: usize) -> Self {
        let time = Arc::new(AtomicI64::new(1_700_000_010));
        let clock = Arc::clone(&time);
        let aggregator =
            Aggregator::new(AggregatorOptions::default(), Arc::new(move || clock.load(Ordering::Relaxed)));
        Self { aggregator, time, flows: Flows::new(keys) }
    }

    /// Reads and counts one bucket's flows, then advances. Returns the processor time used, so that other work on the
    /// machine does not count.
    fn ingest(&self) -> Result<Duration> {
        let messages = self.flows.messages(self.time.load(Ordering::Relaxed) - INTERVAL);
        let sender: Arc<str> = Arc::from("10.0.0.1");
        let begin = processor_time()?;
        for batch in messages.chunks(BATCH) {
            self.aggregator.ingest(&sender, |counting| {
                for message in batch {
                    counting.update(message);
                }
            });
        }
        self.time.fetch_add(INTERVAL, Ordering::Relaxed);
        self.aggregator.turn();
        Ok(processor_time()?.saturating_sub(begin))
    }
}

/// Measures one hour of ingest, then queries.
pub(crate) fn measure(keys: usize, report: &mut Report) -> Result<()> {
    let world = World::new(keys);
    drop(world.flows.messages(0));
    telemetry::memory::give_back();
    let before = resident()?;
    let mut busy = Duration::ZERO;
    for _ in 0..BUCKETS {
        busy += world.ingest()?;
    }
    telemetry::memory::give_back();
    let megabytes = (resident()? - before) / 1e6;
    let count = keys as f64 * BUCKETS as f64;
    let each = busy.as_secs_f64() / count;
    report.row(
        &format!("flows counted per second of a processor, {keys} keys over an hour"),
        &format!("{:.0}", 1.0 / each),
        &format!("{:.0} (Calico's limit)", 1.0 / CALICOS_LIMIT.as_secs_f64()),
        &format!("{:.1}x", CALICOS_LIMIT.as_secs_f64() / each),
        "5x",
    );
    let calicos = keys as f64 * CALICOS_BYTES_PER_KEY / 1e6;
    report.row(
        &format!("memory, {keys} keys over an hour"),
        &format!("{megabytes:.0} MB"),
        &format!("{calicos:.0} MB (Calico, computed)"),
        &format!("{:.2}", megabytes / calicos),
        "0.25",
    );
    questions(&world, keys, report)
}

type Question = (&'static str, Box<dyn Fn(&Aggregator)>);

/// Queries the whole hour while flows arrive as fast as possible.
fn questions(world: &World, keys: usize, report: &mut Report) -> Result<()> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ingest = scope.spawn(|| -> Result<(u64, Duration)> {
            let (mut count, mut busy) = (0, Duration::ZERO);
            while !is_over.load(Ordering::Relaxed) {
                busy += world.ingest()?;
                count += world.flows.len() as u64;
            }
            Ok((count, busy))
        });
        for (name, ask) in all_questions() {
            let mut times: Vec<f64> = (0..TIMES)
                .map(|_| {
                    let begin = Instant::now();
                    ask(&world.aggregator);
                    begin.elapsed().as_secs_f64() * 1e3
                })
                .collect();
            times.sort_by(f64::total_cmp);
            let at = |percent: usize| times[(times.len() - 1) * percent / 100];
            report.row(
                &format!("{name}, {keys} keys, while flows come in: p50 / p99"),
                &format!("{:.1} / {:.1} ms", at(50), at(99)),
                "-",
                "-",
                "-",
            );
        }
        is_over.store(true, Ordering::Relaxed);
        let (count, busy) = ingest.join().map_err(|_| anyhow::anyhow!("the ingest thread panicked"))??;
        report.row(
            &format!("flows counted per second of a processor, {keys} keys, while questions are asked"),
            &format!("{:.0}", count as f64 / busy.as_secs_f64()),
            "-",
            "-",
            "-",
        );
        Ok(())
    })
}

fn all_questions() -> Vec<Question> {
    // The last hour; it stays within the history even when that advances in the meantime.
    let range = |aggregator: &Aggregator| {
        let now = aggregator.now();
        TimeRange { gte: now - (BUCKETS - 20) * INTERVAL, lt: now }
    };
    let page = Page { number: 0, size: 100 };
    let filter = || Filter {
        source_namespaces: vec![StringMatch { value: "namespace-7".to_owned(), is_fuzzy: false }],
        ..Filter::default()
    };
    vec![
        (
            "a list of everything",
            Box::new(move |aggregator| {
                let (range, filter) = (range(aggregator), Filter::default());
                let request = ListRequest { range, filter, sort: Sort::Time, page: Page::default() };
                let found = list(&aggregator.snapshot(), &request);
                std::hint::black_box(found.items.iter().map(from_row).count());
            }),
        ),
        (
            "a list of one namespace, a page of 100",
            Box::new(move |aggregator| {
                let request =
                    ListRequest { range: range(aggregator), filter: filter(), sort: Sort::DestName, page };
                std::hint::black_box(list(&aggregator.snapshot(), &request).items.len());
            }),
        ),
        (
            "hints of names",
            Box::new(move |aggregator| {
                let (range, filter) = (range(aggregator), Filter::default());
                let request = HintsRequest { of: HintType::SourceName, range, filter, page };
                std::hint::black_box(hints(&aggregator.snapshot(), &request).items.len());
            }),
        ),
        (
            "statistics of all rules, as a series",
            Box::new(move |aggregator| {
                let request = StatisticsRequest {
                    range: range(aggregator),
                    of: StatisticType::Packets,
                    group_by: GroupBy::PolicyRule,
                    policy: None,
                    is_series: true,
                };
                std::hint::black_box(
                    statistics(&aggregator.snapshot(), &request).map(|found| found.len()).ok(),
                );
            }),
        ),
    ]
}

/// The processor time that this thread has used.
pub(crate) fn processor_time() -> Result<Duration> {
    let figures = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = figures.split(' ').next().context("schedstat")?.parse()?;
    Ok(Duration::from_nanos(nanoseconds))
}

/// The resident memory of this process.
fn resident() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes * 1024.0)
}
