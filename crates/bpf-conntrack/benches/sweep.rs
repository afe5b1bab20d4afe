//! The duration of a pass over 1,000,000 entries, and the share of a core that this is at one pass in ten seconds.

use bpf::Layout as _;
use bpf::layout::V4;
use bpf::layout::conntrack::{Entry, Key, Leg, Tracking, Value};
use bpf::{Definition, Kind, Map};
use bpf_conntrack::{Destinations, Paced, Sweep, Timeouts, sweep};
use std::time::Duration;
use testkit::Report;

const SECOND: u64 = 1_000_000_000;
const NOW: u64 = 1_000_000 * SECOND;
const PERIOD: Duration = Duration::from_secs(10);

struct Known;

impl Destinations<V4> for Known {
    fn has_backend(&self, _: ([u8; 4], u16), _: ([u8; 4], u16), _: u8) -> bool {
        true
    }

    fn is_service(&self, _: [u8; 4], _: u16, _: u8) -> bool {
        false
    }

    fn generation(&self) -> u64 {
        0
    }
}

struct Still;

impl Paced for Still {
    fn now(&self) -> u64 {
        NOW
    }

    fn after_batch(&mut self, _: usize) -> bool {
        true
    }
}

/// Fills a map with flows without NAT, or flows to services: an entry with the state and a stub. One in fifty has
/// ended.
fn fill(map: &Map, entries: u32, with_nat: bool) -> bpf::Result<()> {
    let leg = Leg { syn: true, ack: true, ..Leg::default() };
    let mut elements = Vec::with_capacity(entries as usize);
    let mut flow: u32 = 0;
    while elements.len() < entries as usize {
        flow += 1;
        let [_, high, middle, low] = flow.to_be_bytes();
        let client = ([10, high, middle, low], 40_000);
        let (protocol, age) = if flow.is_multiple_of(2) { (6, 7200) } else { (17, 61) };
        let age = if flow.is_multiple_of(50) || flow % 50 == 1 { age } else { 1 };
        let tracking = Tracking {
            a_to_b: leg,
            b_to_a: leg,
            original_address: [10, 96, 0, 1],
            original_port: 80,
            ..Tracking::default()
        };
        let value = |entry| Value { rst_seen: 0, last_seen: NOW - age * SECOND, flags: 0, entry };
        let (key, is_b) = Key::<V4>::new(protocol, client, ([10, 200, 0, 1], 8080));
        if with_nat {
            let mut state = value(Entry::Reverse(tracking));
            state.flags = if is_b { 0x100 } else { 0 };
            let stub = Key::<V4>::new(protocol, client, ([10, 96, 0, 1], 80)).0;
            elements.push((stub.bytes(), value(Entry::Forward(key, 0)).bytes()));
            elements.push((key.bytes(), state.bytes()));
        } else {
            elements.push((key.bytes(), value(Entry::Normal(tracking)).bytes()));
        }
    }
    map.set_many(&elements)
}

/// Processor time of this thread, so that other work on the machine does not count.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

fn timed<T>(work: impl FnOnce() -> bpf::Result<T>) -> bpf::Result<(Duration, T)> {
    let start = processor_time();
    let done = work()?;
    Ok((processor_time() - start, done))
}

#[expect(clippy::print_stdout, reason = "a benchmark's output is its result")]
fn main() -> anyhow::Result<()> {
    let mut report = Report::new("sweep");
    let entries: u32 = if std::env::args().any(|argument| argument == "--test") { 10_000 } else { 1_000_000 };
    for (name, with_nat) in [("without NAT", false), ("to services", true)] {
        let map = Map::create(Definition {
            name: "bench_ct".to_owned(),
            kind: Kind::LruHash,
            key: Key::<V4>::SIZE,
            value: Value::<V4>::SIZE,
            entries: entries + entries / 4,
            flags: 0,
        })?;
        fill(&map, entries, with_nat)?;
        let mut state = Sweep::<V4>::new(Timeouts::default());
        let mut pass = || {
            timed(|| sweep(&map, &mut state, &Known, &mut Still))
                .map(|(time, report)| (time, report.entries, report.deleted.values().sum::<u64>()))
        };
        let (first, seen, deleted) = pass()?;
        pass()?;
        let mut rest = Duration::ZERO;
        for _ in 0..8 {
            rest += pass()?.0;
        }
        let rest = rest / 8;
        let (reading, ()) = timed(|| {
            map.visit_batches(|keys, _| {
                std::hint::black_box(keys.len());
            })
        })?;
        let share = 100.0 * rest.as_secs_f64() / PERIOD.as_secs_f64();
        let what = format!("{seen} entries, {name}");
        report.row(
            &format!("{what}: first pass, {deleted} deleted"),
            &format!("{first:.0?}"),
            &format!("reading only: {reading:.0?}"),
            &format!("{:.2}", first.as_secs_f64() / reading.as_secs_f64()),
            "",
        );
        report.row(
            &format!("{what}: pass in the long run"),
            &format!("{rest:.0?}"),
            &format!("reading only: {reading:.0?}"),
            &format!("{:.2}", rest.as_secs_f64() / reading.as_secs_f64()),
            "",
        );
        report.row(
            &format!("{what}: share of a core at one pass in {PERIOD:?}"),
            &format!("{share:.1} %"),
            "",
            "",
            "below 5 %",
        );
    }
    report.note("Processor time of the thread that sweeps.");
    print!("{}", report.markdown());
    report.record()
}
