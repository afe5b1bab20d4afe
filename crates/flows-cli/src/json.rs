//! Reads and writes flows as lines of JSON, with the field names of Calico's whisker-backend and the
//! fields that it leaves out.
//!
//! A line that a later one corrects (`"corrects": true`) is replaced when a file is read.

use crate::flow::Flow;
use crate::time;
use flows::{
    Action, Counters, Decider, EndpointType, FlowKey, Labels, Peer, PolicyHit, PolicyKind, PolicyName,
    Reporter, Service, Trace,
};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Serialize, Deserialize)]
struct Line {
    start_time: String,
    end_time: String,
    action: String,
    reporter: String,
    #[serde(default)]
    source_type: String,
    source_namespace: String,
    source_name: String,
    #[serde(default)]
    source_labels: LabelList,
    #[serde(default)]
    dest_type: String,
    dest_namespace: String,
    dest_name: String,
    #[serde(default)]
    dest_labels: LabelList,
    protocol: String,
    dest_port: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    service: Option<ServiceLine>,
    policies: Policies,
    #[serde(default)]
    packets_in: u64,
    #[serde(default)]
    packets_out: u64,
    #[serde(default)]
    bytes_in: u64,
    #[serde(default)]
    bytes_out: u64,
    #[serde(default)]
    connections_started: u64,
    #[serde(default)]
    connections_completed: u64,
    #[serde(default)]
    connections_live: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    corrects: bool,
}

/// A list, or one string separated by bars, as Calico's backend writes it.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum LabelList {
    List(Vec<String>),
    Text(String),
}

impl Default for LabelList {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

#[derive(Serialize, Deserialize)]
struct ServiceLine {
    namespace: String,
    name: String,
    #[serde(default)]
    port_name: String,
    #[serde(default)]
    port: i64,
}

#[derive(Serialize, Deserialize)]
struct Policies {
    #[serde(default)]
    enforced: Option<Vec<Hit>>,
    #[serde(default)]
    pending: Option<Vec<Hit>>,
}

#[derive(Serialize, Deserialize)]
struct Hit {
    kind: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    tier: String,
    action: String,
    policy_index: i64,
    rule_index: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trigger: Option<Box<Trigger>>,
}

#[derive(Serialize, Deserialize)]
struct Trigger {
    kind: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    tier: String,
}

/// The line of a flow, without the line break.
#[must_use]
pub fn write(flow: &Flow, corrects: bool) -> String {
    let (key, counters) = (&flow.key, &flow.counters);
    let labels = |labels: &Labels| LabelList::List(labels.texts().iter().map(ToString::to_string).collect());
    let service = (!key.service.name.is_empty() && &*key.service.name != "-").then(|| ServiceLine {
        namespace: key.service.namespace.to_string(),
        name: key.service.name.to_string(),
        port_name: key.service.port_name.to_string(),
        port: key.service.port,
    });
    let line = Line {
        start_time: time::show(flow.start),
        end_time: time::show(flow.end),
        action: key.action.as_str().to_owned(),
        reporter: key.reporter.as_str().to_owned(),
        source_type: key.source.kind.as_str().to_owned(),
        source_namespace: key.source.namespace.to_string(),
        source_name: key.source.name.to_string(),
        source_labels: labels(&flow.source_labels),
        dest_type: key.dest.kind.as_str().to_owned(),
        dest_namespace: key.dest.namespace.to_string(),
        dest_name: key.dest.name.to_string(),
        dest_labels: labels(&flow.dest_labels),
        protocol: key.protocol.to_string(),
        dest_port: key.dest_port,
        service,
        policies: Policies {
            enforced: Some(key.trace.enforced.iter().map(hit).collect()),
            pending: Some(key.trace.pending.iter().map(hit).collect()),
        },
        packets_in: counters.packets_in,
        packets_out: counters.packets_out,
        bytes_in: counters.bytes_in,
        bytes_out: counters.bytes_out,
        connections_started: counters.started,
        connections_completed: counters.completed,
        connections_live: counters.live,
        corrects,
    };
    // Serializing strings and numbers cannot fail.
    serde_json::to_string(&line).unwrap_or_default()
}

fn hit(hit: &PolicyHit) -> Hit {
    let nobody = PolicyName::default();
    let (policy, trigger) = match &hit.by {
        Decider::Rule { policy, .. } => (policy, None),
        Decider::EndOfTier { trigger, .. } => (&nobody, trigger.as_ref()),
    };
    let tier = match &hit.by {
        Decider::Rule { policy, .. } => &policy.tier,
        Decider::EndOfTier { tier, .. } => tier,
    };
    Hit {
        kind: hit.kind().as_str().to_owned(),
        name: policy.name.to_string(),
        namespace: policy.namespace.to_string(),
        tier: tier.to_string(),
        action: hit.action.as_str().to_owned(),
        policy_index: hit.index,
        rule_index: hit.rule(),
        trigger: trigger.map(|policy| {
            Box::new(Trigger {
                kind: policy.kind.as_str().to_owned(),
                name: policy.name.to_string(),
                namespace: policy.namespace.to_string(),
                tier: policy.tier.to_string(),
            })
        }),
    }
}

/// Parses the flows of a file, one per line. Empty lines are skipped.
///
/// # Errors
/// The first line that is not a flow, with its number.
pub fn read(text: &str) -> Result<Vec<Flow>, String> {
    let mut flows: Vec<Flow> = Vec::new();
    let mut places: HashMap<(FlowKey, i64), usize> = HashMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        // The prefix of lines in a stream of Calico's backend.
        let line = line.strip_prefix("data:").unwrap_or(line).trim();
        if line.is_empty() {
            continue;
        }
        let wrong = |error: String| format!("line {number}: {error}");
        let line: Line = serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
        let corrects = line.corrects;
        let flow = flow(line).map_err(wrong)?;
        let place = (flow.key.clone(), flow.start);
        match places.get(&place) {
            Some(known) if corrects => flows[*known] = flow,
            _ => {
                places.insert(place, flows.len());
                flows.push(flow);
            }
        }
    }
    Ok(flows)
}

fn flow(line: Line) -> Result<Flow, String> {
    let moment = |text: &str| {
        text.parse::<jiff::Timestamp>()
            .map(jiff::Timestamp::as_second)
            .map_err(|_| format!("{text:?} is not a time"))
    };
    let peer = |kind: &str, namespace: String, name: String| -> Result<Peer, String> {
        // Calico's backend does not give the type of an end, and writes some names as phrases.
        let (namespace, name) = match (namespace.as_str(), name.as_str()) {
            ("Global", name) => ("-", name),
            other => other,
        };
        let name = match name {
            "PUBLIC NETWORK" => "pub",
            "PRIVATE NETWORK" => "pvt",
            name => name,
        };
        let known = |number| {
            (EndpointType::from_number(number).as_str() == kind).then_some(EndpointType::from_number(number))
        };
        let kind = match (kind, namespace, name) {
            ("", "-", "pub" | "pvt") => EndpointType::Network,
            ("", "-", _) => EndpointType::Unspecified,
            ("", _, _) => EndpointType::Workload,
            _ => (1..5).find_map(known).ok_or_else(|| format!("{kind:?} is not a kind of endpoint"))?,
        };
        Ok(Peer { kind, namespace: namespace.into(), name: name.into() })
    };
    let service = line.service.map_or_else(Service::default, |service| Service {
        namespace: service.namespace.into(),
        name: service.name.into(),
        port_name: service.port_name.into(),
        port: service.port,
    });
    let hits =
        |hits: Option<Vec<Hit>>| hits.unwrap_or_default().into_iter().map(read_hit).collect::<Result<_, _>>();
    Ok(Flow {
        key: FlowKey {
            source: peer(&line.source_type, line.source_namespace, line.source_name)?,
            dest: peer(&line.dest_type, line.dest_namespace, line.dest_name)?,
            dest_port: line.dest_port,
            service,
            protocol: line.protocol.into(),
            reporter: match line.reporter.as_str() {
                "Src" => Reporter::Src,
                "Dst" => Reporter::Dst,
                "" => Reporter::Unspecified,
                other => return Err(format!("{other:?} is not a reporter")),
            },
            action: action(&line.action)?,
            trace: Arc::new(Trace {
                enforced: hits(line.policies.enforced)?,
                pending: hits(line.policies.pending)?,
            }),
        },
        start: moment(&line.start_time)?,
        end: moment(&line.end_time)?,
        source_labels: labels(line.source_labels),
        dest_labels: labels(line.dest_labels),
        counters: Counters {
            packets_in: line.packets_in,
            packets_out: line.packets_out,
            bytes_in: line.bytes_in,
            bytes_out: line.bytes_out,
            started: line.connections_started,
            completed: line.connections_completed,
            live: line.connections_live,
        },
    })
}

fn labels(list: LabelList) -> Labels {
    match list {
        LabelList::List(texts) => texts.into_iter().collect(),
        LabelList::Text(text) => text.split(" | ").filter(|text| !text.is_empty()).collect(),
    }
}

fn action(text: &str) -> Result<Action, String> {
    let all = [Action::Unspecified, Action::Allow, Action::Deny, Action::Pass];
    all.into_iter().find(|action| action.as_str() == text).ok_or_else(|| format!("{text:?} is not an action"))
}

fn read_hit(hit: Hit) -> Result<PolicyHit, String> {
    let kind = |text: &str| {
        (0..12)
            .map(PolicyKind::from_number)
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| format!("{text:?} is not a kind of policy"))
    };
    let by = match kind(&hit.kind)? {
        PolicyKind::EndOfTier => Decider::EndOfTier {
            tier: hit.tier.into(),
            trigger: match hit.trigger {
                Some(trigger) => Some(PolicyName {
                    kind: kind(&trigger.kind)?,
                    tier: trigger.tier.into(),
                    namespace: trigger.namespace.into(),
                    name: trigger.name.into(),
                }),
                None => None,
            },
        },
        kind => Decider::Rule {
            policy: PolicyName {
                kind,
                tier: hit.tier.into(),
                namespace: hit.namespace.into(),
                name: hit.name.into(),
            },
            rule: hit.rule_index,
        },
    };
    Ok(PolicyHit { index: hit.policy_index, action: action(&hit.action)?, by })
}
