//! Gives everything that can be rendered to real packet filters: one rejected rule would keep a whole table from being
//! programmed.

use crate::kernel::{self, Program, Sets};
use crate::shapes;
use crate::world::World;
use api::{Kind, QoSControls};
use messages::{
    HostEndpoint, InterfaceName, IpSetMember, Policy, PolicyId, Profile, ProfileName, TierInfo,
    WorkloadEndpoint,
};
use model::feed::RuleAction;
use model::v1::PolicyKey;
use rules::names::{self, sets};
use rules::tree::{InterfacePattern, IpVersion, Protocol, Rate, RateUnit, Table};
use rules::{Allowed, Denied, DscpRule, EndpointToHost, FailsafePort, Marks, OpenStack, RulesConfig};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

const ACTIONS: [RuleAction; 4] = [RuleAction::Allow, RuleAction::Deny, RuleAction::Log, RuleAction::Pass];

fn id(name: &str) -> PolicyId {
    Arc::new(PolicyKey { kind: Kind::GlobalNetworkPolicy, namespace: String::new(), name: name.to_owned() })
}

fn all_sets(version: IpVersion) -> Sets {
    let fixed = [
        sets::NETWORK_POOLS,
        sets::MASQUERADED_POOLS,
        sets::ALL_HOSTS,
        sets::ALL_VXLAN,
        sets::THIS_HOST,
        sets::DSCP_SOURCES,
        sets::ISTIO_WORKLOADS,
    ];
    let net: ipnet::IpNet = match version {
        IpVersion::V4 => "10.9.0.0/16".parse(),
        IpVersion::V6 => "fd09::/64".parse(),
    }
    .expect("a network");
    let fixed = fixed.map(|set| (names::ip_set(version, set), vec![IpSetMember::Net(net)]));
    fixed.into_iter().chain(shapes::sets(version)).collect()
}

/// All pairs of field values, one policy for each, with the four actions in turn.
fn pairs_world(program: Program) -> World {
    let shapes = shapes::all();
    let mut policies = BTreeMap::new();
    let mut turn = ACTIONS.into_iter().cycle();
    for (index, first) in shapes.iter().enumerate() {
        for second in &shapes[index..] {
            if first.field == second.field && first.field != "nothing" {
                continue;
            }
            let action = turn.next().unwrap_or_default();
            let policy = Policy {
                tier: "default".into(),
                inbound_rules: vec![shapes::pair(first, second, action)],
                ..Policy::default()
            };
            policies.insert(id(&format!("p{}", policies.len())), Arc::new(policy));
        }
    }
    assert!(policies.len() > 2000, "{} pairs", policies.len());
    let config = RulesConfig { backend: program.backend(), ..RulesConfig::default() };
    World { config, policies, ..World::default() }
}

fn every_pair_is_accepted(program: Program) {
    let world = pairs_world(program);
    for version in [IpVersion::V4, IpVersion::V6] {
        kernel::program(&world, &[Table::Filter], version, &all_sets(version), program);
    }
}

#[test]
fn every_pair_of_fields_is_accepted_by_iptables_nft() {
    every_pair_is_accepted(Program::IptablesNft);
}

#[test]
fn every_pair_of_fields_is_accepted_by_iptables_legacy() {
    every_pair_is_accepted(Program::IptablesLegacy);
}

#[test]
fn every_pair_of_fields_is_accepted_by_nft() {
    every_pair_is_accepted(Program::Nft);
}

/// Endpoints of all kinds, with everything that settings can enable.
fn everything_world(program: Program, deny: Denied, allow: Allowed) -> World {
    let rule = |action| messages::Rule { action, ..messages::Rule::default() };
    let rules = || ACTIONS.map(rule).to_vec();
    let policy = |untracked, pre_dnat| {
        Arc::new(Policy {
            tier: "default".into(),
            inbound_rules: rules(),
            outbound_rules: rules(),
            untracked,
            pre_dnat,
            original_selector: "all()".to_owned(),
            ..Policy::default()
        })
    };
    let names: Vec<PolicyId> = (0..12).map(|index| id(&format!("policy-{index}"))).collect();
    let long = id(&"long.".repeat(50));
    let tier = |policies: &[PolicyId]| TierInfo {
        name: "default".into(),
        default_action: RuleAction::Deny,
        ingress_policies: policies.to_vec(),
        egress_policies: policies.to_vec(),
    };
    let with_long: Vec<_> = names.iter().cloned().chain([long.clone()]).collect();
    let profiles: Vec<ProfileName> = vec!["kns.default".into()];
    let qos = QoSControls {
        ingress_packet_rate: 1000,
        ingress_packet_burst: 10,
        egress_packet_rate: 20000,
        egress_max_connections: 7,
        ..QoSControls::default()
    };
    let workload = |name: &str, state: &str| WorkloadEndpoint {
        state: state.to_owned(),
        name: name.into(),
        profile_ids: profiles.clone(),
        tiers: vec![tier(&with_long)],
        qos_controls: Some(Box::new(qos.clone())),
        ..WorkloadEndpoint::default()
    };
    let host = || HostEndpoint {
        profile_ids: profiles.clone(),
        tiers: vec![tier(&names)],
        untracked_tiers: vec![tier(&names[..1])],
        pre_dnat_tiers: vec![tier(&names[1..2])],
        forward_tiers: vec![tier(&names)],
        ..HostEndpoint::default()
    };
    let failsafe = |net: &str| FailsafePort {
        protocol: Protocol::Named("sctp", 132),
        port: 9,
        net: Some(net.parse().expect("a network")),
    };
    let defaults = RulesConfig::default();
    let both = |mut ports: Vec<FailsafePort>| {
        ports.extend([failsafe("10.0.0.0/8"), failsafe("fd00::/8")]);
        ports
    };
    let is_iptables = program != Program::Nft;
    World {
        config: RulesConfig {
            backend: program.backend(),
            marks: Marks::from_mask(0xffff_0000, true, true).unwrap_or_default(),
            workload_interface_prefixes: vec!["cali".into(), "tap".into()],
            ipvs_support: is_iptables,
            node_port_ranges: (0..9)
                .map(|index| messages::PortRange { first: 30000 + 10 * index, last: 30005 + 10 * index })
                .collect(),
            openstack: Some(OpenStack { metadata: Some(([10, 0, 0, 7].into(), 8775)) }),
            vxlan_enabled: true,
            vxlan_enabled_v6: true,
            vxlan_tunnel_address: Some([10, 66, 1, 0].into()),
            vxlan_tunnel_address_v6: Some(std::net::Ipv6Addr::LOCALHOST),
            ipip_enabled: true,
            ipip_tunnel_address: Some([10, 67, 1, 0].into()),
            wireguard: rules::Wireguard { enabled: true, ..defaults.wireguard.clone() },
            wireguard_v6: rules::Wireguard { enabled: true, ..defaults.wireguard_v6.clone() },
            wireguard_encrypt_host_traffic: true,
            log_prefix: "%t %k %n %p \"quoted\" % 100%\n and far longer than a kernel takes it".to_owned(),
            log_rate_limit: Some((Rate { count: 10, unit: RateUnit::Minute }, 5)),
            endpoint_to_host_action: EndpointToHost::Return,
            filter_allow_action: allow,
            mangle_allow_action: allow,
            filter_deny_action: deny,
            failsafe_inbound: both(defaults.failsafe_inbound.clone()),
            failsafe_outbound: both(defaults.failsafe_outbound.clone()),
            nat_port_range: Some((10000, 20000)),
            nat_outgoing_interface: Some(InterfacePattern::from_setting("eth+")),
            nat_outgoing_address: (allow == Allowed::Return).then(|| [10, 0, 0, 9].into()),
            nat_outgoing_exclude_hosts: true,
            flow_logs: true,
            istio_ambient_dscp: Some(23),
            ..defaults
        },
        policies: names
            .iter()
            .enumerate()
            .map(|(index, name)| (name.clone(), policy(index == 0, index == 1)))
            .chain([(long.clone(), policy(false, false))])
            .collect(),
        profiles: BTreeMap::from([(
            profiles[0].clone(),
            Profile { inbound_rules: rules(), outbound_rules: rules() },
        )]),
        workloads: vec![
            workload("cali0", "active"),
            workload("cali00", "active"),
            workload("cali01", "inactive"),
            workload("cali1", "active"),
            workload("tap1", "active"),
        ],
        hosts: ["eth0", "eth1", "ens1", names::ANY_INTERFACE]
            .into_iter()
            .map(|name| (name.into(), host()))
            .collect(),
        nat_outgoing: true,
        floating: addresses(&[
            ("172.16.0.2", "10.0.0.2"),
            ("172.16.0.10", "10.0.0.2"),
            ("fd10::1", "fd00::1"),
        ])
        .into_iter()
        .collect(),
        service_ranges: ["10.96.0.0/12", "fd96::/112"].map(|net| net.parse().expect("a network")).to_vec(),
        dscp: addresses(&[("10.0.0.1", "10.0.0.1"), ("fd00::1", "fd00::1")])
            .into_iter()
            .map(|(source, _)| DscpRule { source, value: 46 })
            .collect(),
        allowed_sources: BTreeMap::from([(
            InterfaceName::from("cali1"),
            ["8.8.8.8/32", "fd08::/16"].map(|net| net.parse().expect("a network")).to_vec(),
        )]),
    }
}

fn addresses(pairs: &[(&str, &str)]) -> Vec<(IpAddr, IpAddr)> {
    let parse = |text: &str| text.parse().expect("an address");
    pairs.iter().map(|(one, other)| (parse(one), parse(other))).collect()
}

fn everything_is_accepted(program: Program) {
    for (deny, allow) in [(Denied::Drop, Allowed::Accept), (Denied::Reject, Allowed::Return)] {
        let world = everything_world(program, deny, allow);
        assert_eq!(world.is_nftables(), program == Program::Nft);
        for version in [IpVersion::V4, IpVersion::V6] {
            kernel::program(&world, &Table::ALL, version, &all_sets(version), program);
        }
    }
}

#[test]
fn everything_together_is_accepted() {
    for program in Program::ALL {
        everything_is_accepted(program);
    }
}
