//! Entries and their fate: the families of Calico's test data, as a table.

use super::*;
use bpf::layout::V4;
use bpf::layout::conntrack::Leg;
use bpf::layout::conntrack::flags as bits;

const NOW: u64 = 1_000_000 * SECOND;
const SECOND: u64 = 1_000_000_000;

const CLIENT: [u8; 4] = [10, 0, 0, 1];
const BACKEND: [u8; 4] = [10, 0, 0, 2];
const SERVICE: [u8; 4] = [10, 96, 0, 1];

/// One service with one backend: 10.96.0.1:53 at 10.0.0.2:5353, for every protocol.
struct One;

impl Destinations<V4> for One {
    fn has_backend(&self, service: ([u8; 4], u16), backend: ([u8; 4], u16), _: u8) -> bool {
        service == (SERVICE, 53) && backend == (BACKEND, 5353)
    }

    fn is_service(&self, address: [u8; 4], port: u16, _: u8) -> bool {
        (address, port) == (SERVICE, 53)
    }

    fn generation(&self) -> u64 {
        0
    }
}

fn leg(text: &str) -> Leg {
    Leg {
        syn: text.contains('s'),
        ack: text.contains('a'),
        fin: text.contains('f'),
        rst: text.contains('r'),
        ..Leg::default()
    }
}

fn tracking(there: &str, back: &str) -> Tracking<V4> {
    Tracking { a_to_b: leg(there), b_to_a: leg(back), ..Tracking::default() }
}

fn value(age_tenths: u64, flags: u32, entry: Entry<V4>) -> Value<V4> {
    Value { rst_seen: 0, last_seen: NOW - age_tenths * SECOND / 10, flags, entry }
}

fn key(protocol: u8, source: ([u8; 4], u16), destination: ([u8; 4], u16)) -> Key<V4> {
    Key::new(protocol, source, destination).0
}

fn nobody(_: &Key<V4>) -> Option<Value<V4>> {
    None
}

#[test]
fn flows_end_by_protocol_and_state() {
    // Protocol, legs, flags, tenths of seconds without a packet, and why it is removed.
    let table = [
        (6, "s", "", 0, 199, None),
        (6, "s", "", 0, 201, Some(Reason::NotEstablished)),
        (6, "s", "sa", 0, 201, Some(Reason::NotEstablished)),
        (6, "sa", "sa", 0, 35_999, None),
        (6, "sa", "sa", 0, 36_001, Some(Reason::Established)),
        (6, "saf", "sa", 0, 35_000, None),
        (6, "saf", "sa", 0, 36_001, Some(Reason::Established)),
        (6, "saf", "saf", 0, 299, None),
        (6, "saf", "saf", 0, 301, Some(Reason::Closed)),
        (6, "sar", "sa", 0, 399, None),
        (6, "sar", "sa", 0, 401, Some(Reason::Reset)),
        (6, "s", "r", 0, 201, Some(Reason::NotEstablished)),
        // Only one direction is seen: its FIN is enough, and it counts as established.
        (6, "saf", "", bits::DIRECT_RETURN, 301, Some(Reason::Closed)),
        (6, "sa", "", bits::DIRECT_RETURN, 35_999, None),
        (6, "sa", "", bits::DIRECT_RETURN, 36_001, Some(Reason::Established)),
        (17, "", "", 0, 599, None),
        (17, "", "", 0, 601, Some(Reason::Udp)),
        (1, "", "", 0, 49, None),
        (1, "", "", 0, 51, Some(Reason::Icmp)),
        (58, "", "", 0, 51, Some(Reason::Icmp)),
        (253, "", "", 0, 5_999, None),
        (253, "", "", 0, 6_001, Some(Reason::Generic)),
        (132, "", "", 0, 6_001, Some(Reason::Generic)),
    ];
    let sweep = Sweep::new(Timeouts::default());
    for (protocol, there, back, flags, age, expected) in table {
        for (there, back) in [(there, back), (back, there)] {
            let key = key(protocol, (CLIENT, 1234), (BACKEND, 3456));
            let value = value(age, flags, Entry::Normal(tracking(there, back)));
            let expected = expected.map_or(Verdict::Keep, Verdict::Delete);
            let found = sweep.decide(NOW, &key, &value, &One, nobody);
            assert_eq!(found, expected, "{protocol} {there:?} {back:?} {flags:#x} after {age}/10 s");
        }
    }
}

#[test]
fn packets_after_a_reset_keep_a_connection_for_two_minutes_at_most() {
    let sweep = Sweep::new(Timeouts::default());
    let key = key(6, (CLIENT, 1234), (BACKEND, 3456));
    for (age, expected) in [(1_199, Verdict::Keep), (1_201, Verdict::Delete(Reason::AfterReset))] {
        let mut value = value(age, 0, Entry::Normal(tracking("sa", "sa")));
        value.rst_seen = 1;
        assert_eq!(sweep.decide(NOW, &key, &value, &One, nobody), expected);
    }
}

#[test]
fn an_entry_from_the_future_stays() {
    let mut value = value(0, 0, Entry::Normal(tracking("", "")));
    value.last_seen = NOW + SECOND;
    let key = key(17, (CLIENT, 1), (BACKEND, 2));
    assert_eq!(Sweep::new(Timeouts::default()).decide(NOW, &key, &value, &One, nobody), Verdict::Keep);
}

/// The verdicts about a stub in as many passes as it takes until it is due.
fn passes(stub: &Key<V4>, value: &Value<V4>, get: impl Fn(&Key<V4>) -> Option<Value<V4>>) -> Vec<Verdict> {
    let mut sweep = Sweep::new(Timeouts::default());
    let mut verdicts = Vec::new();
    for _ in 0..PASSES {
        verdicts.push(sweep.decide(NOW, stub, value, &One, &get));
        sweep.pass_is_over();
    }
    verdicts
}

#[test]
fn a_stub_lives_as_long_as_its_entry() {
    let reverse = key(6, (CLIENT, 5555), (BACKEND, 8080));
    let stub = key(6, (CLIENT, 5555), (SERVICE, 80));
    let old = value(108_000, 0, Entry::Forward(reverse, 0));
    let count = |age: Option<u64>| {
        let get = |key: &Key<V4>| {
            assert_eq!(*key, reverse);
            age.map(|age| value(age, 0, Entry::Reverse(tracking("sa", "sa"))))
        };
        let verdicts = passes(&stub, &old, get);
        let gone = verdicts.iter().filter(|verdict| **verdict != Verdict::Keep).count();
        (gone, verdicts.into_iter().find(|verdict| *verdict != Verdict::Keep))
    };
    assert_eq!(count(Some(35_000)), (0, None), "its own age does not matter");
    assert_eq!(
        count(Some(72_000)),
        (1, Some(Verdict::Delete(Reason::Established))),
        "asked once in {PASSES} passes"
    );
    assert_eq!(count(None), (1, Some(Verdict::Delete(Reason::NoReverse))));
}

#[test]
fn flows_to_backends_that_are_gone_end_at_once_except_tcp() {
    let reverse = |original: ([u8; 4], u16)| {
        Entry::Reverse(Tracking {
            original_address: original.0,
            original_port: original.1,
            ..tracking("sa", "sa")
        })
    };
    let after = |port| (BACKEND, port);
    let (client, changed) = ((CLIENT, 5555), (CLIENT, 20_000));
    let stale = Some(Reason::StaleNat);
    let stub = |reverse: Key<V4>, port| Entry::Forward(reverse, port);
    // Protocol, source and destination of the key, the entry, and why it is removed.
    let table = [
        (17, client, after(5353), reverse((SERVICE, 53)), None),
        (17, client, after(5354), reverse((SERVICE, 53)), stale),
        (17, client, after(5353), reverse((SERVICE, 54)), stale),
        (132, client, after(5354), reverse((SERVICE, 53)), stale),
        (6, client, after(5354), reverse((SERVICE, 53)), None),
        (17, client, (SERVICE, 53), stub(key(17, client, after(5353)), 0), None),
        (17, client, (SERVICE, 53), stub(key(17, client, after(5354)), 0), stale),
        (17, client, (SERVICE, 54), stub(key(17, client, after(5353)), 0), stale),
        (6, client, (SERVICE, 53), stub(key(6, client, after(5354)), 0), None),
        // The source's port was translated: the keys share only the address.
        (17, client, (SERVICE, 53), stub(key(17, changed, after(5353)), 20_000), None),
        (17, client, (SERVICE, 53), stub(key(17, changed, after(5354)), 20_000), stale),
        // The source was translated: only the other entry has the original, and it is missing.
        (
            17,
            client,
            (SERVICE, 53),
            stub(key(17, ([9, 9, 9, 9], 1), after(5353)), 0),
            Some(Reason::NoReverse),
        ),
        // Not translated although the address belongs to a service.
        (17, client, (SERVICE, 53), Entry::Normal(tracking("", "")), stale),
        (17, client, (SERVICE, 54), Entry::Normal(tracking("", "")), None),
        (6, client, (SERVICE, 53), Entry::Normal(tracking("sa", "sa")), None),
    ];
    for (number, (protocol, source, destination, entry, expected)) in table.into_iter().enumerate() {
        let (key, is_b) = Key::new(protocol, source, destination);
        let flags = if is_b { SOURCE_IS_B } else { 0 };
        let mut sweep = Sweep::new(Timeouts::default());
        while sweep.is_due(&key) {
            sweep.pass_is_over();
        }
        let found = sweep.decide(NOW, &key, &value(1, flags, entry), &One, nobody);
        assert_eq!(found, expected.map_or(Verdict::Keep, Verdict::Delete), "line {number}");
    }
}

#[test]
fn tcp_of_removed_workloads_is_reset_once() {
    let mut sweep = Sweep::new(Timeouts::default());
    sweep.workloads_removed([BACKEND]);
    let decide = |sweep: &Sweep<V4>, protocol, destination, flags| {
        let key = key(protocol, (CLIENT, 1234), (destination, 80));
        sweep.decide(NOW, &key, &value(1, flags, Entry::Normal(tracking("sa", "sa"))), &One, nobody)
    };
    assert_eq!(decide(&sweep, 6, BACKEND, 0), Verdict::SendReset);
    assert_eq!(decide(&sweep, 6, BACKEND, bits::SEND_RESET), Verdict::Keep, "already flagged");
    assert_eq!(decide(&sweep, 17, BACKEND, 0), Verdict::Keep);
    assert_eq!(decide(&sweep, 6, [10, 0, 0, 3], 0), Verdict::Keep);
    sweep.pass_is_over();
    assert_eq!(decide(&sweep, 6, BACKEND, 0), Verdict::Keep, "the address may be another workload's by now");
}

#[test]
fn an_entry_with_state_names_its_stub() {
    let (key_of_state, is_b) = Key::new(17, (CLIENT, 20_000), (BACKEND, 5353));
    let flags = if is_b { SOURCE_IS_B } else { 0 };
    let mut nat = Tracking { original_address: SERVICE, original_port: 53, ..tracking("", "") };
    let name = |nat| stub(&key_of_state, &value(0, flags, Entry::Reverse(nat)));
    assert_eq!(name(nat), Some(key(17, (CLIENT, 20_000), (SERVICE, 53))));
    nat.original_source_port = 5555;
    assert_eq!(name(nat), Some(key(17, (CLIENT, 5555), (SERVICE, 53))));
    nat.original_source = [10, 0, 0, 9];
    assert_eq!(name(nat), Some(key(17, ([10, 0, 0, 9], 5555), (SERVICE, 53))));
    assert_eq!(stub(&key_of_state, &value(0, flags, Entry::Normal(nat))), None);
}

#[test]
fn services_are_checked_while_they_changed_recently() {
    let mut sweep = Sweep::new(Timeouts::default());
    let key = key(17, (CLIENT, 5555), (SERVICE, 53));
    let stale = value(1, 0, Entry::Normal(tracking("", "")));
    let flags = if Key::<V4>::new(17, (CLIENT, 5555), (SERVICE, 53)).1 { SOURCE_IS_B } else { 0 };
    let stale = Value { flags, ..stale };
    let mut is_stale = |generation| {
        sweep.pass_begins(generation);
        let verdict = sweep.decide(NOW, &key, &stale, &One, nobody);
        sweep.pass_is_over();
        verdict != Verdict::Keep
    };
    assert_eq!([1, 1, 1, 2, 2, 2, 2].map(&mut is_stale), [true, true, false, true, true, false, false]);
    sweep.pass_was_left();
    sweep.pass_begins(2);
    assert_ne!(sweep.decide(NOW, &key, &stale, &One, nobody), Verdict::Keep, "the last pass did not see all");
}

#[test]
fn entries_kept_at_a_glance_would_be_kept() {
    let mut glances = 0;
    for protocol in [1, 6, 17, 58, 132] {
        for age in [0, 40, 60, 190, 210, 290, 310, 390, 410, 590, 610, 5_990, 6_010, 36_001] {
            for (there, back) in [("", ""), ("s", ""), ("sa", "sa"), ("saf", "saf"), ("sar", "sa")] {
                for (settled, removed) in [(false, false), (true, false), (true, true)] {
                    let mut sweep = Sweep::new(Timeouts::default());
                    if settled {
                        (0..3).for_each(|_| sweep.pass_begins(0));
                    }
                    if removed {
                        sweep.workloads_removed([BACKEND]);
                    }
                    let key = key(protocol, (CLIENT, 5555), (BACKEND, 5353));
                    let reverse = Entry::Forward(key, 0);
                    for entry in
                        [Entry::Normal(tracking(there, back)), Entry::Reverse(tracking(there, back)), reverse]
                    {
                        let value = Value { rst_seen: 1, ..value(age, 0, entry) };
                        if sweep.is_plainly_live(NOW, &key.bytes(), &value.bytes()) {
                            glances += 1;
                            let verdict = sweep.decide(NOW, &key, &value, &One, nobody);
                            assert_eq!(verdict, Verdict::Keep, "{protocol} {age} {value:?}");
                        }
                    }
                }
            }
        }
    }
    assert!(glances > 100, "{glances}");
}
