//! Values of a feed in the form of the wire's JSON.

use super::wire;
use api::scalars::{self, GoFloat};
use api::{IPIPMode, VXLANMode};
use ipnet::IpNet;
use model::feed::{
    EndpointPort, HostEndpoint, IcmpMatch, IpPool, Nat, NetworkSet, Policy, PolicyType, Port, ProfileRules,
    Protocol, Rule, RuleAction, RuleEnd, Tier, Wireguard, WorkloadEndpoint,
};
use selector::Selector;
use std::borrow::Cow;
use std::net::IpAddr;

fn texts<T: ToString>(values: &[T]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

fn nets(nets: &[IpNet]) -> Vec<String> {
    nets.iter().map(|net| net.trunc().to_string()).collect()
}

/// Go has `null` for a list without elements.
fn or_null(nets: &[IpNet]) -> Option<wire::Nets<'_>> {
    (!nets.is_empty()).then(|| wire::Nets(nets.into()))
}

pub(super) fn policy(policy: &Policy) -> wire::Policy {
    wire::Policy {
        namespace: policy.namespace.clone(),
        tier: policy.tier.clone(),
        order: policy.order.map(GoFloat),
        inbound_rules: policy.inbound_rules.iter().map(rule).collect(),
        outbound_rules: policy.outbound_rules.iter().map(rule).collect(),
        selector: policy.selector.canonical().to_owned(),
        untracked: policy.do_not_track,
        pre_dnat: policy.pre_dnat,
        apply_on_forward: policy.apply_on_forward,
        types: policy
            .types
            .iter()
            .map(|one| match one {
                PolicyType::Ingress => "ingress".to_owned(),
                PolicyType::Egress => "egress".to_owned(),
            })
            .collect(),
        performance_hints: policy.performance_hints.clone(),
        staged_action: policy.staged_action.as_ref().map(ToString::to_string),
    }
}

pub(super) fn profile_rules(rules: &ProfileRules) -> wire::ProfileRules {
    wire::ProfileRules {
        inbound_rules: rules.inbound_rules.iter().map(rule).collect(),
        outbound_rules: rules.outbound_rules.iter().map(rule).collect(),
    }
}

fn rule(rule: &Rule) -> wire::Rule {
    let (source, destination) = (&rule.source, &rule.destination);
    let service = |end: &RuleEnd| end.service.clone().unwrap_or_default();
    let ((src_service_ns, src_service), (dst_service_ns, dst_service)) =
        (service(source), service(destination));
    let original = |end: &RuleEnd| end.original.as_deref().cloned().unwrap_or_default();
    let (from, to) = (original(source), original(destination));
    wire::Rule {
        action: rule.action.as_str().to_owned(),
        ip_version: rule.ip_version.map(model::IpVersion::number),
        protocol: rule.protocol.map(protocol),
        not_protocol: rule.not_protocol.map(protocol),
        icmp_type: icmp_type(rule.icmp),
        icmp_code: icmp_code(rule.icmp),
        not_icmp_type: icmp_type(rule.not_icmp),
        not_icmp_code: icmp_code(rule.not_icmp),
        src_nets: nets(&source.nets),
        src_selector: text(source.selector.as_ref()),
        src_ports: rule_ports(&source.ports),
        src_service,
        src_service_ns,
        dst_selector: text(destination.selector.as_ref()),
        dst_nets: nets(&destination.nets),
        dst_ports: rule_ports(&destination.ports),
        dst_service,
        dst_service_ns,
        not_src_nets: nets(&source.not_nets),
        not_src_selector: text(source.not_selector.as_ref()),
        not_src_ports: rule_ports(&source.not_ports),
        not_dst_selector: text(destination.not_selector.as_ref()),
        not_dst_nets: nets(&destination.not_nets),
        not_dst_ports: rule_ports(&destination.not_ports),
        orig_src_selector: from.selector,
        orig_src_namespace_selector: from.namespace_selector,
        orig_dst_selector: to.selector,
        orig_dst_namespace_selector: to.namespace_selector,
        not_orig_src_selector: from.not_selector,
        not_orig_dst_selector: to.not_selector,
        orig_src_service_acct_names: from.service_account_names,
        orig_src_service_acct_selector: from.service_account_selector,
        orig_dst_service_acct_names: to.service_account_names,
        orig_dst_service_acct_selector: to.service_account_selector,
        http: rule.http.clone(),
        metadata: (!rule.annotations.is_empty())
            .then(|| wire::RuleMetadata { annotations: rule.annotations.clone() }),
        ..wire::Rule::default()
    }
}

fn protocol(protocol: Protocol) -> wire::Protocol {
    match protocol {
        Protocol::Number(number) => wire::Protocol::Number(number),
        named => wire::Protocol::Name(named.to_string().to_ascii_lowercase()),
    }
}

fn text(selector: Option<&Selector>) -> String {
    selector.map(|selector| selector.canonical().to_owned()).unwrap_or_default()
}

fn icmp_type(icmp: Option<IcmpMatch>) -> Option<i64> {
    icmp.map(|icmp| i64::from(icmp.icmp_type))
}

fn icmp_code(icmp: Option<IcmpMatch>) -> Option<i64> {
    icmp.and_then(|icmp| icmp.code).map(i64::from)
}

fn rule_ports(ports: &[Port]) -> Vec<scalars::Port> {
    let port = |port: &Port| match port {
        Port::Range(range) => scalars::Port::Range { min: range.first, max: range.last },
        Port::Named(name) => scalars::Port::Named(name.clone()),
    };
    ports.iter().map(port).collect()
}

pub(super) fn tier(tier: &Tier) -> wire::Tier {
    // Spelled as in the API, not as in rules.
    let default_action = match tier.default_action {
        RuleAction::Pass => "Pass",
        RuleAction::Allow => "Allow",
        RuleAction::Log => "Log",
        RuleAction::Deny => "Deny",
    };
    wire::Tier { order: tier.order.map(GoFloat), default_action: default_action.to_owned() }
}

fn ports(ports: &[EndpointPort]) -> Vec<wire::EndpointPort> {
    let port = |port: &EndpointPort| wire::EndpointPort {
        name: port.name.clone(),
        protocol: protocol(port.protocol),
        port: port.port,
    };
    ports.iter().map(port).collect()
}

pub(super) fn workload(endpoint: &WorkloadEndpoint) -> wire::WorkloadEndpoint<'_> {
    let nat = |nat: &Nat| wire::Nat { int_ip: nat.internal.to_string(), ext_ip: nat.external.to_string() };
    wire::WorkloadEndpoint {
        state: endpoint.state.as_str().into(),
        name: endpoint.name.as_str().into(),
        active_instance_id: endpoint.active_instance_id.as_str().into(),
        mac: (!endpoint.mac.is_empty()).then(|| endpoint.mac.as_str().into()),
        profile_ids: (!endpoint.profile_ids.is_empty()).then(|| endpoint.profile_ids.as_slice().into()),
        ipv4_nets: or_null(&endpoint.ipv4_nets),
        ipv6_nets: or_null(&endpoint.ipv6_nets),
        ipv4_nat: endpoint.ipv4_nat.iter().map(nat).collect(),
        ipv6_nat: endpoint.ipv6_nat.iter().map(nat).collect(),
        labels: Cow::Borrowed(&endpoint.labels),
        ports: ports(&endpoint.ports),
        generate_name: endpoint.generate_name.as_str().into(),
        allow_spoofed_source_prefixes: wire::Nets(endpoint.allow_spoofed_source_prefixes.as_slice().into()),
        annotations: Cow::Borrowed(&endpoint.annotations),
        qos_controls: endpoint.qos_controls.clone(),
    }
}

pub(super) fn host(endpoint: &HostEndpoint) -> wire::HostEndpoint {
    wire::HostEndpoint {
        name: endpoint.name.clone(),
        expected_ipv4_addrs: texts(&endpoint.expected_ipv4_addrs),
        expected_ipv6_addrs: texts(&endpoint.expected_ipv6_addrs),
        labels: (!endpoint.labels.is_empty()).then(|| endpoint.labels.clone()),
        profile_ids: endpoint.profile_ids.clone(),
        ports: ports(&endpoint.ports),
        qos_controls: endpoint.qos_controls.clone(),
    }
}

pub(super) fn set(set: &NetworkSet) -> wire::NetworkSet {
    wire::NetworkSet {
        nets: nets(&set.nets),
        labels: (!set.labels.is_empty()).then(|| set.labels.clone()),
        profile_ids: set.profile_ids.clone(),
    }
}

pub(super) fn pool(pool: &IpPool) -> wire::IpPool {
    let ipip_mode = match pool.ipip_mode {
        IPIPMode::Always => "always",
        IPIPMode::CrossSubnet => "cross-subnet",
        IPIPMode::Never | IPIPMode::Unset | IPIPMode::Other(_) => "",
    };
    let vxlan_mode = match pool.vxlan_mode {
        VXLANMode::Always => "always",
        VXLANMode::CrossSubnet => "cross-subnet",
        VXLANMode::Never | VXLANMode::Unset | VXLANMode::Other(_) => "",
    };
    wire::IpPool {
        cidr: pool.cidr.to_string(),
        ipip: pool.ipip_interface.clone(),
        ipip_mode: ipip_mode.to_owned(),
        vxlan_mode: vxlan_mode.to_owned(),
        masquerade: pool.masquerade,
        ipam: pool.ipam,
        disabled: pool.disabled,
        disable_bgp_export: pool.disable_bgp_export,
        assignment_mode: if pool.assigned_automatically { "Automatic" } else { "Manual" }.to_owned(),
        allowed_uses: texts(&pool.allowed_uses),
    }
}

pub(super) fn wireguard(wireguard: &Wireguard) -> wire::Wireguard {
    wire::Wireguard {
        interface_ipv4: wireguard.interface_ipv4.as_ref().map(IpAddr::to_string),
        public_key: wireguard.public_key.clone(),
        interface_ipv6: wireguard.interface_ipv6.as_ref().map(IpAddr::to_string),
        public_key_v6: wireguard.public_key_v6.clone(),
    }
}
