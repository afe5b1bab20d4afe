//! `HostEndpoint`: a node's own interface, or all of them, as an object of policy.

use crate::errors::{FieldErrors, FieldPath};
use crate::kind::Kind;
use crate::meta::ObjectMeta;
use crate::object::{NoStatus, Object, Spec};
use crate::rules::{HasRules, Reason, Rule};
use crate::scalars::names::{check_metadata, check_port_name, is_dns_subdomain, is_interface_name};
use crate::scalars::{Ip, Protocol};
use api_derive::resource_struct;

/// An interface of a node.
pub type HostEndpoint = Object<HostEndpointSpec>;

/// Which interface of which node, and what applies to it.
#[resource_struct(rules)]
pub struct HostEndpointSpec {
    /// The node.
    #[field(max_len = 253)]
    pub node: String,
    /// The interface; `*` for all of them; empty to find it by its addresses.
    #[field(max_len = 15)]
    pub interface_name: String,
    /// The addresses of the interface. Selectors in rules match the endpoint by these addresses.
    #[field(name = "expectedIPs", list = "set")]
    pub expected_ips: Vec<Ip>,
    /// Profiles that apply after policy, in this order.
    #[field(list = "set")]
    pub profiles: Vec<String>,
    /// Ports with names that rules can use.
    #[field(list = "atomic")]
    pub ports: Vec<EndpointPort>,
}

/// A port with a name.
#[resource_struct]
pub struct EndpointPort {
    /// The name that rules use.
    #[field(always, required)]
    pub name: String,
    /// The protocol: TCP, UDP or SCTP.
    #[field(always, required)]
    pub protocol: Protocol,
    /// The port.
    #[field(always, required, min = 1, max = 65535)]
    pub port: u16,
}

impl HasRules for HostEndpointSpec {
    fn rules() -> &'static [Rule<Self>] {
        &[
            Rule {
                cel: "has(self.interfaceName) && self.interfaceName != '' || has(self.expectedIPs) && size(self.expectedIPs) != 0",
                message: "at least one of interfaceName and expectedIPs must be set",
                reason: Reason::Invalid,
                holds: |spec| !spec.interface_name.is_empty() || !spec.expected_ips.is_empty(),
            },
            Rule {
                cel: "has(self.node) && self.node != ''",
                message: "node must be set",
                reason: Reason::Invalid,
                holds: |spec| !spec.node.is_empty(),
            },
        ]
    }
}

impl Spec for HostEndpointSpec {
    const KIND: Kind = Kind::HostEndpoint;
    type Status = NoStatus;

    fn validate(&self, metadata: &ObjectMeta, errors: &mut FieldErrors) {
        check_metadata(metadata, errors);
        let spec = FieldPath::new("spec");
        self.check_rules(&spec, errors);
        errors.require(
            self.node.is_empty() || is_dns_subdomain(&self.node),
            spec.child("node"),
            &self.node,
            "must be the name of a node",
        );
        errors.require(
            self.interface_name.is_empty() || is_interface_name(&self.interface_name),
            spec.child("interfaceName"),
            &self.interface_name,
            "must be * or the name of an interface: up to 15 letters, digits, '_', '.' and '-'",
        );
        for (index, ip) in self.expected_ips.iter().enumerate() {
            if let Err(reason) = ip.parse() {
                errors.add(spec.child("expectedIPs").index(index), ip, reason);
            }
        }
        for (index, profile) in self.profiles.iter().enumerate() {
            let path = spec.child("profiles").index(index);
            errors.require(is_dns_subdomain(profile), path, profile, "must be the name of a profile");
        }
        for (index, port) in self.ports.iter().enumerate() {
            port.validate(&spec.child("ports").index(index), errors);
        }
    }
}

impl EndpointPort {
    fn validate(&self, path: &FieldPath, errors: &mut FieldErrors) {
        if let Err(reason) = check_port_name(&self.name) {
            errors.add(path.child("name"), &self.name, reason);
        }
        errors.require(
            self.protocol.supports_ports(),
            path.child("protocol"),
            &self.protocol,
            "the protocol of a port must be TCP, UDP or SCTP",
        );
    }
}
