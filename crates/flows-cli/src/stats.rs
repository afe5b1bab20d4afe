//! Counts what each policy and rule did: allowed, denied, passed on.

use crate::flow::{self, Flow};
use crate::text::{clean, table};
use crate::top::By;
use flows::{Action, Direction, PolicyHit, PolicyName};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The figures of a policy or rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Kind and name of the policy.
    pub policy: String,
    /// Its tier.
    pub tier: String,
    /// The direction and index of the rule; -1 is the end of the tier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<(&'static str, i64)>,
    /// Whether it is staged: the figures are what it would have done.
    pub staged: bool,
    /// Allowed.
    pub allowed: u64,
    /// Denied.
    pub denied: u64,
    /// Passed on to the next tier.
    pub passed: u64,
}

/// A rule's direction and index, if rules are counted.
type RulePlace = Option<(Direction, i64)>;

/// The figures of all policies, by tier, policy and rule. A decision in both traces counts once.
#[must_use]
pub fn stats(flows: &[Flow], by: By, only_policies: bool) -> Vec<Row> {
    let mut rows: BTreeMap<(PolicyName, RulePlace), Row> = BTreeMap::new();
    for flow in flows {
        let figure = match by {
            By::Bytes => flow::bytes(&flow.counters),
            By::Packets => flow::packets(&flow.counters),
            By::Connections => flow.counters.started,
        };
        let direction = flow.key.reporter.direction();
        // Each policy or rule counts a flow once per action.
        let mut seen: BTreeSet<(&PolicyName, RulePlace, Action)> = BTreeSet::new();
        for hit in flow.key.trace.enforced.iter().chain(&flow.key.trace.pending) {
            let Some(policy) = hit.policy() else { continue };
            let rule = (!only_policies).then(|| (direction, hit.rule()));
            if !seen.insert((policy, rule, hit.action)) {
                continue;
            }
            let row = rows.entry((policy.clone(), rule)).or_insert_with(|| new_row(policy, rule, hit));
            let sum = match hit.action {
                Action::Allow => &mut row.allowed,
                Action::Deny => &mut row.denied,
                Action::Pass => &mut row.passed,
                Action::Unspecified => continue,
            };
            *sum = sum.saturating_add(figure);
        }
    }
    let mut rows: Vec<Row> = rows.into_values().collect();
    rows.sort_by(|one, two| (&one.tier, &one.policy, one.rule).cmp(&(&two.tier, &two.policy, two.rule)));
    rows
}

fn new_row(policy: &PolicyName, rule: RulePlace, hit: &PolicyHit) -> Row {
    let direction = |direction| if direction == Direction::Ingress { "ingress" } else { "egress" };
    Row {
        policy: clean(&flow::policy_text(hit.policy().unwrap_or(policy))),
        tier: clean(&policy.tier),
        rule: rule.map(|(which, place)| (direction(which), place)),
        staged: policy.kind.is_staged(),
        allowed: 0,
        denied: 0,
        passed: 0,
    }
}

/// The figures as a table.
#[must_use]
pub fn to_text(rows: &[Row], by: By, only_policies: bool) -> String {
    let rule = |row: &Row| match row.rule {
        Some((direction, -1)) => format!("{direction}, end of tier"),
        Some((direction, place)) => format!("{direction}[{place}]"),
        None => String::new(),
    };
    let name = |row: &Row| {
        if row.staged { format!("{} (only tried)", row.policy) } else { row.policy.clone() }
    };
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let mut cells = vec![row.tier.clone(), name(row)];
            if !only_policies {
                cells.push(rule(row));
            }
            cells.extend([row.allowed, row.denied, row.passed].map(|figure| figure.to_string()));
            cells
        })
        .collect();
    let mut header = vec!["TIER", "POLICY"];
    if !only_policies {
        header.push("RULE");
    }
    header.extend(["ALLOWED", "DENIED", "PASSED"]);
    let unit = match by {
        By::Bytes => "bytes",
        By::Packets => "packets",
        By::Connections => "connections that began",
    };
    format!("Figures are {unit}.\n{}", table(&header, &cells))
}
