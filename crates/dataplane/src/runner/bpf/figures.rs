//! Figures of the programs, read from the kernel when they are requested, so that rounds need not do it.

use bpf_driver::Denied;
use std::sync::{Arc, Mutex, PoisonError};
use telemetry::{Figure, FigureKind, Metrics};

/// The number of workload interfaces with programs; `None` until programs judge packets.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures(Arc<Mutex<Option<usize>>>);

impl Figures {
    /// Registers the figures.
    pub(super) fn show(&self, denied: Denied, metrics: &Metrics) {
        let workloads = Arc::clone(&self.0);
        metrics.source(move |figures| {
            let workloads = *workloads.lock().unwrap_or_else(PoisonError::into_inner);
            figures.extend(workloads.into_iter().flat_map(|workloads| figures_of(workloads, &denied)));
        });
    }

    /// Sets the number of interfaces with programs.
    pub(super) fn set(&self, workloads: usize) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(workloads);
    }
}

fn figures_of(workloads: usize, denied: &Denied) -> [Figure; 2] {
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let gauge = |name, help, value: u64| Figure {
        name,
        kind: FigureKind::Gauge,
        help,
        values: vec![(String::new(), value as f64)],
    };
    [
        gauge(
            "felix_bpf_happy_dataplane_endpoints",
            "Number of BPF endpoints that are successfully programmed.",
            u64::try_from(workloads).unwrap_or(u64::MAX),
        ),
        gauge(
            "felix_bpf_denied_packets",
            "Number of packets that policy denied on the interfaces that have eBPF programs now.",
            denied.packets().unwrap_or_default(),
        ),
    ]
}
