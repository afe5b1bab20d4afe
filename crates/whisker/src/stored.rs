//! The cluster's policies, read from its datastore where there is one: what explanations, the matrix and previews are about.
//!
//! Read-only, and only when asked; an answer is kept for a moment, as a page asks several things at once. Without a datastore
//! everything that needs one says why it is empty.

use client::{Client, ClientConfig};
use explain::Cluster;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, Semaphore};

/// How long what was read is good for.
const FRESH: Duration = Duration::from_secs(2);
/// How long reading may take before the page hears that it does not come.
const PATIENCE: Duration = Duration::from_secs(20);
/// How many evaluations run at once: each keeps a processor busy.
const EVALUATIONS: usize = 2;

/// Where the cluster's policies are.
pub struct Policies {
    place: Place,
    kept: Mutex<Option<(Instant, Arc<Cluster>)>>,
    /// Places for evaluations.
    pub(crate) evaluations: Arc<Semaphore>,
}

enum Place {
    /// Nowhere, and why.
    Nowhere(String),
    /// Here.
    Fixed(Arc<Cluster>),
    /// In a datastore.
    Datastore(Box<ClientConfig>, Mutex<Option<Client>>),
}

impl Policies {
    fn at(place: Place) -> Self {
        Self { place, kept: Mutex::new(None), evaluations: Arc::new(Semaphore::new(EVALUATIONS)) }
    }

    /// Nowhere, and why.
    #[must_use]
    pub fn nowhere(reason: impl Into<String>) -> Self {
        Self::at(Place::Nowhere(reason.into()))
    }

    /// A cluster that does not change.
    #[must_use]
    pub fn fixed(cluster: Cluster) -> Self {
        Self::at(Place::Fixed(Arc::new(cluster)))
    }

    /// In the datastore of this configuration.
    #[must_use]
    pub fn stored(config: ClientConfig) -> Self {
        Self::at(Place::Datastore(Box::new(config), Mutex::new(None)))
    }

    /// The cluster as it is.
    ///
    /// # Errors
    /// Why it is not known.
    pub(crate) async fn cluster(&self) -> Result<Arc<Cluster>, String> {
        match &self.place {
            Place::Nowhere(reason) => Err(reason.clone()),
            Place::Fixed(cluster) => Ok(Arc::clone(cluster)),
            Place::Datastore(config, client) => {
                // Those who ask meanwhile wait for the same answer.
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
                    // The next one connects anew.
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
