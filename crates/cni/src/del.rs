//! DEL: removes the device, the endpoint and the addresses of a container.
//!
//! The network is removed whatever the state of the datastore, and addresses are given back only after that: an address
//! that is free while its route still exists could not be given to the next pod. Whatever is already gone is not an
//! error. When the datastore is unreachable, the rest is kept for later, and the runtime may forget the container.

use crate::addresses;
use crate::attachment::Attachment;
use crate::context::Context;
use crate::dataplane;
use crate::error::StoreFailure as _;
use crate::error::{CniError, Result};
use crate::host::{self, HostPaths};
use crate::journal::Journal;
use crate::request::Request;
use crate::turn::Turn;
use api::{WorkloadEndpoint, WorkloadEndpointSpec};
use client::DeleteOptions;
use std::sync::Arc;
use std::time::Duration;

/// How often deleting an endpoint is attempted if it is being changed concurrently.
const ATTEMPTS: usize = 6;
/// How long the datastore may take to answer before it counts as unreachable.
const PATIENCE: Duration = Duration::from_secs(30);

/// Detaches a container.
///
/// # Errors
/// When its network cannot be removed, or the datastore reports an error.
pub(crate) async fn del(context: &Context, request: &Request) -> Result<()> {
    let attachment = Attachment::new(context, request, None)?;
    let node = Some(attachment.node());
    let _turn = Turn::for_call(&context.paths.turns, &request.container_id).await?;
    let namespace = request.namespace_to_clear()?.map(Arc::new);
    let removal = dataplane::remove(&request.conf, &request.netns, namespace, &request.ifname);
    let (removed, stored) = tokio::join!(removal, timed(remove_endpoint(&attachment)));
    removed?;
    match stored {
        Ok(()) => {}
        Err(error) if error.is_transient() => {
            give_back_to_others(request, &context.paths).await?;
            return keep_for_later(&context.paths, request, node, &error);
        }
        Err(error) => return Err(error),
    }
    match timed(addresses::give_back(&attachment)).await {
        Err(error) if error.is_transient() && !addresses::is_delegated(request) => {
            keep_for_later(&context.paths, request, node, &error)
        }
        outcome => outcome,
    }
}

/// Does what is possible when not even a connection can be prepared: removes the network and releases addresses of
/// other IPAM plugins; the rest is kept for later.
///
/// # Errors
/// When the network cannot be removed, another plugin fails, or the release cannot be kept for later.
pub(crate) async fn del_without_store(request: &Request, paths: &HostPaths, reason: &CniError) -> Result<()> {
    let _turn = Turn::for_call(&paths.turns, &request.container_id).await?;
    let namespace = request.namespace_to_clear()?.map(Arc::new);
    dataplane::remove(&request.conf, &request.netns, namespace, &request.ifname).await?;
    give_back_to_others(request, paths).await?;
    let node = host::node_name(&request.conf, paths).ok();
    keep_for_later(paths, request, node.as_deref(), reason)
}

/// Releases addresses of other IPAM plugins, which do not depend on the datastore.
async fn give_back_to_others(request: &Request, paths: &HostPaths) -> Result<()> {
    if addresses::is_delegated(request) { addresses::delegate_release(request, paths).await } else { Ok(()) }
}

/// The part of DEL that concerns the datastore: carried out now, or again later. Addresses of other IPAM plugins have
/// been released by then.
///
/// # Errors
/// When the datastore fails.
pub(crate) async fn release(context: &Context, request: &Request, node: Option<&str>) -> Result<()> {
    let attachment = Attachment::new(context, request, node)?;
    timed(async {
        remove_endpoint(&attachment).await?;
        if addresses::is_delegated(request) {
            return Ok(());
        }
        addresses::give_back(&attachment).await
    })
    .await
}

fn keep_for_later(paths: &HostPaths, request: &Request, node: Option<&str>, reason: &CniError) -> Result<()> {
    let journal = Journal::new(&paths.journal);
    match journal.record(request, node) {
        Ok(()) => {
            tracing::warn!(%reason, container = %request.container_id, "the datastore is unreachable: the release is kept for later");
            Ok(())
        }
        Err(error) => {
            let details =
                format!("and it could not be kept for later in {}: {error}", paths.journal.display());
            Err(reason.clone().with_details(details))
        }
    }
}

/// Treats a silent datastore as unreachable.
async fn timed(work: impl Future<Output = Result<()>>) -> Result<()> {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(outcome) => outcome,
        Err(_) => {
            let message = format!("the datastore did not answer within {} s", PATIENCE.as_secs());
            Err(CniError::new(crate::error::code::TRY_AGAIN_LATER, message))
        }
    }
}

/// Deletes the container's endpoint, unless it belongs to a newer container of the same pod.
pub(crate) async fn remove_endpoint(attachment: &Attachment<'_>) -> Result<()> {
    let Attachment { context, request, identity } = attachment;
    let store = &context.store;
    let name = identity.endpoint_name()?;
    let failed =
        |error: &datastore::Error| CniError::datastore(&format!("deleting WorkloadEndpoint {name}"), error);
    let (ready, mut found) =
        tokio::join!(store.check_ready(), store.get_endpoint(&identity.namespace, &name));
    ready?;
    for attempt in 1..=ATTEMPTS {
        let Some(endpoint) = found.map_err(|error| failed(&error))? else {
            tracing::info!(endpoint = %name, "the endpoint is gone already");
            return Ok(());
        };
        let owner = &endpoint.spec.container_id;
        if !owner.is_empty() && *owner != request.container_id {
            tracing::warn!(endpoint = %name, %owner, "the endpoint belongs to a newer container and stays");
            return Ok(());
        }
        match delete_endpoint(context, &endpoint).await {
            Ok(()) => return Ok(()),
            Err(error) if error.is_conflict() && attempt < ATTEMPTS => {
                tracing::info!(endpoint = %name, "the endpoint changed in the meantime; trying again");
            }
            Err(error) if error.is_conflict() => {
                let message = format!(
                    "error deleting endpoint: endpoint was modified before it could be deleted: {error}"
                );
                return Err(CniError::new(crate::error::code::DATASTORE, message));
            }
            Err(error) => return Err(failed(&error)),
        }
        found = store.get_endpoint(&identity.namespace, &name).await;
    }
    Ok(())
}

/// Deletes exactly this revision of the endpoint. An endpoint that is already gone is not an error.
pub(crate) async fn delete_endpoint(
    context: &Context,
    endpoint: &WorkloadEndpoint,
) -> std::result::Result<(), datastore::Error> {
    let metadata = &endpoint.metadata;
    let given = |text: &String| (!text.is_empty()).then(|| text.clone());
    let options = DeleteOptions { revision: given(&metadata.resource_version), uid: None };
    let endpoints = context.store.client.resource::<WorkloadEndpointSpec>();
    match endpoints.delete(&metadata.namespace, &metadata.name, &options).await {
        Err(error) if !error.is_does_not_exist() => Err(error),
        _ => Ok(()),
    }
}
