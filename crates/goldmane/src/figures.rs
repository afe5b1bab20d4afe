//! Figures with Calico's names, and a few of our own.

use crate::aggregator::Aggregator;
use crate::history::HistoryFigures;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use telemetry::{Figure, FigureKind, Metrics};

/// The maximum number of senders with their own figures.
const MOST_SENDERS: usize = 10_000;

/// A sum of milliseconds, and the number of values in it.
#[derive(Debug, Default)]
struct Sum {
    count: AtomicU64,
    micros: AtomicU64,
}

impl Sum {
    fn observe(&self, duration: Duration, count: u64) {
        self.count.fetch_add(count, Ordering::Relaxed);
        self.micros.fetch_add(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    fn millis(&self) -> (f64, f64) {
        (self.micros.load(Ordering::Relaxed) as f64 / 1e3, self.count.load(Ordering::Relaxed) as f64)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Sender {
    flows: u64,
    busy: Duration,
}

/// The counters.
#[derive(Debug, Default)]
pub struct Figures {
    received: AtomicU64,
    repeated: AtomicU64,
    unreadable: AtomicU64,
    batches: AtomicU64,
    index: Sum,
    turns: Sum,
    backfills: Sum,
    senders: Mutex<BTreeMap<Arc<str>, Sender>>,
    clients: AtomicU64,
    streams: AtomicU64,
    streams_ended: AtomicU64,
    windows_dropped: AtomicU64,
}

/// Counts something that exists as long as this value.
pub(crate) struct Present(Arc<Aggregator>, fn(&Figures) -> &AtomicU64);

impl Drop for Present {
    fn drop(&mut self) {
        (self.1)(self.0.figures()).fetch_sub(1, Ordering::Relaxed);
    }
}

impl Figures {
    pub(crate) fn ingested(
        &self,
        sender: &Arc<str>,
        received: u64,
        repeated: u64,
        unreadable: u64,
        took: Duration,
    ) {
        self.received.fetch_add(received, Ordering::Relaxed);
        self.repeated.fetch_add(repeated, Ordering::Relaxed);
        self.unreadable.fetch_add(unreadable, Ordering::Relaxed);
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.index.observe(took, received);
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        if senders.len() < MOST_SENDERS || senders.contains_key(sender) {
            let figures = senders.entry(Arc::clone(sender)).or_default();
            figures.flows += received;
            figures.busy += took;
        }
    }

    /// Number of received flows.
    pub(crate) fn received_flows(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Number of unreadable flows.
    pub(crate) fn unreadable_flows(&self) -> u64 {
        self.unreadable.load(Ordering::Relaxed)
    }

    pub(crate) fn turned(&self, took: Duration) {
        self.turns.observe(took, 1);
    }

    pub(crate) fn backfilled(&self, took: Duration) {
        self.backfills.observe(took, 1);
    }

    /// Counts a reader that was so slow that flows it had not read have expired.
    pub(crate) fn stream_fell_behind(&self) {
        self.streams_ended.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a window whose flows were not sent.
    pub(crate) fn window_dropped(&self) {
        self.windows_dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connected sender as long as the value lives.
    pub(crate) fn client(aggregator: &Arc<Aggregator>) -> Present {
        Self::present(aggregator, |figures| &figures.clients)
    }

    /// Counts a connected reader as long as the value lives; `None` if there are too many.
    pub(crate) fn stream(aggregator: &Arc<Aggregator>) -> Option<Present> {
        let most = aggregator.options().most_streams as u64;
        let present = Self::present(aggregator, |figures| &figures.streams);
        (aggregator.figures().streams.load(Ordering::Relaxed) <= most).then_some(present)
    }

    fn present(aggregator: &Arc<Aggregator>, count: fn(&Self) -> &AtomicU64) -> Present {
        count(aggregator.figures()).fetch_add(1, Ordering::Relaxed);
        Present(Arc::clone(aggregator), count)
    }
}

/// Adds all figures to the process's metrics page.
pub fn register(metrics: &Metrics, aggregator: &Arc<Aggregator>) {
    let aggregator = Arc::clone(aggregator);
    metrics.source(move |page| show(&aggregator, page));
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn show(aggregator: &Aggregator, page: &mut Vec<Figure>) {
    use FigureKind::{Counter, Gauge};
    let (figures, kept) = (aggregator.figures(), aggregator.kept());
    let count = |value: &AtomicU64| value.load(Ordering::Relaxed) as f64;
    let unreadable = count(&figures.unreadable);
    let dropped = (kept.counts.outside + kept.counts.full) as f64 + unreadable;
    let mut push = |name, kind, help, value| {
        page.push(Figure { name, kind, help, values: vec![(String::new(), value)] });
    };
    push("goldmane_aggr_received_flows_total", Counter, "Flows received.", count(&figures.received));
    push(
        "goldmane_aggr_dropped_flows_total",
        Counter,
        "Flows that were not counted, for any reason.",
        dropped,
    );
    push("goldmane_aggr_num_unique_flows", Gauge, "Flow keys in memory.", kept.keys as f64);
    push(
        "goldmane_aggr_flow_index_buffer_size",
        Gauge,
        "Waiting flows: always 0, because senders wait for receipts.",
        0.0,
    );
    push(
        "goldmane_aggr_flow_index_batch_size_sum",
        Counter,
        "Flows that were counted in batches.",
        count(&figures.received),
    );
    push(
        "goldmane_aggr_flow_index_batch_size_count",
        Counter,
        "Batches of flows counted at once.",
        count(&figures.batches),
    );
    let (sum, number) = figures.index.millis();
    push("goldmane_aggr_flow_index_latency_ms_sum", Counter, "Milliseconds spent counting flows.", sum);
    push("goldmane_aggr_flow_index_latency_ms_count", Counter, "Flows counted in that time.", number);
    let (sum, number) = figures.turns.millis();
    push("goldmane_aggr_rollover_duration_ms_sum", Counter, "Milliseconds spent starting buckets.", sum);
    push("goldmane_aggr_rollover_duration_ms_count", Counter, "How often a bucket was started.", number);
    push(
        "goldmane_aggr_rollover_latency_ms",
        Gauge,
        "Milliseconds until the next bucket begins.",
        aggregator.until_turn().as_secs_f64() * 1e3,
    );
    let (sum, number) = figures.backfills.millis();
    push(
        "goldmane_aggr_backfill_latency_ms_sum",
        Counter,
        "Milliseconds spent reading older buckets for streams.",
        sum,
    );
    push(
        "goldmane_aggr_backfill_latency_ms_count",
        Counter,
        "Streams that older buckets were read for.",
        number,
    );
    push("goldmane_collector_num_clients", Gauge, "Connected senders.", count(&figures.clients));
    push("goldmane_num_streams", Gauge, "Streams of flows being read.", count(&figures.streams));
    push(
        "goldmane_streams_fell_behind_total",
        Counter,
        "Streams that were ended because their reader fell behind the history.",
        count(&figures.streams_ended),
    );
    push(
        "goldmane_emitter_dropped_windows_total",
        Counter,
        "Windows of flows that the server of PUSH_URL did not accept.",
        count(&figures.windows_dropped),
    );
    push(
        "goldmane_aggr_repeated_flows_total",
        Counter,
        "Flows that senders repeated after a reconnect and that were not counted again.",
        count(&figures.repeated),
    );
    push("goldmane_aggr_seen_flows", Gauge, "Flows remembered to recognise repetitions.", kept.seen as f64);
    push(
        "goldmane_aggr_seen_flows_forgotten_total",
        Counter,
        "Remembered flows that were dropped early because there were too many.",
        kept.forgotten as f64,
    );
    push(
        "goldmane_aggr_late_flows_total",
        Counter,
        "Flows that arrived after their bucket was complete and corrected it.",
        kept.counts.late as f64,
    );
    push("goldmane_aggr_history_bytes", Gauge, "Bytes of complete buckets.", kept.frozen_bytes as f64);
    page.push(Figure {
        name: "goldmane_aggr_dropped_flows_by_reason_total",
        kind: Counter,
        help: "Flows that were not counted, by reason.",
        values: vec![
            ("reason=\"time\"".to_owned(), kept.counts.outside as f64),
            ("reason=\"keys\"".to_owned(), kept.counts.full as f64),
            ("reason=\"unreadable\"".to_owned(), unreadable),
        ],
    });
    if let Some(history) = aggregator.history() {
        show_history(history.figures(), page);
    }
    aggregator.show_policies(page);
    let senders = figures.senders.lock().unwrap_or_else(PoisonError::into_inner);
    let mut each = |name, kind, help, value: &dyn Fn(&Sender) -> f64| {
        let label = |(name, sender): (&Arc<str>, &Sender)| (format!("source={name:?}"), value(sender));
        page.push(Figure { name, kind, help, values: senders.iter().map(label).collect() });
    };
    each("goldmane_collector_received_flows", Counter, "Flows received, by sender.", &|sender| {
        sender.flows as f64
    });
    each(
        "goldmane_collector_flow_process_latency_sum",
        Counter,
        "Milliseconds spent counting flows, by sender.",
        &|sender| sender.busy.as_secs_f64() * 1e3,
    );
    each(
        "goldmane_collector_flow_process_latency_count",
        Counter,
        "Flows counted in that time, by sender.",
        &|sender| sender.flows as f64,
    );
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn show_history(figures: &HistoryFigures, page: &mut Vec<Figure>) {
    use FigureKind::{Counter, Gauge};
    let mut push = |name, kind, help, value: &AtomicU64| {
        let value = value.load(Ordering::Relaxed) as f64;
        page.push(Figure { name, kind, help, values: vec![(String::new(), value)] });
    };
    push("goldmane_history_file_bytes", Gauge, "Bytes of the history's files.", &figures.bytes);
    push(
        "goldmane_history_blocks_written_total",
        Counter,
        "Blocks of flows written to the history.",
        &figures.written,
    );
    push(
        "goldmane_history_write_failures_total",
        Counter,
        "Writes to the history that failed and are tried again.",
        &figures.failures,
    );
    push(
        "goldmane_history_blocks_lost_total",
        Counter,
        "Blocks of flows that expired from memory before they could be written to the history.",
        &figures.lost,
    );
    push(
        "goldmane_history_late_flows_lost_total",
        Counter,
        "Late flows for which there was no room until they could be written to the history.",
        &figures.lost_flows,
    );
    push(
        "goldmane_history_damaged_total",
        Counter,
        "Parts of the history's files that could not be read.",
        &figures.damaged,
    );
}
