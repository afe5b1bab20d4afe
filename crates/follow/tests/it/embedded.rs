//! The embedded engine in this process.

use crate::scenario::{Fixture, set, survive};
use anyhow::Result;
use async_trait::async_trait;
use datastore::Backend;
use datastore::etcd::EtcdBackend;
use datastore::etcd::embedded::EmbeddedTransport;
use datastore::etcd::transport::{
    RangeRequest, RangeResponse, Transaction, TransactionResponse, Transport, TransportError, WatchAnswer,
    WatchRequest,
};
use follow::Snapshot;
use model::ListOptions;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use testkit::Folder;

/// The currently open store; a reopened one replaces it.
struct Current(RwLock<Arc<kvstore_engine::Store>>);

impl Current {
    fn store(&self) -> Arc<kvstore_engine::Store> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn transport(&self) -> EmbeddedTransport {
        EmbeddedTransport::new(self.store())
    }
}

#[async_trait]
impl Transport for Current {
    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, TransportError> {
        self.transport().range(request).await
    }

    async fn transact(&self, transaction: Transaction) -> Result<TransactionResponse, TransportError> {
        self.transport().transact(transaction).await
    }

    async fn grant_lease(&self, seconds: i64) -> Result<i64, TransportError> {
        self.transport().grant_lease(seconds).await
    }

    async fn watch(&self, request: WatchRequest) -> Result<WatchAnswer, TransportError> {
        self.transport().watch(request).await
    }
}

struct EmbeddedStore {
    folder: Folder,
    current: Arc<Current>,
}

#[async_trait]
impl Fixture for EmbeddedStore {
    async fn backend(&self) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(EtcdBackend::new(Arc::clone(&self.current) as Arc<dyn Transport>)))
    }

    async fn stop(&self) -> Result<()> {
        let store = self.current.store();
        tokio::task::spawn_blocking(move || store.close()).await?;
        Ok(())
    }

    async fn start(&self) -> Result<()> {
        let path = self.folder.path().to_owned();
        let options = kvstore_engine::Options::default();
        let store = tokio::task::spawn_blocking(move || kvstore_engine::Store::open(path, options)).await??;
        *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = store;
        Ok(())
    }

    async fn compact(&self) -> Result<()> {
        let store = self.current.store();
        store.compact(store.revision(), true).await?;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_survives_restarts_and_compaction() -> Result<()> {
    let folder = Folder::new("follow-embedded")?;
    let store = kvstore_engine::Store::open(folder.path(), kvstore_engine::Options::default())?;
    survive(&EmbeddedStore { folder, current: Arc::new(Current(RwLock::new(store))) }).await
}

/// A snapshot returns the contents of the store, or nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_current_or_empty() -> Result<()> {
    let folder = Folder::new("follow-snapshot")?;
    let store = kvstore_engine::Store::open(folder.path(), kvstore_engine::Options::default())?;
    let store = EmbeddedStore { folder, current: Arc::new(Current(RwLock::new(store))) };
    let backend = store.backend().await?;
    backend.create(&set("a", "1")?).await?;
    let list = ListOptions::resources(api::Kind::GlobalNetworkSet);
    let mut snapshot = Snapshot::start(&backend, list, |held| held.items.len());
    wait_for(&mut snapshot, Some(1)).await?;
    backend.create(&set("b", "1")?).await?;
    wait_for(&mut snapshot, Some(2)).await?;
    store.stop().await?;
    wait_for(&mut snapshot, None).await?;
    store.start().await?;
    wait_for(&mut snapshot, Some(2)).await?;
    backend.delete(&crate::scenario::set_key("a"), None).await?;
    wait_for(&mut snapshot, Some(1)).await
}

async fn wait_for(snapshot: &mut Snapshot<usize>, wanted: Option<usize>) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(120);
    while snapshot.get() != wanted {
        anyhow::ensure!(Instant::now() < deadline, "{:?} instead of {wanted:?}", snapshot.get());
        let _ = tokio::time::timeout(Duration::from_secs(1), snapshot.changed()).await;
    }
    Ok(())
}
