//! The only place that opens a datastore from configuration.
//!
//! The embedded store is shared: within this process by a table of open stores, between processes by the socket of a
//! `tortie datastore` that serves the same directory. Where one has served before, only commands open the files
//! themselves while it is down: a component would lock it out. Does not take a store from another process, nor create
//! one for a program that only reads.

use crate::config::{ClientConfig, DEFAULT_CONFIG_PATH, DatastoreType, EtcdSettings, KubernetesSettings};
use datastore::Backend;
use datastore::etcd::{EtcdBackend, EtcdConfig, TlsFiles, TlsInline};
use datastore::kubernetes::{KubernetesBackend, KubernetesConfig, KubernetesObjects};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::net::UnixStream;

/// The number of attempts to open an embedded store held by another process, and the pause between them.
const ATTEMPTS: usize = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// Why a datastore could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No setting names the datastore, and this is not a pod, which could find its Kubernetes API.
    #[error(
        "no datastore is configured. Set one of these variables, or configure one in {DEFAULT_CONFIG_PATH}:\n  \
         KUBECONFIG=FILE                  the Kubernetes API; ~/.kube/config is found without it\n  \
         ETCD_ENDPOINTS=http://HOST:2379  etcd\n  \
         EMBEDDED_PATH=FOLDER             a folder on this machine"
    )]
    NotConfigured,
    /// The settings are invalid, or the store cannot be reached.
    #[error("cannot open the {datastore_type} datastore: {source}")]
    Backend {
        /// The type of store.
        datastore_type: DatastoreType,
        /// What went wrong.
        #[source]
        source: datastore::Error,
    },
    /// Another program has the embedded store open, but does not serve it.
    #[error(
        "cannot open the embedded datastore in {}: process {pid} ({command}) has it open and does not serve it; wait for \
         it to end, or run `tortie datastore --data-dir {}` so that programs can share the store",
        path.display(),
        path.display()
    )]
    InUse {
        /// The data directory.
        path: PathBuf,
        /// The id of the process that has it open.
        pid: String,
        /// The command line of that process.
        command: String,
    },
    /// There is no embedded store, and the program only reads.
    #[error(
        "no datastore in {}: check EMBEDDED_PATH (embeddedPath), or create one with `tortie datastore --data-dir {}` or \
         by creating a first resource there",
        path.display(),
        path.display()
    )]
    NoStore {
        /// The data directory.
        path: PathBuf,
    },
    /// The embedded store cannot be opened.
    #[error("cannot open the embedded datastore: {0}")]
    Embedded(#[source] kvstore_engine::OpenError),
}

/// The purpose of opening a datastore. It only makes a difference for the embedded store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// For a component, for as long as it runs. A missing store is created; one that a server has served before is only
    /// used through the server, even while that is not running.
    Component,
    /// For a command that only reads: nothing is created.
    Read,
    /// For a command that writes: a missing store is created.
    Write,
}

/// Opens the datastore of this configuration for a component. etcd and Kubernetes are only connected to on first use.
///
/// # Errors
/// When the settings contradict each other, or the embedded store cannot be opened.
pub fn open_backend(config: &ClientConfig) -> BoxFuture<'_, Result<Arc<dyn Backend>, OpenError>> {
    open_backend_for(config, Purpose::Component)
}

/// Opens the datastore of this configuration. etcd and Kubernetes are only connected to on first use.
///
/// # Errors
/// When the settings contradict each other, or the embedded store cannot be opened.
pub fn open_backend_for(
    config: &ClientConfig,
    purpose: Purpose,
) -> BoxFuture<'_, Result<Arc<dyn Backend>, OpenError>> {
    // Boxed: an async function is compiled again in every crate that awaits it, and every component opens a datastore.
    open_store(config, purpose).boxed()
}

async fn open_store(config: &ClientConfig, purpose: Purpose) -> Result<Arc<dyn Backend>, OpenError> {
    let datastore_type = config.datastore_type;
    let failed = |source| OpenError::Backend { datastore_type, source };
    Ok(match datastore_type {
        DatastoreType::EtcdV3 => {
            Arc::new(EtcdBackend::connect(&etcd_config(&config.etcd)).await.map_err(failed)?)
        }
        DatastoreType::Kubernetes => {
            let settings = kubernetes_config(&config.kubernetes);
            if settings.is_in_cluster() && !config.kubernetes.is_pod {
                return Err(OpenError::NotConfigured);
            }
            Arc::new(KubernetesBackend::connect(&settings).await.map_err(failed)?)
        }
        DatastoreType::Embedded => Arc::new(open_embedded(Path::new(&config.embedded_path), purpose).await?),
    })
}

/// Opens the datastore for the CNI plugin: on Kubernetes, writing an endpoint records the pod's addresses, and single
/// objects can be read over the same connection.
///
/// # Errors
/// As [`open_backend`].
pub async fn open_for_cni(
    config: &ClientConfig,
) -> Result<(Arc<dyn Backend>, Option<KubernetesObjects>), OpenError> {
    if config.datastore_type != DatastoreType::Kubernetes {
        return Ok((open_backend(config).await?, None));
    }
    let settings = kubernetes_config(&config.kubernetes);
    let failed = |source| OpenError::Backend { datastore_type: config.datastore_type, source };
    let backend = KubernetesBackend::connect(&settings).await.map_err(failed)?.for_cni();
    let objects = backend.objects();
    Ok((Arc::new(backend), Some(objects)))
}

fn etcd_config(settings: &EtcdSettings) -> EtcdConfig {
    EtcdConfig {
        discovery_srv: settings.discovery_srv.clone(),
        username: settings.username.clone(),
        password: settings.password.clone(),
        files: TlsFiles {
            ca_cert: settings.ca_cert_file.clone().into(),
            cert: settings.cert_file.clone().into(),
            key: settings.key_file.clone().into(),
        },
        inline: TlsInline {
            ca_cert: settings.ca_cert.clone(),
            cert: settings.cert.clone(),
            key: settings.key.clone(),
        },
        ..EtcdConfig::for_endpoints(&settings.endpoints)
    }
}

fn kubernetes_config(settings: &KubernetesSettings) -> KubernetesConfig {
    KubernetesConfig {
        kubeconfig: std::env::split_paths(&settings.kubeconfig)
            .filter(|path| !path.as_os_str().is_empty())
            .collect(),
        kubeconfig_inline: settings.kubeconfig_inline.clone(),
        context: settings.current_context.clone(),
        api_endpoint: settings.api_endpoint.clone(),
        cert_file: settings.cert_file.clone(),
        key_file: settings.key_file.clone(),
        ca_file: settings.ca_file.clone(),
        api_token: settings.api_token.clone(),
        insecure_skip_tls_verify: settings.insecure_skip_tls_verify,
        client_qps: settings.client_qps,
        client_burst: u32::try_from(settings.client_burst).unwrap_or_default(),
        use_pod_cidr: settings.use_pod_cidr,
        calico_api_group: settings.calico_api_group.clone(),
        interface_prefix: settings.interface_prefix.clone(),
    }
}

/// Uses a server's socket if one answers, otherwise the file itself. The holder of the file may be a server that has
/// just started and not opened its socket yet, or a short command about to end, so both are retried for a while.
async fn open_embedded(dir: &Path, purpose: Purpose) -> Result<EtcdBackend, OpenError> {
    if purpose == Purpose::Component && kvstore_engine::served_path(dir).exists() {
        return through_socket(dir).await;
    }
    let mut attempt = 1;
    loop {
        // A killed server leaves its socket behind.
        if UnixStream::connect(&kvstore_engine::socket_path(dir)).await.is_ok() {
            return through_socket(dir).await;
        }
        match open_file(dir, purpose).await {
            Ok(store) => return Ok(EtcdBackend::embedded(store)),
            Err(kvstore_engine::OpenError::NoStore { dir }) => return Err(OpenError::NoStore { path: dir }),
            Err(kvstore_engine::OpenError::InUse { .. }) if attempt < ATTEMPTS => {}
            Err(kvstore_engine::OpenError::InUse { pid, command, .. }) => {
                return Err(OpenError::InUse { path: dir.to_owned(), pid, command });
            }
            Err(error) => return Err(OpenError::Embedded(error)),
        }
        attempt += 1;
        tokio::time::sleep(PAUSE).await;
    }
}

/// The store behind this directory's socket; connects whenever a server answers there.
async fn through_socket(dir: &Path) -> Result<EtcdBackend, OpenError> {
    let socket = kvstore_engine::socket_path(dir);
    let config =
        EtcdConfig { endpoints: vec![format!("unix://{}", socket.display())], ..EtcdConfig::default() };
    let failed = |source| OpenError::Backend { datastore_type: DatastoreType::Embedded, source };
    EtcdBackend::connect(&config).await.map_err(failed)
}

/// The stores open in this process, so that two clients of one program share a file.
static OPEN_STORES: Mutex<BTreeMap<PathBuf, Weak<kvstore_engine::Store>>> = Mutex::new(BTreeMap::new());

async fn open_file(
    dir: &Path,
    purpose: Purpose,
) -> Result<Arc<kvstore_engine::Store>, kvstore_engine::OpenError> {
    let (dir, wanted) = (dir.to_owned(), dir.to_owned());
    // Opening reads the whole index, which would block a thread that serves other tasks.
    let task = tokio::task::spawn_blocking(move || {
        let mut stores = OPEN_STORES.lock().unwrap_or_else(PoisonError::into_inner);
        stores.retain(|_, store| store.strong_count() > 0);
        // A directory that does not exist yet has no canonical path, and cannot be open either.
        if let Ok(path) = dir.canonicalize()
            && let Some(store) = stores.get(&path).and_then(Weak::upgrade)
        {
            return Ok(store);
        }
        let options = kvstore_engine::Options::default();
        let store = match purpose {
            Purpose::Read => kvstore_engine::Store::open_existing(&dir, options)?,
            Purpose::Component | Purpose::Write => kvstore_engine::Store::open(&dir, options)?,
        };
        if let Ok(path) = dir.canonicalize() {
            stores.insert(path, Arc::downgrade(&store));
        }
        Ok(store)
    });
    match task.await.map_err(tokio::task::JoinError::try_into_panic) {
        Ok(outcome) => outcome,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // The program is ending; nothing waits for this any more.
        Err(Err(cancelled)) => Err(kvstore_engine::OpenError::Io {
            action: "open",
            path: wanted,
            source: std::io::Error::other(cancelled),
        }),
    }
}
