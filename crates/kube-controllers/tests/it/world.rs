//! A kube-apiserver that most tests share, a separate datastore for each, and controllers that run in this process.
//!
//! Controllers see the whole cluster, so tests use distinct names; objects that one test leaves in the cluster do not
//! affect another's datastore.

use anyhow::{Context as _, Result};
use client::Client;
use client::config::ClientConfig;
use daemon::ShutdownHandle;
use daemon::Variables;
use kube_access::KubeAccess;
use kube_access::cluster::{Cluster, MERGE_PATCH};
use kube_controllers::for_tests::{Options, Surroundings, run};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::{Mutex, PoisonError, Weak};
use std::time::Duration;
use testkit::{ApiServer, Etcd};
use tokio::task::JoinHandle;

/// How long any condition may take to hold.
const PATIENCE: Duration = Duration::from_secs(60);

/// The servers that tests share; they end with the last test that uses them.
pub(crate) struct Servers {
    pub(crate) api_server: ApiServer,
    pub(crate) etcd: Etcd,
}

static SHARED: Mutex<Weak<Servers>> = Mutex::new(Weak::new());

/// Returns the shared servers.
pub(crate) fn servers() -> Result<Arc<Servers>> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(servers) = shared.upgrade() {
        return Ok(servers);
    }
    let servers = Arc::new(Servers::start()?);
    *shared = Arc::downgrade(&servers);
    Ok(servers)
}

impl Servers {
    /// Starts separate servers.
    pub(crate) fn start() -> Result<Self> {
        let etcd = Etcd::start()?;
        let api_server = ApiServer::start(&etcd.endpoint())?;
        Ok(Self { api_server, etcd })
    }
}

/// A cluster and a datastore.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) client: Client,
    pub(crate) variables: Variables,
    folder: tempfile::TempDir,
}

impl World {
    /// Uses a separate embedded store for Calico's data.
    pub(crate) async fn embedded(api_server: &ApiServer) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let store = folder.path().join("store");
        Self::open(api_server, folder, &[("DATASTORE_TYPE", "embedded"), ("EMBEDDED_PATH", text(&store)?)])
            .await
    }

    /// Uses this etcd for Calico's data.
    pub(crate) async fn etcd(api_server: &ApiServer, etcd: &Etcd) -> Result<Self> {
        let endpoint = etcd.endpoint();
        let pairs = [("DATASTORE_TYPE", "etcdv3"), ("ETCD_ENDPOINTS", endpoint.as_str())];
        Self::open(api_server, tempfile::tempdir()?, &pairs).await
    }

    /// Uses the Kubernetes API for Calico's data.
    pub(crate) async fn kubernetes(api_server: &ApiServer) -> Result<Self> {
        let world = Self::open(api_server, tempfile::tempdir()?, &[("DATASTORE_TYPE", "kubernetes")]).await?;
        world.client.backend().install().await?;
        Ok(world)
    }

    /// Uses the Kubernetes API with whatever resources it has.
    pub(crate) async fn as_it_is(api_server: &ApiServer) -> Result<Self> {
        Self::open(api_server, tempfile::tempdir()?, &[("DATASTORE_TYPE", "kubernetes")]).await
    }

    async fn open(api_server: &ApiServer, folder: tempfile::TempDir, pairs: &[(&str, &str)]) -> Result<Self> {
        let kubeconfig = api_server.kubeconfig();
        let variables = Variables::new(pairs.iter().copied()).with([("KUBECONFIG", text(&kubeconfig)?)]);
        let access = KubeAccess::open(&variables, Path::new("/nowhere")).await?;
        let client = Client::open(&ClientConfig::load(None, &variables)?).await?;
        Ok(Self { cluster: Cluster::new(&access), client, variables, folder })
    }

    /// Starts controllers with these additional variables.
    pub(crate) fn start(&self, pairs: &[(&str, &str)]) -> Running {
        self.start_with(pairs, 0)
    }

    /// Starts controllers with these additional variables and a port for health.
    pub(crate) fn start_with(&self, pairs: &[(&str, &str)], health_port: u16) -> Running {
        let variables = self.variables.clone().with(pairs.iter().copied());
        let options = Options { status_file: self.status_file(), health_port, leader: None };
        let surroundings = Surroundings { environment: Box::new(variables), set_log_level: Box::new(|_| {}) };
        let (end, shutdown) = ShutdownHandle::new();
        let task = tokio::spawn(async move { run(options, surroundings, shutdown).await });
        Running { end, task }
    }

    pub(crate) fn status_file(&self) -> PathBuf {
        self.folder.path().join("status.json")
    }

    /// Creates a Kubernetes object.
    pub(crate) async fn create(&self, path: &str, object: &Value) -> Result<()> {
        let _: Value = self.cluster.create(&format!("create at {path}"), path, object).await?;
        Ok(())
    }

    pub(crate) async fn create_namespace(&self, name: &str, labels: &Value) -> Result<()> {
        let object = json!({"metadata": {"name": name, "labels": labels}});
        self.create("/api/v1/namespaces", &object).await
    }

    /// Changes a Kubernetes object.
    pub(crate) async fn patch(&self, path: &str, patch: &Value) -> Result<()> {
        let what = format!("patch {path}");
        let _: Value = self.cluster.send(&what, http::Method::PATCH, path, patch, MERGE_PATCH).await?;
        Ok(())
    }

    /// Deletes a Kubernetes object at once.
    pub(crate) async fn delete(&self, path: &str) -> Result<()> {
        let what = format!("delete {path}");
        let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
        let _: Value =
            self.cluster.send(&what, http::Method::DELETE, path, &body, "application/json").await?;
        Ok(())
    }

    /// Deletes a namespace. There is no controller to finish that, so its finalizer is removed here.
    pub(crate) async fn delete_namespace(&self, name: &str) -> Result<()> {
        self.delete(&format!("/api/v1/namespaces/{name}")).await?;
        let finalize = format!("/api/v1/namespaces/{name}/finalize");
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {"finalizers": []}});
        let _: Value = self.cluster.replace("finalize a namespace", &finalize, &body).await?;
        Ok(())
    }
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is text")
}

/// Running controllers.
pub(crate) struct Running {
    end: ShutdownHandle,
    task: JoinHandle<Result<()>>,
}

impl Running {
    /// Shuts the controllers down.
    pub(crate) async fn stop(self) -> Result<()> {
        self.end.request();
        tokio::time::timeout(PATIENCE, self.task).await.context("the controllers do not end")??
    }

    /// Whether they still run.
    pub(crate) fn is_running(&self) -> bool {
        !self.task.is_finished()
    }

    /// The outcome of controllers that end by themselves.
    pub(crate) async fn outcome(self) -> Result<()> {
        tokio::time::timeout(PATIENCE, self.task).await.context("the controllers do not end")??
    }
}

pub(crate) use testkit::eventually_async as eventually;
