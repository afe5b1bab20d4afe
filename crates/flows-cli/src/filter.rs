//! Which flows are selected, as written on the command line.
//!
//! Values of one flag are alternatives; different flags must all match. A condition after `--not` must not match; each
//! is negated separately.

use crate::flow::{self, Flow};
use flows::{Action, Decider, EndpointType, Peer, PolicyHit, Reporter};
use std::collections::BTreeMap;

/// Which end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// The end that opens the connection.
    Source,
    /// The end that accepts the connection.
    Dest,
    /// Either of them.
    Either,
}

/// A kind of condition; conditions of one kind are alternatives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    /// The name of a pod, or a prefix of it.
    Pod(End),
    /// A namespace.
    Namespace(End),
    /// Labels.
    Label(End),
    /// The service that the connection was opened to.
    Service,
    /// The destination port, after translation.
    Port,
    /// The protocol.
    Protocol,
    /// The action that was taken.
    Verdict,
    /// The action that staged policies would take instead.
    Would,
    /// A policy that decided something, or would have.
    Policy,
    /// A tier in which something was decided, or would have been.
    Tier,
    /// The end whose node reports.
    Reporter,
}

/// The action that was taken on a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It passed.
    Allowed,
    /// It was dropped.
    Denied,
    /// A policy passed it on to the next tier.
    Passed,
}

/// `[namespace/]name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The namespace, if given.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

/// One part of a label condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelPart {
    /// The key has this value.
    Is(String, String),
    /// The key has another value, or does not exist.
    IsNot(String, String),
    /// The key exists.
    Has(String),
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// See [`Field::Pod`].
    Pod(End, Name),
    /// See [`Field::Namespace`].
    Namespace(End, String),
    /// All of these.
    Label(End, Vec<LabelPart>),
    /// See [`Field::Service`].
    Service(Name),
    /// See [`Field::Port`].
    Port(i64),
    /// In lower case.
    Protocol(String),
    /// See [`Field::Verdict`].
    Verdict(Verdict),
    /// `Deny`: it was allowed, but would be denied; `Allow`: the reverse.
    Would(Action),
    /// See [`Field::Policy`].
    Policy(Name),
    /// See [`Field::Tier`].
    Tier(String),
    /// See [`Field::Reporter`].
    Reporter(Reporter),
}

/// Which flows are selected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// For each field, one of the conditions must hold.
    pub wanted: BTreeMap<Field, Vec<Condition>>,
    /// None of these may hold.
    pub unwanted: Vec<Condition>,
}

impl Name {
    /// Parses `[namespace/]name`.
    #[must_use]
    pub fn read(text: &str) -> Self {
        match text.split_once('/') {
            Some((namespace, name)) => Self { namespace: Some(namespace.to_owned()), name: name.to_owned() },
            None => Self { namespace: None, name: text.to_owned() },
        }
    }

    fn namespace_is(&self, namespace: &str) -> bool {
        self.namespace.as_deref().is_none_or(|wanted| wanted == namespace)
    }
}

impl Condition {
    /// Parses the value of a flag.
    ///
    /// # Errors
    /// When the value is not valid for the field.
    pub fn read(field: Field, value: &str) -> Result<Self, String> {
        let text = || {
            let value = value.trim();
            if value.is_empty() { Err("must not be empty".to_owned()) } else { Ok(value.to_owned()) }
        };
        Ok(match field {
            Field::Pod(end) => Self::Pod(end, Name::read(&text()?)),
            Field::Namespace(end) => Self::Namespace(end, text()?),
            Field::Label(end) => Self::Label(end, labels(&text()?)?),
            Field::Service => Self::Service(Name::read(&text()?)),
            Field::Port => Self::Port(
                text()?.parse::<u16>().map_err(|_| format!("{value:?} is not a port number"))?.into(),
            ),
            Field::Protocol => Self::Protocol(text()?.to_lowercase()),
            Field::Verdict => Self::Verdict(match text()?.to_lowercase().as_str() {
                "allowed" | "allow" | "forwarded" => Verdict::Allowed,
                "denied" | "deny" | "dropped" => Verdict::Denied,
                "passed" | "pass" => Verdict::Passed,
                _ => return Err(format!("{value:?} is not a verdict: one of allowed, denied, passed")),
            }),
            Field::Would => Self::Would(if value == "allow" { Action::Allow } else { Action::Deny }),
            Field::Policy => Self::Policy(Name::read(&text()?)),
            Field::Tier => Self::Tier(text()?),
            Field::Reporter => Self::Reporter(match text()?.to_lowercase().as_str() {
                "src" | "source" => Reporter::Src,
                "dst" | "destination" => Reporter::Dst,
                _ => return Err(format!("{value:?} is not a reporter: one of src, dst")),
            }),
        })
    }

    /// Whether the condition holds for a flow.
    #[must_use]
    pub fn holds(&self, flow: &Flow) -> bool {
        let key = &flow.key;
        let hits = || key.trace.enforced.iter().chain(&key.trace.pending);
        match self {
            Self::Pod(end, name) => ends(flow, *end).any(|(peer, _)| is_pod(peer, name)),
            Self::Namespace(end, namespace) => {
                ends(flow, *end).any(|(peer, _)| *peer.namespace == **namespace)
            }
            Self::Label(end, parts) => {
                ends(flow, *end).any(|(_, labels)| parts.iter().all(|part| part.holds(labels)))
            }
            Self::Service(name) => {
                *key.service.name == *name.name && name.namespace_is(&key.service.namespace)
            }
            Self::Port(port) => flow::has_ports(&key.protocol) && key.dest_port == *port,
            Self::Protocol(protocol) => *key.protocol == **protocol,
            Self::Verdict(Verdict::Allowed) => key.action == Action::Allow,
            Self::Verdict(Verdict::Denied) => key.action == Action::Deny,
            Self::Verdict(Verdict::Passed) => flow::was_passed(flow),
            Self::Would(action) => flow::would(flow) == Some(*action),
            Self::Policy(name) => hits().any(|hit| names(hit, name)),
            Self::Tier(tier) => hits().any(|hit| tier_of(hit) == tier),
            Self::Reporter(reporter) => key.reporter == *reporter,
        }
    }
}

impl Filter {
    /// Adds a condition.
    pub fn add(&mut self, field: Field, condition: Condition, is_wanted: bool) {
        if is_wanted {
            self.wanted.entry(field).or_default().push(condition);
        } else {
            self.unwanted.push(condition);
        }
    }

    /// Whether a flow is selected.
    #[must_use]
    pub fn passes(&self, flow: &Flow) -> bool {
        self.wanted.values().all(|any| any.iter().any(|condition| condition.holds(flow)))
            && !self.unwanted.iter().any(|condition| condition.holds(flow))
    }

    /// Whether every flow is selected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty() && self.unwanted.is_empty()
    }
}

fn ends(flow: &Flow, end: End) -> impl Iterator<Item = (&Peer, &flows::Labels)> {
    let source = (end != End::Dest).then_some((&flow.key.source, &flow.source_labels));
    let dest = (end != End::Source).then_some((&flow.key.dest, &flow.dest_labels));
    source.into_iter().chain(dest)
}

/// Whether an end may be a pod with this name or name prefix. Flows contain the common part of the names that a
/// controller generates, with `*`: `web-5d4f-*` stands for `web-5d4f-x2k9z`.
fn is_pod(peer: &Peer, wanted: &Name) -> bool {
    let stands_for = || {
        let stem = peer.name.strip_suffix('*').filter(|stem| stem.ends_with('-'));
        stem.is_some_and(|stem| wanted.name.starts_with(stem))
    };
    peer.kind == EndpointType::Workload
        && wanted.namespace_is(&peer.namespace)
        && (peer.name.starts_with(&wanted.name) || stands_for())
}

/// Whether a decision was made by a policy; the end of a tier counts for the policy that made the tier apply.
fn names(hit: &PolicyHit, wanted: &Name) -> bool {
    hit.policy().is_some_and(|policy| *policy.name == *wanted.name && wanted.namespace_is(&policy.namespace))
}

fn tier_of(hit: &PolicyHit) -> &str {
    match &hit.by {
        Decider::Rule { policy, .. } => &policy.tier,
        Decider::EndOfTier { tier, .. } => tier,
    }
}

fn labels(text: &str) -> Result<Vec<LabelPart>, String> {
    text.split(',')
        .map(|part| {
            let part = part.trim();
            let two = |key: &str, value: &str| (key.trim().to_owned(), value.trim().to_owned());
            let made = if let Some((key, value)) = part.split_once("!=") {
                let (key, value) = two(key, value);
                LabelPart::IsNot(key, value)
            } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                let (key, value) = two(key, value);
                LabelPart::Is(key, value)
            } else {
                LabelPart::Has(part.to_owned())
            };
            let (LabelPart::Is(key, _) | LabelPart::IsNot(key, _) | LabelPart::Has(key)) = &made;
            if key.is_empty() {
                Err(format!("{text:?} is not KEY=VALUE, KEY!=VALUE or KEY"))
            } else {
                Ok(made)
            }
        })
        .collect()
}

impl LabelPart {
    fn holds(&self, labels: &flows::Labels) -> bool {
        let value = |wanted: &str| {
            let mut pairs = labels.texts().iter().filter_map(|text| text.split_once('='));
            pairs.find(|(key, _)| *key == wanted).map(|(_, value)| value.to_owned())
        };
        match self {
            Self::Is(key, wanted) => value(key).as_ref() == Some(wanted),
            Self::IsNot(key, wanted) => value(key).as_ref() != Some(wanted),
            Self::Has(key) => value(key).is_some(),
        }
    }
}
