//! The facts that the migration reads from Kubernetes' objects: nodes and flannel's annotations on them, DaemonSets,
//! pods.

use ipnet::IpNet;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The parts of a node that the migration reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its range of pod addresses.
    pub pod_cidr: String,
}

/// The fields of a node that are decoded.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct WireNode {
    metadata: WireNodeMeta,
    spec: WireNodeSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireNodeMeta {
    name: String,
    #[serde(deserialize_with = "null_as_default")]
    labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_as_default")]
    annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireNodeSpec {
    #[serde(rename = "podCIDR")]
    pod_cidr: String,
}

impl From<WireNode> for NodeFacts {
    fn from(wire: WireNode) -> Self {
        let WireNode { metadata, spec } = wire;
        Self {
            name: metadata.name,
            labels: metadata.labels,
            annotations: metadata.annotations,
            pod_cidr: spec.pod_cidr,
        }
    }
}

/// flannel's end of the tunnel on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// The address of the device: the first one of the node's range.
    pub address: IpAddr,
    /// The MAC address of the device.
    pub mac: String,
    /// The node's address in the outer packets.
    pub public: IpAddr,
}

/// Why a node cannot be migrated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// The node has no pod range.
    #[error("node {0} has no pod CIDR")]
    NoRange(String),
    /// The node's pod range cannot be parsed.
    #[error("node {node}: the pod CIDR {cidr:?} is not a range")]
    BadRange {
        /// The node.
        node: String,
        /// Its value.
        cidr: String,
    },
    /// An annotation is missing.
    #[error("node {node} has no annotation {annotation}")]
    Missing {
        /// The node.
        node: String,
        /// The annotation.
        annotation: String,
    },
    /// An annotation has an unusable value.
    #[error("node {node}: the annotation {annotation} is {value:?}, which is not {wanted}")]
    Wrong {
        /// The node.
        node: String,
        /// The annotation.
        annotation: String,
        /// Its value.
        value: String,
        /// What its value should be.
        wanted: &'static str,
    },
}

impl NodeFacts {
    /// The value of a label.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.get(name).map(String::as_str)
    }

    /// The node's pod range.
    ///
    /// # Errors
    /// When it is missing or invalid.
    pub fn range(&self) -> Result<IpNet, NodeError> {
        if self.pod_cidr.is_empty() {
            return Err(NodeError::NoRange(self.name.clone()));
        }
        let bad = |_| NodeError::BadRange { node: self.name.clone(), cidr: self.pod_cidr.clone() };
        self.pod_cidr.parse().map_err(bad)
    }

    /// Whether flannel ever ran on the node.
    #[must_use]
    pub fn has_flannel(&self, prefix: &str) -> bool {
        self.annotations.contains_key(&format!("{prefix}/backend-type"))
    }

    /// flannel's end of the tunnel on this node.
    ///
    /// # Errors
    /// When flannel's annotations are missing, or are not those of VXLAN.
    pub fn tunnel(&self, prefix: &str) -> Result<Tunnel, NodeError> {
        let read = |name: &str| {
            let annotation = format!("{prefix}/{name}");
            match self.annotations.get(&annotation) {
                Some(value) => Ok((annotation, value.clone())),
                None => Err(NodeError::Missing { node: self.name.clone(), annotation }),
            }
        };
        let wrong = |(annotation, value), wanted| NodeError::Wrong {
            node: self.name.clone(),
            annotation,
            value,
            wanted,
        };
        let kind = read("backend-type")?;
        if kind.1 != "vxlan" {
            return Err(wrong(kind, "vxlan"));
        }
        #[derive(Deserialize)]
        struct Backend {
            #[serde(rename = "VtepMAC")]
            mac: String,
        }
        let data = read("backend-data")?;
        let Ok(Backend { mac }) = serde_json::from_str(&data.1) else {
            return Err(wrong(data, "a JSON object with a VtepMAC"));
        };
        let public = read("public-ip")?;
        let Ok(address) = public.1.parse() else { return Err(wrong(public, "an address")) };
        Ok(Tunnel { address: self.range()?.addr(), mac, public: address })
    }
}

/// Finds a container in a DaemonSet's template, init containers first.
#[must_use]
pub fn container<'a>(set: &'a Value, name: &str) -> Option<&'a Value> {
    let spec = &set["spec"]["template"]["spec"];
    let lists = ["initContainers", "containers"].into_iter().filter_map(|list| spec[list].as_array());
    lists.flatten().find(|container| container["name"] == name)
}

/// The value of a variable of a container.
#[must_use]
pub fn container_variable<'a>(container: &'a Value, name: &str) -> Option<&'a str> {
    let variables = container["env"].as_array()?;
    variables.iter().find(|variable| variable["name"] == name)?["value"].as_str()
}

/// The fields of a pod that draining needs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DrainedPod {
    /// Its metadata.
    pub metadata: DrainedMeta,
    spec: DrainedSpec,
    status: DrainedStatus,
}

/// The metadata of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DrainedMeta {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The identity.
    pub uid: String,
    #[serde(deserialize_with = "null_as_default")]
    annotations: BTreeMap<String, serde::de::IgnoredAny>,
    #[serde(rename = "ownerReferences", deserialize_with = "null_as_default")]
    owners: Vec<OwnerReference>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct OwnerReference {
    kind: String,
    controller: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct DrainedSpec {
    #[serde(rename = "hostNetwork")]
    host_network: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct DrainedStatus {
    phase: String,
    #[serde(deserialize_with = "null_as_default")]
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

impl DrainedPod {
    /// Whether draining removes the pod: pods of DaemonSets would come back at once, and mirror pods only show what the
    /// kubelet runs by itself.
    #[must_use]
    pub fn leaves(&self) -> bool {
        let is_mirror = self.metadata.annotations.contains_key("kubernetes.io/config.mirror");
        let is_daemon =
            self.metadata.owners.iter().any(|owner| owner.controller && owner.kind == "DaemonSet");
        !is_mirror && !is_daemon
    }

    /// Whether it has its own network rather than the host's.
    #[must_use]
    pub fn has_own_network(&self) -> bool {
        !self.spec.host_network
    }

    /// Whether it runs and is ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let is_ready = |condition: &Condition| condition.kind == "Ready" && condition.status == "True";
        self.status.phase == "Running" && self.status.conditions.iter().any(is_ready)
    }
}

/// Reads null as the default: Go writes empty lists as null.
fn null_as_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PREFIX: &str = "flannel.alpha.coreos.com";

    fn node(annotations: &Value, pod_cidr: &str) -> NodeFacts {
        let object =
            json!({"metadata": {"name": "n1", "annotations": annotations}, "spec": {"podCIDR": pod_cidr}});
        serde_json::from_value::<WireNode>(object).expect("a node").into()
    }

    #[test]
    fn tunnels_are_read_from_annotations() {
        let good = json!({
            "flannel.alpha.coreos.com/backend-data": "{\"VNI\":1,\"VtepMAC\":\"56:1d:8d:30:79:97\"}",
            "flannel.alpha.coreos.com/backend-type": "vxlan",
            "flannel.alpha.coreos.com/public-ip": "172.16.101.96",
        });
        let tunnel = node(&good, "10.244.1.0/24").tunnel(PREFIX).expect("a tunnel");
        assert_eq!(
            (tunnel.address.to_string().as_str(), tunnel.mac.as_str()),
            ("10.244.1.0", "56:1d:8d:30:79:97")
        );
        let change = |name: &str, value: Value| {
            let mut annotations = good.clone();
            annotations[format!("{PREFIX}/{name}")] = value;
            node(&annotations, "10.244.1.0/24").tunnel(PREFIX).expect_err("no tunnel").to_string()
        };
        assert!(change("backend-type", json!("host-gw")).contains("not vxlan"));
        assert!(change("backend-data", json!("null")).contains("VtepMAC"));
        assert!(change("public-ip", json!("here")).contains("not an address"));
        assert!(
            node(&json!(null), "10.244.1.0/24")
                .tunnel(PREFIX)
                .expect_err("none")
                .to_string()
                .contains("no annotation")
        );
        assert!(node(&good, "").tunnel(PREFIX).expect_err("none").to_string().contains("no pod CIDR"));
        assert!(node(&good, "ten").tunnel(PREFIX).expect_err("none").to_string().contains("not a range"));
    }

    #[test]
    fn containers_and_their_variables_are_found() {
        let set = json!({"spec": {"template": {"spec": {
            "initContainers": [{"name": "install-cni", "env": [{"name": "CNI_CONF_NAME", "value": "10-calico.conflist"}]}],
            "containers": [{"name": "calico-node", "image": "calico/node:v3"}],
        }}}});
        assert_eq!(
            container(&set, "calico-node").map(|found| &found["image"]),
            Some(&json!("calico/node:v3"))
        );
        let install = container(&set, "install-cni").expect("a container");
        assert_eq!(container_variable(install, "CNI_CONF_NAME"), Some("10-calico.conflist"));
        assert_eq!(container_variable(install, "OTHER"), None);
        assert_eq!(container(&set, "other"), None);
    }

    #[test]
    fn daemonset_and_mirror_pods_stay() {
        let pod = |metadata: Value| {
            serde_json::from_value::<DrainedPod>(json!({"metadata": metadata})).expect("a pod")
        };
        assert!(pod(json!({"ownerReferences": [{"kind": "ReplicaSet", "controller": true}]})).leaves());
        assert!(pod(json!({})).leaves());
        assert!(!pod(json!({"ownerReferences": [{"kind": "DaemonSet", "controller": true}]})).leaves());
        assert!(!pod(json!({"annotations": {"kubernetes.io/config.mirror": "x"}})).leaves());
    }
}
