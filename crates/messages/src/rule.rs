//! Policies and profiles in which selectors, services and named ports have been replaced by names of sets.

use crate::{IpSetId, Text, TierName};
use api::HTTPMatch;
use api::scalars::Protocol;
use ipnet::IpNet;
use model::feed::RuleAction;
pub use model::feed::{IcmpMatch, PortRange};
use model::{IpVersion, v1::PolicyKey};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The identity of a policy, shared.
pub type PolicyId = Arc<PolicyKey>;

/// A policy that applies to a local endpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// The namespace; empty for global kinds.
    pub namespace: String,
    /// The tier.
    pub tier: TierName,
    /// The rules for packets to the endpoint.
    pub inbound_rules: Vec<Rule>,
    /// The rules for packets from the endpoint.
    pub outbound_rules: Vec<Rule>,
    /// Whether it applies before connection tracking.
    pub untracked: bool,
    /// Whether it applies before destination NAT.
    pub pre_dnat: bool,
    /// The selector of endpoints, as it is in the feed.
    pub original_selector: String,
    /// Hints such as `AssumeNeededOnEveryNode`.
    pub performance_hints: Vec<String>,
}

/// A profile that a local endpoint has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// The rules for packets to the endpoint.
    pub inbound_rules: Vec<Rule>,
    /// The rules for packets from the endpoint.
    pub outbound_rules: Vec<Rule>,
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
    /// Only this ICMP type, perhaps with a code.
    pub icmp: Option<IcmpMatch>,
    /// Only other ICMP types and codes.
    pub not_icmp: Option<IcmpMatch>,
    /// Where packets come from.
    pub source: RuleEnd,
    /// Where packets go to.
    pub destination: RuleEnd,
    /// The HTTP requests it applies to; a proxy enforces this, not the kernel.
    pub http: Option<Box<HTTPMatch>>,
    /// The user's notes, sorted by key.
    pub annotations: BTreeMap<String, String>,
    /// A short text that is equal for equal rules in equal places.
    pub rule_id: String,
}

/// One end of a rule. Within one list, any entry may match; of `ip_set_ids`, all must.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleEnd {
    /// Networks.
    pub nets: Vec<IpNet>,
    /// Ports by number.
    pub ports: Vec<PortRange>,
    /// Sets of addresses with ports, for named ports: one of `ports` or of these must match.
    pub named_port_ip_set_ids: Vec<IpSetId>,
    /// Sets of addresses, all of which must match.
    pub ip_set_ids: Vec<IpSetId>,
    /// Sets of addresses with ports, for services; only for destinations.
    pub ip_port_set_ids: Vec<IpSetId>,
    /// None of these networks.
    pub not_nets: Vec<IpNet>,
    /// None of these ports.
    pub not_ports: Vec<PortRange>,
    /// None of these sets of addresses with ports.
    pub not_named_port_ip_set_ids: Vec<IpSetId>,
    /// None of these sets of addresses.
    pub not_ip_set_ids: Vec<IpSetId>,
    /// What the user wrote.
    pub original: Option<Box<OriginalEnd>>,
}

/// The parts of a rule end as the user wrote them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginalEnd {
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
    /// The service's name.
    pub service: Text,
    /// The service's namespace.
    pub service_namespace: Text,
}
