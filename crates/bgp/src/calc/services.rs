//! The service networks and addresses that a node announces.

use crate::facts::{Facts, NodeFacts, ObjectName, Service, TrafficPolicy};
use crate::intent::Problem;
use crate::values::Prefix;
use api::scalars::Cidr;
use api::{EnabledOrDisabled, Written};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Nodes with this label announce no services.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// The configuration of services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceNetworks {
    pub(crate) cluster: Vec<Prefix>,
    pub(crate) external: Vec<Prefix>,
    pub(crate) load_balancer: Vec<Prefix>,
    pub(crate) aggregated: bool,
    /// Whether the node has the excluding label.
    pub(crate) excluded: bool,
    pub(crate) problems: Vec<Problem>,
}

impl ServiceNetworks {
    pub(crate) fn of(facts: &Facts, own: &NodeFacts) -> Self {
        let mut problems = Vec::new();
        let default = facts.default.as_deref();
        let mut parsed = |field: &str, cidrs: Vec<&Cidr>| -> Vec<Prefix> {
            let mut networks = Vec::new();
            for cidr in cidrs.into_iter().filter(|cidr| !cidr.is_empty()) {
                match cidr.parse() {
                    Ok(network) => networks.push(network.masked().into()),
                    Err(reason) => problems.push(Problem::Setting {
                        object: "BGPConfiguration default".to_owned(),
                        reason: format!("{field}: {reason}"),
                    }),
                }
            }
            networks
        };
        let named =
            facts.settings.advertise_cluster_ips.as_deref().filter(|text| !text.is_empty()).map(Cidr::new);
        let cluster = match (&named, default) {
            (Some(cidr), _) => parsed("CALICO_ADVERTISE_CLUSTER_IPS", vec![cidr]),
            (None, Some(spec)) => parsed(
                "serviceClusterIPs",
                spec.service_cluster_ips.iter().map(|block| &block.cidr).collect(),
            ),
            (None, None) => Vec::new(),
        };
        let (external, load_balancer) = default.map_or_else(Default::default, |spec| {
            (
                parsed(
                    "serviceExternalIPs",
                    spec.service_external_ips.iter().map(|block| &block.cidr).collect(),
                ),
                parsed(
                    "serviceLoadBalancerIPs",
                    spec.service_load_balancer_ips.iter().map(|block| &block.cidr).collect(),
                ),
            )
        });
        let aggregation =
            default.and_then(|spec| spec.service_load_balancer_aggregation.as_ref()).and_then(Written::known);
        Self {
            cluster,
            external,
            load_balancer,
            aggregated: aggregation != Some(EnabledOrDisabled::Disabled),
            excluded: own.labels.get(EXCLUDED).is_some_and(|value| value == "true"),
            problems,
        }
    }

    /// The networks that every node announces as a whole, and that no node programs: the ranges, but not single
    /// addresses outside the cluster, which belong to individual services.
    pub(crate) fn whole(&self) -> BTreeSet<Prefix> {
        let ranges = |networks: &[Prefix]| -> Vec<Prefix> {
            networks.iter().copied().filter(|network| !network.is_host()).collect()
        };
        let mut whole: BTreeSet<Prefix> = self.cluster.iter().copied().collect();
        whole.extend(ranges(&self.external));
        if self.aggregated {
            whole.extend(ranges(&self.load_balancer));
        }
        whole
    }

    /// The addresses of one service that this node announces individually.
    pub(crate) fn routes(&self, facts: &Facts, name: &ObjectName, service: &Service) -> BTreeSet<Prefix> {
        if !self.announces(facts, name, service) {
            return BTreeSet::new();
        }
        let mut addresses: Vec<IpAddr> = Vec::new();
        if !self.cluster.is_empty() {
            addresses.extend(&service.cluster_ips);
        }
        addresses.extend(service.external_ips.iter().filter(|ip| contains(&self.external, **ip)));
        addresses.extend(service.ingress_ips.iter().filter(|ip| contains(&self.load_balancer, **ip)));
        addresses.into_iter().map(Prefix::host).collect()
    }

    fn announces(&self, facts: &Facts, name: &ObjectName, service: &Service) -> bool {
        if self.excluded || !service.announceable {
            return false;
        }
        let Some(slices) = facts.slices.get(name) else { return false };
        // A single address is announced wherever the service may be served, just as its range would be.
        if service.policy == TrafficPolicy::Cluster && self.has_single_address(service) {
            return true;
        }
        let local = service.policy == TrafficPolicy::Local;
        if !local && self.aggregated {
            return false;
        }
        slices.values().any(|slice| {
            slice.family.is_some_and(|family| service.families.contains(&family))
                && if local {
                    slice.ready_nodes.contains(facts.settings.kubernetes_node())
                } else {
                    slice.any_ready
                }
        })
    }

    fn has_single_address(&self, service: &Service) -> bool {
        let single = |networks: &[Prefix], ip: IpAddr| {
            networks.iter().any(|network| network.is_host() && network.contains_address(ip))
        };
        let asked = service.load_balancer_ip.iter().chain(&service.ingress_ips);
        (service.load_balancer && asked.into_iter().any(|ip| single(&self.load_balancer, *ip)))
            || service.external_ips.iter().any(|ip| single(&self.external, *ip))
    }
}

fn contains(networks: &[Prefix], ip: IpAddr) -> bool {
    networks.iter().any(|network| network.contains_address(ip))
}
