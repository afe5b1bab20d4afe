//! Compacts the history of the etcd datastore periodically, alternating with any other program that does so.

use daemon::Shutdown;
use datastore::{Backend, Compaction};
use std::sync::Arc;
use std::time::Duration;

/// Compacts once per period until the shutdown. The first round only reads the revision.
pub async fn run(backend: Arc<dyn Backend>, period: Duration, shutdown: Shutdown) {
    if period.is_zero() {
        tracing::info!("the datastore's history is not compacted");
        return;
    }
    let mut last = Compaction::default();
    loop {
        match backend.compaction_round(last).await {
            Ok(next) => {
                if let Some(revision) = next.compacted {
                    tracing::info!(revision, "compacted the datastore's history");
                }
                last = next;
            }
            Err(error) => tracing::warn!(%error, "cannot compact the datastore's history"),
        }
        if !shutdown.sleep(period).await {
            return;
        }
    }
}
