//! Converts messages of the calculation to messages of the service.

use super::wire;
use api::scalars::Protocol;
use api::{HTTPMatch, QoSControls};
use ipnet::IpNet;
use messages::{
    IcmpMatch, IpSetId, IpSetType, LiveMigrationRole, Nat, OriginalEnd, Policy, PolicyId, PortRange, Profile,
    Rule, TierInfo, WorkloadEndpoint, WorkloadEndpointId,
};
use model::IpVersion;
use wire::Payload;

/// A message with this content.
pub(crate) fn message(payload: Payload) -> wire::ToDataplane {
    wire::ToDataplane { payload: Some(payload) }
}

pub(crate) fn set_type(set_type: IpSetType) -> i32 {
    let set_type = match set_type {
        IpSetType::Ip => wire::IpSetType::Ip,
        IpSetType::IpAndPort => wire::IpSetType::IpAndPort,
        IpSetType::Net => wire::IpSetType::Net,
    };
    set_type.into()
}

pub(crate) fn policy_id(id: &PolicyId) -> wire::PolicyId {
    wire::PolicyId { name: id.name.clone(), namespace: id.namespace.clone(), kind: id.kind.to_string() }
}

pub(crate) fn endpoint_id(id: &WorkloadEndpointId) -> wire::EndpointId {
    wire::EndpointId {
        orchestrator_id: id.orchestrator.to_string(),
        workload_id: id.workload.to_string(),
        endpoint_id: id.endpoint.to_string(),
    }
}

pub(crate) fn policy_update(id: &PolicyId, policy: &Policy) -> wire::ToDataplane {
    message(Payload::PolicyUpdate(wire::PolicyUpdate {
        id: Some(policy_id(id)),
        policy: Some(wire::Policy {
            inbound_rules: policy.inbound_rules.iter().map(rule).collect(),
            outbound_rules: policy.outbound_rules.iter().map(rule).collect(),
            untracked: policy.untracked,
            pre_dnat: policy.pre_dnat,
            namespace: policy.namespace.clone(),
            original_selector: policy.original_selector.clone(),
            perf_hints: policy.performance_hints.clone(),
            tier: policy.tier.to_string(),
        }),
    }))
}

pub(crate) fn profile_update(name: &str, profile: &Profile) -> wire::ToDataplane {
    message(Payload::ProfileUpdate(wire::ProfileUpdate {
        id: Some(wire::ProfileId { name: name.to_owned() }),
        profile: Some(wire::Profile {
            inbound_rules: profile.inbound_rules.iter().map(rule).collect(),
            outbound_rules: profile.outbound_rules.iter().map(rule).collect(),
        }),
    }))
}

pub(crate) fn endpoint_update(id: &WorkloadEndpointId, endpoint: &WorkloadEndpoint) -> wire::ToDataplane {
    message(Payload::EndpointUpdate(Box::new(wire::EndpointUpdate {
        id: Some(endpoint_id(id)),
        endpoint: Some(workload(endpoint)),
    })))
}

fn workload(endpoint: &WorkloadEndpoint) -> wire::WorkloadEndpoint {
    let controls = endpoint.qos_controls.as_deref();
    wire::WorkloadEndpoint {
        state: endpoint.state.clone(),
        name: endpoint.name.to_string(),
        mac: endpoint.mac.clone(),
        profile_ids: endpoint.profile_ids.iter().map(ToString::to_string).collect(),
        ipv4_nets: nets(&endpoint.ipv4_nets),
        ipv6_nets: nets(&endpoint.ipv6_nets),
        tiers: endpoint.tiers.iter().map(tier).collect(),
        ipv4_nat: endpoint.ipv4_nat.iter().map(nat).collect(),
        ipv6_nat: endpoint.ipv6_nat.iter().map(nat).collect(),
        allow_spoofed_source_prefixes: nets(&endpoint.allow_spoofed_source_prefixes),
        annotations: endpoint.annotations.clone(),
        qos_controls: controls.map(qos),
        local_bgp_peer: (!endpoint.local_bgp_peer.is_empty())
            .then(|| wire::LocalBgpPeer { bgp_peer_name: endpoint.local_bgp_peer.clone() }),
        skip_redir: controls.and_then(skip_redirect),
        qos_policies: endpoint
            .qos_policies
            .iter()
            .map(|policy| wire::QosPolicy {
                destination: policy.destination.clone(),
                dscp: policy.dscp.into(),
            })
            .collect(),
        is_istio_ambient: endpoint.is_istio_ambient,
        live_migration_role: match endpoint.live_migration_role {
            LiveMigrationRole::None => 0,
            LiveMigrationRole::Source => 1,
            LiveMigrationRole::Target => 2,
        },
        live_migration_uid: endpoint.live_migration_uid.clone(),
        live_migration_vmi_name: endpoint.live_migration_vmi_name.clone(),
    }
}

fn tier(tier: &TierInfo) -> wire::TierInfo {
    wire::TierInfo {
        name: tier.name.to_string(),
        ingress_policies: tier.ingress_policies.iter().map(policy_id).collect(),
        egress_policies: tier.egress_policies.iter().map(policy_id).collect(),
        default_action: match tier.default_action {
            model::feed::RuleAction::Pass => "Pass".to_owned(),
            _ => "Deny".to_owned(),
        },
    }
}

fn nat(nat: &Nat) -> wire::NatInfo {
    wire::NatInfo { ext_ip: nat.external.to_string(), int_ip: nat.internal.to_string() }
}

fn qos(controls: &QoSControls) -> wire::QosControls {
    wire::QosControls {
        ingress_bandwidth: controls.ingress_bandwidth,
        egress_bandwidth: controls.egress_bandwidth,
        ingress_burst: controls.ingress_burst,
        egress_burst: controls.egress_burst,
        ingress_packet_rate: controls.ingress_packet_rate,
        egress_packet_rate: controls.egress_packet_rate,
        ingress_max_connections: controls.ingress_max_connections,
        egress_max_connections: controls.egress_max_connections,
        ingress_peakrate: controls.ingress_peakrate,
        egress_peakrate: controls.egress_peakrate,
        ingress_minburst: controls.ingress_minburst,
        egress_minburst: controls.egress_minburst,
        ingress_packet_burst: controls.ingress_packet_burst,
        egress_packet_burst: controls.egress_packet_burst,
    }
}

/// Packets with limits must not take the short way.
fn skip_redirect(controls: &QoSControls) -> Option<wire::SkipRedirect> {
    let skip = wire::SkipRedirect {
        egress: controls.egress_bandwidth > 0 || controls.egress_packet_rate > 0,
        ingress: controls.ingress_bandwidth > 0 || controls.ingress_packet_rate > 0,
    };
    (skip.egress || skip.ingress).then_some(skip)
}

fn rule(rule: &Rule) -> wire::Rule {
    let none = OriginalEnd::default();
    let (source, destination) = (&rule.source, &rule.destination);
    let source_text = source.original.as_deref().unwrap_or(&none);
    let destination_text = destination.original.as_deref().unwrap_or(&none);
    wire::Rule {
        action: rule.action.as_str().to_owned(),
        ip_version: match rule.ip_version {
            None => 0,
            Some(IpVersion::V4) => 4,
            Some(IpVersion::V6) => 6,
        },
        protocol: rule.protocol.as_ref().map(protocol),
        not_protocol: rule.not_protocol.as_ref().map(protocol),
        icmp: rule.icmp.as_ref().map(|icmp| match type_and_code(icmp) {
            Ok(both) => wire::Icmp::TypeAndCode(both),
            Err(icmp_type) => wire::Icmp::Type(icmp_type),
        }),
        not_icmp: rule.not_icmp.as_ref().map(|icmp| match type_and_code(icmp) {
            Ok(both) => wire::NotIcmp::TypeAndCode(both),
            Err(icmp_type) => wire::NotIcmp::Type(icmp_type),
        }),
        src_net: nets(&source.nets),
        src_ports: ports(&source.ports),
        src_ip_set_ids: ids(&source.ip_set_ids),
        src_named_port_ip_set_ids: ids(&source.named_port_ip_set_ids),
        dst_net: nets(&destination.nets),
        dst_ports: ports(&destination.ports),
        dst_ip_set_ids: ids(&destination.ip_set_ids),
        dst_named_port_ip_set_ids: ids(&destination.named_port_ip_set_ids),
        dst_ip_port_set_ids: ids(&destination.ip_port_set_ids),
        not_src_net: nets(&source.not_nets),
        not_src_ports: ports(&source.not_ports),
        not_src_ip_set_ids: ids(&source.not_ip_set_ids),
        not_src_named_port_ip_set_ids: ids(&source.not_named_port_ip_set_ids),
        not_dst_net: nets(&destination.not_nets),
        not_dst_ports: ports(&destination.not_ports),
        not_dst_ip_set_ids: ids(&destination.not_ip_set_ids),
        not_dst_named_port_ip_set_ids: ids(&destination.not_named_port_ip_set_ids),
        original_src_selector: source_text.selector.clone(),
        original_src_namespace_selector: source_text.namespace_selector.clone(),
        original_not_src_selector: source_text.not_selector.clone(),
        original_src_service: source_text.service.to_string(),
        original_src_service_namespace: source_text.service_namespace.to_string(),
        src_service_account_match: service_accounts(source_text),
        original_dst_selector: destination_text.selector.clone(),
        original_dst_namespace_selector: destination_text.namespace_selector.clone(),
        original_not_dst_selector: destination_text.not_selector.clone(),
        original_dst_service: destination_text.service.to_string(),
        original_dst_service_namespace: destination_text.service_namespace.to_string(),
        dst_service_account_match: service_accounts(destination_text),
        http_match: rule.http.as_deref().map(http),
        metadata: (!rule.annotations.is_empty())
            .then(|| wire::RuleMetadata { annotations: rule.annotations.clone() }),
        rule_id: rule.rule_id.clone(),
    }
}

/// Type and code, or the type alone.
fn type_and_code(icmp: &IcmpMatch) -> Result<wire::IcmpTypeAndCode, i32> {
    let icmp_type = icmp.icmp_type.into();
    icmp.code.map(|code| wire::IcmpTypeAndCode { icmp_type, code: code.into() }).ok_or(icmp_type)
}

fn protocol(protocol: &Protocol) -> wire::Protocol {
    let number_or_name = match protocol {
        Protocol::Number(number) => wire::NumberOrName::Number((*number).into()),
        named => wire::NumberOrName::Name(named.to_string().to_lowercase()),
    };
    wire::Protocol { number_or_name: Some(number_or_name) }
}

fn service_accounts(original: &OriginalEnd) -> Option<wire::ServiceAccountMatch> {
    let matched = wire::ServiceAccountMatch {
        selector: original.service_account_selector.clone(),
        names: original.service_account_names.clone(),
    };
    (matched != wire::ServiceAccountMatch::default()).then_some(matched)
}

fn http(http: &HTTPMatch) -> wire::HttpMatch {
    let path = |exact: &str, prefix: &str| match (exact, prefix) {
        ("", "") => None,
        ("", prefix) => Some(wire::PathMatch::Prefix(prefix.to_owned())),
        (exact, _) => Some(wire::PathMatch::Exact(exact.to_owned())),
    };
    wire::HttpMatch {
        methods: http.methods.clone(),
        paths: http
            .paths
            .iter()
            .filter_map(|one| path(&one.exact, &one.prefix))
            .map(|path| wire::HttpPath { path_match: Some(path) })
            .collect(),
    }
}

fn nets(nets: &[IpNet]) -> Vec<String> {
    nets.iter().map(ToString::to_string).collect()
}

fn ids(ids: &[IpSetId]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}

fn ports(ports: &[PortRange]) -> Vec<wire::PortRange> {
    ports.iter().map(|range| wire::PortRange { first: range.first.into(), last: range.last.into() }).collect()
}

/// All sets that a rule refers to.
pub(crate) fn sets_of(rules: &[Rule]) -> impl Iterator<Item = &IpSetId> {
    rules.iter().flat_map(|rule| [&rule.source, &rule.destination]).flat_map(|end| {
        end.ip_set_ids
            .iter()
            .chain(&end.ip_port_set_ids)
            .chain(&end.named_port_ip_set_ids)
            .chain(&end.not_ip_set_ids)
            .chain(&end.not_named_port_ip_set_ids)
    })
}
