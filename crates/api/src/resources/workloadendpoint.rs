//! `WorkloadEndpoint`: one interface of a workload. Its name is a function of its spec and cannot be chosen.

use super::node::{check_ip, check_mac};
use crate::errors::{FieldErrors, FieldPath};
use crate::kind::Kind;
use crate::meta::ObjectMeta;
use crate::object::{NoStatus, Object, Spec};
use crate::scalars::names::{
    check_metadata, check_port_name, is_container_id, is_dns_subdomain, is_interface_name,
};
use crate::scalars::{Dscp, Ip, IpOrCidr, MacAddr, Protocol};
use crate::words::{LABEL_NAMESPACE, LABEL_ORCHESTRATOR};
use api_derive::resource_struct;

mod name;

pub use name::{NameError, WorkloadEndpointIdentifiers, split_workload_endpoint_name};

/// An interface of a workload.
pub type WorkloadEndpoint = Object<WorkloadEndpointSpec>;

/// Whose interface it is, and its addresses.
#[resource_struct]
pub struct WorkloadEndpointSpec {
    /// The orchestrator: `k8s`, `cni`, `libnetwork`, `openstack` or another.
    pub orchestrator: String,
    /// The workload, where the orchestrator has such a name.
    pub workload: String,
    /// The node.
    pub node: String,
    /// The container.
    #[field(name = "containerID")]
    pub container_id: String,
    /// The pod.
    pub pod: String,
    /// The interface's name inside the workload.
    pub endpoint: String,
    /// The pod's service account.
    pub service_account_name: String,
    /// Addresses of the interface, each as a /32 or /128.
    pub ip_networks: Vec<IpOrCidr>,
    /// Further addresses that are translated to those of the interface.
    #[field(name = "ipNATs")]
    pub ip_nats: Vec<IPNAT>,
    /// The workload's IPv4 gateway.
    pub ipv4_gateway: Ip,
    /// The workload's IPv6 gateway.
    pub ipv6_gateway: Ip,
    /// Profiles that apply after policy, in this order.
    pub profiles: Vec<String>,
    /// The host's end of the interface.
    pub interface_name: String,
    /// The MAC address of the workload's end.
    pub mac: MacAddr,
    /// Ports with names that rules can use, and ports that are mapped on the host.
    pub ports: Vec<WorkloadEndpointPort>,
    /// Ranges from which the workload may send although they are not its own.
    pub allow_spoofed_source_prefixes: Vec<IpOrCidr>,
    /// Limits on the workload's traffic.
    #[field(name = "qosControls")]
    pub qos_controls: Option<QoSControls>,
}

/// A port of a workload.
#[resource_struct]
pub struct WorkloadEndpointPort {
    /// The name that rules use; may be empty for a port that is only mapped.
    #[field(always)]
    pub name: String,
    /// The protocol: TCP, UDP or SCTP.
    #[field(always)]
    pub protocol: Protocol,
    /// The port.
    #[field(always)]
    pub port: u16,
    /// The port on the host; 0 for none.
    #[field(always)]
    pub host_port: u16,
    /// The host's address for that port; empty for all.
    #[field(name = "hostIP", always)]
    pub host_ip: IpOrCidr,
}

/// A second address for one of the endpoint's own.
#[resource_struct]
pub struct IPNAT {
    /// The endpoint's own address.
    #[field(name = "internalIP", always)]
    pub internal_ip: Ip,
    /// The address that others use.
    #[field(name = "externalIP", always)]
    pub external_ip: Ip,
}

/// Limits on a workload's traffic; 0 means no limit.
#[resource_struct]
pub struct QoSControls {
    /// Ingress rate in bit/s.
    pub ingress_bandwidth: i64,
    /// Ingress burst in bits.
    pub ingress_burst: i64,
    /// Ingress peak rate in bit/s.
    pub ingress_peakrate: i64,
    /// Ingress minimum burst in bytes.
    pub ingress_minburst: i64,
    /// Egress rate in bit/s.
    pub egress_bandwidth: i64,
    /// Egress burst in bits.
    pub egress_burst: i64,
    /// Egress peak rate in bit/s.
    pub egress_peakrate: i64,
    /// Egress minimum burst in bytes.
    pub egress_minburst: i64,
    /// Ingress packets per second.
    pub ingress_packet_rate: i64,
    /// Ingress burst in packets.
    pub ingress_packet_burst: i64,
    /// Egress packets per second.
    pub egress_packet_rate: i64,
    /// Egress burst in packets.
    pub egress_packet_burst: i64,
    /// Ingress connections at one time.
    pub ingress_max_connections: i64,
    /// Egress connections at one time.
    pub egress_max_connections: i64,
    /// The mark for packets that leave the cluster.
    pub dscp: Option<Dscp>,
}

impl Spec for WorkloadEndpointSpec {
    const KIND: Kind = Kind::WorkloadEndpoint;
    type Status = NoStatus;

    fn set_defaults(&mut self, metadata: &mut ObjectMeta) {
        if metadata.name.is_empty()
            && let Ok(name) = WorkloadEndpointIdentifiers::from(&*self).name()
        {
            metadata.name = name;
        }
        metadata.labels.insert(LABEL_NAMESPACE.into(), metadata.namespace.clone());
        metadata.labels.insert(LABEL_ORCHESTRATOR.into(), self.orchestrator.clone());
    }

    fn validate(&self, metadata: &ObjectMeta, errors: &mut FieldErrors) {
        check_metadata(metadata, errors);
        let spec = FieldPath::new("spec");
        self.check_name(metadata, &spec, errors);
        for (field, value) in [
            ("orchestrator", &self.orchestrator),
            ("workload", &self.workload),
            ("node", &self.node),
            ("pod", &self.pod),
            ("endpoint", &self.endpoint),
            ("serviceAccountName", &self.service_account_name),
        ] {
            errors.require(
                value.is_empty() || is_dns_subdomain(value),
                spec.child(field),
                value,
                NAME_REASON,
            );
        }
        errors.require(
            self.container_id.is_empty() || is_container_id(&self.container_id),
            spec.child("containerID"),
            &self.container_id,
            "must be letters and digits, with '-' between them",
        );
        for (index, profile) in self.profiles.iter().enumerate() {
            errors.require(
                is_dns_subdomain(profile),
                spec.child("profiles").index(index),
                profile,
                NAME_REASON,
            );
        }
        errors.require(
            is_interface_name(&self.interface_name),
            spec.child("interfaceName"),
            &self.interface_name,
            "must be the name of an interface: up to 15 letters, digits, '_', '.' and '-'",
        );
        check_mac(&self.mac, spec.child("mac"), errors);
        check_ip(&self.ipv4_gateway, 4, spec.child("ipv4Gateway"), errors);
        check_ip(&self.ipv6_gateway, 6, spec.child("ipv6Gateway"), errors);
        for (index, prefix) in self.allow_spoofed_source_prefixes.iter().enumerate() {
            if let Err(reason) = prefix.parse() {
                errors.add(spec.child("allowSpoofedSourcePrefixes").index(index), prefix, reason);
            }
        }
        self.check_addresses(&spec, errors);
        for (index, port) in self.ports.iter().enumerate() {
            port.validate(&spec.child("ports").index(index), errors);
        }
    }
}

const NAME_REASON: &str =
    "must be lower case letters, digits, '-' and '.', starting and ending with a letter or digit";

impl WorkloadEndpointSpec {
    fn check_name(&self, metadata: &ObjectMeta, spec: &FieldPath, errors: &mut FieldErrors) {
        match WorkloadEndpointIdentifiers::from(self).name() {
            Ok(expected) => errors.require(
                metadata.name == expected,
                FieldPath::new("metadata.name"),
                &metadata.name,
                format!("does not match what the spec says: the name must be {expected}"),
            ),
            Err(error) => errors.add(spec.child(error.field), &error.value, error.reason),
        }
    }

    /// Checks that each network is one address, and that each NAT leads to one of them in its own family.
    fn check_addresses(&self, spec: &FieldPath, errors: &mut FieldErrors) {
        let mut networks = Vec::with_capacity(self.ip_networks.len());
        for (index, network) in self.ip_networks.iter().enumerate() {
            let path = spec.child("ipNetworks").index(index);
            match network.parse_strict() {
                Ok(parsed) => {
                    let net = parsed.masked();
                    errors.require(
                        net.prefix_len() == net.max_prefix_len(),
                        path,
                        network,
                        "must hold one address: /32 for IPv4, /128 for IPv6",
                    );
                    networks.push(net);
                }
                Err(reason) => errors.add(path, network, reason),
            }
        }
        for (index, nat) in self.ip_nats.iter().enumerate() {
            let path = spec.child("ipNATs").index(index);
            let (internal, external) = (nat.internal_ip.parse(), nat.external_ip.parse());
            if let Err(reason) = &external {
                errors.add(path.child("externalIP"), &nat.external_ip, reason);
            }
            match internal {
                Ok(internal) => {
                    errors.require(
                        networks.iter().any(|net| net.contains(&internal)),
                        path.child("internalIP"),
                        &nat.internal_ip,
                        "must be one of ipNetworks",
                    );
                    errors.require(
                        external.is_ok_and(|external| external.is_ipv4() == internal.is_ipv4()),
                        path.child("externalIP"),
                        &nat.external_ip,
                        "must have the same IP version as internalIP",
                    );
                }
                Err(reason) => errors.add(path.child("internalIP"), &nat.internal_ip, reason),
            }
        }
    }
}

impl WorkloadEndpointPort {
    fn validate(&self, path: &FieldPath, errors: &mut FieldErrors) {
        if self.name.is_empty() {
            let reason = "must be set for a port that is not mapped on the host";
            errors.require(self.host_port != 0, path.child("name"), &self.name, reason);
        } else if let Err(reason) = check_port_name(&self.name) {
            errors.add(path.child("name"), &self.name, reason);
        }
        errors.require(
            self.protocol.supports_ports(),
            path.child("protocol"),
            &self.protocol,
            "the protocol of a port must be TCP, UDP or SCTP",
        );
        errors.require(self.port != 0, path.child("port"), self.port, "must be at least 1");
        if !self.host_ip.is_empty()
            && let Err(reason) = self.host_ip.parse_strict()
        {
            errors.add(path.child("hostIP"), &self.host_ip, reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_name_is_filled_in_and_another_kept() {
        let spec = WorkloadEndpointSpec {
            orchestrator: "k8s".into(),
            node: "node-1".into(),
            pod: "web-1".into(),
            endpoint: "eth0".into(),
            ..Default::default()
        };
        for (given, expected) in [("", "node--1-k8s-web--1-eth0"), ("other", "other")] {
            let mut endpoint = WorkloadEndpoint::new("shop", given, spec.clone());
            endpoint.set_defaults();
            assert_eq!(endpoint.metadata.name, expected);
        }
    }
}
