//! Flows as JSON: as Calico's whisker-backend writes them, and with what our own page shows beyond that.

use crate::source::Flow;
use flows::{Action, Decider, PolicyHit, PolicyKind, PolicyName, Reporter};
use serde::Serialize;
use std::borrow::Cow;

/// What pages show for addresses that are not private.
pub(crate) const PUBLIC_NETWORK: &str = "PUBLIC NETWORK";
/// What pages show for private addresses.
pub(crate) const PRIVATE_NETWORK: &str = "PRIVATE NETWORK";
/// What pages show for no namespace.
pub(crate) const GLOBAL: &str = "Global";

/// A list as Calico's backend answers it. Without items there are none at all, not an empty list.
#[derive(Debug, Serialize)]
pub(crate) struct List<T> {
    total: Total,
    items: Option<Vec<T>>,
}

#[derive(Debug, Serialize)]
struct Total {
    #[serde(rename = "totalPages")]
    total_pages: u64,
}

impl<T> List<T> {
    /// A list of flows, where nothing is null.
    #[must_use]
    pub(crate) fn flows(total_pages: u64, items: Vec<T>) -> Self {
        let items = Some(items).filter(|items| !items.is_empty());
        Self { total: Total { total_pages }, items }
    }

    /// A list of hints, where nothing is an empty list.
    #[must_use]
    pub(crate) fn hints(total_pages: u64, items: Vec<T>) -> Self {
        Self { total: Total { total_pages }, items: Some(items) }
    }
}

/// One hint.
#[derive(Debug, Serialize)]
pub(crate) struct Hint {
    /// What a filter may look for.
    pub(crate) value: String,
}

/// An error as Calico's backend answers it.
#[derive(Debug, Serialize)]
pub(crate) struct ErrorText<'a> {
    /// What is wrong.
    pub(crate) error: &'a str,
}

/// A flow in Calico's form.
#[derive(Debug, Serialize)]
pub(crate) struct FlowJson<'a> {
    start_time: String,
    end_time: String,
    action: &'static str,
    source_name: &'a str,
    source_namespace: &'a str,
    source_labels: String,
    dest_name: &'a str,
    dest_namespace: &'a str,
    dest_labels: String,
    protocol: &'a str,
    dest_port: i64,
    reporter: &'static str,
    policies: Policies<'a>,
    packets_in: u64,
    packets_out: u64,
    bytes_in: u64,
    bytes_out: u64,
}

#[derive(Debug, Serialize)]
struct Policies<'a> {
    enforced: Option<Vec<Hit<'a>>>,
    pending: Option<Vec<Hit<'a>>>,
}

#[derive(Debug, Serialize)]
struct Hit<'a> {
    kind: &'static str,
    name: &'a str,
    namespace: &'a str,
    tier: &'a str,
    action: &'static str,
    policy_index: i64,
    rule_index: i64,
    trigger: Option<Box<Hit<'a>>>,
}

/// A flow with what our page shows beyond Calico's form.
#[derive(Debug, Serialize)]
pub(crate) struct OwnFlow<'a> {
    /// The number of its key: a flow with the same number and start is the same flow with newer figures.
    id: u64,
    #[serde(flatten)]
    flow: FlowJson<'a>,
    source_type: &'static str,
    dest_type: &'static str,
    /// Where connections were made to a service.
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<ServiceJson<'a>>,
    connections_started: u64,
    connections_completed: u64,
    connections_live: u64,
    /// What its fate would be with staged policies, where that is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    would: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct ServiceJson<'a> {
    namespace: &'a str,
    name: &'a str,
    port: Cow<'a, str>,
}

/// A time as Calico writes it.
#[must_use]
pub(crate) fn time(seconds: i64) -> String {
    // What no clock shows is shown as the beginning of all clocks.
    jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string()
}

/// A name as pages show it.
#[must_use]
pub(crate) fn name(name: &str) -> &str {
    match name {
        "pub" => PUBLIC_NETWORK,
        "pvt" => PRIVATE_NETWORK,
        other => other,
    }
}

/// A namespace as hints show it.
#[must_use]
pub(crate) fn namespace(namespace: &str) -> &str {
    if namespace.is_empty() || namespace == "-" { GLOBAL } else { namespace }
}

/// An action by Calico's name.
#[must_use]
pub(crate) fn action(action: Action) -> &'static str {
    if action == Action::Unspecified { "ActionUnspecified" } else { action.as_str() }
}

/// A kind of policy by Calico's name.
#[must_use]
pub(crate) fn kind(kind: PolicyKind) -> &'static str {
    if kind == PolicyKind::Unspecified { "KindUnspecified" } else { kind.as_str() }
}

fn reporter(reporter: Reporter) -> &'static str {
    if reporter == Reporter::Unspecified { "ReporterUnspecified" } else { reporter.as_str() }
}

fn labels(labels: &flows::Labels) -> String {
    labels.texts().join(" | ")
}

fn hits(hits: &[PolicyHit]) -> Option<Vec<Hit<'_>>> {
    Some(hits.iter().map(hit).collect()).filter(|hits: &Vec<_>| !hits.is_empty())
}

fn named(policy: &PolicyName) -> Hit<'_> {
    Hit {
        kind: kind(policy.kind),
        name: &policy.name,
        namespace: &policy.namespace,
        tier: &policy.tier,
        action: action(Action::Unspecified),
        policy_index: 0,
        rule_index: 0,
        trigger: None,
    }
}

fn hit(hit: &PolicyHit) -> Hit<'_> {
    let (policy_index, rule_index) = (hit.index, hit.rule());
    let action = action(hit.action);
    match &hit.by {
        Decider::Rule { policy, .. } => Hit { action, policy_index, rule_index, ..named(policy) },
        Decider::EndOfTier { tier, trigger } => Hit {
            kind: kind(PolicyKind::EndOfTier),
            name: "",
            namespace: "",
            tier,
            action,
            policy_index,
            rule_index,
            trigger: trigger.as_ref().map(|policy| Box::new(named(policy))),
        },
    }
}

impl<'a> From<&'a Flow> for FlowJson<'a> {
    fn from(flow: &'a Flow) -> Self {
        let Flow { key, counters, .. } = flow;
        Self {
            start_time: time(flow.start),
            end_time: time(flow.end),
            action: action(key.action),
            source_name: name(&key.source.name),
            source_namespace: &key.source.namespace,
            source_labels: labels(&flow.source_labels),
            dest_name: name(&key.dest.name),
            dest_namespace: &key.dest.namespace,
            dest_labels: labels(&flow.dest_labels),
            protocol: &key.protocol,
            dest_port: key.dest_port,
            reporter: reporter(key.reporter),
            policies: Policies { enforced: hits(&key.trace.enforced), pending: hits(&key.trace.pending) },
            packets_in: counters.packets_in,
            packets_out: counters.packets_out,
            bytes_in: counters.bytes_in,
            bytes_out: counters.bytes_out,
        }
    }
}

impl<'a> From<&'a Flow> for OwnFlow<'a> {
    fn from(flow: &'a Flow) -> Self {
        let service = &flow.key.service;
        let has_service = !service.name.is_empty() && &*service.name != "-";
        let port = match &*service.port_name {
            "" | "-" => Cow::Owned(service.port.to_string()),
            name => Cow::Borrowed(name),
        };
        Self {
            id: flow.id,
            flow: flow.into(),
            source_type: flow.key.source.kind.as_str(),
            dest_type: flow.key.dest.kind.as_str(),
            service: has_service.then(|| ServiceJson {
                namespace: &service.namespace,
                name: &service.name,
                port,
            }),
            connections_started: flow.counters.started,
            connections_completed: flow.counters.completed,
            connections_live: flow.counters.live,
            would: flow.would().filter(|would| *would != flow.key.action).map(Action::as_str),
        }
    }
}
