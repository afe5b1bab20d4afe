//! Endpoints of the cluster by their addresses.
//!
//! A removed endpoint is still found for a while: packets and figures of its last connections arrive after its removal.

use flows::collector::{End, EndKind};
use flows::pending::LocalEndpoint;
use flows::{Labels, Text};
use ipnet::IpNet;
use messages::WorkloadEndpointId;
use model::feed::{self, HostEndpoint, WorkloadEndpoint};
use model::v1::{HostEndpointKey, WorkloadEndpointKey};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

/// How long an endpoint is found after its removal, in seconds.
const MEMORY: i64 = 10;

/// The identity of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum EndpointKey {
    Workload(WorkloadEndpointKey),
    Host(HostEndpointKey),
}

#[derive(Debug)]
pub(super) struct Known {
    pub(super) end: End,
    /// The calculation's name of a local endpoint.
    pub(super) id: Option<LocalEndpoint>,
    addresses: Vec<IpAddr>,
    /// When it was removed; the time is filled in by the next tick.
    gone: Option<Option<i64>>,
}

/// The endpoints.
#[derive(Debug)]
pub(super) struct Endpoints {
    host: String,
    known: BTreeMap<EndpointKey, Known>,
    by_address: HashMap<IpAddr, BTreeSet<EndpointKey>>,
    gone: BTreeSet<EndpointKey>,
}

impl Endpoints {
    pub(super) fn new(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            known: BTreeMap::new(),
            by_address: HashMap::new(),
            gone: BTreeSet::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn workload(&mut self, key: &WorkloadEndpointKey, endpoint: Option<&WorkloadEndpoint>) {
        let name = EndpointKey::Workload(key.clone());
        let Some(endpoint) = endpoint else { return self.forget(name) };
        let is_local = *key.host == self.host;
        // Workloads of other orchestrators have no namespace.
        let (namespace, workload) = key.workload.split_once('/').unwrap_or(("-", &key.workload));
        let kind = EndKind::Workload {
            namespace: namespace.into(),
            name: workload.into(),
            generate_name: endpoint.generate_name.as_str().into(),
        };
        let id = is_local.then(|| {
            LocalEndpoint::Workload(WorkloadEndpointId {
                orchestrator: key.orchestrator.as_str().into(),
                workload: key.workload.as_str().into(),
                endpoint: key.endpoint.as_str().into(),
            })
        });
        let addresses = endpoint.ipv4_nets.iter().chain(&endpoint.ipv6_nets).map(IpNet::addr).collect();
        let end = End { kind, is_local, labels: labels(&endpoint.labels) };
        self.put(name, Known { end, id, addresses, gone: None });
    }

    pub(super) fn host(&mut self, key: &HostEndpointKey, endpoint: Option<&HostEndpoint>) {
        let name = EndpointKey::Host(key.clone());
        let Some(endpoint) = endpoint else { return self.forget(name) };
        let addresses =
            endpoint.expected_ipv4_addrs.iter().chain(&endpoint.expected_ipv6_addrs).copied().collect();
        let is_local = *key.host == self.host;
        let kind = EndKind::Host { host: key.host.as_str().into() };
        let id = is_local.then(|| LocalEndpoint::Host(key.endpoint.as_str().into()));
        let end = End { kind, is_local, labels: labels(&endpoint.labels) };
        self.put(name, Known { end, id, addresses, gone: None });
    }

    fn put(&mut self, key: EndpointKey, known: Known) {
        self.remove(&key);
        for address in &known.addresses {
            self.by_address.entry(*address).or_default().insert(key.clone());
        }
        self.known.insert(key, known);
    }

    fn forget(&mut self, key: EndpointKey) {
        if let Some(known) = self.known.get_mut(&key) {
            known.gone.get_or_insert(None);
            self.gone.insert(key);
        }
    }

    fn remove(&mut self, key: &EndpointKey) {
        self.gone.remove(key);
        let Some(known) = self.known.remove(key) else { return };
        for address in &known.addresses {
            if let Some(keys) = self.by_address.get_mut(address) {
                keys.remove(key);
                if keys.is_empty() {
                    self.by_address.remove(address);
                }
            }
        }
    }

    /// Forgets endpoints that have been gone for long enough.
    pub(super) fn tick(&mut self, now: i64) {
        let mut old = Vec::new();
        for key in &self.gone {
            let Some(known) = self.known.get_mut(key) else { continue };
            let since = known.gone.get_or_insert(None).get_or_insert(now);
            if now - *since >= MEMORY {
                old.push(key.clone());
            }
        }
        for key in old {
            self.remove(&key);
        }
    }

    /// The endpoint of an address: existing ones before removed ones, local ones before others, workloads before hosts.
    pub(super) fn find(&self, address: IpAddr) -> Option<&Known> {
        let keys = self.by_address.get(&address)?;
        let known = keys.iter().filter_map(|key| self.known.get(key));
        known.min_by_key(|known| (known.gone.is_some(), !known.end.is_local))
    }
}

pub(super) fn labels(labels: &feed::Labels) -> Labels {
    labels.iter().map(|(key, value)| Text::from(format!("{key}={value}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(host: &str, name: &str) -> WorkloadEndpointKey {
        WorkloadEndpointKey {
            host: host.into(),
            orchestrator: "k8s".into(),
            workload: format!("shop/{name}"),
            endpoint: "eth0".into(),
        }
    }

    fn endpoint(address: &str) -> WorkloadEndpoint {
        WorkloadEndpoint { ipv4_nets: vec![address.parse().unwrap()], ..WorkloadEndpoint::default() }
    }

    fn found(endpoints: &Endpoints, address: &str) -> Option<String> {
        endpoints.find(address.parse().unwrap()).map(|known| match &known.end.kind {
            EndKind::Workload { namespace, name, .. } => format!("{namespace}/{name}"),
            EndKind::Host { host } => format!("host {host}"),
            other => format!("{other:?}"),
        })
    }

    #[test]
    fn a_removed_endpoint_is_found_for_a_while_and_existing_ones_come_first() {
        let mut endpoints = Endpoints::new("n1");
        endpoints.workload(&key("n2", "old"), Some(&endpoint("10.0.0.1/32")));
        assert_eq!(found(&endpoints, "10.0.0.1").as_deref(), Some("shop/old"));
        endpoints.workload(&key("n2", "old"), None);
        assert_eq!(found(&endpoints, "10.0.0.1").as_deref(), Some("shop/old"));
        endpoints.tick(100);
        endpoints.workload(&key("n2", "young"), Some(&endpoint("10.0.0.1/32")));
        assert_eq!(found(&endpoints, "10.0.0.1").as_deref(), Some("shop/young"));
        endpoints.workload(&key("n1", "zero"), Some(&endpoint("10.0.0.1/32")));
        assert_eq!(found(&endpoints, "10.0.0.1").as_deref(), Some("shop/zero"), "the local one");
        endpoints.tick(109);
        assert_eq!(endpoints.len(), 3);
        endpoints.tick(110);
        assert_eq!(endpoints.len(), 2);
        // An endpoint that returns is not forgotten.
        endpoints.workload(&key("n1", "zero"), None);
        endpoints.tick(111);
        endpoints.workload(&key("n1", "zero"), Some(&endpoint("10.0.0.9/32")));
        endpoints.tick(200);
        assert_eq!(found(&endpoints, "10.0.0.9").as_deref(), Some("shop/zero"));
        assert_eq!(found(&endpoints, "10.0.0.1").as_deref(), Some("shop/young"));
    }

    #[test]
    fn hosts_are_found_by_their_addresses() {
        let mut endpoints = Endpoints::new("n1");
        let endpoint =
            HostEndpoint { expected_ipv6_addrs: vec!["fd00::1".parse().unwrap()], ..HostEndpoint::default() };
        let key = HostEndpointKey { host: "n1".into(), endpoint: "eth0".into() };
        endpoints.host(&key, Some(&endpoint));
        assert_eq!(found(&endpoints, "fd00::1").as_deref(), Some("host n1"));
        assert_eq!(found(&endpoints, "fd00::2"), None);
    }
}
