//! The stores with etcd's data model, as the suite needs them: a real etcd process, and the embedded engine.

use crate::fixture::{Abilities, ETCD, Fixture};
use anyhow::{Context as _, Result};
use async_trait::async_trait;
use datastore::Backend;
use datastore::etcd::embedded::EmbeddedTransport;
use datastore::etcd::remote::RemoteTransport;
use datastore::etcd::transport::{
    RangeRequest, RangeResponse, Span, Step, Transaction, TransactionResponse, Transport, TransportError,
    WatchAnswer, WatchRequest,
};
use datastore::etcd::{EtcdBackend, EtcdConfig};
use etcd_api::etcdserverpb as pb;
use model::Key;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use testkit::{Etcd, Folder};

/// A value that is not valid JSON.
pub(crate) const UNREADABLE: &str = "{\"kind\":\"NetworkSet\",\"spec\":{\"nets\":7}";

pub(crate) async fn put(transport: &dyn Transport, key: &Key, value: &str) -> Result<()> {
    let put = Step::Put { key: key.path()?.into(), value: value.to_owned().into(), lease: 0 };
    transport.transact(Transaction { then: vec![put], ..Transaction::default() }).await?;
    Ok(())
}

/// Compacts a server over gRPC up to its present revision.
pub(crate) async fn compact(endpoint: &str) -> Result<()> {
    let channel = tonic::transport::Endpoint::from_shared(endpoint.to_owned())?.connect().await?;
    let mut client = etcd_api::Client::new(channel);
    let get = pb::RangeRequest { key: "x".into(), ..pb::RangeRequest::default() };
    let revision = client.kv.range(get).await?.into_inner().header.context("no header")?.revision;
    client.kv.compact(pb::CompactionRequest { revision, physical: false }).await?;
    Ok(())
}

/// A real etcd.
pub(crate) struct EtcdStore {
    server: Arc<Mutex<Etcd>>,
    endpoint: String,
    transport: RemoteTransport,
}

impl EtcdStore {
    pub(crate) async fn start() -> Result<Self> {
        let server = tokio::task::spawn_blocking(Etcd::start).await??;
        let endpoint = server.endpoint();
        let transport = RemoteTransport::new(&EtcdConfig::for_endpoints(&endpoint)).await?;
        Ok(Self { server: Arc::new(Mutex::new(server)), endpoint, transport })
    }
}

#[async_trait]
impl Fixture for EtcdStore {
    async fn backend(&self) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(EtcdBackend::connect(&EtcdConfig::for_endpoints(&self.endpoint)).await?))
    }

    fn abilities(&self) -> Abilities {
        ETCD
    }

    async fn namespace(&self, _: &str) -> Result<()> {
        Ok(())
    }

    async fn put_raw(&self, key: &Key, json: &str) -> Result<()> {
        put(&self.transport, key, json).await
    }

    async fn put_unreadable(&self, key: &Key) -> Result<()> {
        put(&self.transport, key, UNREADABLE).await
    }

    async fn compact(&self) -> Result<()> {
        compact(&self.endpoint).await
    }

    async fn stop(&self) -> Result<()> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).kill();
        Ok(())
    }

    async fn start(&self) -> Result<()> {
        let server = Arc::clone(&self.server);
        tokio::task::spawn_blocking(move || server.lock().unwrap_or_else(PoisonError::into_inner).restart())
            .await?
    }
}

/// The embedded engine in this process.
pub(crate) struct EmbeddedStore {
    folder: Folder,
    current: Arc<Current>,
}

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

impl EmbeddedStore {
    pub(crate) fn open() -> Result<Self> {
        let folder = Folder::new("embedded")?;
        let store = kvstore_engine::Store::open(folder.path(), kvstore_engine::Options::default())?;
        Ok(Self { folder, current: Arc::new(Current(RwLock::new(store))) })
    }
}

#[async_trait]
impl Fixture for EmbeddedStore {
    async fn backend(&self) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(EtcdBackend::new(Arc::clone(&self.current) as Arc<dyn Transport>)))
    }

    fn abilities(&self) -> Abilities {
        ETCD
    }

    async fn namespace(&self, _: &str) -> Result<()> {
        Ok(())
    }

    async fn put_raw(&self, key: &Key, json: &str) -> Result<()> {
        put(&*self.current, key, json).await
    }

    async fn put_unreadable(&self, key: &Key) -> Result<()> {
        put(&*self.current, key, UNREADABLE).await
    }

    async fn compact(&self) -> Result<()> {
        let store = self.current.store();
        store.compact(store.revision(), true).await?;
        Ok(())
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
}

/// Everything below `/calico/`, as bytes.
pub(crate) async fn dump(transport: &dyn Transport) -> Result<Vec<(String, String)>> {
    let request = RangeRequest { span: Span::prefix("/calico/"), revision: 0, limit: 0 };
    let answer = transport.range(request).await?;
    answer
        .entries
        .into_iter()
        .map(|entry| Ok((String::from_utf8(entry.key.to_vec())?, String::from_utf8(entry.value.to_vec())?)))
        .collect()
}
