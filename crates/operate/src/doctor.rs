//! `tortie doctor`: finds what prevents or impairs an installation, each with a remedy.
//!
//! Checks are functions of facts: [`HostFacts`] of this machine, [`ClusterFacts`] of a cluster. Shells gather the
//! facts; an unavailable fact is reported as unknown, and never counts as good.

mod cluster_checks;
mod cluster_facts;
mod host_checks;
mod host_facts;

pub use cluster_checks::check_cluster;
pub(crate) use cluster_facts::ClusterFacts;
pub use cluster_facts::gather_cluster;
pub(crate) use host_checks::check_host;
pub(crate) use host_facts::{HostFacts, gather_host};

use explain::counted;
use serde::Serialize;
use std::fmt::Write as _;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// It could not be determined.
    Unknown,
    /// It may matter.
    Warning,
    /// It will not work.
    Problem,
}

/// The outcome of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The name of the check.
    pub check: &'static str,
    /// The severity.
    pub level: Level,
    /// What was found.
    pub text: String,
    /// The remedy; empty if nothing needs to be done.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

impl Finding {
    pub(crate) fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, text: text.into(), remedy: String::new() }
    }

    pub(crate) fn unknown(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, level: Level::Unknown, text: text.into(), remedy: String::new() }
    }

    pub(crate) fn warning(check: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, level: Level::Warning, text: text.into(), remedy: remedy.into() }
    }

    pub(crate) fn problem(check: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, level: Level::Problem, text: text.into(), remedy: remedy.into() }
    }
}

/// The findings as text.
#[must_use]
pub(crate) fn to_text(findings: &[Finding]) -> String {
    let mut out = String::new();
    for finding in findings {
        let mark = match finding.level {
            Level::Ok => "ok",
            Level::Unknown => "?",
            Level::Warning => "warning",
            Level::Problem => "PROBLEM",
        };
        // Writing to a string does not fail.
        let _ = writeln!(out, "{mark:<8} {:<20} {}", finding.check, finding.text);
        if !finding.remedy.is_empty() {
            let _ = writeln!(out, "{:<29} remedy: {}", "", finding.remedy);
        }
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let _ = writeln!(
        out,
        "{}: {}, {}, {} unknown",
        counted(findings.len(), "check"),
        counted(count(Level::Problem), "problem"),
        counted(count(Level::Warning), "warning"),
        count(Level::Unknown)
    );
    out
}

/// Whether anything will not work.
#[must_use]
pub(crate) fn has_problems(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.level == Level::Problem)
}

#[cfg(test)]
mod tests {
    use super::{Finding, to_text};

    #[test]
    fn findings_are_counted() {
        let (ok, odd) = (Finding::ok("a", "fine"), Finding::warning("b", "odd", "do this"));
        let last = |findings: &[Finding]| to_text(findings).lines().last().unwrap_or_default().to_owned();
        assert_eq!(last(std::slice::from_ref(&odd)), "1 check: 0 problems, 1 warning, 0 unknown");
        assert_eq!(last(&[ok, odd.clone(), odd]), "3 checks: 0 problems, 2 warnings, 0 unknown");
    }
}
