//! Kubernetes' own objects, read individually and unconverted: what the CNI plugin needs of pods, namespaces and nodes
//! in addition to Calico's view of them.
//!
//! Does not list or write anything.

use super::KubernetesBackend;
use super::config::KubernetesConfig;
use super::path::ApiResource;
use super::transport::Transport;
use crate::error::Result;
use serde::de::DeserializeOwned;

/// Read access to single objects.
#[derive(Clone, Debug)]
pub struct KubernetesObjects {
    transport: Transport,
}

impl KubernetesObjects {
    /// Prepares a connection of its own.
    ///
    /// # Errors
    /// When the configuration is invalid. A server that does not answer is not an error yet.
    pub async fn connect(config: &KubernetesConfig) -> Result<Self> {
        Ok(Self { transport: Transport::new(config.client().await?) })
    }

    /// Reads one object: `base` is `api/v1` or `apis/GROUP/VERSION`, the namespace is empty for cluster-scoped objects.
    ///
    /// # Errors
    /// [`crate::Error::DoesNotExist`] when the object does not exist, and those of the server.
    pub async fn get<T: DeserializeOwned>(
        &self,
        base: &'static str,
        plural: &'static str,
        namespace: &str,
        name: &str,
    ) -> Result<T> {
        let resource = ApiResource { base, plural, namespaced: !namespace.is_empty() };
        let key = if namespace.is_empty() {
            format!("{plural}({name})")
        } else {
            format!("{plural}({namespace}/{name})")
        };
        let outcome = self.transport.get(&resource.object(namespace, name)).await;
        outcome.map_err(|failure| failure.into_error(&format!("get {key}"), &key))
    }
}

impl KubernetesBackend {
    /// Read access to single objects, over the connection of this store.
    #[must_use]
    pub fn objects(&self) -> KubernetesObjects {
        KubernetesObjects { transport: self.native.transport.clone() }
    }
}
