//! What is passed on almost as it is stored: pools, WireGuard peers, services, and the BGP settings that rules need.

use crate::sequencer::Sequencer;
use api::{BGPConfiguration, KubernetesService};
use ipnet::IpNet;
use messages::{GlobalBgpConfig, IpamPool, NodeName, Service, WireguardEndpoint, WireguardEndpointV6};
use model::feed::{IpPool, Wireguard};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What was sent already, if it is small enough to be kept.
#[derive(Debug, Default)]
pub(crate) struct Passthrough {
    pools: BTreeMap<IpNet, IpamPool>,
    bgp: Option<GlobalBgpConfig>,
}

impl Passthrough {
    /// Adds, changes or removes a pool.
    pub(crate) fn on_pool(&mut self, cidr: IpNet, pool: Option<&IpPool>, out: &mut Sequencer) {
        let Some(pool) = pool else {
            if self.pools.remove(&cidr).is_some() {
                out.pool_remove(cidr);
            }
            return;
        };
        let message = IpamPool {
            cidr,
            masquerade: pool.masquerade,
            ipip_mode: pool.ipip_mode.clone(),
            vxlan_mode: pool.vxlan_mode.clone(),
            allowed_uses: pool.allowed_uses.clone(),
        };
        if self.pools.get(&cidr) != Some(&message) {
            self.pools.insert(cidr, message.clone());
            out.pool_update(message);
        }
    }

    /// Changes or removes the global BGP settings.
    pub(crate) fn on_bgp_configuration(&mut self, config: Option<&BGPConfiguration>, out: &mut Sequencer) {
        let message = config.map(bgp_message).unwrap_or_default();
        if self.bgp.as_ref() != Some(&message) {
            self.bgp = Some(message.clone());
            out.global_bgp_config(message);
        }
    }
}

/// Adds, changes or removes a node's WireGuard devices. A device without a key counts as absent.
pub(crate) fn on_wireguard(node: &NodeName, value: Option<&Wireguard>, out: &mut Sequencer) {
    match value.filter(|value| !value.public_key.is_empty()) {
        Some(value) => {
            let interface_ipv4 = value.interface_ipv4.and_then(|address| match address {
                IpAddr::V4(address) => Some(address),
                IpAddr::V6(_) => None,
            });
            let endpoint = WireguardEndpoint { public_key: value.public_key.clone(), interface_ipv4 };
            out.wireguard_update(node.clone(), endpoint);
        }
        None => out.wireguard_remove(node),
    }
    match value.filter(|value| !value.public_key_v6.is_empty()) {
        Some(value) => {
            let interface_ipv6 = value.interface_ipv6.and_then(|address| match address {
                IpAddr::V6(address) => Some(address),
                IpAddr::V4(_) => None,
            });
            let endpoint = WireguardEndpointV6 { public_key: value.public_key_v6.clone(), interface_ipv6 };
            out.wireguard_v6_update(node.clone(), endpoint);
        }
        None => out.wireguard_v6_remove(node),
    }
}

/// Adds, changes or removes a service.
pub(crate) fn on_service(
    namespace: &str,
    name: &str,
    service: Option<&KubernetesService>,
    out: &mut Sequencer,
) {
    match service {
        Some(service) => out.service_update(service_message(namespace, name, service)),
        None => out.service_remove(namespace.into(), name.into()),
    }
}

fn service_message(namespace: &str, name: &str, service: &KubernetesService) -> Service {
    let spec = &service.spec;
    let ingress = service.status.load_balancer.ingress.iter();
    Service {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        service_type: spec.kind.clone(),
        cluster_ips: spec.cluster_ips.clone(),
        loadbalancer_ip: spec.load_balancer_ip.clone(),
        external_ips: spec.external_ips.clone(),
        loadbalancer_ingress_ips: ingress
            .filter(|ingress| !ingress.ip.is_empty())
            .map(|ingress| ingress.ip.clone())
            .collect(),
        ports: spec
            .ports
            .iter()
            .map(|port| {
                // As in Kubernetes itself, everything else is TCP.
                let protocol = match port.protocol.as_str() {
                    named @ ("UDP" | "SCTP") => named,
                    _ => "TCP",
                };
                (protocol.to_owned(), port.port, port.node_port)
            })
            .collect(),
    }
}

fn bgp_message(config: &BGPConfiguration) -> GlobalBgpConfig {
    let spec = &config.spec;
    let written = |cidr: &api::scalars::Cidr| Some(cidr.as_str().to_owned()).filter(|cidr| !cidr.is_empty());
    GlobalBgpConfig {
        service_cluster_cidrs: spec
            .service_cluster_ips
            .iter()
            .filter_map(|block| written(&block.cidr))
            .collect(),
        service_external_cidrs: spec
            .service_external_ips
            .iter()
            .filter_map(|block| written(&block.cidr))
            .collect(),
        service_loadbalancer_cidrs: spec
            .service_load_balancer_ips
            .iter()
            .filter_map(|block| written(&block.cidr))
            .collect(),
        local_workload_peering_ip_v4: spec.local_workload_peering_ipv4.as_str().to_owned(),
        local_workload_peering_ip_v6: spec.local_workload_peering_ipv6.as_str().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::fixtures::{flushed, from_json, pool};
    use messages::ToDataplane;
    use serde_json::json;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn pools() {
        let (mut parts, mut out) = (Passthrough::default(), Sequencer::default());
        let mut pool = pool("10.0.0.0/16", "Never", "CrossSubnet");
        pool.masquerade = true;
        parts.on_pool(pool.cidr, Some(&pool), &mut out);
        let message = IpamPool {
            cidr: pool.cidr,
            masquerade: true,
            ipip_mode: pool.ipip_mode.clone(),
            vxlan_mode: pool.vxlan_mode.clone(),
            allowed_uses: Vec::new(),
        };
        assert_eq!(flushed(&mut out), [ToDataplane::IpamPoolUpdate(message)]);
        pool.disabled = true;
        parts.on_pool(pool.cidr, Some(&pool), &mut out);
        assert_eq!(flushed(&mut out), [], "the dataplane does not care who takes addresses");
        parts.on_pool(pool.cidr, None, &mut out);
        assert_eq!(flushed(&mut out), [ToDataplane::IpamPoolRemove(pool.cidr)]);
    }

    #[test]
    fn bgp_settings() {
        let (mut parts, mut out) = (Passthrough::default(), Sequencer::default());
        let config: BGPConfiguration = from_json(json!({
            "kind": "BGPConfiguration", "apiVersion": "projectcalico.org/v3", "metadata": {"name": "default"},
            "spec": {
                "serviceClusterIPs": [{"cidr": "10.96.0.0/12"}, {}],
                "serviceExternalIPs": [{"cidr": "192.0.2.0/24"}, {"cidr": "2001:db8::/64"}],
                "serviceLoadBalancerIPs": [{"cidr": "198.51.100.0/24"}],
                "localWorkloadPeeringIPV4": "169.254.0.1",
                "nodeToNodeMeshEnabled": false
            }
        }));
        parts.on_bgp_configuration(Some(&config), &mut out);
        let message = GlobalBgpConfig {
            service_cluster_cidrs: vec!["10.96.0.0/12".into()],
            service_external_cidrs: vec!["192.0.2.0/24".into(), "2001:db8::/64".into()],
            service_loadbalancer_cidrs: vec!["198.51.100.0/24".into()],
            local_workload_peering_ip_v4: "169.254.0.1".into(),
            local_workload_peering_ip_v6: String::new(),
        };
        assert_eq!(flushed(&mut out), [ToDataplane::GlobalBgpConfig(message)]);
        parts.on_bgp_configuration(Some(&config), &mut out);
        assert_eq!(flushed(&mut out), []);
        parts.on_bgp_configuration(None, &mut out);
        assert_eq!(flushed(&mut out), [ToDataplane::GlobalBgpConfig(GlobalBgpConfig::default())]);
    }

    #[test]
    fn wireguard_devices_without_keys_are_none() {
        let mut out = Sequencer::default();
        let mut value = Wireguard {
            interface_ipv4: Some(Ipv4Addr::new(10, 65, 0, 9).into()),
            interface_ipv6: Some(Ipv6Addr::LOCALHOST.into()),
            public_key: "key4".into(),
            public_key_v6: String::new(),
        };
        on_wireguard(&"n".into(), Some(&value), &mut out);
        let v4 = WireguardEndpoint {
            public_key: "key4".into(),
            interface_ipv4: Some(Ipv4Addr::new(10, 65, 0, 9)),
        };
        assert_eq!(flushed(&mut out), [ToDataplane::WireguardUpdate("n".into(), v4)]);
        value.public_key.clear();
        value.public_key_v6 = "key6".into();
        on_wireguard(&"n".into(), Some(&value), &mut out);
        let v6 = WireguardEndpointV6 { public_key: "key6".into(), interface_ipv6: Some(Ipv6Addr::LOCALHOST) };
        assert_eq!(
            flushed(&mut out),
            [ToDataplane::WireguardRemove("n".into()), ToDataplane::WireguardV6Update("n".into(), v6)]
        );
        on_wireguard(&"n".into(), None, &mut out);
        assert_eq!(flushed(&mut out), [ToDataplane::WireguardV6Remove("n".into())]);
    }

    #[test]
    fn services() {
        let mut out = Sequencer::default();
        let service: KubernetesService = from_json(json!({
            "kind": "KubernetesService", "apiVersion": "projectcalico.org/v3",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "type": "LoadBalancer", "clusterIPs": ["10.96.0.7"], "loadBalancerIP": "192.0.2.7",
                "externalIPs": ["198.51.100.1"],
                "ports": [{"port": 80, "nodePort": 30080}, {"port": 53, "protocol": "UDP"}, {"port": 9, "protocol": "X"}]
            },
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.8"}, {"hostname": "lb"}]}}
        }));
        on_service("shop", "web", Some(&service), &mut out);
        let message = Service {
            namespace: "shop".into(),
            name: "web".into(),
            service_type: "LoadBalancer".into(),
            cluster_ips: vec!["10.96.0.7".into()],
            loadbalancer_ip: "192.0.2.7".into(),
            external_ips: vec!["198.51.100.1".into()],
            loadbalancer_ingress_ips: vec!["192.0.2.8".into()],
            ports: vec![("TCP".into(), 80, 30080), ("UDP".into(), 53, 0), ("TCP".into(), 9, 0)],
        };
        assert_eq!(flushed(&mut out), [ToDataplane::ServiceUpdate(message)]);
        on_service("shop", "web", None, &mut out);
        assert_eq!(flushed(&mut out), [ToDataplane::ServiceRemove("shop".into(), "web".into())]);
    }
}
