//! Checks with `explain` that every recorded flow would be decided as it was, in a cluster of the ends of these flows
//! with only the recommended policies.

use super::Options;
use super::build::{Denied, DeniedAt, Policy, is_for};
use super::labels::Labelled;
use crate::flow::{self, Flow};
use crate::question::Views;
use explain::Cluster;
use flows::{Action, EndpointType, Peer};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The result of the check.
#[derive(Clone, Debug, Default)]
pub struct Verified {
    /// Flows that were recorded as allowed and stay so.
    pub allowed: usize,
    /// Flows that were recorded as denied and stay so.
    pub denied: usize,
    /// Flows that would be decided differently.
    pub differences: Vec<Difference>,
}

/// A flow that would be decided differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The flow.
    pub flow: String,
    /// Whether it was allowed.
    pub was_allowed: bool,
    /// Why it would be decided differently.
    pub reason: String,
}

/// Evaluates every flow.
#[must_use]
pub fn verify(flows: &[Flow], policies: &[Policy], labels: &Labelled, options: &Options) -> Verified {
    let mut made = Made::new(labels);
    for policy in policies {
        made.add(policy.to_enforced(options));
    }
    made.cluster.complete();
    let mut verified = Verified::default();
    verified.differences.extend(made.problems.iter().chain(made.cluster.problems()).map(|problem| {
        Difference { flow: "the recommendation".to_owned(), was_allowed: true, reason: problem.clone() }
    }));
    let views = Views::new(&made.cluster);
    let oracle = views.oracle();
    let unwanted = Denied::new(flows);
    for flow in flows.iter().filter(|flow| is_for(flow, options)) {
        let was_allowed = match flow.key.action {
            Action::Allow => unwanted.at(flow) == DeniedAt::Nowhere,
            Action::Deny => false,
            Action::Pass | Action::Unspecified => continue,
        };
        let (Some(from), Some(to)) = (made.name(&flow.key.source), made.name(&flow.key.dest)) else {
            continue;
        };
        let (is_allowed, reason) = match oracle.allows(flow, from, to) {
            Ok(answer) if answer == was_allowed => (answer, String::new()),
            // The other end denies it, whatever this end does.
            Ok(true) if unwanted.at(flow) == DeniedAt::OtherEnd => (false, String::new()),
            Ok(answer) => (answer, oracle.reason(flow, from, to).unwrap_or_default()),
            Err(error) => (!was_allowed, error.to_string()),
        };
        if is_allowed == was_allowed {
            *(if was_allowed { &mut verified.allowed } else { &mut verified.denied }) += 1;
        } else {
            verified.differences.push(Difference { flow: flow::connection_text(flow), was_allowed, reason });
        }
    }
    verified
}

/// A cluster of the ends of flows, with invented addresses.
struct Made {
    cluster: Cluster,
    names: BTreeMap<Peer, String>,
    problems: Vec<String>,
}

impl Made {
    fn new(labels: &Labelled) -> Self {
        let mut made = Self { cluster: Cluster::new(), names: BTreeMap::new(), problems: Vec::new() };
        for (number, peer) in (1_u32..).zip(labels.peers()) {
            let own: Map<String, Value> =
                labels.lasting(peer).into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
            let [_, b, c, d] = number.to_be_bytes();
            let calico = api::kind::API_VERSION;
            let (object, name) = match (peer.kind, flow::namespace(peer)) {
                (EndpointType::Workload | EndpointType::Unspecified, Some(namespace)) => (
                    json!({
                        "apiVersion": "v1", "kind": "Pod",
                        "metadata": {"namespace": namespace, "name": format!("p{number}"), "labels": own},
                        "spec": {"nodeName": format!("node-of-p{number}")},
                        "status": {"podIP": format!("100.{}.{c}.{d}", 64 + b)},
                    }),
                    format!("pod:{namespace}/p{number}"),
                ),
                (EndpointType::Host, _) => (
                    json!({
                        "apiVersion": calico, "kind": "HostEndpoint",
                        "metadata": {"name": format!("h{number}"), "labels": own},
                        "spec": {"node": format!("h{number}"), "interfaceName": "*", "expectedIPs": [format!("172.31.{c}.{d}")]},
                    }),
                    format!("node:h{number}"),
                ),
                (EndpointType::NetworkSet, namespace) => {
                    let kind = if namespace.is_some() { "NetworkSet" } else { "GlobalNetworkSet" };
                    let address = format!("198.18.{c}.{d}");
                    let mut metadata = json!({"name": format!("s{number}"), "labels": own});
                    if let Some(namespace) = namespace {
                        metadata["namespace"] = namespace.into();
                        // Rules find the set by its namespace, and that may contain no recorded pod.
                        made.add(
                            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
                        );
                    }
                    let set = json!({
                        "apiVersion": calico, "kind": kind, "metadata": metadata,
                        "spec": {"nets": [format!("{address}/32")]},
                    });
                    (set, address)
                }
                (EndpointType::Network, _) if &*peer.name == "pvt" => {
                    (Value::Null, "172.16.255.254".to_owned())
                }
                (EndpointType::Network, _) => (Value::Null, "203.0.113.254".to_owned()),
                _ => continue,
            };
            made.add(object);
            made.names.insert(peer.clone(), name);
        }
        made
    }

    fn add(&mut self, object: Value) {
        if let Err(error) = self.cluster.add_manifest(object) {
            self.problems.push(error.to_string());
        }
    }

    fn name(&self, peer: &Peer) -> Option<&str> {
        self.names.get(peer).map(String::as_str)
    }
}
