//! The desired contents of `cali_v4_routes`, `cali_v4_fsafes2` and those of IPv6: routes to addresses, and failsafe
//! ports. Values in, bytes out; [`Routes`] follows changes, each at a cost proportional to the ranges it affects.

mod changes;

pub use changes::Routes;

use bpf::Layout as _;
use bpf::layout::devices::SourceKey;
use bpf::layout::network::{FailsafeKey, Route as Entry, RouteKey, flags};
use bpf::layout::{Family, V4, V6};
use ipnet::IpNet;
use messages::{IpPoolType, Route, RouteTypes};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The elements of a map for IPv4 and of its counterpart for IPv6.
pub type Elements = [BTreeMap<Vec<u8>, Vec<u8>>; 2];

/// Reached through VXLAN.
const VXLAN: u32 = 0x400;
/// Packets must not be forwarded directly into the workload's namespace.
const SKIP_REDIRECT: u32 = 0x800;

/// The input for routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The calculation's routes by range.
    pub routes: BTreeMap<IpNet, Route>,
    /// The addresses of this host's workloads.
    pub workloads: BTreeMap<IpNet, Place>,
    /// The addresses of this host.
    pub host: BTreeSet<IpAddr>,
    /// Clients whose answers must return by the path of their requests.
    pub answers_back: BTreeSet<IpNet>,
    /// Whether packets to other nodes' workloads are encrypted.
    pub is_encrypted: bool,
}

/// The location of a workload of this host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The index of its interface; 0 if it has none.
    pub index: u32,
    /// Its packets must pass its interface, which limits them.
    pub is_limited: bool,
}

/// A failsafe port, which host endpoints never block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failsafe {
    /// The protocol's number.
    pub protocol: u8,
    /// The port.
    pub port: u16,
    /// Only for these addresses of the other side, if set.
    pub net: Option<IpNet>,
    /// Whether this host opens the connection.
    pub is_out: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    None,
    By(IpAddr),
    Interface(u32),
}

/// The flags and next hop of a range.
type Known = (u32, Way);

impl Facts {
    /// Every range with information.
    fn nets(&self) -> BTreeSet<IpNet> {
        let mut nets: BTreeSet<IpNet> = self.routes.keys().copied().collect();
        nets.extend(self.workloads.keys());
        nets.extend(self.host.iter().copied().map(IpNet::from));
        nets.extend(&self.answers_back);
        nets
    }
}

/// The elements of the maps of routes, computed as a whole: the result that [`Routes`] must reach step by step.
#[must_use]
pub fn routes(facts: &Facts) -> Elements {
    let mut elements = Elements::default();
    for net in facts.nets() {
        if let Some(known) = route(facts, &net) {
            elements[version(&net)].insert(key(&net), value(&net, known));
        }
    }
    elements
}

/// The index of the map for a range: IPv4 or IPv6.
fn version(net: &IpNet) -> usize {
    usize::from(net.addr().is_ipv6())
}

fn key(net: &IpNet) -> Vec<u8> {
    let bits = net.prefix_len().into();
    match net {
        IpNet::V4(net) => RouteKey::<V4> { bits, address: net.network().octets() }.bytes(),
        IpNet::V6(net) => RouteKey::<V6> { bits, address: net.network().octets() }.bytes(),
    }
}

fn value(net: &IpNet, (flags, way): Known) -> Vec<u8> {
    match net {
        IpNet::V4(_) => entry::<V4>(flags, way).bytes(),
        IpNet::V6(_) => entry::<V6>(flags, way).bytes(),
    }
}

fn entry<F: Family>(flags: u32, way: Way) -> Entry<F> {
    let mut next_hop = F::Address::default();
    match way {
        Way::None => {}
        Way::Interface(index) => next_hop.as_mut()[..4].copy_from_slice(&index.to_ne_bytes()),
        Way::By(IpAddr::V4(address)) if F::WIDTH == 4 => next_hop.as_mut().copy_from_slice(&address.octets()),
        Way::By(IpAddr::V6(address)) if F::WIDTH == 16 => {
            next_hop.as_mut().copy_from_slice(&address.octets());
        }
        // A node of the other IP version cannot be a next hop.
        Way::By(_) => {}
    }
    Entry { flags, next_hop }
}

/// The flags and next hop of a range; `None` if it needs no route.
fn route(facts: &Facts, net: &IpNet) -> Option<Known> {
    let known = facts.routes.get(net);
    let mut bits = 0;
    if net.prefix_len() == net.max_prefix_len() && facts.host.contains(&net.addr()) {
        bits |= flags::LOCAL | flags::HOST;
    }
    if let Some(route) = known {
        bits |= if route.same_subnet { flags::SAME_SUBNET } else { 0 };
        bits |= if route.ip_pool_type == IpPoolType::None { 0 } else { flags::IN_POOL };
        bits |= if route.nat_outgoing { flags::NAT_OUTGOING } else { 0 };
    }
    if facts.answers_back.contains(net) {
        bits |= flags::NO_DIRECT_RETURN;
    }
    let types = known.map_or(RouteTypes::CIDR_INFO, |route| route.types);
    let is = |kind: RouteTypes| types.contains(kind);
    let node = known.and_then(|route| route.dst_node_ip);
    let pool = known.map_or(IpPoolType::None, |route| route.ip_pool_type);
    let vxlan = if pool == IpPoolType::Vxlan { VXLAN } else { 0 };
    // Addresses of tunnel devices may be borrowed from a block; then they also have a workload's type.
    if is(RouteTypes::REMOTE_TUNNEL) {
        return Some((bits | flags::HOST | flags::TUNNELED | vxlan, node.map_or(Way::None, Way::By)));
    }
    if let Some(place) = facts.workloads.get(net) {
        let limited = if place.is_limited { SKIP_REDIRECT } else { 0 };
        return Some((bits | flags::LOCAL | flags::WORKLOAD | limited, Way::Interface(place.index)));
    }
    if is(RouteTypes::REMOTE_HOST) {
        return Some((bits | flags::HOST, Way::By(node?)));
    }
    if is(RouteTypes::LOCAL_HOST) {
        return Some((bits | flags::LOCAL | flags::HOST, Way::None));
    }
    if is(RouteTypes::REMOTE_WORKLOAD) {
        let tunneled = facts.is_encrypted || matches!(pool, IpPoolType::Vxlan | IpPoolType::Ipip);
        let tunneled = if tunneled { flags::TUNNELED } else { 0 };
        return Some((bits | flags::WORKLOAD | tunneled | vxlan, Way::By(node?)));
    }
    // A block of this host adds nothing to the routes of its workloads.
    let is_own_block = is(RouteTypes::LOCAL_WORKLOAD) && bits & (flags::LOCAL | flags::NO_DIRECT_RETURN) == 0;
    (bits != 0 && !is_own_block).then_some((bits, Way::None))
}

/// The elements of the maps of additional networks that workloads may send from, each with the index of the workload's
/// interface.
#[must_use]
pub fn sources<'a>(lent: impl IntoIterator<Item = (u32, &'a IpNet)>) -> Elements {
    let mut elements = Elements::default();
    for (device, net) in lent {
        let bits = net.prefix_len().into();
        let key = match net {
            IpNet::V4(net) => SourceKey::<V4> { bits, device, address: net.network().octets() }.bytes(),
            IpNet::V6(net) => SourceKey::<V6> { bits, device, address: net.network().octets() }.bytes(),
        };
        elements[version(net)].insert(key, 1_u32.bytes());
    }
    elements
}

/// The elements of the maps of failsafe ports.
#[must_use]
pub fn failsafes(ports: &[Failsafe]) -> Elements {
    let mut elements = Elements::default();
    for port in ports {
        if !matches!(port.net, Some(IpNet::V6(_))) {
            let (bits, address) = match port.net {
                Some(IpNet::V4(net)) => (net.prefix_len().into(), net.network().octets()),
                _ => (0, [0; 4]),
            };
            let Failsafe { port, protocol, is_out, .. } = *port;
            let key = FailsafeKey::<V4> { bits, port, protocol, is_out, address };
            elements[0].insert(key.bytes(), vec![0; 4]);
        }
        if !matches!(port.net, Some(IpNet::V4(_))) {
            let (bits, address) = match port.net {
                Some(IpNet::V6(net)) => (net.prefix_len().into(), net.network().octets()),
                _ => (0, [0; 16]),
            };
            let Failsafe { port, protocol, is_out, .. } = *port;
            let key = FailsafeKey::<V6> { bits, port, protocol, is_out, address };
            elements[1].insert(key.bytes(), vec![0; 4]);
        }
    }
    elements
}

#[cfg(test)]
mod tests {
    use super::*;
    use messages::TunnelType;

    fn route(net: &str, types: RouteTypes, pool: IpPoolType, node: Option<&str>) -> (IpNet, Route) {
        let dst = net.parse().expect("a network");
        let route = Route {
            dst,
            types,
            ip_pool_type: pool,
            dst_node_name: None,
            dst_node_ip: node.map(|node| node.parse().expect("an address")),
            same_subnet: node == Some("192.0.2.2"),
            nat_outgoing: pool != IpPoolType::None,
            local_workload: false,
            tunnel_type: TunnelType::default(),
            borrowed: false,
        };
        (dst, route)
    }

    /// The flags and last four bytes of a network's entry.
    fn found(facts: &Facts, net: &str) -> Option<(u32, [u8; 4])> {
        let net: IpNet = net.parse().expect("a network");
        let IpNet::V4(v4) = net else { panic!("IPv4 only") };
        let key = RouteKey::<V4> { bits: v4.prefix_len().into(), address: v4.network().octets() };
        let entry = routes(facts)[0].get(&key.bytes()).map(|value| Entry::<V4>::read(value))?;
        Some((entry.flags, entry.next_hop))
    }

    #[test]
    fn every_kind_of_range_has_calicos_flags() {
        use RouteTypes as T;
        let facts = Facts {
            routes: [
                route("10.0.0.0/16", T::CIDR_INFO, IpPoolType::Vxlan, None),
                route("10.0.1.0/26", T::LOCAL_WORKLOAD, IpPoolType::Vxlan, Some("192.0.2.1")),
                route("10.0.1.3/32", T::LOCAL_WORKLOAD, IpPoolType::Vxlan, Some("192.0.2.1")),
                route("10.0.2.0/26", T::REMOTE_WORKLOAD, IpPoolType::Vxlan, Some("192.0.2.2")),
                route("10.0.3.0/26", T::REMOTE_WORKLOAD, IpPoolType::NoEncap, Some("198.51.100.3")),
                route("10.0.2.0/32", T::REMOTE_TUNNEL, IpPoolType::Vxlan, Some("192.0.2.2")),
                route("192.0.2.2/32", T::REMOTE_HOST, IpPoolType::None, Some("192.0.2.2")),
                route("10.0.4.0/26", T::REMOTE_WORKLOAD, IpPoolType::Ipip, None),
            ]
            .into(),
            workloads: [
                ("10.0.1.3/32", Place { index: 7, is_limited: false }),
                ("10.0.1.4/32", Place { index: 8, is_limited: true }),
            ]
            .map(|(net, place)| (net.parse().expect("a network"), place))
            .into(),
            host: ["192.0.2.1", "10.0.1.0"].map(|text| text.parse().expect("an address")).into(),
            answers_back: ["203.0.113.0/24", "192.0.2.2/32"]
                .map(|net| net.parse().expect("a network"))
                .into(),
            is_encrypted: false,
        };
        for (net, expected) in [
            ("10.0.0.0/16", Some((0x3, [0; 4]))),
            ("10.0.1.0/26", None),
            ("10.0.1.3/32", Some((0xf, 7_u32.to_ne_bytes()))),
            ("10.0.1.4/32", Some((0x80c, 8_u32.to_ne_bytes()))),
            ("10.0.1.0/32", Some((0x18, [0; 4]))),
            ("192.0.2.1/32", Some((0x18, [0; 4]))),
            ("10.0.2.0/26", Some((0x467, [192, 0, 2, 2]))),
            ("10.0.3.0/26", Some((0x7, [198, 51, 100, 3]))),
            ("10.0.2.0/32", Some((0x473, [192, 0, 2, 2]))),
            ("192.0.2.2/32", Some((0xb0, [192, 0, 2, 2]))),
            ("203.0.113.0/24", Some((0x80, [0; 4]))),
            ("10.0.4.0/26", None),
        ] {
            assert_eq!(found(&facts, net), expected, "{net}");
        }
        let encrypted = Facts { is_encrypted: true, ..facts };
        assert_eq!(found(&encrypted, "10.0.3.0/26"), Some((0x47, [198, 51, 100, 3])));
    }

    #[test]
    fn additional_networks_belong_to_one_interface() {
        let nets: Vec<IpNet> =
            ["10.1.2.3/8", "fd00::/64"].map(|text| text.parse().expect("a network")).into();
        let [v4, v6] = sources(nets.iter().map(|net| (7, net)));
        assert_eq!(v4, [(vec![40, 0, 0, 0, 7, 0, 0, 0, 10, 0, 0, 0], vec![1, 0, 0, 0])].into());
        assert_eq!(v6.keys().map(Vec::len).collect::<Vec<_>>(), [24]);
    }

    #[test]
    fn ports_open_to_all_addresses_are_in_both_maps() {
        let any = Failsafe { protocol: 6, port: 22, net: None, is_out: false };
        let one = Failsafe { net: "10.0.0.0/8".parse().ok(), is_out: true, ..any };
        let [v4, v6] = failsafes(&[any, one]);
        assert_eq!((v4.len(), v6.len()), (2, 1));
        assert!(v4.contains_key(&vec![40, 0, 0, 0, 22, 0, 6, 1, 10, 0, 0, 0]));
        assert!(v6.keys().all(|key| key[..8] == [32, 0, 0, 0, 22, 0, 6, 0]));
    }
}
