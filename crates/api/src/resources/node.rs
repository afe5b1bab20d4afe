//! `Node`: a machine that runs Calico, with its addresses and tunnel endpoints.

use crate::errors::{FieldErrors, FieldPath};
use crate::kind::Kind;
use crate::meta::ObjectMeta;
use crate::object::{Object, Spec, StatusPart};
use crate::scalars::names::check_metadata;
use crate::scalars::{ASNumber, Cidr, Ip, IpOrCidr, MacAddr};
use api_derive::resource_struct;

/// A machine.
pub type Node = Object<NodeSpec>;

/// Addresses and settings of a machine.
#[resource_struct]
pub struct NodeSpec {
    /// BGP settings; absent for a node that takes no part in BGP.
    pub bgp: Option<NodeBGPSpec>,
    /// The IPv4 address of the VXLAN device.
    #[field(name = "ipv4VXLANTunnelAddr")]
    pub ipv4_vxlan_tunnel_addr: Ip,
    /// The MAC address of the VXLAN device.
    #[field(name = "vxlanTunnelMACAddr")]
    pub vxlan_tunnel_mac_addr: MacAddr,
    /// The IPv6 address of the VXLAN device.
    #[field(name = "ipv6VXLANTunnelAddr")]
    pub ipv6_vxlan_tunnel_addr: Ip,
    /// The MAC address of the IPv6 VXLAN device.
    #[field(name = "vxlanTunnelMACAddrV6")]
    pub vxlan_tunnel_mac_addr_v6: MacAddr,
    /// What orchestrators call this node.
    pub orch_refs: Vec<OrchRef>,
    /// Addresses of the WireGuard devices.
    pub wireguard: Option<NodeWireguardSpec>,
    /// Addresses at which the node can be reached.
    pub addresses: Vec<NodeAddress>,
    /// Interfaces of the node.
    pub interfaces: Vec<NodeInterface>,
}

/// One address of a node.
#[resource_struct]
pub struct NodeAddress {
    /// The address, with or without its prefix length.
    #[field(always)]
    pub address: IpOrCidr,
    /// `CalicoNodeIP`, `InternalIP` or `ExternalIP`.
    #[field(name = "type")]
    pub address_type: String,
}

/// The address that Calico itself uses.
pub const CALICO_NODE_IP: &str = "CalicoNodeIP";
/// An address inside the cluster, from Kubernetes.
pub const INTERNAL_IP: &str = "InternalIP";
/// An address seen from outside, from Kubernetes.
pub const EXTERNAL_IP: &str = "ExternalIP";

/// One interface of a node.
#[resource_struct]
pub struct NodeInterface {
    /// Its name.
    pub name: String,
    /// Its addresses.
    pub addresses: Vec<String>,
}

/// What a node reports about itself.
#[resource_struct]
pub struct NodeStatus {
    /// The public key of the WireGuard device, in base64.
    pub wireguard_public_key: String,
    /// The public key of the IPv6 WireGuard device, in base64.
    pub wireguard_public_key_v6: String,
    /// The ranges that Kubernetes gave the node.
    #[field(name = "podCIDRs")]
    pub pod_cidrs: Vec<Cidr>,
}

// Calico always writes a node's status, even an empty one.
impl StatusPart for NodeStatus {}

/// What an orchestrator calls a node.
#[resource_struct]
pub struct OrchRef {
    /// The node's name there.
    pub node_name: String,
    /// The orchestrator.
    #[field(always)]
    pub orchestrator: String,
}

/// BGP settings of a node.
#[resource_struct]
pub struct NodeBGPSpec {
    /// The node's AS number; the cluster's unless set.
    pub as_number: Option<ASNumber>,
    /// The node's IPv4 address and network.
    pub ipv4_address: IpOrCidr,
    /// The node's IPv6 address and network.
    pub ipv6_address: IpOrCidr,
    /// The address of the IPIP device.
    #[field(name = "ipv4IPIPTunnelAddr")]
    pub ipv4_ipip_tunnel_addr: Ip,
    /// Makes the node a route reflector of this cluster.
    #[field(name = "routeReflectorClusterID")]
    pub route_reflector_cluster_id: Ip,
}

/// Addresses of a node's WireGuard devices.
#[resource_struct]
pub struct NodeWireguardSpec {
    /// The IPv4 address.
    #[field(name = "interfaceIPv4Address")]
    pub interface_ipv4_address: Ip,
    /// The IPv6 address.
    #[field(name = "interfaceIPv6Address")]
    pub interface_ipv6_address: Ip,
}

impl Spec for NodeSpec {
    const KIND: Kind = Kind::Node;
    type Status = NodeStatus;

    // Lists of addresses and interfaces are reported by the node's own agent; Calico does not check them either.
    fn validate(&self, metadata: &ObjectMeta, errors: &mut FieldErrors) {
        check_metadata(metadata, errors);
        let spec = FieldPath::new("spec");
        if let Some(bgp) = &self.bgp {
            bgp.validate(&spec.child("bgp"), errors);
        }
        check_ip(&self.ipv4_vxlan_tunnel_addr, 4, spec.child("ipv4VXLANTunnelAddr"), errors);
        check_mac(&self.vxlan_tunnel_mac_addr, spec.child("vxlanTunnelMACAddr"), errors);
        check_ip(&self.ipv6_vxlan_tunnel_addr, 6, spec.child("ipv6VXLANTunnelAddr"), errors);
        check_mac(&self.vxlan_tunnel_mac_addr_v6, spec.child("vxlanTunnelMACAddrV6"), errors);
        if let Some(wireguard) = &self.wireguard {
            let path = spec.child("wireguard");
            check_ip(&wireguard.interface_ipv4_address, 4, path.child("interfaceIPv4Address"), errors);
            check_ip(&wireguard.interface_ipv6_address, 6, path.child("interfaceIPv6Address"), errors);
        }
    }

    fn validate_status(status: &NodeStatus, errors: &mut FieldErrors) {
        let path = FieldPath::new("status");
        check_key(&status.wireguard_public_key, path.child("wireguardPublicKey"), errors);
        check_key(&status.wireguard_public_key_v6, path.child("wireguardPublicKeyV6"), errors);
    }
}

impl NodeBGPSpec {
    fn validate(&self, path: &FieldPath, errors: &mut FieldErrors) {
        errors.require(
            *self != Self::default(),
            path.clone(),
            "",
            "must not be empty: leave bgp out instead",
        );
        check_network(&self.ipv4_address, 4, path.child("ipv4Address"), errors);
        check_network(&self.ipv6_address, 6, path.child("ipv6Address"), errors);
        check_ip(&self.ipv4_ipip_tunnel_addr, 4, path.child("ipv4IPIPTunnelAddr"), errors);
        check_ip(&self.route_reflector_cluster_id, 4, path.child("routeReflectorClusterID"), errors);
    }
}

/// Adds an error unless the text is empty or an address of this IP version.
pub(super) fn check_ip(ip: &Ip, version: u8, path: FieldPath, errors: &mut FieldErrors) {
    if ip.is_empty() {
        return;
    }
    match ip.parse() {
        Ok(parsed) => errors.require(
            parsed.is_ipv4() == (version == 4),
            path,
            ip,
            format!("must be an IPv{version} address"),
        ),
        Err(reason) => errors.add(path, ip, reason),
    }
}

fn check_network(network: &IpOrCidr, version: u8, path: FieldPath, errors: &mut FieldErrors) {
    if network.is_empty() {
        return;
    }
    match network.parse() {
        Ok(parsed) => errors.require(
            parsed.ip_version() == version,
            path,
            network,
            format!("must be an IPv{version} address or CIDR"),
        ),
        Err(reason) => errors.add(path, network, reason),
    }
}

/// Adds an error unless the text is empty or a MAC address.
pub(super) fn check_mac(mac: &MacAddr, path: FieldPath, errors: &mut FieldErrors) {
    if !mac.is_empty()
        && let Err(reason) = mac.parse()
    {
        errors.add(path, mac, reason);
    }
}

/// A WireGuard key is 32 bytes in base64: 43 digits and one `=`.
fn check_key(key: &str, path: FieldPath, errors: &mut FieldErrors) {
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    let is_key = match key.as_bytes() {
        [digits @ .., b'='] => digits.len() == 43 && digits.iter().all(|&byte| is_digit(byte)),
        text => text.is_empty(),
    };
    errors.require(is_key, path, key, "must be a WireGuard public key: 32 bytes in base64");
}
