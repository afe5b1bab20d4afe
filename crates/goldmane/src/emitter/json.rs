//! A flow as a line of JSON: field names as in the protocol, numbers for enums, zero values left out.

use flows::ring::Row;
use flows::{Decider, FlowKey, Labels, PolicyHit, PolicyName};
use serde_json::{Map, Value, json};

/// The JSON line for a flow.
pub(super) fn line(row: &Row) -> String {
    let key = row.entry.key();
    let counters = &row.counters;
    let labels = |labels: &Labels| labels.texts().iter().map(|text| json!(&**text)).collect::<Value>();
    object([
        ("Key", key_value(key)),
        ("start_time", json!(row.start)),
        ("end_time", json!(row.end)),
        ("source_labels", labels(&row.source_labels)),
        ("dest_labels", labels(&row.dest_labels)),
        ("packets_in", json!(counters.packets_in)),
        ("packets_out", json!(counters.packets_out)),
        ("bytes_in", json!(counters.bytes_in)),
        ("bytes_out", json!(counters.bytes_out)),
        ("num_connections_started", json!(counters.started)),
        ("num_connections_completed", json!(counters.completed)),
        ("num_connections_live", json!(counters.live)),
    ])
    .to_string()
}

fn key_value(key: &FlowKey) -> Value {
    let hits = |hits: &[PolicyHit]| hits.iter().map(hit).collect::<Value>();
    object([
        ("source_name", json!(&*key.source.name)),
        ("source_namespace", json!(&*key.source.namespace)),
        ("source_type", json!(key.source.kind.number())),
        ("dest_name", json!(&*key.dest.name)),
        ("dest_namespace", json!(&*key.dest.namespace)),
        ("dest_type", json!(key.dest.kind.number())),
        ("dest_port", json!(key.dest_port)),
        ("dest_service_name", json!(&*key.service.name)),
        ("dest_service_namespace", json!(&*key.service.namespace)),
        ("dest_service_port_name", json!(&*key.service.port_name)),
        ("dest_service_port", json!(key.service.port)),
        ("proto", json!(&*key.protocol)),
        ("reporter", json!(key.reporter.number())),
        ("action", json!(key.action.number())),
        (
            "policies",
            Value::Object(map([
                ("enforced_policies", hits(&key.trace.enforced)),
                ("pending_policies", hits(&key.trace.pending)),
            ])),
        ),
    ])
}

fn hit(hit: &PolicyHit) -> Value {
    let decision = [
        ("action", json!(hit.action.number())),
        ("policy_index", json!(hit.index)),
        ("rule_index", json!(hit.rule())),
    ];
    let mut value = match &hit.by {
        Decider::Rule { policy, .. } => policy_map(policy),
        Decider::EndOfTier { tier, trigger } => {
            let mut value =
                map([("kind", json!(flows::PolicyKind::EndOfTier.number())), ("tier", json!(&**tier))]);
            if let Some(trigger) = trigger {
                value.insert("trigger".to_owned(), Value::Object(policy_map(trigger)));
            }
            value
        }
    };
    value.extend(map(decision));
    Value::Object(value)
}

fn policy_map(policy: &PolicyName) -> Map<String, Value> {
    map([
        ("kind", json!(policy.kind.number())),
        ("namespace", json!(&*policy.namespace)),
        ("name", json!(&*policy.name)),
        ("tier", json!(&*policy.tier)),
    ])
}

fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value::Object(map(fields))
}

fn map<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    let is_zero = |value: &Value| *value == json!(0) || *value == json!("") || *value == json!([]);
    let fields = fields.into_iter().filter(|(_, value)| !is_zero(value));
    fields.map(|(name, value)| (name.to_owned(), value)).collect()
}
