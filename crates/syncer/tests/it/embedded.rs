//! The embedded engine in this process.

use crate::scenario::{Fixture, survive};
use anyhow::Result;
use async_trait::async_trait;
use datastore::Backend;
use datastore::etcd::EtcdBackend;
use datastore::etcd::embedded::EmbeddedTransport;
use datastore::etcd::transport::{
    RangeRequest, RangeResponse, Transaction, TransactionResponse, Transport, TransportError, WatchAnswer,
    WatchRequest,
};
use std::sync::{Arc, PoisonError, RwLock};
use testkit::Folder;

/// The store as it is open now; a reopened one takes its place.
struct Current(RwLock<Arc<kvstore::Store>>);

impl Current {
    fn store(&self) -> Arc<kvstore::Store> {
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
        let options = kvstore::Options::default();
        let store = tokio::task::spawn_blocking(move || kvstore::Store::open(path, options)).await??;
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
    let folder = Folder::new("syncer-embedded")?;
    let store = kvstore::Store::open(folder.path(), kvstore::Options::default())?;
    survive(&EmbeddedStore { folder, current: Arc::new(Current(RwLock::new(store))) }).await
}
