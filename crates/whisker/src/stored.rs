//! The cluster's policies, read from its datastore if one is configured: the basis of explanations, the matrix and
//! previews.
//!
//! Read-only, and only on request; the result is reused for a moment, as a page makes several requests at once. Without
//! a datastore every answer that needs one says why it is empty.

use client::{Client, ClientConfig};
use explain::Cluster;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, Semaphore};

/// How long a result is reused.
const FRESH: Duration = Duration::from_secs(2);
/// How long reading may take before the page gets an error.
const PATIENCE: Duration = Duration::from_secs(20);
/// How many evaluations run at once: each keeps a processor busy.
const EVALUATIONS: usize = 2;

/// The source of the cluster's policies.
pub struct Policies {
    place: Place,
    kept: Mutex<Option<(Instant, Arc<Cluster>)>>,
    /// Permits for evaluations.
    pub(crate) evaluations: Arc<Semaphore>,
}

enum Place {
    /// Not available, with the reason.
    Nowhere(String),
    /// Policies that do not change.
    Fixed(Arc<Cluster>),
    /// Read from a datastore.
    Datastore(Box<ClientConfig>, Mutex<Option<Client>>),
}

impl Policies {
    fn at(place: Place) -> Self {
        Self { place, kept: Mutex::new(None), evaluations: Arc::new(Semaphore::new(EVALUATIONS)) }
    }

    /// Policies are not available for this reason.
    #[must_use]
    pub fn nowhere(reason: impl Into<String>) -> Self {
        Self::at(Place::Nowhere(reason.into()))
    }

    /// Policies that do not change.
    #[must_use]
    pub fn fixed(cluster: Cluster) -> Self {
        Self::at(Place::Fixed(Arc::new(cluster)))
    }

    /// Policies in the datastore of this configuration.
    #[must_use]
    pub fn stored(config: ClientConfig) -> Self {
        Self::at(Place::Datastore(Box::new(config), Mutex::new(None)))
    }

    /// The cluster at present.
    ///
    /// # Errors
    /// Why it is not available.
    pub(crate) async fn cluster(&self) -> Result<Arc<Cluster>, String> {
        match &self.place {
            Place::Nowhere(reason) => Err(reason.clone()),
            Place::Fixed(cluster) => Ok(Arc::clone(cluster)),
            Place::Datastore(config, client) => {
                // Concurrent requests wait for the same result.
                let mut kept = self.kept.lock().await;
                if let Some((read, cluster)) = &*kept
                    && read.elapsed() < FRESH
                {
                    return Ok(Arc::clone(cluster));
                }
                let mut client = client.lock().await;
                let reading = tokio::time::timeout(PATIENCE, read(config, &mut client));
                let outcome = reading.await.unwrap_or_else(|_| Err("it does not answer".to_owned()));
                let cluster = outcome.map_err(|problem| {
                    // The next request reconnects.
                    *client = None;
                    tracing::warn!(problem, "the datastore cannot be read");
                    format!("the datastore cannot be read: {problem}")
                })?;
                let cluster = Arc::new(cluster);
                *kept = Some((Instant::now(), Arc::clone(&cluster)));
                Ok(cluster)
            }
        }
    }
}

async fn read(config: &ClientConfig, client: &mut Option<Client>) -> Result<Cluster, String> {
    if client.is_none() {
        *client = Some(Client::open(config).await.map_err(|error| error.to_string())?);
    }
    let Some(client) = client else { return Err("it cannot be opened".to_owned()) };
    let mut cluster = explain_source::read(client).await.map_err(|error| error.to_string())?;
    cluster.complete();
    Ok(cluster)
}
