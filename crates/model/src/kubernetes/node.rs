//! Node ↔ Node: Calico keeps its part of a node in annotations of the Kubernetes object.
//!
//! An annotation that does not have the expected form is ignored on reading and reported among the problems. An empty
//! field removes its annotation on writing. Only annotations are ever written.

use super::{ConversionError, Converted};
use api::kubernetes::Node as KubernetesNode;
use api::meta::StringMap;
use api::scalars::{ASNumber, Cidr, Ip, IpOrCidr, MacAddr};
use api::words::{KUBERNETES, node as names};
use api::{
    CALICO_NODE_IP, EXTERNAL_IP, INTERNAL_IP, Node, NodeAddress, NodeBGPSpec, NodeInterface, NodeSpec,
    NodeStatus, NodeWireguardSpec, ObjectMeta, OrchRef,
};
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr};

/// Returns the Calico node that a Kubernetes node and its annotations represent. With `use_pod_cidr`, tunnel addresses
/// are taken from the node's pod CIDR, whose first address host-local address management leaves free for them.
///
/// # Errors
/// When tunnel addresses must come from a pod CIDR that is not one.
pub fn calico_node(node: &KubernetesNode, use_pod_cidr: bool) -> Result<Converted, ConversionError> {
    let mut reader = Reader { annotations: &node.metadata.annotations, problems: Vec::new() };
    let mut bgp = NodeBGPSpec {
        as_number: reader.as_number(),
        ipv4_address: reader.read(names::IPV4_ADDRESS, |text| is_address(text, 4)),
        ipv6_address: reader.read(names::IPV6_ADDRESS, |text| is_address(text, 6)),
        route_reflector_cluster_id: reader
            .read(names::ROUTE_REFLECTOR_CLUSTER_ID, |text| is_network(text, 4)),
        ..NodeBGPSpec::default()
    };
    let mut wireguard = NodeWireguardSpec::default();
    if use_pod_cidr && !node.spec.pod_cidr.is_empty() {
        bgp.ipv4_ipip_tunnel_addr = first_address(&node.spec.pod_cidr)?;
        if !reader.text(names::WIREGUARD_PUBLIC_KEY).is_empty() {
            wireguard.interface_ipv4_address.clone_from(&bgp.ipv4_ipip_tunnel_addr);
        }
    } else {
        bgp.ipv4_ipip_tunnel_addr = reader.read(names::IPV4_IPIP_TUNNEL_ADDR, |text| is_network(text, 4));
        wireguard.interface_ipv4_address =
            reader.read(names::IPV4_WIREGUARD_INTERFACE_ADDR, |text| is_network(text, 4));
        wireguard.interface_ipv6_address =
            reader.read(names::IPV6_WIREGUARD_INTERFACE_ADDR, |text| is_network(text, 6));
    }
    let is_mac = |text: &str| MacAddr::from(text).parse().is_ok();
    let spec = NodeSpec {
        addresses: addresses(node, &bgp),
        bgp: (bgp != NodeBGPSpec::default()).then_some(bgp),
        ipv4_vxlan_tunnel_addr: reader.read(names::IPV4_VXLAN_TUNNEL_ADDR, |text| is_network(text, 4)),
        vxlan_tunnel_mac_addr: reader.read(names::VXLAN_TUNNEL_MAC_ADDR, is_mac),
        ipv6_vxlan_tunnel_addr: reader.read(names::IPV6_VXLAN_TUNNEL_ADDR, |text| is_network(text, 6)),
        vxlan_tunnel_mac_addr_v6: reader.read(names::VXLAN_TUNNEL_MAC_ADDR_V6, is_mac),
        orch_refs: vec![OrchRef {
            node_name: node.metadata.name.clone(),
            orchestrator: KUBERNETES.to_owned(),
            ..OrchRef::default()
        }],
        wireguard: (wireguard != NodeWireguardSpec::default()).then_some(wireguard),
        interfaces: reader.interfaces(),
        ..NodeSpec::default()
    };
    let status = NodeStatus {
        wireguard_public_key: reader.text(names::WIREGUARD_PUBLIC_KEY).to_owned(),
        wireguard_public_key_v6: reader.text(names::WIREGUARD_PUBLIC_KEY_V6).to_owned(),
        pod_cidrs: node.spec.pod_cidrs.iter().map(|cidr| cidr.as_str().into()).collect(),
        ..NodeStatus::default()
    };
    let mut metadata = ObjectMeta {
        name: node.metadata.name.clone(),
        uid: node.metadata.uid.clone(),
        creation_timestamp: node.metadata.creation_timestamp.clone(),
        labels: reader.map(names::LABELS),
        annotations: reader.map(names::ANNOTATIONS),
        ..ObjectMeta::default()
    };
    // Kubernetes' labels win. Which ones they are is recorded, so that a write removes them again.
    metadata.labels.extend(node.metadata.labels.clone());
    metadata.annotations.insert(names::KUBE_LABELS.to_owned(), json_or_null(&node.metadata.labels));
    let problems = reader.problems;
    let object = Node { metadata, spec, status, ..Node::default() };
    let mut converted = Converted::new(object, &node.metadata.resource_version);
    converted.problems = problems;
    Ok(converted)
}

/// Writes Calico's part of a node into the annotations of the Kubernetes object; other annotations stay as they are.
///
/// # Errors
/// When the bookkeeping annotation that came with the node is no longer readable: then which labels are Calico's own is
/// unknown.
pub fn write_annotations(node: &Node, annotations: &mut StringMap) -> Result<(), ConversionError> {
    let (labels, own_annotations) = without_kubernetes_labels(&node.metadata)?;
    let mut set = |name: &str, value: &dyn Display| {
        let value = value.to_string();
        if value.is_empty() {
            annotations.remove(name);
        } else {
            annotations.insert(name.to_owned(), value);
        }
    };
    let empty_bgp = NodeBGPSpec::default();
    let empty_wireguard = NodeWireguardSpec::default();
    let bgp = node.spec.bgp.as_ref().unwrap_or(&empty_bgp);
    let wireguard = node.spec.wireguard.as_ref().unwrap_or(&empty_wireguard);
    set(names::LABELS, &json_or_empty(&labels));
    set(names::ANNOTATIONS, &json_or_empty(&own_annotations));
    set(names::IPV4_VXLAN_TUNNEL_ADDR, &node.spec.ipv4_vxlan_tunnel_addr);
    set(names::VXLAN_TUNNEL_MAC_ADDR, &node.spec.vxlan_tunnel_mac_addr);
    set(names::IPV6_VXLAN_TUNNEL_ADDR, &node.spec.ipv6_vxlan_tunnel_addr);
    set(names::VXLAN_TUNNEL_MAC_ADDR_V6, &node.spec.vxlan_tunnel_mac_addr_v6);
    set(names::IPV4_ADDRESS, &bgp.ipv4_address);
    set(names::IPV6_ADDRESS, &bgp.ipv6_address);
    set(names::IPV4_IPIP_TUNNEL_ADDR, &bgp.ipv4_ipip_tunnel_addr);
    set(names::AS_NUMBER, &bgp.as_number.map(|number| number.to_string()).unwrap_or_default());
    set(names::ROUTE_REFLECTOR_CLUSTER_ID, &bgp.route_reflector_cluster_id);
    set(names::IPV4_WIREGUARD_INTERFACE_ADDR, &wireguard.interface_ipv4_address);
    set(names::IPV6_WIREGUARD_INTERFACE_ADDR, &wireguard.interface_ipv6_address);
    set(names::WIREGUARD_PUBLIC_KEY, &node.status.wireguard_public_key);
    set(names::WIREGUARD_PUBLIC_KEY_V6, &node.status.wireguard_public_key_v6);
    let interfaces = if node.spec.interfaces.is_empty() {
        String::new()
    } else {
        serde_json::to_string(&node.spec.interfaces)
            .map_err(|error| ConversionError::field("spec.interfaces", error.to_string()))?
    };
    set(names::INTERFACES, &interfaces);
    Ok(())
}

/// Calico's own labels and annotations: those of the node without what reading added.
fn without_kubernetes_labels(metadata: &ObjectMeta) -> Result<(StringMap, StringMap), ConversionError> {
    let (mut labels, mut annotations) = (metadata.labels.clone(), metadata.annotations.clone());
    if let Some(text) = metadata.annotations.get(names::KUBE_LABELS).filter(|text| !text.is_empty()) {
        let theirs = parse_map(text)
            .map_err(|reason| ConversionError::Annotation { annotation: names::KUBE_LABELS, reason })?;
        labels.retain(|label, _| !theirs.contains_key(label));
        annotations.remove(names::KUBE_LABELS);
    }
    Ok((labels, annotations))
}

/// Reads annotations and collects problems.
struct Reader<'a> {
    annotations: &'a StringMap,
    problems: Vec<String>,
}

impl<'a> Reader<'a> {
    fn text(&self, name: &str) -> &'a str {
        self.annotations.get(name).map_or("", String::as_str)
    }

    fn read<T: From<String>>(&mut self, name: &str, is_valid: impl Fn(&str) -> bool) -> T {
        let text = self.text(name);
        if text.is_empty() || is_valid(text) {
            return text.to_owned().into();
        }
        self.problems.push(format!("annotation {name} is ignored: it holds '{text}'"));
        String::new().into()
    }

    fn as_number(&mut self) -> Option<ASNumber> {
        let text = self.annotations.get(names::AS_NUMBER)?;
        match ASNumber::from_text(text) {
            Ok(number) => Some(number),
            Err(reason) => {
                self.problems.push(format!("annotation {} is ignored: {reason}", names::AS_NUMBER));
                None
            }
        }
    }

    fn map(&mut self, name: &str) -> StringMap {
        let Some(text) = self.annotations.get(name) else {
            return StringMap::new();
        };
        parse_map(text).unwrap_or_else(|reason| {
            self.problems.push(format!("annotation {name} is ignored: {reason}"));
            StringMap::new()
        })
    }

    fn interfaces(&mut self) -> Vec<NodeInterface> {
        let Some(text) = self.annotations.get(names::INTERFACES) else {
            return Vec::new();
        };
        let mut interfaces: Vec<NodeInterface> = match serde_json::from_str::<Option<_>>(text) {
            Ok(interfaces) => interfaces.unwrap_or_default(),
            Err(error) => {
                self.problems.push(format!("annotation {} is ignored: {error}", names::INTERFACES));
                return Vec::new();
            }
        };
        for interface in &mut interfaces {
            interface.addresses.retain(|address| {
                let valid = Ip::from(address.as_str()).parse().is_ok();
                if !valid {
                    self.problems
                        .push(format!("interface {}: '{address}' is not an address", interface.name));
                }
                valid
            });
        }
        interfaces
    }
}

/// Calico's own addresses come first, then those that Kubernetes reports.
fn addresses(node: &KubernetesNode, bgp: &NodeBGPSpec) -> Vec<NodeAddress> {
    let entry = |address: &str, kind: &str| NodeAddress {
        address: address.into(),
        address_type: kind.to_owned(),
        ..NodeAddress::default()
    };
    let own = [&bgp.ipv4_address, &bgp.ipv6_address].into_iter().filter(|address| !address.is_empty());
    let mut addresses: Vec<NodeAddress> =
        own.map(|address| entry(address.as_str(), CALICO_NODE_IP)).collect();
    for theirs in &node.status.addresses {
        if matches!(theirs.kind.as_str(), INTERNAL_IP | EXTERNAL_IP) {
            addresses.push(entry(&theirs.address, &theirs.kind));
        }
    }
    addresses
}

/// The address after the pod CIDR's own; empty for IPv6.
fn first_address(pod_cidr: &str) -> Result<Ip, ConversionError> {
    let network =
        Cidr::from(pod_cidr).parse().map_err(|reason| ConversionError::field("spec.podCIDR", reason))?;
    Ok(match network.address() {
        IpAddr::V4(base) => {
            let [a, b, c, d] = base.octets();
            Ip::new(Ipv4Addr::new(a, b, c, d.wrapping_add(1)).to_string())
        }
        IpAddr::V6(_) => Ip::default(),
    })
}

/// An address of this IP version, with or without a network.
fn is_address(text: &str, version: u8) -> bool {
    IpOrCidr::from(text).parse().is_ok_and(|network| network.ip_version() == version)
}

/// A network of this IP version, without host bits.
fn is_network(text: &str, version: u8) -> bool {
    IpOrCidr::from(text).parse_strict().is_ok_and(|network| network.ip_version() == version)
}

/// A JSON object of strings; like Go, this reads `null` as an empty one.
fn parse_map(text: &str) -> Result<StringMap, String> {
    serde_json::from_str::<Option<StringMap>>(text)
        .map(Option::unwrap_or_default)
        .map_err(|error| error.to_string())
}

fn json_or_empty(map: &StringMap) -> String {
    if map.is_empty() { String::new() } else { json_or_null(map) }
}

/// A map as Go writes it: sorted, and `null` for one that was never created.
fn json_or_null(map: &StringMap) -> String {
    if map.is_empty() { "null".to_owned() } else { serde_json::json!(map).to_string() }
}
