//! Where eBPF programs serve services: routes that lead the host's own packets to services to `bpfout.cali`, where they
//! get a backend. Each route has the node's address as its source, whatever other addresses the host has.
//!
//! External addresses of services get no routes: a route covers all ports of an address, and other ports may belong to
//! another program.

use super::{Manager, News, World, host_address};
use crate::desired::Desired;
use ipnet::IpNet;
use messages::{HostMetadata, NodeName, Service};
use routing::routes::{RouteClass, RouteKey, Target, Way};
use rules::SERVICES_DEVICE;
use rules::tree::IpVersion;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

/// The gateways of the routes, as in Calico.
pub(crate) const GATEWAYS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(169, 254, 1, 1)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))];

/// The routes.
#[derive(Debug)]
pub(crate) struct ServiceRoutes {
    host: NodeName,
    /// Whether only UDP needs routes, because sockets choose backends for everything else.
    udp_only: bool,
    /// Networks that are left to the host.
    excluded: Vec<IpNet>,
    protocol: u8,
    services: BTreeMap<(String, String), BTreeSet<IpAddr>>,
    /// The number of services that have an address.
    counts: BTreeMap<IpAddr, usize>,
    /// The source addresses for IPv4 and IPv6.
    sources: [Option<IpAddr>; 2],
    changed: BTreeSet<IpAddr>,
}

impl ServiceRoutes {
    pub(crate) fn new(host: NodeName, udp_only: bool, excluded: Vec<IpNet>, protocol: u8) -> Self {
        Self {
            host,
            udp_only,
            excluded,
            protocol,
            services: BTreeMap::new(),
            counts: BTreeMap::new(),
            sources: [None; 2],
            changed: BTreeSet::new(),
        }
    }

    fn addresses(&self, service: &Service) -> BTreeSet<IpAddr> {
        if self.udp_only && !service.ports.iter().any(|(protocol, ..)| protocol == "UDP") {
            return BTreeSet::new();
        }
        let balancer = [&service.loadbalancer_ip].into_iter().chain(&service.loadbalancer_ingress_ips);
        // "None" is not an address.
        let all = service.cluster_ips.iter().chain(balancer).filter_map(|text| text.parse().ok());
        all.filter(|address| !self.excluded.iter().any(|net| net.contains(address))).collect()
    }

    fn update(&mut self, name: (String, String), service: Option<&Service>) {
        let new = service.map(|service| self.addresses(service)).unwrap_or_default();
        let old = match new.is_empty() {
            true => self.services.remove(&name),
            false => self.services.insert(name, new.clone()),
        };
        let old = old.unwrap_or_default();
        for address in new.difference(&old) {
            *self.counts.entry(*address).or_default() += 1;
            self.changed.insert(*address);
        }
        for address in old.difference(&new) {
            if let Some(count) = self.counts.get_mut(address) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(address);
                }
            }
            self.changed.insert(*address);
        }
    }

    fn node(&mut self, metadata: Option<&HostMetadata>) {
        let source = |version| metadata.and_then(|metadata| host_address(metadata, version));
        let sources = [source(IpVersion::V4), source(IpVersion::V6)];
        if std::mem::replace(&mut self.sources, sources) != sources {
            self.changed.extend(self.counts.keys());
        }
    }
}

impl Manager for ServiceRoutes {
    fn hear(&mut self, news: &News<'_>, _: Instant, _: &mut Desired) {
        match news {
            News::Service(namespace, name, service) => {
                self.update(((*namespace).to_owned(), (*name).to_owned()), *service);
            }
            News::Node(node, metadata) if **node == self.host => self.node(*metadata),
            _ => {}
        }
    }

    fn write(&mut self, _: &mut World, desired: &mut Desired) {
        for address in std::mem::take(&mut self.changed) {
            let (version, place) = match address {
                IpAddr::V4(_) => (IpVersion::V4, 0),
                IpAddr::V6(_) => (IpVersion::V6, 1),
            };
            let Some(one) = desired.of(version) else { continue };
            let target = self.counts.contains_key(&address).then(|| Target {
                protocol: Some(self.protocol),
                source: self.sources[place],
                ..Target::new(Way::Gateway(GATEWAYS[place]))
            });
            let key = RouteKey::new(address.into());
            one.routes.set(RouteClass::Service, Some(SERVICES_DEVICE.into()), key, target);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(addresses: &[&str], protocol: &str) -> Service {
        Service {
            namespace: "ns".into(),
            name: "one".into(),
            service_type: "ClusterIP".into(),
            cluster_ips: addresses.iter().map(|text| (*text).to_owned()).collect(),
            loadbalancer_ip: String::new(),
            external_ips: Vec::new(),
            loadbalancer_ingress_ips: Vec::new(),
            ports: vec![(protocol.to_owned(), 53, 0)],
        }
    }

    /// The addresses that have routes, according to the last change of each.
    fn routes(all: &mut ServiceRoutes, there: &mut BTreeSet<IpAddr>) -> Vec<String> {
        for address in std::mem::take(&mut all.changed) {
            match all.counts.contains_key(&address) {
                true => there.insert(address),
                false => there.remove(&address),
            };
        }
        there.iter().map(IpAddr::to_string).collect()
    }

    #[test]
    fn addresses_have_routes_for_as_long_as_a_service_has_them() {
        let excluded = vec!["10.96.9.0/24".parse().expect("a network")];
        let mut all = ServiceRoutes::new("n1".into(), true, excluded, 80);
        let mut there = BTreeSet::new();
        let name = |name: &str| ("ns".to_owned(), name.to_owned());
        all.update(name("a"), Some(&service(&["10.96.0.1", "fd96::1", "10.96.9.1", "None"], "UDP")));
        all.update(name("b"), Some(&service(&["10.96.0.1", "10.96.0.2"], "UDP")));
        all.update(name("c"), Some(&service(&["10.96.0.3"], "TCP")));
        assert_eq!(routes(&mut all, &mut there), ["10.96.0.1", "10.96.0.2", "fd96::1"]);
        all.update(name("a"), None);
        assert_eq!(routes(&mut all, &mut there), ["10.96.0.1", "10.96.0.2"], "another one has it");
        all.update(name("b"), Some(&service(&["10.96.0.2"], "TCP")));
        assert_eq!(routes(&mut all, &mut there), Vec::<String>::new());
        let host = HostMetadata { ipv4_addr: "192.0.2.1/24".into(), ..HostMetadata::default() };
        all.update(name("a"), Some(&service(&["10.96.0.1"], "UDP")));
        routes(&mut all, &mut there);
        all.node(Some(&host));
        assert_eq!(all.changed.len(), 1, "another source is another route");
        all.changed.clear();
        all.node(Some(&host));
        assert!(all.changed.is_empty());
    }
}
