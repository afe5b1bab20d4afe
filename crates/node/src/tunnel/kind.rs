//! The five tunnel devices.

use api::scalars::Ip;
use api::{Node, NodeBGPSpec, NodeWireguardSpec};
use model::{HandleId, IpVersion};
use std::collections::BTreeMap;
use std::fmt;

/// A tunnel device that needs an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TunnelKind {
    /// WireGuard over IPv4.
    Wireguard,
    /// WireGuard over IPv6.
    WireguardV6,
    /// IPIP.
    Ipip,
    /// VXLAN over IPv4.
    Vxlan,
    /// VXLAN over IPv6.
    VxlanV6,
}

impl TunnelKind {
    /// All devices, in the order in which they are processed.
    pub const ALL: [Self; 5] = [Self::Wireguard, Self::WireguardV6, Self::Ipip, Self::Vxlan, Self::VxlanV6];

    /// The family of the device's address.
    #[must_use]
    pub fn family(self) -> IpVersion {
        match self {
            Self::Wireguard | Self::Ipip | Self::Vxlan => IpVersion::V4,
            Self::WireguardV6 | Self::VxlanV6 => IpVersion::V6,
        }
    }

    /// The type of the address in the attributes of its allocation.
    #[must_use]
    pub fn attribute(self) -> &'static str {
        match self {
            Self::Wireguard => "wireguardTunnelAddress",
            Self::WireguardV6 => "wireguardV6TunnelAddress",
            Self::Ipip => "ipipTunnelAddress",
            Self::Vxlan => "vxlanTunnelAddress",
            Self::VxlanV6 => "vxlanV6TunnelAddress",
        }
    }

    /// The handle of the allocation.
    #[must_use]
    pub fn handle(self, node: &str) -> HandleId {
        let prefix = match self {
            Self::Wireguard => "wireguard",
            Self::WireguardV6 => "wireguard-v6",
            Self::Ipip => "ipip",
            Self::Vxlan => "vxlan",
            Self::VxlanV6 => "vxlan-v6",
        };
        format!("{prefix}-tunnel-addr-{node}").into()
    }

    /// The attributes of the allocation.
    #[must_use]
    pub fn attributes(self, node: &str) -> BTreeMap<String, String> {
        BTreeMap::from([
            (NODE_ATTRIBUTE.to_owned(), node.to_owned()),
            (TYPE_ATTRIBUTE.to_owned(), self.attribute().to_owned()),
        ])
    }

    /// The device's address in the node's resource; empty if it has none.
    #[must_use]
    pub fn address(self, node: &Node) -> Ip {
        let spec = &node.spec;
        let bgp = spec.bgp.as_ref();
        let wireguard = spec.wireguard.as_ref();
        let address = match self {
            Self::Wireguard => wireguard.map(|wireguard| &wireguard.interface_ipv4_address),
            Self::WireguardV6 => wireguard.map(|wireguard| &wireguard.interface_ipv6_address),
            Self::Ipip => bgp.map(|bgp| &bgp.ipv4_ipip_tunnel_addr),
            Self::Vxlan => Some(&spec.ipv4_vxlan_tunnel_addr),
            Self::VxlanV6 => Some(&spec.ipv6_vxlan_tunnel_addr),
        };
        address.cloned().unwrap_or_default()
    }

    /// Writes the address into the node's resource. Parts that become empty are removed, because empty ones are
    /// invalid.
    pub fn set_address(self, node: &mut Node, address: Ip) {
        let spec = &mut node.spec;
        match self {
            Self::Vxlan => spec.ipv4_vxlan_tunnel_addr = address,
            Self::VxlanV6 => spec.ipv6_vxlan_tunnel_addr = address,
            Self::Ipip => {
                let mut bgp = spec.bgp.take().unwrap_or_default();
                bgp.ipv4_ipip_tunnel_addr = address;
                spec.bgp = Some(bgp).filter(|bgp| *bgp != NodeBGPSpec::default());
            }
            Self::Wireguard | Self::WireguardV6 => {
                let mut wireguard = spec.wireguard.take().unwrap_or_default();
                if self == Self::Wireguard {
                    wireguard.interface_ipv4_address = address;
                } else {
                    wireguard.interface_ipv6_address = address;
                }
                spec.wireguard = Some(wireguard).filter(|part| *part != NodeWireguardSpec::default());
            }
        }
    }
}

/// The attribute with the node's name.
pub(crate) const NODE_ATTRIBUTE: &str = "node";
/// The attribute with the type of an address.
pub(crate) const TYPE_ATTRIBUTE: &str = "type";

impl fmt::Display for TunnelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.attribute())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::node_with;

    #[test]
    fn addresses_are_set_and_removed_without_a_trace() {
        for kind in TunnelKind::ALL {
            let mut node = node_with("", "");
            let before = node.clone();
            let address = Ip::from(if kind.family() == IpVersion::V4 { "10.0.0.1" } else { "fd00::1" });
            kind.set_address(&mut node, address.clone());
            assert_eq!(kind.address(&node), address, "{kind}");
            for other in TunnelKind::ALL.into_iter().filter(|other| *other != kind) {
                assert!(other.address(&node).is_empty(), "{kind} and {other}");
            }
            kind.set_address(&mut node, Ip::default());
            assert_eq!(node, before, "{kind}");
        }
    }

    #[test]
    fn handles_and_attributes_have_calicos_names() {
        let names: Vec<String> = TunnelKind::ALL.iter().map(|kind| kind.handle("n").to_string()).collect();
        assert_eq!(
            names,
            [
                "wireguard-tunnel-addr-n",
                "wireguard-v6-tunnel-addr-n",
                "ipip-tunnel-addr-n",
                "vxlan-tunnel-addr-n",
                "vxlan-v6-tunnel-addr-n"
            ]
        );
    }
}
