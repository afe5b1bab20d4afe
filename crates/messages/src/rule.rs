//! Policies and profiles whose selectors, services and named ports have become names of sets.

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
    /// Whether it is done before connection tracking.
    pub untracked: bool,
    /// Whether it is done before destination NAT.
    pub pre_dnat: bool,
    /// The selector of endpoints, as the feed had it.
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

/// One rule. Everything that is given must match.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// What it does.
    pub action: RuleAction,
    /// Only this IP version.
    pub ip_version: Option<IpVersion>,
    /// Only this protocol.
    pub protocol: Option<Protocol>,
    /// Only other protocols.
    pub not_protocol: Option<Protocol>,
    /// Only this ICMP type, perhaps with a code.
    pub icmp: Option<IcmpMatch>,
    /// Only other ICMP types and codes.
    pub not_icmp: Option<IcmpMatch>,
    /// Where packets come from.
    pub source: RuleEnd,
    /// Where packets go to.
    pub destination: RuleEnd,
    /// The HTTP requests it is for; enforced by a proxy, not by the kernel.
    pub http: Option<Box<HTTPMatch>>,
    /// Notes of the user, sorted by key.
    pub annotations: BTreeMap<String, String>,
    /// A short text that is the same for equal rules in equal places.
    pub rule_id: String,
}

/// One end of a rule. Within one list any entry may match; of `ip_set_ids` all must.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleEnd {
    /// Networks.
    pub nets: Vec<IpNet>,
    /// Ports by number.
    pub ports: Vec<PortRange>,
    /// Sets of addresses with ports, for ports by name: any of `ports` or of these.
    pub named_port_ip_set_ids: Vec<IpSetId>,
    /// Sets of addresses: all of these.
    pub ip_set_ids: Vec<IpSetId>,
    /// Sets of addresses with ports, for services; only at the destination.
    pub ip_port_set_ids: Vec<IpSetId>,
    /// None of these networks.
    pub not_nets: Vec<IpNet>,
    /// None of these ports.
    pub not_ports: Vec<PortRange>,
    /// In none of these sets of addresses with ports.
    pub not_named_port_ip_set_ids: Vec<IpSetId>,
    /// In none of these sets of addresses.
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
