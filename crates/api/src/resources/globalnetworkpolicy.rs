//! GlobalNetworkPolicy: a policy for endpoints of any namespace and for hosts.

use super::policy::{
    GLOBAL_ONLY_IN_RULES, PolicyPerformanceHint, PolicyType, ServiceNamespace, check_lists, check_policy,
    default_tier, default_tier_label, default_types,
};
use super::rule::Rule;
use crate::errors::{FieldErrors, FieldPath};
use crate::kind::Kind;
use crate::meta::ObjectMeta;
use crate::object::{NoStatus, Object, Spec};
use crate::rules::{HasRules, Reason, Rule as CrossFieldRule};
use crate::scalars::names::{MAX_NAME_LENGTH, check_metadata_with_name, is_global_policy_name};
use crate::scalars::{GoFloat, SelectorText};
use api_derive::resource_struct;

/// A policy for endpoints of any namespace and for hosts.
pub type GlobalNetworkPolicy = Object<GlobalNetworkPolicySpec>;

/// What a GlobalNetworkPolicy says.
#[resource_struct(rules)]
pub struct GlobalNetworkPolicySpec {
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
    /// Which endpoints the policy is for; all of them if empty.
    #[field(max_len = 1024)]
    pub selector: SelectorText,
    /// The directions that the policy is for. If none is given, the ones that have rules; ingress if none has.
    #[field(list = "set", min_items = 1, max_items = 2)]
    pub types: Vec<PolicyType>,
    /// Apply the rules before connection tracking, and leave allowed packets untracked. Needs applyOnForward.
    pub do_not_track: bool,
    /// Apply the rules before destination addresses are translated. Needs applyOnForward, and has no egress rules.
    #[field(name = "preDNAT")]
    pub pre_dnat: bool,
    /// Apply the rules to packets that a host only forwards, too.
    pub apply_on_forward: bool,
    /// Only pods that run as service accounts with labels that this expression selects.
    #[field(max_len = 1024)]
    pub service_account_selector: SelectorText,
    /// Only endpoints in namespaces with labels that this expression selects.
    #[field(max_len = 1024)]
    pub namespace_selector: SelectorText,
    /// Advice to the policy engine.
    #[field(list = "set")]
    pub performance_hints: Vec<PolicyPerformanceHint>,
}

/// Declares the cross-field rules of the two global policy kinds, which have the same fields.
macro_rules! global_policy_rules {
    ($spec:ty) => {
        impl HasRules for $spec {
            fn rules() -> &'static [CrossFieldRule<Self>] {
                &[
                    CrossFieldRule {
                        cel: "!has(self.preDNAT) || !self.preDNAT || !has(self.doNotTrack) || !self.doNotTrack",
                        message: "preDNAT and doNotTrack cannot both be true",
                        reason: Reason::Forbidden,
                        holds: |spec| !(spec.pre_dnat && spec.do_not_track),
                    },
                    CrossFieldRule {
                        cel: "!(has(self.preDNAT) && self.preDNAT && has(self.egress) && size(self.egress) > 0)",
                        message: "preDNAT policy cannot have any egress rules",
                        reason: Reason::Forbidden,
                        holds: |spec| !spec.pre_dnat || spec.egress.is_empty(),
                    },
                    CrossFieldRule {
                        cel: "!(has(self.preDNAT) && self.preDNAT && has(self.types) && 'Egress' in self.types)",
                        message: "preDNAT policy cannot have 'Egress' type",
                        reason: Reason::Forbidden,
                        holds: |spec| !spec.pre_dnat || !spec.types.contains(&PolicyType::Egress),
                    },
                    CrossFieldRule {
                        cel: "(has(self.applyOnForward) && self.applyOnForward) || \
                              !((has(self.doNotTrack) && self.doNotTrack) || (has(self.preDNAT) && self.preDNAT))",
                        message: "applyOnForward must be true if either preDNAT or doNotTrack is true",
                        reason: Reason::Invalid,
                        holds: |spec| spec.apply_on_forward || !(spec.do_not_track || spec.pre_dnat),
                    },
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
                    CrossFieldRule {
                        cel: "!(has(self.namespaceSelector) && self.namespaceSelector.contains('global('))",
                        message: GLOBAL_ONLY_IN_RULES,
                        reason: Reason::Invalid,
                        holds: |spec| !spec.namespace_selector.mentions_global(),
                    },
                ]
            }
        }
    };
}

pub(super) use global_policy_rules;

global_policy_rules!(GlobalNetworkPolicySpec);

impl GlobalNetworkPolicySpec {
    /// Checks the spec alone, without a name.
    pub(crate) fn validate_spec(&self, errors: &mut FieldErrors) {
        self.check_rules(&FieldPath::new("spec"), errors);
        check_lists(&self.types, &self.performance_hints, errors);
        check_policy(
            &self.tier,
            &[
                ("selector", &self.selector),
                ("serviceAccountSelector", &self.service_account_selector),
                ("namespaceSelector", &self.namespace_selector),
            ],
            &self.ingress,
            &self.egress,
            ServiceNamespace::Required,
            errors,
        );
    }
}

impl Spec for GlobalNetworkPolicySpec {
    const KIND: Kind = Kind::GlobalNetworkPolicy;
    type Status = NoStatus;

    fn set_defaults(&mut self, metadata: &mut ObjectMeta) {
        default_types(&mut self.types, &self.ingress, &self.egress);
        default_tier(&mut self.tier, metadata);
    }

    fn set_read_defaults(&mut self, metadata: &mut ObjectMeta) {
        default_tier_label(metadata);
    }

    fn validate(&self, metadata: &ObjectMeta, errors: &mut FieldErrors) {
        check_metadata_with_name(metadata, MAX_NAME_LENGTH, is_global_policy_name, errors);
        self.validate_spec(errors);
    }
}
