//! Combines flows of files with those in memory, so that the same queries work on both.

use super::{History, rows};
use flows::query::TimeRange;
use flows::ring::{LabelTexts, Row};
use flows::{Counters, Labels, Ring, RingOptions, Snapshot};
use goldmane_api::borrowed::FlowRef;
use goldmane_api::convert::decode_key;
use hashbrown::HashMap;

/// The maximum number of points in a series.
const MOST_POINTS: i64 = 240;
/// The longest history that a query may cover, in buckets: thirty days of fifteen seconds.
const MOST_BUCKETS: i64 = 30 * 24 * 240;

/// Flows of files, counted into a ring as they were received.
pub(super) struct Filling<'a> {
    ring: &'a mut Ring,
    keys: HashMap<Box<[u8]>, flows::FlowKey>,
}

impl<'a> Filling<'a> {
    pub(super) fn new(ring: &'a mut Ring) -> Self {
        Self { ring, keys: HashMap::new() }
    }

    pub(super) fn add(&mut self, flow: &FlowRef<'_>) {
        if !self.keys.contains_key(flow.key) {
            let Ok(key) = decode_key(flow.key) else { return };
            self.keys.insert(flow.key.into(), key);
        }
        let Some(key) = self.keys.get(flow.key) else { return };
        let labels = LabelTexts { source: flow.source_labels(), dest: flow.dest_labels() };
        self.ring.add_sum(key, (flow.start, flow.end), &flow.counters, &labels);
    }
}

/// Sums up flows of one key over a period.
struct Sum {
    start: i64,
    end: i64,
    counters: Counters,
    labels: [Labels; 2],
}

impl Sum {
    fn add(&mut self, other: &Self) {
        let live = match self.end.cmp(&other.end) {
            std::cmp::Ordering::Less => other.counters.live,
            std::cmp::Ordering::Equal => self.counters.live.saturating_add(other.counters.live),
            std::cmp::Ordering::Greater => self.counters.live,
        };
        self.counters.add(&other.counters);
        self.counters.live = live;
        (self.start, self.end) = (self.start.min(other.start), self.end.max(other.end));
        for (mine, theirs) in self.labels.iter_mut().zip(&other.labels) {
            *mine = mine.intersection(theirs);
        }
    }
}

/// Sums by key and piece of time, so that memory holds no more than the answer covers.
struct Sums {
    pieces: HashMap<(u32, i64), Sum>,
    keys: HashMap<Box<[u8]>, u32>,
    /// The length of a piece in seconds.
    piece: i64,
    begin: i64,
    interval: i64,
}

impl Sums {
    fn add(&mut self, key: &[u8], sum: Sum) {
        let next = u32::try_from(self.keys.len()).unwrap_or(u32::MAX);
        let number = match self.keys.get(key) {
            Some(number) => *number,
            None => *self.keys.entry(key.into()).or_insert(next),
        };
        let place = (number, (sum.start - self.begin).div_euclid(self.piece));
        match self.pieces.get_mut(&place) {
            Some(known) => known.add(&sum),
            None => drop(self.pieces.insert(place, sum)),
        }
    }

    fn flow(&mut self, flow: &FlowRef<'_>) {
        let texts =
            |texts: goldmane_api::borrowed::Texts<'_>| texts.map(String::from_utf8_lossy).collect::<Labels>();
        // Late flows were stored as received from nodes.
        let start = flow.start.div_euclid(self.interval) * self.interval;
        let sum = Sum {
            start,
            end: flow.end.max(start + self.interval),
            counters: flow.counters,
            labels: [texts(flow.source_labels()), texts(flow.dest_labels())],
        };
        self.add(flow.key, sum);
    }

    fn row(&mut self, row: &Row) {
        let sum = Sum {
            start: row.start,
            end: row.end,
            counters: row.counters,
            labels: [row.source_labels.clone(), row.dest_labels.clone()],
        };
        self.add(row.entry.encoded(goldmane_api::convert::encode_key), sum);
    }

    fn count(self, ring: &mut Ring) {
        let mut keys: Vec<(u32, &[u8])> = self.keys.iter().map(|(key, number)| (*number, &**key)).collect();
        keys.sort_unstable();
        let keys: Vec<_> = keys.into_iter().map(|(_, key)| decode_key(key).ok()).collect();
        let mut pieces: Vec<_> = self.pieces.into_iter().collect();
        // For reproducible key numbers: the same files give the same numbers.
        pieces.sort_unstable_by_key(|(place, _)| *place);
        for ((number, _), sum) in pieces {
            let Some(Some(key)) = keys.get(number as usize) else { continue };
            let [source, dest] =
                sum.labels.each_ref().map(|labels| labels.texts().iter().map(|text| text.as_bytes()));
            let texts = LabelTexts { source, dest };
            ring.add_sum(key, (sum.start, sum.end), &sum.counters, &texts);
        }
    }
}

/// Builds a snapshot of a range that begins before the recent one.
pub(super) fn extended(history: &History, recent: &Snapshot, range: TimeRange, is_series: bool) -> Snapshot {
    let interval = history.interval;
    let newest = recent.number(recent.end());
    let first = recent.number(range.gte).max(newest - MOST_BUCKETS);
    let begin = first * interval;
    let until = range.lt.min(recent.end());
    let length = (until - begin).max(interval);
    let piece = match is_series {
        true => (length / MOST_POINTS).div_euclid(interval).max(4) * interval,
        false => length,
    };
    let mut sums = Sums { pieces: HashMap::new(), keys: HashMap::new(), piece, begin, interval };
    history.read(begin, recent.begin().min(until), |flow| sums.flow(flow));
    let mut start = recent.begin();
    while start < until {
        let end = start.saturating_add(piece).min(until);
        for row in rows(recent, TimeRange { gte: start, lt: end }) {
            sums.row(&row);
        }
        start = end;
    }
    let buckets = usize::try_from(newest - first).unwrap_or(0);
    let options = RingOptions { interval, buckets, most_keys: usize::MAX };
    // The newest bucket of a ring is the one after the current one.
    let mut ring = Ring::new(options, recent.end() - 2 * interval);
    sums.count(&mut ring);
    ring.snapshot()
}
