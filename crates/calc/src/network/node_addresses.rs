//! What a `Node` resource says about addresses, read once for all who need it.
//!
//! A text that is not an address counts as absent and is logged: the store may hold anything, and one bad field must not
//! take the rest of the node away.

use api::scalars::{Ip, IpOrCidr, Network};
use api::{EXTERNAL_IP, INTERNAL_IP, Node, NodeSpec};
use model::IpVersion;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses of a node that routes depend on. A node without any address of its own has none of the others either.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeAddresses {
    /// The IPv4 address with its network.
    pub(super) ipv4: Option<Network>,
    /// The IPv6 address with its network.
    pub(super) ipv6: Option<Network>,
    /// The address of the IP-in-IP device.
    pub(super) ipip: Option<IpAddr>,
    /// The addresses of the VXLAN devices.
    pub(super) vxlan: Vec<IpAddr>,
    /// The addresses of the WireGuard devices.
    pub(super) wireguard: Vec<IpAddr>,
    /// All addresses of the node itself, sorted, each once, unspecified ones left out.
    pub(super) own: Vec<IpAddr>,
}

impl NodeAddresses {
    /// Reads a node; `None` when it has no address of its own.
    pub(super) fn of(node: &Node) -> Option<Self> {
        let spec = &node.spec;
        let bgp = spec.bgp.as_ref();
        let from_bgp = bgp.filter(|bgp| !bgp.ipv4_address.is_empty() || !bgp.ipv6_address.is_empty());
        let (ipv4, ipv6) = match from_bgp {
            Some(bgp) => {
                (network(&bgp.ipv4_address, IpVersion::V4), network(&bgp.ipv6_address, IpVersion::V6))
            }
            None => (listed(spec, IpVersion::V4), listed(spec, IpVersion::V6)),
        };
        if ipv4.is_none() && ipv6.is_none() {
            return None;
        }
        let mut own: Vec<IpAddr> = ipv4.iter().chain(&ipv6).map(Network::address).collect();
        own.extend(spec.addresses.iter().filter_map(|entry| match entry.address.parse() {
            Ok(parsed) => Some(parsed.address()),
            Err(reason) => {
                tracing::warn!(address = entry.address.as_str(), "address of a node ignored: {reason}");
                None
            }
        }));
        own.retain(|address| !address.is_unspecified());
        own.sort_unstable();
        own.dedup();
        let wireguard = spec.wireguard.as_ref();
        Some(Self {
            ipv4,
            ipv6,
            ipip: bgp.and_then(|bgp| address(&bgp.ipv4_ipip_tunnel_addr)),
            vxlan: [&spec.ipv4_vxlan_tunnel_addr, &spec.ipv6_vxlan_tunnel_addr]
                .into_iter()
                .filter_map(address)
                .collect(),
            wireguard: wireguard
                .into_iter()
                .flat_map(|part| [&part.interface_ipv4_address, &part.interface_ipv6_address])
                .filter_map(address)
                .collect(),
            own,
        })
    }

    /// The node's own address of this IP version.
    pub(super) fn address(&self, version: IpVersion) -> Option<IpAddr> {
        self.network(version).map(Network::address).filter(|address| !address.is_unspecified())
    }

    /// The node's own address of this IP version, with its network.
    pub(super) fn network(&self, version: IpVersion) -> Option<&Network> {
        match version {
            IpVersion::V4 => self.ipv4.as_ref(),
            IpVersion::V6 => self.ipv6.as_ref(),
        }
    }
}

/// The address of this IP version that VXLAN and the host's metadata read from the BGP part of a node: no fall-back.
pub(super) fn bgp_ipv4(spec: &NodeSpec) -> Option<Ipv4Addr> {
    match network(&spec.bgp.as_ref()?.ipv4_address, IpVersion::V4)?.address() {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

/// As [`bgp_ipv4`], for IPv6.
pub(super) fn bgp_ipv6(spec: &NodeSpec) -> Option<Ipv6Addr> {
    match network(&spec.bgp.as_ref()?.ipv6_address, IpVersion::V6)?.address() {
        IpAddr::V6(address) => Some(address),
        IpAddr::V4(_) => None,
    }
}

/// The first address of this IP version in the node's list: an internal one, otherwise an external one.
pub(super) fn listed(spec: &NodeSpec, version: IpVersion) -> Option<Network> {
    let of_type = |wanted: &str| {
        spec.addresses.iter().filter(|entry| entry.address_type == wanted).find_map(|entry| {
            entry.address.parse().ok().filter(|parsed| parsed.ip_version() == version.number())
        })
    };
    of_type(INTERNAL_IP).or_else(|| of_type(EXTERNAL_IP))
}

/// The network in a text, when it is of this IP version.
fn network(text: &IpOrCidr, version: IpVersion) -> Option<Network> {
    if text.is_empty() {
        return None;
    }
    match text.parse() {
        Ok(parsed) if parsed.ip_version() == version.number() => Some(parsed),
        Ok(_) => {
            tracing::warn!(address = text.as_str(), "address of a node ignored: not of IPv{version}");
            None
        }
        Err(reason) => {
            tracing::warn!(address = text.as_str(), "address of a node ignored: {reason}");
            None
        }
    }
}

fn address(text: &Ip) -> Option<IpAddr> {
    if text.is_empty() {
        return None;
    }
    match text.parse() {
        Ok(parsed) => Some(parsed),
        Err(reason) => {
            tracing::warn!(address = text.as_str(), "tunnel address of a node ignored: {reason}");
            None
        }
    }
}
