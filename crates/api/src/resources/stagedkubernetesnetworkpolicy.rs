//! StagedKubernetesNetworkPolicy: a Kubernetes NetworkPolicy that is proposed and observed, not enforced.

use super::policy::StagedAction;
use crate::codec::Extra;
use crate::errors::{FieldErrors, FieldPath};
use crate::kind::Kind;
use crate::kubernetes::policy::{
    LabelSelector, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPort, NetworkPolicySpec,
    atomic_map,
};
use crate::meta::ObjectMeta;
use crate::object::{NoStatus, Object, Spec};
use crate::scalars::Port;
use crate::scalars::names::check_metadata;
use api_derive::resource_struct;

/// A Kubernetes NetworkPolicy that is proposed, not enforced.
pub type StagedKubernetesNetworkPolicy = Object<StagedKubernetesNetworkPolicySpec>;

/// What a StagedKubernetesNetworkPolicy says.
#[resource_struct]
pub struct StagedKubernetesNetworkPolicySpec {
    /// What is proposed for the policy of this name; `Set` if nothing is said.
    #[field(default = "\"Set\"")]
    pub staged_action: StagedAction,
    /// The pods that the policy is for; all of the namespace if empty.
    #[field(always, schema = atomic_map)]
    pub pod_selector: LabelSelector,
    /// What may come in.
    #[field(list = "atomic")]
    pub ingress: Vec<NetworkPolicyIngressRule>,
    /// What may go out.
    #[field(list = "atomic")]
    pub egress: Vec<NetworkPolicyEgressRule>,
    /// The directions that the policy is for. If none is given: ingress, and egress if there are rules for it.
    #[field(list = "set", min_items = 1, max_items = 2)]
    pub policy_types: Vec<String>,
}

impl StagedKubernetesNetworkPolicySpec {
    /// The Kubernetes policy that would be enforced.
    #[must_use]
    pub fn to_enforced(&self) -> NetworkPolicySpec {
        let staged = self.clone();
        NetworkPolicySpec {
            pod_selector: staged.pod_selector,
            ingress: staged.ingress,
            egress: staged.egress,
            policy_types: staged.policy_types,
            extra: Extra::new(),
        }
    }
}

fn check_ports(ports: &[NetworkPolicyPort], path: &FieldPath, errors: &mut FieldErrors) {
    for (index, port) in ports.iter().enumerate() {
        if let Some(found @ Port::Other(_)) = port.to_calico() {
            let path = path.child("ports").index(index);
            errors.add(
                path,
                found,
                "must be a port number, the name of a port, or a number and a higher endPort",
            );
        }
    }
}

impl Spec for StagedKubernetesNetworkPolicySpec {
    const KIND: Kind = Kind::StagedKubernetesNetworkPolicy;
    type Status = NoStatus;

    fn set_defaults(&mut self, _metadata: &mut ObjectMeta) {
        if self.staged_action.is_unset() {
            self.staged_action = StagedAction::Set;
        }
    }

    fn validate(&self, metadata: &ObjectMeta, errors: &mut FieldErrors) {
        check_metadata(metadata, errors);
        let spec = FieldPath::new("spec");
        if self.staged_action == StagedAction::Delete {
            if self.to_enforced() != NetworkPolicySpec::default() {
                errors.add(spec, "", "Spec fields should all be zero-value if stagedAction is Delete");
            }
            return;
        }
        for (index, rule) in self.ingress.iter().enumerate() {
            check_ports(&rule.ports, &spec.child("ingress").index(index), errors);
        }
        for (index, rule) in self.egress.iter().enumerate() {
            check_ports(&rule.ports, &spec.child("egress").index(index), errors);
        }
    }
}
