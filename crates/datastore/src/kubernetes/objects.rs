//! Kubernetes' own objects, read one by one as they are: what the CNI plugin asks of pods, namespaces and nodes beside
//! Calico's view of them.
//!
//! It lists and writes nothing.

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
    /// When the configuration cannot be. A server that does not answer is not an error yet.
    pub async fn connect(config: &KubernetesConfig) -> Result<Self> {
        Ok(Self { transport: Transport::new(config.client().await?) })
    }

    /// Reads one object: `base` is `api/v1` or `apis/GROUP/VERSION`, the namespace is empty for objects without.
    ///
    /// # Errors
    /// [`crate::Error::DoesNotExist`] when there is none, and those of the server.
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
