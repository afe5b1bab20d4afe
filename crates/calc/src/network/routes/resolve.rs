//! Computes the route of a range from what is known about it and the ranges around it. This is pure: the result does
//! not depend on the order in which facts arrived.

use super::node_table::{NodeId, NodeTable};
use super::prefix_table::{ClaimKind, Entry};
use ipnet::IpNet;
use messages::{IpPoolType, RouteTypes, TunnelType};
use model::IpVersion;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A route without addresses, which are read from the node when it is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Resolved {
    /// What is at the range.
    pub(super) types: RouteTypes,
    /// How packets to its pool travel.
    pub(super) pool_type: IpPoolType,
    /// The node that has it.
    pub(super) node: Option<NodeId>,
    /// Whether that node is in this node's subnet, if that matters to the pool.
    pub(super) same_subnet: bool,
    /// Whether packets that leave the cluster from here get the node's address.
    pub(super) nat_outgoing: bool,
    /// Whether it belongs to a local workload.
    pub(super) local_workload: bool,
    /// The tunnels for which it is the device's address.
    pub(super) tunnel_type: TunnelType,
    /// Whether it was taken from another node's block.
    pub(super) borrowed: bool,
}

/// Returns the route of a range; `None` when there is nothing to send: nothing is known about exactly this range, or it
/// is the unspecified address.
///
/// `path` contains the entries around the range, the widest first, and last its own.
pub(super) fn resolve(net: &IpNet, path: &[&Entry], me: &str, nodes: &NodeTable) -> Option<Resolved> {
    path.last().filter(|entry| entry.net == *net && entry.is_valid())?;
    if is_unspecified_address(net) {
        return None;
    }
    let is_me = |node: NodeId| nodes.name(node) == me;
    let here_or_there = |node, here, there| if is_me(node) { here } else { there };

    let mut route = Resolved::default();
    let mut cross_subnet = false;
    let mut block_node = None;
    let mut block_types = RouteTypes::CIDR_INFO;
    let mut block_is_exact = false;
    let (mut in_host, mut in_tunnel) = (false, false);
    for entry in path {
        if let Some(pool) = entry.pool {
            if pool.pool_type != IpPoolType::None {
                route.pool_type = pool.pool_type;
            }
            route.nat_outgoing |= pool.nat_outgoing;
            cross_subnet |= pool.cross_subnet;
        }
        if let Some(block) = entry.blocks().next() {
            // A block inside another node's block is a single address that was taken from there.
            match block_node {
                Some(owner) if owner != block.node => route.borrowed = true,
                _ => block_node = Some(block.node),
            }
            route.node = Some(block.node);
            block_is_exact |= entry.net == *net;
            block_types |= here_or_there(block.node, RouteTypes::LOCAL_WORKLOAD, RouteTypes::REMOTE_WORKLOAD);
        }
        if let Some(host) = entry.hosts().next() {
            in_host = true;
            route.node = Some(host.node);
            route.types |= here_or_there(host.node, RouteTypes::LOCAL_HOST, RouteTypes::REMOTE_HOST);
        }
        if let Some(first) = entry.references().next() {
            route.node = Some(first.node);
            route.borrowed |= block_node.is_some_and(|owner| owner != first.node);
            if first.kind == ClaimKind::Workload {
                route.local_workload |= is_me(first.node);
                route.types |=
                    here_or_there(first.node, RouteTypes::LOCAL_WORKLOAD, RouteTypes::REMOTE_WORKLOAD);
            } else {
                in_tunnel = true;
                route.types |= here_or_there(first.node, RouteTypes::LOCAL_TUNNEL, RouteTypes::REMOTE_TUNNEL);
                route.tunnel_type = tunnels_of(entry, first.node);
            }
        }
    }
    // A host's own address has its own route, whatever block it lies in. The address of a tunnel device is treated like
    // a workload's only when a block consists of exactly that address.
    if !in_host && (block_is_exact || !in_tunnel) {
        route.types |= block_types;
    }
    route.same_subnet = cross_subnet && route.node.is_some_and(|node| in_my_subnet(net, node, me, nodes));
    Some(route)
}

fn tunnels_of(entry: &Entry, node: NodeId) -> TunnelType {
    let mut tunnels = TunnelType::default();
    for claim in entry.references().filter(|claim| claim.node == node) {
        match claim.kind {
            ClaimKind::Ipip => tunnels.ipip = true,
            ClaimKind::Vxlan => tunnels.vxlan = true,
            ClaimKind::Wireguard => tunnels.wireguard = true,
            ClaimKind::Block | ClaimKind::Host | ClaimKind::Workload => {}
        }
    }
    tunnels
}

fn in_my_subnet(net: &IpNet, node: NodeId, me: &str, nodes: &NodeTable) -> bool {
    let version = IpVersion::of(net);
    let mine = nodes.find(me).and_then(|me| nodes.addresses(me)).and_then(|mine| mine.network(version));
    let theirs = nodes.addresses(node).and_then(|theirs| theirs.address(version));
    match (mine, theirs) {
        (Some(mine), Some(theirs)) => mine.masked().contains(&theirs),
        _ => false,
    }
}

/// Whether the range is only the address of all zeros, which no route can lead to.
fn is_unspecified_address(net: &IpNet) -> bool {
    net.prefix_len() == net.max_prefix_len()
        && match net.addr() {
            IpAddr::V4(address) => address == Ipv4Addr::UNSPECIFIED,
            IpAddr::V6(address) => address == Ipv6Addr::UNSPECIFIED,
        }
}
