//! Tables of routes, and random histories compared with a recomputation that has no tables, marks or lists.

mod naive;
mod random;

use super::*;
use crate::network::fixtures::{NodeText, flushed, net, pool};
use messages::{RouteTypes, ToDataplane, TunnelType};
use naive::State;

const ME: &str = "me";

/// The dataplane's view: the latest route of each range. Checks that nothing is sent twice or removed without need.
#[derive(Debug, Default)]
struct Seen(BTreeMap<IpNet, Route>);

impl Seen {
    fn take(&mut self, sequencer: &mut Sequencer) -> usize {
        let messages = flushed(sequencer);
        let count = messages.len();
        for message in messages {
            match message {
                ToDataplane::RouteUpdate(route) => {
                    assert_ne!(self.0.get(&route.dst), Some(&route), "sent again without a change");
                    self.0.insert(route.dst, route);
                }
                ToDataplane::RouteRemove(dst) => {
                    assert!(self.0.remove(&dst).is_some(), "{dst} was never there");
                }
                other => panic!("{other:?} is not a route"),
            }
        }
        count
    }
}

/// A block with single addresses of these nodes: address and node.
fn block(cidr: &str, owner: Option<&str>, taken: &[(&str, &str)]) -> AllocationBlock {
    let cidr = net(cidr);
    let mut attributes = Vec::new();
    let mut allocations = vec![None; 8.min(1 << (cidr.max_prefix_len() - cidr.prefix_len()))];
    for (address, node) in taken {
        let address: IpAddr = address.parse().unwrap();
        let ordinal = cidr.hosts().chain([cidr.network(), cidr.broadcast()]).position(|host| host == address);
        assert!(ordinal.is_some(), "{address} is not in {cidr}");
        let ordinal = match (address, cidr.network()) {
            (IpAddr::V4(address), IpAddr::V4(first)) => {
                usize::try_from(address.to_bits() - first.to_bits()).unwrap()
            }
            (IpAddr::V6(address), IpAddr::V6(first)) => {
                usize::try_from(address.to_bits() - first.to_bits()).unwrap()
            }
            _ => unreachable!("one family"),
        };
        allocations[ordinal] = Some(attributes.len());
        let owner = if node.is_empty() { serde_json::json!({}) } else { serde_json::json!({"node": node}) };
        attributes.push(serde_json::json!({"handle_id": "h", "secondary": owner}));
    }
    serde_json::from_value(serde_json::json!({
        "cidr": cidr.to_string(),
        "affinity": owner.map(|owner| format!("host:{owner}")),
        "allocations": allocations,
        "unallocated": [],
        "attributes": attributes,
    }))
    .unwrap()
}

fn workload_key(host: &str, workload: &str) -> WorkloadEndpointKey {
    WorkloadEndpointKey {
        host: host.into(),
        orchestrator: "k8s".into(),
        workload: workload.into(),
        endpoint: "eth0".into(),
    }
}

fn workload(nets: &[&str]) -> WorkloadEndpoint {
    let (ipv4_nets, ipv6_nets) =
        nets.iter().map(|text| net(text)).partition(|net| matches!(net, IpNet::V4(_)));
    WorkloadEndpoint { ipv4_nets, ipv6_nets, ..WorkloadEndpoint::default() }
}

/// A route in short form: types, pool type, node, its address, and other properties that are set.
fn short(route: &Route) -> String {
    let mut words = Vec::new();
    for (bit, word) in [
        (RouteTypes::REMOTE_WORKLOAD, "remote-workload"),
        (RouteTypes::REMOTE_HOST, "remote-host"),
        (RouteTypes::LOCAL_WORKLOAD, "local-workload"),
        (RouteTypes::LOCAL_HOST, "local-host"),
        (RouteTypes::REMOTE_TUNNEL, "remote-tunnel"),
        (RouteTypes::LOCAL_TUNNEL, "local-tunnel"),
    ] {
        if route.types.contains(bit) {
            words.push(word.to_owned());
        }
    }
    match route.ip_pool_type {
        IpPoolType::None => {}
        other => words.push(format!("{other:?}").to_lowercase()),
    }
    words.extend(route.dst_node_name.iter().map(|name| format!("on={name}")));
    words.extend(route.dst_node_ip.iter().map(|address| format!("at={address}")));
    let TunnelType { ipip, vxlan, wireguard } = route.tunnel_type;
    for (is_set, word) in [
        (route.same_subnet, "same-subnet"),
        (route.nat_outgoing, "nat"),
        (route.local_workload, "endpoint-here"),
        (ipip, "tunnel:ipip"),
        (vxlan, "tunnel:vxlan"),
        (wireguard, "tunnel:wireguard"),
        (route.borrowed, "borrowed"),
    ] {
        if is_set {
            words.push(word.to_owned());
        }
    }
    words.join(" ")
}

/// The routes that are sent after everything in the state arrived at once, in the form of `expected`.
fn check(state: &State, expected: &[(&str, &str)]) {
    let (mut routes, mut out, mut seen) = (state.routes(), Sequencer::default(), Seen::default());
    routes.flush(&mut out);
    seen.take(&mut out);
    let told: Vec<(String, String)> =
        seen.0.iter().map(|(dst, route)| (dst.to_string(), short(route))).collect();
    let expected: Vec<(String, String)> =
        expected.iter().map(|(dst, words)| ((*dst).to_owned(), (*words).to_owned())).collect();
    assert_eq!(told, expected);
    assert_eq!(seen.0, state.recomputed(), "the recomputation says something else");
}

fn two_nodes(mut state: State) -> State {
    state.nodes.insert(ME, NodeText { ipv4: "192.0.2.1/24", ipv6: "2001:db8::1/64", ..NodeText::default() });
    state
        .nodes
        .insert("other", NodeText { ipv4: "192.0.2.2/24", ipv6: "2001:db8:1::2/64", ..NodeText::default() });
    state
}

const HOSTS: [(&str, &str); 4] = [
    ("192.0.2.1/32", "local-host on=me at=192.0.2.1"),
    ("192.0.2.2/32", "remote-host on=other at=192.0.2.2"),
    ("2001:db8::1/128", "local-host on=me at=2001:db8::1"),
    ("2001:db8:1::2/128", "remote-host on=other at=2001:db8:1::2"),
];

fn with_hosts(routes: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    let mut all = [routes, &HOSTS].concat();
    all.sort_by_key(|(dst, _)| net(dst));
    all
}

#[test]
fn blocks_of_pools() {
    let mut state = two_nodes(State::default());
    let mut vxlan = pool("10.0.0.0/16", "Never", "CrossSubnet");
    vxlan.masquerade = true;
    state.pools.insert(net("10.0.0.0/16"), vxlan);
    state.pools.insert(net("10.1.0.0/16"), pool("10.1.0.0/16", "Always", "Never"));
    state.pools.insert(net("fd00::/48"), pool("fd00::/48", "", "CrossSubnet"));
    state.blocks.insert(net("10.0.0.0/29"), block("10.0.0.0/29", Some(ME), &[]));
    state.blocks.insert(net("10.0.0.8/29"), block("10.0.0.8/29", Some("other"), &[]));
    state.blocks.insert(net("10.1.0.0/29"), block("10.1.0.0/29", Some("unknown"), &[]));
    state.blocks.insert(net("fd00::/125"), block("fd00::/125", Some("other"), &[]));
    check(
        &state,
        &with_hosts(&[
            ("10.0.0.0/16", "vxlan nat"),
            ("10.0.0.0/29", "local-workload vxlan on=me at=192.0.2.1 same-subnet nat"),
            ("10.0.0.8/29", "remote-workload vxlan on=other at=192.0.2.2 same-subnet nat"),
            ("10.1.0.0/16", "ipip"),
            ("10.1.0.0/29", "remote-workload ipip on=unknown"),
            ("fd00::/48", "vxlan"),
            ("fd00::/125", "remote-workload vxlan on=other at=2001:db8:1::2"),
        ]),
    );
}

#[test]
fn pools_of_load_balancers_and_pools_in_pools() {
    let mut state = two_nodes(State::default());
    let mut balancers = pool("10.0.0.0/16", "Never", "Always");
    balancers.allowed_uses = vec![IPPoolAllowedUse::LoadBalancer];
    state.pools.insert(net("10.0.0.0/16"), balancers.clone());
    balancers.cidr = net("10.1.0.0/16");
    balancers.allowed_uses.push(IPPoolAllowedUse::Tunnel);
    state.pools.insert(net("10.1.0.0/16"), balancers);
    let mut inner = pool("10.1.1.0/24", "Never", "Never");
    inner.masquerade = true;
    state.pools.insert(net("10.1.1.0/24"), inner);
    check(
        &state,
        &with_hosts(&[("10.0.0.0/16", ""), ("10.1.0.0/16", "vxlan"), ("10.1.1.0/24", "noencap nat")]),
    );
}

#[test]
fn borrowed_addresses() {
    let mut state = two_nodes(State::default());
    let taken = [("10.0.0.1", ME), ("10.0.0.2", "other"), ("10.0.0.3", "")];
    state.blocks.insert(net("10.0.0.0/29"), block("10.0.0.0/29", Some("other"), &taken));
    // Without an owner, each address belongs to the node that took it.
    state.blocks.insert(net("10.0.0.8/29"), block("10.0.0.8/29", None, &[("10.0.0.9", "other")]));
    state.workloads.insert((ME, "one"), workload(&["10.0.0.1/32"]));
    check(
        &state,
        &with_hosts(&[
            ("10.0.0.0/29", "remote-workload on=other at=192.0.2.2"),
            ("10.0.0.1/32", "remote-workload local-workload on=me at=192.0.2.1 endpoint-here borrowed"),
            ("10.0.0.9/32", "remote-workload on=other at=192.0.2.2"),
        ]),
    );
}

#[test]
fn a_local_endpoint_takes_precedence_over_its_block() {
    let mut state = two_nodes(State::default());
    let mut vxlan = pool("10.0.0.0/16", "Never", "Always");
    vxlan.masquerade = true;
    state.pools.insert(net("10.0.0.0/16"), vxlan);
    // The block says that another node took the second address, but the endpoint is here.
    state.blocks.insert(net("10.0.0.0/29"), block("10.0.0.0/29", Some(ME), &[("10.0.0.2", "other")]));
    let borrowed = "remote-workload local-workload vxlan on=other at=192.0.2.2 nat borrowed";
    let here = "remote-workload local-workload vxlan on=me at=192.0.2.1 nat endpoint-here borrowed";
    let of_block = "local-workload vxlan on=me at=192.0.2.1 nat";
    check(
        &state,
        &with_hosts(&[("10.0.0.0/16", "vxlan nat"), ("10.0.0.0/29", of_block), ("10.0.0.2/32", borrowed)]),
    );
    state.workloads.insert((ME, "one"), workload(&["10.0.0.1/32", "10.0.0.2/32"]));
    check(
        &state,
        &with_hosts(&[
            ("10.0.0.0/16", "vxlan nat"),
            ("10.0.0.0/29", of_block),
            ("10.0.0.1/32", "local-workload vxlan on=me at=192.0.2.1 nat endpoint-here"),
            ("10.0.0.2/32", here),
        ]),
    );
}

#[test]
fn endpoints_of_other_hosts_count_only_by_their_addresses() {
    let mut state = two_nodes(State::default());
    state.workloads.insert((ME, "one"), workload(&["10.0.0.1/32", "fd00::1/128"]));
    state.workloads.insert(("other", "two"), workload(&["10.0.0.2/32"]));
    state.blocks.insert(net("10.0.0.0/29"), block("10.0.0.0/29", Some(ME), &[]));
    check(
        &state,
        &with_hosts(&[
            ("10.0.0.0/29", "local-workload on=me at=192.0.2.1"),
            ("10.0.0.1/32", "local-workload on=me at=192.0.2.1 endpoint-here"),
            ("fd00::1/128", "local-workload on=me at=2001:db8::1 endpoint-here"),
        ]),
    );
    state.source = Some(RouteOrigin::WorkloadIPs);
    check(
        &state,
        &with_hosts(&[
            ("10.0.0.1/32", "local-workload on=me at=192.0.2.1 endpoint-here"),
            ("10.0.0.2/32", "remote-workload on=other at=192.0.2.2"),
            ("fd00::1/128", "local-workload on=me at=2001:db8::1 endpoint-here"),
        ]),
    );
}

#[test]
fn tunnel_devices_and_hosts_inside_blocks() {
    let mut state = State::default();
    state.nodes.insert(
        ME,
        NodeText { ipv4: "10.0.0.5/24", vxlan: "10.0.0.1", wireguard: "10.0.0.1", ..NodeText::default() },
    );
    state.nodes.insert(
        "other",
        NodeText { ipv4: "10.0.0.4/24", ipip: "10.0.0.16", vxlan: "10.0.0.9", ..NodeText::default() },
    );
    state.blocks.insert(net("10.0.0.0/29"), block("10.0.0.0/29", Some(ME), &[]));
    state.blocks.insert(net("10.0.0.8/29"), block("10.0.0.8/29", Some("other"), &[]));
    state.blocks.insert(net("10.0.0.16/32"), block("10.0.0.16/32", Some("other"), &[]));
    check(
        &state,
        &[
            ("10.0.0.0/29", "local-workload on=me at=10.0.0.5"),
            ("10.0.0.1/32", "local-tunnel on=me at=10.0.0.5 tunnel:vxlan tunnel:wireguard"),
            ("10.0.0.4/32", "remote-host on=other at=10.0.0.4"),
            ("10.0.0.5/32", "local-host on=me at=10.0.0.5"),
            ("10.0.0.8/29", "remote-workload on=other at=10.0.0.4"),
            ("10.0.0.9/32", "remote-tunnel on=other at=10.0.0.4 tunnel:vxlan"),
            ("10.0.0.16/32", "remote-workload remote-tunnel on=other at=10.0.0.4 tunnel:ipip"),
        ],
    );
}

#[test]
fn addresses_of_nodes() {
    let mut state = State::default();
    let none = NodeText::default();
    // The list is only used without an address in the BGP part, and then all its addresses are the node's.
    state.nodes.insert("a", NodeText { internal: "192.0.2.1", external: "198.51.100.1", ..none });
    state.nodes.insert("b", NodeText { ipv4: "192.0.2.9/24", internal: "2001:db8::9", ..none });
    // Nothing of a node without addresses counts.
    state.nodes.insert("c", NodeText { vxlan: "10.65.0.1", ..none });
    state.nodes.insert("d", NodeText { ipv4: "nonsense", ipip: "10.65.0.2", ..none });
    // Of two nodes with one address, the first by name has it.
    state.nodes.insert("e", NodeText { ipv4: "192.0.2.1/24", ..none });
    check(
        &state,
        &[
            ("192.0.2.1/32", "remote-host on=a at=192.0.2.1"),
            ("192.0.2.9/32", "remote-host on=b at=192.0.2.9"),
            ("198.51.100.1/32", "remote-host on=a at=192.0.2.1"),
            ("2001:db8::9/128", "remote-host on=b"),
        ],
    );
}

#[test]
fn one_change_costs_what_it_affects() {
    let mut state = two_nodes(State::default());
    state.pools.insert(net("10.0.0.0/16"), pool("10.0.0.0/16", "Never", "CrossSubnet"));
    for third in 0..100_u8 {
        let cidr = format!("10.0.{third}.0/29");
        let owner = if third < 10 { ME } else { "other" };
        state.blocks.insert(net(&cidr), block(&cidr, Some(owner), &[]));
    }
    let (mut routes, mut out, mut seen) = (state.routes(), Sequencer::default(), Seen::default());
    routes.flush(&mut out);
    assert_eq!(seen.take(&mut out), 101 + HOSTS.len());

    // One block and one endpoint: one route each.
    routes.on_block(net("10.0.7.0/29"), None);
    routes.on_workload(&workload_key(ME, "default/pod"), Some(&workload(&["10.0.1.1/32"])));
    assert!(routes.dirty.len() <= 2, "{:?}", routes.dirty);
    routes.flush(&mut out);
    assert_eq!(seen.take(&mut out), 2);
    // The other node leaves our subnet: its routes, and its new and old address.
    let moved = NodeText { ipv4: "198.51.100.2/24", ..NodeText::default() }.node();
    routes.on_node(&"other".into(), Some(&moved));
    routes.flush(&mut out);
    assert_eq!(seen.take(&mut out), 90 + 3);
    // A repetition costs nothing.
    routes.on_node(&"other".into(), Some(&moved));
    assert!(routes.dirty.is_empty());
    // Our subnet grows to include it: only routes of pools that do not encapsulate within a subnet.
    let wide = NodeText { ipv4: "192.0.2.1/0", ipv6: "2001:db8::1/64", ..NodeText::default() }.node();
    routes.on_node(&ME.into(), Some(&wide));
    routes.flush(&mut out);
    seen.take(&mut out);
    assert!(seen.0[&net("10.0.50.0/29")].same_subnet);
}
