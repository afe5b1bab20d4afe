//! Which flows are wanted. All fields must pass; of the values of a field one is enough, and a field without values passes.

use crate::key::{Action, FlowKey, Reporter};
use crate::trace::{Decider, PolicyHit, PolicyKind};

/// A text to compare with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StringMatch {
    /// The text.
    pub value: String,
    /// Whether it may be a part only.
    pub is_fuzzy: bool,
}

impl StringMatch {
    fn passes(&self, value: &str) -> bool {
        if self.is_fuzzy { value.contains(&self.value) } else { value == self.value }
    }
}

/// A decision to look for. Parts that are not given are not compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyMatch {
    /// The kind of policy.
    pub kind: PolicyKind,
    /// Its tier.
    pub tier: Option<StringMatch>,
    /// Its namespace.
    pub namespace: Option<StringMatch>,
    /// Its name.
    pub name: Option<StringMatch>,
    /// What was decided.
    pub action: Action,
}

/// Which flows are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The names of sources.
    pub source_names: Vec<StringMatch>,
    /// Their namespaces.
    pub source_namespaces: Vec<StringMatch>,
    /// The names of destinations.
    pub dest_names: Vec<StringMatch>,
    /// Their namespaces.
    pub dest_namespaces: Vec<StringMatch>,
    /// Protocols.
    pub protocols: Vec<StringMatch>,
    /// Ports of destinations.
    pub dest_ports: Vec<i64>,
    /// What was done.
    pub actions: Vec<Action>,
    /// What would be decided, by any policy.
    pub pending_actions: Vec<Action>,
    /// Decisions, enforced or pending.
    pub policies: Vec<PolicyMatch>,
    /// Who reports.
    pub reporter: Reporter,
}

impl Filter {
    /// Whether a flow is wanted.
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

    /// Whether every flow is wanted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether one of the texts passes, for the value or for what pages show in its place.
fn any(wanted: &[StringMatch], value: &str, shown: fn(&str) -> Option<&'static str>) -> bool {
    wanted.is_empty()
        || wanted
            .iter()
            .any(|wanted| wanted.passes(value) || shown(value).is_some_and(|shown| wanted.passes(shown)))
}

/// What Calico's page shows for the names of networks, and sends back as a filter.
fn shown_name(name: &str) -> Option<&'static str> {
    match name {
        "pub" => Some("PUBLIC NETWORK"),
        "pvt" => Some("PRIVATE NETWORK"),
        _ => None,
    }
}

/// The page shows no namespace as `Global`.
fn shown_namespace(namespace: &str) -> Option<&'static str> {
    match namespace {
        "-" => Some("Global"),
        "Global" => Some("-"),
        _ => None,
    }
}

impl PolicyMatch {
    /// Whether a decision is wanted. The end of a tier has a tier, and no name or namespace.
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
