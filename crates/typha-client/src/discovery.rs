//! Where Typhas are, and in which order to try them.
//!
//! Either an address, or a Kubernetes service: then the ready endpoints of its slices, first those on this node, then
//! those in this zone, in random order within each group.

use kube_access::KubeAccess;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The name of Typha's port in its service.
pub const PORT_NAME: &str = "calico-typha";

/// How Typhas are found.
#[derive(Clone)]
pub enum Discovery {
    /// At this host and port.
    Address(String),
    /// Behind this service.
    Service {
        /// Access to the Kubernetes API.
        access: Box<KubeAccess>,
        /// The namespace.
        namespace: String,
        /// The service.
        name: String,
        /// This node; empty if unknown.
        node: String,
    },
}

/// Why no Typha was found.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// The address cannot be resolved.
    #[error("cannot find the Typha {address}: {source}")]
    Resolve {
        /// The address.
        address: String,
        /// The error of the resolver.
        source: std::io::Error,
    },
    /// The Kubernetes API returned an error or an unexpected answer.
    #[error("asking the Kubernetes API for {what}: {source}")]
    Kubernetes {
        /// What was requested.
        what: String,
        /// The error.
        source: Box<kube::Error>,
    },
    /// No endpoint is ready.
    #[error("the service {0} has no ready Typha")]
    Empty(String),
}

/// A Typha that could be tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The address on which it listens.
    pub address: SocketAddr,
    /// The node on which it runs.
    pub node: String,
    /// The zone in which it runs.
    pub zone: String,
}

impl Discovery {
    /// The searched address or service, for messages.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Address(address) => address.clone(),
            Self::Service { namespace, name, .. } => format!("service {namespace}/{name}"),
        }
    }

    /// Finds the Typhas, in the order in which to try them.
    ///
    /// # Errors
    /// When there is none, or they cannot be looked up.
    pub async fn find(&self) -> Result<Vec<SocketAddr>, DiscoveryError> {
        match self {
            Self::Address(address) => match tokio::net::lookup_host(address.as_str()).await {
                Ok(found) => Ok(found.collect()),
                Err(source) => Err(DiscoveryError::Resolve { address: address.clone(), source }),
            },
            Self::Service { access, namespace, name, node } => {
                let candidates = endpoints(access, namespace, name).await?;
                let zone = own_zone(access, &candidates, node).await;
                let ordered = ordered(candidates, node, &zone, |limit| {
                    usize::try_from(getrandom::u64().unwrap_or(0) % limit.max(1) as u64).unwrap_or(0)
                });
                if ordered.is_empty() {
                    return Err(DiscoveryError::Empty(format!("{namespace}/{name}")));
                }
                Ok(ordered)
            }
        }
    }
}

/// The zone of this node: that of a Typha on it, or else from Kubernetes, if there is more than one Typha to choose
/// from.
async fn own_zone(access: &KubeAccess, candidates: &[Candidate], node: &str) -> String {
    if node.is_empty() || candidates.iter().all(|one| one.zone == candidates[0].zone) {
        return String::new();
    }
    if let Some(here) = candidates.iter().find(|one| one.node == node && !one.zone.is_empty()) {
        return here.zone.clone();
    }
    match get::<NodeLabels>(access, &format!("/api/v1/nodes/{node}"), &format!("the node {node}")).await {
        Ok(node) => node.metadata.labels.unwrap_or_default().remove(ZONE_LABEL).unwrap_or_default(),
        Err(error) => {
            // Any Typha will do.
            tracing::debug!(error = %daemon::causes(&error), "the zone of this node is not known");
            String::new()
        }
    }
}

/// The label of a node that names its zone.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

#[derive(Deserialize)]
struct NodeLabels {
    #[serde(default)]
    metadata: LabelMetadata,
}

#[derive(Default, Deserialize)]
struct LabelMetadata {
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
}

/// The addresses in the order in which they are tried: this node, this zone, all others; shuffled within each group.
/// `below` returns a random number below its argument.
pub fn ordered(
    mut candidates: Vec<Candidate>,
    node: &str,
    zone: &str,
    mut below: impl FnMut(usize) -> usize,
) -> Vec<SocketAddr> {
    for place in (1..candidates.len()).rev() {
        candidates.swap(place, below(place + 1));
    }
    candidates.sort_by_key(|candidate| {
        if !node.is_empty() && candidate.node == node {
            0
        } else if !zone.is_empty() && candidate.zone == zone {
            1
        } else {
            2
        }
    });
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for candidate in candidates {
        if !addresses.contains(&candidate.address) {
            addresses.push(candidate.address);
        }
    }
    addresses
}

#[derive(Deserialize)]
struct SliceList {
    #[serde(default)]
    items: Vec<Slice>,
}

#[derive(Deserialize)]
struct Slice {
    #[serde(default)]
    endpoints: Option<Vec<Endpoint>>,
    #[serde(default)]
    ports: Option<Vec<Port>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Endpoint {
    #[serde(default)]
    addresses: Vec<String>,
    #[serde(default)]
    conditions: Conditions,
    #[serde(default)]
    node_name: Option<String>,
    #[serde(default)]
    zone: Option<String>,
}

#[derive(Default, Deserialize)]
struct Conditions {
    #[serde(default)]
    ready: Option<bool>,
}

#[derive(Deserialize)]
struct Port {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    port: Option<u16>,
}

async fn endpoints(
    access: &KubeAccess,
    namespace: &str,
    name: &str,
) -> Result<Vec<Candidate>, DiscoveryError> {
    Ok(candidates(slices(access, namespace, name).await?, PORT_NAME))
}

async fn slices(access: &KubeAccess, namespace: &str, name: &str) -> Result<SliceList, DiscoveryError> {
    let path = format!(
        "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3D{name}"
    );
    get(access, &path, &format!("the service {namespace}/{name}")).await
}

async fn get<T: serde::de::DeserializeOwned>(
    access: &KubeAccess,
    path: &str,
    what: &str,
) -> Result<T, DiscoveryError> {
    let failed = |source| DiscoveryError::Kubernetes { what: what.to_owned(), source: Box::new(source) };
    let request =
        http::Request::get(path).body(Vec::new()).map_err(|error| failed(kube::Error::HttpError(error)))?;
    access.client().request(request).await.map_err(failed)
}

/// The number of ready Typhas of the service, for those that share the load among them.
///
/// # Errors
/// When the Kubernetes API returns an error or an unexpected answer.
pub async fn count(
    access: &KubeAccess,
    namespace: &str,
    name: &str,
    port_name: &str,
) -> Result<usize, DiscoveryError> {
    Ok(candidates(slices(access, namespace, name).await?, port_name).len())
}

/// The number of nodes of the cluster.
///
/// # Errors
/// When the Kubernetes API returns an error or an unexpected answer.
pub async fn count_nodes(access: &KubeAccess) -> Result<usize, DiscoveryError> {
    // One item, and the count of the remaining ones: the nodes themselves are not needed.
    let list: NodeCount = get(access, "/api/v1/nodes?limit=1", "the nodes").await?;
    Ok(list.items.len() + list.metadata.remaining_item_count)
}

#[derive(Deserialize)]
struct NodeCount {
    #[serde(default)]
    items: Vec<serde::de::IgnoredAny>,
    #[serde(default)]
    metadata: ListMetadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    #[serde(default)]
    remaining_item_count: usize,
}

fn candidates(list: SliceList, port_name: &str) -> Vec<Candidate> {
    let mut found: Vec<Candidate> = Vec::new();
    for slice in list.items {
        let ports = slice.ports.unwrap_or_default();
        let port =
            ports.iter().find(|port| port.name.as_deref() == Some(port_name)).and_then(|port| port.port);
        let Some(port) = port else { continue };
        for endpoint in slice.endpoints.unwrap_or_default() {
            // Kubernetes leaves it out if unknown; such an endpoint is to be used.
            if endpoint.conditions.ready == Some(false) {
                continue;
            }
            for address in endpoint.addresses.iter().filter_map(|text| text.parse().ok()) {
                let candidate = Candidate {
                    address: SocketAddr::new(address, port),
                    node: endpoint.node_name.clone().unwrap_or_default(),
                    zone: endpoint.zone.clone().unwrap_or_default(),
                };
                if !found.contains(&candidate) {
                    found.push(candidate);
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_ones_first() {
        let candidate = |last: u8, node: &str, zone: &str| Candidate {
            address: SocketAddr::from(([10, 0, 0, last], 5473)),
            node: node.to_owned(),
            zone: zone.to_owned(),
        };
        let all = vec![
            candidate(1, "a", "z1"),
            candidate(2, "b", "z2"),
            candidate(3, "c", "z2"),
            candidate(4, "me", "z2"),
            candidate(4, "me", "z2"),
        ];
        for seed in 0..20 {
            let order: Vec<String> = ordered(all.clone(), "me", "z2", |limit| seed % limit)
                .iter()
                .map(|address| address.ip().to_string())
                .collect();
            assert_eq!(order.len(), 4);
            assert_eq!((order[0].as_str(), order[3].as_str()), ("10.0.0.4", "10.0.0.1"), "{order:?}");
        }
        let firsts: std::collections::BTreeSet<SocketAddr> =
            (0..20).map(|seed| ordered(all.clone(), "", "", |limit| seed * 7 % limit)[0]).collect();
        assert!(firsts.len() > 1, "not always the same one");
    }
}
