//! Short forms of inputs and outputs, for the tests of this module.

use crate::sequencer::Sequencer;
use api::{IPIPMode, Node, NodeAddress, NodeBGPSpec, NodeWireguardSpec, VXLANMode};
use ipnet::IpNet;
use messages::ToDataplane;
use model::convert::{self, Faults};
use model::feed::{self, IpPool};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A node in short form; empty texts are left out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeText {
    pub(crate) ipv4: &'static str,
    pub(crate) ipv6: &'static str,
    pub(crate) ipip: &'static str,
    pub(crate) vxlan: &'static str,
    pub(crate) vxlan_v6: &'static str,
    pub(crate) wireguard: &'static str,
    pub(crate) internal: &'static str,
    pub(crate) external: &'static str,
    pub(crate) empty_bgp: bool,
}

impl NodeText {
    /// Returns the node.
    pub(crate) fn node(&self) -> feed::Node {
        let mut node = Node::default();
        let bgp = NodeBGPSpec {
            ipv4_address: self.ipv4.into(),
            ipv6_address: self.ipv6.into(),
            ipv4_ipip_tunnel_addr: self.ipip.into(),
            ..NodeBGPSpec::default()
        };
        node.spec.bgp = (self.empty_bgp || bgp != NodeBGPSpec::default()).then_some(bgp);
        node.spec.ipv4_vxlan_tunnel_addr = self.vxlan.into();
        node.spec.ipv6_vxlan_tunnel_addr = self.vxlan_v6.into();
        node.spec.wireguard = (!self.wireguard.is_empty()).then(|| NodeWireguardSpec {
            interface_ipv4_address: self.wireguard.into(),
            ..NodeWireguardSpec::default()
        });
        for (kind, address) in [(api::INTERNAL_IP, self.internal), (api::EXTERNAL_IP, self.external)] {
            if !address.is_empty() {
                node.spec.addresses.push(NodeAddress {
                    address: address.into(),
                    address_type: kind.into(),
                    ..NodeAddress::default()
                });
            }
        }
        convert::node::node(node, &mut Faults::new())
    }
}

/// A pool with these modes.
pub(crate) fn pool(cidr: &str, ipip: &str, vxlan: &str) -> IpPool {
    IpPool {
        cidr: net(cidr),
        ipip_interface: String::new(),
        ipip_mode: IPIPMode::from(ipip),
        vxlan_mode: VXLANMode::from(vxlan),
        masquerade: false,
        ipam: true,
        disabled: false,
        disable_bgp_export: false,
        assigned_automatically: true,
        allowed_uses: Vec::new(),
    }
}

/// Parses a range.
pub(crate) fn net(text: &str) -> IpNet {
    text.parse().expect("a range")
}

/// Reads a resource from JSON.
pub(crate) fn from_json<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("a resource")
}

/// Flushes the sequencer and returns the messages.
pub(crate) fn flushed(sequencer: &mut Sequencer) -> Vec<ToDataplane> {
    let mut out = Vec::new();
    sequencer.flush_without_sets(&mut out);
    out
}
