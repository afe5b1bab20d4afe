//! Workload and host endpoints.

use super::Faults;
use crate::ProfileName;
use crate::feed::{EndpointPort, HostEndpoint, Nat, Protocol, WorkloadEndpoint};
use crate::kubernetes::qos::egress_mark;
use api::QoSControls;
use api::scalars::{IpOrCidr, MacAddr};
use api::words::{LABEL_SERVICE_ACCOUNT, NAMESPACE_LABEL_PREFIX, SERVICE_ACCOUNT_LABEL_PREFIX};
use ipnet::IpNet;

/// The state of an endpoint that is in use; there is no other state.
const ACTIVE: &str = "active";

/// Converts a workload endpoint; `None` while it has no addresses, because nothing can be programmed for it yet.
///
/// Labels that would claim to come from a namespace or service account are dropped: a pod must not choose those.
#[must_use]
pub fn workload(endpoint: api::WorkloadEndpoint, faults: &mut Faults) -> Option<WorkloadEndpoint> {
    let (mut metadata, spec) = (endpoint.metadata, endpoint.spec);
    if spec.ip_networks.is_empty() {
        return None;
    }
    let (ipv4_nets, ipv6_nets) = by_family(networks("spec.ipNetworks", &spec.ip_networks, faults));
    metadata.labels.retain(|label, _| {
        !label.starts_with(NAMESPACE_LABEL_PREFIX) && !label.starts_with(SERVICE_ACCOUNT_LABEL_PREFIX)
    });
    if !spec.service_account_name.is_empty() {
        metadata.labels.insert(LABEL_SERVICE_ACCOUNT.to_owned(), spec.service_account_name);
    }
    let mut converted = WorkloadEndpoint {
        state: ACTIVE.to_owned(),
        name: spec.interface_name,
        mac: mac(&spec.mac, faults),
        profile_ids: spec.profiles.into_iter().map(ProfileName::from).collect(),
        ipv4_nets,
        ipv6_nets,
        labels: metadata.labels.into(),
        generate_name: metadata.generate_name,
        allow_spoofed_source_prefixes: networks(
            "spec.allowSpoofedSourcePrefixes",
            &spec.allow_spoofed_source_prefixes,
            faults,
        ),
        annotations: metadata.annotations,
        qos_controls: spec.qos_controls.map(Box::new),
        ..WorkloadEndpoint::default()
    };
    for (index, nat) in spec.ip_nats.iter().enumerate() {
        match (nat.internal_ip.parse(), nat.external_ip.parse()) {
            (Ok(internal), Ok(external)) => {
                let list = if internal.is_ipv4() { &mut converted.ipv4_nat } else { &mut converted.ipv6_nat };
                list.push(Nat { internal, external });
            }
            (Err(reason), _) | (_, Err(reason)) => faults.add(format!("spec.ipNATs[{index}]"), reason),
        }
    }
    for (index, port) in spec.ports.into_iter().enumerate() {
        // Ports without a name are the CNI plugin's; no rule can refer to them.
        if !port.name.is_empty() {
            converted.ports.extend(named_port(index, port.name, port.protocol, port.port, faults));
        }
    }
    Some(converted)
}

/// Converts a host endpoint.
#[must_use]
pub fn host(endpoint: api::HostEndpoint, faults: &mut Faults) -> HostEndpoint {
    let (metadata, spec) = (endpoint.metadata, endpoint.spec);
    let mut converted = HostEndpoint {
        name: spec.interface_name,
        labels: metadata.labels.into(),
        profile_ids: spec.profiles.into_iter().map(ProfileName::from).collect(),
        ..HostEndpoint::default()
    };
    for (index, text) in spec.expected_ips.iter().enumerate() {
        match text.parse() {
            Ok(ip) if ip.is_ipv4() => converted.expected_ipv4_addrs.push(ip),
            Ok(ip) => converted.expected_ipv6_addrs.push(ip),
            Err(reason) => faults.add(format!("spec.expectedIPs[{index}]"), reason),
        }
    }
    for (index, port) in spec.ports.into_iter().enumerate() {
        converted.ports.extend(named_port(index, port.name, port.protocol, port.port, faults));
    }
    match egress_mark(&metadata.annotations) {
        Ok(None) => {}
        Ok(Some(mark)) => {
            let controls = QoSControls { dscp: Some(mark), ..QoSControls::default() };
            converted.qos_controls = Some(Box::new(controls));
        }
        Err(problem) => faults.add("metadata.annotations", problem),
    }
    converted
}

fn named_port(
    index: usize,
    name: String,
    protocol: api::scalars::Protocol,
    port: u16,
    faults: &mut Faults,
) -> Option<EndpointPort> {
    let protocol = match Protocol::try_from(protocol) {
        Ok(protocol) => protocol,
        Err(written) => {
            let reason = format!("'{written}' is not a protocol; no rule can name the port");
            faults.add(format!("spec.ports[{index}].protocol"), reason);
            return None;
        }
    };
    Some(EndpointPort { name, protocol, port })
}

fn networks(place: &str, texts: &[IpOrCidr], faults: &mut Faults) -> Vec<IpNet> {
    let mut nets = Vec::with_capacity(texts.len());
    for (index, text) in texts.iter().enumerate() {
        match text.parse() {
            Ok(network) => nets.push(network.masked()),
            Err(reason) => faults.add(format!("{place}[{index}]"), reason),
        }
    }
    nets
}

fn by_family(nets: Vec<IpNet>) -> (Vec<IpNet>, Vec<IpNet>) {
    // Nearly all clusters have only one family.
    if nets.iter().all(|net| matches!(net, IpNet::V4(_))) {
        return (nets, Vec::new());
    }
    nets.into_iter().partition(|net| matches!(net, IpNet::V4(_)))
}

/// Returns the address in its usual spelling, whatever spelling the user chose.
fn mac(mac: &MacAddr, faults: &mut Faults) -> String {
    if mac.is_empty() {
        return String::new();
    }
    match mac.parse() {
        Ok(bytes) => {
            let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            pairs.join(":")
        }
        Err(reason) => {
            faults.add("spec.mac", reason);
            String::new()
        }
    }
}
