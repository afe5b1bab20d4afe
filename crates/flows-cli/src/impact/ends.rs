//! Finds the ends of a flow in a cluster.

use crate::flow::{self, Flow};
use api::{Kind, Resource};
use explain::Cluster;
use flows::{EndpointType, Labels, Peer};
use ipnet::IpNet;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Addresses that represent any outside address, unless they belong to a set.
const PUBLIC: [&str; 4] = ["203.0.113.254", "198.51.100.254", "192.0.2.254", "198.19.255.254"];
const PRIVATE: [&str; 3] = ["172.31.255.254", "192.168.255.254", "10.255.255.254"];
/// The maximum number of addresses to try.
const MOST_ADDRESSES: usize = 32;

/// The possible ends in a cluster.
pub(super) struct Ends<'a> {
    cluster: &'a Cluster,
    pods: Vec<Pod<'a>>,
    /// Networks that rules name.
    named: BTreeSet<IpNet>,
    /// Addresses that flows do not report as outside.
    owned: BTreeSet<IpNet>,
}

struct Pod<'a> {
    namespace: &'a str,
    name: &'a str,
    labels: Vec<String>,
}

impl<'a> Ends<'a> {
    pub(super) fn new(cluster: &'a Cluster) -> Self {
        let (mut named, mut owned) = (BTreeSet::new(), BTreeSet::new());
        for resource in cluster.resources() {
            let Ok(value) = serde_json::to_value(resource) else { continue };
            match resource.kind() {
                Kind::NetworkSet | Kind::GlobalNetworkSet => nets(&value, &["nets"], &mut owned),
                Kind::WorkloadEndpoint => nets(&value, &["ipNetworks"], &mut owned),
                kind if kind.as_str().ends_with("NetworkPolicy") => {
                    nets(&value, &["nets", "notNets", "cidr", "except", "networks"], &mut named);
                }
                _ => {}
            }
        }
        Self { cluster, pods: pods(cluster), named, owned }
    }

    /// The possible pairs of ends: one, or one for each address to try.
    pub(super) fn pairs(&self, flow: &Flow) -> Result<Vec<(String, String)>, String> {
        let from = self.end(&flow.key.source, &flow.source_labels)?;
        let to = self.end(&flow.key.dest, &flow.dest_labels)?;
        Ok(from.iter().flat_map(|from| to.iter().map(move |to| (from.clone(), to.clone()))).collect())
    }

    fn end(&self, peer: &Peer, labels: &Labels) -> Result<Vec<String>, String> {
        match peer.kind {
            EndpointType::Workload => match find(&self.pods, peer, labels) {
                Some(pod) => Ok(vec![format!("pod:{}/{}", pod.namespace, pod.name)]),
                None => Err(format!("pod {} not found", flow::peer_text(peer))),
            },
            EndpointType::Host => Ok(vec![format!("node:{}", peer.name)]),
            EndpointType::NetworkSet => self.set(peer),
            EndpointType::Network => Ok(self.outside(&peer.name)),
            EndpointType::Unspecified => Err(format!("the type of {} is unknown", flow::peer_text(peer))),
        }
    }

    fn set(&self, peer: &Peer) -> Result<Vec<String>, String> {
        let (kind, namespace) = match flow::namespace(peer) {
            Some(namespace) => (Kind::NetworkSet, namespace),
            None => (Kind::GlobalNetworkSet, ""),
        };
        let found = self.cluster.get(kind, namespace, &peer.name);
        let mut own = BTreeSet::new();
        if let Some(Ok(value)) = found.map(serde_json::to_value) {
            nets(&value, &["nets"], &mut own);
        }
        let addresses: Vec<String> =
            own.iter().take(MOST_ADDRESSES).map(|net| first(*net).to_string()).collect();
        if addresses.is_empty() { Err(format!("{} not found", flow::peer_text(peer))) } else { Ok(addresses) }
    }

    /// Outside addresses of the given kind, without a known owner.
    fn outside(&self, name: &str) -> Vec<String> {
        let wants_private = name == "pvt";
        let usual = if wants_private { &PRIVATE[..] } else { &PUBLIC[..] };
        let usual = usual.iter().filter_map(|text| text.parse::<IpAddr>().ok());
        let named =
            self.named.iter().map(|net| first(*net)).filter(|address| is_private(*address) == wants_private);
        let free = usual.chain(named).filter(|address| {
            address.is_ipv4()
                && !address.is_unspecified()
                && !self.owned.iter().any(|net| net.contains(address))
        });
        free.take(MOST_ADDRESSES).map(|address| address.to_string()).collect()
    }
}

/// Restores deleted pods with the labels that their flows had; returns a note on each.
pub(super) fn put_back(flows: &[Flow], before: &mut Cluster, after: &mut Cluster) -> Vec<String> {
    let mut missing: BTreeMap<Peer, Labels> = BTreeMap::new();
    {
        let known = pods(after);
        for flow in flows {
            for (peer, labels) in
                [(&flow.key.source, &flow.source_labels), (&flow.key.dest, &flow.dest_labels)]
            {
                if peer.kind == EndpointType::Workload && find(&known, peer, labels).is_none() {
                    missing
                        .entry(peer.clone())
                        .and_modify(|known| *known = known.intersection(labels))
                        .or_insert_with(|| labels.clone());
                }
            }
        }
    }
    let mut notes = Vec::new();
    for (peer, labels) in &missing {
        let Some(namespace) = flow::namespace(peer) else { continue };
        let labels: Map<String, Value> =
            pairs(labels).map(|(key, value)| (key.to_owned(), value.into())).collect();
        let object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": namespace, "name": pod_name(peer), "labels": labels},
            "spec": {"nodeName": ""},
        });
        let added = before.add_manifest(object.clone()).and_then(|()| after.add_manifest(object));
        if added.is_ok() {
            notes.push(format!(
                "{} is not in the cluster; it is assumed with the labels of its flows",
                flow::peer_text(peer)
            ));
        }
    }
    before.complete();
    after.complete();
    notes
}

/// The name of a restored pod.
fn pod_name(peer: &Peer) -> String {
    match peer.name.strip_suffix('*') {
        Some(stem) => format!("{stem}gone"),
        None => peer.name.to_string(),
    }
}

fn pods(cluster: &Cluster) -> Vec<Pod<'_>> {
    let mut found: Vec<Pod<'_>> = cluster.resources().filter_map(pod).collect();
    found.sort_by(|one, two| (one.namespace, one.name).cmp(&(two.namespace, two.name)));
    found
}

fn pod(resource: &Resource) -> Option<Pod<'_>> {
    let Resource::WorkloadEndpoint(object) = resource else { return None };
    let name = if object.spec.pod.is_empty() { &object.spec.workload } else { &object.spec.pod };
    let labels = object.metadata.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    Some(Pod { namespace: &object.metadata.namespace, name, labels })
}

/// Finds a pod by name, or by the common part of the names that a controller generates, with the labels of the flow.
fn find<'p, 'a>(pods: &'p [Pod<'a>], peer: &Peer, labels: &Labels) -> Option<&'p Pod<'a>> {
    pods.iter().find(|pod| {
        *pod.namespace == *peer.namespace
            && match peer.name.strip_suffix('*') {
                Some(stem) => pod.name.starts_with(stem),
                None => *pod.name == *peer.name,
            }
            && pairs(labels)
                .all(|(key, value)| pod.labels.iter().any(|label| *label == format!("{key}={value}")))
    })
}

/// Labels that users set.
fn pairs(labels: &Labels) -> impl Iterator<Item = (&str, &str)> {
    let pairs = labels.texts().iter().filter_map(|text| text.split_once('='));
    pairs.filter(|(key, _)| !key.starts_with(api::words::OWN_PREFIX))
}

/// Collects the networks in these fields, at any depth.
fn nets(value: &Value, fields: &[&str], found: &mut BTreeSet<IpNet>) {
    let read =
        |text: &str| text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                match value {
                    Value::String(text) if fields.contains(&name.as_str()) => found.extend(read(text)),
                    Value::Array(items) if fields.contains(&name.as_str()) => {
                        found.extend(items.iter().filter_map(Value::as_str).filter_map(read));
                    }
                    other => nets(other, fields, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| nets(item, fields, found)),
        _ => {}
    }
}

/// The first usable address of a network.
fn first(net: IpNet) -> IpAddr {
    net.hosts().next().unwrap_or_else(|| net.addr())
}

/// Whether flow logs would report this address as private.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_private(),
        IpAddr::V6(_) => false,
    }
}
