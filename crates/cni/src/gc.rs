//! GC: removes endpoints and addresses of this node and network that belong to no valid attachment.
//!
//! The runtime names the valid attachments of this network and promises that no ADD or DEL of it runs in the meantime.
//! Anything that belongs, or may belong, to another node or network, and addresses of virtual machines, are never
//! touched ([`verdict`]).

mod verdict;

use self::verdict::{Question, Taken, Verdict, judge};
use crate::addresses;
use crate::context::Context;
use crate::error::StoreFailure as _;
use crate::error::{CniError, Result, code};
use crate::host;
use crate::identity::Identity;
use crate::pending;
use crate::request::Request;
use api::{WorkloadEndpoint, WorkloadEndpointSpec};
use client::ListQuery;
use ipam_core::Block;
use model::{ListOptions, Value};

/// Removes leftovers. Continues after a failure and reports all failures at the end.
///
/// # Errors
/// When something could not be removed.
pub(crate) async fn gc(context: &Context, request: &Request) -> Result<()> {
    let node = host::node_name(&request.conf, &context.paths)?;
    context.store.check_ready().await?;
    pending::carry_out(context, usize::MAX).await;
    let question = Question {
        network: &request.conf.name,
        node: &node,
        valid: request.conf.valid_attachments.iter().map(|it| it.container_id.as_str()).collect(),
    };
    let mut failures = Vec::new();
    let endpoints = endpoints_of(context, request, &node, &mut failures).await?;
    let mut verdict = judge(&question, endpoints, &taken(context).await?);
    if !failures.is_empty() {
        // An endpoint that cannot be read may have any of the addresses.
        verdict.release.clear();
    }
    failures.extend(carry_out(context, verdict).await);
    if addresses::is_delegated(request) {
        addresses::pass_on(request).await?;
    }
    if failures.is_empty() { Ok(()) } else { Err(CniError::new(code::GENERAL, failures.join("; "))) }
}

async fn endpoints_of(
    context: &Context,
    request: &Request,
    node: &str,
    failures: &mut Vec<String>,
) -> Result<Vec<WorkloadEndpoint>> {
    // On Kubernetes endpoints are derived from pods, which the plugin may not list and which end by themselves.
    if context.store.client.backend().is_kubernetes() {
        return Ok(Vec::new());
    }
    let mut identity = Identity::of(request, node);
    identity.identifiers.orchestrator.clear();
    let prefix =
        identity.identifiers.prefix().map_err(|error| CniError::new(code::GENERAL, error.to_string()))?;
    let endpoints = context.store.client.resource::<WorkloadEndpointSpec>();
    let found = endpoints.list(&ListQuery::with_name_prefix(&prefix)).await;
    let found = found.map_err(|error| CniError::datastore("listing WorkloadEndpoints", &error))?;
    let unreadable = found.invalid.iter().map(|entry| format!("reading {}: {}", entry.key, entry.reason));
    failures.extend(unreadable);
    Ok(found.items)
}

async fn taken(context: &Context) -> Result<Vec<Taken>> {
    let blocks = context.store.client.backend().list(&ListOptions::Block { ip_version: None }, None).await;
    let blocks = blocks.map_err(|error| CniError::datastore("listing address blocks", &error))?;
    let mut taken = Vec::new();
    for entry in blocks.items {
        let Value::Block(block) = entry.value else { continue };
        taken.extend(Block::new(&block).allocations().filter_map(|it| {
            let owner = it.attribute?.active_owner_attrs.clone();
            Some(Taken { address: it.address, handle: it.handle_id()?.into(), owner })
        }));
    }
    Ok(taken)
}

/// Removes endpoints first: an address is free only when no endpoint with it is left that policy applies to.
async fn carry_out(context: &Context, verdict: Verdict) -> Vec<String> {
    let mut failures = Vec::new();
    let mut is_gone = Vec::with_capacity(verdict.delete.len());
    for endpoint in &verdict.delete {
        let name = &endpoint.metadata.name;
        tracing::info!(endpoint = %name, "an endpoint without a valid attachment is deleted");
        let outcome = crate::del::delete_endpoint(context, endpoint).await;
        is_gone.push(outcome.is_ok());
        if let Err(error) = outcome {
            failures.push(format!("deleting WorkloadEndpoint {name}: {error}"));
        }
    }
    for endpoint in verdict.leave {
        tracing::info!(endpoint = %endpoint.metadata.name, "an endpoint without a valid attachment leaves the network");
        if let Err(error) = context.store.write_endpoint(endpoint).await {
            failures.push(error.to_string());
        }
    }
    for (handle, endpoint) in verdict.release {
        if endpoint.is_some_and(|number| is_gone.get(number) != Some(&true)) {
            continue;
        }
        tracing::info!(%handle, "addresses without a valid attachment are released");
        match context.store.ipam.release_by_handle(&handle).await {
            Err(error) if !error.is_does_not_exist() => failures.push(format!("releasing {handle}: {error}")),
            _ => {}
        }
    }
    failures
}
