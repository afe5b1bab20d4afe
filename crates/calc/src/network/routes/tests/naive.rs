//! Computes routes in the slow, obvious way: for each range that anything mentions, it looks at everything.

use super::super::{RouteOrigin, Routes};
use super::ME;
use crate::network::fixtures::NodeText;
use api::{IPIPMode, IPPoolAllowedUse, VXLANMode};
use ipnet::IpNet;
use messages::{IpPoolType, NodeName, Route, RouteTypes, TunnelType};
use model::AllocationBlock;
use model::feed::{IpPool, WorkloadEndpoint};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Everything that routes depend on.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// `CalicoIPAM` unless set.
    pub(super) source: Option<RouteOrigin>,
    pub(super) pools: BTreeMap<IpNet, IpPool>,
    pub(super) blocks: BTreeMap<IpNet, AllocationBlock>,
    /// By host and name.
    pub(super) workloads: BTreeMap<(&'static str, &'static str), WorkloadEndpoint>,
    pub(super) nodes: BTreeMap<&'static str, NodeText>,
}

/// Something that a node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    Workload,
    Wireguard,
    Ipip,
    Vxlan,
}

/// What is known about exactly one range.
#[derive(Debug, Default)]
struct Facts {
    pool: Option<IpPool>,
    blocks: Vec<String>,
    hosts: Vec<String>,
    things: Vec<(String, Thing)>,
}

impl State {
    /// The code under test, after it received the whole state.
    pub(super) fn routes(&self) -> Routes {
        let mut routes = Routes::new(ME.into(), self.source.unwrap_or(RouteOrigin::CalicoIPAM));
        for (cidr, pool) in &self.pools {
            routes.on_pool(*cidr, Some(pool));
        }
        for (cidr, block) in &self.blocks {
            routes.on_block(*cidr, Some(block));
        }
        for ((host, name), endpoint) in &self.workloads {
            routes.on_workload(&super::workload_key(host, name), Some(endpoint));
        }
        for (name, node) in &self.nodes {
            routes.on_node(&NodeName::from(*name), Some(&node.node()));
        }
        routes
    }

    /// The routes that must have been sent to the dataplane.
    pub(super) fn recomputed(&self) -> BTreeMap<IpNet, Route> {
        let facts = self.facts();
        facts
            .keys()
            .filter(|dst| !(dst.prefix_len() == dst.max_prefix_len() && dst.addr().is_unspecified()))
            .map(|dst| (*dst, self.route(*dst, &facts)))
            .collect()
    }

    fn facts(&self) -> BTreeMap<IpNet, Facts> {
        let mut facts: BTreeMap<IpNet, Facts> = BTreeMap::new();
        for (cidr, pool) in &self.pools {
            facts.entry(*cidr).or_default().pool = Some(pool.clone());
        }
        for block in self.blocks.values().filter(|_| self.source != Some(RouteOrigin::WorkloadIPs)) {
            let owner = block.affinity.as_ref().map(|text| text.replace("host:", ""));
            let mut given: BTreeMap<IpNet, String> = BTreeMap::new();
            for (ordinal, index) in block.allocations.iter().enumerate() {
                let Some(index) = index else { continue };
                let Some(node) = block.attributes[*index].active_owner_attrs.get("node") else { continue };
                if Some(node) != owner.as_ref() {
                    given.insert(offset(block.cidr.network(), ordinal), node.clone());
                }
            }
            if let Some(owner) = owner {
                given.insert(block.cidr, owner);
            }
            for (net, node) in given {
                facts.entry(net).or_default().blocks.push(node);
            }
        }
        for ((host, _), endpoint) in &self.workloads {
            if self.source != Some(RouteOrigin::WorkloadIPs) && *host != ME {
                continue;
            }
            for net in endpoint.ipv4_nets.iter().chain(&endpoint.ipv6_nets) {
                facts.entry(*net).or_default().things.push(((*host).to_owned(), Thing::Workload));
            }
        }
        for (name, node) in &self.nodes {
            let Some(addresses) = own_addresses(node) else { continue };
            for address in addresses {
                let facts = facts.entry(IpNet::from(address)).or_default();
                facts.hosts.push((*name).to_owned());
            }
            let tunnels = [
                (node.ipip, Thing::Ipip),
                (node.vxlan, Thing::Vxlan),
                (node.vxlan_v6, Thing::Vxlan),
                (node.wireguard, Thing::Wireguard),
            ];
            for (address, thing) in tunnels {
                if let Ok(address) = address.parse::<IpAddr>() {
                    let facts = facts.entry(IpNet::from(address)).or_default();
                    facts.things.push(((*name).to_owned(), thing));
                }
            }
        }
        for facts in facts.values_mut() {
            facts.blocks.sort();
            facts.hosts.sort();
            facts.hosts.dedup();
            facts.things.sort();
        }
        facts
    }

    fn route(&self, dst: IpNet, facts: &BTreeMap<IpNet, Facts>) -> Route {
        let mut around: Vec<(&IpNet, &Facts)> = facts.iter().filter(|(net, _)| net.contains(&dst)).collect();
        around.sort_by_key(|(net, _)| net.prefix_len());

        // From the pools: the innermost type, and both switches if any pool sets them.
        let pools = || around.iter().filter_map(|(_, facts)| facts.pool.as_ref());
        let ip_pool_type =
            pools().map(pool_type).rfind(|kind| *kind != IpPoolType::None).unwrap_or(IpPoolType::None);
        let crosses = pools()
            .any(|pool| pool.vxlan_mode == VXLANMode::CrossSubnet || pool.ipip_mode == IPIPMode::CrossSubnet);

        // The innermost range that anything has decides; within a range, things precede hosts, and hosts precede
        // blocks.
        let owner = |facts: &Facts| {
            let thing = facts.things.first().map(|(node, _)| node);
            thing.or_else(|| facts.hosts.first()).or_else(|| facts.blocks.first()).cloned()
        };
        let node = around.iter().rev().find_map(|(_, facts)| owner(facts));

        let blocks: Vec<&String> = around.iter().filter_map(|(_, facts)| facts.blocks.first()).collect();
        let things: Vec<(usize, &(String, Thing))> = around
            .iter()
            .enumerate()
            .filter_map(|(depth, (_, facts))| Some((depth, facts.things.first()?)))
            .collect();
        let hosts: Vec<&String> = around.iter().filter_map(|(_, facts)| facts.hosts.first()).collect();

        let mut types = RouteTypes::CIDR_INFO;
        for host in &hosts {
            types |= if *host == ME { RouteTypes::LOCAL_HOST } else { RouteTypes::REMOTE_HOST };
        }
        for (_, (node, thing)) in &things {
            types |= match (*thing == Thing::Workload, node == ME) {
                (true, true) => RouteTypes::LOCAL_WORKLOAD,
                (true, false) => RouteTypes::REMOTE_WORKLOAD,
                (false, true) => RouteTypes::LOCAL_TUNNEL,
                (false, false) => RouteTypes::REMOTE_TUNNEL,
            };
        }
        let exact_block = !facts[&dst].blocks.is_empty();
        let is_tunnel = things.iter().any(|(_, (_, thing))| *thing != Thing::Workload);
        if hosts.is_empty() && (exact_block || !is_tunnel) {
            for block in &blocks {
                types |= if *block == ME { RouteTypes::LOCAL_WORKLOAD } else { RouteTypes::REMOTE_WORKLOAD };
            }
        }

        // Taken from another node's block: the outermost block belongs to one node, and an inner block, or a thing at
        // or inside it, to another.
        let outermost =
            around.iter().enumerate().find_map(|(depth, (_, facts))| Some((depth, facts.blocks.first()?)));
        let borrowed = outermost.is_some_and(|(depth, owner)| {
            blocks.iter().any(|block| *block != owner)
                || things.iter().any(|(at, (node, _))| *at >= depth && node != owner)
        });

        let mut tunnel_type = TunnelType::default();
        if let Some((depth, (node, _))) =
            things.iter().rev().find(|(_, (_, thing))| *thing != Thing::Workload)
        {
            for (other, thing) in &around[*depth].1.things {
                if other == node {
                    tunnel_type.ipip |= *thing == Thing::Ipip;
                    tunnel_type.vxlan |= *thing == Thing::Vxlan;
                    tunnel_type.wireguard |= *thing == Thing::Wireguard;
                }
            }
        }
        let dst_node_ip =
            node.as_deref().and_then(|node| self.address(node, dst)).map(|(address, _)| address);
        let my_net = self.address(ME, dst).map(|(_, net)| net);
        Route {
            dst,
            types,
            ip_pool_type,
            same_subnet: crosses
                && my_net.zip(dst_node_ip).is_some_and(|(mine, theirs)| mine.contains(&theirs)),
            dst_node_name: node.as_deref().map(Into::into),
            dst_node_ip,
            nat_outgoing: pools().any(|pool| pool.masquerade),
            local_workload: things.iter().any(|(_, (node, thing))| node == ME && *thing == Thing::Workload),
            tunnel_type,
            borrowed,
        }
    }

    /// The address of a node in the family of `dst`, and its network.
    fn address(&self, node: &str, dst: IpNet) -> Option<(IpAddr, IpNet)> {
        main_addresses(self.nodes.get(node)?)
            .into_iter()
            .find(|(address, _)| address.is_ipv4() == dst.addr().is_ipv4())
    }
}

fn pool_type(pool: &IpPool) -> IpPoolType {
    if pool.allowed_uses == [IPPoolAllowedUse::LoadBalancer] {
        return IpPoolType::None;
    }
    match (pool.vxlan_mode.as_str(), pool.ipip_mode.as_str()) {
        ("Always" | "CrossSubnet", _) => IpPoolType::Vxlan,
        (_, "Always" | "CrossSubnet") => IpPoolType::Ipip,
        _ => IpPoolType::NoEncap,
    }
}

fn main_addresses(node: &NodeText) -> Vec<(IpAddr, IpNet)> {
    let with_net = |text: &str| {
        let net: IpNet = text.parse().ok().or_else(|| text.parse().ok().map(|ip: IpAddr| IpNet::from(ip)))?;
        Some((net.addr(), net.trunc()))
    };
    if !node.ipv4.is_empty() || !node.ipv6.is_empty() {
        return [node.ipv4, node.ipv6].into_iter().filter_map(with_net).collect();
    }
    let listed: Vec<_> = [node.internal, node.external].into_iter().filter_map(with_net).collect();
    let first = |v4: bool| listed.iter().find(|(address, _)| address.is_ipv4() == v4).copied();
    first(true).into_iter().chain(first(false)).collect()
}

/// All addresses of a node; none if it has no main address.
fn own_addresses(node: &NodeText) -> Option<Vec<IpAddr>> {
    let mut own: Vec<IpAddr> = main_addresses(node).into_iter().map(|(address, _)| address).collect();
    if own.is_empty() {
        return None;
    }
    own.extend([node.internal, node.external].iter().filter_map(|text| text.parse::<IpAddr>().ok()));
    Some(own)
}

fn offset(first: IpAddr, ordinal: usize) -> IpNet {
    let ordinal = u32::try_from(ordinal).expect("blocks are small");
    match first {
        IpAddr::V4(first) => {
            IpNet::from(IpAddr::from(std::net::Ipv4Addr::from_bits(first.to_bits() + ordinal)))
        }
        IpAddr::V6(first) => {
            IpNet::from(IpAddr::from(std::net::Ipv6Addr::from_bits(first.to_bits() + u128::from(ordinal))))
        }
    }
}
