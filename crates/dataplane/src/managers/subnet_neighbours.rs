//! Addresses inside the host's own subnets for which the host answers ARP or NDP requests, so that machines on the
//! subnet reach them without a route: those of its own workloads, and those of load balancers that [`NodeRing`] assigns
//! to this node. Only addresses of pools without encapsulation are included.
//!
//! The runner decides on which interfaces they are, and answers.

use super::{Manager, News, NodeRing, World, host_address};
use crate::desired::Desired;
use api::{IPIPMode, VXLANMode};
use ipnet::IpNet;
use messages::{
    HostMetadata, IpamPool, LiveMigrationRole, NodeName, Service, Text, WorkloadEndpoint, WorkloadEndpointId,
};
use rules::tree::IpVersion;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Instant;

/// The type of services that have external addresses.
const LOAD_BALANCER: &str = "LoadBalancer";

/// The addresses to answer for in one IP version.
#[derive(Debug)]
pub(crate) struct SubnetNeighbours {
    host: NodeName,
    version: IpVersion,
    workloads: BTreeMap<WorkloadEndpointId, Vec<IpAddr>>,
    /// Addresses of load balancers with their text, by which nodes agree on who answers.
    services: BTreeMap<(Text, Text), Vec<(String, IpAddr)>>,
    nodes: NodeRing,
    pools: BTreeSet<IpNet>,
    changed: bool,
}

impl SubnetNeighbours {
    /// A manager that knows nothing yet.
    #[must_use]
    pub(crate) fn new(host: NodeName, version: IpVersion) -> Self {
        Self {
            host,
            version,
            workloads: BTreeMap::new(),
            services: BTreeMap::new(),
            nodes: NodeRing::default(),
            pools: BTreeSet::new(),
            changed: true,
        }
    }

    /// Records a workload of this host that is new, changed, or gone. For one that moves away the other side answers.
    fn update_workload(&mut self, id: &WorkloadEndpointId, endpoint: Option<&WorkloadEndpoint>) {
        let endpoint = endpoint.filter(|one| one.live_migration_role != LiveMigrationRole::Source);
        let nets = endpoint.map(|endpoint| match self.version {
            IpVersion::V4 => &endpoint.ipv4_nets,
            IpVersion::V6 => &endpoint.ipv6_nets,
        });
        let addresses: Vec<IpAddr> = nets.into_iter().flatten().map(IpNet::addr).collect();
        let old = match addresses.is_empty() {
            true => self.workloads.remove(id),
            false => self.workloads.insert(id.clone(), addresses.clone()),
        };
        self.changed |= old.unwrap_or_default() != addresses;
    }

    /// Records a new or changed service.
    fn update_service(&mut self, service: &Service) {
        let texts = service.loadbalancer_ingress_ips.iter().chain([&service.loadbalancer_ip]);
        let addresses: Vec<(String, IpAddr)> = texts
            .filter(|_| service.service_type == LOAD_BALANCER)
            .filter_map(|text| Some((text.clone(), text.parse::<IpAddr>().ok()?.to_canonical())))
            .filter(|(_, address)| IpVersion::of(&IpNet::from(*address)) == self.version)
            .collect();
        let key = (service.namespace.as_str().into(), service.name.as_str().into());
        let old = match addresses.is_empty() {
            true => self.services.remove(&key),
            false => self.services.insert(key, addresses.clone()),
        };
        self.changed |= old.unwrap_or_default() != addresses;
    }

    /// Records the removal of a service.
    fn remove_service(&mut self, namespace: &str, name: &str) {
        self.changed |= self.services.remove(&(namespace.into(), name.into())).is_some();
    }

    /// Records a node that is new, changed, or gone. A node without an address of this version answers for no address.
    fn update_node(&mut self, node: &NodeName, metadata: Option<&HostMetadata>) {
        let address = metadata.and_then(|metadata| host_address(metadata, self.version));
        self.changed |= self.nodes.set(node, address.is_some());
    }

    /// Records a pool that is new, changed, or gone.
    fn update_pool(&mut self, cidr: IpNet, pool: Option<&IpamPool>) {
        let plain = |pool: &IpamPool| {
            matches!(pool.ipip_mode, IPIPMode::Never) && matches!(pool.vxlan_mode, VXLANMode::Never)
        };
        self.changed |= match pool.is_some_and(plain) && IpVersion::of(&cidr) == self.version {
            true => self.pools.insert(cidr),
            false => self.pools.remove(&cidr),
        };
    }

    /// The addresses to answer for.
    fn addresses(&self) -> BTreeSet<IpAddr> {
        let own = self.workloads.values().flatten().copied();
        let balanced = self.services.values().flatten();
        let balanced = balanced.filter(|(text, _)| self.nodes.owner(text) == Some(&self.host));
        own.chain(balanced.map(|(_, address)| *address))
            .filter(|address| self.pools.iter().any(|pool| pool.contains(address)))
            .collect()
    }
}

impl Manager for SubnetNeighbours {
    fn hear(&mut self, news: &News<'_>, _: Instant, _: &mut Desired) {
        match *news {
            News::Workload(id, endpoint) => self.update_workload(id, endpoint.map(|one| &**one)),
            News::Service(_, _, Some(service)) => self.update_service(service),
            News::Service(namespace, name, None) => self.remove_service(namespace, name),
            News::Node(node, metadata) => self.update_node(node, metadata),
            News::Pool(cidr, pool) => self.update_pool(*cidr, pool),
            _ => {}
        }
    }

    fn write(&mut self, _: &mut World, desired: &mut Desired) {
        if let Some(desired) = desired.of(self.version).filter(|_| std::mem::take(&mut self.changed)) {
            desired.answered = Some(self.addresses());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SubnetNeighbours;
    use api::{IPIPMode, VXLANMode};
    use ipnet::IpNet;
    use messages::{
        HostMetadata, IpamPool, LiveMigrationRole, Service, WorkloadEndpoint, WorkloadEndpointId,
    };
    use rules::tree::IpVersion;

    fn net(text: &str) -> IpNet {
        text.parse().expect("a network")
    }

    fn pool(cidr: &str, ipip_mode: IPIPMode, vxlan_mode: VXLANMode) -> IpamPool {
        IpamPool { cidr: net(cidr), masquerade: false, ipip_mode, vxlan_mode, allowed_uses: vec![] }
    }

    fn id(name: &str) -> WorkloadEndpointId {
        WorkloadEndpointId { orchestrator: "k8s".into(), workload: name.into(), endpoint: "eth0".into() }
    }

    fn workload(address: &str, role: LiveMigrationRole) -> WorkloadEndpoint {
        let nets = vec![net(address)];
        let (ipv4_nets, ipv6_nets) = if nets[0].addr().is_ipv4() { (nets, vec![]) } else { (vec![], nets) };
        WorkloadEndpoint { ipv4_nets, ipv6_nets, live_migration_role: role, ..WorkloadEndpoint::default() }
    }

    fn service(name: &str, service_type: &str, asked: &str, got: &[&str]) -> Service {
        Service {
            namespace: "shop".into(),
            name: name.into(),
            service_type: service_type.into(),
            cluster_ips: vec!["10.65.0.250".into()],
            loadbalancer_ip: asked.into(),
            external_ips: vec!["10.65.0.251".into()],
            loadbalancer_ingress_ips: got.iter().map(|text| (*text).to_owned()).collect(),
            ports: vec![],
        }
    }

    fn node(address: &str) -> HostMetadata {
        HostMetadata { ipv4_addr: address.into(), ..HostMetadata::default() }
    }

    /// The addresses answered for; "unchanged" if nothing changed.
    fn wanted(all: &mut SubnetNeighbours) -> String {
        if !std::mem::take(&mut all.changed) {
            return "unchanged".to_owned();
        }
        all.addresses().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn workloads_of_unencapsulated_pools_in_a_subnet_are_answered_for() {
        let mut all = SubnetNeighbours::new("n1".into(), IpVersion::V4);
        assert_eq!(wanted(&mut all), "");
        all.update_workload(&id("a"), Some(&workload("10.65.0.7/32", LiveMigrationRole::None)));
        all.update_workload(&id("b"), Some(&workload("10.65.1.8/32", LiveMigrationRole::Target)));
        all.update_workload(&id("c"), Some(&workload("10.67.0.9/32", LiveMigrationRole::None)));
        all.update_workload(&id("d"), Some(&workload("fd00:65::7/128", LiveMigrationRole::None)));
        assert_eq!(wanted(&mut all), "", "no pool is known");
        for (modes, expected) in [
            ((IPIPMode::Never, VXLANMode::Never), "10.65.0.7 10.65.1.8"),
            ((IPIPMode::CrossSubnet, VXLANMode::Never), ""),
            ((IPIPMode::Never, VXLANMode::Never), "10.65.0.7 10.65.1.8"),
            ((IPIPMode::Never, VXLANMode::Always), ""),
            ((IPIPMode::Never, VXLANMode::Never), "10.65.0.7 10.65.1.8"),
        ] {
            all.update_pool(net("10.64.0.0/15"), Some(&pool("10.64.0.0/15", modes.0, modes.1)));
            assert_eq!(wanted(&mut all), expected);
        }
        all.update_workload(&id("a"), Some(&workload("10.65.0.7/32", LiveMigrationRole::None)));
        assert_eq!(wanted(&mut all), "unchanged");
        all.update_workload(&id("a"), Some(&workload("10.65.0.7/32", LiveMigrationRole::Source)));
        assert_eq!(wanted(&mut all), "10.65.1.8", "it moves away");
        all.update_workload(&id("b"), None);
        assert_eq!(wanted(&mut all), "");
        all.update_pool(net("10.64.0.0/15"), None);
        assert_eq!(wanted(&mut all), "");
    }

    #[test]
    fn ipv6_addresses_are_separate() {
        let mut all = SubnetNeighbours::new("n1".into(), IpVersion::V6);
        all.update_pool(net("fd00:65::/48"), Some(&pool("fd00:65::/48", IPIPMode::Never, VXLANMode::Never)));
        all.update_pool(net("10.64.0.0/15"), Some(&pool("10.64.0.0/15", IPIPMode::Never, VXLANMode::Never)));
        all.update_workload(&id("a"), Some(&workload("10.65.0.7/32", LiveMigrationRole::None)));
        all.update_workload(&id("d"), Some(&workload("fd00:65::7/128", LiveMigrationRole::None)));
        assert_eq!(wanted(&mut all), "fd00:65::7");
    }

    #[test]
    fn each_load_balancer_has_one_node() {
        let mut nodes = ["n1", "n2", "n3"].map(|name| SubnetNeighbours::new(name.into(), IpVersion::V4));
        let addresses: Vec<String> = (100..140).map(|number| format!("10.65.0.{number}")).collect();
        let texts: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let mut answered = 0;
        for one in &mut nodes {
            one.update_pool(
                net("10.65.0.0/24"),
                Some(&pool("10.65.0.0/24", IPIPMode::Never, VXLANMode::Never)),
            );
            one.update_service(&service("web", "LoadBalancer", "10.65.0.99", &texts));
            one.update_service(&service("in", "ClusterIP", "10.65.0.98", &["10.65.0.97"]));
            assert_eq!(wanted(one), "", "no node is known");
            for name in ["n1", "n2", "n3"] {
                one.update_node(&name.into(), Some(&node("10.65.0.1/24")));
            }
            one.update_node(&"n4".into(), Some(&node("")));
            let wanted = wanted(one);
            assert!(!wanted.contains("10.65.0.98") && !wanted.contains("10.65.0.97"));
            answered += wanted.matches("10.65.").count();
        }
        assert_eq!(answered, 41, "all, and each once");
        let [mut one, ..] = nodes;
        for gone in ["n2", "n3"] {
            one.update_node(&gone.into(), None);
        }
        assert_eq!(wanted(&mut one).matches("10.65.").count(), 41, "no other node is left");
        one.update_service(&service("web", "NodePort", "10.65.0.99", &texts));
        assert_eq!(wanted(&mut one), "");
        one.update_service(&service("web", "LoadBalancer", "", &["10.65.0.7", "fd00:65::7", "name"]));
        assert_eq!(wanted(&mut one), "10.65.0.7");
        one.remove_service("shop", "other");
        assert_eq!(wanted(&mut one), "unchanged");
        one.remove_service("shop", "web");
        assert_eq!(wanted(&mut one), "");
    }
}
