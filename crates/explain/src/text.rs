//! Formats an explanation for a terminal: first the verdict and the rule that decided, then the path of the packet.

use crate::report::{Explanation, FlowReport, Outcome, PolicyReport, RuleReport, Stage, Verdict};
use std::fmt::Write as _;

impl Explanation {
    /// Formats the explanation. With `everything`, includes the policies that do not select the endpoints.
    #[must_use]
    pub fn to_text(&self, everything: bool) -> String {
        let mut out = String::new();
        if self.flows.len() > 1 {
            let allowed = self.flows.iter().filter(|flow| flow.verdict == Verdict::Allow).count();
            line(
                &mut out,
                0,
                &format!(
                    "{} -> {}: {} of {} backends can be reached\n",
                    self.from,
                    self.to,
                    allowed,
                    self.flows.len()
                ),
            );
        }
        for (index, flow) in self.flows.iter().enumerate() {
            if index > 0 {
                out.push('\n');
            }
            flow_text(flow, everything, &mut out);
        }
        for note in &self.notes {
            line(&mut out, 0, &format!("note: {note}"));
        }
        out
    }
}

fn line(out: &mut String, depth: usize, text: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{:indent$}{text}", "", indent = 2 * depth);
}

fn flow_text(flow: &FlowReport, everything: bool, out: &mut String) {
    let verdict = match flow.verdict {
        Verdict::Deny => "DENIED",
        Verdict::Allow | Verdict::Partly => "ALLOWED",
    };
    let FlowReport { source, source_address, destination, destination_address, traffic, .. } = flow;
    line(
        out,
        0,
        &format!(
            "{verdict}  {source} ({source_address}) -> {destination} ({destination_address}), {traffic}"
        ),
    );
    line(out, 0, &format!("at {}", flow.decided_by));
    if let Some(staged) = &flow.if_staged {
        line(out, 0, &format!("staged: {staged}"));
    }
    for note in &flow.notes {
        line(out, 0, &format!("note: {note}"));
    }
    for (index, stage) in flow.stages.iter().enumerate() {
        out.push('\n');
        stage_text(index + 1, stage, everything, out);
    }
}

fn stage_text(number: usize, stage: &Stage, everything: bool, out: &mut String) {
    let word = match stage.outcome {
        Outcome::Allow => "allowed",
        Outcome::Deny => "DENIED",
        Outcome::Through => "continues",
    };
    line(out, 0, &format!("{number}. {}: {word}", stage.place));
    if stage.tiers.is_empty() && stage.profiles.is_empty() {
        line(out, 1, &stage.decided_by);
    }
    for tier in &stage.tiers {
        line(out, 1, &format!("tier {}", tier.name));
        for policy in &tier.policies {
            policy_text(policy, out);
        }
        if let Some(end) = &tier.end {
            line(out, 2, &format!("end of tier: {end}"));
        }
    }
    if !stage.profiles.is_empty() {
        line(out, 1, if stage.tiers.is_empty() { "no policy selects it; profiles" } else { "profiles" });
        for profile in &stage.profiles {
            policy_text(profile, out);
        }
    }
    if stage.outcome == Outcome::Deny
        && stage.tiers.iter().all(|tier| tier.end.is_some())
        && !stage.profiles.is_empty()
    {
        line(out, 1, &stage.decided_by);
    }
    if everything && !stage.not_selecting.is_empty() {
        line(out, 1, "policies that do not select it");
        for policy in &stage.not_selecting {
            line(out, 2, policy);
        }
    }
}

fn policy_text(policy: &PolicyReport, out: &mut String) {
    let decision = match (&policy.decision, policy.staged) {
        (Some(action), false) => format!(": {action}"),
        (Some(action), true) => format!(" (staged): would {action}"),
        (None, false) => ": no rule matches".to_owned(),
        (None, true) => " (staged): no rule would match".to_owned(),
    };
    line(out, 2, &format!("{}{decision}", policy.name));
    for rule in &policy.rules {
        rule_text(rule, out);
    }
    if policy.rules.is_empty() {
        line(out, 3, "it has no rules for this direction");
    }
}

fn rule_text(rule: &RuleReport, out: &mut String) {
    let sign = if rule.matches { '+' } else { '-' };
    line(out, 3, &format!("{sign} {}  {}", rule.place, rule.text));
    for reason in &rule.failed {
        line(out, 5, reason);
    }
}
