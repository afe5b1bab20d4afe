//! The embedded store as a server in a process of its own, which can be killed without warning.

use crate::fixture::{Abilities, ETCD, Fixture};
use crate::stores::{UNREADABLE, compact, put};
use anyhow::{Context as _, Result, bail};
use async_trait::async_trait;
use datastore::Backend;
use datastore::etcd::remote::RemoteTransport;
use datastore::etcd::{EtcdBackend, EtcdConfig};
use model::Key;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::{Folder, Process, example, free_port};
use tokio::sync::Mutex;

/// `tortie datastore`, except for its command line.
pub(crate) struct DatastoreProcess {
    folder: Folder,
    port: u16,
    process: Mutex<Option<Process>>,
    transport: RemoteTransport,
}

impl DatastoreProcess {
    pub(crate) async fn start() -> Result<Self> {
        let folder = Folder::new("datastore")?;
        let transport = RemoteTransport::new(&socket(folder.path())).await?;
        let store = Self { folder, port: free_port()?, process: Mutex::new(None), transport };
        Fixture::start(&store).await?;
        Ok(store)
    }

    /// Its TCP endpoint.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// The socket that always exists.
fn socket(folder: &Path) -> EtcdConfig {
    EtcdConfig::for_endpoints(&format!(
        "unix://{}",
        kvstore_engine::socket_path(&folder.join("data")).display()
    ))
}

#[async_trait]
impl Fixture for DatastoreProcess {
    async fn backend(&self) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(EtcdBackend::connect(&socket(self.folder.path())).await?))
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
        compact(&self.endpoint()).await
    }

    async fn stop(&self) -> Result<()> {
        // Dropping a process kills it.
        self.process.lock().await.take();
        Ok(())
    }

    async fn start(&self) -> Result<()> {
        let arguments = [self.folder.path().join("data").display().to_string(), self.endpoint()];
        let program = example("embedded_store")?;
        let mut process = Process::start(&program, &arguments, &self.folder.path().join("log"))?;
        let backend = self.backend().await?;
        let deadline = Instant::now() + Duration::from_secs(60);
        while let Err(error) = backend.ensure_ready().await {
            process.check_running().context("starting the datastore")?;
            if Instant::now() > deadline {
                bail!(
                    "the datastore did not answer within 60 s ({error}); its log ends with:\n{}",
                    process.log_tail()
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        *self.process.lock().await = Some(process);
        Ok(())
    }
}
