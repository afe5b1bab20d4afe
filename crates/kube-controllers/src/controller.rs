//! The interface of a controller, and the context that it gets.
//!
//! A controller is created with a [`Context`], from which it requests informers and kinds of Calico's data and
//! subscribes to them. Then everything is started, and [`Controller::run`] works until the shutdown. When the
//! configuration changes in a way that matters, all controllers end and are created anew.

use crate::feed::DataFeed;
use crate::informer::Informers;
use async_trait::async_trait;
use client::{Client, DatastoreType};
use daemon::Shutdown;
use kube_access::cluster::Cluster;
use telemetry::Metrics;

/// The context that controllers share. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    /// Calico's resources; its backend is also what IPAM works on.
    pub client: Client,
    /// The Kubernetes API.
    pub cluster: Cluster,
    /// Follows Kubernetes objects.
    pub informers: Informers,
    /// Follows Calico's data.
    pub feed: DataFeed,
    /// Figures for Prometheus.
    pub metrics: Metrics,
    /// The type of Calico's datastore.
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
    /// The name in logs: `Namespace`, `Node`.
    fn name(&self) -> &'static str;

    /// Works until the shutdown. A controller that has no more work may return earlier.
    ///
    /// # Errors
    /// Only when no further work is possible: the process then ends, and is restarted from outside.
    async fn run(self: Box<Self>, shutdown: Shutdown) -> anyhow::Result<()>;
}
