//! The lock of a datastore: `ClusterInformation.spec.datastoreReady`, which every component watches.

use crate::context::Context;
use crate::failure::{Failure, Result};
use api::ClusterInformationSpec;
use client::Client;

const NAME: &str = api::words::GLOBAL_NAME;

/// Locks the datastore; initializes it first if necessary.
///
/// # Errors
/// When it cannot be read or written.
pub(crate) async fn lock(client: &Client, context: &mut Context) -> Result<()> {
    client.ensure_initialized("", "").await.map_err(|error| {
        Failure::new(format!("unable to initialize cluster information for the datastore migration: {error}"))
    })?;
    set_ready(client, false, "locking").await?;
    context.print("Datastore locked.\n")
}

/// Unlocks the datastore.
///
/// # Errors
/// When it cannot be read or written.
pub(crate) async fn unlock(client: &Client, context: &mut Context) -> Result<()> {
    set_ready(client, true, "unlocking").await?;
    context.print("Datastore unlocked.\n")
}

/// Whether the datastore is locked. Without a recorded state it is not.
///
/// # Errors
/// When it cannot be read.
pub(crate) async fn is_locked(client: &Client) -> Result<bool> {
    let information = client.resource::<ClusterInformationSpec>().get("", NAME).await.map_err(|error| {
        Failure::new(format!(
            "error while checking if datastore was locked: error retrieving ClusterInformation: {error}"
        ))
    })?;
    Ok(information.spec.datastore_ready == Some(false))
}

async fn set_ready(client: &Client, ready: bool, attempt: &str) -> Result<()> {
    let informations = client.resource::<ClusterInformationSpec>();
    if let Err(error) = informations.get("", NAME).await {
        return Err(Failure::new(format!("error retrieving ClusterInformation for {attempt}: {error}")));
    }
    let outcome = informations
        .update_with_retry("", NAME, |information| {
            let before = information.spec.datastore_ready.replace(ready);
            before != Some(ready)
        })
        .await;
    outcome
        .map(|_| ())
        .map_err(|error| Failure::new(format!("error updating ClusterInformation for {attempt}: {error}")))
}
