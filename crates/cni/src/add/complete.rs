//! The second half of ADD: completes the pod's network, writes its endpoint and profile, and answers the runtime. And
//! the way back, from every place where that can fail.

use super::Adding;
use super::known::answered;
use crate::addresses;
use crate::assigned::Assigned;
use crate::attachment::Attachment;
use crate::dataplane::Made;
use crate::endpoint;
use crate::error::Result;
use crate::external::{self, ExternalWish};
use crate::fault;
use crate::request::Request;
use crate::wait;
use crate::wiring::{Ends, Plan};
use api::WorkloadEndpoint;
use api::meta::StringMap;
use cni_protocol::result::CniResult;
use std::time::Duration;

impl Adding<'_> {
    /// Completes the pod's network, writes its endpoint and profile, and returns the answer.
    pub(super) async fn complete(
        self,
        assigned: Assigned,
        made: Made,
        mut endpoint: WorkloadEndpoint,
        annotations: &StringMap,
    ) -> Result<CniResult> {
        let Self { attachment, mut network, .. } = self;
        let request = attachment.request;
        network.plan.set_assigned(&assigned);
        let plan = &network.plan;
        let is_new = endpoint.metadata.resource_version.is_empty();
        // A new endpoint whose device already exists, with an address that we chose, can be written while the device
        // gets its addresses and routes: those only need the kernel and hardly ever fail.
        let at_once = is_new && plan.pod_mac.is_some() && matches!(made, Made::Pair(_));
        if at_once {
            let ends = Ends { host_device: plan.host_device.clone(), mac: plan.pod_mac };
            endpoint::set_device(&mut endpoint, &ends);
        }
        let wish = || wish_of(request, plan, &endpoint, annotations);
        let finish = network.finish(made, wish);
        let (finished, written) = if at_once {
            let write = Box::pin(write(&attachment, endpoint.clone()));
            let (finished, written) = tokio::join!(finish, write);
            (finished, Some(written))
        } else {
            (finish.await, None)
        };
        let (ends, made) = match finished {
            Ok(outcome) => outcome,
            Err(error) => {
                take_back(&attachment, Made::Nothing, at_once).await;
                return Err(error);
            }
        };
        let outcome = match written {
            Some(Ok(written)) if ends.mac == plan.pod_mac => Ok(written),
            // The kernel chose another hardware address.
            Some(Ok(mut written)) => {
                endpoint::set_device(&mut written, &ends);
                Box::pin(write(&attachment, written)).await
            }
            Some(Err(error)) => Err(error),
            None => {
                endpoint::set_device(&mut endpoint, &ends);
                Box::pin(write(&attachment, endpoint)).await
            }
        };
        fault::point("endpoint-written");
        let written = match outcome {
            Ok(written) => written,
            Err(error) => {
                // A write that got no answer may have been carried out.
                take_back(&attachment, made, is_new).await;
                return Err(error);
            }
        };
        fault::point("profile-written");
        if attachment.identity.is_pod() {
            await_policy(&attachment, &written).await;
        }
        Ok(assigned.into_result(request, &ends, network.plan.mtu))
    }
}

/// Writes the endpoint, and the profile of its network.
async fn write(attachment: &Attachment<'_>, endpoint: WorkloadEndpoint) -> Result<WorkloadEndpoint> {
    let store = &attachment.context.store;
    let profile = ensure_profile(attachment);
    let writes = async { tokio::join!(Box::pin(store.write_endpoint(endpoint)), Box::pin(profile)) };
    answered(writes).await.and_then(|(written, profile)| profile.and(written))
}

pub(super) async fn ensure_profile(attachment: &Attachment<'_>) -> Result<()> {
    let conf = &attachment.request.conf;
    if conf.policy.kind.is_empty() {
        attachment.context.store.ensure_profile(&conf.name, attachment.identity.is_pod()).await
    } else {
        Ok(())
    }
}

/// Undoes what this call created: the network, the endpoint if it is new, the addresses. What the datastore cannot undo
/// now is kept for later.
pub(super) async fn take_back(attachment: &Attachment<'_>, made: Made, endpoint: bool) {
    made.undo().await;
    if endpoint && let Err(error) = Box::pin(crate::del::remove_endpoint(attachment)).await {
        tracing::error!(%error, "the endpoint of a failed ADD could not be deleted now");
        if error.is_transient() {
            addresses::record(attachment);
        }
    }
    Box::pin(addresses::give_back_quietly(attachment)).await;
}

/// Waits until the agent has programmed the endpoint. A pod is not refused because that takes too long.
async fn await_policy(attachment: &Attachment<'_>, endpoint: &WorkloadEndpoint) {
    let conf = &attachment.request.conf;
    let Ok(seconds @ 1..) = u64::try_from(conf.policy_setup_timeout_seconds) else { return };
    let Some(file) = wait::status_file(endpoint) else { return };
    let folder = attachment.context.paths.endpoint_status_folder(conf);
    let outcome =
        tokio::task::spawn_blocking(move || wait::for_file(&folder, &file, Duration::from_secs(seconds)))
            .await;
    if let Ok(Err(error)) = outcome {
        tracing::warn!(%error, "the endpoint's policy is not in place yet; the pod starts all the same");
    }
}

pub(super) fn wish_of(
    request: &Request,
    plan: &Plan,
    endpoint: &WorkloadEndpoint,
    annotations: &StringMap,
) -> ExternalWish {
    ExternalWish {
        ifname: request.ifname.clone(),
        netns: request.netns.clone(),
        host_device: plan.host_device.clone(),
        forwarding: plan.forwarding,
        mtu: plan.mtu.unwrap_or_default(),
        addresses: plan.addresses.clone(),
        routes: plan.routes.clone(),
        endpoint: Box::new(endpoint.clone()),
        annotations: annotations.clone(),
        options: external::options(&request.conf),
    }
}
