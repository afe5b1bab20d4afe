//! Collects all flows in one ring, under one lock that is held for microseconds.

use crate::figures::Figures;
use crate::history::History;
use crate::losses::LossAccounts;
use crate::policy_figures::PolicyTotals;
use flows::ring::{Added, KnownKey, LabelTexts, RingCounts};
use flows::seen::Seen;
use flows::{Ring, RingOptions, Snapshot};
use goldmane_api::borrowed::{Damaged, FlowRef};
use goldmane_api::convert::decode_key;
use hashbrown::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The limits of an aggregator.
#[derive(Clone, Copy, Debug)]
pub struct AggregatorOptions {
    /// The limits of the ring.
    pub ring: RingOptions,
    /// How many flows are remembered to recognise repetitions.
    pub most_seen: usize,
    /// The maximum number of concurrent streams.
    pub most_streams: usize,
    /// The maximum number of series in per-policy metrics; 0 disables them.
    pub most_policy_series: usize,
}

impl Default for AggregatorOptions {
    fn default() -> Self {
        Self { ring: RingOptions::default(), most_seen: 4_000_000, most_streams: 100, most_policy_series: 0 }
    }
}

/// How long nodes may resend flows that a previous process had, in seconds.
const RESENT: i64 = 600;
/// The maximum number of late flows that wait to be written.
const MOST_LATE: usize = 200_000;

/// The source of the current time, in seconds since 1970.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// The flows of all nodes.
pub struct Aggregator {
    state: Mutex<State>,
    turns: watch::Sender<u64>,
    clock: Clock,
    options: AggregatorOptions,
    figures: Figures,
    losses: LossAccounts,
    history: Option<Arc<History>>,
}

/// Late flows of blocks that are already in files; they are appended there.
#[derive(Debug, Default)]
pub(crate) struct LateFlows {
    /// The start of each flow, and its bytes.
    pub(crate) flows: Vec<(i64, Box<[u8]>)>,
    /// The number of flows dropped for lack of room.
    pub(crate) dropped: u64,
}

/// State that is only needed with a history in files.
#[derive(Debug, Default)]
struct Filed {
    /// Flows that begin before this time are in files.
    until: i64,
    late: LateFlows,
    /// Nodes resend flows that a previous process wrote: flows that begin before the first time are recognised as such
    /// until the second time.
    former: (i64, i64),
}

struct State {
    policies: Option<PolicyTotals>,
    filed: Option<Filed>,
    ring: Ring,
    seen: Seen<Arc<str>>,
    /// Keys by their encoded bytes, as received from senders.
    known: HashMap<Box<[u8]>, KnownKey>,
}

/// The current contents, for figures.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// The number of keys.
    pub keys: usize,
    /// The ring's own counts.
    pub counts: RingCounts,
    /// The size of frozen buckets in bytes.
    pub frozen_bytes: usize,
    /// The number of flows remembered to recognise repetitions.
    pub seen: usize,
    /// The number of flows forgotten too early to recognise repetitions.
    pub forgotten: u64,
}

impl Aggregator {
    /// Creates an empty aggregator.
    #[must_use]
    pub fn new(options: AggregatorOptions, clock: Clock) -> Arc<Self> {
        Self::with_history(options, clock, None)
    }

    /// Creates an aggregator that restores the last hour from a history and answers queries about older flows from it.
    #[must_use]
    pub fn with_history(
        options: AggregatorOptions,
        clock: Clock,
        history: Option<Arc<History>>,
    ) -> Arc<Self> {
        let now = clock();
        let mut ring = Ring::new(options.ring, now);
        let filed = history.as_ref().map(|history| {
            let begin = ring.snapshot().begin();
            history.restore(&mut ring, begin);
            let until = history.until().unwrap_or(i64::MIN);
            Filed { until, late: LateFlows::default(), former: (until, now.saturating_add(RESENT)) }
        });
        let policies =
            (options.most_policy_series > 0).then(|| PolicyTotals::new(options.most_policy_series));
        let state =
            State { policies, filed, ring, seen: Seen::new(options.most_seen), known: HashMap::new() };
        let (turns, _) = watch::channel(0);
        let (figures, losses) = (Figures::default(), LossAccounts::default());
        Arc::new(Self { state: Mutex::new(state), turns, clock, options, figures, losses, history })
    }

    /// The history in files, if there is one.
    #[must_use]
    pub fn history(&self) -> Option<&Arc<History>> {
        self.history.as_ref()
    }

    /// Takes a snapshot, of which the flows that begin before `until` are about to be written, and the late flows of
    /// blocks that were written before.
    pub(crate) fn seal(&self, until: i64) -> (Snapshot, LateFlows) {
        let mut state = self.state();
        let late = match &mut state.filed {
            Some(filed) => {
                filed.until = until;
                std::mem::take(&mut filed.late)
            }
            None => LateFlows::default(),
        };
        (state.ring.snapshot(), late)
    }

    /// Undoes [`Self::seal`] after a failed write: only flows that begin before `until` are in files.
    pub(crate) fn unseal(&self, until: i64, late: LateFlows) {
        if let Some(filed) = &mut self.state().filed {
            filed.until = until;
            let since = std::mem::replace(&mut filed.late, LateFlows { dropped: 0, ..late });
            // Flows that arrived for the block in the meantime are in memory and will be written with it.
            let mut since = since.flows;
            since.retain(|(start, _)| *start < until);
            filed.late.flows.extend(since);
        }
    }

    /// Lets `work` count flows of a sender under the lock. Flows that cannot be counted are counted as dropped.
    pub fn ingest<R>(&self, sender: &Arc<str>, work: impl FnOnce(&mut Counting<'_>) -> R) -> R {
        let began = Instant::now();
        let now = (self.clock)();
        let mut state = self.state();
        let number = state.seen.sender(sender, now);
        let mut counting =
            Counting { state: &mut state, sender: number, now, received: 0, repeated: 0, unreadable: 0 };
        let result = work(&mut counting);
        let (received, repeated, unreadable) = (counting.received, counting.repeated, counting.unreadable);
        drop(state);
        self.figures.ingested(sender, received, repeated, unreadable, began.elapsed());
        result
    }

    /// Advances to the current time. Wakes readers when a bucket has ended.
    pub fn turn(&self) {
        let began = Instant::now();
        let steps = {
            let mut state = self.state();
            let steps = state.ring.roll((self.clock)());
            state.forget_keys();
            steps
        };
        if steps > 0 {
            self.figures.turned(began.elapsed());
            self.turns.send_modify(|turns| *turns += steps);
        }
    }

    /// The time until the next bucket begins.
    #[must_use]
    pub fn until_turn(&self) -> Duration {
        let interval = self.options.ring.interval.max(1);
        let rest = interval - (self.clock)().rem_euclid(interval);
        Duration::from_secs(u64::try_from(rest).unwrap_or(1))
    }

    /// The current state, for queries.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.state().ring.snapshot()
    }

    /// The current time in seconds since 1970.
    #[must_use]
    pub fn now(&self) -> i64 {
        (self.clock)()
    }

    /// A channel with the number of buckets that have ended.
    #[must_use]
    pub fn turns(&self) -> watch::Receiver<u64> {
        self.turns.subscribe()
    }

    /// The limits.
    #[must_use]
    pub fn options(&self) -> &AggregatorOptions {
        &self.options
    }

    /// The figures.
    #[must_use]
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// The losses reported by nodes.
    pub(crate) fn losses(&self) -> &LossAccounts {
        &self.losses
    }

    /// The current contents.
    #[must_use]
    pub fn kept(&self) -> Kept {
        let state = self.state();
        Kept {
            keys: state.ring.keys(),
            counts: state.ring.counts(),
            frozen_bytes: state.ring.frozen_bytes(),
            seen: state.seen.len(),
            forgotten: state.seen.forgotten(),
        }
    }

    /// Adds the per-policy metrics, if enabled.
    pub(crate) fn show_policies(&self, page: &mut Vec<telemetry::Figure>) {
        if let Some(policies) = &self.state().policies {
            policies.show(page);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts flows of one sender while it holds the lock.
pub struct Counting<'a> {
    state: &'a mut State,
    sender: u32,
    now: i64,
    received: u64,
    repeated: u64,
    unreadable: u64,
}

impl Counting<'_> {
    /// Counts the flow in an update.
    pub fn update(&mut self, message: &[u8]) {
        self.received += 1;
        let outcome = match FlowRef::of_update(message) {
            Ok(flow) => self.state.add(self.sender, &flow, self.now),
            Err(Damaged) => Outcome::Unreadable,
        };
        match outcome {
            Outcome::Done => {}
            Outcome::Repeated => self.repeated += 1,
            Outcome::Unreadable => self.unreadable += 1,
        }
    }
}

enum Outcome {
    Done,
    Repeated,
    Unreadable,
}

impl State {
    fn add(&mut self, sender: u32, flow: &FlowRef<'_>, now: i64) -> Outcome {
        let (start, end, counters) = (flow.start, flow.end, &flow.counters);
        let labels = LabelTexts { source: flow.source_labels(), dest: flow.dest_labels() };
        if let Some(known) = self.known.get(flow.key).copied().filter(|known| self.ring.knows(*known)) {
            return self.add_known(sender, known, flow, now);
        }
        let key = match decode_key(flow.key) {
            Ok(key) if !flow.key.is_empty() => key,
            _ => return Outcome::Unreadable,
        };
        // The same key, encoded differently.
        if let Some(known) = self.ring.find(&key) {
            self.known.insert(flow.key.into(), known);
            return self.add_known(sender, known, flow, now);
        }
        if self.was_counted_before(start, now) {
            return Outcome::Repeated;
        }
        if let Added::Counted(known) = self.ring.add(&key, start, counters, &labels) {
            self.known.insert(flow.key.into(), known);
            self.seen.is_new(sender, known.slot(), start, end, now);
            self.counted(known, flow);
        }
        Outcome::Done
    }

    fn add_known(&mut self, sender: u32, known: KnownKey, flow: &FlowRef<'_>, now: i64) -> Outcome {
        let (start, end) = (flow.start, flow.end);
        if self.was_counted_before(start, now) {
            return Outcome::Repeated;
        }
        if self.ring.covers(start) && !self.seen.is_new(sender, known.slot(), start, end, now) {
            return Outcome::Repeated;
        }
        let labels = LabelTexts { source: flow.source_labels(), dest: flow.dest_labels() };
        if let Some(Added::Counted(known)) = self.ring.add_known(known, start, &flow.counters, &labels) {
            self.counted(known, flow);
        }
        Outcome::Done
    }

    /// Whether a previous process had flows of this time, and nodes still resend them.
    fn was_counted_before(&self, start: i64, now: i64) -> bool {
        self.filed.as_ref().is_some_and(|filed| start < filed.former.0 && now < filed.former.1)
    }

    /// Adds a flow that is now in the ring to the policies' figures and, if its block was written, to the late flows.
    fn counted(&mut self, known: KnownKey, flow: &FlowRef<'_>) {
        if let (Some(policies), Some(key)) = (&mut self.policies, self.ring.key(known)) {
            policies.count(known, key, &flow.counters);
        }
        let Some(filed) = self.filed.as_mut().filter(|filed| flow.start < filed.until) else { return };
        match filed.late.flows.len() < MOST_LATE {
            true => filed.late.flows.push((flow.start, flow.bytes.into())),
            false => filed.late.dropped += 1,
        }
    }

    /// Forgets the encoded keys that the ring has forgotten, once they are the majority.
    fn forget_keys(&mut self) {
        if self.known.len() > 2 * self.ring.keys() + 1000 {
            let ring = &self.ring;
            self.known.retain(|_, known| ring.knows(*known));
        }
        // A sender that keeps changing the encoding of a key costs time, but not memory.
        if self.known.len() > 4 * self.ring.keys() + 10_000 {
            self.known.clear();
        }
    }
}
