//! Pod → WorkloadEndpoint, and the patches with which the CNI plugin reports a pod's addresses before kubelet does.

use super::profile::service_account_profile_name;
use super::qos::qos_controls;
use super::{ConversionError, Converted};
use crate::names::{WorkloadEndpointIdentifiers, interface_name};
use api::kubernetes::Pod;
use api::kubernetes::workloads::Container;
use api::meta::StringMap;
use api::scalars::{Cidr, IpOrCidr, Network, Protocol};
use api::words as names;
use api::{IPNAT, ObjectMeta, WorkloadEndpoint, WorkloadEndpointPort, WorkloadEndpointSpec};
use serde_json::{Value, json};

/// The name of the one interface that Calico creates.
pub const ENDPOINT: &str = "eth0";

/// The default prefix of interfaces' names.
pub const DEFAULT_INTERFACE_PREFIX: &str = "cali";

/// From this length on, a service account's name cannot be a label's value.
const SERVICE_ACCOUNT_LABEL_LIMIT: usize = 63;

/// Whether the pod is on a node and has a network of its own. Other pods are not workload endpoints, and a pod that is
/// one never stops being one.
#[must_use]
pub fn is_workload_endpoint(pod: &Pod) -> bool {
    !pod.spec.host_network && !pod.spec.node_name.is_empty()
}

/// Whether the pod has released its addresses although it still exists.
#[must_use]
pub fn is_finished(pod: &Pod) -> bool {
    let emptied = |name: &str| pod.metadata.annotations.get(name).is_some_and(String::is_empty);
    let network_removed =
        pod.metadata.deletion_timestamp.is_some() && (emptied(names::POD_IP) || emptied(names::AWS_POD_IPS));
    network_removed || matches!(pod.status.phase.as_str(), "Failed" | "Succeeded" | "Completed")
}

/// Converts a pod for which [`is_workload_endpoint`] holds.
///
/// # Errors
/// When its addresses cannot be read, or annotations that extend what it may do with addresses.
pub fn workload_endpoint(pod: &Pod, interface_prefix: &str) -> Result<Converted, ConversionError> {
    let annotations = &pod.metadata.annotations;
    let namespace = &pod.metadata.namespace;
    let account = &pod.spec.service_account_name;
    let mut networks = addresses(pod)?;
    if is_finished(pod) {
        networks.clear();
    }
    let mut profiles = vec![format!("{}{namespace}", names::NAMESPACE_PROFILE_PREFIX)];
    if !account.is_empty() {
        profiles.push(service_account_profile_name(namespace, account));
    }
    let mut ports = Vec::new();
    push_ports(&pod.spec.containers, &mut ports);
    push_ports(&pod.spec.init_containers, &mut ports);
    let (qos_controls, problems) = qos_controls(annotations);
    let spec = WorkloadEndpointSpec {
        orchestrator: names::KUBERNETES.to_owned(),
        node: pod.spec.node_name.clone(),
        container_id: annotations.get(names::CONTAINER_ID).cloned().unwrap_or_default(),
        pod: pod.metadata.name.clone(),
        endpoint: ENDPOINT.to_owned(),
        service_account_name: account.clone(),
        ip_nats: floating_addresses(annotations, &networks)?,
        ip_networks: networks.iter().map(|network| network.masked().to_string().into()).collect(),
        profiles,
        interface_name: interface_name(interface_prefix, namespace, &pod.metadata.name),
        ports,
        allow_spoofed_source_prefixes: allowed_source_prefixes(annotations)?,
        qos_controls,
        ..WorkloadEndpointSpec::default()
    };
    let metadata = ObjectMeta {
        name: endpoint_name(&pod.spec.node_name, &pod.metadata.name)?,
        generate_name: pod.metadata.generate_name.clone(),
        namespace: namespace.clone(),
        uid: pod.metadata.uid.clone(),
        creation_timestamp: pod.metadata.creation_timestamp.clone(),
        labels: labels(pod),
        annotations: annotations
            .get_key_value(names::NETWORK_STATUS)
            .map(|(name, value)| (name.clone(), value.clone()))
            .into_iter()
            .collect(),
        ..ObjectMeta::default()
    };
    let object = WorkloadEndpoint { metadata, spec, ..WorkloadEndpoint::default() };
    let mut converted = Converted::new(object, &pod.metadata.resource_version);
    converted.problems = problems;
    Ok(converted)
}

/// Returns the name of the endpoint of a pod on a node.
///
/// # Errors
/// When the two names cannot be parts of an endpoint's name.
pub fn endpoint_name(node: &str, pod: &str) -> Result<String, ConversionError> {
    let ids = WorkloadEndpointIdentifiers {
        node: node.to_owned(),
        orchestrator: names::KUBERNETES.to_owned(),
        endpoint: ENDPOINT.to_owned(),
        pod: pod.to_owned(),
        ..WorkloadEndpointIdentifiers::default()
    };
    ids.name().map_err(|error| ConversionError::Name(error.to_string()))
}

fn labels(pod: &Pod) -> StringMap {
    let mut labels = pod.metadata.labels.clone();
    labels.insert(names::LABEL_NAMESPACE.to_owned(), pod.metadata.namespace.clone());
    labels.insert(names::LABEL_ORCHESTRATOR.to_owned(), names::KUBERNETES.to_owned());
    let account = &pod.spec.service_account_name;
    if !account.is_empty() && account.len() < SERVICE_ACCOUNT_LABEL_LIMIT {
        labels.insert(names::LABEL_SERVICE_ACCOUNT.to_owned(), account.clone());
    }
    labels
}

/// The pod's addresses: those that kubelet reports, otherwise those that the CNI plugin wrote.
fn addresses(pod: &Pod) -> Result<Vec<Network>, ConversionError> {
    let annotation = |name: &str| pod.metadata.annotations.get(name).filter(|text| !text.is_empty());
    let status = &pod.status;
    if !status.pod_ips.is_empty() {
        return networks(status.pod_ips.iter().map(|entry| entry.ip.as_str()), "status.podIPs");
    }
    if !status.pod_ip.is_empty() {
        return networks([status.pod_ip.as_str()], "status.podIP");
    }
    if let Some(text) = annotation(names::POD_IPS) {
        return networks(text.split(','), names::POD_IPS);
    }
    if let Some(text) = annotation(names::POD_IP) {
        return networks([text.as_str()], names::POD_IP);
    }
    match annotation(names::AWS_POD_IPS) {
        Some(text) => networks(text.split(','), names::AWS_POD_IPS),
        None => Ok(Vec::new()),
    }
}

fn networks<'a>(
    texts: impl IntoIterator<Item = &'a str>,
    place: &str,
) -> Result<Vec<Network>, ConversionError> {
    let parse = |text| IpOrCidr::new(text).parse().map_err(|reason| ConversionError::field(place, reason));
    texts.into_iter().map(parse).collect()
}

/// Each additional address is translated to the pod's own address of the same family, if it has one.
fn floating_addresses(annotations: &StringMap, networks: &[Network]) -> Result<Vec<IPNAT>, ConversionError> {
    let Some(text) = annotations.get(names::FLOATING_IPS).filter(|_| !networks.is_empty()) else {
        return Ok(Vec::new());
    };
    let addresses: Vec<String> = json_list(names::FLOATING_IPS, text)?;
    let mut own = [None, None];
    for network in networks {
        let (slot, whole) = if network.ip_version() == 4 { (0, 32) } else { (1, 128) };
        if network.masked().prefix_len() != whole {
            let reason = format!("the pod's address {} is a whole network", network.masked());
            return Err(ConversionError::Annotation { annotation: names::FLOATING_IPS, reason });
        }
        own[slot] = Some(network.address());
    }
    let translate = |address: String| {
        let internal = own[usize::from(address.contains(':'))]?;
        Some(IPNAT {
            internal_ip: internal.to_string().into(),
            external_ip: address.into(),
            ..IPNAT::default()
        })
    };
    Ok(addresses.into_iter().filter_map(translate).collect())
}

/// Returns the ranges in the annotation `cni.projectcalico.org/allowedSourcePrefixes`, without host bits.
///
/// # Errors
/// When one of them is not a range: a guess would let the pod send with foreign addresses.
pub fn allowed_source_prefixes(annotations: &StringMap) -> Result<Vec<IpOrCidr>, ConversionError> {
    let annotation = names::ALLOWED_SOURCE_PREFIXES;
    let Some(text) = annotations.get(annotation).filter(|text| !text.is_empty()) else {
        return Ok(Vec::new());
    };
    let masked = |prefix: String| match Cidr::new(prefix).parse() {
        Ok(network) => Ok(network.masked().to_string().into()),
        Err(reason) => Err(ConversionError::Annotation { annotation, reason }),
    };
    json_list(annotation, text)?.into_iter().map(masked).collect()
}

fn json_list(annotation: &'static str, text: &str) -> Result<Vec<String>, ConversionError> {
    // Go reads `null` as the empty list.
    serde_json::from_str::<Option<Vec<String>>>(text).map(Option::unwrap_or_default).map_err(|error| {
        ConversionError::Annotation { annotation, reason: format!("not a JSON list: {error}") }
    })
}

/// Ports that rules can name, and ports that are mapped on the host.
fn push_ports(containers: &[Container], ports: &mut Vec<WorkloadEndpointPort>) {
    for port in containers.iter().flat_map(|container| &container.ports) {
        if port.container_port == 0 || (port.host_port == 0 && port.name.is_empty()) {
            continue;
        }
        let protocol = match port.protocol.as_str() {
            "TCP" | "" => Protocol::Tcp,
            "UDP" => Protocol::Udp,
            "SCTP" => Protocol::Sctp,
            _ => continue,
        };
        let (Ok(number), Ok(host_port)) = (u16::try_from(port.container_port), u16::try_from(port.host_port))
        else {
            continue;
        };
        ports.push(WorkloadEndpointPort {
            name: port.name.clone(),
            protocol,
            port: number,
            host_port,
            host_ip: port.host_ip.as_str().into(),
            ..WorkloadEndpointPort::default()
        });
    }
}

/// Returns the strategic merge patch for a pod's status with which the CNI plugin reports the addresses that it
/// assigned. It has no revision: kubelet runs one ADD per pod at a time, and a pod's status changes constantly.
#[must_use]
pub fn addresses_patch(endpoint: &WorkloadEndpoint) -> Value {
    let mut annotations = StringMap::new();
    let networks: Vec<&str> = endpoint.spec.ip_networks.iter().map(IpOrCidr::as_str).collect();
    if let Some(first) = networks.first() {
        annotations.insert(names::POD_IP.to_owned(), (*first).to_owned());
        annotations.insert(names::POD_IPS.to_owned(), networks.join(","));
        if !endpoint.spec.container_id.is_empty() {
            annotations.insert(names::CONTAINER_ID.to_owned(), endpoint.spec.container_id.clone());
        }
    }
    patch(&annotations, None, Some(&endpoint.metadata.uid))
}

/// Returns the patch with which the CNI plugin reports that the addresses are released. The container's name stays, so
/// that a second DEL can tell which pod it is for.
#[must_use]
pub fn addresses_removed_patch(revision: Option<&str>, uid: Option<&str>) -> Value {
    let annotations =
        [names::POD_IP, names::POD_IPS].map(|name| (name.to_owned(), String::new())).into_iter().collect();
    patch(&annotations, revision, uid)
}

fn patch(annotations: &StringMap, revision: Option<&str>, uid: Option<&str>) -> Value {
    let mut metadata = json!({});
    if !annotations.is_empty() {
        metadata["annotations"] = json!(annotations);
    }
    // Both are immutable, so a patch that contains others fails.
    if let Some(revision) = revision.filter(|revision| !revision.is_empty()) {
        metadata["resourceVersion"] = revision.into();
    }
    if let Some(uid) = uid.filter(|uid| !uid.is_empty()) {
        metadata["uid"] = uid.into();
    }
    json!({"metadata": metadata})
}
