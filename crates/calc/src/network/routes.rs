//! Pools, blocks, addresses taken from other nodes' blocks, workloads, hosts and tunnel devices, joined into one route
//! for each range about which something is known.
//!
//! A change marks what it may affect; a flush resolves each marked range once and sends what differs. A changed block
//! or endpoint therefore costs its own ranges, a pool or a wide range everything inside it, and a node's address the
//! routes to that node.
//!
//! The dataplane, not this module, chooses devices, next hops and tables.

mod block_routes;
mod node_table;
mod numbered;
mod prefix_table;
mod resolve;
#[cfg(test)]
mod tests;

use super::node_addresses::RoutedAddresses;
use crate::sequencer::Sequencer;
use api::RouteOrigin;
use api::scalars::Network;
use api::{IPIPMode, IPPoolAllowedUse, VXLANMode};
use block_routes::block_routes;
use ipnet::IpNet;
use messages::{IpPoolType, NodeName, Route};
use model::feed::{IpPool, Node, WorkloadEndpoint};
use model::v1::WorkloadEndpointKey;
use model::{AllocationBlock, IpVersion};
use node_table::{NodeId, NodeTable};
use prefix_table::{ClaimKind, EntryId, Pool, PrefixTable};
use resolve::{Resolved, resolve};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::IpAddr;

const VERSIONS: [IpVersion; 2] = [IpVersion::V4, IpVersion::V6];

/// The identity of a workload endpoint within its host: orchestrator, workload and endpoint, separated by a character
/// that no name has. With all endpoints of a cluster in one map, each allocation matters.
type WorkloadName = Box<str>;

/// A range and the node to which a block assigns it.
type BlockRoute = (IpNet, NodeId);

/// The routes of all ranges of addresses.
#[derive(Debug)]
pub(crate) struct Routes {
    me: NodeName,
    source: RouteOrigin,
    nodes: NodeTable,
    table: PrefixTable,
    dirty: Vec<EntryId>,
    /// The addresses at the last flush of nodes that have changed since. Each has a hold.
    changed_nodes: BTreeMap<NodeId, [Option<IpAddr>; 2]>,
    blocks: BTreeMap<IpNet, Box<[BlockRoute]>>,
    workloads: BTreeMap<(NodeId, WorkloadName), SmallVec<[IpNet; 1]>>,
}

impl Routes {
    /// Creates an empty table for this host.
    pub(crate) fn new(me: NodeName, source: RouteOrigin) -> Self {
        Self {
            me,
            source,
            nodes: NodeTable::default(),
            table: PrefixTable::default(),
            dirty: Vec::new(),
            changed_nodes: BTreeMap::new(),
            blocks: BTreeMap::new(),
            workloads: BTreeMap::new(),
        }
    }

    /// Adds, changes or removes a pool.
    pub(crate) fn on_pool(&mut self, range: IpNet, pool: Option<&IpPool>) {
        let pool = pool.map(pool_info);
        if pool.is_none() && self.table.find(&range).is_none() {
            return;
        }
        let id = self.table.entry(range);
        if let Some(entry) = self.table.get_mut(id)
            && entry.pool != pool
        {
            entry.pool = pool;
            self.mark_within(&range);
        }
    }

    /// Adds, changes or removes a block.
    pub(crate) fn on_block(&mut self, key: IpNet, block: Option<&AllocationBlock>) {
        if self.source == RouteOrigin::WorkloadIPs {
            return;
        }
        let now: Box<[BlockRoute]> = block
            .map(|block| {
                let routes = block_routes(block);
                routes.into_iter().map(|(net, node)| (net, self.nodes.hold(node))).collect()
            })
            .unwrap_or_default();
        for &(net, node) in &now {
            self.add_claim(net, ClaimKind::Block, node);
        }
        let before = if now.is_empty() { self.blocks.remove(&key) } else { self.blocks.insert(key, now) };
        for (net, node) in before.unwrap_or_default() {
            self.remove_claim(net, ClaimKind::Block, node);
            self.nodes.release(node);
        }
    }

    /// Adds, changes or removes a workload endpoint.
    pub(crate) fn on_workload(&mut self, key: &WorkloadEndpointKey, value: Option<&WorkloadEndpoint>) {
        let WorkloadEndpointKey { host, orchestrator, workload, endpoint } = key;
        if self.source == RouteOrigin::CalicoIPAM && *host != self.me {
            return;
        }
        let now: SmallVec<[IpNet; 1]> = value
            .map(|value| value.ipv4_nets.iter().chain(&value.ipv6_nets).map(IpNet::trunc).collect())
            .unwrap_or_default();
        let name = [orchestrator.as_str(), workload, endpoint].join("\0").into_boxed_str();
        let node = self.nodes.hold(host);
        for &net in &now {
            self.add_claim(net, ClaimKind::Workload, node);
        }
        let key = (node, name);
        // The entry in `workloads` has its own hold.
        let before = if now.is_empty() {
            self.workloads.remove(&key)
        } else {
            self.nodes.hold_again(node);
            self.workloads.insert(key, now)
        };
        if let Some(before) = before {
            for net in before {
                self.remove_claim(net, ClaimKind::Workload, node);
            }
            self.nodes.release(node);
        }
        self.nodes.release(node);
    }

    /// Adds, changes or removes a node.
    pub(crate) fn on_node(&mut self, name: &NodeName, node: Option<&Node>) {
        let now = node.and_then(|node| RoutedAddresses::of(&node.addresses)).map(Box::new);
        let known = self.nodes.find(name).and_then(|id| self.nodes.addresses(id));
        if known == now.as_deref() {
            return;
        }
        // One hold is for this call, one for the addresses.
        let id = self.nodes.hold(name);
        if let Some(now) = &now {
            self.nodes.hold_again(id);
            for (net, kind) in claims(now) {
                self.add_claim(net, kind, id);
            }
        }
        let before = self.nodes.set_addresses(id, now);
        if let Entry::Vacant(place) = self.changed_nodes.entry(id) {
            place.insert(VERSIONS.map(|version| before.as_ref()?.address(version)));
            self.nodes.hold_again(id);
        }
        if *name == self.me {
            self.mark_changed_subnets(before.as_deref(), id);
        }
        if let Some(before) = before {
            for (net, kind) in claims(&before) {
                self.remove_claim(net, kind, id);
            }
            self.nodes.release(id);
        }
        self.nodes.release(id);
    }

    /// Resolves marked ranges and sends what changed.
    pub(crate) fn flush(&mut self, out: &mut Sequencer) {
        for (id, before) in std::mem::take(&mut self.changed_nodes) {
            for (version, before) in VERSIONS.into_iter().zip(before) {
                let now = self.nodes.addresses(id).and_then(|addresses| addresses.address(version));
                if now != before {
                    self.mark_routes_to(id, version, true);
                }
            }
            self.nodes.release(id);
        }
        // In the order of ranges: neighbours share the ranges around them, and the sequencer keeps routes in this
        // order.
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.sort_by_cached_key(|id| self.table.get(*id).map(|entry| entry.net));
        for id in dirty {
            let Some(entry) = self.table.get_mut(id) else { continue };
            entry.dirty = false;
            let is_stale = std::mem::take(&mut entry.stale_address);
            let (net, before) = (entry.net, entry.sent);
            let now = resolve(&net, &self.table.path(&net), &self.me, &self.nodes);
            if now != before || is_stale {
                match now {
                    Some(route) => out.route_update(self.message(net, &route)),
                    None if before.is_some() => out.route_remove(net),
                    None => {}
                }
                self.set_sent(id, now);
            }
            if self.table.get(id).is_some_and(|entry| !entry.is_valid()) {
                self.table.remove(id);
            }
        }
    }

    fn message(&self, dst: IpNet, route: &Resolved) -> Route {
        let version = IpVersion::of(&dst);
        let addresses = route.node.and_then(|node| self.nodes.addresses(node));
        Route {
            dst,
            types: route.types,
            ip_pool_type: route.pool_type,
            dst_node_name: route.node.and_then(|node| self.nodes.shared_name(node)),
            dst_node_ip: addresses.and_then(|addresses| addresses.address(version)),
            same_subnet: route.same_subnet,
            nat_outgoing: route.nat_outgoing,
            local_workload: route.local_workload,
            tunnel_type: route.tunnel_type,
            borrowed: route.borrowed,
        }
    }

    /// Records what was sent, and adds the route to the list of its node.
    fn set_sent(&mut self, id: EntryId, now: Option<Resolved>) {
        let Some(entry) = self.table.get_mut(id) else { return };
        let before = std::mem::replace(&mut entry.sent, now).and_then(|route| route.node);
        let now = now.and_then(|route| route.node);
        if before == now {
            return;
        }
        if let Some(node) = before {
            let (previous, next) = (entry.previous.take(), entry.next.take());
            match previous.and_then(|previous| self.table.get_mut(previous)) {
                Some(previous) => previous.next = next,
                None => self.nodes.set_first_route(node, next),
            }
            if let Some(next) = next.and_then(|next| self.table.get_mut(next)) {
                next.previous = previous;
            }
            self.nodes.release(node);
        }
        if let Some(node) = now {
            self.nodes.hold_again(node);
            let first = self.nodes.first_route(node);
            if let Some(first) = first.and_then(|first| self.table.get_mut(first)) {
                first.previous = Some(id);
            }
            if let Some(entry) = self.table.get_mut(id) {
                entry.next = first;
            }
            self.nodes.set_first_route(node, Some(id));
        }
    }

    fn add_claim(&mut self, net: IpNet, kind: ClaimKind, node: NodeId) {
        let id = self.table.entry(net);
        if self.table.add_claim(id, kind, node, &self.nodes) {
            self.mark_within(&net);
        }
    }

    fn remove_claim(&mut self, net: IpNet, kind: ClaimKind, node: NodeId) {
        let id = self.table.entry(net);
        if self.table.remove_claim(id, kind, node) {
            self.mark_within(&net);
        }
    }

    /// Marks a range and everything inside it, because each inherits something from the ranges around it.
    fn mark_within(&mut self, net: &IpNet) {
        let inside: SmallVec<[EntryId; 8]> = self.table.within(net).collect();
        for id in inside {
            self.mark(id, false);
        }
    }

    /// Marks the routes of this IP version that were sent with this node.
    fn mark_routes_to(&mut self, node: NodeId, version: IpVersion, is_stale: bool) {
        let mut next = self.nodes.first_route(node);
        while let Some((id, entry)) = next.and_then(|id| Some((id, self.table.get(id)?))) {
            next = entry.next;
            if IpVersion::of(&entry.net) == version {
                self.mark(id, is_stale);
            }
        }
    }

    /// Marks the routes to all nodes that enter or leave this node's subnet.
    fn mark_changed_subnets(&mut self, before: Option<&RoutedAddresses>, me: NodeId) {
        for version in VERSIONS {
            let subnet = |mine: Option<&RoutedAddresses>| mine?.network(version).map(Network::masked);
            let (before, now) = (subnet(before), subnet(self.nodes.addresses(me)));
            if before == now {
                continue;
            }
            let contains = |subnet: Option<IpNet>, address| subnet.is_some_and(|net| net.contains(&address));
            let changed: Vec<NodeId> = self
                .nodes
                .known()
                .filter_map(|(id, theirs)| Some((id, theirs.address(version)?)))
                .filter(|&(_, address)| contains(before, address) != contains(now, address))
                .map(|(id, _)| id)
                .collect();
            for id in changed {
                self.mark_routes_to(id, version, false);
            }
        }
    }

    fn mark(&mut self, id: EntryId, is_stale: bool) {
        let Some(entry) = self.table.get_mut(id) else { return };
        entry.stale_address |= is_stale;
        if !entry.dirty {
            entry.dirty = true;
            self.dirty.push(id);
        }
    }
}

fn pool_info(pool: &IpPool) -> Pool {
    let vxlan = matches!(pool.vxlan_mode, VXLANMode::Always | VXLANMode::CrossSubnet);
    let ipip = matches!(pool.ipip_mode, IPIPMode::Always | IPIPMode::CrossSubnet);
    // Addresses of load balancers belong to no workload; packets to them are masqueraded like packets that leave the
    // cluster.
    let pool_type = match (&*pool.allowed_uses, vxlan, ipip) {
        ([IPPoolAllowedUse::LoadBalancer], _, _) => IpPoolType::None,
        (_, true, _) => IpPoolType::Vxlan,
        (_, _, true) => IpPoolType::Ipip,
        _ => IpPoolType::NoEncap,
    };
    Pool {
        pool_type,
        nat_outgoing: pool.masquerade,
        cross_subnet: pool.ipip_mode == IPIPMode::CrossSubnet || pool.vxlan_mode == VXLANMode::CrossSubnet,
    }
}

/// The claims of a node's addresses.
fn claims(node: &RoutedAddresses) -> impl Iterator<Item = (IpNet, ClaimKind)> {
    let of_kind = |kind| move |&address: &IpAddr| (IpNet::from(address), kind);
    node.own
        .iter()
        .map(of_kind(ClaimKind::Host))
        .chain(node.ipip.iter().map(of_kind(ClaimKind::Ipip)))
        .chain(node.vxlan.iter().map(of_kind(ClaimKind::Vxlan)))
        .chain(node.wireguard.iter().map(of_kind(ClaimKind::Wireguard)))
}
