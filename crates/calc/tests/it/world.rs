//! A state of the datastore, and the changes that lead from one to another.

use api::{KubernetesEndpointSlice, Profile};
use model::feed::{EndpointPort, FeedEntry, FeedKey, NamespacedName, Protocol};
use model::v1::WorkloadEndpointKey;
use std::collections::BTreeMap;

/// Everything that is stored.
pub(crate) type World = BTreeMap<FeedKey, FeedEntry>;

/// Adds, replaces or removes an entry.
pub(crate) fn put(world: &mut World, entry: FeedEntry) {
    let key = entry.key().to_owned();
    if entry.is_gone() {
        world.remove(&key);
    } else {
        world.insert(key, entry);
    }
}

/// The entries that lead from one world to another, in the order of their keys.
pub(crate) fn difference(from: &World, to: &World) -> Vec<FeedEntry> {
    let gone = from.keys().filter(|key| !to.contains_key(*key)).map(|key| key.clone().gone());
    let come = to.iter().filter(|(key, entry)| from.get(*key) != Some(entry)).map(|(_, entry)| entry.clone());
    come.chain(gone).collect()
}

pub(crate) fn workload_key(host: &str, workload: &str) -> WorkloadEndpointKey {
    WorkloadEndpointKey {
        host: host.into(),
        orchestrator: "k8s".into(),
        workload: workload.into(),
        endpoint: "eth0".into(),
    }
}

pub(crate) fn profile(name: &str, labels: BTreeMap<String, String>) -> FeedEntry {
    let mut profile = Profile::default();
    profile.metadata.name = name.into();
    profile.spec.labels_to_apply = labels;
    FeedEntry::Profile(name.into(), Some(Box::new(profile)))
}

pub(crate) fn slice(
    namespace: &str,
    name: &str,
    service: &str,
    addresses: &[String],
    ports: &[(String, i32)],
) -> FeedEntry {
    let mut slice = KubernetesEndpointSlice::default();
    slice.metadata.name = name.into();
    slice.metadata.namespace = namespace.into();
    slice.metadata.labels.insert("kubernetes.io/service-name".into(), service.into());
    slice.spec.0.endpoints = addresses
        .iter()
        .map(|address| api::kubernetes::service::Endpoint {
            addresses: vec![address.clone()],
            ..Default::default()
        })
        .collect();
    slice.spec.0.ports = ports
        .iter()
        .map(|(protocol, port)| api::kubernetes::service::EndpointPort {
            protocol: Some(protocol.clone()),
            port: Some(*port),
            ..Default::default()
        })
        .collect();
    let key = NamespacedName { namespace: namespace.into(), name: name.into() };
    FeedEntry::EndpointSlice(key, Some(Box::new(slice)))
}

pub(crate) fn named_port(name: &str, protocol: &str, port: u16) -> EndpointPort {
    let protocol = protocol.parse().map_or_else(|_| named_protocol(protocol), Protocol::Number);
    EndpointPort { name: name.into(), protocol, port }
}

pub(crate) fn named_protocol(name: &str) -> Protocol {
    api::scalars::Protocol::from_name(name).try_into().expect("a protocol")
}
