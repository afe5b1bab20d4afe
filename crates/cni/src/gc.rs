//! GC: endpoints and addresses of this node and network that belong to no valid attachment go.
//!
//! The runtime names the attachments that are valid and promises that no ADD or DEL runs meanwhile. What belongs to
//! another node or network, and addresses of virtual machines, are never touched.

use crate::addresses;
use crate::context::Context;
use crate::error::{CniError, Result, code};
use crate::host;
use crate::identity::Identity;
use crate::pending;
use crate::request::Request;
use api::WorkloadEndpointSpec;
use client::ListQuery;
use model::{ListOptions, Value};
use std::collections::BTreeSet;

/// Removes what is left over. Goes on after a failure and tells them all.
///
/// # Errors
/// What could not be removed.
pub(crate) async fn gc(context: &Context, request: &Request) -> Result<()> {
    let node = host::node_name(&request.conf, &context.paths)?;
    context.store.check_ready().await?;
    pending::carry_out(context, usize::MAX).await;
    let valid: BTreeSet<&str> =
        request.conf.valid_attachments.iter().map(|it| it.container_id.as_str()).collect();
    let mut failures = Vec::new();
    failures.extend(remove_endpoints(context, request, &node, &valid).await?);
    if addresses::is_delegated(request) {
        addresses::pass_on(request).await?;
    } else {
        failures.extend(release_addresses(context, request, &node, &valid).await?);
    }
    if failures.is_empty() { Ok(()) } else { Err(CniError::new(code::GENERAL, failures.join("; "))) }
}

async fn remove_endpoints(
    context: &Context,
    request: &Request,
    node: &str,
    valid: &BTreeSet<&str>,
) -> Result<Vec<String>> {
    // On Kubernetes endpoints are made from pods, which the plugin may not list and which end by themselves.
    if context.store.client.backend().is_kubernetes() {
        return Ok(Vec::new());
    }
    let mut identity = Identity::of(request, node);
    identity.identifiers.orchestrator.clear();
    let prefix =
        identity.identifiers.prefix().map_err(|error| CniError::new(code::GENERAL, error.to_string()))?;
    let found = context
        .store
        .client
        .resource::<WorkloadEndpointSpec>()
        .list(&ListQuery::with_name_prefix(&prefix))
        .await;
    let found = found.map_err(|error| CniError::datastore("listing WorkloadEndpoints", &error))?;
    let mut failures = Vec::new();
    for endpoint in found.items {
        let spec = &endpoint.spec;
        let is_ours = spec.node == node
            && match spec.orchestrator.as_str() {
                "cni" => spec.profiles.contains(&request.conf.name),
                "k8s" => true,
                _ => false,
            };
        if !is_ours || spec.container_id.is_empty() || valid.contains(spec.container_id.as_str()) {
            continue;
        }
        tracing::info!(endpoint = %endpoint.metadata.name, "an endpoint without a valid attachment is deleted");
        if let Err(error) = crate::del::delete_endpoint(context, &endpoint).await {
            failures.push(format!("deleting WorkloadEndpoint {}: {error}", endpoint.metadata.name));
        }
    }
    Ok(failures)
}

async fn release_addresses(
    context: &Context,
    request: &Request,
    node: &str,
    valid: &BTreeSet<&str>,
) -> Result<Vec<String>> {
    let blocks = context.store.client.backend().list(&ListOptions::Block { ip_version: None }, None).await;
    let blocks = blocks.map_err(|error| CniError::datastore("listing address blocks", &error))?;
    let prefix = format!("{}.", request.conf.name);
    let mut stale = BTreeSet::new();
    for entry in blocks.items {
        let Value::Block(block) = entry.value else { continue };
        for record in &block.attributes {
            let Some(handle) = &record.handle_id else { continue };
            let Some(container) = handle.strip_prefix(&prefix) else { continue };
            let here = record.active_owner_attrs.get("node").is_some_and(|it| it == node);
            if here && !container.starts_with("vmi.") && !valid.contains(container) {
                stale.insert(handle.clone());
            }
        }
    }
    let mut failures = Vec::new();
    for handle in stale {
        tracing::info!(%handle, "addresses without a valid attachment are released");
        match context.store.ipam.release_by_handle(&handle).await {
            Err(error) if !error.is_does_not_exist() => failures.push(format!("releasing {handle}: {error}")),
            _ => {}
        }
    }
    Ok(failures)
}
