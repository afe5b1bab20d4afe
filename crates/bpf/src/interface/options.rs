//! The node's configuration, and further properties of an interface: `struct options` of `bpf/packet.h`.
//!
//! Separate from [`Interface`](super::Interface), so that tests get defaults for options they do not care about.

use crate::table::Layout;
use std::net::IpAddr;

/// The purpose of a host interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// A network card or a bond; also used for workloads.
    #[default]
    Plain = 0,
    /// A tunnel between nodes.
    Tunnel = 1,
    /// `lo`.
    Loopback = 2,
    /// `bpfout.cali`: the host's own packets to services arrive here.
    Services = 3,
}

/// How the source of packets that arrive on a host interface is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum ReversePath {
    /// Not at all.
    #[default]
    Any = 0,
    /// There is a route back.
    Loose = 1,
    /// The route back uses the same interface.
    Strict = 2,
}

/// Constants of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The interface's purpose; [`Kind::Plain`] for workloads.
    pub kind: Kind,
    /// The source check on host interfaces. On workloads' interfaces it is always strict.
    pub reverse_path: ReversePath,
    /// Packets from a workload to its own host are dropped, whatever policy says.
    pub drops_to_host: bool,
    /// A workload's address is not masqueraded towards other nodes.
    pub keeps_host_sources: bool,
    /// `cali_v4_sprefix` contains networks that workloads may send from.
    pub looks_up_sources: bool,
    /// Workloads may send IP in IP.
    pub allows_ipip: bool,
    /// Workloads may send VXLAN.
    pub allows_vxlan: bool,
    /// The port of VXLAN between nodes; 0 for none.
    pub vxlan_port: u16,
    /// Its network (VNI).
    pub vxlan_network: u32,
    /// The port of WireGuard between nodes; 0 for none.
    pub wireguard_port: u16,
    /// Source ports that replace one in use by another flow: the first one, and their number.
    pub spare_ports: (u16, u16),
    /// Only UDP is processed; anything else passes.
    pub is_udp_only: bool,
    /// Dropped packets are reported as events.
    pub tells_drops: bool,
    /// Policy decisions are reported, for flow logs.
    pub tells_flows: bool,
    /// The interface has untracked policy, which is evaluated before connection tracking.
    pub asks_untracked: bool,
    /// Packets are forwarded past the host's network stack.
    pub redirects: bool,
    /// Packets are also forwarded directly into a workload's namespace.
    pub redirects_to_peer: bool,
    /// The size of a service's Maglev table; 0 disables Maglev.
    pub maglev_places: u32,
    /// The node of a service's backend answers clients of other nodes directly (DSR).
    pub answers_directly: bool,
    /// The workload has packet or connection limits.
    pub has_limits: bool,
    /// On interfaces that lead out of the host, fragments that arrive before the first one wait for it.
    pub keeps_fragments: bool,
    /// For how many seconds the ports of a first fragment apply to the other fragments, and those wait for it.
    pub fragment_seconds: u32,
    /// Mark bits on workloads' answers to clients outside of a service; 0 for none.
    pub service_mark: u32,
    /// Linux does not track forwarded packets, except those that must take its path.
    pub bypasses_tracking: bool,
    /// Processing times are recorded.
    pub profiles: bool,
    /// The address of the node's own tunnel device.
    pub tunnel_address: Option<IpAddr>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            kind: Kind::Plain,
            reverse_path: ReversePath::Any,
            drops_to_host: false,
            keeps_host_sources: false,
            looks_up_sources: false,
            allows_ipip: false,
            allows_vxlan: false,
            vxlan_port: 0,
            vxlan_network: 0,
            wireguard_port: 0,
            spare_ports: (20_000, 10_000),
            is_udp_only: false,
            tells_drops: false,
            tells_flows: false,
            asks_untracked: false,
            redirects: false,
            redirects_to_peer: false,
            maglev_places: 0,
            answers_directly: false,
            has_limits: false,
            keeps_fragments: false,
            fragment_seconds: 30,
            service_mark: 0,
            bypasses_tracking: false,
            profiles: false,
            tunnel_address: None,
        }
    }
}

fn address(address: Option<IpAddr>) -> [u8; 16] {
    let mut bytes = [0; 16];
    match address {
        Some(IpAddr::V4(four)) => bytes[..4].copy_from_slice(&four.octets()),
        Some(IpAddr::V6(six)) => bytes = six.octets(),
        None => {}
    }
    bytes
}

impl Options {
    pub(super) const SIZE: usize = 120;

    /// Encodes the C structure.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let numbers = [
            self.kind as u32,
            self.reverse_path as u32,
            self.drops_to_host.into(),
            self.keeps_host_sources.into(),
            self.looks_up_sources.into(),
            self.allows_ipip.into(),
            self.allows_vxlan.into(),
            self.vxlan_port.into(),
            self.vxlan_network,
            self.wireguard_port.into(),
            self.spare_ports.0.into(),
            self.spare_ports.1.into(),
            self.is_udp_only.into(),
            self.tells_drops.into(),
            self.tells_flows.into(),
            self.asks_untracked.into(),
            self.redirects.into(),
            self.redirects_to_peer.into(),
            self.maglev_places,
            self.answers_directly.into(),
            self.has_limits.into(),
            self.keeps_fragments.into(),
            self.fragment_seconds,
            self.service_mark,
            self.bypasses_tracking.into(),
            self.profiles.into(),
        ];
        let mut bytes: Vec<u8> = numbers.iter().flat_map(Layout::bytes).collect();
        bytes.extend(address(self.tunnel_address));
        debug_assert_eq!(bytes.len(), Self::SIZE);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_have_the_offsets_of_the_c_structure() {
        let options = Options {
            kind: Kind::Services,
            reverse_path: ReversePath::Strict,
            vxlan_port: 4789,
            vxlan_network: 4096,
            redirects_to_peer: true,
            maglev_places: 503,
            answers_directly: true,
            bypasses_tracking: true,
            profiles: true,
            tunnel_address: Some([0xfd; 16].into()),
            ..Options::default()
        };
        let bytes = options.bytes();
        assert_eq!(bytes.len(), Options::SIZE);
        let number = |place: usize| u32::read(&bytes[place * 4..place * 4 + 4]);
        assert_eq!([number(0), number(1), number(2)], [3, 2, 0]);
        assert_eq!([number(7), number(8), number(9)], [4789, 4096, 0]);
        assert_eq!([number(10), number(11), number(16), number(17)], [20_000, 10_000, 0, 1]);
        assert_eq!([number(18), number(19), number(20)], [503, 1, 0]);
        assert_eq!([number(21), number(22), number(23)], [0, 30, 0]);
        assert_eq!([number(24), number(25)], [1, 1]);
        assert_eq!(bytes[104..], [0xfd; 16]);
    }
}
