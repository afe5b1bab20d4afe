//! The rule that leads to WireGuard's table: it matches every packet that WireGuard did not send itself.

use super::KernelSettings;
use netlink::{Error, Family, Kernel, Operation, Rule, RuleAction};

/// The desired rule.
pub(super) fn wanted(family: Family, settings: &KernelSettings) -> Rule {
    Rule {
        mark: Some((settings.mark, settings.mark)),
        invert: true,
        ..Rule::to_table(family, settings.rule_priority, settings.table)
    }
}

/// Whether a rule is one that Felix creates, whatever its mark and priority were.
fn looks_like_ours(rule: &Rule) -> bool {
    rule.invert
        && rule.mark.is_some_and(|(mark, mask)| mark == mask && mark != 0)
        && rule.action == RuleAction::Table
        && rule.source.is_none()
        && rule.destination.is_none()
}

fn is_same(found: &Rule, wanted: &Rule) -> bool {
    // The protocol is ignored: Calico's Felix does not set it.
    Rule { protocol: wanted.protocol, ..found.clone() } == *wanted
}

/// Makes sure that this rule alone leads to the table, or that none of ours does; returns whether there was one of
/// ours.
///
/// With WireGuard enabled the table belongs to Felix alone, and so do the rules that lead to it. Otherwise only rules
/// that look like ours are removed: another program may use the table.
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
        // The new rule first: packets then always find one of the two.
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
