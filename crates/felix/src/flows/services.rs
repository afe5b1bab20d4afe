//! Services by the addresses and ports that clients connect to.

use api::KubernetesService;
use flows::{Service, Text};
use messages::HostMetadata;
use model::feed::NamespacedName;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

/// Address, port and protocol.
type Front = (IpAddr, u16, u8);

/// The keys of a service: fronts, and node ports.
type Places = (Vec<Front>, Vec<(u16, u8)>);

/// The services.
#[derive(Debug, Default)]
pub(super) struct Services {
    known: BTreeMap<NamespacedName, Places>,
    fronts: HashMap<Front, Service>,
    node_ports: HashMap<(u16, u8), Service>,
    /// The addresses of hosts.
    hosts: BTreeMap<Text, Vec<IpAddr>>,
    host_addresses: HashMap<IpAddr, usize>,
}

impl Services {
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn service(&mut self, name: &NamespacedName, service: Option<&KubernetesService>) {
        if let Some((fronts, node_ports)) = self.known.remove(name) {
            for front in fronts {
                self.fronts.remove(&front);
            }
            for port in node_ports {
                self.node_ports.remove(&port);
            }
        }
        let Some(service) = service else { return };
        let spec = &service.spec;
        let ingress = service.status.load_balancer.ingress.iter().map(|ingress| &ingress.ip);
        let texts =
            spec.cluster_ips.iter().chain(&spec.external_ips).chain([&spec.load_balancer_ip]).chain(ingress);
        // `None` and the like are not addresses.
        let addresses: Vec<IpAddr> = texts.filter_map(|text| text.parse().ok()).collect();
        let (mut fronts, mut node_ports) = (Vec::new(), Vec::new());
        for port in &spec.ports {
            let protocol = match port.protocol.as_str() {
                "UDP" => 17,
                "SCTP" => 132,
                _ => 6,
            };
            let value = Service {
                namespace: name.namespace.as_str().into(),
                name: name.name.as_str().into(),
                port_name: if port.name.is_empty() { "-".into() } else { port.name.as_str().into() },
                port: i64::from(port.port),
            };
            if let Ok(number) = u16::try_from(port.port) {
                for address in &addresses {
                    fronts.push((*address, number, protocol));
                    self.fronts.insert((*address, number, protocol), value.clone());
                }
            }
            if let Some(number) = u16::try_from(port.node_port).ok().filter(|number| *number != 0) {
                node_ports.push((number, protocol));
                self.node_ports.insert((number, protocol), value);
            }
        }
        self.known.insert(name.clone(), (fronts, node_ports));
    }

    /// Sets or removes a host's addresses.
    pub(super) fn host(&mut self, name: &str, host: Option<&HostMetadata>) {
        for address in self.hosts.remove(name).unwrap_or_default() {
            if let Some(count) = self.host_addresses.get_mut(&address) {
                *count -= 1;
                if *count == 0 {
                    self.host_addresses.remove(&address);
                }
            }
        }
        let Some(host) = host else { return };
        let address = |text: &String| text.split('/').next().and_then(|text| text.parse::<IpAddr>().ok());
        let addresses: Vec<IpAddr> =
            [&host.ipv4_addr, &host.ipv6_addr].into_iter().filter_map(address).collect();
        for address in &addresses {
            *self.host_addresses.entry(*address).or_default() += 1;
        }
        self.hosts.insert(name.into(), addresses);
    }

    /// The service of an address, or of a node port.
    pub(super) fn find(&self, address: IpAddr, port: u16, protocol: u8) -> Option<&Service> {
        self.fronts.get(&(address, port, protocol)).or_else(|| {
            let is_host = self.host_addresses.contains_key(&address);
            self.node_ports.get(&(port, protocol)).filter(|_| is_host)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_found_by_every_address_and_by_node_ports() {
        let service: KubernetesService = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "clusterIPs": ["10.96.0.1", "fd96::1"],
                "externalIPs": ["192.0.2.7"],
                "ports": [
                    {"name": "http", "protocol": "TCP", "port": 80, "nodePort": 30080},
                    {"protocol": "UDP", "port": 53},
                ],
            },
            "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.1"}]}},
        }))
        .unwrap();
        let name = NamespacedName { namespace: "shop".into(), name: "web".into() };
        let mut services = Services::default();
        services.service(&name, Some(&service));
        let host = HostMetadata { ipv4_addr: "10.9.0.1/24".into(), ..HostMetadata::default() };
        services.host("n1", Some(&host));
        let found = |services: &Services, address: &str, port, protocol| {
            services
                .find(address.parse().unwrap(), port, protocol)
                .map(|service| service.port_name.to_string())
        };
        for (address, port, protocol, expected) in [
            ("10.96.0.1", 80, 6, Some("http")),
            ("fd96::1", 80, 6, Some("http")),
            ("192.0.2.7", 80, 6, Some("http")),
            ("198.51.100.1", 80, 6, Some("http")),
            ("10.96.0.1", 53, 17, Some("-")),
            ("10.96.0.1", 80, 17, None),
            ("10.9.0.1", 30080, 6, Some("http")),
            ("10.9.0.2", 30080, 6, None),
        ] {
            assert_eq!(found(&services, address, port, protocol).as_deref(), expected, "{address} {port}");
        }
        services.host("n1", None);
        services.service(&name, None);
        assert_eq!(found(&services, "10.9.0.1", 30080, 6), None);
        assert!(services.fronts.is_empty() && services.node_ports.is_empty() && services.len() == 0);
    }
}
