//! The counters of the collector, with Calico's names where it has them.

use super::directory::Sizes;
use goldmane_api::losses::LossKind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use telemetry::{Figure, FigureKind, Metrics};

/// The groups of reported packets: 1 for ingress, 2 for egress.
pub(super) const GROUPS: [u16; 2] = [1, 2];

/// The counters of one reader of packets.
#[derive(Debug, Default)]
pub(super) struct ReaderFigures {
    pub(super) batches: AtomicU64,
    pub(super) packets: AtomicU64,
    pub(super) overruns: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) unreadable: AtomicU64,
    /// Connections that packets were aggregated into; those passed on; packets of those dropped.
    pub(super) created: AtomicU64,
    pub(super) handed_on: AtomicU64,
    pub(super) shed: AtomicU64,
}

/// A time that is measured repeatedly.
#[derive(Clone, Copy, Debug)]
pub(super) enum Measured {
    /// Processing the kernel's connections.
    Dump,
    /// Creating the flows of an interval.
    Flush,
    /// Evaluating staged policies for all connections.
    Sweep,
}

impl Measured {
    pub(super) fn note(self, metrics: &Metrics, time: Duration) {
        let seconds = time.as_secs_f64();
        match self {
            Self::Dump => metrics.observe(
                "felix_collector_conntrack_processing_latency_seconds",
                "Seconds to process the kernel's connections.",
                seconds,
            ),
            Self::Flush => metrics.observe(
                "felix_collector_dumpstats_latency_seconds",
                "Seconds to create the flows of an interval.",
                seconds,
            ),
            Self::Sweep => metrics.observe(
                "felix_collector_policy_eval_sweep_duration_seconds",
                "Seconds to evaluate staged policies for all connections.",
                seconds,
            ),
        }
    }
}

/// All counters.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) readers: [ReaderFigures; 2],
    /// Known connections; those for which there was no room; those without any decision.
    pub(super) connections: AtomicU64,
    pub(super) full: AtomicU64,
    pub(super) unexplained: AtomicU64,
    /// Ends of connections that were lost by the kernel, and that were dropped here.
    pub(super) events_lost: AtomicU64,
    pub(super) events_shed: AtomicU64,
    /// Allowed and denied flows of the last interval.
    pub(super) allowed: AtomicU64,
    pub(super) denied: AtomicU64,
    /// Flows passed to a sink, and flows that no sink accepted.
    pub(super) exported: AtomicU64,
    pub(super) unsent: AtomicU64,
    pub(super) evaluated_first: AtomicU64,
    pub(super) evaluated_again: AtomicU64,
    pub(super) sweeps: AtomicU64,
    sizes: Mutex<Sizes>,
}

impl Counts {
    pub(super) fn set_sizes(&self, sizes: Sizes) {
        *self.sizes.lock().unwrap_or_else(PoisonError::into_inner) = sizes;
    }

    /// The losses so far, for readers of flows elsewhere.
    pub(super) fn losses(&self) -> Vec<(LossKind, u64)> {
        let of_readers = |field: fn(&ReaderFigures) -> &AtomicU64| {
            self.readers.iter().map(|reader| field(reader).load(Ordering::Relaxed)).sum()
        };
        let one = |count: &AtomicU64| count.load(Ordering::Relaxed);
        vec![
            (LossKind::PacketsLost, of_readers(|reader| &reader.lost)),
            (LossKind::PacketsShed, of_readers(|reader| &reader.shed)),
            (LossKind::PacketsUnreadable, of_readers(|reader| &reader.unreadable)),
            (LossKind::EndsLost, one(&self.events_lost)),
            (LossKind::EndsShed, one(&self.events_shed)),
            (LossKind::ConnectionsFull, one(&self.full)),
            (LossKind::FlowsUnsent, one(&self.unsent)),
        ]
    }

    /// Registers all figures.
    pub(super) fn show(self: &Arc<Self>, metrics: &Metrics) {
        let counts = Arc::clone(self);
        metrics.source(move |figures| figures.extend(counts.figures()));
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = self.of_readers();
        figures.extend(self.of_collector());
        figures
    }

    fn of_readers(&self) -> Vec<Figure> {
        let of = |name, kind, help, field: fn(&ReaderFigures) -> &AtomicU64| {
            let readers = GROUPS.iter().zip(&self.readers);
            let value = |(group, reader)| (format!("groupNum=\"{group}\""), number(field(reader)));
            Figure { name, kind, help, values: readers.map(value).collect() }
        };
        let counter = FigureKind::Counter;
        vec![
            of(
                "felix_nflog_netlink_messages_received",
                counter,
                "Number of batches of packets received.",
                |reader| &reader.batches,
            ),
            of("felix_nflog_logs_received", counter, "Number of packets that rules reported.", |reader| {
                &reader.packets
            }),
            of(
                "felix_nflog_buffer_overruns",
                counter,
                "Number of times that packets were not read in time.",
                |reader| &reader.overruns,
            ),
            of("felix_nflog_parse_errors", counter, "Number of packets that could not be read.", |reader| {
                &reader.unreadable
            }),
            of(
                "felix_nflog_aggregates_created",
                counter,
                "Number of connections that packets were aggregated into.",
                |reader| &reader.created,
            ),
            of(
                "felix_nflog_aggregates_flushed",
                counter,
                "Number of connections that were handed to the collector.",
                |reader| &reader.handed_on,
            ),
            of(
                "felix_nflog_packets_lost",
                counter,
                "Number of packets that the kernel reported but that never arrived.",
                |reader| &reader.lost,
            ),
            of(
                "felix_nflog_packets_shed",
                counter,
                "Number of packets dropped because the collector was busy.",
                |reader| &reader.shed,
            ),
        ]
    }

    fn of_collector(&self) -> Vec<Figure> {
        let sizes = *self.sizes.lock().unwrap_or_else(PoisonError::into_inner);
        let size = |size: usize| u32::try_from(size).map_or(f64::MAX, f64::from);
        let one = |name, kind, help, value| Figure { name, kind, help, values: vec![(String::new(), value)] };
        let (gauge, counter) = (FigureKind::Gauge, FigureKind::Counter);
        vec![
            one("felix_collector_epstats", gauge, "Number of known connections.", number(&self.connections)),
            one(
                "felix_collector_lookupcache_endpoints",
                gauge,
                "Number of endpoints that are known by address.",
                size(sizes.endpoints),
            ),
            one(
                "felix_collector_lookupcache_networksets",
                gauge,
                "Number of network sets that are known by address.",
                size(sizes.network_sets),
            ),
            one(
                "felix_collector_lookupcache_services",
                gauge,
                "Number of services that are known by address.",
                size(sizes.services),
            ),
            one(
                "felix_collector_lookups_cache_policies",
                gauge,
                "Number of policies whose reports are understood.",
                size(sizes.policies),
            ),
            one(
                "felix_collector_policy_eval_batches_total",
                counter,
                "Number of times that connections were evaluated again.",
                number(&self.sweeps),
            ),
            one(
                "felix_collector_connections_full",
                counter,
                "Number of connections not tracked because the table was full.",
                number(&self.full),
            ),
            one(
                "felix_collector_connections_unexplained",
                counter,
                "Number of connections that no rule reported.",
                number(&self.unexplained),
            ),
            one(
                "felix_collector_events_lost",
                counter,
                "Number of times that ends of connections were not read in time.",
                number(&self.events_lost),
            ),
            one(
                "felix_collector_events_shed",
                counter,
                "Number of ends of connections dropped because the collector was busy.",
                number(&self.events_shed),
            ),
            one(
                "felix_collector_flows_exported",
                counter,
                "Number of flows that were exported.",
                number(&self.exported),
            ),
            one(
                "felix_collector_flows_unsent",
                counter,
                "Number of flows that could not be exported.",
                number(&self.unsent),
            ),
            Figure {
                name: "felix_collector_policy_eval_flows_total",
                kind: counter,
                help: "Number of connections that staged policies were evaluated for.",
                values: vec![
                    ("reason=\"initial\"".to_owned(), number(&self.evaluated_first)),
                    ("reason=\"recalc\"".to_owned(), number(&self.evaluated_again)),
                ],
            },
            Figure {
                name: "felix_collector_allowed_flowlog_aggregator_store",
                kind: gauge,
                help: "Number of flows of the last interval.",
                values: vec![
                    ("action=\"allow\"".to_owned(), number(&self.allowed)),
                    ("action=\"deny\"".to_owned(), number(&self.denied)),
                ],
            },
        ]
    }
}

/// Counters outgrow 32 bits; from 2^53 on they lose their last digits.
fn number(count: &AtomicU64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "Prometheus has no other numbers")]
    let number = count.load(Ordering::Relaxed) as f64;
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_shown_with_their_group() {
        let counts = Arc::new(Counts::default());
        counts.readers[0].lost.store(7, Ordering::Relaxed);
        counts.readers[1].shed.store(8, Ordering::Relaxed);
        counts.set_sizes(Sizes { endpoints: 9, ..Sizes::default() });
        let lost: Vec<_> = counts.losses().into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(lost, [(LossKind::PacketsLost, 7), (LossKind::PacketsShed, 8)]);
        let metrics = Metrics::default();
        counts.show(&metrics);
        Measured::Flush.note(&metrics, Duration::from_millis(1500));
        let page = metrics.page();
        for line in [
            "felix_nflog_packets_lost{groupNum=\"1\"} 7",
            "felix_nflog_packets_shed{groupNum=\"2\"} 8",
            "felix_collector_dumpstats_latency_seconds_sum 1.5",
            "felix_collector_lookupcache_endpoints 9",
        ] {
            assert!(page.contains(&format!("\n{line}\n")), "{line}: {page}");
        }
    }
}
