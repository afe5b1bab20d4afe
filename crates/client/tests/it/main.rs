//! The typed client on real stores: etcd, the embedded store in this process, and a kube-apiserver.
//!
//! Each store is started once and runs the same scenarios in turn, on empty data. If a store does not support
//! something, the scenario itself says so and checks that the client reports it.

mod captured;
mod opening;
mod scenarios;
mod stores;

use futures::FutureExt as _;
use scenarios::SCENARIOS;
use std::panic::AssertUnwindSafe;
use stores::Store;

/// Runs every scenario on a store; fails with the names of all failed ones.
async fn run_all(store: &dyn Store) {
    let mut failed = Vec::new();
    for (name, scenario) in SCENARIOS {
        store.empty().await;
        // One failure must not hide the results of the others.
        if AssertUnwindSafe(scenario(store)).catch_unwind().await.is_err() {
            failed.push(*name);
        }
    }
    eprintln!("{}: {} scenarios, {} failed", store.name(), SCENARIOS.len(), failed.len());
    assert!(failed.is_empty(), "failed on {}: {}", store.name(), failed.join(", "));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenarios_on_etcd() {
    run_all(&stores::RealEtcd::start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenarios_on_the_embedded_store() {
    run_all(&stores::Embedded::open().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenarios_on_kubernetes() {
    let kubernetes = stores::Kubernetes::start().await;
    run_all(&kubernetes).await;
    let outcome = kubernetes.client_without_rights().await.ensure_initialized("", "").await;
    assert!(matches!(outcome, Err(client::Error::Unauthorized { .. })), "{outcome:?}");
}
