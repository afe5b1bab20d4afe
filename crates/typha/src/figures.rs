//! Metrics with Calico's names.

use crate::feed::Feed;
use daemon::log::Losses;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use telemetry::{Figure, FigureKind, Metrics};
use typha_wire::SyncerType;

/// A sum, and the number of its values.
#[derive(Debug, Default)]
struct Sum {
    count: AtomicU64,
    /// In millionths.
    total: AtomicU64,
}

impl Sum {
    fn observe(&self, duration: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.total.fetch_add(micros, Ordering::Relaxed);
    }

    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    fn values(&self) -> (f64, f64) {
        (self.total.load(Ordering::Relaxed) as f64 / 1e6, self.count.load(Ordering::Relaxed) as f64)
    }
}

#[derive(Debug, Default)]
struct KindFigures {
    streaming: AtomicU64,
    grace_used: AtomicU64,
    snapshot_send: Sum,
    client_latency: Sum,
    write_latency: Sum,
    next_latency: Sum,
    pings: Sum,
    messages: AtomicU64,
    changes: AtomicU64,
    waited: AtomicU64,
    without_waiting: AtomicU64,
}

/// The counters of connections.
#[derive(Debug, Default)]
pub struct ConnectionFigures {
    accepted: AtomicU64,
    dropped: AtomicU64,
    active: AtomicU64,
    resumed: AtomicU64,
    kinds: [KindFigures; 4],
}

/// Counts itself for as long as it lives.
pub struct Present<'a>(&'a AtomicU64);

impl<'a> Present<'a> {
    fn new(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ConnectionFigures {
    fn kind(&self, kind: SyncerType) -> &KindFigures {
        let place = SyncerType::ALL.iter().position(|one| *one == kind).unwrap_or(0);
        &self.kinds[place]
    }

    /// Counts an accepted connection, which is active as long as the returned value lives.
    pub fn accepted(&self) -> Present<'_> {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Present::new(&self.active)
    }

    /// Counts a client that was dropped because there were too many.
    pub fn dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a client that received only what it missed.
    pub fn resumed(&self) {
        self.resumed.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of clients that received only what they missed.
    #[must_use]
    pub fn resumed_total(&self) -> u64 {
        self.resumed.load(Ordering::Relaxed)
    }

    /// Counts a streaming client for as long as the returned value lives.
    pub fn streaming(&self, kind: SyncerType) -> Present<'_> {
        Present::new(&self.kind(kind).streaming)
    }

    /// The number of streaming clients.
    #[must_use]
    pub fn streaming_total(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.streaming.load(Ordering::Relaxed)).sum()
    }

    /// Counts a new client that used the grace period.
    pub fn grace_used(&self, kind: SyncerType) {
        self.kind(kind).grace_used.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that a snapshot was sent.
    pub fn snapshot_sent(&self, kind: SyncerType, duration: Duration) {
        self.kind(kind).snapshot_send.observe(duration);
    }

    /// Records that changes of this age were written.
    pub fn written(&self, kind: SyncerType, duration: Duration, age: Duration) {
        self.kind(kind).write_latency.observe(duration);
        self.kind(kind).client_latency.observe(age);
    }

    /// Records that a message with this many changes was sent.
    pub fn message(&self, kind: SyncerType, changes: usize) {
        let kind = self.kind(kind);
        kind.messages.fetch_add(1, Ordering::Relaxed);
        kind.changes.fetch_add(changes as u64, Ordering::Relaxed);
    }

    /// Records that a client got its next step, after waiting for it or at once because it was behind, and how long
    /// that took.
    pub fn next_step(&self, kind: SyncerType, waited: bool, took: Duration) {
        let kind = self.kind(kind);
        if waited {
            kind.waited.fetch_add(1, Ordering::Relaxed);
        } else {
            kind.without_waiting.fetch_add(1, Ordering::Relaxed);
            kind.next_latency.observe(took);
        }
    }

    /// Records the answer to a ping.
    pub fn ping_answered(&self, kind: SyncerType, latency: Duration) {
        self.kind(kind).pings.observe(latency);
    }
}

/// Adds everything to the metrics of the process.
pub(crate) fn register(
    metrics: &Metrics,
    figures: &Arc<ConnectionFigures>,
    feeds: &[Arc<Feed>],
    log: Arc<Losses>,
) {
    let (figures, feeds) = (Arc::clone(figures), feeds.to_vec());
    metrics.source(move |page| {
        connections(&figures, page);
        lost_lines(&log, page);
        self::feeds(&feeds, page);
    });
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn count(value: &AtomicU64) -> f64 {
    value.load(Ordering::Relaxed) as f64
}

fn single(name: &'static str, kind: FigureKind, help: &'static str, value: f64) -> Figure {
    Figure { name, kind, help, values: vec![(String::new(), value)] }
}

fn label(kind: SyncerType) -> String {
    format!("syncer=\"{kind}\"")
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn lost_lines(log: &Losses, page: &mut Vec<Figure>) {
    page.push(single(
        "typha_logs_dropped",
        FigureKind::Counter,
        "Number of logs dropped because the output stream was blocked.",
        log.dropped() as f64,
    ));
    page.push(single(
        "typha_log_errors",
        FigureKind::Counter,
        "Number of errors encountered while logging.",
        log.errors() as f64,
    ));
}

fn connections(figures: &ConnectionFigures, page: &mut Vec<Figure>) {
    use FigureKind::{Counter, Gauge};
    page.push(single(
        "typha_connections_accepted",
        Counter,
        "Total number of connections accepted over time.",
        count(&figures.accepted),
    ));
    page.push(single(
        "typha_connections_dropped",
        Counter,
        "Total number of connections dropped due to rebalancing.",
        count(&figures.dropped),
    ));
    page.push(single(
        "typha_connections_active",
        Gauge,
        "Number of open client connections, including connections that are still in the handshake.",
        count(&figures.active),
    ));
    page.push(single(
        "typha_connections_resumed",
        Counter,
        "Total number of connections that got only what they missed.",
        count(&figures.resumed),
    ));
    let per_kind = |value: &dyn Fn(&KindFigures) -> f64| {
        SyncerType::ALL.iter().map(|kind| (label(*kind), value(figures.kind(*kind)))).collect::<Vec<_>>()
    };
    let mut push = |name, kind, help, value: &dyn Fn(&KindFigures) -> f64| {
        page.push(Figure { name, kind, help, values: per_kind(value) });
    };
    push(
        "typha_connections_streaming",
        Gauge,
        "Number of client connections that completed the handshake and are streaming data.",
        &|kind| count(&kind.streaming),
    );
    push(
        "typha_connections_grace_used",
        Counter,
        "Total number of connections that made use of the grace period to catch up after the initial snapshot.",
        &|kind| count(&kind.grace_used),
    );
    push(
        "typha_breadcrumb_block",
        Counter,
        "Count of the number of times Typha got the next Breadcrumb after blocking.",
        &|kind| count(&kind.waited),
    );
    push(
        "typha_breadcrumb_non_block",
        Counter,
        "Count of the number of times Typha got the next Breadcrumb without blocking.",
        &|kind| count(&kind.without_waiting),
    );
    push(
        "typha_next_breadcrumb_latency_secs_sum",
        Counter,
        "Seconds to retrieve the next breadcrumb when already behind.",
        &|kind| kind.next_latency.values().0,
    );
    push("typha_next_breadcrumb_latency_secs_count", Counter, "Number of times that was done.", &|kind| {
        kind.next_latency.values().1
    });
    push("typha_ping_latency_sum", Counter, "Seconds between pings and their pongs.", &|kind| {
        kind.pings.values().0
    });
    push("typha_ping_latency_count", Counter, "Number of pongs.", &|kind| kind.pings.values().1);
    push("typha_kvs_per_msg_sum", Counter, "Number of KV pairs sent in messages of changes.", &|kind| {
        count(&kind.changes)
    });
    push("typha_kvs_per_msg_count", Counter, "Number of messages of changes.", &|kind| count(&kind.messages));
    push("typha_client_snapshot_send_secs_sum", Counter, "Seconds to send snapshots.", &|kind| {
        kind.snapshot_send.values().0
    });
    push("typha_client_snapshot_send_secs_count", Counter, "Number of snapshots sent.", &|kind| {
        kind.snapshot_send.values().1
    });
    push("typha_client_latency_secs_sum", Counter, "Seconds that clients were behind.", &|kind| {
        kind.client_latency.values().0
    });
    push("typha_client_latency_secs_count", Counter, "Number of times that was looked at.", &|kind| {
        kind.client_latency.values().1
    });
    push("typha_client_write_latency_secs_sum", Counter, "Seconds that writes took.", &|kind| {
        kind.write_latency.values().0
    });
    push("typha_client_write_latency_secs_count", Counter, "Number of writes.", &|kind| {
        kind.write_latency.values().1
    });
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn feeds(feeds: &[Arc<Feed>], page: &mut Vec<Figure>) {
    use FigureKind::{Counter, Gauge};
    let mut push = |name, kind, help, value: &dyn Fn(&Feed) -> f64| {
        let values = feeds.iter().map(|feed| (label(feed.kind()), value(feed))).collect();
        page.push(Figure { name, kind, help, values });
    };
    push("typha_cache_size", Gauge, "Total number of key/value pairs in Typha's in-memory cache.", &|feed| {
        feed.counts().0 as f64
    });
    push("typha_updates_total", Counter, "Total number of updates received from the Syncer.", &|feed| {
        feed.counts().1.updates as f64
    });
    push("typha_updates_skipped", Counter, "Total number of updates skipped as duplicates.", &|feed| {
        feed.counts().1.skipped as f64
    });
    push("typha_breadcrumb_seq_number", Gauge, "Current (server-local) sequence number.", &|feed| {
        feed.latest().sequence as f64
    });
    push("typha_breadcrumb_size_sum", Counter, "Number of KVs recorded in breadcrumbs.", &|feed| {
        feed.counts().1.changes as f64
    });
    push("typha_breadcrumb_size_count", Counter, "Number of breadcrumbs.", &|feed| {
        feed.counts().1.steps as f64
    });
    push("typha_snapshots_generated", Counter, "Number of snapshots generated.", &|feed| {
        feed.snapshot_counts().generated as f64
    });
    push("typha_snapshots_reused", Counter, "Number of snapshots sent to more than one client.", &|feed| {
        feed.snapshot_counts().reused as f64
    });
    push("typha_snapshot_raw_bytes", Gauge, "Size of the last snapshot before compression.", &|feed| {
        feed.snapshot_counts().raw_bytes as f64
    });
    push("typha_snapshot_compressed_bytes", Gauge, "Size of the last snapshot as it is sent.", &|feed| {
        feed.snapshot_counts().compressed_bytes as f64
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::FeedOptions;

    /// Every metric that is specific to Calico's Typha. Summaries are sums and counts here.
    #[test]
    fn metrics_have_calicos_names() {
        let metrics = Metrics::default();
        let feeds = SyncerType::ALL.map(|kind| Feed::new(kind, 1, FeedOptions::default()));
        register(&metrics, &Arc::default(), &feeds, Arc::default());
        let page = metrics.page();
        let has = |name: &str| page.lines().any(|line| line.split([' ', '{']).next() == Some(name));
        for name in [
            "breadcrumb_block",
            "breadcrumb_non_block",
            "breadcrumb_seq_number",
            "cache_size",
            "connections_accepted",
            "connections_active",
            "connections_dropped",
            "connections_grace_used",
            "connections_streaming",
            "log_errors",
            "logs_dropped",
            "snapshot_compressed_bytes",
            "snapshot_raw_bytes",
            "snapshots_generated",
            "snapshots_reused",
            "updates_skipped",
            "updates_total",
        ] {
            assert!(has(&format!("typha_{name}")), "{name}: {page}");
        }
        for name in [
            "breadcrumb_size",
            "client_latency_secs",
            "client_snapshot_send_secs",
            "client_write_latency_secs",
            "kvs_per_msg",
            "next_breadcrumb_latency_secs",
            "ping_latency",
        ] {
            for part in ["sum", "count"] {
                assert!(has(&format!("typha_{name}_{part}")), "{name}: {page}");
            }
        }
    }
}
