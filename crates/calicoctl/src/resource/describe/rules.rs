//! Prints a policy rule as one line: its action, and the packets that it matches by source and destination.

use api::{EntityRule, ICMPFields, Rule};
use std::fmt::Display;

/// The rule in one line.
pub(super) fn line(rule: &Rule) -> String {
    let mut parts = vec![rule.action.to_string()];
    parts.extend(rule.ip_version.map(|version| format!("IPv{version}")));
    parts.extend(rule.protocol.as_ref().map(ToString::to_string));
    parts.extend(rule.not_protocol.as_ref().map(|protocol| format!("any protocol but {protocol}")));
    parts.extend(rule.icmp.as_deref().map(icmp));
    parts.extend(rule.not_icmp.as_deref().map(|fields| format!("but not {}", icmp(fields))));
    for (word, end) in [("from", &rule.source), ("to", &rule.destination)] {
        let conditions = conditions(end);
        if !conditions.is_empty() {
            parts.push(format!("{word} {}", conditions.join(" and ")));
        }
    }
    if let Some(http) = &rule.http {
        let what = [http.methods.join(", "), format!("{} paths", http.paths.len())];
        parts.push(format!("(HTTP: {})", what.join("; ")));
    }
    if let Some(name) = rule.metadata.as_ref().and_then(|metadata| metadata.annotations.get("name")) {
        parts.push(format!("\"{name}\""));
    }
    parts.join(" ")
}

fn conditions(end: &EntityRule) -> Vec<String> {
    let mut found = Vec::new();
    if !end.selector.is_empty() {
        found.push(format!("endpoints with {}", end.selector));
    }
    if !end.not_selector.is_empty() {
        found.push(format!("anything but endpoints with {}", end.not_selector));
    }
    if !end.namespace_selector.is_empty() {
        found.push(format!("namespaces with {}", end.namespace_selector));
    }
    if let Some(accounts) = &end.service_accounts {
        if !accounts.names.is_empty() {
            found.push(format!("service accounts {}", accounts.names.join(", ")));
        }
        if !accounts.selector.is_empty() {
            found.push(format!("service accounts with {}", accounts.selector));
        }
    }
    if let Some(service) = &end.services {
        let namespace =
            if service.namespace.is_empty() { String::new() } else { format!("{}/", service.namespace) };
        found.push(format!("service {namespace}{}", service.name));
    }
    for (list, word) in [(&end.nets, ""), (&end.not_nets, "not ")] {
        if !list.is_empty() {
            found.push(format!("{word}{}", join(list)));
        }
    }
    for (list, word) in [(&end.ports, ""), (&end.not_ports, "not ")] {
        if !list.is_empty() {
            let plural = if list.len() == 1 { "" } else { "s" };
            found.push(format!("{word}port{plural} {}", join(list)));
        }
    }
    found
}

fn icmp(fields: &ICMPFields) -> String {
    let number = |name: &str, value: Option<String>| value.map(|value| format!("{name} {value}"));
    let parts: Vec<String> = [
        number("type", fields.icmp_type.as_ref().map(ToString::to_string)),
        number("code", fields.code.as_ref().map(ToString::to_string)),
    ]
    .into_iter()
    .flatten()
    .collect();
    parts.join(" ")
}

fn join(items: &[impl Display]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_a_line() {
        for (json, expected) in [
            (r#"{"action":"Allow"}"#, "Allow"),
            (
                r#"{"action":"Allow","protocol":"TCP","source":{"selector":"app == 'web'"},"destination":{"ports":[80,"8000:8100"]}}"#,
                "Allow TCP from endpoints with app == 'web' to ports 80, 8000:8100",
            ),
            (
                r#"{"action":"Deny","ipVersion":4,"notProtocol":"UDP","source":{"nets":["10.0.0.0/8"],"notNets":["10.1.0.0/16"]}}"#,
                "Deny IPv4 any protocol but UDP from 10.0.0.0/8 and not 10.1.0.0/16",
            ),
            (
                r#"{"action":"Allow","protocol":"ICMP","icmp":{"type":8,"code":0},"destination":{"namespaceSelector":"all()","serviceAccounts":{"names":["a","b"]}}}"#,
                "Allow ICMP type 8 code 0 to namespaces with all() and service accounts a, b",
            ),
            (
                r#"{"action":"Log","destination":{"services":{"name":"db","namespace":"shop"},"notPorts":[22]},"metadata":{"annotations":{"name":"mine"}}}"#,
                "Log to service shop/db and not port 22 \"mine\"",
            ),
        ] {
            let rule: Rule = serde_json::from_str(json).expect("a rule");
            assert_eq!(line(&rule), expected, "{json}");
        }
    }
}
