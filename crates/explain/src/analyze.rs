//! Finds mistakes in a cluster's policies and pools: rules that never match or are never reached, selectors that select
//! nothing, policies that only log, pools that cannot serve.
//!
//! Every finding names its object and the path in it, the problem in one sentence, and a remedy. Only the current state
//! is judged: a selector that selects nothing today may be meant for tomorrow, which is why findings are not errors.
//!
//! - [`rules`]: each rule by itself, and relative to earlier rules.
//! - [`policies`]: whole policies, alone and relative to earlier ones in their tier.
//! - [`pools`]: pools, and how full they are.

mod policies;
mod pools;
mod rules;

pub use pools::{Addresses, PoolRoom};

use crate::Cluster;
use crate::cluster::Identity;
use crate::counted::counted;
use crate::world::{ItemKind, World};
use serde::Serialize;
use std::fmt::Write as _;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It certainly does not do what was meant.
    Warning,
    /// It may be intended.
    Note,
}

impl Severity {
    /// The name of the severity in the output.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// A mistake, or a likely one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// The kind of finding, for programs: `never-matches`, `never-reached`, `selects-nobody` ...
    pub check: &'static str,
    /// The object's kind.
    pub kind: String,
    /// Its namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The path in it: `spec.ingress[1]`.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

impl Finding {
    fn of(
        identity: &Identity,
        severity: Severity,
        check: &'static str,
        path: impl Into<String>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let (kind, namespace, name) = identity;
        Self {
            severity,
            check,
            kind: kind.as_str().to_owned(),
            namespace: namespace.clone(),
            name: name.clone(),
            path: path.into(),
            message: message.into(),
            remedy: remedy.into(),
        }
    }

    /// Kind and name, as users write them.
    #[must_use]
    pub fn object(&self) -> String {
        let Self { kind, namespace, name, .. } = self;
        if namespace.is_empty() { format!("{kind} {name}") } else { format!("{kind} {namespace}/{name}") }
    }
}

/// The result of an analysis.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Analysis {
    /// The findings, ordered by object and path.
    pub findings: Vec<Finding>,
    /// What could not be checked, and why.
    pub notes: Vec<String>,
}

impl Analysis {
    /// The findings for a terminal, two lines each. `place` returns the file and line of an object.
    #[must_use]
    pub fn to_text(&self, place: impl Fn(&Finding) -> Option<String>) -> String {
        let mut out = String::new();
        for finding in &self.findings {
            let Finding { severity, path, message, remedy, .. } = finding;
            let place = place(finding).map(|place| format!("{place}: ")).unwrap_or_default();
            let path = if path.is_empty() { String::new() } else { format!(" {path}") };
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "{place}{}: {}{path}: {message}\n    {remedy}",
                severity.as_str(),
                finding.object()
            );
        }
        for note in &self.notes {
            let _ = writeln!(out, "note: {note}");
        }
        let count =
            |wanted: Severity| self.findings.iter().filter(|finding| finding.severity == wanted).count();
        let _ = match (count(Severity::Warning), count(Severity::Note)) {
            (0, 0) => writeln!(out, "nothing found"),
            (warnings, notes) => {
                writeln!(out, "{}, {}", counted(warnings, "warning"), counted(notes, "note"))
            }
        };
        out
    }

    /// Whether any finding is a warning.
    #[must_use]
    pub fn has_warnings(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Warning)
    }
}

/// Runs all checks. Without `addresses`, the use of pools is not checked.
#[must_use]
pub fn analyze(cluster: &Cluster, addresses: Option<&Addresses>) -> Analysis {
    let world = World::new(cluster);
    let mut notes = Vec::new();
    let has_endpoints = world.items.iter().any(|item| item.kind != ItemKind::Set);
    if !has_endpoints && !world.policies.is_empty() {
        notes.push("no endpoints are known, so selectors were not checked".to_owned());
    }
    let mut findings = Vec::new();
    policies::look(&world, has_endpoints, &mut findings);
    rules::look(&world, has_endpoints, &mut findings);
    pools::look(cluster, addresses, &mut findings);
    findings.sort_by(|one, other| {
        let key = |finding: &Finding| {
            (finding.kind.clone(), finding.namespace.clone(), finding.name.clone(), finding.path.clone())
        };
        key(one).cmp(&key(other)).then(one.severity.cmp(&other.severity))
    });
    Analysis { findings, notes }
}

/// A rule's path in its object: rules of Calico's own kinds are below `spec`.
fn path(place: &str) -> String {
    if place.starts_with("spec.") { place.to_owned() } else { format!("spec.{place}") }
}
