//! Rules that never match, and rules for which an earlier rule of the same policy leaves nothing.
//!
//! One rule covers another if each of its conditions is either absent, or implied by the other's. Conditions are
//! compared as written, except for networks and ports, so a reported cover is certain, but some covers are not found.

use super::{Finding, Severity, path};
use crate::clauses::rule_text;
use crate::report::Direction;
use crate::world::{ItemKind, Policy, PolicyRule, World};
use api::scalars::{IpOrCidr, Port};
use api::{Action, EntityRule, Rule};
use ipnet::IpNet;

pub(super) fn look(world: &World<'_>, has_endpoints: bool, findings: &mut Vec<Finding>) {
    for policy in &world.policies {
        for direction in [Direction::Ingress, Direction::Egress] {
            let rules = policy.rules(direction).unwrap_or_default();
            for (index, rule) in rules.iter().enumerate() {
                let never = impossible(&rule.rule).map(|reason| (Severity::Warning, reason));
                let now = || {
                    let reason = has_endpoints.then(|| selects_nobody(world, rule)).flatten()?;
                    Some((Severity::Note, reason))
                };
                if let Some((severity, (message, remedy))) = never.or_else(now) {
                    findings.push(Finding::of(
                        &policy.identity,
                        severity,
                        "never-matches",
                        path(&rule.place),
                        message,
                        remedy,
                    ));
                } else if let Some(earlier) =
                    rules[..index].iter().find(|earlier| leaves_nothing(earlier, rule))
                {
                    findings.push(never_reached(policy, rule, earlier));
                }
            }
        }
    }
}

fn never_reached(policy: &Policy, rule: &PolicyRule, earlier: &PolicyRule) -> Finding {
    let same = earlier.rule == rule.rule;
    let message = if same {
        format!("repeats rule {}", earlier.place)
    } else {
        format!(
            "never reached: rule {} ({}) matches everything that it matches",
            earlier.place,
            rule_text(earlier)
        )
    };
    let remedy = if same {
        "remove one of them".to_owned()
    } else {
        format!("move it before {}, or remove it", earlier.place)
    };
    Finding::of(&policy.identity, Severity::Warning, "never-reached", path(&rule.place), message, remedy)
}

/// Whether an earlier rule decides about every packet that a rule matches.
fn leaves_nothing(earlier: &PolicyRule, rule: &PolicyRule) -> bool {
    matches!(earlier.rule.action, Action::Allow | Action::Deny | Action::Pass)
        && earlier.rule.extra.is_empty()
        && covers(&earlier.rule, &rule.rule)
}

/// Whether the first rule matches everything that the second one does.
pub(super) fn covers(wide: &Rule, narrow: &Rule) -> bool {
    fn same_or_none<T: PartialEq>(wide: Option<&T>, narrow: Option<&T>) -> bool {
        wide.is_none() || wide == narrow
    }
    same_or_none(wide.ip_version.as_ref(), narrow.ip_version.as_ref())
        && same_or_none(wide.protocol.as_ref(), narrow.protocol.as_ref())
        && same_or_none(wide.not_protocol.as_ref(), narrow.not_protocol.as_ref())
        && same_or_none(wide.icmp.as_ref(), narrow.icmp.as_ref())
        && same_or_none(wide.not_icmp.as_ref(), narrow.not_icmp.as_ref())
        && same_or_none(wide.http.as_ref(), narrow.http.as_ref())
        && covers_end(&wide.source, &narrow.source)
        && covers_end(&wide.destination, &narrow.destination)
}

fn covers_end(wide: &EntityRule, narrow: &EntityRule) -> bool {
    let labels = |end: &EntityRule| {
        (end.selector.to_string(), end.namespace_selector.to_string(), end.service_accounts.clone())
    };
    let no_labels = wide.selector.is_empty()
        && wide.namespace_selector.is_empty()
        && wide.service_accounts.is_none()
        && wide.not_selector.is_empty();
    let nets = wide.nets.is_empty()
        || (!narrow.nets.is_empty() && narrow.nets.iter().all(|net| within(net, &wide.nets)));
    let ports = wide.ports.is_empty()
        || (!narrow.ports.is_empty()
            && narrow.ports.iter().all(|port| wide.ports.iter().any(|other| holds(other, port))));
    (no_labels || (labels(wide) == labels(narrow) && wide.not_selector == narrow.not_selector))
        && nets
        && ports
        && (wide.not_nets.is_empty() || wide.not_nets == narrow.not_nets)
        && (wide.not_ports.is_empty() || wide.not_ports == narrow.not_ports)
        && (wide.services.is_none() || wide.services == narrow.services)
        && wide.extra.is_empty()
}

fn net(text: &IpOrCidr) -> Option<IpNet> {
    text.parse().ok().map(|network| network.masked())
}

fn within(one: &IpOrCidr, list: &[IpOrCidr]) -> bool {
    net(one).is_some_and(|one| list.iter().filter_map(net).any(|other| other.contains(&one)))
}

fn holds(wide: &Port, narrow: &Port) -> bool {
    match (wide, narrow) {
        (Port::Range { min, max }, Port::Range { min: from, max: to }) => min <= from && to <= max,
        (wide, narrow) => wide == narrow,
    }
}

/// Why no packet can ever meet the conditions, and the remedy.
fn impossible(rule: &Rule) -> Option<(String, String)> {
    let never = |reason: String, remedy: &str| Some((format!("never matches: {reason}"), remedy.to_owned()));
    if let (Some(wanted), Some(unwanted)) = (&rule.protocol, &rule.not_protocol)
        && wanted == unwanted
    {
        return never(format!("protocol and notProtocol are both {wanted}"), "remove one of them");
    }
    for (name, end) in [("source", &rule.source), ("destination", &rule.destination)] {
        if !end.nets.is_empty() && end.nets.iter().all(|net| within(net, &end.not_nets)) {
            return never(format!("{name}.notNets excludes all of {name}.nets"), "narrow notNets");
        }
        let is_excluded = |port: &Port| end.not_ports.iter().any(|other| holds(other, port));
        if !end.ports.is_empty() && end.ports.iter().all(is_excluded) {
            return never(format!("{name}.notPorts excludes all of {name}.ports"), "narrow notPorts");
        }
        if let Some(version) = rule.ip_version {
            let fits = |net: IpNet| (version == 4) == net.addr().is_ipv4();
            if !end.nets.is_empty() && !end.nets.iter().filter_map(net).any(fits) {
                return never(
                    format!("{name}.nets has no IPv{version} network, and ipVersion is {version}"),
                    "correct ipVersion or the networks",
                );
            }
        }
        if !end.selector.is_empty() && end.selector == end.not_selector {
            return never(
                format!("{name}.selector and {name}.notSelector are the same"),
                "remove one of them",
            );
        }
    }
    let versions = |end: &EntityRule| {
        let nets: Vec<IpNet> = end.nets.iter().filter_map(net).collect();
        (
            nets.is_empty() || nets.iter().any(|net| net.addr().is_ipv4()),
            nets.is_empty() || nets.iter().any(|net| net.addr().is_ipv6()),
        )
    };
    let (source, destination) = (versions(&rule.source), versions(&rule.destination));
    if !(source.0 && destination.0 || source.1 && destination.1) {
        return never(
            "source.nets and destination.nets are of different IP versions".to_owned(),
            "write one rule for each IP version",
        );
    }
    None
}

/// Why no endpoint in the cluster meets the selectors, and the remedy.
fn selects_nobody(world: &World<'_>, rule: &PolicyRule) -> Option<(String, String)> {
    for (name, end, selections) in [
        ("source", &rule.rule.source, &rule.source),
        ("destination", &rule.rule.destination, &rule.destination),
    ] {
        let selection = &selections.positive;
        if selection.is_empty() || !selection.faults.is_empty() || end.services.is_some() {
            continue;
        }
        let mut with_labels = world.items.iter().filter(|item| selection.selects(&item.labels)).peekable();
        if with_labels.peek().is_none() {
            return Some((
                format!(
                    "matches nothing: no endpoint or network set has the labels of its {name}: {}",
                    selection.text()
                ),
                "correct the selector, or label the endpoints".to_owned(),
            ));
        }
        let nets: Vec<IpNet> = end.nets.iter().filter_map(net).collect();
        let is_in = |item: &crate::world::Item| {
            item.kind == ItemKind::Set
                || item.nets.iter().any(|own| nets.iter().any(|net| net.contains(&own.addr())))
        };
        if !nets.is_empty() && !with_labels.any(is_in) {
            return Some((
                format!("matches nothing: nothing with the labels of its {name} has an address in its nets"),
                "correct the selector or the networks".to_owned(),
            ));
        }
    }
    None
}
