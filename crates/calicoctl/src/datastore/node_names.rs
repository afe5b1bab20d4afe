//! Renames nodes to their Kubernetes names.
//!
//! In etcd a node may have any name; its orchestrator reference holds its Kubernetes name. In Kubernetes only that name
//! exists, so everything that refers to the node by name must be renamed, too.

use crate::failure::{Failure, Result};
use api::{Resource, WorkloadEndpointIdentifiers};
use model::{Key, KvPair, Value};
use std::collections::BTreeMap;

/// Prefixes of the handles of tunnel addresses; the node's name follows.
const TUNNEL_HANDLES: [&str; 3] = ["ipip-tunnel-addr-", "vxlan-tunnel-addr-", "wireguard-tunnel-addr-"];

/// Maps each node's name to its Kubernetes name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeNames(BTreeMap<String, String>);

impl NodeNames {
    /// Reads the names from the nodes.
    ///
    /// # Errors
    /// When a node has no Kubernetes name.
    pub(crate) fn of<'a>(nodes: impl IntoIterator<Item = &'a Resource>) -> Result<Self> {
        let mut names = BTreeMap::new();
        for resource in nodes {
            let Resource::Node(node) = resource else { continue };
            let reference = node
                .spec
                .orch_refs
                .iter()
                .rfind(|reference| reference.orchestrator == api::words::KUBERNETES);
            let Some(reference) = reference.filter(|reference| !reference.node_name.is_empty()) else {
                return Err(Failure::new(format!(
                    "unable to process metadata for export for Node resource: node {} missing a 'k8s' orchestrator \
                     reference. Unable to export data unless every node has a 'k8s' orchestrator reference. For a \
                     migration to etcd or to an embedded datastore, use --keep-node-names",
                    resource.name()
                )));
            };
            names.insert(resource.name().to_owned(), reference.node_name.clone());
        }
        Ok(Self(names))
    }

    /// Renames the nodes in a resource: itself, or those that it refers to.
    pub(crate) fn apply(&self, resource: &mut Resource) {
        match resource {
            Resource::Node(node) => self.rename(&mut node.metadata.name),
            Resource::FelixConfiguration(settings) => self.rename_after("node.", &mut settings.metadata.name),
            Resource::BGPConfiguration(settings) => self.rename_after("node.", &mut settings.metadata.name),
            Resource::HostEndpoint(endpoint) => self.rename(&mut endpoint.spec.node),
            Resource::BGPPeer(peer) => self.rename(&mut peer.spec.node),
            Resource::CalicoNodeStatus(status) => self.rename(&mut status.spec.node),
            Resource::WorkloadEndpoint(endpoint) => {
                let spec = &mut endpoint.spec;
                let before = spec.node.clone();
                self.rename(&mut spec.node);
                if spec.node != before {
                    let identifiers = WorkloadEndpointIdentifiers {
                        node: spec.node.clone(),
                        orchestrator: spec.orchestrator.clone(),
                        endpoint: spec.endpoint.clone(),
                        workload: spec.workload.clone(),
                        pod: spec.pod.clone(),
                        container_id: spec.container_id.clone(),
                    };
                    if let Ok(name) = identifiers.name() {
                        endpoint.metadata.name = name;
                    }
                }
            }
            _ => {}
        }
    }

    /// Renames the nodes in an entry of address management.
    pub(crate) fn apply_to_entry(&self, entry: &mut KvPair) {
        match (&mut entry.key, &mut entry.value) {
            (Key::BlockAffinity(key), _) => self.rename(&mut key.host),
            (Key::IpamHandle { handle_id }, Value::IpamHandle(handle)) => {
                let mut name = handle_id.to_string();
                self.rename_handle(&mut name);
                *handle_id = name.into();
                handle.handle_id = handle_id.clone();
            }
            (Key::Block { .. }, Value::Block(block)) => {
                for attribute in &mut block.attributes {
                    for owner in [&mut attribute.active_owner_attrs, &mut attribute.alternate_owner_attrs] {
                        if let Some(node) = owner.get_mut("node") {
                            self.rename(node);
                        }
                    }
                    if let Some(handle) = &mut attribute.handle_id {
                        self.rename_handle(handle);
                    }
                }
                if let Some(affinity) = &mut block.affinity {
                    self.rename_after("host:", affinity);
                }
                if let Some(host) = &mut block.host_affinity {
                    self.rename(host);
                }
            }
            _ => {}
        }
    }

    fn rename(&self, name: &mut String) {
        if let Some(new) = self.0.get(name.as_str()) {
            new.clone_into(name);
        }
    }

    fn rename_after(&self, prefix: &str, name: &mut String) {
        if let Some(new) = name.strip_prefix(prefix).and_then(|node| self.0.get(node)) {
            *name = format!("{prefix}{new}");
        }
    }

    fn rename_handle(&self, handle: &mut String) {
        for prefix in TUNNEL_HANDLES {
            self.rename_after(prefix, handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Kind;
    use serde_json::json;

    fn resource(kind: Kind, name: &str, spec: &serde_json::Value) -> Resource {
        let value = json!({"metadata": {"name": name}, "spec": spec});
        Resource::from_value(kind, value).expect("a resource")
    }

    fn names() -> NodeNames {
        let references = json!({"orchRefs": [{"nodeName": "new", "orchestrator": "k8s"}]});
        NodeNames::of(&[resource(Kind::Node, "old", &references)]).expect("names")
    }

    #[test]
    fn references_to_nodes_are_renamed() {
        for (kind, name, spec, new_name, new_spec) in [
            (Kind::Node, "old", json!({}), "new", json!({})),
            (Kind::FelixConfiguration, "node.old", json!({}), "node.new", json!({})),
            (Kind::FelixConfiguration, "default", json!({}), "default", json!({})),
            (Kind::BGPConfiguration, "node.old", json!({}), "node.new", json!({})),
            (Kind::HostEndpoint, "old", json!({"node": "old"}), "old", json!({"node": "new"})),
            (Kind::BGPPeer, "p", json!({"node": "old"}), "p", json!({"node": "new"})),
            (Kind::BGPPeer, "p", json!({"node": "other"}), "p", json!({"node": "other"})),
        ] {
            let mut found = resource(kind, name, &spec);
            names().apply(&mut found);
            assert_eq!(found, resource(kind, new_name, &new_spec), "{kind} {name}");
        }
    }

    #[test]
    fn address_management_is_renamed() {
        let block = json!({"cidr": "10.0.0.0/30", "affinity": "host:old", "allocations": [0, 1, null, null],
            "unallocated": [2, 3], "attributes": [
                {"handle_id": "vxlan-tunnel-addr-old", "secondary": {"node": "old"}},
                {"handle_id": "k8s-pod-network.old", "secondary": {"node": "other"}}]});
        let cidr = "10.0.0.0/30".parse().expect("a range");
        let block = serde_json::from_value(block).expect("a block");
        let mut entry = KvPair::new(Key::Block { cidr }, Value::Block(block));
        names().apply_to_entry(&mut entry);
        let Value::Block(block) = entry.value else { panic!("no block") };
        assert_eq!(block.affinity.as_deref(), Some("host:new"));
        assert_eq!(block.attributes[0].handle_id.as_deref(), Some("vxlan-tunnel-addr-new"));
        assert_eq!(block.attributes[0].active_owner_attrs["node"], "new");
        assert_eq!(block.attributes[1].handle_id.as_deref(), Some("k8s-pod-network.old"));
        assert_eq!(block.attributes[1].active_owner_attrs["node"], "other");
        let handle = Key::IpamHandle { handle_id: "ipip-tunnel-addr-old".into() };
        let mut entry = KvPair::new(handle, Value::IpamHandle(model::IpamHandle::default()));
        names().apply_to_entry(&mut entry);
        assert_eq!(entry.key, Key::IpamHandle { handle_id: "ipip-tunnel-addr-new".into() });
    }

    #[test]
    fn a_node_unknown_to_kubernetes_is_reported() {
        let failure = NodeNames::of(&[resource(Kind::Node, "bare", &json!({}))]).expect_err("no reference");
        assert!(failure.message().contains("node bare missing a 'k8s' orchestrator reference"), "{failure}");
        assert!(failure.message().contains("--keep-node-names"), "{failure}");
    }
}
