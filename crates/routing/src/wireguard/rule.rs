//! The rule that leads to WireGuard's table: every packet that WireGuard did not send itself.

use super::KernelSettings;
use netlink::{Error, Family, Kernel, Operation, Rule, RuleAction};

/// The rule.
pub(super) fn wanted(family: Family, settings: &KernelSettings) -> Rule {
    Rule {
        mark: Some((settings.mark, settings.mark)),
        invert: true,
        ..Rule::to_table(family, settings.rule_priority, settings.table)
    }
}

/// Whether a rule is what Felix makes, whatever its mark and place were.
fn looks_like_ours(rule: &Rule) -> bool {
    rule.invert
        && rule.mark.is_some_and(|(mark, mask)| mark == mask && mark != 0)
        && rule.action == RuleAction::Table
        && rule.source.is_none()
        && rule.destination.is_none()
}

fn is_same(found: &Rule, wanted: &Rule) -> bool {
    // Who made it does not matter: Calico's Felix does not say.
    Rule { protocol: wanted.protocol, ..found.clone() } == *wanted
}

/// Has this rule lead to the table and no other, or none of ours; true when there was one of ours.
///
/// With WireGuard the table is Felix's alone, and so are the rules that lead there. Without it only what looks like ours
/// goes: somebody else may use the table.
pub(super) fn bring_about(
    kernel: &mut dyn Kernel,
    family: Family,
    table: u32,
    wanted: Option<&Rule>,
) -> Result<bool, Error> {
    let mut operations = Vec::new();
    let (mut has_it, mut had_ours) = (false, false);
    for rule in kernel.rules(family)?.into_iter().filter(|rule| rule.table == table) {
        let ours = looks_like_ours(&rule);
        had_ours |= ours;
        match wanted {
            Some(wanted) if is_same(&rule, wanted) => has_it = true,
            Some(_) => operations.push(Operation::DeleteRule(rule)),
            None if ours => operations.push(Operation::DeleteRule(rule)),
            None => {}
        }
    }
    if let Some(wanted) = wanted.filter(|_| !has_it) {
        // The new one first: packets find it, or the old one, at any time.
        operations.insert(0, Operation::AddRule(wanted.clone()));
    }
    for outcome in kernel.apply(&operations) {
        match outcome {
            Err(error) if !error.is_missing() && !error.is_exists() => return Err(error),
            _ => {}
        }
    }
    Ok(had_ours)
}
