//! What an explanation says, as data. [`crate::text`] writes it for people; serde, for programs.

use serde::Serialize;

/// Which way packets go, seen from an endpoint.
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

/// What finally becomes of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// They arrive.
    Allow,
    /// They are dropped.
    Deny,
    /// Some of a service's backends can be reached and others not.
    Partly,
}

impl Verdict {
    /// The word that expectations use.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Partly => "partly",
        }
    }
}

/// What one stage does with packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// They pass this stage, by decision.
    Allow,
    /// They are dropped.
    Deny,
    /// Nothing was decided here; they go on.
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
    /// What Calico does without asking policy.
    Fixed,
}

/// The answer to a query.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Who asked to talk to whom, in the query's words.
    pub from: String,
    /// The other end.
    pub to: String,
    /// What becomes of the packets.
    pub verdict: Verdict,
    /// One for each way that packets may take: several only for a service with several backends.
    pub flows: Vec<FlowReport>,
    /// What had to be assumed, and what to know besides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What becomes of one flow.
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
    /// What becomes of it.
    pub verdict: Verdict,
    /// The rule, or the lack of one, that decided.
    pub decided_by: String,
    /// What happens on the way, in order; the last one dropped the packet if it was.
    pub stages: Vec<Stage>,
    /// What the staged policies would change, if they change the verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub if_staged: Option<String>,
    /// What to know about this flow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// One place on the way where packets can be dropped.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stage {
    /// Where: `egress of pod shop/web`.
    pub place: String,
    /// What kind of place.
    pub hook: Hook,
    /// What happened.
    pub outcome: Outcome,
    /// The rule, or the lack of one, that decided.
    pub decided_by: String,
    /// The tiers with policies for the endpoint, in order, as far as packets came.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<TierReport>,
    /// The profiles that were asked, after the tiers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<PolicyReport>,
    /// Policies of this direction that do not select the endpoint.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_selecting: Vec<String>,
}

/// What a tier says.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TierReport {
    /// Its name.
    pub name: String,
    /// Its policies that select the endpoint, in order, as far as packets came; staged ones among them.
    pub policies: Vec<PolicyReport>,
    /// What its end did, if packets came that far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
}

/// What a policy or profile says.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyReport {
    /// Kind and name.
    pub name: String,
    /// Whether it is only tried.
    pub staged: bool,
    /// Its rules for the direction, in order, as far as packets came.
    pub rules: Vec<RuleReport>,
    /// The action of the rule that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
}

/// What a rule says.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleReport {
    /// Where it stands: `ingress[0]`.
    pub place: String,
    /// What it says: `Allow TCP from app == 'web' to ports 80`.
    pub text: String,
    /// Whether it matches.
    pub matches: bool,
    /// If not: each clause that failed, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
}
