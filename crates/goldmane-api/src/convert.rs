//! Converts between messages and values.

use crate::proto;
use bytes::Bytes;
use flows::collector::CollectedFlow;
use flows::query::{Filter, PolicyMatch, StringMatch};
use flows::ring::Row;
use flows::{
    Action, Counters, Decider, EndpointType, FlowKey, Labels, Peer, PolicyHit, PolicyKind, PolicyName,
    Reporter, Service, Trace,
};
use prost::Message as _;
use std::sync::Arc;

/// Decodes the key of a flow.
///
/// # Errors
/// When the bytes are not a key.
pub fn decode_key(bytes: &[u8]) -> Result<FlowKey, prost::DecodeError> {
    let key = proto::FlowKey::decode(bytes)?;
    let policies = key.policies.unwrap_or_default();
    Ok(FlowKey {
        source: Peer {
            kind: EndpointType::from_number(key.source_type),
            namespace: key.source_namespace.into(),
            name: key.source_name.into(),
        },
        dest: Peer {
            kind: EndpointType::from_number(key.dest_type),
            namespace: key.dest_namespace.into(),
            name: key.dest_name.into(),
        },
        dest_port: key.dest_port,
        service: Service {
            namespace: key.dest_service_namespace.into(),
            name: key.dest_service_name.into(),
            port_name: key.dest_service_port_name.into(),
            port: key.dest_service_port,
        },
        protocol: key.proto.into(),
        reporter: Reporter::from_number(key.reporter),
        action: Action::from_number(key.action),
        trace: Arc::new(Trace {
            enforced: hits(policies.enforced_policies),
            pending: hits(policies.pending_policies),
        }),
    })
}

/// Encodes the key of a flow.
#[must_use]
pub fn encode_key(key: &FlowKey) -> Vec<u8> {
    let hits = |hits: &[PolicyHit]| hits.iter().map(from_hit).collect();
    let key = proto::FlowKey {
        source_name: key.source.name.to_string(),
        source_namespace: key.source.namespace.to_string(),
        source_type: key.source.kind.number(),
        dest_name: key.dest.name.to_string(),
        dest_namespace: key.dest.namespace.to_string(),
        dest_type: key.dest.kind.number(),
        dest_port: key.dest_port,
        dest_service_name: key.service.name.to_string(),
        dest_service_namespace: key.service.namespace.to_string(),
        dest_service_port_name: key.service.port_name.to_string(),
        dest_service_port: key.service.port,
        proto: key.protocol.to_string(),
        reporter: key.reporter.number(),
        action: key.action.number(),
        policies: Some(proto::PolicyTrace {
            enforced_policies: hits(&key.trace.enforced),
            pending_policies: hits(&key.trace.pending),
        }),
    };
    key.encode_to_vec()
}

/// Decisions sorted by index, whatever order they arrived in.
fn hits(hits: Vec<proto::PolicyHit>) -> Vec<PolicyHit> {
    let mut hits: Vec<PolicyHit> = hits.into_iter().map(hit).collect();
    hits.sort_by_key(|hit| hit.index);
    hits
}

fn hit(hit: proto::PolicyHit) -> PolicyHit {
    let (index, action, rule) = (hit.policy_index, Action::from_number(hit.action), hit.rule_index);
    let by = match PolicyKind::from_number(hit.kind) {
        PolicyKind::EndOfTier => {
            Decider::EndOfTier { tier: hit.tier.into(), trigger: hit.trigger.map(|trigger| policy(*trigger)) }
        }
        _ => Decider::Rule { policy: policy(hit), rule },
    };
    PolicyHit { index, action, by }
}

fn policy(hit: proto::PolicyHit) -> PolicyName {
    PolicyName {
        kind: PolicyKind::from_number(hit.kind),
        tier: hit.tier.into(),
        namespace: hit.namespace.into(),
        name: hit.name.into(),
    }
}

fn from_hit(hit: &PolicyHit) -> proto::PolicyHit {
    let (policy_index, action, rule_index) = (hit.index, hit.action.number(), hit.rule());
    match &hit.by {
        Decider::Rule { policy, .. } => {
            proto::PolicyHit { policy_index, action, rule_index, ..from_policy(policy) }
        }
        Decider::EndOfTier { tier, trigger } => proto::PolicyHit {
            kind: PolicyKind::EndOfTier.number(),
            tier: tier.to_string(),
            policy_index,
            action,
            rule_index,
            trigger: trigger.as_ref().map(|trigger| Box::new(from_policy(trigger))),
            ..proto::PolicyHit::default()
        },
    }
}

/// The message for a policy, without a decision.
#[must_use]
pub fn from_policy(policy: &PolicyName) -> proto::PolicyHit {
    proto::PolicyHit {
        kind: policy.kind.number(),
        namespace: policy.namespace.to_string(),
        name: policy.name.to_string(),
        tier: policy.tier.to_string(),
        ..proto::PolicyHit::default()
    }
}

/// The counters of a flow; negative values are read as zero.
#[must_use]
pub fn counters(flow: &proto::Flow) -> Counters {
    let count = |number: i64| u64::try_from(number).unwrap_or(0);
    Counters {
        packets_in: count(flow.packets_in),
        packets_out: count(flow.packets_out),
        bytes_in: count(flow.bytes_in),
        bytes_out: count(flow.bytes_out),
        started: count(flow.num_connections_started),
        completed: count(flow.num_connections_completed),
        live: count(flow.num_connections_live),
    }
}

/// The message for a flow of the server.
#[must_use]
pub fn from_row(row: &Row) -> proto::FlowResult {
    let key = Bytes::copy_from_slice(row.entry.encoded(encode_key));
    let labels = (&row.source_labels, &row.dest_labels);
    proto::FlowResult {
        id: i64::try_from(row.entry.id()).unwrap_or(i64::MAX),
        flow: Some(flow(key, (row.start, row.end), labels, &row.counters)),
    }
}

/// The message for a flow of a node. Its end is sent as its start, as Calico's nodes do: servers recognise repeated
/// flows by both.
#[must_use]
pub fn from_collected(collected: &CollectedFlow) -> proto::Flow {
    let labels = (&collected.source_labels, &collected.dest_labels);
    let times = (collected.start, collected.start);
    flow(encode_key(&collected.key).into(), times, labels, &collected.counters)
}

fn flow(key: Bytes, times: (i64, i64), labels: (&Labels, &Labels), counters: &Counters) -> proto::Flow {
    let texts = |labels: &Labels| -> Vec<Bytes> {
        labels.texts().iter().map(|text| Bytes::copy_from_slice(text.as_bytes())).collect()
    };
    let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    proto::Flow {
        key,
        start_time: times.0,
        end_time: times.1,
        source_labels: texts(labels.0),
        dest_labels: texts(labels.1),
        packets_in: count(counters.packets_in),
        packets_out: count(counters.packets_out),
        bytes_in: count(counters.bytes_in),
        bytes_out: count(counters.bytes_out),
        num_connections_started: count(counters.started),
        num_connections_completed: count(counters.completed),
        num_connections_live: count(counters.live),
    }
}

/// The filter of a request.
#[must_use]
pub fn filter(filter: Option<proto::Filter>) -> Filter {
    let Some(filter) = filter else { return Filter::default() };
    let texts = |texts: Vec<proto::StringMatch>| texts.into_iter().map(string_match).collect();
    let actions = |numbers: Vec<i32>| numbers.into_iter().map(Action::from_number).collect();
    Filter {
        source_names: texts(filter.source_names),
        source_namespaces: texts(filter.source_namespaces),
        dest_names: texts(filter.dest_names),
        dest_namespaces: texts(filter.dest_namespaces),
        protocols: texts(filter.protocols),
        dest_ports: filter.dest_ports.into_iter().map(|port| port.port).collect(),
        actions: actions(filter.actions),
        pending_actions: actions(filter.pending_actions),
        policies: filter.policies.iter().map(policy_match).collect(),
        reporter: Reporter::from_number(filter.reporter),
    }
}

/// The policy to look for, in either form.
#[must_use]
pub fn policy_match(wanted: &proto::PolicyMatch) -> PolicyMatch {
    PolicyMatch {
        kind: PolicyKind::from_number(wanted.kind),
        tier: text_or_match(&wanted.tier),
        namespace: text_or_match(&wanted.namespace),
        name: text_or_match(&wanted.name),
        action: Action::from_number(wanted.action),
    }
}

fn string_match(text: proto::StringMatch) -> StringMatch {
    StringMatch { is_fuzzy: text.r#type == proto::MatchType::Fuzzy as i32, value: text.value }
}

/// A message begins with the tag of one of its fields, which no name begins with.
fn text_or_match(bytes: &[u8]) -> Option<StringMatch> {
    let is_message = matches!(bytes.first(), Some(0x0a | 0x10));
    match (is_message, proto::StringMatch::decode(bytes)) {
        (true, Ok(text)) => Some(string_match(text)),
        _ => Some(StringMatch { value: String::from_utf8_lossy(bytes).into_owned(), is_fuzzy: false }),
    }
    .filter(|text| !text.value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parts_of_a_policy_match_in_both_forms() {
        let message = |value: &str, is_fuzzy: bool| {
            let text = proto::StringMatch { value: value.to_owned(), r#type: i32::from(is_fuzzy) };
            Bytes::from(text.encode_to_vec())
        };
        let read = |bytes: Bytes| {
            let wanted = policy_match(&proto::PolicyMatch { name: bytes, ..proto::PolicyMatch::default() });
            wanted.name.map(|text| (text.value, text.is_fuzzy))
        };
        assert_eq!(read(Bytes::from_static(b"web")), Some(("web".to_owned(), false)));
        assert_eq!(read(message("web", false)), Some(("web".to_owned(), false)));
        assert_eq!(read(message("web", true)), Some(("web".to_owned(), true)));
        assert_eq!(read(message("", true)), None, "nothing to look for");
        assert_eq!(read(Bytes::new()), None);
    }

    #[test]
    fn field_numbers_are_calicos() {
        // Field 15 with field 1, of kind EndOfTier with a trigger; written by hand.
        let bytes = [
            0x0a, 0x03, b'w', b'e', b'b', 0x18, 0x01, 0x38, 0x50, 0x68, 0x02, 0x70, 0x02, 0x7a, 0x12, 0x0a,
            0x10, 0x08, 0x0a, 0x22, 0x01, b't', 0x28, 0x02, 0x42, 0x07, 0x08, 0x02, 0x1a, 0x03, b'a', b'l',
            b'l',
        ];
        let key = decode_key(&bytes).unwrap();
        assert_eq!((&*key.source.name, key.source.kind, key.dest_port), ("web", EndpointType::Workload, 80));
        assert_eq!((key.reporter, key.action), (Reporter::Dst, Action::Deny));
        assert_eq!(key.trace.enforced[0].to_string(), "0|t|gnp:all|deny|-1");
        assert!(decode_key(&[0x0a, 0xff]).is_err());
    }

    fn any_key() -> impl Strategy<Value = FlowKey> {
        let texts = prop::array::uniform9("[a-z-]{0,6}");
        let hits = prop::collection::vec((0..12i32, 0..4i32, -1..5i64, "[a-z]{0,4}", any::<bool>()), 0..4);
        (texts, any::<[u8; 4]>(), any::<(i64, i64)>(), hits).prop_map(
            |(texts, small, (port, service_port), hits)| {
                let text = |place: usize| flows::Text::from(&*texts[place]);
                let peer = |kind: u8, place: usize| Peer {
                    kind: EndpointType::from_number(i32::from(kind % 5)),
                    namespace: text(place),
                    name: text(place + 1),
                };
                let hit = |(place, (kind, action, rule, name, has_trigger)): (
                    i64,
                    (i32, i32, i64, String, bool),
                )| {
                    let name = PolicyName {
                        kind: PolicyKind::from_number(kind),
                        tier: text(7),
                        namespace: text(8),
                        name: name.into(),
                    };
                    let by = match name.kind {
                        PolicyKind::EndOfTier => {
                            let kind = PolicyKind::GlobalNetworkPolicy;
                            let trigger = has_trigger.then(|| PolicyName { kind, ..name.clone() });
                            Decider::EndOfTier { tier: text(7), trigger }
                        }
                        _ => Decider::Rule { policy: name, rule },
                    };
                    PolicyHit { index: place, action: Action::from_number(action), by }
                };
                FlowKey {
                    source: peer(small[0], 0),
                    dest: peer(small[1], 2),
                    dest_port: port,
                    service: Service {
                        namespace: text(4),
                        name: text(5),
                        port_name: text(6),
                        port: service_port,
                    },
                    protocol: text(6),
                    reporter: Reporter::from_number(i32::from(small[2] % 3)),
                    action: Action::from_number(i32::from(small[3] % 4)),
                    trace: Arc::new(Trace { enforced: (0..).zip(hits).map(hit).collect(), pending: vec![] }),
                }
            },
        )
    }

    proptest! {
        #[test]
        fn keys_survive_a_round_trip(key in any_key()) {
            prop_assert_eq!(decode_key(&encode_key(&key)).unwrap(), key);
        }
    }
}
