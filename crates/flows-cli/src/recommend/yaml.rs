//! The file: staged policies, with the flows that each rule is for in comments. The same flows give the same bytes.

use super::build::{PeerClause, Policy, Rule};
use super::{Options, Recommendation};
use crate::flow::Flow;
use crate::text::{clean, count};
use crate::time;
use flows::Direction;
use serde_json::{Value, json};

/// The maximum number of flows listed for a rule.
const MOST_FLOWS: usize = 8;

/// The whole file.
#[must_use]
pub fn to_yaml(made: &Recommendation, flows: &[Flow], options: &Options) -> String {
    let mut out = String::new();
    let times = flows
        .iter()
        .map(|flow| flow.start)
        .min()
        .zip(flows.iter().map(|flow| flow.end.max(flow.start)).max());
    if let Some((first, last)) = times {
        let (first, last) = (time::show(first), time::show(last));
        out.push_str(&format!(
            "# From {} between {first} and {last}.\n",
            count(flows.len() as u64, "recorded flow")
        ));
    }
    out.push_str(&format!(
        "# Checked: {} of workloads below allowed as before, {} denied as before, {} otherwise.\n",
        count(made.allowed as u64, "flow"),
        made.denied,
        made.differences.len(),
    ));
    out.push_str(
        "# Staged policies deny nothing. Look at `calicoctl flows --would-deny` before enforcing them.\n",
    );
    for note in &made.notes {
        comment(&mut out, "", note);
    }
    for difference in &made.differences {
        let (was, is) = if difference.was_allowed { ("allowed", "denied") } else { ("denied", "allowed") };
        comment(
            &mut out,
            "",
            &format!("Differs: {} was {was} and would be {is}: {}", difference.flow, difference.reason),
        );
    }
    for policy in &made.policies {
        out.push_str("---\n");
        self::policy(&mut out, policy, options);
    }
    out
}

fn policy(out: &mut String, policy: &Policy, options: &Options) {
    let head = json!({
        "apiVersion": api::kind::API_VERSION,
        "kind": "StagedNetworkPolicy",
        "metadata": {"name": policy.name, "namespace": policy.namespace},
    });
    out.push_str(&api::yaml::to_string(&head));
    out.push_str("spec:\n");
    let spec = json!({
        "stagedAction": "Set",
        "tier": options.tier,
        "order": options.order,
        "selector": policy.selector,
        "types": policy.types(),
    });
    indented(out, &spec);
    for (name, rules, direction) in
        [("ingress", &policy.ingress, Direction::Ingress), ("egress", &policy.egress, Direction::Egress)]
    {
        match rules.as_deref() {
            None => comment(out, "  ", &format!("{name}: nothing was recorded, and nothing is restricted")),
            Some([]) => {
                comment(out, "  ", "Everything that was recorded was denied.");
                out.push_str(&format!("  {name}: []\n"));
            }
            Some(rules) => {
                out.push_str(&format!("  {name}:\n"));
                for rule in rules {
                    flows_of(out, rule);
                    indented(out, &Value::Array(rule.to_values(direction)));
                }
            }
        }
    }
}

fn flows_of(out: &mut String, rule: &Rule) {
    for (text, connections) in rule.flows.iter().take(MOST_FLOWS) {
        comment(out, "  ", &format!("{text} ({})", count(*connections, "connection")));
    }
    if let Some(more) = rule.flows.len().checked_sub(MOST_FLOWS).filter(|more| *more > 0) {
        comment(out, "  ", &format!("and {more} more"));
    }
    if matches!(rule.peer, PeerClause::Private | PeerClause::Public) {
        comment(out, "  ", "Only addresses without an owner: endpoints and sets are denied first.");
    }
}

/// Appends a comment; no part of a name can break out of its line.
fn comment(out: &mut String, indent: &str, text: &str) {
    out.push_str(&format!("{indent}# {}\n", clean(text)));
}

fn indented(out: &mut String, value: &Value) {
    for line in api::yaml::to_string(value).lines() {
        out.push_str(&format!("  {line}\n"));
    }
}
