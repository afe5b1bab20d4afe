//! A recorded flow, and helpers that all commands use.

use flows::{Action, Counters, Decider, Direction, EndpointType, Labels, Peer, PolicyHit, PolicyKind};
use goldmane_api::{convert, proto};

/// A flow during a period.
pub type Flow = flows::collector::CollectedFlow;

/// The message does not contain a valid flow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server sent a flow that cannot be read")]
pub struct NotAFlow;

/// Decodes the flow of a message.
///
/// # Errors
/// When its key cannot be read.
pub fn from_message(message: &proto::Flow) -> Result<Flow, NotAFlow> {
    let labels = |texts: &[bytes::Bytes]| -> Labels {
        texts.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect()
    };
    Ok(Flow {
        key: convert::decode_key(&message.key).map_err(|_| NotAFlow)?,
        start: message.start_time,
        end: message.end_time,
        source_labels: labels(&message.source_labels),
        dest_labels: labels(&message.dest_labels),
        counters: convert::counters(message),
    })
}

/// The end that reports: its policies are in the trace.
#[must_use]
pub fn reporting(flow: &Flow) -> (&Peer, &Labels) {
    match flow.key.reporter.direction() {
        Direction::Egress => (&flow.key.source, &flow.source_labels),
        Direction::Ingress => (&flow.key.dest, &flow.dest_labels),
    }
}

/// The end that the reporting one talks to.
#[must_use]
pub fn other(flow: &Flow) -> (&Peer, &Labels) {
    match flow.key.reporter.direction() {
        Direction::Egress => (&flow.key.dest, &flow.dest_labels),
        Direction::Ingress => (&flow.key.source, &flow.source_labels),
    }
}

/// What would be done with staged policies, if that is not what was done.
#[must_use]
pub fn would(flow: &Flow) -> Option<Action> {
    let pending = flow.key.trace.pending.last()?.action;
    (pending != flow.key.action && matches!(pending, Action::Allow | Action::Deny)).then_some(pending)
}

/// Whether a policy passed it on to the next tier.
#[must_use]
pub fn was_passed(flow: &Flow) -> bool {
    flow.key.trace.enforced.iter().any(|hit| hit.action == Action::Pass)
}

/// A namespace that is one.
#[must_use]
pub fn namespace(peer: &Peer) -> Option<&str> {
    Some(&*peer.namespace).filter(|namespace| !matches!(*namespace, "" | "-"))
}

/// An end, for display.
#[must_use]
pub fn peer_text(peer: &Peer) -> String {
    match (peer.kind, &*peer.name) {
        (EndpointType::Network, "pub") => "public network".to_owned(),
        (EndpointType::Network, "pvt") => "private network".to_owned(),
        (EndpointType::Host, name) => format!("node {name}"),
        (EndpointType::NetworkSet, name) => match namespace(peer) {
            Some(namespace) => format!("set {namespace}/{name}"),
            None => format!("set {name}"),
        },
        (_, name) => match namespace(peer) {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        },
    }
}

/// Whether a protocol has ports.
#[must_use]
pub fn has_ports(protocol: &str) -> bool {
    matches!(protocol, "tcp" | "udp" | "sctp")
}

/// `shop/web -> shop/db:5432 tcp`.
#[must_use]
pub fn connection_text(flow: &Flow) -> String {
    let key = &flow.key;
    let port = if has_ports(&key.protocol) { format!(":{}", key.dest_port) } else { String::new() };
    format!("{} -> {}{port} {}", peer_text(&key.source), peer_text(&key.dest), key.protocol)
}

/// What decided, for display: `NetworkPolicy shop/db rule 0 (tier default)`.
#[must_use]
pub fn hit_text(hit: &PolicyHit) -> String {
    match &hit.by {
        Decider::Rule { policy, rule } if policy.kind == PolicyKind::Profile => match &*policy.name {
            "__NO_MATCH__" | "__PROFILE__" | "" => "no policy and no profile".to_owned(),
            name => format!("profile {name} rule {rule}"),
        },
        Decider::Rule { policy, rule } => {
            format!("{} rule {rule} (tier {})", policy_text(policy), policy.tier)
        }
        Decider::EndOfTier { tier, trigger } => match trigger {
            Some(policy) => format!("end of tier {tier} ({} selects it)", policy_text(policy)),
            None => format!("end of tier {tier}"),
        },
    }
}

/// Kind and name of a policy.
#[must_use]
pub fn policy_text(policy: &flows::PolicyName) -> String {
    let kind = match policy.kind {
        PolicyKind::CalicoNetworkPolicy => "NetworkPolicy",
        PolicyKind::NetworkPolicy => "Kubernetes NetworkPolicy",
        PolicyKind::Profile => "profile",
        kind => kind.as_str(),
    };
    if policy.namespace.is_empty() {
        format!("{kind} {}", policy.name)
    } else {
        format!("{kind} {}/{}", policy.namespace, policy.name)
    }
}

/// All bytes, both ways.
#[must_use]
pub fn bytes(counters: &Counters) -> u64 {
    counters.bytes_in.saturating_add(counters.bytes_out)
}

/// All packets, both ways.
#[must_use]
pub fn packets(counters: &Counters) -> u64 {
    counters.packets_in.saturating_add(counters.packets_out)
}
