//! Guesses what the user meant: the nearest known name, and names that people bring from Kubernetes' own policies.
//!
//! A suggestion is only made when it is likely; a wrong one costs more time than none.

use serde_json::{Map, Value};

/// Names that other APIs use for something that has a different name in Calico, with Calico's name.
const SYNONYMS: &[(&str, &str)] = &[
    ("policyTypes", "types"),
    ("podSelector", "selector"),
    ("endpointSelector", "selector"),
    ("matchLabels", "selector"),
    ("ipBlock", "nets"),
    ("cidr", "nets"),
    ("cidrs", "nets"),
    ("ips", "nets"),
    ("except", "notNets"),
    ("port", "ports"),
    ("priority", "order"),
    ("asn", "asNumber"),
    ("nodeName", "node"),
    ("iface", "interfaceName"),
];

/// The candidate closest to `name`, if it is close enough.
pub(super) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A name this long is not a typing error, and comparing takes the product of the lengths.
    if name.len() > 128 {
        return None;
    }
    let lower = name.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| {
            let other = candidate.to_lowercase();
            (strsim::damerau_levenshtein(&lower, &other), candidate)
        })
        .filter(|(distance, candidate)| *distance <= allowed_distance(name, candidate))
        .min_by_key(|(distance, candidate)| (*distance, *candidate))
        .map(|(_, candidate)| candidate)
}

fn allowed_distance(name: &str, candidate: &str) -> usize {
    name.chars().count().min(candidate.chars().count()).div_ceil(3).min(3)
}

/// The advice about Kubernetes' `from` and `to` in a rule of Calico's: they mean the peer, and which end that is
/// depends on the direction. The other end is the pod itself, and a policy with the two swapped would mean something
/// else.
pub(super) fn other_end(name: &str, path: &str) -> Option<(String, &'static str)> {
    let direction = path.rsplit(['.', '[', ']']).find(|part| matches!(*part, "ingress" | "egress"))?;
    let (peer, own) =
        if direction == "ingress" { ("source", "destination") } else { ("destination", "source") };
    matches!(name, "from" | "to").then(|| {
        let help =
            format!("write `{peer}` for the peer; in {direction} rules `{own}` is the selected pod itself");
        (help, peer)
    })
}

/// The advice about a field that `schema` does not have, and the field of the same map that was probably meant.
/// `ancestors` are the schemas around it, innermost last.
pub(super) fn for_unknown_field<'a>(
    name: &str,
    schema: &'a Map<String, Value>,
    ancestors: &[(&str, &Map<String, Value>)],
) -> (String, Option<&'a str>) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return ("no fields are known here".to_owned(), None);
    };
    if let Some(meant) = nearest(name, properties.keys().map(String::as_str)) {
        return (format!("did you mean `{meant}`?"), Some(meant));
    }
    if let Some((_, meant)) =
        SYNONYMS.iter().find(|(other, meant)| *other == name && properties.contains_key(*meant))
    {
        return (format!("Calico calls it `{meant}`"), Some(meant));
    }
    (elsewhere(name, properties, ancestors), None)
}

/// Where a field of this name belongs, or which fields are known here.
fn elsewhere(
    name: &str,
    properties: &Map<String, Value>,
    ancestors: &[(&str, &Map<String, Value>)],
) -> String {
    let below: Vec<String> = properties
        .iter()
        .filter(|(_, property)| has_property(property.as_object(), name))
        .map(|(parent, _)| format!("`{parent}`"))
        .collect();
    if !below.is_empty() {
        return format!("`{name}` is a field of {}", below.join(" and "));
    }
    if let Some((place, _)) = ancestors.iter().rev().find(|(_, ancestor)| has_property(Some(ancestor), name))
    {
        let place =
            if place.is_empty() { "at the top level".to_owned() } else { format!("directly in `{place}`") };
        return format!("`{name}` belongs {place}");
    }
    let names: Vec<&str> = properties.keys().map(String::as_str).collect();
    if names.len() <= 24 {
        format!("known fields: {}", names.join(", "))
    } else {
        "there is no such field here".to_owned()
    }
}

fn has_property(schema: Option<&Map<String, Value>>, name: &str) -> bool {
    let Some(schema) = schema else { return false };
    let here = |schema: &Map<String, Value>| {
        schema
            .get("properties")
            .and_then(Value::as_object)
            .is_some_and(|properties| properties.contains_key(name))
    };
    here(schema) || schema.get("items").and_then(Value::as_object).is_some_and(here)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_depends_on_the_direction() {
        for (name, path, expected) in [
            ("from", "spec.ingress[0].from", Some("source")),
            ("from", "spec.egress[3].from", Some("destination")),
            ("to", "spec.egress[0].to", Some("destination")),
            ("to", "spec.ingress[0].to", Some("source")),
            ("port", "spec.egress[0].port", None),
            ("from", "spec.from", None),
        ] {
            assert_eq!(other_end(name, path).map(|(_, meant)| meant), expected, "{path}");
        }
    }

    #[test]
    fn near_names_only() {
        let known = ["selector", "notSelector", "nets", "ports", "namespaceSelector"];
        assert_eq!(nearest("selctor", known), Some("selector"));
        assert_eq!(nearest("Selector", known), Some("selector"));
        assert_eq!(nearest("port", known), Some("ports"));
        assert_eq!(nearest("action", known), None);
        assert_eq!(nearest("x", known), None);
        assert_eq!(nearest(&"s".repeat(1000), known), None);
    }
}
