//! `calicoctl bgp summary`: one line for each node.

use super::{Loaded, Row};
use bgp::NodeName;
use serde::Serialize;

/// A node.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Node {
    node: String,
    router_id: String,
    as_number: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    route_reflector_cluster: Option<String>,
    sessions: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    established: Option<i64>,
    blocks: usize,
    backend: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
}

impl Row for Node {
    const TITLES: &'static str =
        "NODE\tROUTER ID\tASN\tREFLECTOR\tSESSIONS\tESTABLISHED\tBLOCKS\tBACKEND\tPROBLEMS";

    fn line(&self) -> String {
        let Self { node, router_id, as_number, sessions, blocks, backend, problems, .. } = self;
        let reflector = self.route_reflector_cluster.as_deref().unwrap_or("");
        let established =
            self.established.map_or_else(|| "not reported".to_owned(), |count| count.to_string());
        let problems = problems.join("; ");
        format!(
            "{node}\t{router_id}\t{as_number}\t{reflector}\t{sessions}\t{established}\t{blocks}\t{backend}\t{problems}"
        )
    }
}

/// The line of a node.
pub(super) fn rows(loaded: &Loaded, node: &NodeName) -> Vec<Node> {
    let Ok(intent) = loaded.cluster.intent(node) else { return Vec::new() };
    let report = loaded.reports.get(node);
    let bgp =
        report.map(|status| &status.bgp).filter(|bgp| !bgp.peers_v4.is_empty() || !bgp.peers_v6.is_empty());
    let daemon = report.map(|status| &status.agent).map(|agent| {
        if agent.bird_v4.version.is_empty() { &agent.bird_v6.version } else { &agent.bird_v4.version }
    });
    // Secrets are not read here, so a missing password does not indicate a fault.
    let told =
        intent.problems.iter().filter(|problem| !matches!(problem, bgp::intent::Problem::Password { .. }));
    vec![Node {
        node: node.to_string(),
        router_id: intent.router_id.to_string(),
        as_number: intent.local_as.0,
        route_reflector_cluster: intent.cluster_id.map(|id| id.to_string()),
        sessions: intent.sessions().count(),
        established: bgp.map(|bgp| bgp.number_established_v4 + bgp.number_established_v6),
        blocks: intent.v4.export.blocks.len() + intent.v6.export.blocks.len(),
        backend: daemon.cloned().unwrap_or_default(),
        problems: told.map(ToString::to_string).collect(),
    }]
}
