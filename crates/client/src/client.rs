//! The client itself: a backend plus the client's rules.

use crate::config::ClientConfig;
use crate::open::{OpenError, Purpose, open_backend_for};
use crate::resources::{Storable, Typed};
use datastore::Backend;
use std::fmt;
use std::sync::Arc;

/// Access to Calico's resources in one datastore. Cheap to clone; clones share the connection.
#[derive(Clone)]
pub struct Client {
    backend: Arc<dyn Backend>,
}

impl Client {
    /// Creates a client on an open backend.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend }
    }

    /// Opens the datastore of this configuration for a component.
    ///
    /// # Errors
    /// When it cannot be opened; the message names the datastore and the reason.
    pub async fn open(config: &ClientConfig) -> Result<Self, OpenError> {
        Self::open_for(config, Purpose::Component).await
    }

    /// Opens the datastore of this configuration.
    ///
    /// # Errors
    /// When it cannot be opened; the message names the datastore and the reason.
    pub async fn open_for(config: &ClientConfig, purpose: Purpose) -> Result<Self, OpenError> {
        Ok(Self::new(open_backend_for(config, purpose).await?))
    }

    /// The backend, for data other than resources: IPAM's keys, status reports, feeds.
    #[must_use]
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// The resources of one kind, named by the type of its spec: `client.resource::<IPPoolSpec>()`.
    #[must_use]
    pub fn resource<S: Storable>(&self) -> Typed<'_, S> {
        Typed::new(self)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("kubernetes", &self.backend.is_kubernetes()).finish_non_exhaustive()
    }
}
