//! The NetworkPolicy of `networking.k8s.io/v1` and its parts, which also stand in Calico's staged Kubernetes policies.

use super::read_only_objects;
use crate::meta::StringMap;
use crate::scalars::IntOrString;
use api_derive::resource_struct;
use serde_json::{Map, Value};

read_only_objects! {
    /// A Kubernetes network policy.
    NetworkPolicy {
        /// Which pods may talk to whom.
        spec: NetworkPolicySpec,
    }
}

/// Marks a map that is replaced as a whole when objects are merged.
pub(crate) fn atomic_map(schema: &mut Map<String, Value>) {
    schema.insert("x-kubernetes-map-type".into(), "atomic".into());
}

/// Which pods may talk to whom.
#[resource_struct]
pub struct NetworkPolicySpec {
    /// The pods that the policy is for; all of the namespace if empty.
    #[field(always, schema = atomic_map)]
    pub pod_selector: LabelSelector,
    /// What may come in.
    #[field(list = "atomic")]
    pub ingress: Vec<NetworkPolicyIngressRule>,
    /// What may go out.
    #[field(list = "atomic")]
    pub egress: Vec<NetworkPolicyEgressRule>,
    /// The directions that the policy is for.
    #[field(list = "atomic")]
    pub policy_types: Vec<String>,
}

/// Objects chosen by their labels; every condition must hold.
#[resource_struct]
pub struct LabelSelector {
    /// Labels with exactly these values.
    pub match_labels: StringMap,
    /// Conditions on labels.
    #[field(list = "atomic")]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// One condition on a label.
#[resource_struct]
pub struct LabelSelectorRequirement {
    /// The label.
    #[field(always, required)]
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    #[field(always, required)]
    pub operator: String,
    /// The values that `In` and `NotIn` compare with.
    #[field(list = "atomic")]
    pub values: Vec<String>,
}

/// Traffic that may come in.
#[resource_struct]
pub struct NetworkPolicyIngressRule {
    /// To any of these ports; to all if empty.
    #[field(list = "atomic")]
    pub ports: Vec<NetworkPolicyPort>,
    /// From any of these peers; from everywhere if empty.
    #[field(list = "atomic")]
    pub from: Vec<NetworkPolicyPeer>,
}

/// Traffic that may go out.
#[resource_struct]
pub struct NetworkPolicyEgressRule {
    /// To any of these ports; to all if empty.
    #[field(list = "atomic")]
    pub ports: Vec<NetworkPolicyPort>,
    /// To any of these peers; to everywhere if empty.
    #[field(list = "atomic")]
    pub to: Vec<NetworkPolicyPeer>,
}

/// A port, or a range of ports.
#[resource_struct]
pub struct NetworkPolicyPort {
    /// TCP, UDP or SCTP; TCP if absent.
    pub protocol: Option<String>,
    /// The port's number or name; all ports if absent.
    pub port: Option<IntOrString>,
    /// The last port of a range that starts at `port`.
    pub end_port: Option<i32>,
}

impl NetworkPolicyPort {
    /// The port in Calico's spelling, `port` or `port:endPort`; nothing if all ports are meant.
    #[must_use]
    pub fn to_calico(&self) -> Option<crate::scalars::Port> {
        let port = self.port.as_ref()?;
        let text = match self.end_port {
            Some(end) => format!("{port}:{end}"),
            None => port.to_string(),
        };
        Some(crate::scalars::Port::from_text(&text))
    }
}

/// The other end of a connection.
#[resource_struct]
pub struct NetworkPolicyPeer {
    /// Pods with these labels: of the policy's namespace, or of those that `namespaceSelector` chooses.
    #[field(schema = atomic_map)]
    pub pod_selector: Option<LabelSelector>,
    /// Namespaces with these labels.
    #[field(schema = atomic_map)]
    pub namespace_selector: Option<LabelSelector>,
    /// Addresses; stands alone.
    pub ip_block: Option<IPBlock>,
}

/// A network with holes.
#[resource_struct]
pub struct IPBlock {
    /// The network.
    #[field(always, required)]
    pub cidr: String,
    /// Networks within it that are not meant.
    #[field(list = "atomic")]
    pub except: Vec<String>,
}
