//! Reads everything about BGP from the datastore.

use crate::context::{ConfigFlag, Context};
use crate::failure::Result;
use crate::version_gate::Access;
use api::{CalicoNodeStatusStatus, Kind, Resource};
use bgp::NodeName;
use bgp::explain::Cluster;
use client::ListQuery;
use model::{Key, ListOptions, Value};
use std::collections::BTreeMap;

/// The kinds that determine sessions.
const KINDS: [Kind; 5] = [Kind::Node, Kind::IPPool, Kind::BGPConfiguration, Kind::BGPPeer, Kind::BGPFilter];

pub(crate) struct Loaded {
    /// The objects that determine sessions.
    pub(crate) cluster: Cluster,
    /// The last reports of nodes, by node.
    pub(crate) reports: BTreeMap<NodeName, CalicoNodeStatusStatus>,
}

impl Loaded {
    /// Reads the objects and reports, and warns about what cannot be read.
    pub(crate) async fn load(context: &mut Context, config: &ConfigFlag) -> Result<Self> {
        let client = context.connect_for(config, Access::Read).await?;
        let mut cluster = Cluster::default();
        for kind in KINDS {
            let list = client.list_any(kind, &ListQuery::all()).await?;
            list.items.into_iter().for_each(|resource| cluster.add(resource));
            for entry in list.invalid {
                context.warn(&format!("Warning: {} cannot be read: {}", entry.key, entry.reason));
            }
        }
        let affinities = ListOptions::BlockAffinity { host: None, affinity_type: None, ip_version: None };
        for entry in client.backend().list(&affinities, None).await?.items {
            if let (Key::BlockAffinity(key), Value::BlockAffinity(affinity)) = (entry.key, entry.value) {
                cluster.add_affinity(key, affinity);
            }
        }
        let mut reports: BTreeMap<NodeName, CalicoNodeStatusStatus> = BTreeMap::new();
        for resource in client.list_any(Kind::CalicoNodeStatus, &ListQuery::all()).await?.items {
            if let Resource::CalicoNodeStatus(status) = resource {
                merge(&mut reports, status.spec.node.into(), status.status);
            }
        }
        Ok(Self { cluster, reports })
    }
}

/// Combines several reports of one node, which may cover different classes: for each part, the report that contains it
/// counts.
fn merge(
    reports: &mut BTreeMap<NodeName, CalicoNodeStatusStatus>,
    node: NodeName,
    status: CalicoNodeStatusStatus,
) {
    let known = reports.entry(node).or_default();
    if !status.agent.bird_v4.state.is_unset() || !status.agent.bird_v6.state.is_unset() {
        known.agent = status.agent;
    }
    if !status.bgp.peers_v4.is_empty() || !status.bgp.peers_v6.is_empty() {
        known.bgp = status.bgp;
    }
    if !status.routes.routes_v4.is_empty() || !status.routes.routes_v6.is_empty() {
        known.routes = status.routes;
    }
    known.last_updated = status.last_updated.or(known.last_updated.take());
}
