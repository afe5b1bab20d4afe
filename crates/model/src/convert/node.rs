//! Nodes: the settings that Felix and BGP read individually, and the node itself with its addresses.

use super::Faults;
use crate::feed::{self, BgpAddress, BgpAddresses, ListedAddress, NodeAddresses, Wireguard};
use crate::key::IpVersion;
use crate::value::AllocationBlock;
use api::Node;
use api::scalars::{Cidr, Ip, IpOrCidr};
use ipnet::IpNet;
use std::net::IpAddr;

/// The settings of a host that come from its Node, by Felix's names.
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
    /// The setting has this value.
    Is(String),
    /// The setting is not set.
    Unset,
    /// The value cannot be read; the reason is among the faults.
    Unreadable,
}

/// Returns the values of [`HOST_SETTINGS`], in that order.
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

fn address(place: &str, text: &Ip, faults: &mut Faults) -> Setting {
    if text.is_empty() {
        return Setting::Unset;
    }
    ip(place, text, faults).map_or(Setting::Unreadable, |ip| Setting::Is(ip.to_string()))
}

fn ip(place: &str, text: &Ip, faults: &mut Faults) -> Option<IpAddr> {
    if text.is_empty() {
        return None;
    }
    text.parse().map_err(|reason| faults.add(place, reason)).ok()
}

/// Converts a node for other components: the object, and its addresses.
#[must_use]
pub fn node(object: Node, faults: &mut Faults) -> feed::Node {
    let addresses = addresses(&object, faults);
    feed::Node { object, addresses }
}

fn addresses(node: &Node, faults: &mut Faults) -> NodeAddresses {
    let spec = &node.spec;
    let bgp = spec.bgp.as_ref();
    let named = bgp.filter(|bgp| !bgp.ipv4_address.is_empty() || !bgp.ipv6_address.is_empty());
    let listed = spec.addresses.iter().enumerate().filter_map(|(index, entry)| {
        let unreadable = |reason| faults.add(format!("spec.addresses[{index}].address"), reason);
        let network = entry.address.parse().map_err(unreadable).ok()?;
        Some(ListedAddress { address_type: entry.address_type.clone(), network })
    });
    let listed = listed.collect();
    let [wireguard_v4, wireguard_v6] = wireguard_addresses(node, faults);
    let vxlan = [
        ip("spec.ipv4VXLANTunnelAddr", &spec.ipv4_vxlan_tunnel_addr, faults),
        ip("spec.ipv6VXLANTunnelAddr", &spec.ipv6_vxlan_tunnel_addr, faults),
    ];
    NodeAddresses {
        bgp: named.map(|bgp| BgpAddresses {
            ipv4: bgp_address("spec.bgp.ipv4Address", &bgp.ipv4_address, IpVersion::V4, faults),
            ipv6: bgp_address("spec.bgp.ipv6Address", &bgp.ipv6_address, IpVersion::V6, faults),
        }),
        listed,
        ipip: bgp.and_then(|bgp| ip("spec.bgp.ipv4IPIPTunnelAddr", &bgp.ipv4_ipip_tunnel_addr, faults)),
        vxlan: vxlan.into_iter().flatten().collect(),
        wireguard: wireguard_v4.into_iter().chain(wireguard_v6).collect(),
    }
}

fn bgp_address(place: &str, text: &IpOrCidr, version: IpVersion, faults: &mut Faults) -> Option<BgpAddress> {
    if text.is_empty() {
        return None;
    }
    match text.parse() {
        Ok(network) if network.ip_version() == version.number() => {
            Some(BgpAddress { network, has_length: text.as_str().contains('/') })
        }
        Ok(_) => {
            faults.add(place, format!("'{text}' is not an IPv{version} address"));
            None
        }
        Err(reason) => {
            faults.add(place, reason);
            None
        }
    }
}

fn wireguard_addresses(node: &Node, faults: &mut Faults) -> [Option<IpAddr>; 2] {
    let Some(spec) = &node.spec.wireguard else { return [None; 2] };
    [
        ip("spec.wireguard.interfaceIPv4Address", &spec.interface_ipv4_address, faults),
        ip("spec.wireguard.interfaceIPv6Address", &spec.interface_ipv6_address, faults),
    ]
}

/// Returns the node's WireGuard keys and addresses; `None` when it has neither.
#[must_use]
pub fn wireguard(node: &Node, faults: &mut Faults) -> Option<Wireguard> {
    let [interface_ipv4, interface_ipv6] = wireguard_addresses(node, faults);
    let wireguard = Wireguard {
        interface_ipv4,
        interface_ipv6,
        public_key: node.status.wireguard_public_key.clone(),
        public_key_v6: node.status.wireguard_public_key_v6.clone(),
    };
    (wireguard != Wireguard::default()).then_some(wireguard)
}

/// Returns the ranges that Kubernetes assigned to the node.
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

/// Returns the block that represents a range of the node, where Calico does not manage addresses.
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
