//! A server with a history: beyond its hour, across restarts, on a failing disk.

use super::*;
use crate::aggregator::AggregatorOptions;
use flows::query::{GroupBy, StatisticType, StatisticsRequest, statistics};
use flows::{Action, Counters, FlowKey, PolicyHit, RingOptions, Trace};
use goldmane_api::convert::encode_key;
use goldmane_api::proto::{Flow, FlowUpdate};
use prost::Message as _;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use testkit::Folder;

const BEGIN: i64 = 1_700_000_040;
/// Ten minutes.
const RING: RingOptions = RingOptions { interval: 15, buckets: 42, most_keys: 1000 };

struct World {
    aggregator: Arc<Aggregator>,
    time: Arc<AtomicI64>,
}

impl World {
    fn start(folder: &Path, now: i64) -> Self {
        Self::start_with(folder, now, 1 << 20)
    }

    fn start_with(folder: &Path, now: i64, most_bytes: u64) -> Self {
        let time = Arc::new(AtomicI64::new(now));
        let clock = Arc::clone(&time);
        let history = Arc::new(History::open(folder, most_bytes, RING.interval).unwrap());
        let options = AggregatorOptions { ring: RING, ..AggregatorOptions::default() };
        let clock = Arc::new(move || clock.load(Ordering::Relaxed));
        Self { aggregator: Aggregator::with_history(options, clock, Some(history)), time }
    }

    fn history(&self) -> &History {
        self.aggregator.history().unwrap()
    }

    fn now(&self) -> i64 {
        self.time.load(Ordering::Relaxed)
    }

    /// Sends a flow as a node would.
    fn send(&self, name: &str, start: i64, packets: i64) {
        let hit: PolicyHit = "0|default|np:shop/web|allow|0".parse().unwrap();
        let trace = Arc::new(Trace { enforced: vec![hit], pending: vec![] });
        let mut key = FlowKey { action: Action::Allow, trace, ..FlowKey::default() };
        key.source.name = name.into();
        let flow = Flow {
            key: encode_key(&key).into(),
            start_time: start,
            end_time: start,
            packets_in: packets,
            num_connections_live: 2,
            source_labels: vec!["a=1".into()],
            ..Flow::default()
        };
        let message = FlowUpdate { flow: Some(flow) }.encode_to_vec();
        self.aggregator.ingest(&Arc::from("node"), |counting| counting.update(&message));
    }

    /// Lets time pass in turns, with a flow of each name per turn.
    fn pass(&self, seconds: i64, names: &[&str]) {
        for _ in 0..seconds / RING.interval {
            for name in names {
                self.send(name, self.now(), 1);
            }
            self.time.fetch_add(RING.interval, Ordering::Relaxed);
            self.aggregator.turn();
            self.history().write(&self.aggregator);
        }
    }

    /// A snapshot of a range, including files if necessary.
    fn snapshot(&self, range: TimeRange, is_series: bool) -> Snapshot {
        let recent = self.aggregator.snapshot();
        match range.gte < recent.begin() {
            true => self.history().extended(&recent, range, is_series),
            false => recent,
        }
    }

    fn list(&self, gte: i64, lt: i64) -> Vec<(String, i64, i64, Counters)> {
        let range = TimeRange { gte, lt };
        let mut rows: Vec<_> = rows(&self.snapshot(range, false), range)
            .iter()
            .map(|row| (row.entry.key().source.name.to_string(), row.start, row.end, row.counters))
            .collect();
        rows.sort_by(|one, two| one.0.cmp(&two.0));
        rows
    }

    fn packets(&self, gte: i64, lt: i64) -> Vec<(String, u64)> {
        self.list(gte, lt).into_iter().map(|(name, _, _, counters)| (name, counters.packets_in)).collect()
    }
}

fn counted(of: &AtomicU64) -> u64 {
    of.load(Ordering::Relaxed)
}

#[test]
fn flows_that_left_memory_are_read_from_files() {
    let folder = Folder::new("history").unwrap();
    let world = World::start(folder.path(), BEGIN);
    world.pass(1800, &["a", "b"]);
    world.pass(600, &["b"]);
    let end = BEGIN + 2400;
    assert!(world.aggregator.snapshot().begin() > BEGIN + 1700, "only ten minutes are in memory");
    let live = |packets| Counters { packets_in: packets, live: 2, ..Counters::default() };
    assert_eq!(
        world.list(BEGIN, end),
        [("a".to_owned(), BEGIN, BEGIN + 1800, live(120)), ("b".to_owned(), BEGIN, BEGIN + 2400, live(160)),]
    );
    assert_eq!(
        world.list(BEGIN + 300, BEGIN + 360),
        [
            ("a".to_owned(), BEGIN + 300, BEGIN + 360, live(4)),
            ("b".to_owned(), BEGIN + 300, BEGIN + 360, live(4)),
        ]
    );
    // A flow that arrives late for a written block is appended.
    world.send("late", BEGIN + 1900, 7);
    world.pass(900, &[]);
    assert!(world.aggregator.snapshot().begin() > BEGIN + 1900);
    assert_eq!(world.packets(BEGIN + 1860, BEGIN + 1920), [("b".to_owned(), 4), ("late".to_owned(), 7)]);
    let request = StatisticsRequest {
        range: TimeRange { gte: BEGIN, lt: end },
        of: StatisticType::Packets,
        group_by: GroupBy::Policy,
        policy: None,
        is_series: true,
    };
    let found = statistics(&world.snapshot(request.range, true), &request).unwrap();
    assert_eq!(found.len(), 1);
    assert!(found[0].values.len() > 30, "{found:?}");
    assert_eq!(found[0].values.iter().map(|series| series.allowed_in).sum::<u64>(), 120 + 160 + 7);
    assert_eq!(counted(&world.history().figures().lost), 0);
}

#[test]
fn a_restart_loses_nothing_and_counts_nothing_twice() {
    let folder = Folder::new("history").unwrap();
    let world = World::start(folder.path(), BEGIN);
    world.pass(1200, &["a"]);
    let (now, until) = (world.now(), world.history().until().unwrap());
    assert!((now - 120..now).contains(&until));
    drop(world);
    let world = World::start(folder.path(), now + 5);
    // The node resends its last five minutes.
    let mut start = now - 300;
    while start < now {
        world.send("a", start, 1);
        start += RING.interval;
    }
    assert_eq!(world.packets(BEGIN, now + 15), [("a".to_owned(), 80)]);
    // The part that was restored to memory, without files.
    let begin = world.aggregator.snapshot().begin();
    let expected = u64::try_from((now - begin) / RING.interval).unwrap();
    assert_eq!(world.packets(begin, now + 15), [("a".to_owned(), expected)]);
    world.pass(900, &["a"]);
    assert_eq!(world.packets(BEGIN, now + 900), [("a".to_owned(), 80 + 60)]);
    // A flow that is late after that counts as one.
    world.send("late", world.now() - 300, 3);
    assert_eq!(world.packets(world.now() - 330, world.now()).len(), 2);
    let two = History::open(folder.path(), 1000, 15).unwrap_err();
    assert!(two.to_string().contains("another process may have"), "{two}");
}

#[test]
fn an_incomplete_block_is_cut_off() {
    let folder = Folder::new("history").unwrap();
    let world = World::start(folder.path(), BEGIN);
    world.pass(600, &["a"]);
    let (now, until) = (world.now(), world.history().until().unwrap());
    drop(world);
    let newest = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let newest = newest.filter(|path| path.extension().is_some()).max().unwrap();
    let whole = std::fs::read(&newest).unwrap();
    std::fs::write(&newest, &whole[..whole.len() - 3]).unwrap();
    let world = World::start(folder.path(), now);
    assert_eq!(world.history().until(), Some(until - 60), "one block less");
    assert_eq!(counted(&world.history().figures().damaged), 1);
    assert!(std::fs::metadata(&newest).unwrap().len() < whole.len() as u64 - 3);
    // Flows that nodes resend fill the gap.
    let mut start = now - 300;
    while start < now {
        world.send("a", start, 1);
        start += RING.interval;
    }
    assert_eq!(world.packets(BEGIN, now), [("a".to_owned(), 40)]);
}

#[test]
fn a_failing_disk_is_survived_and_reported() {
    let folder = Folder::new("history").unwrap();
    let world = World::start(folder.path(), BEGIN);
    world.pass(300, &["a"]);
    let written = counted(&world.history().figures().written);
    // Creating a file fails where a folder has the same name.
    let names: Vec<i64> = (0..3).map(|hour| BEGIN.div_euclid(3600) * 3600 + hour * 3600).collect();
    let path = |hour: &i64| folder.path().join(format!("flows-{hour}.gz"));
    let kept = std::fs::read(path(&names[0])).unwrap();
    std::fs::remove_file(path(&names[0])).unwrap();
    names.iter().for_each(|hour| std::fs::create_dir(path(hour)).unwrap());
    world.pass(300, &["a"]);
    assert_eq!(counted(&world.history().figures().written), written);
    assert!(counted(&world.history().figures().failures) > 0);
    assert_eq!(counted(&world.history().figures().lost), 0, "everything is still in memory");
    assert_eq!(world.packets(world.now() - 300, world.now()), [("a".to_owned(), 20)]);
    names.iter().for_each(|hour| std::fs::remove_dir(path(hour)).unwrap());
    std::fs::write(path(&names[0]), kept).unwrap();
    world.pass(900, &["a"]);
    assert_eq!(counted(&world.history().figures().lost), 0);
    assert_eq!(world.packets(BEGIN, BEGIN + 1500), [("a".to_owned(), 100)], "nothing is missing");
}

#[test]
fn the_oldest_hour_makes_room() {
    let folder = Folder::new("history").unwrap();
    let world = World::start_with(folder.path(), BEGIN, 16_000);
    world.pass(4 * 3600, &["a"]);
    let figures = world.history().figures();
    assert!(counted(&figures.bytes) <= 16_000, "{figures:?}");
    assert_eq!((counted(&figures.failures), counted(&figures.lost)), (0, 0));
    let old = world.packets(BEGIN, BEGIN + 3600);
    assert!(old.is_empty(), "{old:?}");
    let recent = world.now() - 3600;
    assert_eq!(world.packets(recent, world.now()), [("a".to_owned(), 240)]);
}
