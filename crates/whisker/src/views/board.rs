//! The policy board: tiers in order, their policies with what each rule decided, staged policies beside enforced ones.
//!
//! Only knows what flows contain: a policy that decided nothing is not shown.

use super::order::order;
use super::traffic::Sum;
use crate::source::Flow;
use crate::wire;
use flows::{Action, Decider, Direction, PolicyHit, PolicyKind, PolicyName};
use serde::Serialize;
use std::collections::BTreeMap;

/// The policy board, for the page.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Board {
    tiers: Vec<Tier>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Tier {
    /// Empty for profiles.
    name: String,
    policies: Vec<Policy>,
    /// Decisions of the tier's default action.
    end: Decided,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Policy {
    kind: &'static str,
    namespace: String,
    name: String,
    staged: bool,
    #[serde(flatten)]
    decided: Decided,
    rules: Vec<Rule>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Rule {
    direction: &'static str,
    /// -1: no rule matched, and this policy made the tier apply.
    rule: i64,
    #[serde(flatten)]
    decided: Decided,
}

/// The traffic by decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Decided {
    allowed: Sum,
    denied: Sum,
    passed: Sum,
}

impl Decided {
    fn count(&mut self, action: Action, sum: &Sum) {
        match action {
            Action::Allow => self.allowed.add(sum),
            Action::Deny => self.denied.add(sum),
            Action::Pass => self.passed.add(sum),
            Action::Unspecified => {}
        }
    }
}

type Rules = BTreeMap<(Direction, i64), Decided>;

/// Builds the board.
#[must_use]
pub(crate) fn board(flows: &[Flow]) -> Board {
    let mut policies: BTreeMap<&PolicyName, (Decided, Rules)> = BTreeMap::new();
    let mut ends: BTreeMap<&str, Decided> = BTreeMap::new();
    for flow in flows {
        let counters = &flow.counters;
        let sum = Sum {
            bytes: counters.bytes_in.saturating_add(counters.bytes_out),
            packets: counters.packets_in.saturating_add(counters.packets_out),
            connections: counters.started,
        };
        let direction = flow.key.reporter.direction();
        let trace = &flow.key.trace;
        // Enforced policies count with what they did, staged ones with what they would have done.
        let staged = trace.pending.iter().filter(|hit| is_staged(hit));
        for hit in trace.enforced.iter().chain(staged) {
            if let Decider::EndOfTier { tier, .. } = &hit.by
                && !is_staged(hit)
            {
                ends.entry(tier).or_default().count(hit.action, &sum);
            }
            let Some(policy) = hit.policy() else { continue };
            let (decided, rules) = policies.entry(policy).or_default();
            decided.count(hit.action, &sum);
            rules.entry((direction, hit.rule())).or_default().count(hit.action, &sum);
        }
    }
    let traces = || flows.iter().flat_map(|flow| [&flow.key.trace.enforced, &flow.key.trace.pending]);
    let mut tiers = order(traces().map(|hits| hits.iter().map(tier).collect()));
    // Profiles decide after all tiers.
    tiers.sort_by_key(|name| name.is_empty());
    let tiers = tiers.into_iter().map(|name| {
        let here = traces().map(|hits| {
            let hits = hits.iter().filter(|hit| tier(hit) == name);
            hits.filter_map(|hit| hit.policy().map(|policy| &*policy.name)).collect()
        });
        let places: BTreeMap<&str, usize> = order(here).into_iter().zip(0..).collect();
        let mut policies: Vec<Policy> =
            policies.iter().filter(|(policy, _)| &*policy.tier == name).map(shown).collect();
        policies.sort_by_key(|policy| places.get(policy.name.as_str()).copied());
        Tier { name: name.to_owned(), policies, end: ends.get(name).copied().unwrap_or_default() }
    });
    Board { tiers: tiers.collect() }
}

fn is_staged(hit: &PolicyHit) -> bool {
    hit.policy().is_some_and(|policy| policy.kind.is_staged())
}

fn tier(hit: &PolicyHit) -> &str {
    match &hit.by {
        Decider::Rule { policy, .. } if policy.kind == PolicyKind::Profile => "",
        Decider::Rule { policy, .. } => &policy.tier,
        Decider::EndOfTier { tier, .. } => tier,
    }
}

fn shown((policy, (decided, rules)): (&&PolicyName, &(Decided, Rules))) -> Policy {
    let rule = |((direction, rule), decided): (&(Direction, i64), &Decided)| Rule {
        direction: match direction {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        },
        rule: *rule,
        decided: *decided,
    };
    Policy {
        kind: wire::kind(policy.kind),
        namespace: policy.namespace.to_string(),
        name: policy.name.to_string(),
        staged: policy.kind.is_staged(),
        decided: *decided,
        rules: rules.iter().map(rule).collect(),
    }
}
