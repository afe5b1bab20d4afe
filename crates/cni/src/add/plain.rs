//! ADD of a container that is not a pod.

use super::Adding;
use super::complete::{ensure_profile, wish_of};
use crate::addresses;
use crate::annotations::AddressSource;
use crate::assigned::Assigned;
use crate::config::Dataplane;
use crate::dataplane::{Begun, Made};
use crate::endpoint;
use crate::error::Result;
use crate::ipam::assign::Wish;
use crate::labels::mesos_labels;
use crate::wiring::Ends;
use api::WorkloadEndpoint;
use api::meta::StringMap;
use cni_protocol::result::CniResult;
use ipam::Ahead;

pub(super) async fn add(
    mut adding: Adding<'_>,
    existing: Option<WorkloadEndpoint>,
    ahead: Option<Ahead>,
    begun: Begun,
) -> Result<CniResult> {
    if let Some(existing) = existing {
        // Created for nothing: the container already has a device, or gets one with its former hardware address.
        begun.undo().await;
        return Box::pin(join_network(adding, existing)).await;
    }
    let request = adding.attachment.request;
    let (labels, namespace) = mesos_labels(&request.conf.args.mesos.network_info.labels.labels);
    if let Some(namespace) = namespace {
        adding.attachment.identity.namespace = namespace;
    }
    let begun = begun.or_begin(&adding.network);
    let wish = Wish { ahead, ..Wish::of(request) };
    let taken = Box::pin(addresses::take(&adding.attachment, &AddressSource::Plugin, wish));
    let (taken, begun) = (taken.await, begun.done().await);
    let (assigned, made) = adding.both(taken, begun).await?;
    let endpoint = endpoint::plain(&adding.attachment.identity, &adding.name, labels, &assigned);
    Box::pin(adding.complete(assigned, made, endpoint, &StringMap::new())).await
}

/// A container that is already attached joins another network, or the call is repeated: it keeps its addresses.
async fn join_network(adding: Adding<'_>, mut endpoint: WorkloadEndpoint) -> Result<CniResult> {
    let Adding { attachment, mut network, .. } = adding;
    let (context, request) = (attachment.context, attachment.request);
    let profile = &request.conf.name;
    if !endpoint.spec.profiles.contains(profile) {
        endpoint.spec.profiles.push(profile.clone());
    }
    let assigned = Assigned { addresses: endpoint::addresses_of(&endpoint)?, ..Assigned::default() };
    network.plan.set_assigned(&assigned);
    network.plan.pod_mac = endpoint.spec.mac.as_str().parse().ok();
    // A runtime that repeats the call after a crash may have created a new namespace in the meantime.
    if network.dataplane == Dataplane::Linux && !network.is_made().await? {
        let wish = || wish_of(request, &network.plan, &endpoint, &StringMap::new());
        let (ends, _) = network.finish(Made::Nothing, wish).await?;
        endpoint::set_device(&mut endpoint, &ends);
    }
    let profile = ensure_profile(&attachment);
    let (written, profile) =
        tokio::join!(Box::pin(context.store.write_endpoint(endpoint)), Box::pin(profile));
    profile?;
    let written = written?;
    let ends = Ends {
        host_device: written.spec.interface_name.clone(),
        mac: written.spec.mac.as_str().parse().ok(),
    };
    Ok(assigned.into_result(request, &ends, network.plan.mtu))
}
