//! Converts stored objects to facts. Anything that cannot be understood becomes a [`Problem`], never a guess.

use crate::facts::{
    NodeAddress, NodeFacts, ObjectName, PoolEncapsulation, PoolFacts, Service, Slice, TrafficPolicy,
};
use crate::intent::Problem;
use crate::values::{ClusterId, Prefix};
use api::kubernetes::service::{EndpointSliceContent, ServiceSpec, ServiceStatus};
use api::scalars::{Ip, IpOrCidr};
use api::{IPIPMode, IPPoolSpec, Node, VXLANMode};
use model::IpVersion;
use std::net::IpAddr;

/// The label of an endpoint slice that names its service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

pub(crate) fn node(node: &Node) -> NodeFacts {
    let mut facts = NodeFacts { labels: node.metadata.labels.clone(), ..NodeFacts::default() };
    let name = &node.metadata.name;
    let mut problem = |reason: String| {
        facts.problems.push(Problem::Setting { object: format!("Node {name}"), reason });
    };
    if let Some(bgp) = &node.spec.bgp {
        facts.v4 = node_address(&bgp.ipv4_address, IpVersion::V4, &mut problem);
        facts.v6 = node_address(&bgp.ipv6_address, IpVersion::V6, &mut problem);
        facts.as_number = bgp.as_number.map(Into::into);
        let id = &bgp.route_reflector_cluster_id;
        if !id.is_empty() {
            match id.parse() {
                Ok(IpAddr::V4(address)) => facts.cluster_id = Some(ClusterId(address)),
                Ok(IpAddr::V6(_)) | Err(_) => {
                    problem(format!("routeReflectorClusterID '{id}' is not an IPv4 address"));
                }
            }
        }
    }
    if let Some(wireguard) = &node.spec.wireguard {
        facts.wireguard_v4 = !wireguard.interface_ipv4_address.is_empty();
        facts.wireguard_v6 = !wireguard.interface_ipv6_address.is_empty();
    }
    facts.pod_networks = node
        .status
        .pod_cidrs
        .iter()
        .filter_map(|cidr| cidr.parse().ok())
        .map(|net| net.masked().into())
        .collect();
    facts
}

fn node_address(
    text: &IpOrCidr,
    version: IpVersion,
    problem: &mut impl FnMut(String),
) -> Option<NodeAddress> {
    if text.is_empty() {
        return None;
    }
    match text.parse() {
        Ok(network) if network.ip_version() == version.number() => {
            Some(NodeAddress { address: network.address(), network: network.masked().into() })
        }
        Ok(_) => {
            problem(format!("'{text}' is not an IPv{version} address"));
            None
        }
        Err(reason) => {
            problem(reason);
            None
        }
    }
}

/// A pool whose range cannot be read is ignored.
pub(crate) fn pool(spec: &IPPoolSpec) -> Option<PoolFacts> {
    let prefix = Prefix::new(spec.cidr.parse().ok()?.masked());
    let encapsulation = encapsulation(&spec.vxlan_mode, &spec.ipip_mode);
    Some(PoolFacts { prefix, encapsulation, exported: !spec.disable_bgp_export })
}

pub(crate) fn feed_pool(pool: &model::feed::IpPool) -> PoolFacts {
    let encapsulation = encapsulation(&pool.vxlan_mode, &pool.ipip_mode);
    PoolFacts { prefix: Prefix::new(pool.cidr), encapsulation, exported: !pool.disable_bgp_export }
}

fn encapsulation(vxlan: &VXLANMode, ipip: &IPIPMode) -> PoolEncapsulation {
    match (vxlan, ipip) {
        (VXLANMode::Always | VXLANMode::CrossSubnet, _) => PoolEncapsulation::Vxlan,
        (_, IPIPMode::Always) => PoolEncapsulation::IpIp,
        (_, IPIPMode::CrossSubnet) => PoolEncapsulation::IpIpCrossSubnet,
        _ => PoolEncapsulation::None,
    }
}

/// The part of a service that matters for BGP.
#[must_use]
pub fn service(spec: &ServiceSpec, status: &ServiceStatus) -> Service {
    let has_address = !spec.cluster_ip.is_empty() && spec.cluster_ip != "None";
    let known_type = matches!(spec.kind.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer");
    let ingress = status.load_balancer.ingress.iter().map(|ingress| &ingress.ip);
    Service {
        announceable: has_address && known_type,
        load_balancer: spec.kind == "LoadBalancer",
        policy: match spec.external_traffic_policy.as_str() {
            "Cluster" => TrafficPolicy::Cluster,
            "Local" => TrafficPolicy::Local,
            _ => TrafficPolicy::Unset,
        },
        cluster_ips: addresses(&spec.cluster_ips),
        external_ips: addresses(&spec.external_ips),
        load_balancer_ip: Ip::new(&spec.load_balancer_ip).parse().ok(),
        ingress_ips: addresses(ingress),
        families: spec.ip_families.iter().filter_map(|family| family_named(family)).collect(),
    }
}

/// The part of an endpoint slice that matters for BGP; `None` for one without a service.
#[must_use]
pub fn slice(metadata: &api::ObjectMeta, content: &EndpointSliceContent) -> Option<Slice> {
    let name = metadata.labels.get(SERVICE_NAME)?.clone();
    let service = ObjectName { namespace: metadata.namespace.clone(), name };
    // Ready by default, as Kubernetes defines it.
    let ready = || content.endpoints.iter().filter(|endpoint| endpoint.conditions.ready != Some(false));
    Some(Slice {
        service,
        family: family_named(&content.address_type),
        any_ready: ready().next().is_some(),
        ready_nodes: ready().filter_map(|endpoint| endpoint.node_name.clone()).collect(),
    })
}

fn family_named(name: &str) -> Option<IpVersion> {
    match name {
        "IPv4" => Some(IpVersion::V4),
        "IPv6" => Some(IpVersion::V6),
        _ => None,
    }
}

fn addresses<'a>(texts: impl IntoIterator<Item = &'a String>) -> Vec<IpAddr> {
    texts.into_iter().filter_map(|text| Ip::new(text).parse().ok()).collect()
}
