//! The counters of the calculation graph, under the names used by Calico's dashboards.

use calc::Stats;
use std::sync::{Arc, Mutex, PoisonError};
use telemetry::{Figure, FigureKind, Metrics};

/// Registers the figures; the newest counts are shown on each request.
pub(crate) fn figures(metrics: &Metrics, stats: &Arc<Mutex<Stats>>) {
    let stats = Arc::clone(stats);
    metrics.source(move |figures| {
        let stats = *stats.lock().unwrap_or_else(PoisonError::into_inner);
        figures.extend(plain(&stats));
        figures.extend(of_label_index(&stats));
    });
}

fn number(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::MAX, f64::from)
}

/// Counters outgrow 32 bits; from 2^53 on they lose their last digits.
fn total(count: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "Prometheus has no other numbers")]
    let total = count as f64;
    total
}

/// The figures without labels.
fn plain(stats: &Stats) -> [Figure; 10] {
    let gauge = |name, help, value| Figure {
        name,
        kind: FigureKind::Gauge,
        help,
        values: vec![(String::new(), number(value))],
    };
    [
        gauge(
            "felix_active_local_endpoints",
            "Number of active endpoints on this host.",
            stats.active_local_endpoints,
        ),
        gauge(
            "felix_active_local_policies",
            "Number of active policies on this host.",
            stats.active_local_policies,
        ),
        gauge(
            "felix_active_local_selectors",
            "Number of active selectors on this host.",
            stats.active_local_selectors,
        ),
        gauge(
            "felix_cluster_num_hosts",
            "Total number of Calico hosts in the cluster.",
            stats.cluster_num_hosts,
        ),
        gauge(
            "felix_cluster_num_workload_endpoints",
            "Total number of workload endpoints cluster-wide.",
            stats.cluster_num_workload_endpoints,
        ),
        gauge(
            "felix_cluster_num_host_endpoints",
            "Total number of host endpoints cluster-wide.",
            stats.cluster_num_host_endpoints,
        ),
        gauge(
            "felix_cluster_num_tiers",
            "Total number of Calico tiers in the cluster.",
            stats.cluster_num_tiers,
        ),
        gauge(
            "felix_cluster_num_policies",
            "Total number of policies in the cluster.",
            stats.cluster_num_policies,
        ),
        gauge(
            "felix_cluster_num_profiles",
            "Total number of profiles in the cluster.",
            stats.cluster_num_profiles,
        ),
        gauge(
            "felix_label_index_num_endpoints",
            "Total number of endpoints and similar objects in the index.",
            stats.label_index_num_endpoints,
        ),
    ]
}

/// The figures of the index from labels to selectors. Strategies use Calico's names for its nearest equivalents. Calico
/// counts endpoints and their parents separately; here both are in one index.
fn of_label_index(stats: &Stats) -> [Figure; 3] {
    let labelled = |label: &str, values: &[(&str, f64)]| {
        values.iter().map(|(word, value)| (format!("{label}=\"{word}\""), *value)).collect()
    };
    [
        Figure {
            name: "felix_label_index_num_active_selectors",
            kind: FigureKind::Gauge,
            help: "Total number of active selectors in the policy rule label index.",
            values: labelled(
                "optimized",
                &[
                    ("true", number(stats.label_index_selectors_optimized)),
                    ("false", number(stats.label_index_selectors_unoptimized)),
                ],
            ),
        },
        Figure {
            name: "felix_label_index_selector_evals",
            kind: FigureKind::Counter,
            help: "Total number of selector evaluations.",
            values: labelled(
                "result",
                &[
                    ("true", total(stats.label_index_evaluations_true)),
                    ("false", total(stats.label_index_evaluations_false)),
                ],
            ),
        },
        Figure {
            name: "felix_label_index_strategy_evals",
            kind: FigureKind::Counter,
            help: "Total number of index scans broken down by scan strategy.",
            values: labelled(
                "strategy",
                &[
                    ("endpoint-single-value", total(stats.label_index_lookups_by_value)),
                    ("endpoint-label-name", total(stats.label_index_lookups_by_name)),
                    ("endpoint-no-match", total(stats.label_index_lookups_of_nobody)),
                    ("endpoint-full-scan", total(stats.label_index_full_scans)),
                ],
            ),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_counters_are_shown() {
        // A different value for each, so that none can be mistaken for another.
        let stats = Stats {
            active_local_endpoints: 101,
            active_local_policies: 102,
            active_local_selectors: 103,
            cluster_num_hosts: 104,
            cluster_num_workload_endpoints: 105,
            cluster_num_host_endpoints: 106,
            cluster_num_tiers: 107,
            cluster_num_policies: 108,
            cluster_num_profiles: 109,
            label_index_num_endpoints: 110,
            label_index_selectors_optimized: 111,
            label_index_selectors_unoptimized: 112,
            label_index_evaluations_true: 113,
            label_index_evaluations_false: 114,
            label_index_lookups_by_value: 115,
            label_index_lookups_by_name: 116,
            label_index_lookups_of_nobody: 117,
            label_index_full_scans: 118,
        };
        let metrics = Metrics::default();
        figures(&metrics, &Arc::new(Mutex::new(stats)));
        let page = metrics.page();
        for value in 101..=118 {
            assert!(page.lines().any(|line| line.ends_with(&format!(" {value}"))), "{value}: {page}");
        }
        assert!(page.contains("\nfelix_label_index_selector_evals{result=\"true\"} 113\n"), "{page}");
        assert!(
            page.contains("\nfelix_label_index_num_active_selectors{optimized=\"false\"} 112\n"),
            "{page}"
        );
    }
}
