//! The rule, of which policies and profiles are lists: an action, and the packets to which it applies.
//!
//! A rule by itself is checked here; which rules a policy may contain, in [`super::policy`].

use super::policy::Action;
use crate::errors::{FieldErrors, FieldPath};
use crate::meta::StringMap;
use crate::rules::HasRules;
use crate::scalars::{Cidr, IpOrCidr, Port, Protocol, SelectorText, names};
use api_derive::resource_struct;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

mod cross_field;

// What few rules have is in boxes, since there are many rules.
/// One rule: a packet that meets every condition given gets the action.
#[resource_struct(rules)]
pub struct Rule {
    /// What happens to a packet that matches.
    #[field(always, required)]
    pub action: Action,
    /// Only packets of this IP version: 4 or 6.
    #[field(name = "ipVersion", schema = ip_versions)]
    pub ip_version: Option<i64>,
    /// Only packets of this protocol: TCP, UDP, ICMP, ICMPv6, SCTP, UDPLite, or a number from 1 to 255. Needed where
    /// ports are given by number.
    pub protocol: Option<Protocol>,
    /// Only ICMP packets of this type and code. Needs protocol ICMP or ICMPv6.
    pub icmp: Option<Box<ICMPFields>>,
    /// Only packets of any other protocol than this.
    pub not_protocol: Option<Protocol>,
    /// Only ICMP packets of any other type and code than this.
    #[field(name = "notICMP")]
    pub not_icmp: Option<Box<ICMPFields>>,
    /// Where the packet comes from.
    pub source: EntityRule,
    /// Where the packet goes to.
    pub destination: EntityRule,
    /// Only these HTTP requests.
    pub http: Option<Box<HTTPMatch>>,
    /// Notes about the rule, without effect on packets.
    pub metadata: Option<Box<RuleMetadata>>,
}

/// One end of a packet's way: addresses, endpoints, services, ports.
#[resource_struct(rules)]
pub struct EntityRule {
    /// Addresses in any of these networks.
    #[field(list = "set", max_items = 256)]
    pub nets: Vec<IpOrCidr>,
    /// Endpoints and network sets with labels that this expression selects.
    #[field(max_len = 1024)]
    pub selector: SelectorText,
    /// Endpoints in namespaces with labels that this expression selects; `global()` means endpoints in no namespace.
    #[field(max_len = 1024)]
    pub namespace_selector: SelectorText,
    /// Endpoints of a Kubernetes service. Stands alone: no selectors, networks or service accounts beside it.
    pub services: Option<Box<ServiceMatch>>,
    /// Any of these ports: numbers, ranges such as `8000:8100`, or names.
    #[field(list = "atomic", max_items = 50)]
    pub ports: Vec<Port>,
    /// Addresses in none of these networks.
    #[field(list = "set", max_items = 256)]
    pub not_nets: Vec<IpOrCidr>,
    /// Anything but the endpoints and network sets that this expression selects.
    #[field(max_len = 1024)]
    pub not_selector: SelectorText,
    /// None of these ports.
    #[field(list = "atomic", max_items = 50)]
    pub not_ports: Vec<Port>,
    /// Pods that run as one of these service accounts.
    pub service_accounts: Option<Box<ServiceAccountMatch>>,
}

/// A Kubernetes service.
#[resource_struct]
pub struct ServiceMatch {
    /// The service's name.
    #[field(max_len = 253)]
    pub name: String,
    /// The service's namespace; empty means the policy's own.
    #[field(max_len = 253)]
    pub namespace: String,
}

/// Service accounts, by name, by label, or both.
#[resource_struct]
pub struct ServiceAccountMatch {
    /// Any of these names.
    #[field(list = "set")]
    pub names: Vec<String>,
    /// Labels that this expression selects.
    pub selector: SelectorText,
}

/// An ICMP message.
#[resource_struct(rules)]
pub struct ICMPFields {
    /// The type, such as 8 for an echo request.
    #[field(name = "type", min = 0, max = 254)]
    pub icmp_type: Option<i64>,
    /// The code within the type.
    #[field(min = 0, max = 255)]
    pub code: Option<i64>,
}

/// HTTP requests by method and path; both must match where both are given.
#[resource_struct]
pub struct HTTPMatch {
    /// Any of these methods.
    #[field(list = "atomic", max_items = 20)]
    pub methods: Vec<String>,
    /// Any of these paths.
    #[field(list = "atomic", max_items = 20)]
    pub paths: Vec<HTTPPath>,
}

/// An HTTP path: exactly one of the two is given.
#[resource_struct]
pub struct HTTPPath {
    /// This path and no other.
    #[field(max_len = 1024)]
    pub exact: String,
    /// All paths that begin like this.
    #[field(max_len = 1024)]
    pub prefix: String,
}

/// Notes about a rule.
#[resource_struct]
pub struct RuleMetadata {
    /// Key and value pairs.
    pub annotations: StringMap,
}

fn ip_versions(schema: &mut Map<String, Value>) {
    schema.insert("enum".into(), json!([4, 6]));
}

impl Rule {
    /// Checks everything about this rule that does not depend on the policy around it.
    pub fn validate(&self, path: &FieldPath, errors: &mut FieldErrors) {
        if self.action.is_unset() {
            errors.add(path.child("action"), "", "is required: one of Allow, Deny, Log, Pass");
        }
        self.validate_in_profile(path, errors);
    }

    /// Checks a rule of a profile, which Calico also accepts without an action.
    pub fn validate_in_profile(&self, path: &FieldPath, errors: &mut FieldErrors) {
        self.check_rules(path, errors);
        for (name, protocol) in [("protocol", &self.protocol), ("notProtocol", &self.not_protocol)] {
            if let Some(protocol) = protocol {
                protocol.validate(&path.child(name), errors);
            }
        }
        for (name, icmp) in [("icmp", &self.icmp), ("notICMP", &self.not_icmp)] {
            if let Some(icmp) = icmp {
                icmp.check_rules(&path.child(name), errors);
            }
        }
        if let Some(http) = &self.http {
            http.validate(&path.child("http"), errors);
        }
        if let Some(metadata) = &self.metadata {
            names::check_annotations(
                &metadata.annotations,
                &path.child("metadata").child("annotations"),
                errors,
            );
        }
        let mut versions = BTreeSet::new();
        for (name, entity) in [("source", &self.source), ("destination", &self.destination)] {
            let path = path.child(name);
            entity.validate(&path, errors);
            self.check_ports("ports", &entity.ports, &path, errors);
            self.check_ports("notPorts", &entity.not_ports, &path, errors);
            self.check_nets(&entity.nets, &path.child("nets"), false, &mut versions, errors);
            self.check_nets(&entity.not_nets, &path.child("notNets"), true, &mut versions, errors);
        }
    }

    fn check_ports(&self, name: &str, ports: &[Port], path: &FieldPath, errors: &mut FieldErrors) {
        let path = path.child(name);
        for (index, port) in ports.iter().enumerate() {
            port.validate(&path.index(index), errors);
        }
        match &self.protocol {
            None if !ports.iter().all(Port::is_named) => errors.add(
                path,
                list(ports),
                "rules with numeric port or port range must set protocol to TCP or UDP or SCTP",
            ),
            Some(protocol) if !protocol.supports_ports() && !ports.is_empty() => {
                errors.add(
                    path,
                    list(ports),
                    "rules that specify ports must set protocol to TCP or UDP or SCTP",
                );
            }
            _ => {}
        }
    }

    /// Checks one list of networks. `versions` collects the IP versions of the whole rule, which must agree.
    fn check_nets(
        &self,
        nets: &[IpOrCidr],
        path: &FieldPath,
        negated: bool,
        versions: &mut BTreeSet<u8>,
        errors: &mut FieldErrors,
    ) {
        let mut own = BTreeSet::new();
        for (index, net) in nets.iter().enumerate() {
            let path = path.index(index);
            let network = match Cidr::from(net.as_str()).parse_strict() {
                Ok(network) => network,
                Err(reason) => {
                    errors.add(path, net, format!("invalid CIDR: {reason}"));
                    continue;
                }
            };
            own.insert(network.ip_version());
            if negated && network.is_everything() {
                errors.add(
                    path,
                    net,
                    "catch-all CIDR in negation creates logical contradiction (matches no traffic)",
                );
            }
        }
        if let Some(version) = self.ip_version
            && own.iter().any(|own| i64::from(*own) != version)
        {
            errors.add(path.clone(), list(nets), "rule IP version doesn't match CIDR version");
        }
        let all: BTreeSet<u8> = versions.union(&own).copied().collect();
        if !own.is_empty() && all.len() > 1 {
            errors.add(path.clone(), list(nets), "rule contains both IPv4 and IPv6 CIDRs");
        }
        *versions = all;
    }
}

impl EntityRule {
    fn validate(&self, path: &FieldPath, errors: &mut FieldErrors) {
        self.check_rules(path, errors);
        self.selector.validate(&path.child("selector"), errors);
        self.not_selector.validate(&path.child("notSelector"), errors);
        let namespace_selector = &self.namespace_selector;
        namespace_selector.validate(&path.child("namespaceSelector"), errors);
        if namespace_selector.mentions_global() {
            let bare: String =
                namespace_selector.as_str().chars().filter(|c| !matches!(c, ' ' | '\t')).collect();
            if bare != "global()" {
                let place = path.child("namespaceSelector");
                errors.add(place, namespace_selector, "global() cannot be combined with other selectors");
            }
        }
        if let Some(services) = &self.services {
            let path = path.child("services");
            for (name, value) in [("name", &services.name), ("namespace", &services.namespace)] {
                if !value.is_empty() && !names::is_dns_subdomain(value) {
                    errors.add(path.child(name), value, "must be a DNS name in lower case");
                }
            }
        }
        if let Some(accounts) = &self.service_accounts {
            accounts.selector.validate(&path.child("serviceAccounts").child("selector"), errors);
        }
    }
}

impl HTTPMatch {
    fn validate(&self, path: &FieldPath, errors: &mut FieldErrors) {
        let mut seen = BTreeSet::new();
        if !self.methods.iter().all(|method| seen.insert(method)) {
            let reason = format!("Invalid methods (duplicates): [{}]", self.methods.join(" "));
            errors.add(path.child("methods"), list(&self.methods), reason);
        }
        for (index, entry) in self.paths.iter().enumerate() {
            let path = path.child("paths").index(index);
            match (entry.exact.as_str(), entry.prefix.as_str()) {
                ("", "") => {
                    errors.add(path, "", "Invalid path match. Either 'exact' or 'prefix' must be set");
                }
                (text, "") | ("", text) => {
                    if !text.starts_with('/') || text.contains(['?', ' ', '#']) {
                        let reason = "Invalid path: must start with '/' and contain no '?', '#' or space";
                        errors.add(path, text, reason);
                    }
                }
                (..) => errors.add(path, "", "Invalid path match. Both 'exact' and 'prefix' are set"),
            }
        }
    }
}

fn list<T: std::fmt::Display>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    format!("[{}]", items.join(" "))
}
