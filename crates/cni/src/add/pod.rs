//! ADD of a Kubernetes pod: applies its own and its namespace's annotations, and replaces an older container of the
//! same pod.

use super::Adding;
use super::complete::take_back;
use super::known::PodKnown;
use crate::addresses;
use crate::annotations::{self, AddressSource};
use crate::context::Context;
use crate::dataplane::Begun;
use crate::endpoint::{self, PodEndpoint};
use crate::error::StoreFailure as _;
use crate::error::{CniError, Result};
use crate::ipam::assign::Wish;
use crate::ipam::host_local;
use crate::request::Request;
use crate::wiring::plan::default_routes;
use api::WorkloadEndpoint;
use cni_protocol::result::CniResult;
use ipam::{Ahead, Release};
use ipnet::IpNet;
use model::HandleId;

pub(super) async fn add(
    mut adding: Adding<'_>,
    pod: PodKnown,
    existing: Option<WorkloadEndpoint>,
    ahead: Option<Ahead>,
) -> Result<CniResult> {
    let (context, request) = (adding.attachment.context, adding.attachment.request);
    let conf = &request.conf;
    let annotations = &pod.facts.annotations;
    adding.network.plan.routes = pod_routes(request)?;
    if let Some(mac) = annotations::hardware_address(annotations)? {
        adding.network.plan.pod_mac = Some(mac);
    }
    let source = annotations::address_source(annotations, conf)?;
    let floating = annotations::floating_ips(annotations, conf)?;
    let mut wish = Wish { namespace: pod.namespace_labels, ahead, ..Wish::of(request) };
    if conf.is_kubernetes_policy() && conf.is_calico_ipam() {
        wish.selection.choose(annotations::pool_choice(annotations, &pod.namespace_annotations)?);
    }
    if let (AddressSource::Requested(_), Some(existing)) = (&source, &existing) {
        release_old(context, &conf.name, existing).await?;
    }
    // The device of an older container of this pod must stay until the new one has addresses.
    let fresh = existing.as_ref().is_none_or(|endpoint| endpoint.spec.container_id.is_empty());
    let begun = if fresh { adding.network.begin() } else { Begun::NOTHING };
    let taken = Box::pin(addresses::take(&adding.attachment, &source, wish));
    let (taken, begun) = (taken.await, begun.done().await);
    let (assigned, made) = adding.both(taken, begun).await?;
    let known = PodEndpoint {
        identity: &adding.attachment.identity,
        facts: &pod.facts,
        kubernetes_policy: conf.is_kubernetes_policy(),
        assigned: &assigned,
        floating: &floating,
    };
    match known.build(&adding.name, existing) {
        Ok(endpoint) => Box::pin(adding.complete(assigned, made, endpoint, annotations)).await,
        Err(error) => {
            take_back(&adding.attachment, made, false).await;
            Err(error)
        }
    }
}

/// The pod's routes: everything, or those that `host-local`'s configuration lists.
fn pod_routes(request: &Request) -> Result<Vec<IpNet>> {
    if request.conf.ipam.kind != "host-local" {
        return Ok(default_routes());
    }
    let custom = host_local::custom_routes(&request.document)?;
    Ok(match (custom.is_empty(), request.conf.include_default_routes) {
        (true, _) => default_routes(),
        (false, true) => default_routes().into_iter().chain(custom).collect(),
        (false, false) => custom,
    })
}

/// Addresses that a pod requests explicitly are free again only when its older container has returned them.
async fn release_old(context: &Context, network: &str, existing: &WorkloadEndpoint) -> Result<()> {
    let container = &existing.spec.container_id;
    let handle = (!container.is_empty()).then(|| HandleId::from(format!("{network}.{container}")));
    let release = |address: &IpNet| Release { handle: handle.clone(), ..Release::of(address.addr()) };
    let releases: Vec<Release> = endpoint::addresses_of(existing)?.iter().map(release).collect();
    let released = context.store.ipam.release_ips(&releases).await;
    let released = released.map_err(|error| CniError::address("failed to release ipAddrs", &error))?;
    if let Some(error) = released.failure {
        tracing::warn!(%error, "an address of the older container belongs to another one by now");
    }
    Ok(())
}
