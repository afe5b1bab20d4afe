//! ADD: a container gets addresses, a device, and an endpoint that policy applies to.
//!
//! What does not depend on each other runs at once: all reads of the datastore and of Kubernetes, then taking addresses
//! and making the pair of devices, which for a container that is no pod begins with the reads already. The order of
//! writes is Calico's: addresses, devices, endpoint, profile; the last touches to a device that is there already happen
//! while its endpoint is written. Whatever fails, everything that this call made is taken back.

use crate::addresses;
use crate::annotations::{self, AddressSource};
use crate::config::Dataplane;
use crate::context::Context;
use crate::dataplane::{self, Begun, Wired, Wiring};
use crate::endpoint::{self, PodFacts, host_networks};
use crate::error::{CniError, Result, code};
use crate::external::{self, ExternalWish};
use crate::fault;
use crate::gates;
use crate::host;
use crate::identity::Identity;
use crate::ipam::{assign, host_local};
use crate::labels::mesos_labels;
use crate::request::Request;
use crate::result::{CniResult, Interface, Ip};
use crate::store::pod_facts;
use crate::turn::Turn;
use crate::wait;
use crate::wiring::WiringPlan;
use crate::wiring::plan::default_routes;
use api::WorkloadEndpoint;
use api::meta::StringMap;
use ipam::{Ahead, NamespaceLabels, Release};
use ipnet::IpNet;
use netlink::MacAddress;
use netlink::namespace::Namespace;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

/// How long the datastore may be silent.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is known without asking anybody.
struct Local {
    identity: Identity,
    /// What its endpoint is called, unless there is one already.
    name: String,
    mtu: Option<u32>,
    dataplane: Dataplane,
    namespace: Arc<Namespace>,
    /// With addresses to follow.
    plan: WiringPlan,
}

/// What the datastore and Kubernetes say.
struct Learnt {
    existing: Option<WorkloadEndpoint>,
    pod: Option<PodKnown>,
    ahead: Option<Ahead>,
}

/// What Kubernetes says.
#[derive(Default)]
struct PodKnown {
    facts: PodFacts,
    namespace_annotations: StringMap,
    namespace_labels: Option<NamespaceLabels>,
}

/// Attaches a container.
///
/// # Errors
/// When it cannot be done; nothing of it is left then.
pub(crate) async fn add(context: &Context, request: &mut Request) -> Result<CniResult> {
    fault::point("started");
    if request.conf.policy_setup_timeout_seconds < 0 {
        let message = format!("invalid pod startup delay of {}", request.conf.policy_setup_timeout_seconds);
        return Err(CniError::new(code::INVALID_CONFIGURATION, message));
    }
    let mut local = look_around(context, request)?;
    let _turn = Turn::for_call(&context.paths.turns, &request.container_id).await?;
    // The same container again, before the release of its first life was carried out: that comes first.
    crate::pending::carry_out_for(context, &request.container_id).await?;
    let begun = if can_begin_early(request, &local) {
        dataplane::begin(&local.dataplane, &local.plan, &local.namespace)
    } else {
        Begun::NOTHING
    };
    let learnt = match Box::pin(learn(context, request, &local)).await {
        Ok(learnt) => learnt,
        Err(error) => {
            begun.undo().await;
            return Err(error);
        }
    };
    fault::point("store-read");
    if let Some(endpoint) = &learnt.existing {
        // One interface per pod: the endpoint that is there is this one, whatever the interface was called.
        local.identity.identifiers.endpoint.clone_from(&endpoint.spec.endpoint);
    }
    if local.identity.is_pod() {
        Box::pin(add_pod(context, request, local, learnt)).await
    } else {
        Box::pin(add_plain(context, request, local, learnt, begun)).await
    }
}

/// What can be known without asking anybody.
fn look_around(context: &Context, request: &Request) -> Result<Local> {
    let conf = &request.conf;
    let node = host::node_name(conf, &context.paths)?;
    let mtu = host::mtu(conf, &context.paths)?;
    conf.device()?;
    let dataplane = conf.dataplane()?;
    let identity = Identity::of(request, &node);
    if !identity.is_pod() && conf.feature_control.ip_addrs_no_ipam {
        let message = "requested feature is not supported for this runtime: ip_addrs_no_ipam";
        return Err(CniError::new(code::UNSUPPORTED_FIELD, message));
    }
    let name = identity.endpoint_name()?;
    let namespace = Arc::new(request.needed_namespace()?);
    let mut plan = WiringPlan::new(conf, identity.device(&request.environment), &request.ifname, mtu)?;
    plan.pod_mac = Some(random_mac());
    if conf.is_calico_ipam() {
        plan.expected = assign::expected(conf);
    }
    Ok(Local { identity, name, mtu, dataplane, namespace, plan })
}

/// Reads everything that is needed, at once.
async fn learn(context: &Context, request: &Request, local: &Local) -> Result<Learnt> {
    let (store, conf) = (&context.store, &request.conf);
    let identity = &local.identity;
    let facts = async {
        if identity.is_pod() { learn_pod(context, request, identity).await.map(Some) } else { Ok(None) }
    };
    let ahead = assign::look_ahead(context, conf, &identity.identifiers.node);
    let reads = async { tokio::join!(store.check_ready(), store.find_endpoint(identity), facts, ahead) };
    let (ready, existing, pod, ahead) = answered(reads).await?;
    ready?;
    gates::wait_for(&conf.readiness_gates).await?;
    Ok(Learnt { existing: existing?, pod: pod?, ahead })
}

/// A hardware address as the kernel chooses one: random, of one device, and not given out by anybody. Chosen here, it is
/// known before the device has it.
fn random_mac() -> MacAddress {
    let [first, rest @ ..] = RandomState::new().build_hasher().finish().to_be_bytes();
    let [second, third, fourth, fifth, sixth, ..] = rest;
    MacAddress([(first & 0xfe) | 0x02, second, third, fourth, fifth, sixth])
}

/// The pair of devices can be made before the datastore has answered, where nothing that is stored has a say in it, and
/// nothing is to be waited for.
fn can_begin_early(request: &Request, local: &Local) -> bool {
    !local.identity.is_pod() && request.conf.readiness_gates.is_empty()
}

/// A datastore or API that is silent is an error before the runtime loses its patience.
async fn answered<T>(work: impl Future<Output = T>) -> Result<T> {
    tokio::time::timeout(PATIENCE, work).await.map_err(|_| {
        let message = format!("the datastore did not answer within {} s", PATIENCE.as_secs());
        CniError::new(code::TRY_AGAIN_LATER, message)
            .with_details("check that the datastore runs and can be reached from this node")
    })
}

async fn learn_pod(context: &Context, request: &Request, identity: &Identity) -> Result<PodKnown> {
    let conf = &request.conf;
    let name = &identity.namespace;
    let wants_namespace = conf.is_kubernetes_policy() || !conf.kubernetes.kubeconfig.is_empty();
    let namespace = async {
        if wants_namespace { context.store.namespace(conf, name).await.map(Some) } else { Ok(None) }
    };
    if !conf.is_kubernetes_policy() {
        let labels = namespace.await?.map(|namespace| labels_of(name, namespace.metadata.labels));
        return Ok(PodKnown { namespace_labels: labels, ..PodKnown::default() });
    }
    let (namespace, pod) = tokio::join!(namespace, context.store.pod(conf, name, &identity.identifiers.pod));
    let facts = pod_facts(&pod?, &request.environment)?;
    let metadata = namespace?.map(|namespace| namespace.metadata).unwrap_or_default();
    Ok(PodKnown {
        facts,
        namespace_annotations: metadata.annotations,
        namespace_labels: Some(labels_of(name, metadata.labels)),
    })
}

fn labels_of(name: &str, labels: StringMap) -> NamespaceLabels {
    NamespaceLabels { name: name.to_owned(), labels }
}

/// A container that is no pod.
async fn add_plain(
    context: &Context,
    request: &Request,
    mut local: Local,
    learnt: Learnt,
    begun: Begun,
) -> Result<CniResult> {
    if let Some(existing) = learnt.existing {
        // Made for nothing: the container has a device, or is to get one with the hardware address that it had.
        begun.undo().await;
        return Box::pin(join_network(context, request, local, existing)).await;
    }
    let (labels, namespace) = mesos_labels(&request.conf.args.mesos.network_info.labels.labels);
    if let Some(namespace) = namespace {
        local.identity.namespace = namespace;
    }
    let identity = &local.identity;
    let begun = begun.or_begin(&local.dataplane, &local.plan, &local.namespace);
    let taken =
        Box::pin(addresses::take(context, request, identity, &AddressSource::Plugin, None, learnt.ahead));
    let (taken, begun) = (taken.await, begun.done().await);
    let (result, wiring) = both(context, request, identity, taken, begun).await?;
    let endpoint = endpoint::plain(identity, &local.name, labels, &result.ips);
    Box::pin(complete(context, request, local, result, wiring, endpoint, &StringMap::new())).await
}

/// A container that is attached already joins another network, or asks again: it keeps its addresses.
async fn join_network(
    context: &Context,
    request: &Request,
    local: Local,
    mut endpoint: WorkloadEndpoint,
) -> Result<CniResult> {
    let network = &request.conf.name;
    if !endpoint.spec.profiles.contains(network) {
        endpoint.spec.profiles.push(network.clone());
    }
    let Local { mtu, dataplane, namespace, mut plan, .. } = local;
    let ips = addresses_of(&endpoint)?;
    plan.set_addresses(&ips);
    plan.pod_mac = endpoint.spec.mac.as_str().parse().ok();
    // A runtime that asks again after a crash may have made a new namespace meanwhile.
    if dataplane == Dataplane::Linux && !is_wired(&plan, &namespace).await? {
        let wish = || wish_of(request, &plan, &endpoint, &StringMap::new());
        let (wired, _) = dataplane::finish(&dataplane, Wiring::Later, &plan, &namespace, wish).await?;
        endpoint::set_device(&mut endpoint, &wired.host_device, wired.mac);
    }
    let profile = ensure_profile(context, request, false);
    let (written, profile) =
        tokio::join!(Box::pin(context.store.write_endpoint(endpoint)), Box::pin(profile));
    profile?;
    let written = written?;
    let wired = Wired {
        host_device: written.spec.interface_name.clone(),
        mac: written.spec.mac.as_str().parse().ok(),
    };
    Ok(told(CniResult { ips, ..CniResult::default() }, request, &wired, mtu))
}

fn addresses_of(endpoint: &WorkloadEndpoint) -> Result<Vec<Ip>> {
    let read = |network: &api::scalars::IpOrCidr| {
        let address: IpNet = network.as_str().parse().map_err(|error| {
            let message = format!("WorkloadEndpoint {}: address {network}: {error}", endpoint.metadata.name);
            CniError::new(code::DATASTORE, message)
        })?;
        Ok(Ip { address, gateway: None, interface: None })
    };
    endpoint.spec.ip_networks.iter().map(read).collect()
}

async fn is_wired(plan: &WiringPlan, namespace: &Arc<Namespace>) -> Result<bool> {
    let (plan, namespace) = (plan.clone(), Arc::clone(namespace));
    let outcome = tokio::task::spawn_blocking(move || crate::wiring::check(&plan, &namespace)).await;
    match outcome {
        Ok(findings) => Ok(findings?.is_empty()),
        Err(error) => Err(CniError::new(code::INTERNAL, format!("a worker thread failed: {error}"))),
    }
}

/// A pod of Kubernetes.
async fn add_pod(
    context: &Context,
    request: &mut Request,
    mut local: Local,
    learnt: Learnt,
) -> Result<CniResult> {
    let Learnt { existing, pod, ahead } = learnt;
    let pod = pod.unwrap_or_default();
    let annotations = &pod.facts.annotations;
    local.plan.routes = pod_routes(request)?;
    if let Some(mac) = annotations::hardware_address(annotations)? {
        local.plan.pod_mac = Some(mac);
    }
    let source = annotations::address_source(annotations, &request.conf)?;
    let floating = annotations::floating_ips(annotations, &request.conf)?;
    if request.conf.is_kubernetes_policy() && request.conf.is_calico_ipam() {
        let choice = annotations::pool_choice(annotations, &pod.namespace_annotations)?;
        addresses::apply_choice(request, &choice);
    }
    let request = &*request;
    let identity = &local.identity;
    let name = match &existing {
        Some(endpoint) => endpoint.metadata.name.clone(),
        None => local.name.clone(),
    };
    if let (AddressSource::Requested(_), Some(existing)) = (&source, &existing) {
        release_old(context, &request.conf.name, existing).await?;
    }
    // The device of an older container of this pod must stay until there are addresses for the new one.
    let fresh = existing.as_ref().is_none_or(|endpoint| endpoint.spec.container_id.is_empty());
    let begun = if fresh {
        dataplane::begin(&local.dataplane, &local.plan, &local.namespace)
    } else {
        Begun::NOTHING
    };
    let taken = Box::pin(addresses::take(context, request, identity, &source, pod.namespace_labels, ahead));
    let (taken, begun) = (taken.await, begun.done().await);
    let (result, wiring) = both(context, request, identity, taken, begun).await?;
    let built = endpoint::of_pod(
        identity,
        &name,
        existing,
        &pod.facts,
        request.conf.is_kubernetes_policy(),
        &result.ips,
        &floating,
    );
    // No routes mean that a virtual machine is moving here: its packets still go to another host.
    local.plan.host_routes =
        !(request.conf.is_calico_ipam() && source == AddressSource::Plugin && result.routes.is_empty());
    match built {
        Ok(endpoint) => {
            Box::pin(complete(context, request, local, result, wiring, endpoint, annotations)).await
        }
        Err(error) => {
            take_back(context, request, &local.identity, wiring, false).await;
            Err(error)
        }
    }
}

/// The pod's routes: everything, or what `host-local`'s configuration lists.
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

/// Addresses that a pod asks for by name are free again only when its older container has given them back.
async fn release_old(context: &Context, network: &str, existing: &WorkloadEndpoint) -> Result<()> {
    let container = &existing.spec.container_id;
    let handle = (!container.is_empty()).then(|| format!("{network}.{container}"));
    let release = |address: &Ip| Release { handle: handle.clone(), ..Release::of(address.address.addr()) };
    let releases: Vec<Release> = addresses_of(existing)?.iter().map(release).collect();
    let released = context.store.ipam.release_ips(&releases).await;
    let released = released.map_err(|error| CniError::address("failed to release ipAddrs", &error))?;
    if let Some(error) = released.failure {
        tracing::warn!(%error, "an address of the older container belongs to somebody else by now");
    }
    Ok(())
}

/// Addresses and devices were begun at once; if one of them failed, the other is taken back.
async fn both(
    context: &Context,
    request: &Request,
    identity: &Identity,
    taken: Result<CniResult>,
    begun: Result<Wiring>,
) -> Result<(CniResult, Wiring)> {
    fault::point("addresses-assigned");
    match (taken, begun) {
        (Ok(result), Ok(wiring)) => Ok((result, wiring)),
        (Ok(_), Err(error)) => {
            take_back(context, request, identity, Wiring::Later, false).await;
            Err(error)
        }
        (Err(error), begun) => {
            dataplane::undo(begun.unwrap_or(Wiring::Later)).await;
            Err(error)
        }
    }
}

/// The pod's network, then its endpoint and profile, then the answer.
async fn complete(
    context: &Context,
    request: &Request,
    local: Local,
    result: CniResult,
    wiring: Wiring,
    mut endpoint: WorkloadEndpoint,
    annotations: &StringMap,
) -> Result<CniResult> {
    let Local { identity, mtu, dataplane, namespace, mut plan, .. } = local;
    let identity = &identity;
    plan.set_addresses(&result.ips);
    let is_new = endpoint.metadata.resource_version.is_empty();
    // A new endpoint whose device is there already, with an address that we chose, can be written while the device gets
    // its addresses and routes: that only takes the kernel, and hardly ever fails.
    let at_once = is_new && plan.pod_mac.is_some() && matches!(wiring, Wiring::Linux(_));
    if at_once {
        endpoint::set_device(&mut endpoint, &plan.host_device, plan.pod_mac);
    }
    let wish = || wish_of(request, &plan, &endpoint, annotations);
    let finish = dataplane::finish(&dataplane, wiring, &plan, &namespace, wish);
    let (finished, written) = if at_once {
        let write = Box::pin(write(context, request, identity, endpoint.clone()));
        let (finished, written) = tokio::join!(finish, write);
        (finished, Some(written))
    } else {
        (finish.await, None)
    };
    let (wired, wiring) = match finished {
        Ok(outcome) => outcome,
        Err(error) => {
            take_back(context, request, identity, Wiring::Later, at_once).await;
            return Err(error);
        }
    };
    let outcome = match written {
        Some(Ok(written)) if wired.mac == plan.pod_mac => Ok(written),
        // A kernel that chose another hardware address.
        Some(Ok(mut written)) => {
            endpoint::set_device(&mut written, &wired.host_device, wired.mac);
            Box::pin(write(context, request, identity, written)).await
        }
        Some(Err(error)) => Err(error),
        None => {
            endpoint::set_device(&mut endpoint, &wired.host_device, wired.mac);
            Box::pin(write(context, request, identity, endpoint)).await
        }
    };
    fault::point("endpoint-written");
    let written = match outcome {
        Ok(written) => written,
        Err(error) => {
            // A write without an answer may have happened all the same.
            take_back(context, request, identity, wiring, is_new).await;
            return Err(error);
        }
    };
    fault::point("profile-written");
    if identity.is_pod() {
        await_policy(context, request, &written).await;
    }
    Ok(told(result, request, &wired, mtu))
}

/// Writes the endpoint, and the profile of its network.
async fn write(
    context: &Context,
    request: &Request,
    identity: &Identity,
    endpoint: WorkloadEndpoint,
) -> Result<WorkloadEndpoint> {
    let profile = ensure_profile(context, request, identity.is_pod());
    let writes = async { tokio::join!(Box::pin(context.store.write_endpoint(endpoint)), Box::pin(profile)) };
    answered(writes).await.and_then(|(written, profile)| profile.and(written))
}

async fn ensure_profile(context: &Context, request: &Request, is_pod: bool) -> Result<()> {
    if request.conf.policy.kind.is_empty() {
        context.store.ensure_profile(&request.conf.name, is_pod).await
    } else {
        Ok(())
    }
}

/// Takes back what this call made: the network, the endpoint if it is new, the addresses. What the datastore does not
/// let us take back now is kept for later.
async fn take_back(
    context: &Context,
    request: &Request,
    identity: &Identity,
    wiring: Wiring,
    endpoint: bool,
) {
    dataplane::undo(wiring).await;
    if endpoint && let Err(error) = Box::pin(crate::del::remove_endpoint(context, request, identity)).await {
        tracing::error!(%error, "the endpoint of a failed ADD could not be deleted now");
        if error.is_transient() {
            addresses::record(context, request, identity);
        }
    }
    Box::pin(addresses::give_back_quietly(context, request, identity)).await;
}

/// Waits until the agent has programmed the endpoint. A pod is not refused because that takes long.
async fn await_policy(context: &Context, request: &Request, endpoint: &WorkloadEndpoint) {
    let Ok(seconds @ 1..) = u64::try_from(request.conf.policy_setup_timeout_seconds) else { return };
    let Some(file) = wait::status_file(endpoint) else { return };
    let folder = context.paths.endpoint_status_folder(&request.conf);
    let outcome =
        tokio::task::spawn_blocking(move || wait::for_file(&folder, &file, Duration::from_secs(seconds)))
            .await;
    if let Ok(Err(error)) = outcome {
        tracing::warn!(%error, "the endpoint's policy is not in place yet; the pod starts all the same");
    }
}

fn wish_of(
    request: &Request,
    plan: &WiringPlan,
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

/// The result with both ends of the device; addresses stand by themselves and have no gateway.
fn told(mut result: CniResult, request: &Request, wired: &Wired, mtu: Option<u32>) -> CniResult {
    result.interfaces.push(Interface { name: wired.host_device.clone(), ..Interface::default() });
    result.interfaces.push(Interface {
        name: request.ifname.clone(),
        mac: wired.mac.map(|mac| mac.to_string()).unwrap_or_default(),
        mtu: mtu.unwrap_or_default(),
        sandbox: request.netns.clone(),
        ..Interface::default()
    });
    let whole = host_networks(&result.ips);
    for (ip, address) in result.ips.iter_mut().zip(whole) {
        *ip = Ip { address, gateway: None, interface: Some(1) };
    }
    result
}
