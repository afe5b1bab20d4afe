//! Properties of random objects: nothing panics, and once written, an object is always written the same.

use api::{Kind, Resource};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Names that often make a random field a real one, and sometimes not.
fn field_name() -> impl Strategy<Value = String> {
    prop_oneof![
        9 => proptest::sample::select(vec![
            "metadata", "spec", "status", "name", "namespace", "labels", "annotations", "tier", "order", "ingress", "egress",
            "selector", "types", "action", "protocol", "notProtocol", "icmp", "notICMP", "type", "code", "ipVersion",
            "source", "destination", "nets", "notNets", "ports", "notPorts", "namespaceSelector", "notSelector", "services",
            "serviceAccounts", "names", "http", "methods", "paths", "exact", "prefix", "stagedAction", "podSelector",
            "matchLabels", "matchExpressions", "key", "operator", "values", "from", "to", "ipBlock", "cidr", "except",
            "port", "endPort", "policyTypes", "defaultAction", "conditions", "labelsToApply", "doNotTrack", "preDNAT",
            "applyOnForward", "performanceHints", "serviceAccountSelector",
        ])
        .prop_map(str::to_owned),
        1 => "[a-z]{0,6}",
    ]
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-300i64..70_000).prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        proptest::sample::select(vec![
            "",
            "Allow",
            "Deny",
            "TCP",
            "ICMPv6",
            "6",
            "80:90",
            "http",
            "10.0.0.0/8",
            "10.0.0.1",
            "::/0",
            "has(a)",
            "global()",
            "a == 'b' && (",
            "default",
            "Ingress",
            "Egress",
            "Delete",
            "Set",
            "1m30s",
            "é/ü",
            "/path?x",
        ])
        .prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(6, 48, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((field_name(), inner), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn rule() -> impl Strategy<Value = Value> {
    let entity = || {
        proptest::collection::btree_map(
            proptest::sample::select(vec![
                "nets",
                "selector",
                "ports",
                "notNets",
                "namespaceSelector",
                "services",
                "notPorts",
            ]),
            prop_oneof![
                proptest::collection::vec(
                    scalar().prop_filter("a list of text or numbers", |v| v.is_string() || v.is_i64()),
                    0..3
                )
                .prop_map(Value::from),
                scalar(),
            ],
            0..4,
        )
    };
    (scalar(), scalar(), entity(), entity()).prop_map(|(action, protocol, source, destination)| {
        json!({"action": action, "protocol": protocol, "source": source, "destination": destination})
    })
}

/// Reads a value as each kind; if that works, runs everything that a client runs, and compares two writings.
fn run_all(value: &Value) -> Result<(), TestCaseError> {
    for kind in Kind::ALL {
        let Ok(first) = Resource::from_value(*kind, value.clone()) else { continue };
        let written = first.to_json().unwrap();
        let second = Resource::from_json(*kind, &written).unwrap();
        let rewritten = second.to_json().unwrap();
        prop_assert_eq!(
            String::from_utf8_lossy(&rewritten),
            String::from_utf8_lossy(&written),
            "{} changes when it is written twice",
            kind
        );
        let mut defaulted = first;
        let _ = defaulted.validate();
        defaulted.set_read_defaults();
        defaulted.set_defaults();
        let once = defaulted.to_json().unwrap();
        defaulted.set_defaults();
        prop_assert_eq!(defaulted.to_json().unwrap(), once, "defaults of {} are not idempotent", kind);
        let _ = defaulted.validate();
        let _ = defaulted.validate_update(&second);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn random_objects_never_panic(spec in value(), metadata in value()) {
        run_all(&json!({"metadata": metadata, "spec": spec}))?;
        run_all(&json!({"metadata": {"name": "p"}, "spec": spec}))?;
    }

    #[test]
    fn random_rules_never_panic(rules in proptest::collection::vec(rule(), 0..4), order in any::<f64>(), hint in scalar()) {
        run_all(&json!({
            "metadata": {"name": "p"},
            "spec": {"order": order, "ingress": rules, "egress": rules, "performanceHints": [hint]}
        }))?;
    }
}
