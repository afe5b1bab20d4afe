//! One host with three workloads and a host endpoint, as messages: the input of Calico's Felix when the golden files
//! were captured.

use crate::world::World;
use api::Kind;
use api::scalars::Protocol;
use messages::{
    HostEndpoint, IcmpMatch, Policy, PolicyId, PortRange, Profile, Rule, RuleEnd, TierInfo, WorkloadEndpoint,
};
use model::IpVersion;
use model::feed::RuleAction;
use model::v1::PolicyKey;
use rules::tree::InterfaceName;
use rules::{Backend, EndpointToHost, RulesConfig};
use std::collections::BTreeMap;
use std::sync::Arc;

fn id(kind: Kind, namespace: &str, name: &str) -> PolicyId {
    Arc::new(PolicyKey { kind, namespace: namespace.to_owned(), name: name.to_owned() })
}

fn rule(action: RuleAction) -> Rule {
    Rule { action, ..Rule::default() }
}

fn nets(nets: &[&str]) -> Vec<ipnet::IpNet> {
    nets.iter().map(|net| net.parse().expect("a network")).collect()
}

fn ports(ports: &[(u16, u16)]) -> Vec<PortRange> {
    ports.iter().map(|&(first, last)| PortRange { first, last }).collect()
}

fn tier(name: &str, ingress: &[&PolicyId], egress: &[&PolicyId]) -> TierInfo {
    TierInfo {
        name: name.into(),
        default_action: RuleAction::Deny,
        ingress_policies: ingress.iter().map(|id| (*id).clone()).collect(),
        egress_policies: egress.iter().map(|id| (*id).clone()).collect(),
    }
}

/// The host. The nftables golden file was captured without the code in the rule about ICMP, because Calico renders type
/// and code into a text that `nft` rejects.
pub(crate) fn world(backend: Backend) -> World {
    use RuleAction::{Allow, Deny, Log, Pass};
    let block_list = id(Kind::GlobalNetworkPolicy, "", "security.block-list");
    let web = id(Kind::NetworkPolicy, "shop", "web-ingress");
    let db = id(Kind::NetworkPolicy, "shop", "db-only-from-web");
    let ssh = id(Kind::GlobalNetworkPolicy, "", "host-ssh");
    let before_nat = id(Kind::GlobalNetworkPolicy, "", "host-prednat");
    let untracked = id(Kind::GlobalNetworkPolicy, "", "host-untracked");
    let from_set = |set: &str| RuleEnd { ip_set_ids: vec![set.into()], ..RuleEnd::default() };
    let to_ports = |list: &[(u16, u16)]| RuleEnd { ports: ports(list), ..RuleEnd::default() };
    let to_nets = |list: &[&str]| RuleEnd { nets: nets(list), ..RuleEnd::default() };

    let block_list_policy = Policy {
        tier: "security".into(),
        original_selector: "all()".to_owned(),
        inbound_rules: vec![Rule { source: from_set("s:PXyzBfQ3KPvs-S88FMY1DW-"), ..rule(Deny) }, rule(Pass)],
        outbound_rules: vec![
            Rule {
                protocol: Some(Protocol::Udp),
                destination: to_nets(&["203.0.113.0/24", "198.51.100.0/24"]),
                ..rule(Log)
            },
            Rule { destination: to_nets(&["203.0.113.0/24"]), ..rule(Deny) },
            rule(Pass),
        ],
        ..Policy::default()
    };
    let web_policy = Policy {
        namespace: "shop".to_owned(),
        tier: "default".into(),
        original_selector: "app == 'web'".to_owned(),
        inbound_rules: vec![
            Rule {
                protocol: Some(Protocol::Tcp),
                source: from_set("s:VU_cp95rDyNVyXI5hW7714L"),
                destination: RuleEnd {
                    named_port_ip_set_ids: vec!["n:cl9_Kgeu4H0OGLbhovVR3NB".into()],
                    ..to_ports(&[(8080, 8080), (9000, 9010)])
                },
                ..rule(Allow)
            },
            Rule {
                protocol: Some(Protocol::Icmp),
                ip_version: Some(IpVersion::V4),
                icmp: Some(IcmpMatch { icmp_type: 8, code: (backend == Backend::Iptables).then_some(0) }),
                ..rule(Allow)
            },
        ],
        ..Policy::default()
    };
    let db_policy = Policy {
        namespace: "shop".to_owned(),
        tier: "default".into(),
        original_selector: "app == 'db'".to_owned(),
        inbound_rules: vec![Rule {
            protocol: Some(Protocol::Tcp),
            source: RuleEnd { not_nets: nets(&["10.66.1.64/26"]), ..from_set("s:lJBhNRljR9R5cj5JnoqyWyA") },
            destination: to_ports(&[(5432, 5432)]),
            ..rule(Allow)
        }],
        outbound_rules: vec![
            Rule { protocol: Some(Protocol::Udp), destination: to_ports(&[(53, 53)]), ..rule(Allow) },
            Rule { not_protocol: Some(Protocol::Tcp), ..rule(Deny) },
            Rule {
                protocol: Some(Protocol::Tcp),
                destination: RuleEnd {
                    not_ports: ports(&[(22, 22)]),
                    ..from_set("s:5X2SPVSOxbc4v-E1NhPgRV6")
                },
                ..rule(Allow)
            },
        ],
        ..Policy::default()
    };
    let host_policy = |inbound_rules, outbound_rules| Policy {
        tier: "default".into(),
        original_selector: "role == 'node'".to_owned(),
        inbound_rules,
        outbound_rules,
        ..Policy::default()
    };
    let ssh_policy = host_policy(
        vec![Rule {
            protocol: Some(Protocol::Tcp),
            source: to_nets(&["10.65.0.0/24"]),
            destination: to_ports(&[(22, 22), (6443, 6443)]),
            ..rule(Allow)
        }],
        vec![rule(Allow)],
    );
    let before_nat_policy = Policy {
        pre_dnat: true,
        ..host_policy(
            vec![
                Rule {
                    protocol: Some(Protocol::Tcp),
                    source: RuleEnd { not_nets: nets(&["10.65.0.0/16"]), ..RuleEnd::default() },
                    destination: to_ports(&[(30000, 32767)]),
                    ..rule(Deny)
                },
                rule(Allow),
            ],
            Vec::new(),
        )
    };
    let port_4000 = || to_ports(&[(4000, 4000)]);
    let untracked_policy = Policy {
        untracked: true,
        ..host_policy(
            vec![Rule { protocol: Some(Protocol::Udp), destination: port_4000(), ..rule(Allow) }],
            vec![Rule { protocol: Some(Protocol::Udp), source: port_4000(), ..rule(Allow) }],
        )
    };

    let security = || tier("security", &[&block_list], &[&block_list]);
    let workload = |name: &str, tiers| WorkloadEndpoint {
        state: "active".to_owned(),
        name: name.into(),
        profile_ids: vec!["kns.shop".into(), "ksa.shop.default".into()],
        tiers,
        ..WorkloadEndpoint::default()
    };
    World {
        config: RulesConfig {
            backend,
            vxlan_enabled: true,
            vxlan_tunnel_address: Some([10, 66, 1, 0].into()),
            ..RulesConfig::default()
        },
        workloads: vec![
            workload("cali00000000001", vec![security(), tier("default", &[&web], &[])]),
            workload("cali00000000002", vec![security(), tier("default", &[&db], &[&db])]),
            workload("cali12345678903", vec![security()]),
        ],
        hosts: BTreeMap::from([(
            InterfaceName::from("eth0"),
            HostEndpoint {
                name: "eth0".to_owned(),
                tiers: vec![security(), tier("default", &[&ssh], &[&ssh])],
                untracked_tiers: vec![tier("default", &[&untracked], &[&untracked])],
                pre_dnat_tiers: vec![tier("default", &[&before_nat], &[])],
                ..HostEndpoint::default()
            },
        )]),
        policies: [
            (block_list, block_list_policy),
            (web, web_policy),
            (db, db_policy),
            (ssh, ssh_policy),
            (before_nat, before_nat_policy),
            (untracked, untracked_policy),
        ]
        .into_iter()
        .map(|(id, policy)| (id, Arc::new(policy)))
        .collect(),
        profiles: BTreeMap::from([
            (
                "kns.shop".into(),
                Profile { inbound_rules: vec![rule(Allow)], outbound_rules: vec![rule(Allow)] },
            ),
            ("ksa.shop.default".into(), Profile::default()),
        ]),
        nat_outgoing: true,
        ..World::default()
    }
}

/// A node of a Kubernetes cluster with one workload and one policy.
pub(crate) fn cluster_node() -> World {
    let policy = id(Kind::KubernetesNetworkPolicy, "shop", "web-from-client");
    let inbound_rules = vec![
        Rule {
            protocol: Some(Protocol::Tcp),
            source: RuleEnd { ip_set_ids: vec!["s:s5AS7YPbgJrZVj_0vqawL6X".into()], ..RuleEnd::default() },
            destination: RuleEnd {
                ports: ports(&[(8080, 8090)]),
                named_port_ip_set_ids: vec!["n:cl9_Kgeu4H0OGLbhovVR3NB".into()],
                ..RuleEnd::default()
            },
            ..rule(RuleAction::Allow)
        },
        Rule {
            source: RuleEnd {
                nets: nets(&["10.0.0.0/8"]),
                not_nets: nets(&["10.1.0.0/16"]),
                ..RuleEnd::default()
            },
            ..rule(RuleAction::Allow)
        },
    ];
    let shop = world(Backend::Nftables);
    World {
        config: RulesConfig { endpoint_to_host_action: EndpointToHost::Accept, ..shop.config },
        policies: BTreeMap::from([(
            policy.clone(),
            Arc::new(Policy { namespace: "shop".to_owned(), inbound_rules, ..Policy::default() }),
        )]),
        workloads: vec![WorkloadEndpoint {
            name: "cali751425ce827".into(),
            tiers: vec![tier("default", &[&policy], &[])],
            ..shop.workloads[0].clone()
        }],
        hosts: BTreeMap::new(),
        ..shop
    }
}
