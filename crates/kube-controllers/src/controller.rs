//! What a controller is given, and what it must be.
//!
//! A controller is made with a [`Context`]: there it asks for informers and kinds of Calico's data and subscribes. Then
//! everything is started, and [`Controller::run`] works until the end is asked for. When the configuration changes in a way
//! that matters, all controllers end and are made again.

use crate::feed::DataFeed;
use crate::informer::Informers;
use async_trait::async_trait;
use client::{Client, DatastoreType};
use daemon::Shutdown;
use kube_access::cluster::Cluster;
use telemetry::Metrics;

/// What controllers share. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    /// Calico's resources; its backend is also what IPAM works on.
    pub client: Client,
    /// The Kubernetes API.
    pub cluster: Cluster,
    /// Kubernetes objects, followed.
    pub informers: Informers,
    /// Calico's data, followed.
    pub feed: DataFeed,
    /// Figures for Prometheus.
    pub metrics: Metrics,
    /// Where Calico's data are.
    pub datastore: DatastoreType,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("datastore", &self.datastore).finish_non_exhaustive()
    }
}

/// One controller.
#[async_trait]
pub trait Controller: Send {
    /// Its name in logs: `Namespace`, `Node`.
    fn name(&self) -> &'static str;

    /// Works until the end is asked for. A controller that has nothing more to do may return before.
    ///
    /// # Errors
    /// Only what makes all further work senseless: the process then ends, and is started again from outside.
    async fn run(self: Box<Self>, shutdown: Shutdown) -> anyhow::Result<()>;
}
