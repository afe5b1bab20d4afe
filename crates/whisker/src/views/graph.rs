//! The service graph: workloads in their namespaces, and the traffic between them. Bounded: when there are more
//! workloads than the graph may show, each namespace is shown as one node.

use super::traffic::{Fates, traffic};
use crate::source::Flow;
use crate::wire;
use flows::{EndpointType, Peer};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of ports named per edge.
const MOST_PORTS: usize = 8;

/// What a node of the graph stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Level {
    /// Workloads if they are few enough, otherwise namespaces.
    #[default]
    Auto,
    /// Workloads.
    Workload,
    /// Namespaces, except open ones.
    Namespace,
}

/// A request for a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GraphQuery {
    /// What a node stands for.
    pub(crate) level: Level,
    /// Namespaces whose workloads are always shown.
    pub(crate) open: BTreeSet<String>,
    /// The maximum number of nodes. Those with the least traffic are left out, and counted.
    pub(crate) most: usize,
}

/// The graph, for the page.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Graph {
    nodes: Vec<Node>,
    edges: Vec<Edge>,
    /// Whether namespaces are shown instead of their workloads.
    collapsed: bool,
    /// How many nodes did not fit.
    left_out: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Node {
    namespace: String,
    /// Empty for a namespace shown as one node.
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Edge {
    /// Indexes in the list of nodes.
    from: usize,
    to: usize,
    #[serde(flatten)]
    fates: Fates,
    ports: Vec<String>,
}

/// Ports in order, as text.
type Ports = BTreeSet<(i64, String)>;

/// Builds the graph of some flows.
#[must_use]
pub(crate) fn graph(flows: &[Flow], query: &GraphQuery) -> Graph {
    let traffic = traffic(flows);
    let all = |is_collapsed: bool| -> BTreeSet<Node> {
        let peers = traffic.iter().flat_map(|traffic| [&traffic.source, &traffic.dest]);
        peers.map(|peer| node(peer, is_collapsed, &query.open)).collect()
    };
    let collapsed = match query.level {
        Level::Workload => false,
        Level::Namespace => true,
        Level::Auto => all(false).len() > query.most,
    };
    let mut weights: BTreeMap<Node, u64> = all(collapsed).into_iter().map(|node| (node, 0)).collect();
    let mut edges: BTreeMap<(Node, Node), (Fates, Ports)> = BTreeMap::new();
    for one in &traffic {
        let [from, to] = [&one.source, &one.dest].map(|peer| node(peer, collapsed, &query.open));
        for end in [&from, &to] {
            // A denied packet weighs as much as a mebibyte of allowed traffic.
            let weight = one.fates.allow.bytes.saturating_add(one.fates.deny.packets.saturating_mul(1 << 20));
            weights.entry(end.clone()).and_modify(|sum| *sum = sum.saturating_add(weight));
        }
        let (fates, ports) = edges.entry((from, to)).or_default();
        fates.add(&one.fates);
        ports.insert((one.port, format!("{}/{}", one.protocol, one.port)));
    }
    let mut kept: Vec<(&Node, u64)> = weights.iter().map(|(node, weight)| (node, *weight)).collect();
    kept.sort_by(|(one, heavy), (two, other)| other.cmp(heavy).then(one.cmp(two)));
    let left_out = kept.len().saturating_sub(query.most);
    kept.truncate(query.most);
    let mut nodes: Vec<Node> = kept.into_iter().map(|(node, _)| node.clone()).collect();
    nodes.sort();
    let edges = edges.into_iter().filter_map(|((from, to), (fates, ports))| {
        let [from, to] = [from, to].map(|end| nodes.binary_search(&end).ok());
        let ports = ports.into_iter().map(|(_, port)| port).take(MOST_PORTS).collect();
        Some(Edge { from: from?, to: to?, fates, ports })
    });
    let edges = edges.collect();
    Graph { nodes, edges, collapsed, left_out }
}

fn node(peer: &Peer, is_collapsed: bool, open: &BTreeSet<String>) -> Node {
    let namespace = wire::namespace(&peer.namespace);
    // Peers without a namespace are few: networks, hosts, global sets.
    let stays = !is_collapsed || namespace == wire::GLOBAL || open.contains(namespace);
    Node {
        namespace: namespace.to_owned(),
        name: if stays { wire::name(&peer.name).to_owned() } else { String::new() },
        kind: if stays { peer.kind.as_str() } else { EndpointType::Unspecified.as_str() },
    }
}
