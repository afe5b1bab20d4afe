//! What a cluster's policies and pools say and cannot mean: rules that never match or are never reached, selectors that
//! select nobody, policies that only log, pools that cannot serve.
//!
//! Every finding names its object and the place in it, says what is wrong in one sentence, and what to do. It judges what
//! is there now: a selector that selects nobody today may be meant for tomorrow, which is why findings are not errors.
//!
//! - [`rules`]: one rule by itself, and one rule after another.
//! - [`policies`]: whole policies, alone and after others of their tier.
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
    /// It surely does not do what was meant.
    Warning,
    /// It may be meant so.
    Note,
}

impl Severity {
    /// The word for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// Something that cannot mean what it says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// The kind of finding, for programs: `never-matches`, `never-reached`, `selects-nobody` ...
    pub check: &'static str,
    /// The object's kind.
    pub kind: String,
    /// Its namespace; empty for objects of the cluster.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The place in it: `spec.ingress[1]`.
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

    /// Kind and name, as people write them.
    #[must_use]
    pub fn object(&self) -> String {
        let Self { kind, namespace, name, .. } = self;
        if namespace.is_empty() { format!("{kind} {name}") } else { format!("{kind} {namespace}/{name}") }
    }
}

/// What an analysis found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Analysis {
    /// The findings, by object and place.
    pub findings: Vec<Finding>,
    /// What could not be looked at, and why.
    pub notes: Vec<String>,
}

impl Analysis {
    /// The findings for a terminal, two lines each. `place` says where an object stands: a file and a line.
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

    /// Whether there is a warning among the findings.
    #[must_use]
    pub fn has_warnings(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Warning)
    }
}

/// Looks at everything. Without `addresses`, how full pools are is not known.
#[must_use]
pub fn analyze(cluster: &Cluster, addresses: Option<&Addresses>) -> Analysis {
    let world = World::new(cluster);
    let mut notes = Vec::new();
    let has_endpoints = world.items.iter().any(|item| item.kind != ItemKind::Set);
    if !has_endpoints && !world.policies.is_empty() {
        notes.push("no endpoints are known, so nothing is said about whom selectors select".to_owned());
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

/// A rule's place in its object: rules of Calico's own kinds stand below `spec`.
fn path(place: &str) -> String {
    if place.starts_with("spec.") { place.to_owned() } else { format!("spec.{place}") }
}
