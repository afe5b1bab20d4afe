//! Buckets that no longer change, encoded in few bytes: records that arrived for a bucket are merged into its frozen
//! part, and sixteen buckets are also kept merged into one.

use super::{Counters, Frozen, NO_LABELS, Record, Records, Ring, SPAN, Sum, Writer};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Ring {
    /// Merges the open records of a bucket into its frozen part.
    pub(super) fn freeze(&mut self, place: usize) {
        let oldest = self.oldest();
        let bucket = &mut self.buckets[place];
        let Some(open) = bucket.open.take() else { return };
        let mut newer: Vec<_> = open.records().to_vec();
        newer.sort_unstable_by_key(|record| record.slot);
        let mut newer = newer.into_iter().peekable();
        let mut older = bucket.frozen.iter().flat_map(|frozen| frozen.flows.iter()).peekable();
        let mut flows = Writer::new(bucket.number, false);
        let mut traces: BTreeMap<u32, Counters> = BTreeMap::new();
        loop {
            let slot = match (older.peek(), newer.peek()) {
                (None, None) => break,
                (Some((slot, _)), None) => *slot,
                (None, Some(record)) => record.slot,
                (Some((slot, _)), Some(record)) => record.slot.min(*slot),
            };
            let old = older.next_if(|(old, _)| *old == slot).map(|(_, record)| record);
            let new = newer.next_if(|record| record.slot == slot).map(|record| {
                let sum = Sum::of(bucket.number, record.counters);
                bucket.frozen_revision = bucket.frozen_revision.max(record.revision);
                Record { variant: record.variant, sum }
            });
            let record = match (old, new) {
                (Some(mut old), Some(new)) => {
                    old.sum.add(&new.sum);
                    let (one, two) = (old.variant, new.variant);
                    old.variant = self.keys.common_variant(slot, bucket.number, oldest, one, two);
                    self.keys.release(slot);
                    old
                }
                (Some(only), None) | (None, Some(only)) => only,
                (None, None) => break,
            };
            flows.push(slot, &record);
            if let Some(entry) = self.keys.pages().get(slot) {
                traces.entry(entry.trace_slot()).or_default().add(&record.sum.counters);
            }
        }
        drop(older);
        let mut by_trace = Writer::new(bucket.number, false);
        for (slot, counters) in traces {
            by_trace.push(slot, &Record { variant: NO_LABELS, sum: Sum::of(bucket.number, counters) });
        }
        bucket.frozen =
            Some(Arc::new(Frozen { first: bucket.number, flows: flows.finish(), traces: by_trace.finish() }));
    }

    /// Merges every group of sixteen frozen buckets.
    pub(super) fn make_spans(&mut self) {
        let (oldest, newest) = (self.oldest(), self.newest());
        for group in oldest.div_euclid(SPAN)..=newest.div_euclid(SPAN) {
            let (first, last) = (group * SPAN, group * SPAN + SPAN - 1);
            // The group's last bucket must have ended a while ago, even if nothing arrived for it.
            if self.spans.contains_key(&group) || first < oldest || last + 2 >= newest {
                continue;
            }
            let place = usize::try_from(first - oldest).unwrap_or(0);
            let count = usize::try_from(SPAN).unwrap_or(0);
            let buckets = || self.buckets.iter().skip(place).take(count);
            if buckets().any(|bucket| bucket.open.is_some()) {
                continue;
            }
            let parts: Vec<_> = buckets().filter_map(|bucket| bucket.frozen.clone()).collect();
            let span = self.span(first, &parts);
            self.spans.insert(group, Arc::new(span));
        }
    }

    fn span(&mut self, first: i64, parts: &[Arc<Frozen>]) -> Frozen {
        let oldest = self.oldest();
        let mut sums: Vec<Option<Record>> = vec![None; self.keys.pages().slots()];
        for (slot, record) in parts.iter().flat_map(|part| part.flows.iter()) {
            match sums.get_mut(slot as usize) {
                Some(Some(sum)) => {
                    sum.sum.add(&record.sum);
                    let (one, two) = (sum.variant, record.variant);
                    sum.variant = self.keys.common_variant(slot, record.sum.last, oldest, one, two);
                }
                Some(sum @ None) => *sum = Some(record),
                None => {}
            }
        }
        let mut flows = Writer::new(first, true);
        for (slot, record) in sums.iter().enumerate() {
            if let (Some(record), Ok(slot)) = (record, u32::try_from(slot)) {
                flows.push(slot, record);
            }
        }
        Frozen { first, flows: flows.finish(), traces: Records::default() }
    }
}
