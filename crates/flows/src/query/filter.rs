//! Selects flows. All fields must match; any one value of a field is enough, and a field without values matches.

use crate::key::{Action, FlowKey, Reporter};
use crate::trace::{Decider, PolicyHit, PolicyKind};

/// A string to compare with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StringMatch {
    /// The string.
    pub value: String,
    /// Whether a substring is enough.
    pub is_fuzzy: bool,
}

impl StringMatch {
    fn passes(&self, value: &str) -> bool {
        if self.is_fuzzy { value.contains(&self.value) } else { value == self.value }
    }
}

/// A decision to look for. Parts that are `None` are not compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyMatch {
    /// The kind of policy.
    pub kind: PolicyKind,
    /// The policy's tier.
    pub tier: Option<StringMatch>,
    /// The policy's namespace.
    pub namespace: Option<StringMatch>,
    /// The policy's name.
    pub name: Option<StringMatch>,
    /// The decision.
    pub action: Action,
}

/// The conditions on flows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Names of sources.
    pub source_names: Vec<StringMatch>,
    /// Namespaces of sources.
    pub source_namespaces: Vec<StringMatch>,
    /// Names of destinations.
    pub dest_names: Vec<StringMatch>,
    /// Namespaces of destinations.
    pub dest_namespaces: Vec<StringMatch>,
    /// Names of protocols.
    pub protocols: Vec<StringMatch>,
    /// Ports of destinations.
    pub dest_ports: Vec<i64>,
    /// Enforced actions.
    pub actions: Vec<Action>,
    /// Actions that any policy would take if staged policies were enforced.
    pub pending_actions: Vec<Action>,
    /// Decisions, enforced or pending.
    pub policies: Vec<PolicyMatch>,
    /// The reporting end.
    pub reporter: Reporter,
}

impl Filter {
    /// Whether a flow matches.
    #[must_use]
    pub fn passes(&self, key: &FlowKey) -> bool {
        let hits = || key.trace.enforced.iter().chain(&key.trace.pending);
        (self.reporter == Reporter::Unspecified || self.reporter == key.reporter)
            && (self.actions.is_empty() || self.actions.contains(&key.action))
            && (self.dest_ports.is_empty() || self.dest_ports.contains(&key.dest_port))
            && any(&self.source_namespaces, &key.source.namespace, shown_namespace)
            && any(&self.dest_namespaces, &key.dest.namespace, shown_namespace)
            && any(&self.source_names, &key.source.name, shown_name)
            && any(&self.dest_names, &key.dest.name, shown_name)
            && any(&self.protocols, &key.protocol, |_| None)
            && (self.pending_actions.is_empty()
                || key.trace.pending.iter().any(|hit| self.pending_actions.contains(&hit.action)))
            && (self.policies.is_empty()
                || hits().any(|hit| self.policies.iter().any(|wanted| wanted.passes(hit))))
    }

    /// Whether every flow matches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether one of the strings matches the value, or what Calico's page shows in its place.
fn any(wanted: &[StringMatch], value: &str, shown: fn(&str) -> Option<&'static str>) -> bool {
    wanted.is_empty()
        || wanted
            .iter()
            .any(|wanted| wanted.passes(value) || shown(value).is_some_and(|shown| wanted.passes(shown)))
}

/// The name that Calico's page shows for networks, and sends back in a filter.
fn shown_name(name: &str) -> Option<&'static str> {
    match name {
        "pub" => Some("PUBLIC NETWORK"),
        "pvt" => Some("PRIVATE NETWORK"),
        _ => None,
    }
}

/// Calico's page shows `Global` where there is no namespace.
fn shown_namespace(namespace: &str) -> Option<&'static str> {
    match namespace {
        "-" => Some("Global"),
        "Global" => Some("-"),
        _ => None,
    }
}

impl PolicyMatch {
    /// Whether a decision matches. The end of a tier has a tier, but no name or namespace.
    #[must_use]
    pub fn passes(&self, hit: &PolicyHit) -> bool {
        let (tier, namespace, name): (&str, &str, &str) = match &hit.by {
            Decider::Rule { policy, .. } => (&policy.tier, &policy.namespace, &policy.name),
            Decider::EndOfTier { tier, .. } => (tier, "", ""),
        };
        (self.action == Action::Unspecified || self.action == hit.action)
            && self.passes_policy(hit.kind(), tier, namespace, name)
    }

    pub(crate) fn passes_policy(&self, kind: PolicyKind, tier: &str, namespace: &str, name: &str) -> bool {
        let passes = |wanted: &Option<StringMatch>, value: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted.value.is_empty() || wanted.passes(value))
        };
        (self.kind == PolicyKind::Unspecified || self.kind == kind)
            && passes(&self.tier, tier)
            && passes(&self.namespace, namespace)
            && passes(&self.name, name)
    }
}
