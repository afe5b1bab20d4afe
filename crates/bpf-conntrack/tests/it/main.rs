//! A pass over a real map.

use anyhow::{Context as _, Result};
use bpf::Layout as _;
use bpf::layout::V4;
use bpf::layout::conntrack::{Entry, Key, Leg, Tracking, Value, flags};
use bpf::{Definition, Kind, Map, Table};
use bpf_conntrack::{Destinations, Paced, Reason, Report, Sweep, Timeouts, sweep};
use std::collections::BTreeMap;

const SECOND: u64 = 1_000_000_000;
const NOW: u64 = 1_000_000 * SECOND;

struct AnyBackend;

impl Destinations<V4> for AnyBackend {
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

/// A clock that stands still, and an action after each batch.
struct Still<A>(A);

impl<A: FnMut(usize) -> bool> Paced for Still<A> {
    fn now(&self) -> u64 {
        NOW
    }

    fn after_batch(&mut self, entries: usize) -> bool {
        (self.0)(entries)
    }
}

fn connections(entries: u32) -> Result<Map> {
    let definition = Definition {
        name: "test_ct".to_owned(),
        kind: Kind::LruHash,
        key: Key::<V4>::SIZE,
        value: Value::<V4>::SIZE,
        entries,
        flags: 0,
    };
    Map::create(definition).context("needs root")
}

fn udp(age: u64, entry: Entry<V4>) -> Value<V4> {
    Value { rst_seen: 0, last_seen: NOW - age * SECOND, flags: 0, entry }
}

fn key(protocol: u8, source: u16, destination: ([u8; 4], u16)) -> Key<V4> {
    Key::new(protocol, ([10, 0, 0, 9], source), destination).0
}

fn pass(map: &Map, state: &mut Sweep<V4>) -> Result<Report> {
    Ok(sweep(map, state, &AnyBackend, &mut Still(|_| true))?)
}

#[test]
fn ended_connections_are_removed_and_others_kept() -> Result<()> {
    let map = connections(1 << 16)?;
    let table = Table::<Key<V4>, Value<V4>>::new(&map)?;
    for port in 0..10_000 {
        let value = udp(if port % 10 == 0 { 61 } else { 1 }, Entry::Normal(Tracking::default()));
        table.set(&key(17, port, ([10, 1, 1, 1], 53)), &value)?;
    }
    let mut state = Sweep::new(Timeouts::default());
    let report = pass(&map, &mut state)?;
    assert_eq!((report.entries, report.revived), (10_000, 0));
    assert_eq!(report.deleted, BTreeMap::from([(Reason::Udp, 1_000)]));
    assert_eq!(table.entries()?.len(), 9_000);
    assert_eq!(pass(&map, &mut state)?.deleted, BTreeMap::new());
    Ok(())
}

#[test]
fn a_flow_with_nat_is_removed_with_its_own_stub_only() -> Result<()> {
    let map = connections(64)?;
    let table = Table::<Key<V4>, Value<V4>>::new(&map)?;
    let service = ([10, 96, 0, 1], 53);
    let reverse = |port, backend: [u8; 4]| {
        let key = Key::<V4>::new(17, ([10, 0, 0, 9], port), (backend, 53));
        let nat = Tracking { original_address: service.0, original_port: service.1, ..Tracking::default() };
        let flags = if key.1 { flags::SOURCE_IS_B } else { 0 };
        (key.0, Value { flags, ..udp(61, Entry::Reverse(nat)) })
    };
    let (gone, state_of_gone) = reverse(1, [10, 1, 1, 1]);
    let (old, state_of_old) = reverse(2, [10, 1, 1, 1]);
    let (new, mut state_of_new) = reverse(2, [10, 1, 1, 2]);
    state_of_new.last_seen = NOW;
    for (key, value) in [(gone, state_of_gone), (old, state_of_old), (new, state_of_new)] {
        table.set(&key, &value)?;
    }
    // The client of port 2 has been sent to another backend since: its stub refers to that flow.
    table.set(&key(17, 1, service), &udp(0, Entry::Forward(gone, 0)))?;
    table.set(&key(17, 2, service), &udp(0, Entry::Forward(new, 0)))?;
    let report = pass(&map, &mut Sweep::new(Timeouts::default()))?;
    let mut left: Vec<Key<V4>> = table.entries()?.into_iter().map(|(key, _)| key).collect();
    left.sort_unstable();
    let mut expected = vec![new, key(17, 2, service)];
    expected.sort_unstable();
    assert_eq!(left, expected);
    // The first stub may have been seen on its own, after its entry was removed.
    assert_eq!(report.deleted.values().sum::<u64>(), 3, "{report:?}");
    Ok(())
}

#[test]
fn connections_of_a_removed_workload_get_the_flag() -> Result<()> {
    let map = connections(64)?;
    let table = Table::<Key<V4>, Value<V4>>::new(&map)?;
    let leg = Leg { syn: true, ack: true, packets: 7, ..Leg::default() };
    let value = udp(1, Entry::Normal(Tracking { a_to_b: leg, b_to_a: leg, ..Tracking::default() }));
    let (of_removed, other) = (key(6, 1, ([10, 1, 1, 1], 80)), key(6, 1, ([10, 1, 1, 2], 80)));
    table.set(&of_removed, &value)?;
    table.set(&other, &value)?;
    let mut state = Sweep::new(Timeouts::default());
    state.workloads_removed([[10, 1, 1, 1]]);
    assert_eq!(pass(&map, &mut state)?.resets, 1);
    assert_eq!(table.get(&of_removed)?, Some(Value { flags: flags::SEND_RESET, ..value }));
    assert_eq!(table.get(&other)?, Some(value));
    Ok(())
}

#[test]
fn a_pass_can_be_aborted_after_a_batch_and_removed_workloads_wait() -> Result<()> {
    let map = connections(1 << 16)?;
    let table = Table::<Key<V4>, Value<V4>>::new(&map)?;
    for port in 0..20_000 {
        table.set(&key(17, port, ([10, 1, 1, 1], 53)), &udp(61, Entry::Normal(Tracking::default())))?;
    }
    let mut batches = Vec::new();
    let mut paced = Still(|entries| {
        batches.push(entries);
        false
    });
    let report = sweep(&map, &mut Sweep::new(Timeouts::default()), &AnyBackend, &mut paced)?;
    assert_eq!(batches.len(), 1, "{batches:?}");
    assert!(batches[0] < 20_000, "a batch is a part of the map: {batches:?}");
    assert_eq!(table.entries()?.len() as u64, 20_000 - report.deleted[&Reason::Udp]);
    Ok(())
}

/// A clock that makes a packet of every flow arrive after entries were read, and before they are deleted.
struct Busy<'a>(&'a Table<'a, Key<V4>, Value<V4>>);

impl Paced for Busy<'_> {
    fn now(&self) -> u64 {
        for (key, value) in self.0.entries().expect("entries") {
            self.0.set(&key, &Value { last_seen: NOW, ..value }).expect("a packet");
        }
        NOW
    }

    fn after_batch(&mut self, _: usize) -> bool {
        true
    }
}

struct NoBackend;

impl Destinations<V4> for NoBackend {
    fn has_backend(&self, _: ([u8; 4], u16), _: ([u8; 4], u16), _: u8) -> bool {
        false
    }

    fn is_service(&self, _: [u8; 4], _: u16, _: u8) -> bool {
        false
    }

    fn generation(&self) -> u64 {
        0
    }
}

#[test]
fn a_packet_saves_an_idle_flow_but_not_one_whose_backend_is_gone() -> Result<()> {
    let map = connections(64)?;
    let table = Table::<Key<V4>, Value<V4>>::new(&map)?;
    let silent = key(17, 1, ([10, 1, 1, 1], 53));
    let stale = key(17, 2, ([10, 1, 1, 1], 53));
    table.set(&silent, &udp(61, Entry::Normal(Tracking::default())))?;
    table.set(&stale, &udp(1, Entry::Reverse(Tracking::default())))?;
    let report = sweep(&map, &mut Sweep::new(Timeouts::default()), &NoBackend, &mut Busy(&table))?;
    assert_eq!(table.entries()?.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), [silent]);
    assert_eq!((report.revived, report.deleted), (1, BTreeMap::from([(Reason::StaleNat, 1)])));
    Ok(())
}

#[test]
fn connections_with_limits_are_counted_by_device() -> Result<()> {
    let map = connections(64)?;
    let table = Table::<Key<V4>, Value<V4>>::new(&map)?;
    let open = |device: u32| Leg { device, ..Leg::default() };
    let opener = |device: u32| Leg { opener: true, ..open(device) };
    let closed = |leg: Leg| Leg { fin: true, ..leg };
    let (to, from) = (flags::LIMIT_INGRESS, flags::LIMIT_EGRESS);
    for (number, (flags, there, back)) in [
        (to, opener(2), open(7)),
        (to | from, opener(7), open(8)),
        (from, opener(7), open(2)),
        // Unanswered, ended, half closed, and without a limit.
        (to, opener(2), open(0)),
        (to, closed(opener(2)), closed(open(7))),
        (from, Leg { rst: true, ..opener(7) }, open(2)),
        (from, closed(opener(9)), open(2)),
        (0, opener(7), open(7)),
    ]
    .into_iter()
    .enumerate()
    {
        let key = key(6, u16::try_from(number)? + 1, ([10, 1, 1, 1], 80));
        // Which end is called A does not matter.
        let (a_to_b, b_to_a) = if number % 2 == 0 { (there, back) } else { (back, there) };
        let entry = Entry::Normal(Tracking { a_to_b, b_to_a, ..Tracking::default() });
        table.set(&key, &Value { flags, ..udp(1, entry) })?;
    }
    let report = pass(&map, &mut Sweep::new(Timeouts::default()))?;
    let expected = [((7, false), 2), ((7, true), 1), ((8, true), 1), ((9, false), 1)];
    assert_eq!(report.limited, BTreeMap::from(expected));
    Ok(())
}
