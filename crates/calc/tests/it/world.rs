//! A state of the datastore, and how to get from one to another.

use api::KubernetesEndpointSlice;
use api::scalars::Protocol;
use api::{Kind, Profile, Resource};
use model::feed::{Change, EndpointPort, FeedValue, Update};
use model::{Key, V1Key};
use std::collections::BTreeMap;

/// Everything that is stored.
pub(crate) type World = BTreeMap<Key, FeedValue>;

/// The updates that lead from one world to another, in the order of their keys.
pub(crate) fn difference(from: &World, to: &World) -> Vec<Update> {
    let gone = from
        .keys()
        .filter(|key| !to.contains_key(*key))
        .map(|key| update(key.clone(), None, Change::Deleted));
    let come = to.iter().filter(|(key, value)| from.get(*key) != Some(value)).map(|(key, value)| {
        let change = if from.contains_key(key) { Change::Updated } else { Change::New };
        update(key.clone(), Some(value.clone()), change)
    });
    come.chain(gone).collect()
}

pub(crate) fn update(key: Key, value: Option<FeedValue>, change: Change) -> Update {
    Update { key, value, revision: String::new(), change }
}

pub(crate) fn workload_key(host: &str, workload: &str) -> Key {
    Key::V1(V1Key::WorkloadEndpoint {
        host: host.into(),
        orchestrator: "k8s".into(),
        workload: workload.into(),
        endpoint: "eth0".into(),
    })
}

pub(crate) fn profile(name: &str, labels: BTreeMap<String, String>) -> (Key, FeedValue) {
    let mut profile = Profile::default();
    profile.metadata.name = name.into();
    profile.spec.labels_to_apply = labels;
    (Key::resource(Kind::Profile, "", name), FeedValue::Resource(Box::new(Resource::from(profile))))
}

pub(crate) fn slice(
    namespace: &str,
    name: &str,
    service: &str,
    addresses: &[String],
    ports: &[(String, i32)],
) -> (Key, FeedValue) {
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
    let key = Key::resource(Kind::KubernetesEndpointSlice, namespace, name);
    (key, FeedValue::Resource(Box::new(Resource::from(slice))))
}

pub(crate) fn named_port(name: &str, protocol: &str, port: u16) -> EndpointPort {
    let protocol = protocol.parse().map_or_else(|_| Protocol::from_name(protocol), Protocol::Number);
    EndpointPort { name: name.into(), protocol, port }
}
