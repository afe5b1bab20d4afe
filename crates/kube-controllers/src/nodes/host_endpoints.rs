//! Computes the host endpoints of a node from its addresses, labels and interfaces, and the configured templates.
//!
//! Our endpoints have a label that names us as their creator; endpoints without it are never changed.

use crate::config::HostEndpointsConfig;
use api::meta::StringMap;
use api::scalars::IpOrCidr;
use api::{
    DEFAULT_ALLOW_PROFILE, HostEndpoint, HostEndpointSpec, INTERNAL_IP, Node, NodeInterface, Object, Template,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ipnet::IpNet;
use regex::Regex;
use selector::Selector;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The label that marks our endpoints.
pub(crate) const CREATED_BY: &str = api::words::LABEL_CREATED_BY;
/// The value of [`CREATED_BY`].
pub(crate) const CREATED_BY_US: &str = "calico-kube-controllers";

/// The suffix of the names.
const SUFFIX: &str = "auto-hep";

/// The interface that stands for all of them.
const ALL_INTERFACES: &str = "*";

/// The longest name of an object.
const LONGEST_NAME: usize = 253;

/// The parts of a Calico node that determine its endpoints.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeFacts {
    /// The node.
    pub name: String,
    /// Its labels.
    pub labels: StringMap,
    /// Its addresses, without duplicates, in the order of [`addresses`].
    pub addresses: Vec<IpAddr>,
    /// Its interfaces.
    pub interfaces: Vec<NodeInterface>,
}

impl NodeFacts {
    /// Extracts the facts of a node.
    #[must_use]
    pub(crate) fn of(node: &Node) -> Self {
        Self {
            name: node.metadata.name.clone(),
            labels: node.metadata.labels.clone(),
            addresses: addresses(node),
            interfaces: node.spec.interfaces.clone(),
        }
    }
}

/// All known addresses of a node: from BGP, tunnels, WireGuard, Kubernetes and interfaces. Values that are not
/// addresses are left out.
fn addresses(node: &Node) -> Vec<IpAddr> {
    let spec = &node.spec;
    let mut texts: Vec<&str> = Vec::new();
    if let Some(bgp) = &spec.bgp {
        texts.extend([
            bgp.ipv4_address.as_str(),
            bgp.ipv6_address.as_str(),
            bgp.ipv4_ipip_tunnel_addr.as_str(),
        ]);
    }
    texts.extend([spec.ipv4_vxlan_tunnel_addr.as_str(), spec.ipv6_vxlan_tunnel_addr.as_str()]);
    if let Some(wireguard) = &spec.wireguard {
        texts.extend([wireguard.interface_ipv4_address.as_str(), wireguard.interface_ipv6_address.as_str()]);
    }
    let internal = spec.addresses.iter().filter(|address| address.address_type == INTERNAL_IP);
    texts.extend(internal.map(|address| address.address.as_str()));
    texts.extend(spec.interfaces.iter().flat_map(|interface| &interface.addresses).map(String::as_str));
    let mut addresses = Vec::new();
    for text in texts.into_iter().filter(|text| !text.is_empty()) {
        match IpOrCidr::new(text).parse() {
            Ok(network) => push_new(&mut addresses, network.address()),
            Err(reason) => {
                tracing::warn!(node = node.metadata.name, reason, "an address of the node is left out");
            }
        }
    }
    addresses
}

fn push_new(addresses: &mut Vec<IpAddr>, address: IpAddr) {
    if !addresses.contains(&address) {
        addresses.push(address);
    }
}

/// The desired endpoints of a node, by name.
///
/// # Errors
/// When a template cannot be used: then no node's endpoints are changed, because it is unknown which to delete.
pub(crate) fn desired(
    config: &HostEndpointsConfig,
    node: &NodeFacts,
) -> Result<BTreeMap<String, HostEndpoint>, String> {
    let mut endpoints = BTreeMap::new();
    if !config.auto_create {
        return Ok(endpoints);
    }
    let mut add = |name: String, template: Option<&Template>, addresses: &[IpAddr], interface: &str| {
        let endpoint = endpoint(&name, node, template, addresses, interface);
        endpoints.insert(name, endpoint);
    };
    if config.create_default {
        add(name(&[&node.name]), None, &node.addresses, ALL_INTERFACES);
    }
    for template in &config.templates {
        let wrong = |reason: String| format!("template {}: {reason}", template.generate_name);
        let selector =
            Selector::parse(template.node_selector.as_str()).map_err(|error| wrong(error.to_string()))?;
        if !selector.evaluate(&node.labels) {
            continue;
        }
        let networks = networks(template).map_err(wrong)?;
        let within = |address: &&IpAddr| networks.iter().any(|network| network.contains(*address));
        let addresses: Vec<IpAddr> = node.addresses.iter().filter(within).copied().collect();
        if template.interface_pattern.is_empty() {
            // Without an interface name, only the addresses identify the interface.
            if !addresses.is_empty() {
                add(name(&[&node.name, &template.generate_name]), Some(template), &addresses, "");
            }
            continue;
        }
        let pattern = Regex::new(&template.interface_pattern).map_err(|error| wrong(error.to_string()))?;
        for interface in node.interfaces.iter().filter(|interface| pattern.is_match(&interface.name)) {
            let mut addresses = addresses.clone();
            for text in &interface.addresses {
                if let Ok(network) = IpOrCidr::new(text.as_str()).parse() {
                    push_new(&mut addresses, network.address());
                }
            }
            let name = name(&[&node.name, &template.generate_name, &interface.name]);
            add(name, Some(template), &addresses, &interface.name);
        }
    }
    Ok(endpoints)
}

fn networks(template: &Template) -> Result<Vec<IpNet>, String> {
    template.interface_cidrs.iter().map(|cidr| cidr.parse().map(|network| network.masked())).collect()
}

fn endpoint(
    name: &str,
    node: &NodeFacts,
    template: Option<&Template>,
    addresses: &[IpAddr],
    interface: &str,
) -> HostEndpoint {
    let spec = HostEndpointSpec {
        node: node.name.clone(),
        interface_name: interface.to_owned(),
        expected_ips: addresses.iter().map(|address| address.to_string().into()).collect(),
        profiles: vec![DEFAULT_ALLOW_PROFILE.to_owned()],
        ..HostEndpointSpec::default()
    };
    let mut endpoint = Object::new("", name, spec);
    let labels = &mut endpoint.metadata.labels;
    labels.clone_from(&node.labels);
    if let Some(template) = template {
        labels.extend(template.labels.clone());
        endpoint.metadata.annotations.clone_from(&template.annotations);
    }
    endpoint.metadata.labels.insert(CREATED_BY.to_owned(), CREATED_BY_US.to_owned());
    endpoint
}

/// The name of an endpoint; if it would be too long, it is hashed.
fn name(parts: &[&str]) -> String {
    let name = format!("{}-{SUFFIX}", parts.join("-"));
    if name.len() <= LONGEST_NAME {
        return name;
    }
    let hash = URL_SAFE_NO_PAD.encode(Sha256::digest(name.as_bytes()));
    let hash: String = hash.chars().filter(|character| !matches!(character, '-' | '_' | '.')).collect();
    format!("{}-{SUFFIX}", hash.to_ascii_lowercase())
}

/// Whether this endpoint is ours.
#[must_use]
pub(crate) fn is_ours(endpoint: &HostEndpoint) -> bool {
    endpoint.metadata.labels.get(CREATED_BY).map(String::as_str) == Some(CREATED_BY_US)
}

/// Whether an endpoint of ours has the desired contents.
#[must_use]
pub(crate) fn is_same(actual: &HostEndpoint, desired: &HostEndpoint) -> bool {
    actual.metadata.labels == desired.metadata.labels
        && actual.metadata.annotations == desired.metadata.annotations
        && actual.spec.expected_ips == desired.spec.expected_ips
        && actual.spec.interface_name == desired.spec.interface_name
}

/// A step for the endpoints of a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// The endpoint is missing: create it.
    Create(HostEndpoint),
    /// The endpoint is wrong: store this, which has its identity and revision.
    Update(HostEndpoint),
    /// The endpoint should not exist: delete it.
    Delete(HostEndpoint),
}

/// The steps from the existing endpoints (ours, of this node) to the desired ones. Deletions come first, because a new
/// endpoint may claim the interface of an old one.
#[must_use]
pub(crate) fn steps(
    desired: BTreeMap<String, HostEndpoint>,
    actual: &BTreeMap<String, HostEndpoint>,
) -> Vec<Step> {
    let mut steps: Vec<Step> = actual
        .iter()
        .filter(|(name, _)| !desired.contains_key(*name))
        .map(|(_, endpoint)| Step::Delete(endpoint.clone()))
        .collect();
    for (name, mut wanted) in desired {
        match actual.get(&name) {
            None => steps.push(Step::Create(wanted)),
            Some(actual) if is_same(actual, &wanted) => {}
            Some(actual) => {
                wanted.metadata.uid.clone_from(&actual.metadata.uid);
                wanted.metadata.resource_version.clone_from(&actual.metadata.resource_version);
                wanted.metadata.creation_timestamp.clone_from(&actual.metadata.creation_timestamp);
                steps.push(Step::Update(wanted));
            }
        }
    }
    steps
}

#[cfg(test)]
mod tests;
