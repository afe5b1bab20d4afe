//! What an endpoint or network set contributes to sets (addresses or networks, and named ports) in few bytes.

use crate::bytes::{Reader, put_bytes, put_net, put_number};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use model::feed::{EndpointPort, HostEndpoint, NetworkSet, Protocol, WorkloadEndpoint};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The protocol that a rule with a named port requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum PortProtocol {
    Tcp,
    Udp,
    Sctp,
    /// The rule has no protocol.
    Any,
}

impl PortProtocol {
    /// Returns what a rule with this protocol requires: everything other than UDP or SCTP counts as TCP.
    pub(crate) fn of(protocol: Protocol) -> Self {
        match class(protocol) {
            Class::Named(named) | Class::Number(named) => named,
            Class::Other | Class::OtherNumber | Class::Unset => Self::Tcp,
        }
    }

    /// The name in the ids of sets.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
            Self::Any => "any",
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Tcp | Self::Any => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }

    fn bit(self) -> u8 {
        match self {
            Self::Tcp => 1,
            Self::Udp => 2,
            Self::Sctp => 4,
            Self::Any => 8,
        }
    }
}

enum Class {
    /// By name, one of the three.
    Named(PortProtocol),
    /// By number, one of the three.
    Number(PortProtocol),
    /// Another name.
    Other,
    /// Another number.
    OtherNumber,
    /// The number 0: the endpoint names no protocol.
    Unset,
}

fn class(protocol: Protocol) -> Class {
    match protocol {
        Protocol::Tcp => Class::Named(PortProtocol::Tcp),
        Protocol::Udp => Class::Named(PortProtocol::Udp),
        Protocol::Sctp => Class::Named(PortProtocol::Sctp),
        Protocol::Number(0) => Class::Unset,
        Protocol::Number(6) => Class::Number(PortProtocol::Tcp),
        Protocol::Number(17) => Class::Number(PortProtocol::Udp),
        Protocol::Number(132) => Class::Number(PortProtocol::Sctp),
        Protocol::Number(_) => Class::OtherNumber,
        Protocol::Icmp | Protocol::Icmpv6 | Protocol::UdpLite => Class::Other,
    }
}

/// Returns the requirements that a port with this protocol meets, as bits, and its protocol in sets.
///
/// As in Calico, a port whose protocol is a number does not match a rule without protocol, but one with the name of a
/// protocol that has no ports does.
fn answers(protocol: Protocol) -> (u8, u8) {
    let any = PortProtocol::Any.bit();
    match class(protocol) {
        Class::Named(named) => (named.bit() | any, named.number()),
        Class::Number(named) => (named.bit(), named.number()),
        Class::Other | Class::Unset => (any, PortProtocol::Tcp.number()),
        Class::OtherNumber => (0, PortProtocol::Tcp.number()),
    }
}

/// What an item contributes to sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contribution<'a>(pub(crate) &'a [u8]);

impl Contribution<'_> {
    fn split(&self) -> (usize, Reader<'_>) {
        let mut reader = Reader(self.0);
        let count = reader.small().unwrap_or_default();
        (count as usize, reader)
    }

    /// Calls `visit` with each network; an address is a network of one.
    pub(crate) fn for_each_net(&self, mut visit: impl FnMut(IpNet)) {
        let (count, mut reader) = self.split();
        for _ in 0..count {
            let Some(net) = reader.net() else { return };
            visit(net);
        }
    }

    /// Calls `visit` with each address and port that has this name and matches this protocol.
    pub(crate) fn for_each_port(
        &self,
        name: &str,
        asked: PortProtocol,
        mut visit: impl FnMut(IpAddr, u8, u16),
    ) {
        let (count, mut reader) = self.split();
        for _ in 0..count {
            if reader.net().is_none() {
                return;
            }
        }
        while let Some((have, bits, protocol, port)) = next_port(&mut reader) {
            if have == name.as_bytes() && bits & asked.bit() != 0 {
                self.for_each_net(|net| visit(net.addr(), protocol, port));
            }
        }
    }
}

fn next_port<'a>(reader: &mut Reader<'a>) -> Option<(&'a [u8], u8, u8, u16)> {
    let name = reader.bytes()?;
    let bits = reader.byte()?;
    let protocol = reader.byte()?;
    let port = u16::try_from(reader.number()?).ok()?;
    Some((name, bits, protocol, port))
}

/// Packs the contribution of a workload: its addresses, whatever the length of their prefixes, and its ports.
pub(crate) fn pack_workload(endpoint: &WorkloadEndpoint, out: &mut Vec<u8>) {
    let nets = endpoint.ipv4_nets.iter().chain(&endpoint.ipv6_nets);
    pack(nets.map(|net| IpNet::from(net.addr())), &endpoint.ports, out);
}

/// Packs the contribution of a host endpoint: its expected addresses, and its ports.
pub(crate) fn pack_host(endpoint: &HostEndpoint, out: &mut Vec<u8>) {
    let addresses = endpoint.expected_ipv4_addrs.iter().chain(&endpoint.expected_ipv6_addrs);
    pack(addresses.map(|address| IpNet::from(*address)), &endpoint.ports, out);
}

/// Packs the contribution of a network set. The network of all addresses becomes two halves, because the kernel's sets
/// cannot contain it.
pub(crate) fn pack_network_set(set: &NetworkSet, out: &mut Vec<u8>) {
    let halves = |net: &IpNet| match net {
        IpNet::V4(net) if net.prefix_len() == 0 => [
            Some(IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 1))),
            Some(IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(128, 0, 0, 0), 1))),
        ],
        IpNet::V6(net) if net.prefix_len() == 0 => [
            Some(IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 1))),
            Some(IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0x8000, 0, 0, 0, 0, 0, 0, 0), 1))),
        ],
        net => [Some(net.trunc()), None],
    };
    let nets: Vec<IpNet> = set.nets.iter().flat_map(halves).flatten().collect();
    pack(nets.into_iter(), &[], out);
}

fn pack(nets: impl Iterator<Item = IpNet> + Clone, ports: &[EndpointPort], out: &mut Vec<u8>) {
    out.clear();
    put_number(out, nets.clone().count() as u64);
    for net in nets {
        put_net(out, &net);
    }
    for port in ports {
        let (bits, protocol) = answers(port.protocol);
        put_bytes(out, port.name.as_bytes());
        out.extend_from_slice(&[bits, protocol]);
        put_number(out, port.port.into());
    }
}

#[cfg(test)]
mod tests {
    use super::{Contribution, PortProtocol, pack_network_set, pack_workload};
    use model::feed::{EndpointPort, NetworkSet, Protocol, WorkloadEndpoint};

    fn ports(protocol: Protocol, asked: PortProtocol) -> Vec<String> {
        let endpoint = WorkloadEndpoint {
            ipv4_nets: vec!["10.0.0.1/24".parse().unwrap()],
            ipv6_nets: vec!["fd00::1/128".parse().unwrap()],
            ports: vec![
                EndpointPort { name: "http".into(), protocol, port: 8080 },
                EndpointPort { name: "other".into(), protocol: Protocol::Tcp, port: 1 },
            ],
            ..WorkloadEndpoint::default()
        };
        let mut packed = Vec::new();
        pack_workload(&endpoint, &mut packed);
        let mut found = Vec::new();
        Contribution(&packed).for_each_port("http", asked, |address, protocol, port| {
            found.push(format!("{address},{protocol}:{port}"));
        });
        found
    }

    #[test]
    fn ports_answer_by_protocol() {
        use PortProtocol::{Any, Sctp, Tcp, Udp};
        let tcp = ["10.0.0.1,6:8080", "fd00::1,6:8080"];
        let none: [&str; 0] = [];
        assert_eq!(ports(Protocol::Tcp, Tcp), tcp);
        assert_eq!(ports(Protocol::Tcp, Any), tcp);
        assert_eq!(ports(Protocol::Tcp, Udp), none);
        assert_eq!(ports(Protocol::Udp, Any), ["10.0.0.1,17:8080", "fd00::1,17:8080"]);
        assert_eq!(ports(Protocol::Sctp, Sctp), ["10.0.0.1,132:8080", "fd00::1,132:8080"]);
        assert_eq!(ports(Protocol::Number(6), Tcp), tcp);
        assert_eq!(ports(Protocol::Number(6), Any), none, "a number does not answer an open question");
        assert_eq!(ports(Protocol::Number(0), Any), tcp);
        assert_eq!(ports(Protocol::Number(0), Tcp), none);
        assert_eq!(ports(Protocol::UdpLite, Any), tcp);
        assert_eq!(ports(Protocol::UdpLite, Udp), none);
    }

    #[test]
    fn networks_of_everything_are_two_halves() {
        let nets = ["0.0.0.0/0", "10.1.2.3/8", "::/0"].map(|net| net.parse().unwrap()).to_vec();
        let mut packed = Vec::new();
        pack_network_set(&NetworkSet { nets, ..NetworkSet::default() }, &mut packed);
        let mut found = Vec::new();
        Contribution(&packed).for_each_net(|net| found.push(net.to_string()));
        assert_eq!(found, ["0.0.0.0/1", "128.0.0.0/1", "10.0.0.0/8", "::/1", "8000::/1"]);
    }
}
