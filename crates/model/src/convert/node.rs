//! Nodes: the settings that Felix and BGP read one by one.

use super::Faults;
use crate::feed::Wireguard;
use crate::value::AllocationBlock;
use api::Node;
use api::scalars::{Cidr, Ip};
use ipnet::IpNet;
use std::net::IpAddr;

/// The settings of a host that come from its Node, by the names that Felix gives them.
pub const HOST_SETTINGS: [&str; 5] = [
    "IpInIpTunnelAddr",
    "IPv4VXLANTunnelAddr",
    "VXLANTunnelMACAddr",
    "IPv6VXLANTunnelAddr",
    "VXLANTunnelMACAddrV6",
];

/// One setting that comes from a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// It has this value.
    Is(String),
    /// It is not set.
    Unset,
    /// It is set to something that cannot be read; the reason is among the faults.
    Unreadable,
}

/// The values of [`HOST_SETTINGS`], in that order.
#[must_use]
pub fn host_settings(node: &Node, faults: &mut Faults) -> [Setting; 5] {
    let spec = &node.spec;
    let text = |text: &str| if text.is_empty() { Setting::Unset } else { Setting::Is(text.to_owned()) };
    let no_ip = Ip::default();
    let ipip = spec.bgp.as_ref().map_or(&no_ip, |bgp| &bgp.ipv4_ipip_tunnel_addr);
    [
        address("spec.bgp.ipv4IPIPTunnelAddr", ipip, faults),
        address("spec.ipv4VXLANTunnelAddr", &spec.ipv4_vxlan_tunnel_addr, faults),
        text(spec.vxlan_tunnel_mac_addr.as_str()),
        address("spec.ipv6VXLANTunnelAddr", &spec.ipv6_vxlan_tunnel_addr, faults),
        text(spec.vxlan_tunnel_mac_addr_v6.as_str()),
    ]
}

fn address(place: &str, ip: &Ip, faults: &mut Faults) -> Setting {
    if ip.is_empty() {
        return Setting::Unset;
    }
    match ip.parse() {
        Ok(ip) => Setting::Is(ip.to_string()),
        Err(reason) => {
            faults.add(place, reason);
            Setting::Unreadable
        }
    }
}

/// The node's WireGuard keys and addresses; none when it has neither.
#[must_use]
pub fn wireguard(node: &Node, faults: &mut Faults) -> Option<Wireguard> {
    let mut interface = |field: &str, ip: Option<&Ip>| -> Option<IpAddr> {
        let ip = ip.filter(|ip| !ip.is_empty())?;
        ip.parse().map_err(|reason| faults.add(format!("spec.wireguard.{field}"), reason)).ok()
    };
    let spec = node.spec.wireguard.as_ref();
    let wireguard = Wireguard {
        interface_ipv4: interface("interfaceIPv4Address", spec.map(|spec| &spec.interface_ipv4_address)),
        interface_ipv6: interface("interfaceIPv6Address", spec.map(|spec| &spec.interface_ipv6_address)),
        public_key: node.status.wireguard_public_key.clone(),
        public_key_v6: node.status.wireguard_public_key_v6.clone(),
    };
    (wireguard != Wireguard::default()).then_some(wireguard)
}

/// The ranges that Kubernetes gave the node.
#[must_use]
pub fn pod_ranges(node: &Node, faults: &mut Faults) -> Vec<IpNet> {
    let mut ranges = Vec::with_capacity(node.status.pod_cidrs.len());
    for (index, cidr) in node.status.pod_cidrs.iter().enumerate() {
        match Cidr::parse(cidr) {
            Ok(network) => ranges.push(network.masked()),
            Err(reason) => faults.add(format!("status.podCIDRs[{index}]"), reason),
        }
    }
    ranges
}

/// The block that stands for a range of the node, where addresses are not Calico's to manage.
#[must_use]
pub fn pod_range_block(node: &str, cidr: IpNet) -> AllocationBlock {
    AllocationBlock {
        cidr,
        affinity: Some(format!("host:{node}")),
        affinity_claim_time: None,
        allocations: Vec::new(),
        unallocated: Vec::new(),
        attributes: Vec::new(),
        sequence_number: 0,
        sequence_number_for_allocation: std::collections::BTreeMap::new(),
        deleted: false,
        host_affinity: None,
        extra: api::codec::Extra::new(),
    }
}
