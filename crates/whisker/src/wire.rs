//! Flows as JSON: as Calico's whisker-backend writes them, and with more fields for our own page.

use crate::source::Flow;
use flows::{Action, Decider, PolicyHit, PolicyKind, PolicyName, Reporter};
use serde::Serialize;
use std::borrow::Cow;

/// Shown by pages for public addresses.
pub(crate) const PUBLIC_NETWORK: &str = "PUBLIC NETWORK";
/// Shown by pages for private addresses.
pub(crate) const PRIVATE_NETWORK: &str = "PRIVATE NETWORK";
/// Shown by pages for objects without a namespace.
pub(crate) const GLOBAL: &str = "Global";

/// A list as Calico's backend returns it: without items it has `null` or an empty list, depending on the request.
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
    /// A list of flows: `null` if empty.
    #[must_use]
    pub(crate) fn flows(total_pages: u64, items: Vec<T>) -> Self {
        let items = Some(items).filter(|items| !items.is_empty());
        Self { total: Total { total_pages }, items }
    }

    /// A list of hints: an empty list if empty.
    #[must_use]
    pub(crate) fn hints(total_pages: u64, items: Vec<T>) -> Self {
        Self { total: Total { total_pages }, items: Some(items) }
    }
}

/// One hint.
#[derive(Debug, Serialize)]
pub(crate) struct Hint {
    /// A value for a filter.
    pub(crate) value: String,
}

/// An error as Calico's backend returns it.
#[derive(Debug, Serialize)]
pub(crate) struct ErrorText<'a> {
    /// The reason.
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

/// A flow with additional fields for our page.
#[derive(Debug, Serialize)]
pub(crate) struct OwnFlow<'a> {
    /// The number of its key: a flow with the same number and start is the same flow with newer counters.
    id: u64,
    #[serde(flatten)]
    flow: FlowJson<'a>,
    source_type: &'static str,
    dest_type: &'static str,
    /// The service, if the client connected to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<ServiceJson<'a>>,
    connections_started: u64,
    connections_completed: u64,
    connections_live: u64,
    /// Its fate if staged policies were enforced, if different.
    #[serde(skip_serializing_if = "Option::is_none")]
    would: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct ServiceJson<'a> {
    namespace: &'a str,
    name: &'a str,
    port: Cow<'a, str>,
}

/// A time in Calico's format.
#[must_use]
pub(crate) fn time(seconds: i64) -> String {
    // Times out of range are shown as 1970.
    jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string()
}

/// A name in the form that pages show.
#[must_use]
pub(crate) fn name(name: &str) -> &str {
    match name {
        "pub" => PUBLIC_NETWORK,
        "pvt" => PRIVATE_NETWORK,
        other => other,
    }
}

/// A namespace in the form that hints show.
#[must_use]
pub(crate) fn namespace(namespace: &str) -> &str {
    if namespace.is_empty() || namespace == "-" { GLOBAL } else { namespace }
}

/// Calico's name of an action.
#[must_use]
pub(crate) fn action(action: Action) -> &'static str {
    if action == Action::Unspecified { "ActionUnspecified" } else { action.as_str() }
}

/// Calico's name of a kind of policy.
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
