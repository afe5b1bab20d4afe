//! The state of the ring at one moment, for readers.

use super::{Bucket, Counters, Entry, Frozen, LabelPair, Open, Pages, Record, SPAN, Sum};
use crate::key::FlowKey;
use crate::labels::Labels;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The state of the ring at one moment. Cheap to take; holding it costs only what changes in the meantime.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(super) interval: i64,
    pub(super) buckets: Vec<Bucket>,
    pub(super) spans: BTreeMap<i64, Arc<Frozen>>,
    pub(super) keys: Pages,
    pub(super) revision: u64,
}

/// A flow over some period.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its key, with the key's number.
    pub entry: Arc<Entry>,
    /// The labels that all sources have in common.
    pub source_labels: Labels,
    /// The labels that all destinations have in common.
    pub dest_labels: Labels,
    /// The start of the first bucket with data.
    pub start: i64,
    /// The end of the last bucket with data.
    pub end: i64,
    /// The summed counters.
    pub counters: Counters,
}

/// The records of one or more buckets.
pub(crate) enum Part<'a> {
    Frozen(&'a Frozen),
    Open(i64, &'a Open),
}

impl Part<'_> {
    /// Calls a function with every record and its slot.
    pub(crate) fn each(&self, mut take: impl FnMut(u32, Record)) {
        match self {
            Self::Frozen(frozen) => frozen.flows.iter().for_each(|(slot, record)| take(slot, record)),
            Self::Open(number, open) => open.records().iter().for_each(|record| {
                let sum = Sum::of(*number, record.counters);
                take(record.slot, Record { variant: record.variant, sum });
            }),
        }
    }

    /// Calls a function with every slot.
    pub(crate) fn each_slot(&self, mut take: impl FnMut(u32)) {
        match self {
            Self::Frozen(frozen) => frozen.flows.slots().for_each(take),
            Self::Open(_, open) => open.records().iter().for_each(|record| take(record.slot)),
        }
    }
}

impl Snapshot {
    /// When the history begins.
    #[must_use]
    pub fn begin(&self) -> i64 {
        self.first() * self.interval
    }

    /// When the history ends, which is in the future.
    #[must_use]
    pub fn end(&self) -> i64 {
        (self.first() + i64::try_from(self.buckets.len()).unwrap_or(0)) * self.interval
    }

    /// The number of changes up to this snapshot.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The number of the bucket that contains a time.
    #[must_use]
    pub fn number(&self, time: i64) -> i64 {
        time.div_euclid(self.interval)
    }

    /// The flows of one bucket whose key passes the filter; with `since`, only those that changed after that revision,
    /// and possibly others. Counters are those of the whole bucket, so a repeated flow replaces its earlier row.
    #[must_use]
    pub fn bucket(&self, number: i64, since: Option<u64>, passes: &dyn Fn(&FlowKey) -> bool) -> Vec<Row> {
        let Some(bucket) = self.get(number) else { return Vec::new() };
        // The frozen part no longer records individual changes.
        let since = since.filter(|since| bucket.frozen_revision <= *since);
        let (frozen, open) = (bucket.frozen.as_ref(), bucket.open.as_ref());
        let mut sums: BTreeMap<u32, (LabelPair, Counters)> = BTreeMap::new();
        let mut add = |slot: u32, variant: u8, counters: &Counters| {
            let Some(entry) = self.keys.get(slot).filter(|entry| passes(entry.key())) else { return };
            let labels = entry.labels(variant);
            let sum = sums.entry(slot).or_insert_with(|| (labels.clone(), Counters::default()));
            sum.0 = sum.0.intersection(&labels);
            sum.1.add(counters);
        };
        let is_wanted = |slot: u32| match since {
            None => true,
            Some(since) => open.and_then(|open| open.get(slot)).is_some_and(|record| record.revision > since),
        };
        let has_changes = since.is_none()
            || open.is_some_and(|open| open.records().iter().any(|record| is_wanted(record.slot)));
        if has_changes {
            for (slot, record) in frozen.iter().flat_map(|frozen| frozen.flows.iter()) {
                if is_wanted(slot) {
                    add(slot, record.variant, &record.sum.counters);
                }
            }
            for record in open.iter().flat_map(|open| open.records()) {
                if is_wanted(record.slot) {
                    add(record.slot, record.variant, &record.counters);
                }
            }
        }
        let row = |(slot, (labels, counters))| self.row(slot, Sum::of(number, counters), labels);
        sums.into_iter().filter_map(row).collect()
    }

    /// The numbers of the buckets that changed after that revision.
    pub fn changed(&self, since: u64) -> impl Iterator<Item = i64> + '_ {
        let is_changed = move |bucket: &&Bucket| {
            let open = bucket.open.iter().flat_map(|open| open.records());
            bucket.frozen_revision > since || open.into_iter().any(|record| record.revision > since)
        };
        self.buckets.iter().filter(is_changed).map(|bucket| bucket.number)
    }

    pub(crate) fn keys(&self) -> &Pages {
        &self.keys
    }

    pub(crate) fn row(&self, slot: u32, sum: Sum, labels: LabelPair) -> Option<Row> {
        let entry = self.keys.get(slot)?;
        Some(Row {
            entry: Arc::clone(entry),
            source_labels: labels.source,
            dest_labels: labels.dest,
            start: sum.first * self.interval,
            end: (sum.last + 1) * self.interval,
            counters: sum.counters,
        })
    }

    /// The numbers of the buckets that begin in a range of time.
    pub(crate) fn beginning_in(&self, gte: i64, lt: i64) -> Range<i64> {
        let round_up = |time: i64| -(-time).div_euclid(self.interval);
        round_up(gte)..round_up(lt)
    }

    /// The records of these buckets in the fewest possible parts, the oldest first.
    pub(crate) fn parts(&self, numbers: Range<i64>) -> Vec<Part<'_>> {
        let (begin, end) = self.clamp(numbers);
        let mut parts = Vec::new();
        let mut number = begin;
        while number < end {
            let span = self.spans.get(&number.div_euclid(SPAN));
            if let Some(span) = span.filter(|span| span.first == number && number + SPAN <= end) {
                parts.push(Part::Frozen(span));
                number += SPAN;
                continue;
            }
            if let Some(bucket) = self.get(number) {
                parts.extend(bucket.frozen.as_deref().map(Part::Frozen));
                parts.extend(bucket.open.as_deref().map(|open| Part::Open(number, open)));
            }
            number += 1;
        }
        parts
    }

    /// These buckets, the oldest first.
    pub(crate) fn buckets(&self, numbers: Range<i64>) -> &[Bucket] {
        let (begin, end) = self.clamp(numbers);
        let place = |number: i64| usize::try_from(number - self.first()).unwrap_or(0);
        &self.buckets[place(begin)..place(end)]
    }

    pub(crate) fn interval(&self) -> i64 {
        self.interval
    }

    fn clamp(&self, numbers: Range<i64>) -> (i64, i64) {
        let first = self.first();
        let end = first + i64::try_from(self.buckets.len()).unwrap_or(0);
        let begin = numbers.start.clamp(first, end);
        (begin, numbers.end.clamp(begin, end))
    }

    fn get(&self, number: i64) -> Option<&Bucket> {
        self.buckets.get(usize::try_from(number - self.first()).ok()?)
    }

    fn first(&self) -> i64 {
        self.buckets.first().map_or(0, |bucket| bucket.number)
    }
}
