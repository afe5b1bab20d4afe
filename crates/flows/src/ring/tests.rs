//! Compares the ring with a naive model: whatever is counted in any order, both show the same.

use super::*;
use crate::model::{BEGIN, BUCKETS, INTERVAL, Model, Step, key, steps};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A reader of closed buckets: it reads new ones, and those that changed since its last look.
#[derive(Default)]
struct Reader {
    sent_until: Option<i64>,
    revision: u64,
    /// By key number and bucket; a repeated row replaces the earlier one.
    rows: BTreeMap<(u64, i64), Counters>,
}

impl Reader {
    fn look(&mut self, model: &Model) {
        let snapshot = model.ring.snapshot();
        let closed = snapshot.number(model.now) - 1;
        let from = self.sent_until.unwrap_or(snapshot.number(snapshot.begin()));
        let changed = snapshot.changed(self.revision).filter(|number| *number < from);
        let changed = changed.map(|number| (number, Some(self.revision)));
        let new = (from..closed).map(|number| (number, None));
        for (number, since) in changed.chain(new).collect::<Vec<_>>() {
            for row in snapshot.bucket(number, since, &|_| true) {
                self.rows.insert((row.entry.id(), row.start / INTERVAL), row.counters);
            }
        }
        self.sent_until = Some(closed);
        self.revision = snapshot.revision();
        let first = model.first_bucket();
        self.rows.retain(|(_, bucket), _| *bucket >= first);
    }
}

proptest! {
    #[test]
    fn an_occasional_reader_gets_every_closed_bucket(steps in steps()) {
        let mut model = Model::new();
        let mut reader = Reader::default();
        for step in &steps {
            model.step(step);
            if matches!(step, Step::Look) {
                reader.look(&model);
            }
        }
        reader.look(&model);
        let mut expected: BTreeMap<(u64, i64), Counters> = BTreeMap::new();
        let closed = model.now.div_euclid(INTERVAL) - 1;
        for flow in model.flows.iter().filter(|flow| flow.bucket < closed) {
            expected.entry((flow.id, flow.bucket)).or_default().add(&flow.counters);
        }
        prop_assert_eq!(reader.rows, expected);
    }

    #[test]
    fn keys_live_as_long_as_a_bucket_contains_them(steps in steps()) {
        let mut model = Model::new();
        for step in &steps {
            model.step(step);
            let keys: std::collections::BTreeSet<usize> = model.flows.iter().map(|flow| flow.key).collect();
            prop_assert_eq!(model.ring.keys(), keys.len());
        }
        let added = model.ring.counts().added + model.ring.counts().outside;
        prop_assert_eq!(added, steps.iter().filter(|step| matches!(step, Step::Add(..))).count() as u64);
    }
}

#[test]
fn flows_outside_the_ring_and_keys_without_room_are_counted() {
    let options =
        RingOptions { interval: INTERVAL, buckets: usize::try_from(BUCKETS).unwrap(), most_keys: 1 };
    let mut ring = Ring::new(options, BEGIN);
    let none = LabelTexts { source: std::iter::empty::<&[u8]>(), dest: std::iter::empty() };
    let one = Counters { packets_in: 1, ..Counters::default() };
    let known = match ring.add(&key(0), BEGIN, &one, &none) {
        Added::Counted(known) => known,
        other => panic!("{other:?}"),
    };
    assert_eq!((known.id(), ring.find(&key(0))), (1, Some(known)));
    assert_eq!(ring.add(&key(1), BEGIN, &one, &none), Added::Full);
    assert_eq!(ring.add(&key(0), BEGIN + 2 * INTERVAL, &one, &none), Added::Outside, "ahead");
    let age = BUCKETS * INTERVAL;
    assert_eq!(ring.add_known(known, BEGIN - age, &one, &none), Some(Added::Outside), "behind");
    assert_eq!(ring.counts(), RingCounts { added: 1, outside: 2, full: 1, late: 0 });
    // Every bucket expires: the key is forgotten, and there is room again.
    assert_eq!(ring.roll(BEGIN + 100 * age), BUCKETS.unsigned_abs());
    assert_eq!((ring.keys(), ring.knows(known)), (0, false));
    assert_eq!(ring.add_known(known, BEGIN, &one, &none), None);
    match ring.add(&key(1), BEGIN + 100 * age, &one, &none) {
        Added::Counted(known) => assert_eq!(known.id(), 2, "numbers are never reused"),
        other => panic!("{other:?}"),
    }
    assert!(ring.revision() == 2);
}

#[test]
fn too_many_label_sets_leave_only_common_labels() {
    let mut ring = Ring::new(RingOptions { interval: 15, buckets: 1000, most_keys: 10 }, BEGIN);
    let one = Counters::default();
    for number in 0..600 {
        let now = BEGIN + number * 15;
        ring.roll(now);
        let label = format!("a={number}");
        let texts = || std::iter::once(label.as_bytes());
        let pair = LabelTexts { source: texts(), dest: texts() };
        assert!(matches!(ring.add(&key(0), now, &one, &pair), Added::Counted(_)));
    }
    let snapshot = ring.snapshot();
    let rows = |number: i64| snapshot.bucket(BEGIN / 15 + number, None, &|_| true);
    assert_eq!(rows(0)[0].source_labels.texts(), ["a=0".into()]);
    assert!(rows(599)[0].source_labels.texts().is_empty(), "not wrong, only less");
    assert!(ring.frozen_bytes() > 0);
}
