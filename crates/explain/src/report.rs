//! The contents of an explanation, as data. [`crate::text`] formats it for users; serde, for programs.

use serde::Serialize;

/// The direction of packets, seen from an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// To it.
    Ingress,
    /// From it.
    Egress,
}

impl Direction {
    /// The word that policies use.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }
}

/// The final verdict on packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// They arrive.
    Allow,
    /// They are dropped.
    Deny,
    /// Some backends of a service can be reached, others cannot.
    Partly,
}

impl Verdict {
    /// The word for it in expectations.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Partly => "partly",
        }
    }
}

/// What one stage does to packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// They pass this stage, by a decision.
    Allow,
    /// They are dropped.
    Deny,
    /// Nothing was decided here; they continue.
    Through,
}

/// Where on a node an endpoint's policy is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Hook {
    /// At a workload's interface.
    Workload,
    /// At a host endpoint, for packets from or to the host itself.
    Host,
    /// At a host endpoint, for packets that the host forwards (`applyOnForward`).
    Forward,
    /// At a host endpoint, before destinations are translated (`preDNAT`).
    BeforeTranslation,
    /// At a host endpoint, before connections are tracked (`doNotTrack`).
    Untracked,
    /// What Calico does without evaluating policy.
    Fixed,
}

/// The answer to a query.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The sender, as in the query.
    pub from: String,
    /// The receiver, as in the query.
    pub to: String,
    /// The verdict.
    pub verdict: Verdict,
    /// One for each path that packets may take: several only for a service with several backends.
    pub flows: Vec<FlowReport>,
    /// Assumptions, and further notes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The explanation of one flow.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FlowReport {
    /// The sender.
    pub source: String,
    /// Its address.
    pub source_address: String,
    /// The receiver.
    pub destination: String,
    /// Its address.
    pub destination_address: String,
    /// The protocol by name, with the port or ICMP type: `TCP port 80`.
    pub traffic: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The rule, or the lack of one, that decided.
    pub decided_by: String,
    /// The stages on the path, in order; if the packet was dropped, the last one dropped it.
    pub stages: Vec<Stage>,
    /// What the staged policies would change, if they change the verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub if_staged: Option<String>,
    /// Notes about this flow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// One place on the path where packets can be dropped.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stage {
    /// Where: `egress of pod shop/web`.
    pub place: String,
    /// The kind of place.
    pub hook: Hook,
    /// What happened.
    pub outcome: Outcome,
    /// The rule, or the lack of one, that decided.
    pub decided_by: String,
    /// The tiers with policies for the endpoint, in order, as far as packets came.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<TierReport>,
    /// The profiles that were evaluated, after the tiers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<PolicyReport>,
    /// Policies of this direction that do not select the endpoint.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_selecting: Vec<String>,
}

/// The report on a tier.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TierReport {
    /// Its name.
    pub name: String,
    /// Its policies that select the endpoint, in order, as far as packets came; including staged ones.
    pub policies: Vec<PolicyReport>,
    /// What its end did, if packets came that far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
}

/// The report on a policy or profile.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyReport {
    /// Kind and name.
    pub name: String,
    /// Whether it is staged.
    pub staged: bool,
    /// Its rules for the direction, in order, as far as packets came.
    pub rules: Vec<RuleReport>,
    /// The action of the rule that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
}

/// The report on a rule.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleReport {
    /// Its place: `ingress[0]`.
    pub place: String,
    /// Its text: `Allow TCP from app == 'web' to ports 80`.
    pub text: String,
    /// Whether it matches.
    pub matches: bool,
    /// If not: a description of each clause that failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
}
