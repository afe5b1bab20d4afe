//! The VXLAN devices of all nodes. A device is known when both its own address and its node's are known. Its hardware
//! address is derived from the node's name, unless the node chose one.

use super::node_addresses::bgp;
use crate::sequencer::Sequencer;
use messages::{NodeName, VxlanTunnelEndpoint};
use model::IpVersion;
use model::feed::Node;
use sha1::{Digest, Sha1};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What is known about a node.
#[derive(Debug, Default)]
struct NodeDevices {
    node_ipv4: Option<Ipv4Addr>,
    node_ipv6: Option<Ipv6Addr>,
    tunnel_ipv4: Option<Ipv4Addr>,
    tunnel_ipv6: Option<Ipv6Addr>,
    mac: String,
    mac_v6: String,
    sent: Option<Box<VxlanTunnelEndpoint>>,
}

/// The VXLAN devices of all nodes.
#[derive(Debug, Default)]
pub(crate) struct Vteps {
    nodes: BTreeMap<NodeName, NodeDevices>,
}

impl Vteps {
    /// Adds, changes or removes a node.
    pub(crate) fn on_node(&mut self, name: &NodeName, node: Option<&Node>, out: &mut Sequencer) {
        let address = |version| Some(bgp(&node?.addresses, version)?.network.address());
        self.change(name, out, |devices| {
            devices.node_ipv4 = address(IpVersion::V4).and_then(|address| match address {
                IpAddr::V4(address) => Some(address),
                IpAddr::V6(_) => None,
            });
            devices.node_ipv6 = address(IpVersion::V6).and_then(|address| match address {
                IpAddr::V6(address) => Some(address),
                IpAddr::V4(_) => None,
            });
        });
    }

    /// Changes or removes one setting of a host. Settings that do not concern VXLAN devices are ignored. The feed only
    /// has addresses that can be read.
    pub(crate) fn on_host_config(
        &mut self,
        host: &NodeName,
        setting: &str,
        value: Option<&str>,
        out: &mut Sequencer,
    ) {
        match setting {
            "IPv4VXLANTunnelAddr" => {
                let address = value.and_then(|value| value.parse().ok());
                self.change(host, out, |devices| devices.tunnel_ipv4 = address);
            }
            "IPv6VXLANTunnelAddr" => {
                let address = value.and_then(|value| value.parse().ok());
                self.change(host, out, |devices| devices.tunnel_ipv6 = address);
            }
            "VXLANTunnelMACAddr" => {
                self.change(host, out, |devices| devices.mac = value.unwrap_or_default().to_owned());
            }
            "VXLANTunnelMACAddrV6" => {
                self.change(host, out, |devices| devices.mac_v6 = value.unwrap_or_default().to_owned());
            }
            _ => {}
        }
    }

    fn change(&mut self, name: &NodeName, out: &mut Sequencer, change: impl FnOnce(&mut NodeDevices)) {
        let devices = self.nodes.entry(name.clone()).or_default();
        change(devices);
        let now = devices.endpoint(name);
        if now.as_ref() != devices.sent.as_deref() {
            match &now {
                Some(endpoint) => out.vtep_update(name.clone(), endpoint.clone()),
                None => out.vtep_remove(name),
            }
            devices.sent = now.map(Box::new);
        }
        if devices.is_empty() {
            self.nodes.remove(name);
        }
    }
}

impl NodeDevices {
    fn is_empty(&self) -> bool {
        self.node_ipv4.is_none()
            && self.node_ipv6.is_none()
            && self.tunnel_ipv4.is_none()
            && self.tunnel_ipv6.is_none()
            && self.mac.is_empty()
            && self.mac_v6.is_empty()
    }

    fn endpoint(&self, name: &str) -> Option<VxlanTunnelEndpoint> {
        let v4 = self.node_ipv4.zip(self.tunnel_ipv4);
        let v6 = self.node_ipv6.zip(self.tunnel_ipv6);
        if v4.is_none() && v6.is_none() {
            return None;
        }
        let mut endpoint = VxlanTunnelEndpoint::default();
        if let Some((node, tunnel)) = v4 {
            endpoint.parent_device_ipv4 = Some(node);
            endpoint.ipv4 = Some(tunnel);
            endpoint.mac = chosen_or_made(&self.mac, name, "");
        }
        if let Some((node, tunnel)) = v6 {
            endpoint.parent_device_ipv6 = Some(node);
            endpoint.ipv6 = Some(tunnel);
            endpoint.mac_v6 = chosen_or_made(&self.mac_v6, name, "-v6");
        }
        Some(endpoint)
    }
}

/// The hardware address that the node chose, or the one derived from its name.
fn chosen_or_made(chosen: &str, name: &str, suffix: &str) -> String {
    if !chosen.is_empty() {
        return chosen.to_owned();
    }
    let digest = Sha1::new().chain_update(name).chain_update(suffix).finalize();
    // In 0x66, the bit of locally administered addresses is set and that of groups is clear.
    let mut text = String::from("66");
    for byte in &digest[..5] {
        let _ = write!(text, ":{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::fixtures::{NodeText, flushed};
    use messages::ToDataplane;

    #[test]
    fn hardware_addresses_follow_from_names() {
        for (name, expected) in [
            ("node1", "66:f9:37:c3:7e:94"),
            ("remotehostname", "66:3e:ca:a4:db:65"),
            ("localhostname", "66:48:f6:56:dc:f1"),
        ] {
            assert_eq!(chosen_or_made("", name, ""), expected);
        }
        assert_ne!(chosen_or_made("", "node1", "-v6"), chosen_or_made("", "node1", ""));
        assert_eq!(chosen_or_made("", "node1", "-v6"), chosen_or_made("", "node1-v6", ""));
        assert_eq!(chosen_or_made("00:11:22:33:44:55", "node1", ""), "00:11:22:33:44:55");
    }

    #[test]
    fn a_device_needs_both_addresses_in_any_order() {
        let node = NodeText { ipv4: "10.0.0.1/24", ipv6: "fd00::1/64", ..NodeText::default() }.node();
        let expected = VxlanTunnelEndpoint {
            mac: "66:f9:37:c3:7e:94".into(),
            ipv4: Some(Ipv4Addr::new(10, 65, 0, 1)),
            parent_device_ipv4: Some(Ipv4Addr::new(10, 0, 0, 1)),
            ..VxlanTunnelEndpoint::default()
        };
        let update =
            |endpoint: &VxlanTunnelEndpoint| vec![ToDataplane::VtepUpdate("node1".into(), endpoint.clone())];

        let (mut vteps, mut out) = (Vteps::default(), Sequencer::default());
        vteps.on_node(&"node1".into(), Some(&node), &mut out);
        assert_eq!(flushed(&mut out), []);
        vteps.on_host_config(&"node1".into(), "IPv4VXLANTunnelAddr", Some("10.65.0.1"), &mut out);
        assert_eq!(flushed(&mut out), update(&expected));

        let (mut vteps, mut out) = (Vteps::default(), Sequencer::default());
        vteps.on_host_config(&"node1".into(), "IPv4VXLANTunnelAddr", Some("10.65.0.1"), &mut out);
        vteps.on_host_config(&"node1".into(), "LogSeverityScreen", Some("Debug"), &mut out);
        assert_eq!(flushed(&mut out), []);
        vteps.on_node(&"node1".into(), Some(&node), &mut out);
        assert_eq!(flushed(&mut out), update(&expected));
        // A repetition is not news.
        vteps.on_node(&"node1".into(), Some(&node), &mut out);
        assert_eq!(flushed(&mut out), []);
        // A chosen hardware address, the IPv6 device, and an address that cannot be read.
        vteps.on_host_config(&"node1".into(), "VXLANTunnelMACAddr", Some("00:11:22:33:44:55"), &mut out);
        vteps.on_host_config(&"node1".into(), "IPv6VXLANTunnelAddr", Some("fd01::5"), &mut out);
        let both = VxlanTunnelEndpoint {
            mac: "00:11:22:33:44:55".into(),
            mac_v6: chosen_or_made("", "node1", "-v6"),
            ipv6: "fd01::5".parse().ok(),
            parent_device_ipv6: "fd00::1".parse().ok(),
            ..expected.clone()
        };
        assert_eq!(flushed(&mut out), update(&both));
        vteps.on_host_config(&"node1".into(), "IPv6VXLANTunnelAddr", Some("nonsense"), &mut out);
        vteps.on_host_config(&"node1".into(), "VXLANTunnelMACAddr", None, &mut out);
        assert_eq!(flushed(&mut out), update(&expected));
        vteps.on_host_config(&"node1".into(), "IPv4VXLANTunnelAddr", None, &mut out);
        assert_eq!(flushed(&mut out), [ToDataplane::VtepRemove("node1".into())]);
        vteps.on_node(&"node1".into(), None, &mut out);
        assert_eq!(flushed(&mut out), []);
        assert!(vteps.nodes.is_empty(), "nothing is kept of a node that is gone");
    }

    #[test]
    fn addresses_outside_the_bgp_part_make_no_device() {
        let node = NodeText { internal: "10.0.0.1", ..NodeText::default() }.node();
        let (mut vteps, mut out) = (Vteps::default(), Sequencer::default());
        vteps.on_host_config(&"node1".into(), "IPv4VXLANTunnelAddr", Some("10.65.0.1"), &mut out);
        vteps.on_node(&"node1".into(), Some(&node), &mut out);
        assert_eq!(flushed(&mut out), []);
    }
}
