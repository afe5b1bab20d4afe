//! Policies of every kind, and the rules of profiles.
//!
//! A policy whose selector cannot be read selects nothing, with a fault: applied to the wrong endpoints, it could open
//! what another policy closes. A list of directions that cannot be read means both directions; a list of rules that
//! cannot be read at all becomes one rule that denies everything. [`super::rule`] converts single rules.

use super::Faults;
use super::rule::{deny_everything, rules};
use super::selectors::{
    all_means_any_namespace, all_means_any_service_account, and, in_namespace, over_namespace,
    over_service_account, read,
};
use crate::TierName;
use crate::feed::{Policy, PolicyType, ProfileRules, Rule};
use crate::kubernetes::network_policy::kubernetes_network_policy;
use api::codec::Extra;
use api::scalars::SelectorText;
use api::words::DEFAULT_TIER;
use api::{
    Action, GlobalNetworkPolicySpec, NetworkPolicySpec, PolicyPerformanceHint, ProfileSpec, StagedAction,
    StagedGlobalNetworkPolicySpec, StagedKubernetesNetworkPolicy, StagedNetworkPolicySpec,
};
use selector::Selector;

/// Converts a policy of a namespace.
#[must_use]
pub fn namespaced(namespace: &str, spec: NetworkPolicySpec, faults: &mut Faults) -> Policy {
    let mut selection = Selection::new(&spec.selector, &spec.extra, faults);
    if namespace.contains(['\'', '"']) {
        // Between the quotes of a selector, such a name would be more than a name.
        selection.refuse("metadata.namespace", "the namespace's name has quotes in it", faults);
    } else if !namespace.is_empty() {
        selection.narrow(&in_namespace(namespace));
    }
    selection.narrow_by_account(&spec.service_account_selector, faults);
    let selector = selection.finish(faults);
    Policy {
        namespace: namespace.to_owned(),
        tier: tier(&spec.tier, &spec.extra, faults),
        order: spec.order.map(|order| order.0),
        inbound_rules: rule_list("ingress", spec.ingress, namespace, &spec.extra, faults),
        outbound_rules: rule_list("egress", spec.egress, namespace, &spec.extra, faults),
        selector,
        types: types(&spec.types, &spec.extra, faults),
        performance_hints: hints(&spec.performance_hints),
        ..Policy::default()
    }
}

/// Converts a global policy.
#[must_use]
pub fn global(spec: GlobalNetworkPolicySpec, faults: &mut Faults) -> Policy {
    let mut selection = Selection::new(&spec.selector, &spec.extra, faults);
    selection.narrow_by_namespace(&spec.namespace_selector, faults);
    if !spec.service_account_selector.is_empty() {
        selection.narrow_by_account(&spec.service_account_selector, faults);
        selection.text = all_means_any_service_account(&selection.text);
    }
    let selector = selection.finish(faults);
    for field in ["doNotTrack", "preDNAT", "applyOnForward"] {
        if spec.extra.contains_key(field) {
            faults.add(format!("spec.{field}"), "is neither true nor false; taken as false");
        }
    }
    Policy {
        namespace: String::new(),
        tier: tier(&spec.tier, &spec.extra, faults),
        order: spec.order.map(|order| order.0),
        inbound_rules: rule_list("ingress", spec.ingress, "", &spec.extra, faults),
        outbound_rules: rule_list("egress", spec.egress, "", &spec.extra, faults),
        selector,
        do_not_track: spec.do_not_track,
        pre_dnat: spec.pre_dnat,
        apply_on_forward: spec.apply_on_forward,
        types: types(&spec.types, &spec.extra, faults),
        performance_hints: hints(&spec.performance_hints),
        staged_action: None,
    }
}

/// Converts a staged policy of a namespace; `None` when it proposes a deletion.
#[must_use]
pub fn staged(namespace: &str, spec: &StagedNetworkPolicySpec, faults: &mut Faults) -> Option<Policy> {
    let action = spec.staged_action.clone();
    if action == StagedAction::Delete {
        return None;
    }
    let enforced = NetworkPolicySpec { extra: spec.extra.clone(), ..spec.to_enforced() };
    Some(with_action(namespaced(namespace, enforced, faults), action))
}

/// Converts a staged global policy; `None` when it proposes a deletion.
#[must_use]
pub fn staged_global(spec: &StagedGlobalNetworkPolicySpec, faults: &mut Faults) -> Option<Policy> {
    let action = spec.staged_action.clone();
    if action == StagedAction::Delete {
        return None;
    }
    let enforced = GlobalNetworkPolicySpec { extra: spec.extra.clone(), ..spec.to_enforced() };
    Some(with_action(global(enforced, faults), action))
}

/// Converts a staged Kubernetes policy; `None` when it proposes a deletion.
#[must_use]
pub fn staged_kubernetes(policy: &StagedKubernetesNetworkPolicy, faults: &mut Faults) -> Option<Policy> {
    let action = policy.spec.staged_action.clone();
    if action == StagedAction::Delete {
        return None;
    }
    let mut metadata = policy.metadata.clone();
    // Neither is part of the policy's meaning, and a uid need not be one of Kubernetes'.
    metadata.uid.clear();
    metadata.resource_version.clear();
    let enforced = api::kubernetes::NetworkPolicy { metadata, spec: policy.spec.to_enforced() };
    let namespace = policy.metadata.namespace.as_str();
    match kubernetes_network_policy(&enforced) {
        Ok(converted) => {
            for problem in converted.problems {
                faults.add("spec", problem);
            }
            let api::Resource::KubernetesNetworkPolicy(policy) = into_resource(converted.pair.value)? else {
                return None;
            };
            Some(with_action(namespaced(namespace, policy.spec.0, faults), action))
        }
        Err(error) => {
            faults.add("spec", error.to_string());
            None
        }
    }
}

fn into_resource(value: crate::value::Value) -> Option<api::Resource> {
    match value {
        crate::value::Value::Resource(resource) => Some(resource),
        _ => None,
    }
}

fn with_action(policy: Policy, action: StagedAction) -> Policy {
    let staged_action = (!action.is_unset()).then_some(action);
    Policy { staged_action, ..policy }
}

/// Converts the rules of a profile. A rule without an action allows what it matches: Calico's tools accept such rules
/// in profiles, and only there, and its Felix reads them so. An action that cannot be read is among the unread fields,
/// and denies.
#[must_use]
pub fn profile_rules(mut spec: ProfileSpec, faults: &mut Faults) -> ProfileRules {
    for rule in spec.ingress.iter_mut().chain(&mut spec.egress).filter(|rule| rule.action.is_unset()) {
        rule.action = Action::Allow;
    }
    ProfileRules {
        inbound_rules: rule_list("ingress", spec.ingress, "", &spec.extra, faults),
        outbound_rules: rule_list("egress", spec.egress, "", &spec.extra, faults),
    }
}

fn rule_list(
    field: &str,
    list: Vec<api::Rule>,
    namespace: &str,
    unread: &Extra,
    faults: &mut Faults,
) -> Vec<Rule> {
    if unread.contains_key(field) {
        faults.add(format!("spec.{field}"), "is not a list of rules; everything is denied");
        return vec![deny_everything()];
    }
    if list.is_empty() {
        return Vec::new();
    }
    rules(list, namespace, &format!("spec.{field}"), faults)
}

fn tier(tier: &str, unread: &Extra, faults: &mut Faults) -> TierName {
    for (field, instead) in [("tier", "taken as the default tier"), ("order", "taken as the last")] {
        if unread.contains_key(field) {
            faults.add(format!("spec.{field}"), format!("cannot be read; {instead}"));
        }
    }
    TierName::from(if tier.is_empty() { DEFAULT_TIER } else { tier })
}

fn types(types: &[api::PolicyType], unread: &Extra, faults: &mut Faults) -> Vec<PolicyType> {
    const BOTH: &str = "the policy is for both directions";
    let mut converted = Vec::with_capacity(types.len());
    for (index, policy_type) in types.iter().enumerate() {
        match policy_type {
            api::PolicyType::Ingress => converted.push(PolicyType::Ingress),
            api::PolicyType::Egress => converted.push(PolicyType::Egress),
            other => {
                faults.add(format!("spec.types[{index}]"), format!("'{other}' is not a direction; {BOTH}"));
                return vec![PolicyType::Ingress, PolicyType::Egress];
            }
        }
    }
    if unread.contains_key("types") {
        faults.add("spec.types", format!("is not a list of directions; {BOTH}"));
        return vec![PolicyType::Ingress, PolicyType::Egress];
    }
    converted
}

fn hints(hints: &[PolicyPerformanceHint]) -> Vec<String> {
    hints.iter().map(ToString::to_string).collect()
}

/// The selector of a policy while its parts are joined. Once a part cannot be read, it selects nothing.
struct Selection {
    text: String,
    refused: bool,
}

impl Selection {
    fn new(selector: &SelectorText, unread: &Extra, faults: &mut Faults) -> Self {
        let mut selection = Self { text: selector.as_str().to_owned(), refused: false };
        if let Err(reason) = read(selector.as_str()) {
            selection.refuse("spec.selector", &reason, faults);
        }
        for field in ["selector", "namespaceSelector", "serviceAccountSelector"] {
            if unread.contains_key(field) {
                selection.refuse(&format!("spec.{field}"), "is not text", faults);
            }
        }
        selection
    }

    fn refuse(&mut self, path: &str, reason: &str, faults: &mut Faults) {
        self.refused = true;
        faults.add(path, format!("{reason}; the policy selects NOTHING"));
    }

    fn narrow(&mut self, condition: &str) {
        self.text = and(&self.text, condition);
    }

    fn narrow_by_namespace(&mut self, selector: &SelectorText, faults: &mut Faults) {
        if selector.is_empty() {
            return;
        }
        match over_namespace(selector) {
            Ok(text) => {
                self.narrow(&text);
                self.text = all_means_any_namespace(&self.text);
            }
            Err(reason) => self.refuse("spec.namespaceSelector", &reason, faults),
        }
    }

    fn narrow_by_account(&mut self, selector: &SelectorText, faults: &mut Faults) {
        if selector.is_empty() {
            return;
        }
        match over_service_account(selector) {
            Ok(text) => self.narrow(&text),
            Err(reason) => self.refuse("spec.serviceAccountSelector", &reason, faults),
        }
    }

    fn finish(mut self, faults: &mut Faults) -> Selector {
        if self.refused {
            return Selector::nothing();
        }
        match read(&self.text) {
            Ok(selector) => selector.unwrap_or_default(),
            Err(reason) => {
                self.refuse("spec.selector", &format!("joined with its namespace: {reason}"), faults);
                Selector::nothing()
            }
        }
    }
}
