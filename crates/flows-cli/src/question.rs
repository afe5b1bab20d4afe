//! Flows as queries to `explain`: the decision at the end that reports a flow.
//!
//! The other end's policies must not interfere, so each direction is evaluated in a copy of the cluster where the other
//! direction is open.

use crate::flow::Flow;
use explain::{Cluster, Protocol, Query, QueryError, Verdict, World};
use flows::Direction;
use serde_json::json;

/// A tier before all others that allows everything in one direction.
const OPEN: &str = "open-for-questions";

/// A cluster, prepared for queries about either direction.
#[derive(Debug)]
pub struct Views {
    egress: Cluster,
    ingress: Cluster,
}

impl Views {
    /// Builds both views of a cluster.
    #[must_use]
    pub fn new(cluster: &Cluster) -> Self {
        Self { egress: with_open(cluster, "Ingress"), ingress: with_open(cluster, "Egress") }
    }

    /// The evaluator for these views.
    #[must_use]
    pub fn oracle(&self) -> Oracle<'_> {
        Oracle { egress: World::new(&self.egress), ingress: World::new(&self.ingress) }
    }
}

fn with_open(cluster: &Cluster, direction: &str) -> Cluster {
    let mut cluster = cluster.clone();
    let rules = direction.to_lowercase();
    let objects = [
        json!({
            "apiVersion": api::kind::API_VERSION, "kind": "Tier", "metadata": {"name": OPEN},
            "spec": {"order": -1e9, "defaultAction": "Pass"},
        }),
        json!({
            "apiVersion": api::kind::API_VERSION, "kind": "GlobalNetworkPolicy",
            "metadata": {"name": format!("{OPEN}.all")},
            "spec": {"tier": OPEN, "selector": "all()", "types": [direction], rules: [{"action": "Allow"}]},
        }),
    ];
    for object in objects {
        // This manifest is always readable; if it were not, answers would be stricter, never laxer.
        let _ = cluster.add_manifest(object);
    }
    cluster
}

/// Evaluates flows.
pub struct Oracle<'a> {
    egress: World<'a>,
    ingress: World<'a>,
}

impl Oracle<'_> {
    fn world(&self, flow: &Flow) -> &World<'_> {
        match flow.key.reporter.direction() {
            Direction::Egress => &self.egress,
            Direction::Ingress => &self.ingress,
        }
    }

    /// Whether a flow between these ends is allowed at the end that reports it.
    ///
    /// # Errors
    /// When an end is not in the cluster.
    pub fn allows(&self, flow: &Flow, from: &str, to: &str) -> Result<bool, QueryError> {
        Ok(self.world(flow).verdict(&query(flow, from, to))? == Verdict::Allow)
    }

    /// What decides a flow between these ends.
    ///
    /// # Errors
    /// When an end is not in the cluster.
    pub fn reason(&self, flow: &Flow, from: &str, to: &str) -> Result<String, QueryError> {
        let explanation = self.world(flow).explain(&query(flow, from, to))?;
        Ok(explanation.flows.first().map(|flow| flow.decided_by.clone()).unwrap_or_default())
    }
}

fn query(flow: &Flow, from: &str, to: &str) -> Query {
    let protocol = match &*flow.key.protocol {
        "icmp6" => Some(Protocol(58)),
        "ipip" => Some(Protocol(4)),
        "esp" => Some(Protocol(50)),
        text => Protocol::from_text(text),
    };
    Query {
        from: from.to_owned(),
        to: to.to_owned(),
        protocol,
        port: u16::try_from(flow.key.dest_port).ok(),
        ..Query::default()
    }
}
