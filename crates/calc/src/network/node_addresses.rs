//! The addresses of a node that routes depend on.

use api::scalars::Network;
use api::{EXTERNAL_IP, INTERNAL_IP};
use model::IpVersion;
use model::feed::{BgpAddress, BgpAddresses, NodeAddresses};
use std::net::IpAddr;

/// The addresses of a node that routes depend on. A node without an address of its own has no others either.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RoutedAddresses {
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
    /// All addresses of the node itself, sorted, without duplicates and unspecified ones.
    pub(super) own: Vec<IpAddr>,
}

impl RoutedAddresses {
    /// Returns the addresses of a node; `None` when it has none of its own.
    pub(super) fn of(node: &NodeAddresses) -> Option<Self> {
        let network = |address: Option<BgpAddress>| address.map(|address| address.network);
        let (ipv4, ipv6) = match node.bgp {
            Some(BgpAddresses { ipv4, ipv6 }) => (network(ipv4), network(ipv6)),
            None => (listed(node, IpVersion::V4), listed(node, IpVersion::V6)),
        };
        if ipv4.is_none() && ipv6.is_none() {
            return None;
        }
        let listed = node.listed.iter().map(|entry| &entry.network);
        let mut own: Vec<IpAddr> = ipv4.iter().chain(&ipv6).chain(listed).map(Network::address).collect();
        own.retain(|address| !address.is_unspecified());
        own.sort_unstable();
        own.dedup();
        let NodeAddresses { ipip, vxlan, wireguard, .. } = node.clone();
        Some(Self { ipv4, ipv6, ipip, vxlan, wireguard, own })
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

/// The address of this IP version for BGP, if there is one; VXLAN and the host's metadata do not fall back on other
/// addresses.
pub(super) fn bgp(node: &NodeAddresses, version: IpVersion) -> Option<BgpAddress> {
    let addresses = node.bgp?;
    match version {
        IpVersion::V4 => addresses.ipv4,
        IpVersion::V6 => addresses.ipv6,
    }
}

/// The first address of this IP version in the node's list: an internal one, otherwise an external one.
pub(super) fn listed(node: &NodeAddresses, version: IpVersion) -> Option<Network> {
    let of_type = |wanted: &str| {
        let mut listed = node.listed.iter().filter(|entry| entry.address_type == wanted);
        listed.find(|entry| entry.network.ip_version() == version.number()).map(|entry| entry.network)
    };
    of_type(INTERNAL_IP).or_else(|| of_type(EXTERNAL_IP))
}
