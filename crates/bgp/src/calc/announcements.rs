//! Derives announced and programmed routes from pools, blocks and configuration.

use crate::facts::{Facts, NodeFacts, PoolEncapsulation};
use crate::intent::{
    BlockState, CommunityRule, Encapsulation, Export, Kernel, OwnBlock, PoolRoutes, Problem, Programmer,
};
use crate::values::{Community, InterfacePattern, Prefix};
use api::{BGPConfigurationSpec, ProgramClusterRoutes, Written};
use model::IpVersion;
use model::NodeName;
use std::collections::BTreeMap;

/// Routes over these interfaces are never announced.
const LOCAL_INTERFACES: &str = "bpf*.cali";

/// The pools without VXLAN whose routes the BGP backend programs.
#[derive(Clone, Copy)]
struct Division {
    ipip: bool,
    no_encapsulation: bool,
}

impl Division {
    /// Unknown values of newer releases mean the default.
    fn of(default: Option<&BGPConfigurationSpec>) -> Self {
        let routes = default.and_then(|spec| spec.program_cluster_routes.as_ref()).and_then(Written::known);
        let (ipip, no_encapsulation) = match routes {
            Some(ProgramClusterRoutes::Disabled) => (false, false),
            Some(ProgramClusterRoutes::Enabled) => (true, true),
            Some(ProgramClusterRoutes::EnabledIPIPOnly) => (true, false),
            Some(ProgramClusterRoutes::EnabledNoEncapOnly) | None => (false, true),
        };
        Self { ipip, no_encapsulation }
    }
}

/// The pools of a family, each network once: two pools with one network are a mistake, and the first by name counts.
fn pools(facts: &Facts, version: IpVersion) -> BTreeMap<Prefix, (PoolEncapsulation, bool)> {
    let mut pools = BTreeMap::new();
    for pool in facts.pools.values().filter(|pool| pool.prefix.version() == version) {
        pools.entry(pool.prefix).or_insert((pool.encapsulation, pool.exported));
    }
    pools
}

/// The part of the export policy that depends on pools.
pub(crate) fn export_of_pools(facts: &Facts, version: IpVersion) -> Export {
    let mut export = Export::default();
    for (prefix, (_, exported)) in pools(facts, version) {
        if exported { export.pools.push(prefix) } else { export.withheld.push(prefix) }
    }
    export.tunnels = ["*.cali", "*.calico"].map(InterfacePattern::new).into();
    if !Division::of(facts.default.as_deref()).ipip {
        export.tunnels.push(InterfacePattern::new("tunl0"));
    }
    export.local = vec![InterfacePattern::new(LOCAL_INTERFACES)];
    export
}

/// The learned routes for the kernel, except those of services.
pub(crate) fn kernel(facts: &Facts, own_name: &NodeName, own: &NodeFacts, version: IpVersion) -> Kernel {
    let division = Division::of(facts.default.as_deref());
    let subnet = own.network(version);
    let mut kernel = Kernel { subnet, ..Kernel::default() };
    // Without an IPv4 network, near and far cannot be distinguished, and Calico ignores IPv4 pools altogether.
    if version == IpVersion::V6 || subnet.is_some() {
        kernel.pools = pools(facts, version)
            .into_iter()
            .map(|(prefix, (encapsulation, _))| {
                let programmer = match encapsulation {
                    PoolEncapsulation::Vxlan => Programmer::FelixVxlan,
                    PoolEncapsulation::None if division.no_encapsulation => {
                        Programmer::Bgp(Encapsulation::None)
                    }
                    PoolEncapsulation::IpIp if division.ipip => Programmer::Bgp(Encapsulation::IpIp),
                    PoolEncapsulation::IpIpCrossSubnet if division.ipip => {
                        Programmer::Bgp(Encapsulation::IpIpCrossSubnet)
                    }
                    _ => Programmer::Felix,
                };
                PoolRoutes { prefix, programmer }
            })
            .collect();
    }
    if own.has_wireguard(version) {
        let others = facts.nodes.iter().filter(|(name, _)| *name != own_name);
        kernel.wireguard = others
            .filter(|(_, node)| node.has_wireguard(version))
            .filter_map(|(_, node)| node.address(version))
            .collect();
    }
    kernel
}

/// The blocks of the node: those it claimed, or the one that Kubernetes assigned.
pub(crate) fn blocks(facts: &Facts, own: &NodeFacts, version: IpVersion) -> Vec<OwnBlock> {
    let mut blocks = BTreeMap::new();
    if facts.settings.use_pod_cidr {
        blocks.extend(own.pod_networks.iter().map(|network| (*network, BlockState::Confirmed)));
    } else {
        blocks.extend(facts.blocks.iter().map(|(prefix, state)| (*prefix, state.clone())));
    }
    blocks
        .into_iter()
        .filter(|(prefix, _)| prefix.version() == version)
        .map(|(prefix, state)| OwnBlock { prefix, state })
        .collect()
}

/// Communities by network. A node's own list replaces the global one, in both families.
pub(crate) fn communities(
    facts: &Facts,
    own_name: &NodeName,
    version: IpVersion,
    problems: &mut Vec<Problem>,
) -> Vec<CommunityRule> {
    let of_node =
        facts.node_configurations.get(own_name).filter(|spec| !spec.prefix_advertisements.is_empty());
    let (object, spec) = match (of_node, &facts.default) {
        (Some(spec), _) => (format!("BGPConfiguration node.{own_name}"), spec),
        (None, Some(spec)) => ("BGPConfiguration default".to_owned(), spec),
        (None, None) => return Vec::new(),
    };
    let mut rules = Vec::new();
    for advertisement in &spec.prefix_advertisements {
        let Ok(network) = advertisement.cidr.parse() else {
            let reason = format!("prefixAdvertisements: '{}' is not a network", advertisement.cidr);
            problems.push(Problem::Setting { object: object.clone(), reason });
            continue;
        };
        let prefix = Prefix::new(network.masked());
        if prefix.version() != version {
            continue;
        }
        let mut communities: BTreeMap<String, Community> = BTreeMap::new();
        for text in &advertisement.communities {
            let named = spec.communities.iter().find(|community| community.name == *text);
            let value = named.map_or(text, |community| &community.value);
            match value.parse() {
                Ok(community) => drop(communities.insert(value.clone(), community)),
                Err(_) => problems.push(Problem::Setting {
                    object: object.clone(),
                    reason: format!("community '{text}' of {prefix} is neither defined nor a value"),
                }),
            }
        }
        if !communities.is_empty() {
            rules.push(CommunityRule { prefix, communities: communities.into_values().collect() });
        }
    }
    rules
}
