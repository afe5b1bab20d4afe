//! Policies, profiles and tiers as they are calculated with: namespace and service-account selectors are already part of
//! the one selector of each rule end.

use super::TextMap;
use crate::key::IpVersion;
use api::scalars::{Port, Protocol};
use api::{HTTPMatch, ICMPFields, StagedAction};
use ipnet::IpNet;

/// A policy of any kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// The namespace; empty for global kinds.
    pub namespace: String,
    /// The tier.
    pub tier: String,
    /// The place in the tier; none sorts last.
    pub order: Option<f64>,
    /// The rules for packets to the endpoint.
    pub inbound_rules: Vec<Rule>,
    /// The rules for packets from the endpoint.
    pub outbound_rules: Vec<Rule>,
    /// The endpoints it is for.
    pub selector: String,
    /// Whether it is done before connection tracking.
    pub do_not_track: bool,
    /// Whether it is done before destination NAT.
    pub pre_dnat: bool,
    /// Whether it is for forwarded packets of host endpoints too.
    pub apply_on_forward: bool,
    /// The directions it is for.
    pub types: Vec<PolicyType>,
    /// Hints such as `AssumeNeededOnEveryNode`.
    pub performance_hints: Vec<String>,
    /// For staged policies: what they would do.
    pub staged_action: Option<StagedAction>,
}

/// A direction that a policy is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyType {
    /// Packets to the endpoint.
    Ingress,
    /// Packets from the endpoint.
    Egress,
}

/// The rules of a profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileRules {
    /// The rules for packets to the endpoint.
    pub inbound_rules: Vec<Rule>,
    /// The rules for packets from the endpoint.
    pub outbound_rules: Vec<Rule>,
}

/// A tier.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tier {
    /// The place among the tiers; none sorts last.
    pub order: Option<f64>,
    /// What happens to a packet that the tier's policies select and none of their rules matches.
    pub default_action: RuleAction,
}

/// What a rule does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleAction {
    /// Lets the packet through.
    Allow,
    /// Refuses it.
    #[default]
    Deny,
    /// Writes a log line and goes on.
    Log,
    /// Goes to the next tier: `next-tier` in the feed's texts.
    Pass,
}

impl RuleAction {
    /// The name in the feed: lower case, and `next-tier` for [`Self::Pass`].
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Log => "log",
            Self::Pass => "next-tier",
        }
    }
}

/// One rule. Everything that is given must match.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// What it does.
    pub action: RuleAction,
    /// Only this IP version.
    pub ip_version: Option<IpVersion>,
    /// Only this protocol.
    pub protocol: Option<Protocol>,
    /// Only other protocols than this.
    pub not_protocol: Option<Protocol>,
    /// Only this ICMP type and code.
    pub icmp: Option<ICMPFields>,
    /// Only other ICMP types and codes.
    pub not_icmp: Option<ICMPFields>,
    /// Where packets come from.
    pub source: RuleEnd,
    /// Where packets go to.
    pub destination: RuleEnd,
    /// The HTTP requests it is for; enforced by a proxy, not by the kernel.
    pub http: Option<Box<HTTPMatch>>,
    /// Notes of the user.
    pub annotations: TextMap,
}

/// One end of a rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleEnd {
    /// Addresses in any of these.
    pub nets: Vec<IpNet>,
    /// Addresses in none of these.
    pub not_nets: Vec<IpNet>,
    /// Endpoints and network sets that this selects; empty for no such condition.
    pub selector: String,
    /// Anything but these; empty for no such condition.
    pub not_selector: String,
    /// Any of these ports.
    pub ports: Vec<Port>,
    /// None of these ports.
    pub not_ports: Vec<Port>,
    /// The endpoints of this service: namespace and name.
    pub service: Option<(String, String)>,
    /// What the user wrote, before it was joined into `selector`.
    pub original: Option<Box<OriginalMatches>>,
}

/// The parts of a rule end as the user wrote them; they are shown, and matched by proxies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginalMatches {
    /// The selector.
    pub selector: String,
    /// The selector of namespaces.
    pub namespace_selector: String,
    /// The negated selector.
    pub not_selector: String,
    /// The names of service accounts.
    pub service_account_names: Vec<String>,
    /// The selector of service accounts.
    pub service_account_selector: String,
}
