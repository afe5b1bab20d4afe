//! The aggregator's memory: an hour of flows in buckets of 15 seconds.
//!
//! ```text
//! buckets:  oldest ... frozen frozen frozen | open open open | filling | future
//! spans:    [ 16 frozen buckets as one ] ...
//! ```
//!
//! A bucket is open while flows arrive for it, and is frozen into few bytes after two turns without any; flows that
//! arrive later reopen it and are merged at the next freeze. Sixteen frozen buckets are also kept merged into one, so
//! that a query over an hour reads a sixteenth. Keys, traces and labels are stored once. Readers share everything
//! through a [`Snapshot`], so queries never block ingest.
//!
//! Bounded: the number of keys is limited, and flows that do not fit are counted. Does not know clocks or the wire
//! format.

mod counters;
mod freezing;
mod keys;
mod open;
mod records;
mod snapshot;
#[cfg(test)]
mod tests;

pub use counters::Counters;
pub use keys::Entry;
pub use snapshot::{Row, Snapshot};

pub(crate) use counters::Sum;
pub(crate) use keys::{LabelPair, NO_LABELS, Pages};
pub(crate) use open::Open;
pub(crate) use records::{Record, Records, Writer};

use crate::key::FlowKey;
use keys::Keys;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// How many buckets a span has.
pub(crate) const SPAN: i64 = 16;
/// The number of turns without flows after which a bucket is frozen.
const IDLE_TURNS: u64 = 2;
/// How often unused data is swept, in turns.
const SWEEP_TURNS: u64 = 60;

/// The limits of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingOptions {
    /// The length of a bucket in seconds.
    pub interval: i64,
    /// The number of buckets, including the one that fills and the one in the future.
    pub buckets: usize,
    /// The maximum number of keys.
    pub most_keys: usize,
}

impl Default for RingOptions {
    /// Like Calico: an hour, one bucket that fills, and one for clocks that are ahead.
    fn default() -> Self {
        Self { interval: 15, buckets: 242, most_keys: 1_000_000 }
    }
}

/// A key in the ring: its slot, and a number that shows whether the slot still belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownKey {
    slot: u32,
    id: u64,
}

impl KnownKey {
    /// The key's slot, which may be reused once no bucket contains the key any more.
    #[must_use]
    pub fn slot(self) -> u32 {
        self.slot
    }

    /// The number of the key, from 1.
    #[must_use]
    pub fn id(self) -> u64 {
        self.id
    }
}

/// The labels of a flow as `key=value` strings, preferably sorted.
#[derive(Clone, Debug)]
pub struct LabelTexts<L> {
    /// The source's labels.
    pub source: L,
    /// The destination's labels.
    pub dest: L,
}

/// The outcome of adding a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It was counted under this key.
    Counted(KnownKey),
    /// It began before the oldest bucket or after the newest.
    Outside,
    /// Its key is new, and the ring has the maximum number of keys.
    Full,
}

/// What the ring did, for figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingCounts {
    /// Flows that were counted.
    pub added: u64,
    /// Flows that began outside the ring.
    pub outside: u64,
    /// Flows with a new key for which there was no room.
    pub full: u64,
    /// Flows that arrived after their bucket had been frozen.
    pub late: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    pub(crate) number: i64,
    pub(crate) frozen: Option<Arc<Frozen>>,
    pub(crate) open: Option<Arc<Open>>,
    /// The turn in which the last flow arrived.
    touched: u64,
    /// The newest change that the frozen part contains.
    pub(crate) frozen_revision: u64,
}

/// One or more buckets that no longer change.
#[derive(Debug)]
pub(crate) struct Frozen {
    pub(crate) first: i64,
    /// By key slot.
    pub(crate) flows: Records,
    /// By trace slot.
    pub(crate) traces: Records,
}

/// The ring.
#[derive(Debug)]
pub struct Ring {
    options: RingOptions,
    buckets: VecDeque<Bucket>,
    spans: BTreeMap<i64, Arc<Frozen>>,
    keys: Keys,
    turns: u64,
    revision: u64,
    counts: RingCounts,
}

impl Ring {
    /// Creates an empty ring whose buckets are placed around `now`.
    #[must_use]
    pub fn new(options: RingOptions, now: i64) -> Self {
        let options = RingOptions {
            interval: options.interval.max(1),
            buckets: options.buckets.max(3),
            most_keys: options.most_keys,
        };
        let newest = now.div_euclid(options.interval) + 1;
        let count = i64::try_from(options.buckets).unwrap_or(i64::MAX);
        let buckets = (newest - count + 1..=newest).map(Bucket::new).collect();
        Self {
            options,
            buckets,
            spans: BTreeMap::new(),
            keys: Keys::default(),
            turns: 0,
            revision: 0,
            counts: RingCounts::default(),
        }
    }

    /// Counts a flow that began at `start`.
    pub fn add<'a, L>(
        &mut self,
        key: &FlowKey,
        start: i64,
        counters: &Counters,
        labels: &LabelTexts<L>,
    ) -> Added
    where
        L: ExactSizeIterator<Item = &'a [u8]> + Clone,
    {
        let Some(place) = self.place(start) else {
            self.counts.outside += 1;
            return Added::Outside;
        };
        let slot = match self.keys.find(key) {
            Some(slot) => slot,
            None if self.keys.len() >= self.options.most_keys => {
                self.counts.full += 1;
                return Added::Full;
            }
            None => self.keys.insert(key),
        };
        self.count(slot, place, counters, labels)
    }

    /// Counts a flow of a key that was counted before; `None` if the ring has since forgotten the key.
    pub fn add_known<'a, L>(
        &mut self,
        key: KnownKey,
        start: i64,
        counters: &Counters,
        labels: &LabelTexts<L>,
    ) -> Option<Added>
    where
        L: ExactSizeIterator<Item = &'a [u8]> + Clone,
    {
        if !self.knows(key) {
            return None;
        }
        let Some(place) = self.place(start) else {
            self.counts.outside += 1;
            return Some(Added::Outside);
        };
        Some(self.count(key.slot, place, counters, labels))
    }

    /// Adds what another ring summed over its buckets from `start` to `end`, so that this ring shows the same sum for
    /// those buckets.
    pub fn add_sum<'a, L>(
        &mut self,
        key: &FlowKey,
        (start, end): (i64, i64),
        counters: &Counters,
        labels: &LabelTexts<L>,
    ) where
        L: ExactSizeIterator<Item = &'a [u8]> + Clone,
    {
        let last = end - self.options.interval;
        if last <= start {
            self.add(key, start, counters, labels);
            return;
        }
        // Live connections are those of the last bucket.
        self.add(key, start, &Counters { live: 0, ..*counters }, labels);
        self.add(key, last, &Counters { live: counters.live, ..Counters::default() }, labels);
    }

    /// Whether there is a bucket for flows that begin at this time.
    #[must_use]
    pub fn covers(&self, start: i64) -> bool {
        self.place(start).is_some()
    }

    /// Looks up a key.
    #[must_use]
    pub fn find(&self, key: &FlowKey) -> Option<KnownKey> {
        let slot = self.keys.find(key)?;
        Some(KnownKey { slot, id: self.keys.pages().get(slot)?.id() })
    }

    /// The flow key behind a known key.
    #[must_use]
    pub fn key(&self, known: KnownKey) -> Option<&FlowKey> {
        self.keys.pages().get(known.slot).filter(|entry| entry.id() == known.id).map(|entry| entry.key())
    }

    /// Whether the ring still has this key.
    #[must_use]
    pub fn knows(&self, key: KnownKey) -> bool {
        self.keys.pages().get(key.slot).is_some_and(|entry| entry.id() == key.id)
    }

    fn count<'a, L>(&mut self, slot: u32, place: usize, counters: &Counters, labels: &LabelTexts<L>) -> Added
    where
        L: ExactSizeIterator<Item = &'a [u8]> + Clone,
    {
        let oldest = self.oldest();
        let bucket = &mut self.buckets[place];
        let variant = self.keys.variant(slot, bucket.number, oldest, &labels.source, &labels.dest);
        if bucket.open.is_none() {
            self.spans.remove(&bucket.number.div_euclid(SPAN));
        }
        if bucket.frozen.is_some() {
            self.counts.late += 1;
        }
        bucket.touched = self.turns;
        self.revision += 1;
        self.counts.added += 1;
        let open = Arc::make_mut(bucket.open.get_or_insert_default());
        let (record, is_new) = open.record(slot, variant);
        record.revision = self.revision;
        record.counters.add(counters);
        if record.variant != variant {
            record.variant = self.keys.common_variant(slot, bucket.number, oldest, record.variant, variant);
        }
        if is_new {
            self.keys.retain(slot);
        }
        let id = self.keys.pages().get(slot).map_or(0, |entry| entry.id());
        Added::Counted(KnownKey { slot, id })
    }

    /// Advances to this time. Returns the number of buckets advanced.
    pub fn roll(&mut self, now: i64) -> u64 {
        let newest = now.div_euclid(self.options.interval) + 1;
        let mut steps = 0;
        if newest - self.newest() > i64::try_from(self.options.buckets).unwrap_or(i64::MAX) {
            // None of the present buckets remains; advancing one by one would only take time.
            let turns = self.turns + 1;
            let (revision, counts, keys) = (self.revision, self.counts, std::mem::take(&mut self.keys));
            *self = Self { turns, revision, counts, ..Self::new(self.options, now) };
            self.keys.continue_after(&keys);
            return u64::try_from(self.options.buckets).unwrap_or(u64::MAX);
        }
        while self.newest() < newest {
            self.step();
            steps += 1;
        }
        steps
    }

    fn step(&mut self) {
        self.turns += 1;
        if let Some(gone) = self.buckets.pop_front() {
            self.spans.remove(&gone.number.div_euclid(SPAN));
            for slot in gone.frozen.iter().flat_map(|frozen| frozen.flows.slots()) {
                self.keys.release(slot);
            }
            for record in gone.open.iter().flat_map(|open| open.records()) {
                self.keys.release(record.slot);
            }
        }
        let next = self.newest() + 1;
        self.buckets.push_back(Bucket::new(next));
        for place in 0..self.buckets.len() {
            let bucket = &self.buckets[place];
            if bucket.open.is_some() && self.turns - bucket.touched >= IDLE_TURNS {
                self.freeze(place);
            }
        }
        self.make_spans();
        if self.turns.is_multiple_of(SWEEP_TURNS) {
            self.keys.sweep();
        }
    }

    /// The current state, for a reader.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            interval: self.options.interval,
            buckets: self.buckets.iter().cloned().collect(),
            spans: self.spans.clone(),
            keys: self.keys.pages().clone(),
            revision: self.revision,
        }
    }

    /// What the ring has done so far.
    #[must_use]
    pub fn counts(&self) -> RingCounts {
        self.counts
    }

    /// The number of keys.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// The size of the frozen buckets in bytes, which is most of the memory in use.
    #[must_use]
    pub fn frozen_bytes(&self) -> usize {
        let buckets = self.buckets.iter().filter_map(|bucket| bucket.frozen.as_ref());
        buckets.chain(self.spans.values()).map(|frozen| frozen.flows.size() + frozen.traces.size()).sum()
    }

    /// The number of changes so far.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    fn oldest(&self) -> i64 {
        self.buckets.front().map_or(0, |bucket| bucket.number)
    }

    fn newest(&self) -> i64 {
        self.buckets.back().map_or(0, |bucket| bucket.number)
    }

    fn place(&self, start: i64) -> Option<usize> {
        let place = usize::try_from(start.div_euclid(self.options.interval) - self.oldest()).ok()?;
        (place < self.buckets.len()).then_some(place)
    }
}

impl Bucket {
    fn new(number: i64) -> Self {
        Self { number, frozen: None, open: None, touched: 0, frozen_revision: 0 }
    }
}
