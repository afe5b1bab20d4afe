//! Waits for a datastore that is not available yet.

use super::StartupError;
use api::NodeSpec;
use client::{Client, ClientConfig, Error};
use std::time::Duration;

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest time for one attempt: a host that drops packets never answers.
const ATTEMPT: Duration = Duration::from_secs(10);

/// Opens the datastore, trying until it answers.
///
/// Each attempt opens it anew, because opening determines what a Kubernetes API supports.
///
/// # Errors
/// When it rejects our credentials, or the settings cannot be used: waiting would not help.
pub(super) async fn for_datastore(config: &ClientConfig) -> Result<Client, StartupError> {
    let mut last = String::new();
    loop {
        let trouble = match tokio::time::timeout(ATTEMPT, attempt(config)).await {
            Ok(Ok(client)) => {
                tracing::info!("the datastore answers");
                return Ok(client);
            }
            Ok(Err(Trouble::Lasting(error))) => return Err(error),
            Ok(Err(Trouble::Passing(reason))) => reason,
            Err(_) => format!("no answer within {} s", ATTEMPT.as_secs()),
        };
        // A repeated problem is reported once, not every second.
        if trouble == last {
            tracing::debug!(trouble, "the datastore does not answer yet");
        } else {
            tracing::info!(trouble, "the datastore does not answer yet; trying until it does");
            last = trouble;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

enum Trouble {
    Passing(String),
    Lasting(StartupError),
}

async fn attempt(config: &ClientConfig) -> Result<Client, Trouble> {
    let client = Client::open(config).await.map_err(|error| Trouble::Lasting(error.into()))?;
    // Any answer about any node shows that the store is available.
    match client.resource::<NodeSpec>().get("", "foo").await {
        Err(Error::Unauthorized { reason }) => Err(Trouble::Lasting(StartupError::Unauthorized(reason))),
        Err(error @ Error::Datastore { .. }) => Err(Trouble::Passing(error.to_string())),
        _ => Ok(client),
    }
}
