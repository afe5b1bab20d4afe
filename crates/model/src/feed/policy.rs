//! Policies, profiles and tiers in the form that is used for calculation: each rule end has one selector, which
//! includes those of namespaces and service accounts.

use super::TextMap;
use crate::TierName;
use crate::key::IpVersion;
use api::{HTTPMatch, StagedAction};
use ipnet::IpNet;
use selector::Selector;
use std::fmt;

/// A policy of any kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// The namespace; empty for global kinds.
    pub namespace: String,
    /// The tier.
    pub tier: TierName,
    /// The order within the tier; `None` comes last.
    pub order: Option<f64>,
    /// The rules for packets to the endpoint.
    pub inbound_rules: Vec<Rule>,
    /// The rules for packets from the endpoint.
    pub outbound_rules: Vec<Rule>,
    /// The endpoints that it applies to.
    pub selector: Selector,
    /// Whether it applies before connection tracking.
    pub do_not_track: bool,
    /// Whether it applies before destination NAT.
    pub pre_dnat: bool,
    /// Whether it also applies to packets that host endpoints forward.
    pub apply_on_forward: bool,
    /// The directions that it applies to.
    pub types: Vec<PolicyType>,
    /// Hints such as `AssumeNeededOnEveryNode`.
    pub performance_hints: Vec<String>,
    /// For staged policies: the proposed action.
    pub staged_action: Option<StagedAction>,
}

/// A direction that a policy applies to.
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
    /// The order among the tiers; `None` comes last.
    pub order: Option<f64>,
    /// What happens to a packet that the tier's policies select and none of their rules matches.
    pub default_action: RuleAction,
}

/// The action of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleAction {
    /// The packet may pass.
    Allow,
    /// The packet is dropped.
    #[default]
    Deny,
    /// The packet is logged, and the next rule is evaluated.
    Log,
    /// The packet goes on to the next tier: `next-tier` in the feed's texts.
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

/// One rule. All given conditions must match.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// The action.
    pub action: RuleAction,
    /// Only this IP version.
    pub ip_version: Option<IpVersion>,
    /// Only this protocol.
    pub protocol: Option<Protocol>,
    /// Only protocols other than this.
    pub not_protocol: Option<Protocol>,
    /// Only this ICMP type and code.
    pub icmp: Option<IcmpMatch>,
    /// Only other ICMP types and codes.
    pub not_icmp: Option<IcmpMatch>,
    /// Where packets come from.
    pub source: RuleEnd,
    /// Where packets go to.
    pub destination: RuleEnd,
    /// The HTTP requests it applies to; a proxy enforces this, not the kernel.
    pub http: Option<Box<HTTPMatch>>,
    /// The user's notes.
    pub annotations: TextMap,
}

/// One end of a rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleEnd {
    /// Addresses in any of these networks.
    pub nets: Vec<IpNet>,
    /// Addresses in none of these networks.
    pub not_nets: Vec<IpNet>,
    /// Endpoints and network sets that this selector matches.
    pub selector: Option<Selector>,
    /// Anything that this selector does not match.
    pub not_selector: Option<Selector>,
    /// Any of these ports.
    pub ports: Vec<Port>,
    /// None of these ports.
    pub not_ports: Vec<Port>,
    /// The endpoints of this service: namespace and name.
    pub service: Option<(String, String)>,
    /// What the user wrote, before it was joined into `selector`.
    pub original: Option<Box<OriginalMatches>>,
}

/// A protocol that packets may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// By number. Ports of endpoints may have protocol 0, which means that there is none; no rule names it.
    Number(u8),
    /// TCP
    Tcp,
    /// UDP
    Udp,
    /// ICMP
    Icmp,
    /// `ICMPv6`
    Icmpv6,
    /// SCTP
    Sctp,
    /// `UDPLite`
    UdpLite,
}

impl Protocol {
    /// The protocols that have names.
    pub const NAMED: [Self; 6] = [Self::Tcp, Self::Udp, Self::Icmp, Self::Icmpv6, Self::Sctp, Self::UdpLite];
}

/// Converts a resource's protocol; the error is the text that is not a protocol.
impl TryFrom<api::scalars::Protocol> for Protocol {
    type Error = api::scalars::Protocol;

    fn try_from(protocol: api::scalars::Protocol) -> Result<Self, Self::Error> {
        use api::scalars::{IntOrString, Protocol as Written};
        // Resources may have names in other cases; those in the feed have always been lower case.
        let written = match protocol {
            Written::Other(IntOrString::String(name)) => Written::from_name(&name),
            other => other,
        };
        Ok(match written {
            Written::Number(number) => Self::Number(number),
            Written::Tcp => Self::Tcp,
            Written::Udp => Self::Udp,
            Written::Icmp => Self::Icmp,
            Written::Icmpv6 => Self::Icmpv6,
            Written::Sctp => Self::Sctp,
            Written::UdpLite => Self::UdpLite,
            other @ Written::Other(_) => return Err(other),
        })
    }
}

impl From<Protocol> for api::scalars::Protocol {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Number(number) => Self::Number(number),
            Protocol::Tcp => Self::Tcp,
            Protocol::Udp => Self::Udp,
            Protocol::Icmp => Self::Icmp,
            Protocol::Icmpv6 => Self::Icmpv6,
            Protocol::Sctp => Self::Sctp,
            Protocol::UdpLite => Self::UdpLite,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        api::scalars::Protocol::from(*self).fmt(f)
    }
}

/// Ports that a rule matches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Port {
    /// By number.
    Range(PortRange),
    /// The ports of this name; the endpoints define the number.
    Named(String),
}

/// Ports from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortRange {
    /// The lowest.
    pub first: u16,
    /// The highest.
    pub last: u16,
}

/// An ICMP type, perhaps with a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IcmpMatch {
    /// The type.
    pub icmp_type: u8,
    /// The code; `None` for all codes.
    pub code: Option<u8>,
}

/// The parts of a rule end as the user wrote them: for display, and for proxies.
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
