//! The cross-field rules of rules, each as CEL and as Rust.

use super::super::policy::{Action, GLOBAL_ONLY_IN_RULES};
use super::{EntityRule, ICMPFields, Rule};
use crate::rules::{HasRules, Reason, Rule as CrossFieldRule};
use crate::scalars::Protocol;

impl HasRules for ICMPFields {
    fn rules() -> &'static [CrossFieldRule<Self>] {
        &[CrossFieldRule {
            cel: "has(self.type) || !has(self.code)",
            message: "ICMP code specified without an ICMP type",
            reason: Reason::Invalid,
            holds: |icmp| icmp.icmp_type.is_some() || icmp.code.is_none(),
        }]
    }
}

impl HasRules for EntityRule {
    fn rules() -> &'static [CrossFieldRule<Self>] {
        &[
            CrossFieldRule {
                cel: "!(has(self.selector) && self.selector.contains('global('))",
                message: GLOBAL_ONLY_IN_RULES,
                reason: Reason::Invalid,
                holds: |entity| !entity.selector.mentions_global(),
            },
            CrossFieldRule {
                cel: "!(has(self.services) && has(self.namespaceSelector) && size(self.namespaceSelector) > 0)",
                message: "cannot specify NamespaceSelector and Services on the same rule",
                reason: Reason::Forbidden,
                holds: |entity| entity.services.is_none() || entity.namespace_selector.is_empty(),
            },
            CrossFieldRule {
                cel: "!(has(self.services) && has(self.serviceAccounts))",
                message: "cannot specify ServiceAccounts and Services on the same rule",
                reason: Reason::Forbidden,
                holds: |entity| entity.services.is_none() || entity.service_accounts.is_none(),
            },
            CrossFieldRule {
                cel: "!has(self.services) || (has(self.services.name) && size(self.services.name) > 0)",
                message: "services must specify a service name",
                reason: Reason::Required,
                holds: |entity| entity.services.as_ref().is_none_or(|services| !services.name.is_empty()),
            },
            CrossFieldRule {
                cel: "!has(self.services) || !((has(self.selector) && size(self.selector) > 0) || \
                      (has(self.notSelector) && size(self.notSelector) > 0))",
                message: "cannot specify Selector/NotSelector and Services on the same rule",
                reason: Reason::Forbidden,
                holds: |entity| {
                    entity.services.is_none()
                        || (entity.selector.is_empty() && entity.not_selector.is_empty())
                },
            },
            CrossFieldRule {
                cel: "!has(self.services) || !((has(self.nets) && size(self.nets) > 0) || \
                      (has(self.notNets) && size(self.notNets) > 0))",
                message: "cannot specify Nets/NotNets and Services on the same rule",
                reason: Reason::Forbidden,
                holds: |entity| {
                    entity.services.is_none() || (entity.nets.is_empty() && entity.not_nets.is_empty())
                },
            },
        ]
    }
}

const ICMP_IS_IPV4: &str = "protocol ICMP requires ipVersion 4";
const ICMPV6_IS_IPV6: &str = "protocol ICMPv6 requires ipVersion 6";

impl HasRules for Rule {
    fn rules() -> &'static [CrossFieldRule<Self>] {
        &[
            CrossFieldRule {
                cel: "!has(self.http) || !has(self.protocol) || self.protocol == 6 || self.protocol == 'TCP'",
                message: "rules with HTTP match must have protocol TCP or unset",
                reason: Reason::Invalid,
                holds: |rule| {
                    rule.http.is_none()
                        || matches!(rule.protocol, None | Some(Protocol::Tcp | Protocol::Number(6)))
                },
            },
            CrossFieldRule {
                cel: "!has(self.http) || self.action == 'Allow'",
                message: "HTTP match is only valid on Allow rules",
                reason: Reason::Forbidden,
                holds: |rule| rule.http.is_none() || rule.action == Action::Allow,
            },
            CrossFieldRule {
                cel: "!has(self.destination) || !has(self.destination.services) || \
                      !((has(self.destination.ports) && size(self.destination.ports) > 0) || \
                      (has(self.destination.notPorts) && size(self.destination.notPorts) > 0))",
                message: "ports and notPorts cannot be specified with services",
                reason: Reason::Forbidden,
                holds: |rule| {
                    let end = &rule.destination;
                    end.services.is_none() || (end.ports.is_empty() && end.not_ports.is_empty())
                },
            },
            CrossFieldRule {
                cel: "!has(self.icmp) || (has(self.protocol) && (self.protocol == 1 || self.protocol == 58 || \
                      self.protocol == 'ICMP' || self.protocol == 'ICMPv6'))",
                message: "ICMP fields require protocol to be ICMP or ICMPv6",
                reason: Reason::Invalid,
                holds: |rule| {
                    rule.icmp.is_none()
                        || is_icmp(rule.protocol.as_ref())
                        || is_icmpv6(rule.protocol.as_ref())
                },
            },
            CrossFieldRule {
                cel: "!has(self.ipVersion) || self.ipVersion == 4 || !has(self.protocol) || \
                      (self.protocol != 1 && self.protocol != 'ICMP')",
                message: ICMP_IS_IPV4,
                reason: Reason::Invalid,
                holds: |rule| !is_icmp(rule.protocol.as_ref()) || matches!(rule.ip_version, None | Some(4)),
            },
            CrossFieldRule {
                cel: "!has(self.ipVersion) || self.ipVersion == 6 || !has(self.protocol) || \
                      (self.protocol != 58 && self.protocol != 'ICMPv6')",
                message: ICMPV6_IS_IPV6,
                reason: Reason::Invalid,
                holds: |rule| !is_icmpv6(rule.protocol.as_ref()) || matches!(rule.ip_version, None | Some(6)),
            },
            CrossFieldRule {
                cel: "!has(self.ipVersion) || self.ipVersion == 4 || !has(self.notProtocol) || \
                      (self.notProtocol != 1 && self.notProtocol != 'ICMP')",
                message: ICMP_IS_IPV4,
                reason: Reason::Invalid,
                holds: |rule| {
                    !is_icmp(rule.not_protocol.as_ref()) || matches!(rule.ip_version, None | Some(4))
                },
            },
            CrossFieldRule {
                cel: "!has(self.ipVersion) || self.ipVersion == 6 || !has(self.notProtocol) || \
                      (self.notProtocol != 58 && self.notProtocol != 'ICMPv6')",
                message: ICMPV6_IS_IPV6,
                reason: Reason::Invalid,
                holds: |rule| {
                    !is_icmpv6(rule.not_protocol.as_ref()) || matches!(rule.ip_version, None | Some(6))
                },
            },
        ]
    }
}

fn is_icmp(protocol: Option<&Protocol>) -> bool {
    protocol.is_some_and(Protocol::is_icmp)
}

fn is_icmpv6(protocol: Option<&Protocol>) -> bool {
    protocol.is_some_and(Protocol::is_icmpv6)
}
