//! The nat table: jumps to the chains that change, OpenStack's metadata service, and the host's packets into tunnels.

use crate::names;
use crate::renderer::{Renderer, UDP, interface, jump, local, one_port, protocol, protocol_number};
use crate::tree::{
    Action, Chain, End, InterfaceName, InterfacePattern, IpVersion, Match, Protocol, Rule, Side,
};
use ipnet::{IpNet, Ipv4Net};
use std::net::{IpAddr, Ipv4Addr};

/// The device of IP in IP.
pub const IPIP_INTERFACE: &str = "tunl0";
/// The device of VXLAN.
pub const VXLAN_INTERFACE: &str = "vxlan.calico";
/// The device of VXLAN between IPv6 hosts.
pub const VXLAN_INTERFACE_V6: &str = "vxlan-v6.calico";

/// The address at which virtual machines look for their metadata.
const METADATA_ADDRESS: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

impl Renderer {
    pub(super) fn fixed_nat_chains(&self, version: IpVersion) -> Vec<Chain> {
        vec![
            self.nat_prerouting(version),
            self.nat_postrouting(version),
            Chain::new(names::OUTPUT, vec![Rule::always(jump(names::FIP_DNAT))]),
        ]
    }

    fn nat_prerouting(&self, version: IpVersion) -> Chain {
        let mut rules = vec![Rule::always(jump(names::FIP_DNAT))];
        let metadata = self.config.openstack.and_then(|openstack| openstack.metadata);
        if let (IpVersion::V4, Some((address @ IpAddr::V4(_), port))) = (version, metadata) {
            rules.push(Rule::when(
                [
                    protocol(Protocol::TCP),
                    one_port(End::Destination, 80),
                    Match::Net {
                        end: End::Destination,
                        net: IpNet::V4(Ipv4Net::from(METADATA_ADDRESS)),
                        negated: false,
                    },
                ],
                Action::Dnat { address, port: (port != 0).then_some(port) },
            ));
        }
        Chain::new(names::PREROUTING, rules)
    }

    fn nat_postrouting(&self, version: IpVersion) -> Chain {
        let mut rules = vec![Rule::always(jump(names::FIP_SNAT)), Rule::always(jump(names::NAT_OUTGOING))];
        let random_fully = self.config.features.masquerade_random_fully;
        // An answer to the port of VXLAN would look like a VXLAN packet from an unknown host, and be dropped.
        let udp_ports = self.vxlan(version).then(|| ports_without(self.config.vxlan_port)).flatten();
        for tunnel in self.tunnel_interfaces(version) {
            // A packet of the host into a tunnel whose source is an address of the host, but not the tunnel's: bound to
            // the wrong address, or routed again after its destination was translated.
            let matches = [
                interface(Side::Out, InterfacePattern::exact(tunnel)),
                Match::LocalAddress { end: End::Source, limit_interface_out: true, negated: true },
                local(End::Source),
            ];
            if udp_ports.is_some() {
                let udp: Vec<_> = [protocol_number(UDP)].into_iter().chain(matches.clone()).collect();
                rules.push(Rule::when(udp, Action::Masquerade { ports: udp_ports, random_fully }));
            }
            rules.push(Rule::when(matches, Action::Masquerade { ports: None, random_fully }));
        }
        Chain::new(names::POSTROUTING, rules)
    }

    fn tunnel_interfaces(&self, version: IpVersion) -> Vec<InterfaceName> {
        let config = &self.config;
        let candidates: [(bool, InterfaceName); 3] = match version {
            IpVersion::V4 => [
                (config.ipip_enabled && config.ipip_tunnel_address.is_some(), IPIP_INTERFACE.into()),
                (config.vxlan_enabled && config.vxlan_tunnel_address.is_some(), VXLAN_INTERFACE.into()),
                (config.wireguard.enabled, config.wireguard.interface.clone()),
            ],
            IpVersion::V6 => [
                (false, IPIP_INTERFACE.into()),
                (
                    config.vxlan_enabled_v6 && config.vxlan_tunnel_address_v6.is_some(),
                    VXLAN_INTERFACE_V6.into(),
                ),
                (config.wireguard_v6.enabled, config.wireguard_v6.interface.clone()),
            ],
        };
        candidates
            .into_iter()
            .filter(|(wanted, name)| *wanted && !name.is_empty())
            .map(|(_, name)| name)
            .collect()
    }
}

/// A range without the port: the wider part beside it, from 1024 on.
fn ports_without(port: u16) -> Option<(u16, u16)> {
    const LOWEST: u16 = 1024;
    match port {
        0 => None,
        _ if port.saturating_sub(LOWEST) >= u16::MAX - port => Some((LOWEST, port - 1)),
        _ => Some((port + 1, u16::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::ports_without;

    #[test]
    fn the_wider_side() {
        for (port, expected) in [
            (0, None),
            (1, Some((2, 65535))),
            (1023, Some((1024, 65535))),
            (4789, Some((4790, 65535))),
            (33278, Some((33279, 65535))),
            (33280, Some((1024, 33279))),
            (65535, Some((1024, 65534))),
        ] {
            assert_eq!(ports_without(port), expected, "{port}");
        }
    }
}
