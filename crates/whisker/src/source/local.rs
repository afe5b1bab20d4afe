//! A ring in this process.

use super::{
    Batch, Batches, Flow, Found, HintsQuery, ListQuery, Loss, SortBy, Source, SourceError, SourceState,
    StreamQuery,
};
use flows::query::{self, Filter, HintsRequest, ListRequest, Page, Sort, TimeRange};
use flows::ring::{Added, LabelTexts, Row};
use flows::{Counters, FlowKey, Labels, Ring, RingOptions, Snapshot};
use futures::StreamExt as _;
use goldmane_api::losses::LossKind;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// How long changes are gathered before they are sent: few messages under load, without a noticeable delay.
const GATHER: std::time::Duration = std::time::Duration::from_millis(200);
/// How many buckets ago a bucket must have ended before it is sent as complete.
const SETTLED: i64 = 1;

/// A ring that a writer fills and readers query.
pub struct SharedRing {
    ring: Mutex<Ring>,
    interval: i64,
    changes: watch::Sender<u64>,
    /// When the last flow arrived; zero for never.
    last_heard: AtomicI64,
    clock: Clock,
    /// Distinguishes this process's places from those of others.
    token: u64,
}

/// Returns the seconds since 1970.
type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

impl std::fmt::Debug for SharedRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedRing").field("interval", &self.interval).finish_non_exhaustive()
    }
}

fn texts(labels: &Labels) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
    labels.texts().iter().map(|text| text.as_bytes())
}

fn system_clock() -> i64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

impl SharedRing {
    /// Creates an empty ring on the system's clock.
    #[must_use]
    pub fn new(options: RingOptions) -> Arc<Self> {
        Self::with_clock(options, Arc::new(system_clock))
    }

    /// Creates an empty ring on another clock.
    #[must_use]
    pub fn with_clock(options: RingOptions, clock: Clock) -> Arc<Self> {
        let now = clock();
        let interval = options.interval.max(1);
        let token = u64::from(std::process::id()) ^ now.unsigned_abs().wrapping_mul(0x9e37_79b9);
        let ring = Mutex::new(Ring::new(options, now));
        let (changes, last_heard) = (watch::Sender::new(0), AtomicI64::new(0));
        Arc::new(Self { ring, interval, changes, last_heard, clock, token })
    }

    /// Counts a flow.
    pub fn add(
        &self,
        key: &FlowKey,
        start: i64,
        counters: &Counters,
        source: &Labels,
        dest: &Labels,
    ) -> Added {
        let labels = LabelTexts { source: texts(source), dest: texts(dest) };
        let now = (self.clock)();
        let mut ring = self.lock();
        ring.roll(now);
        self.last_heard.store(now, Ordering::Relaxed);
        let added = ring.add(key, start, counters, &labels);
        self.changes.send_replace(ring.revision());
        added
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        // The ring is intact even if a writer panicked.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn snapshot(&self) -> (Snapshot, i64) {
        let now = (self.clock)();
        let mut ring = self.lock();
        ring.roll(now);
        (ring.snapshot(), now)
    }
}

/// The ring as a source.
#[derive(Clone, Debug)]
pub struct Local {
    ring: Arc<SharedRing>,
    name: &'static str,
}

impl Local {
    /// Creates a source with this name.
    #[must_use]
    pub fn new(ring: Arc<SharedRing>, name: &'static str) -> Self {
        Self { ring, name }
    }

    fn place(&self, revision: u64) -> String {
        format!("{:x}.{revision}", self.ring.token)
    }

    fn revision_of(&self, place: &str) -> Option<u64> {
        let (token, revision) = place.split_once('.')?;
        (u64::from_str_radix(token, 16).ok()? == self.ring.token).then(|| revision.parse().ok())?
    }
}

fn flow(row: Row) -> Flow {
    Flow {
        id: row.entry.id(),
        key: Arc::new(row.entry.key().clone()),
        source_labels: row.source_labels,
        dest_labels: row.dest_labels,
        start: row.start,
        end: row.end,
        counters: row.counters,
    }
}

fn refused(error: &query::QueryError) -> SourceError {
    SourceError::Refused(error.to_string())
}

/// The first bucket of a stream; `None` for a stream without history.
fn first_bucket(snapshot: &Snapshot, gte: i64, now: i64) -> Option<i64> {
    let time = match gte {
        0 => return None,
        ..0 => now.saturating_add(gte),
        _ => gte,
    };
    // A start before the history means all of it.
    Some(snapshot.number(time.max(snapshot.begin())))
}

/// The flows of each bucket, the oldest first.
fn rows(
    snapshot: &Snapshot,
    buckets: impl Iterator<Item = i64>,
    since: Option<u64>,
    filter: &Filter,
) -> Vec<Flow> {
    buckets.flat_map(|number| snapshot.bucket(number, since, &|key| filter.passes(key))).map(flow).collect()
}

#[async_trait::async_trait]
impl Source for Local {
    async fn list(&self, query: ListQuery) -> Result<Found<Flow>, SourceError> {
        let (snapshot, now) = self.ring.snapshot();
        let sort = match query.sort.first().copied().unwrap_or_default() {
            SortBy::Time => Sort::Time,
            SortBy::DestName => Sort::DestName,
            SortBy::DestNamespace => Sort::DestNamespace,
            SortBy::SourceName => Sort::SourceName,
            SortBy::SourceNamespace => Sort::SourceNamespace,
            SortBy::DestType | SortBy::SourceType => {
                return Err(SourceError::Refused("flows cannot be sorted by type".to_owned()));
            }
        };
        // Includes the bucket that fills.
        let end = if query.lt == 0 { now + 1 } else { query.lt };
        let range =
            TimeRange::resolve(query.gte, end, now, snapshot.begin()).map_err(|error| refused(&error))?;
        let request = ListRequest { range, filter: query.filter, sort, page: Page::default() };
        let found = query::list(&snapshot, &request);
        Ok(Found { total_pages: found.total_pages, items: found.items.into_iter().map(flow).collect() })
    }

    async fn hints(&self, query: HintsQuery) -> Result<Found<String>, SourceError> {
        let (snapshot, now) = self.ring.snapshot();
        let range = TimeRange { gte: snapshot.begin(), lt: now + 1 };
        let request = HintsRequest { of: query.of, range, filter: query.filter, page: query.page };
        let found = query::hints(&snapshot, &request);
        let items = found.items.iter().map(ToString::to_string).collect();
        Ok(Found { total_pages: found.total_pages, items })
    }

    async fn buckets(&self, query: StreamQuery) -> Result<Batches, SourceError> {
        let (snapshot, now) = self.ring.snapshot();
        let resume = query.resume.as_deref().and_then(|place| place.parse().ok());
        let settled = snapshot.number(now) - SETTLED;
        let next = first_bucket(&snapshot, resume.unwrap_or(query.gte), now).unwrap_or(settled).min(settled);
        let (source, filter) = (self.clone(), query.filter);
        let batches = futures::stream::unfold((next, false), move |(mut next, was_last)| {
            let (source, filter) = (source.clone(), filter.clone());
            async move {
                if was_last {
                    tokio::time::sleep(GATHER).await;
                }
                loop {
                    let (snapshot, now) = source.ring.snapshot();
                    let settled = snapshot.number(now) - SETTLED;
                    next = next.max(snapshot.number(snapshot.begin()));
                    while next < settled {
                        let flows = rows(&snapshot, std::iter::once(next), None, &filter);
                        next += 1;
                        if !flows.is_empty() {
                            let place = (next * source.ring.interval).to_string();
                            let batch = Batch { flows, place, is_fresh: false };
                            return Some((Ok(batch), (next, next >= settled)));
                        }
                    }
                    tokio::time::sleep(GATHER).await;
                }
            }
        });
        Ok(Box::pin(batches))
    }

    async fn live(&self, query: StreamQuery) -> Result<Batches, SourceError> {
        let (snapshot, now) = self.ring.snapshot();
        let resume = query.resume.as_deref().and_then(|place| self.revision_of(place));
        let (known, history) = match (resume, first_bucket(&snapshot, query.gte, now)) {
            (Some(revision), _) => (revision, Vec::new()),
            (None, None) => (snapshot.revision(), Vec::new()),
            (None, Some(first)) => {
                let last = snapshot.number(snapshot.end());
                (snapshot.revision(), rows(&snapshot, first..last, None, &query.filter))
            }
        };
        // The first batch is sent even if empty: it shows that the stream works.
        let first = Batch { flows: history, place: self.place(known), is_fresh: resume.is_none() };
        let (source, filter) = (self.clone(), query.filter);
        let changes = self.ring.changes.subscribe();
        let later = futures::stream::unfold((known, changes), move |(known, mut changes)| {
            let (source, filter) = (source.clone(), filter.clone());
            async move {
                changes.wait_for(|revision| *revision > known).await.ok()?;
                tokio::time::sleep(GATHER).await;
                let (snapshot, _) = source.ring.snapshot();
                let flows = rows(&snapshot, snapshot.changed(known), Some(known), &filter);
                let revision = snapshot.revision();
                let batch = Batch { flows, place: source.place(revision), is_fresh: false };
                Some((Ok(batch), (revision, changes)))
            }
        });
        Ok(futures::stream::once(async move { Ok(first) }).chain(later).boxed())
    }

    async fn state(&self) -> SourceState {
        let (counts, keys) = {
            let ring = self.ring.lock();
            (ring.counts(), ring.keys())
        };
        let heard = self.ring.last_heard.load(Ordering::Relaxed);
        SourceState {
            name: self.name.to_owned(),
            problem: None,
            newest: (heard > 0).then_some(heard),
            received: Some(counts.added),
            keys: Some(keys as u64),
            losses: [(LossKind::FlowsOutside, counts.outside), (LossKind::FlowsFull, counts.full)]
                .map(|(kind, count)| Loss { node: String::new(), what: kind.words(), count })
                .to_vec(),
            ..SourceState::default()
        }
    }
}
