//! The embedded store as a server in a process of its own, which can be killed without warning.
//!
//! The process is this test program, started again for the one "test" below that serves; so the suite needs no other
//! program to be built first.

use crate::fixture::{Abilities, ETCD, Fixture};
use crate::stores::{UNREADABLE, compact, put};
use anyhow::{Context as _, Result, bail};
use async_trait::async_trait;
use datastore::Backend;
use datastore::etcd::remote::RemoteTransport;
use datastore::etcd::{EtcdBackend, EtcdConfig};
use kvstore::server::{Config, run};
use model::Key;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::{Folder, Process, free_port, program};
use tokio::sync::Mutex;

/// Tells the child where to keep the store, and where to listen.
const FOLDER: &str = "TORTIE_TEST_STORE_FOLDER";
const LISTEN: &str = "TORTIE_TEST_STORE_LISTEN";

/// Does nothing when the tests are run; serves until it is killed when [`DatastoreProcess`] starts it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serves_when_started_as_a_child() -> Result<()> {
    let Some(folder) = std::env::var_os(FOLDER) else { return Ok(()) };
    let listen = vec![std::env::var(LISTEN)?.parse()?];
    run(Config { listen, ..Config::new(folder) }, std::future::pending()).await?;
    bail!("the server ended by itself")
}

/// `tortie datastore`, in all but its command line.
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

    /// Where it serves over TCP.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// The socket that is always there.
fn socket(folder: &Path) -> EtcdConfig {
    EtcdConfig::for_endpoints(&format!("unix://{}", kvstore::socket_path(&folder.join("data")).display()))
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
        let arguments = vec![
            format!("{FOLDER}={}", self.folder.path().join("data").display()),
            format!("{LISTEN}={}", self.endpoint()),
            std::env::current_exe()?.display().to_string(),
            "--exact".into(),
            "datastore_process::serves_when_started_as_a_child".into(),
            "--nocapture".into(),
        ];
        let env = program("env", "install coreutils")?;
        let mut process = Process::start(&env, &arguments, &self.folder.path().join("log"))?;
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
