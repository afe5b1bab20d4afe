//! CHECK: whether a container is still attached as ADD attached it. Inspects the kernel, the endpoint and the
//! addresses, changes nothing, and reports all differences at once.

use crate::addresses;
use crate::config::Dataplane;
use crate::context::Context;
use crate::error::StoreFailure as _;
use crate::error::{CniError, Result, code};
use crate::host;
use crate::identity::Identity;
use crate::request::Request;
use crate::wiring::{self, Plan};
use api::WorkloadEndpoint;
use cni_protocol::result::{CniResult, Ip};
use model::HandleId;
use std::net::IpAddr;

/// Checks an attachment.
///
/// # Errors
/// When something differs, or cannot be inspected.
pub(crate) async fn check(context: &Context, request: &Request) -> Result<()> {
    let conf = &request.conf;
    let previous = previous_result(request)?;
    let node = host::node_name(conf, &context.paths)?;
    let identity = Identity::of(request, &node);
    let name = identity.endpoint_name()?;
    let store = &context.store;
    let (ready, endpoint) = tokio::join!(store.check_ready(), store.get_endpoint(&identity.namespace, &name));
    ready?;
    let endpoint =
        endpoint.map_err(|error| CniError::datastore(&format!("reading WorkloadEndpoint {name}"), &error))?;
    let mut findings = check_endpoint(endpoint.as_ref(), &name, request, &previous);
    if conf.dataplane()? == Dataplane::Linux {
        let plan = plan_of(request, &identity, &previous, endpoint.as_ref())?;
        let namespace = request.needed_namespace()?;
        let looked = tokio::task::spawn_blocking(move || wiring::check(&plan, &namespace)).await;
        let looked = looked.map_err(|error| CniError::new(code::INTERNAL, error.to_string()))?;
        findings.extend(looked?);
    }
    if addresses::is_delegated(request) {
        addresses::pass_on(request).await?;
    } else {
        findings.extend(check_addresses(context, &identity, &previous).await?);
    }
    if findings.is_empty() {
        return Ok(());
    }
    Err(CniError::new(
        code::CHECK,
        format!("the attachment of {} has changed: {}", identity.describe(), findings.join("; ")),
    )
    .with_details("the runtime can repair it by DEL and ADD, which recreating the pod does"))
}

fn previous_result(request: &Request) -> Result<CniResult> {
    let missing = |reason: &str| {
        CniError::new(
            code::INVALID_CONFIGURATION,
            format!("CHECK needs the result of ADD as prevResult: {reason}"),
        )
    };
    let value = request.conf.previous_result.as_ref().ok_or_else(|| missing("there is none"))?;
    CniResult::parse(value).map_err(|error| missing(&error))
}

/// The addresses of our interface; the other addresses belong to other plugins of the chain.
fn own_addresses(previous: &CniResult, ifname: &str) -> Vec<IpAddr> {
    let is_ours = |ip: &&Ip| match ip.interface.and_then(|index| previous.interfaces.get(index)) {
        Some(interface) => interface.name == ifname,
        None => true,
    };
    previous.ips.iter().filter(is_ours).map(|ip| ip.address.addr()).collect()
}

fn plan_of(
    request: &Request,
    identity: &Identity,
    previous: &CniResult,
    endpoint: Option<&WorkloadEndpoint>,
) -> Result<Plan> {
    let ours = previous.interfaces.iter().find(|it| it.name == request.ifname && !it.sandbox.is_empty());
    let mtu = ours.map(|it| it.mtu).filter(|mtu| *mtu != 0);
    let device =
        endpoint.map_or_else(|| identity.device(&request.environment), |it| it.spec.interface_name.clone());
    let mut plan = Plan::new(&request.conf, device, &request.ifname, mtu)?;
    plan.set_addresses(own_addresses(previous, &request.ifname));
    plan.pod_mac = ours.and_then(|it| it.mac.parse().ok());
    if request.conf.ipam.kind == "host-local" {
        let custom = crate::ipam::host_local::custom_routes(&request.document)?;
        if !custom.is_empty() {
            plan.routes = custom;
        }
    }
    Ok(plan)
}

fn check_endpoint(
    endpoint: Option<&WorkloadEndpoint>,
    name: &str,
    request: &Request,
    previous: &CniResult,
) -> Vec<String> {
    let Some(endpoint) = endpoint else { return vec![format!("WorkloadEndpoint {name} not found")] };
    let mut findings = Vec::new();
    let owner = &endpoint.spec.container_id;
    if !owner.is_empty() && *owner != request.container_id {
        findings.push(format!("WorkloadEndpoint {name} belongs to container {owner}"));
    }
    let recorded: Vec<IpAddr> = endpoint
        .spec
        .ip_networks
        .iter()
        .filter_map(|it| it.as_str().split('/').next()?.parse().ok())
        .collect();
    for address in own_addresses(previous, &request.ifname) {
        if !recorded.contains(&address) {
            findings.push(format!("WorkloadEndpoint {name} does not have address {address}"));
        }
    }
    findings
}

async fn check_addresses(
    context: &Context,
    identity: &Identity,
    previous: &CniResult,
) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    let handle = identity.handle();
    for address in own_addresses(previous, &identity.identifiers.endpoint) {
        let found = context.store.ipam.allocation(address).await;
        let found = found
            .map_err(|error| CniError::address(&format!("reading the allocation of {address}"), &error))?;
        match found.map(|it| HandleId::from(it.handle_id.unwrap_or_default())) {
            None => findings.push(format!("address {address} is not assigned")),
            // A virtual machine's addresses are held by a handle of the machine.
            Some(other) if other != handle && !other.contains(".vmi.") => {
                findings.push(format!("address {address} is assigned to {other}"));
            }
            Some(_) => {}
        }
    }
    Ok(findings)
}
