//! Shared by all policy kinds: their enumerations, how `types` and the tier label are filled in, and which rules they
//! may contain.

use super::rule::Rule;
use crate::errors::{FieldErrors, FieldPath};
use crate::meta::ObjectMeta;
use crate::scalars::SelectorText;
use crate::scalars::names;
use crate::text::string_enum;
use crate::words::{DEFAULT_TIER, LABEL_TIER};

string_enum! {
    /// What happens to a packet that matches a rule.
    Action { Allow = "Allow", Deny = "Deny", Log = "Log", Pass = "Pass" }
}

string_enum! {
    /// A direction that a policy applies to.
    PolicyType { Ingress = "Ingress", Egress = "Egress" }
}

string_enum! {
    /// What a staged policy proposes to do with the policy of the same name.
    StagedAction { Set = "Set", Delete = "Delete", Learn = "Learn", Ignore = "Ignore" }
}

string_enum! {
    /// Advice to the policy engine that never changes a verdict.
    PolicyPerformanceHint { AssumeNeededOnEveryNode = "AssumeNeededOnEveryNode" }
}

/// The CRDs' message about a misplaced `global()`.
pub(crate) const GLOBAL_ONLY_IN_RULES: &str = "global() can only be used in an EntityRule namespaceSelector";

/// The message about other fields in a staged deletion.
pub(crate) const DELETE_WANTS_NOTHING: &str =
    "Spec fields, except Tier, should all be zero-value if stagedAction is Delete";

/// Fills in `types` from the existing rules, if it is empty.
pub(crate) fn default_types(types: &mut Vec<PolicyType>, ingress: &[Rule], egress: &[Rule]) {
    if !types.is_empty() {
        return;
    }
    *types = match (ingress.is_empty(), egress.is_empty()) {
        (_, true) => vec![PolicyType::Ingress],
        (true, false) => vec![PolicyType::Egress],
        (false, false) => vec![PolicyType::Ingress, PolicyType::Egress],
    };
}

/// Fills in the tier, and forces the corresponding label.
pub(crate) fn default_tier(tier: &mut String, metadata: &mut ObjectMeta) {
    if tier.is_empty() {
        DEFAULT_TIER.clone_into(tier);
    }
    metadata.labels.insert(LABEL_TIER.to_owned(), tier.clone());
}

/// Adds the tier label to an object that was stored without one.
pub(crate) fn default_tier_label(metadata: &mut ObjectMeta) {
    metadata.labels.entry(LABEL_TIER.to_owned()).or_insert_with(|| DEFAULT_TIER.to_owned());
}

/// Whether a service match in a rule must say its namespace, because the policy has none of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServiceNamespace {
    /// The policy's own is meant when none is given.
    Optional,
    /// It must be given.
    Required,
}

/// The items that already occur earlier in the list.
pub(crate) fn repeated<T: PartialEq>(items: &[T]) -> impl Iterator<Item = (usize, &T)> {
    items.iter().enumerate().filter(move |(index, item)| items[..*index].contains(item))
}

/// Checks the lists of enumerations: the schema treats empty text as an absent value, which it is not in a list.
pub(crate) fn check_lists(types: &[PolicyType], hints: &[PolicyPerformanceHint], errors: &mut FieldErrors) {
    let spec = FieldPath::new("spec");
    for (index, repeated) in repeated(types) {
        let reason = format!("'{repeated}' type specified more than once");
        errors.add(spec.child("types").index(index), repeated, reason);
    }
    for (index, repeated) in repeated(hints) {
        errors.add(spec.child("performanceHints").index(index), repeated, "specified more than once");
    }
    for (index, _) in types.iter().enumerate().filter(|(_, policy_type)| policy_type.is_unset()) {
        errors.add(spec.child("types").index(index), "", "must be one of: Ingress, Egress");
    }
    for (index, _) in hints.iter().enumerate().filter(|(_, hint)| hint.is_unset()) {
        errors.add(
            spec.child("performanceHints").index(index),
            "",
            "must be one of: AssumeNeededOnEveryNode",
        );
    }
}

/// Checks the parts of a policy that all four kinds have.
pub(crate) fn check_policy(
    tier: &str,
    selectors: &[(&str, &SelectorText)],
    ingress: &[Rule],
    egress: &[Rule],
    namespace: ServiceNamespace,
    errors: &mut FieldErrors,
) {
    let spec = FieldPath::new("spec");
    if !tier.is_empty() && !names::is_dns_subdomain(tier) {
        errors.add(spec.child("tier"), tier, "must be the name of a tier");
    }
    for (name, selector) in selectors {
        selector.validate(&spec.child(name), errors);
    }
    for (index, rule) in ingress.iter().enumerate() {
        let path = spec.child("ingress").index(index);
        rule.validate(&path, errors);
        if let Some(services) = &rule.destination.services {
            let place = path.child("destination").child("services");
            errors.add(place, &services.name, "not allowed in ingress rule destination");
        }
        if let Some(services) = &rule.source.services
            && services.namespace.is_empty()
            && namespace == ServiceNamespace::Required
        {
            errors.add(
                path.child("source").child("services").child("namespace"),
                "",
                "must specify a namespace",
            );
        }
    }
    for (index, rule) in egress.iter().enumerate() {
        let path = spec.child("egress").index(index);
        rule.validate(&path, errors);
        if let Some(services) = &rule.source.services {
            let place = path.child("source").child("services");
            errors.add(place, &services.name, "not allowed in egress rule source");
        }
        if rule.http.is_some() {
            errors.add(path.child("http"), "", "not allowed in egress rule");
        }
        if let Some(services) = &rule.destination.services
            && services.namespace.is_empty()
            && namespace == ServiceNamespace::Required
        {
            errors.add(
                path.child("destination").child("services").child("namespace"),
                "",
                "must specify a namespace",
            );
        }
    }
}
