//! The state of pods, nodes and machines in the caches, in the terms of `ipam_core::garbage`.

use super::machines::{VirtualMachine, VirtualMachineInstance};
use crate::informer::kinds::{Node, Pod};
use crate::informer::{Informer, ObjectKey};
use api::scalars::IpOrCidr;
use ipam_core::garbage::{MachineFact, NodeFact, PodFact, PodState, World};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The label for the progress of migrating a node's network from flannel.
pub(crate) const MIGRATION_LABEL: &str = api::words::LABEL_MIGRATION_NETWORK;
/// Its value once the node's network is Calico's.
pub(crate) const MIGRATED: &str = "calico";

/// The state of a pod that decides about its addresses.
#[must_use]
pub(crate) fn pod_state(pod: &Pod) -> PodState {
    let has_no_network = pod.is_deleting && pod.is_emptied;
    let is_finished = has_no_network || matches!(&*pod.phase, "Failed" | "Succeeded" | "Completed");
    PodState {
        node: pod.node.to_string(),
        has_reported: pod.has_reported,
        is_evicted: &*pod.phase == "Failed" && &*pod.reason == "Evicted",
        addresses: if is_finished { Some(Vec::new()) } else { addresses(pod) },
    }
}

/// The addresses of the pod's endpoint; `None` if one of them cannot be parsed.
fn addresses(pod: &Pod) -> Option<Vec<IpAddr>> {
    let parse = |text: &str| IpOrCidr::new(text).parse().ok().map(|network| network.address());
    pod.addresses.split(',').filter(|text| !text.is_empty()).map(parse).collect()
}

/// Whether a change of a pod may affect decisions about addresses.
#[must_use]
pub(crate) fn is_about_addresses(old: &Pod, new: &Pod) -> bool {
    old.node != new.node || pod_state(old) != pod_state(new)
}

/// Calico's nodes with their names in Kubernetes; `None` for those that are not Kubernetes nodes.
pub(crate) type CalicoNodes = BTreeMap<String, Option<String>>;

/// The caches, as the view of the world that the collector needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cached<'a> {
    /// Pods.
    pub pods: &'a Informer<Pod>,
    /// Kubernetes' nodes.
    pub nodes: &'a Informer<Node>,
    /// Machines.
    pub machines: &'a Informer<VirtualMachine>,
    /// Instances of machines.
    pub instances: &'a Informer<VirtualMachineInstance>,
    /// Calico's nodes.
    pub calico_nodes: &'a CalicoNodes,
    /// Whether a Calico node is simply a Kubernetes node.
    pub is_kubernetes: bool,
}

impl World for Cached<'_> {
    fn pod(&self, namespace: &str, name: &str) -> PodFact {
        match self.pods.get(&ObjectKey::new(namespace, name)) {
            Some(pod) => PodFact::Present(pod_state(&pod)),
            None => PodFact::Absent,
        }
    }

    fn machine(&self, namespace: &str, name: &str) -> MachineFact {
        if !self.machines.is_served() || !self.instances.is_served() {
            return MachineFact::Unknown;
        }
        let key = ObjectKey::new(namespace, name);
        let instance = self.instances.get(&key);
        match self.machines.get(&key).is_some() || instance.is_some_and(|instance| !instance.has_machine) {
            true => MachineFact::Present,
            false => MachineFact::Absent,
        }
    }

    fn node(&self, name: &str) -> NodeFact {
        let kubernetes = match self.calico_nodes.get(name) {
            Some(Some(kubernetes)) => kubernetes.as_str(),
            Some(None) => return NodeFact::Untouchable,
            None if self.is_kubernetes => name,
            None => return NodeFact::Gone { kubernetes: String::new() },
        };
        match self.nodes.get(&ObjectKey::new("", kubernetes)) {
            Some(node) => {
                let stage = node.labels.get(MIGRATION_LABEL);
                let is_migrating = stage.is_some_and(|stage| stage != MIGRATED);
                NodeFact::Exists { kubernetes: kubernetes.to_owned(), is_migrating }
            }
            None => NodeFact::Gone { kubernetes: kubernetes.to_owned() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::informer::{Slim as _, Strings};
    use serde_json::{Value, json};

    fn pod(object: Value) -> Pod {
        Pod::take(serde_json::from_value(object).expect("a pod"), &mut Strings::default()).object
    }

    #[test]
    fn the_addresses_of_pods_are_determined() {
        let both = json!([{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]);
        let status = |phase: &str| json!({"phase": phase, "podIP": "10.0.0.1", "podIPs": both});
        let annotated = json!({"cni.projectcalico.org/podIPs": "10.0.0.7/32,fd00::7/128"});
        // Metadata, status; whether it has reported, whether it was evicted, its addresses.
        for (metadata, status, reported, evicted, expected) in [
            (json!({}), status("Running"), true, false, "Some([10.0.0.1, fd00::1])"),
            (json!({}), json!({"phase": "Pending"}), false, false, "Some([])"),
            (
                json!({"annotations": annotated}),
                json!({"phase": "Pending"}),
                false,
                false,
                "Some([10.0.0.7, fd00::7])",
            ),
            (json!({}), status("Succeeded"), true, false, "Some([])"),
            (
                json!({}),
                json!({"phase": "Failed", "reason": "Evicted", "podIP": "10.0.0.1", "podIPs": both}),
                true,
                true,
                "Some([])",
            ),
            (
                json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "annotations": {"cni.projectcalico.org/podIP": ""}}),
                status("Running"),
                true,
                false,
                "Some([])",
            ),
            (json!({}), json!({"podIP": "x", "podIPs": [{"ip": "x"}]}), true, false, "None"),
        ] {
            let text = format!("{metadata} {status}");
            let state = pod_state(&pod(json!({"metadata": metadata, "status": status})));
            assert_eq!((state.has_reported, state.is_evicted), (reported, evicted), "{text}");
            assert_eq!(format!("{:?}", state.addresses), expected, "{text}");
        }
    }

    #[test]
    fn changed_labels_do_not_affect_addresses() {
        let one = pod(json!({"metadata": {"labels": {"a": "b"}}, "spec": {"nodeName": "n"}}));
        let two = pod(json!({"metadata": {"labels": {"a": "c"}}, "spec": {"nodeName": "n"}}));
        let moved = pod(json!({"metadata": {"labels": {"a": "c"}}, "spec": {"nodeName": "m"}}));
        assert!(!is_about_addresses(&one, &two));
        assert!(is_about_addresses(&two, &moved));
    }
}
