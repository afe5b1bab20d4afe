//! StagedNetworkPolicy: a NetworkPolicy that is proposed and observed, not enforced.

use super::networkpolicy::NetworkPolicySpec;
use super::policy::{
    DELETE_WANTS_NOTHING, GLOBAL_ONLY_IN_RULES, PolicyPerformanceHint, PolicyType, StagedAction,
    default_tier, default_tier_label, default_types,
};
use super::rule::Rule;
use crate::codec::Extra;
use crate::errors::{FieldErrors, FieldPath};
use crate::kind::Kind;
use crate::meta::ObjectMeta;
use crate::object::{NoStatus, Object, Spec};
use crate::rules::{HasRules, Reason, Rule as CrossFieldRule};
use crate::scalars::names::{MAX_NAME_LENGTH, check_metadata_with_name, is_policy_name};
use crate::scalars::{GoFloat, SelectorText};
use api_derive::resource_struct;

/// A NetworkPolicy that is proposed, not enforced.
pub type StagedNetworkPolicy = Object<StagedNetworkPolicySpec>;

/// What a StagedNetworkPolicy says.
#[resource_struct(rules)]
pub struct StagedNetworkPolicySpec {
    /// What is proposed for the policy of this name; `Set` if nothing is said.
    #[field(default = "\"Set\"")]
    pub staged_action: StagedAction,
    /// The tier that the policy belongs to; it must exist. `default` if none is named.
    #[field(default = "\"default\"")]
    pub tier: String,
    /// The policy's place in its tier: low numbers first, policies without a number last, equal ones by name.
    pub order: Option<GoFloat>,
    /// Rules for packets to the selected endpoints, in order.
    #[field(list = "atomic", max_items = 1024)]
    pub ingress: Vec<Rule>,
    /// Rules for packets from the selected endpoints, in order.
    #[field(list = "atomic", max_items = 1024)]
    pub egress: Vec<Rule>,
    /// Which endpoints of the namespace the policy is for; all of them if empty.
    #[field(max_len = 1024)]
    pub selector: SelectorText,
    /// The directions that the policy is for. If none is given, the ones that have rules; ingress if none has.
    #[field(list = "set", min_items = 1, max_items = 2)]
    pub types: Vec<PolicyType>,
    /// Only pods that run as service accounts with labels that this expression selects.
    #[field(max_len = 1024)]
    pub service_account_selector: SelectorText,
    /// Advice to the policy engine.
    #[field(list = "set")]
    pub performance_hints: Vec<PolicyPerformanceHint>,
}

impl HasRules for StagedNetworkPolicySpec {
    fn rules() -> &'static [CrossFieldRule<Self>] {
        &[
            CrossFieldRule {
                cel: "!(has(self.selector) && self.selector.contains('global('))",
                message: GLOBAL_ONLY_IN_RULES,
                reason: Reason::Invalid,
                holds: |spec| !spec.selector.mentions_global(),
            },
            CrossFieldRule {
                cel: "!(has(self.serviceAccountSelector) && self.serviceAccountSelector.contains('global('))",
                message: GLOBAL_ONLY_IN_RULES,
                reason: Reason::Invalid,
                holds: |spec| !spec.service_account_selector.mentions_global(),
            },
        ]
    }
}

impl StagedNetworkPolicySpec {
    /// The policy that would be enforced.
    #[must_use]
    pub fn to_enforced(&self) -> NetworkPolicySpec {
        let staged = self.clone();
        NetworkPolicySpec {
            tier: staged.tier,
            order: staged.order,
            ingress: staged.ingress,
            egress: staged.egress,
            selector: staged.selector,
            types: staged.types,
            service_account_selector: staged.service_account_selector,
            performance_hints: staged.performance_hints,
            extra: Extra::new(),
        }
    }
}

impl Spec for StagedNetworkPolicySpec {
    const KIND: Kind = Kind::StagedNetworkPolicy;
    type Status = NoStatus;

    fn set_defaults(&mut self, metadata: &mut ObjectMeta) {
        default_types(&mut self.types, &self.ingress, &self.egress);
        default_tier(&mut self.tier, metadata);
        match self.staged_action {
            StagedAction::Unset => self.staged_action = StagedAction::Set,
            // A deletion does not specify directions, whatever the user wrote.
            StagedAction::Delete => self.types.clear(),
            _ => {}
        }
    }

    fn set_read_defaults(&mut self, metadata: &mut ObjectMeta) {
        default_tier_label(metadata);
    }

    fn validate(&self, metadata: &ObjectMeta, errors: &mut FieldErrors) {
        check_metadata_with_name(metadata, MAX_NAME_LENGTH, is_policy_name, errors);
        let enforced = self.to_enforced();
        if self.staged_action == StagedAction::Delete
            && enforced != (NetworkPolicySpec { tier: self.tier.clone(), ..NetworkPolicySpec::default() })
        {
            errors.add(FieldPath::new("spec"), "", DELETE_WANTS_NOTHING);
        }
        enforced.validate_spec(errors);
    }
}
