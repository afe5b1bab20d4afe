//! Policies that select nothing, only log, contain rules for a direction they do not apply to, or follow another policy
//! of their tier that decides everything.

use super::{Finding, Severity, rules};
use crate::report::Direction;
use crate::world::{Item, ItemKind, Policy, World};
use api::{Action, Kind, PolicyType, Resource, Rule};

pub(super) fn look(world: &World<'_>, has_endpoints: bool, findings: &mut Vec<Finding>) {
    for policy in &world.policies {
        if let Some(fault) = policy.selection.faults.first() {
            findings.push(Finding::of(
                &policy.identity,
                Severity::Warning,
                "unreadable",
                "spec",
                format!("selects nothing: its {fault}"),
                "correct the selector",
            ));
        } else if has_endpoints && selected(world, policy).next().is_none() {
            findings.push(Finding::of(
                &policy.identity,
                Severity::Note,
                "selects-nobody",
                "spec.selector",
                format!("selects nothing: no endpoint has {}", policy.selection.text()),
                "correct the selector, or label the endpoints",
            ));
        }
        if !world.tiers.iter().any(|tier| tier.name == policy.tier && tier.exists) {
            findings.push(Finding::of(
                &policy.identity,
                Severity::Warning,
                "no-tier",
                "spec.tier",
                format!(
                    "tier {} does not exist, so what it selects is denied after all other tiers",
                    policy.tier
                ),
                format!("create tier {}, or correct the name", policy.tier),
            ));
        }
        only_logs(world, policy, findings);
        behind_another(world, policy, findings);
    }
    for resource in world.cluster.resources() {
        rules_without_a_type(resource, findings);
    }
}

/// The endpoints that a policy selects.
fn selected<'w>(world: &'w World<'_>, policy: &'w Policy) -> impl Iterator<Item = &'w Item> {
    world.items.iter().filter(|item| {
        item.kind != ItemKind::Set
            && policy.selection.faults.is_empty()
            && policy.selection.selects(&item.labels)
    })
}

fn only_logs(world: &World<'_>, policy: &Policy, findings: &mut Vec<Finding>) {
    let denies = world.tiers.iter().any(|tier| tier.name == policy.tier && !tier.passes);
    for direction in [Direction::Ingress, Direction::Egress] {
        let rules = policy.rules(direction).unwrap_or_default();
        if denies && !rules.is_empty() && rules.iter().all(|rule| rule.rule.action == Action::Log) {
            let way = direction.as_str();
            findings.push(Finding::of(
                &policy.identity,
                Severity::Warning,
                "only-logs",
                format!("spec.{way}"),
                format!(
                    "its {way} rules only log: unless another policy of tier {} allows them, packets are denied at the end of the tier",
                    policy.tier
                ),
                "add an Allow or Pass rule after the Log rules",
            ));
        }
    }
}

/// Whether two policies apply to packets at the same hooks.
fn meet_alike(one: &Policy, other: &Policy) -> bool {
    one.do_not_track == other.do_not_track
        && one.pre_dnat == other.pre_dnat
        && (one.apply_on_forward || !other.apply_on_forward)
}

fn behind_another(world: &World<'_>, policy: &Policy, findings: &mut Vec<Finding>) {
    let mine: Vec<&Item> = selected(world, policy).collect();
    if mine.is_empty() || policy.staged.is_some() {
        return;
    }
    for direction in [Direction::Ingress, Direction::Egress] {
        if policy.rules(direction).is_none_or(<[_]>::is_empty) {
            continue;
        }
        let earlier = world
            .policies
            .iter()
            .take_while(|other| other.identity != policy.identity)
            .filter(|other| other.tier == policy.tier && other.staged.is_none() && meet_alike(other, policy))
            .find(|other| {
                let decides = |rule: &Rule| {
                    matches!(rule.action, Action::Allow | Action::Deny | Action::Pass)
                        && rules::covers(rule, &Rule::default())
                };
                let all = other.rules(direction).unwrap_or_default();
                all.iter().any(|rule| rule.rule.extra.is_empty() && decides(&rule.rule))
                    && mine.iter().all(|item| other.selection.selects(&item.labels))
            });
        if let Some(earlier) = earlier {
            let way = direction.as_str();
            findings.push(Finding::of(
                &policy.identity,
                Severity::Warning,
                "never-reached",
                format!("spec.{way}"),
                format!(
                    "never reached: {} comes first in tier {}, selects the same endpoints, and decides about every {way} packet",
                    earlier.name(),
                    policy.tier
                ),
                "give it a lower order than the other one",
            ));
        }
    }
}

/// Finds rules for a direction that the policy's types leave out.
fn rules_without_a_type(resource: &Resource, findings: &mut Vec<Finding>) {
    let (types, ingress, egress) = match resource {
        Resource::NetworkPolicy(object) => (&object.spec.types, &object.spec.ingress, &object.spec.egress),
        Resource::GlobalNetworkPolicy(object) => {
            (&object.spec.types, &object.spec.ingress, &object.spec.egress)
        }
        _ => return,
    };
    let identity: (Kind, String, String) =
        (resource.kind(), resource.namespace().to_owned(), resource.name().to_owned());
    for (wanted, way, rules) in
        [(PolicyType::Ingress, "ingress", ingress), (PolicyType::Egress, "egress", egress)]
    {
        if !types.is_empty() && !types.contains(&wanted) && !rules.is_empty() {
            findings.push(Finding::of(
                &identity,
                Severity::Warning,
                "ignored-rules",
                format!("spec.{way}"),
                format!("its {way} rules have no effect: spec.types does not have {}", wanted.as_str()),
                format!("add {} to spec.types, or remove the rules", wanted.as_str()),
            ));
        }
    }
}
