//! Figures of the dataplane. The loop owns the drivers, so it leaves a copy of their figures where others can read
//! them.

use super::backend::{number, set_figures};
use super::drivers::Plane;
use netfilter::nftables;
use netfilter::{DriverFigure, RuleDriver};
use netlink::netfilter::nft;
use rules::Backend;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use telemetry::{Figure, FigureKind, Metrics};

type Shared = Arc<Mutex<Vec<DriverFigure>>>;

/// The copy.
pub(super) struct Figures {
    shared: Shared,
}

impl Figures {
    /// Registers the figures.
    pub(super) fn new(metrics: &Metrics) -> Self {
        let shared = Shared::default();
        let copy = Arc::clone(&shared);
        metrics.source(move |figures| collect(&copy, figures));
        Self { shared }
    }

    /// Copies the drivers' figures.
    pub(super) fn copy(
        &self,
        planes: &[Plane],
        arp: Option<&nftables::Driver<nft::Client>>,
        backend: Backend,
    ) {
        let mut all = Vec::new();
        for plane in planes {
            all.extend(plane.filter.rules.figures());
            all.extend(set_figures(plane, backend));
            if let Some(routes) = &plane.routes {
                let (count, devices) = routes.counts();
                let labels = format!("table=\"IPv{}:254\"", plane.version);
                all.push(("felix_route_table_num_routes", labels.clone(), number(count)));
                all.push(("felix_route_table_num_ifaces", labels, number(devices)));
            }
        }
        if backend == Backend::Nftables {
            all.extend(arp.map(RuleDriver::figures).unwrap_or_default());
        }
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = all;
    }
}

/// Adds up the values that several drivers report under one name.
fn collect(shared: &Shared, figures: &mut Vec<Figure>) {
    let all = shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut sums: BTreeMap<&'static str, BTreeMap<String, f64>> = BTreeMap::new();
    for (name, labels, value) in all {
        *sums.entry(name).or_default().entry(labels).or_default() += value;
    }
    figures.extend(sums.into_iter().map(|(name, values)| {
        let (kind, help) = describe(name);
        Figure { name, kind, help, values: values.into_iter().collect() }
    }));
}

fn describe(name: &str) -> (FigureKind, &'static str) {
    use FigureKind::{Counter, Gauge};
    match name {
        "felix_iptables_chains" => (Gauge, "Number of active iptables chains."),
        "felix_iptables_rules" => (Gauge, "Number of active iptables rules."),
        "felix_iptables_lines_executed" => (Counter, "Number of iptables rule updates executed."),
        "felix_iptables_save_calls" => (Counter, "Number of iptables-save calls."),
        "felix_iptables_save_errors" => (Counter, "Number of iptables-save errors."),
        "felix_iptables_restore_calls" => (Counter, "Number of iptables-restore calls."),
        "felix_iptables_restore_errors" => (Counter, "Number of iptables-restore errors."),
        "felix_nft_chains" => (Gauge, "Number of active nft chains in the Calico table."),
        "felix_nft_rules" => (Gauge, "Number of active nftables rules in the Calico table."),
        "felix_nft_maps" => (Gauge, "Number of active Calico nftables maps."),
        "felix_nft_calls" => (Counter, "Number of nft rule write transactions."),
        "felix_nft_errors" => (Counter, "Number of nft errors when writing rules."),
        "felix_nft_list_calls" => (Counter, "Number of nft list calls."),
        "felix_nft_list_errors" => (Counter, "Number of nft list errors."),
        "felix_nft_sets" => (Gauge, "Number of active Calico nftables sets."),
        "felix_nft_set_calls" => (Counter, "Number of nftables set transactions executed."),
        "felix_nft_set_errors" => (Counter, "Number of nftables set transaction failures."),
        "felix_ipsets_calico" => (Gauge, "Number of active Calico IP sets."),
        "felix_ipset_calls" => (Counter, "Number of batches of changes to IP sets."),
        "felix_ipset_errors" => (Counter, "Number of changes to IP sets that failed."),
        "felix_ipset_lines_executed" => (Counter, "Number of changes to IP sets."),
        "felix_route_table_num_routes" => (Gauge, "Number of routes that are managed in the table."),
        "felix_route_table_num_ifaces" => (Gauge, "Number of interfaces that are watched for the table."),
        _ => (Gauge, ""),
    }
}
