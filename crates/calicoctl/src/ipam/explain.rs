//! Explains in a sentence why an address is a problem, from the facts of the check. Nothing is judged here: the check
//! decides. Where the garbage collector would release the address, the sentence is the collector's own.

use super::report::Allocation;
use ipam_core::garbage::judge::judge_pod;
use ipam_core::garbage::{PodFact, PodState, Reason};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The known users of addresses.
#[derive(Debug, Default)]
pub(super) struct Knowledge {
    /// The nodes.
    pub(super) nodes: BTreeSet<String>,
    /// Pods that have an endpoint, by namespace and name.
    pub(super) pods: BTreeMap<(String, String), PodFacts>,
}

#[derive(Debug, Default)]
pub(super) struct PodFacts {
    pub(super) node: String,
    pub(super) addresses: Vec<IpAddr>,
}

impl Knowledge {
    /// Why an allocated address counts as leaked.
    pub(super) fn leaked(&self, allocation: &Allocation) -> String {
        let Allocation { pod, namespace, node, kind, handle, .. } = allocation;
        if let (false, Ok(address)) = (pod.is_empty(), allocation.ip.parse()) {
            let fact = match self.pods.get(&(namespace.clone(), pod.clone())) {
                None => PodFact::Absent,
                Some(facts) => PodFact::Present(PodState {
                    node: facts.node.clone(),
                    has_reported: true,
                    is_evicted: false,
                    addresses: Some(facts.addresses.clone()),
                }),
            };
            if let Some(reason) = judge_pod(namespace, pod, address, node, &fact) {
                return reason.to_string();
            }
        }
        if kind.ends_with("TunnelAddress") {
            return if self.nodes.contains(node) {
                format!("node {node} has another tunnel address now, or none of this type")
            } else {
                Reason::NodeGone { node: node.clone() }.to_string()
            };
        }
        if kind == "LoadBalancer" || handle.starts_with("lb-") {
            return "no service of type LoadBalancer has this address in its status".to_owned();
        }
        if handle.is_empty() {
            return "nothing is recorded about who took it, so the controllers never release it by themselves".to_owned();
        }
        if !node.is_empty() && !self.nodes.contains(node) {
            return format!("no workload endpoint and no node has it, and node {node} is not known");
        }
        "no workload endpoint and no node has it".to_owned()
    }

    /// The consequence of an address that is in use but not allocated.
    pub(super) fn not_allocated() -> &'static str {
        "it may be given away; recreate its user (for a node: restart its calico-node), or add an IPReservation"
    }

    /// The consequence of an address that is in use but in no pool.
    pub(super) fn in_no_pool() -> &'static str {
        "its pool was deleted or disabled, or another address management gave it out; its user should be recreated"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_leak_has_a_reason() {
        let mut knowledge = Knowledge { nodes: ["n1".to_owned()].into(), ..Knowledge::default() };
        let facts =
            PodFacts { node: "n1".to_owned(), addresses: vec!["10.0.0.9".parse().expect("an address")] };
        knowledge.pods.insert(("shop".to_owned(), "web".to_owned()), facts);
        // Pod, node, type, handle; the start of the reason.
        for (pod, node, kind, handle, reason) in [
            ("gone", "n1", "", "h", "pod shop/gone no longer exists"),
            ("web", "n1", "", "h", "pod shop/web uses 10.0.0.9"),
            ("web", "n2", "", "h", "pod shop/web now runs on node n1"),
            ("", "n1", "vxlanTunnelAddress", "h", "node n1 has another tunnel address"),
            ("", "n2", "ipipTunnelAddress", "h", "node n2 no longer exists"),
            ("", "", "", "lb-x", "no service"),
            ("", "n1", "", "", "nothing is recorded"),
            ("", "n2", "", "h", "no workload endpoint and no node has it, and node n2"),
            ("", "n1", "", "h", "no workload endpoint and no node has it"),
        ] {
            let allocation = Allocation {
                ip: "10.0.0.1".to_owned(),
                pod: pod.to_owned(),
                namespace: "shop".to_owned(),
                node: node.to_owned(),
                kind: kind.to_owned(),
                handle: handle.to_owned(),
                ..Allocation::default()
            };
            let text = knowledge.leaked(&allocation);
            assert!(text.starts_with(reason), "{text}");
        }
    }
}
