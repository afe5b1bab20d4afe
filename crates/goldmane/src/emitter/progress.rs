//! The emitter's progress, stored in the config map that Calico's Goldmane uses.

use kube_access::cluster::Cluster;
use serde_json::{Value, json};

const NAME: &str = "flow-emitter-state";
const KEY: &str = "latestTimestamp";

/// The store for the progress; none without access to Kubernetes.
pub struct Progress(Option<(Cluster, String)>);

impl Progress {
    /// Stores the progress in a config map in this namespace.
    #[must_use]
    pub fn in_cluster(cluster: Cluster, namespace: String) -> Self {
        Self(Some((cluster, namespace)))
    }

    /// Stores nothing: the next process begins with its own history.
    #[must_use]
    pub fn nowhere() -> Self {
        Self(None)
    }

    /// The time up to which everything was sent; `None` if unknown.
    pub async fn load(&self) -> Option<i64> {
        let (cluster, namespace) = self.0.as_ref()?;
        match cluster.get::<Value>("read the state of the emitter", &path(namespace)).await {
            Ok(found) => found["data"][KEY].as_str()?.parse().ok(),
            Err(error) if error.is_not_found() => None,
            Err(error) => {
                tracing::warn!(%error, "cannot read which flows were sent before");
                None
            }
        }
    }

    /// Stores the time up to which everything was sent.
    pub async fn save(&self, time: i64) {
        let Some((cluster, namespace)) = &self.0 else { return };
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": NAME, "namespace": namespace },
            "data": { KEY: time.to_string() },
        });
        let what = "write the state of the emitter";
        let outcome = match cluster.replace::<Value>(what, &path(namespace), &body).await {
            Err(error) if error.is_not_found() => {
                let collection = format!("/api/v1/namespaces/{namespace}/configmaps");
                cluster.create::<Value>(what, &collection, &body).await
            }
            outcome => outcome,
        };
        if let Err(error) = outcome {
            tracing::warn!(%error, "cannot record which flows were sent");
        }
    }
}

fn path(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps/{NAME}")
}
