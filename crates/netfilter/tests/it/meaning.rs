//! The meaning of a rule, whatever its text: conditions in any order, and ports in any form.
//!
//! Our rules differ from Calico's in both, on purpose: conditions that cost the kernel little come first, and a few
//! ports are compared one by one instead of looked up in a set. Nothing else may differ.

use serde_json::Value;
use std::collections::BTreeMap;

/// A rule as `nft` prints it in JSON, normalised so that equal meanings compare equal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Meaning {
    /// Conditions that are not about ports, in the order of their text.
    conditions: Vec<String>,
    /// The ranges of ports that match, by protocol and field.
    ports: BTreeMap<String, Vec<(u16, u16)>>,
    /// The actions, in order; conditions after the first limit are among them.
    rest: Vec<String>,
}

impl Meaning {
    pub(crate) fn of(expressions: &Value) -> Self {
        let all = expressions.as_array().expect("a list of expressions");
        let count = all.iter().take_while(|one| one.get("match").is_some()).count();
        let (questions, rest) = all.split_at(count);
        let mut conditions = Vec::new();
        let mut about_ports: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
        for one in questions {
            let field = &one["match"]["left"]["payload"];
            match field["field"].as_str() {
                Some("sport" | "dport") => {
                    about_ports.entry(field.to_string()).or_default().push(&one["match"]);
                }
                _ => conditions.push(one.to_string()),
            }
        }
        conditions.sort();
        let ports = about_ports.into_iter().map(|(field, all)| (field, ranges(&all))).collect();
        Self { conditions, ports, rest: rest.iter().map(Value::to_string).collect() }
    }
}

/// The ranges of ports that meet all conditions.
fn ranges(conditions: &[&Value]) -> Vec<(u16, u16)> {
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for port in (0..=u16::MAX).filter(|port| conditions.iter().all(|one| meets(one, *port))) {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(port) => *last = port,
            _ => ranges.push((port, port)),
        }
    }
    ranges
}

fn meets(condition: &Value, port: u16) -> bool {
    let right = &condition["right"];
    match condition["op"].as_str() {
        Some("==" | "in") => holds(right, port),
        Some("!=") => !holds(right, port),
        Some(">=") => port >= number(right),
        Some("<=") => port <= number(right),
        other => panic!("{other:?} in {condition}"),
    }
}

/// Whether a port, a range or a set contains this port.
fn holds(value: &Value, port: u16) -> bool {
    if let Some(range) = value.get("range") {
        return (number(&range[0])..=number(&range[1])).contains(&port);
    }
    match value.get("set").and_then(Value::as_array) {
        Some(set) => set.iter().any(|one| holds(one, port)),
        None => number(value) == port,
    }
}

fn number(value: &Value) -> u16 {
    value.as_u64().and_then(|one| u16::try_from(one).ok()).unwrap_or_else(|| panic!("no port: {value}"))
}

#[test]
fn different_texts_with_equal_meaning_compare_equal() {
    let port = |op: &str, right: Value| serde_json::json!({"match": {"op": op, "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": right}});
    let mark = serde_json::json!({"match": {"op": "==", "left": {"meta": {"key": "mark"}}, "right": 1}});
    let of = |list: &[&Value]| {
        Meaning::of(&Value::from(list.iter().map(|one| (*one).clone()).collect::<Vec<_>>()))
    };
    let set = port("==", serde_json::json!({"set": [80, {"range": [90, 95]}]}));
    let (from, to) = (port(">=", 80.into()), port("<=", 95.into()));
    let gap = port("!=", serde_json::json!({"range": [81, 89]}));
    assert_eq!(of(&[&set, &mark]), of(&[&mark, &from, &to, &gap]));
    assert_ne!(of(&[&set, &mark]), of(&[&mark, &from, &to]));
    assert_ne!(of(&[&set, &mark]), of(&[&set]));
    let (accept, counter) = (serde_json::json!({"accept": null}), serde_json::json!({"counter": null}));
    assert_ne!(of(&[&mark, &accept, &counter]), of(&[&mark, &counter, &accept]));
}
