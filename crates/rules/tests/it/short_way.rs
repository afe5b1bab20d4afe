//! The short way decides like the long one: for packets from and to workloads and the host, with spoofed source
//! addresses, and with marks that other rules left behind.

use crate::kernel::{self, Program, Sets};
use crate::world::World;
use messages::{IpSetMember, Profile, Rule, WorkloadEndpoint};
use model::feed::RuleAction;
use rules::names::{self, sets};
use rules::simulate::{Packet, Simulation, Tracking, Verdict};
use rules::tree::{IpVersion, Table};
use rules::{Backend, DscpRule, RulesConfig};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

const ALLOWED_SOURCE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);
const DENIED_PORT: u16 = 81;

/// Two workloads that may do anything except reach one port; the first also has another source address.
fn world(is_short: bool) -> World {
    let deny = Rule {
        action: RuleAction::Deny,
        protocol: Some(api::scalars::Protocol::Tcp),
        destination: messages::RuleEnd {
            ports: vec![messages::PortRange { first: DENIED_PORT, last: DENIED_PORT }],
            ..Default::default()
        },
        ..Rule::default()
    };
    let rules = vec![deny, Rule { action: RuleAction::Allow, ..Rule::default() }];
    let workload = |name: &str| WorkloadEndpoint {
        state: "active".to_owned(),
        name: name.into(),
        profile_ids: vec!["all".into()],
        ..WorkloadEndpoint::default()
    };
    // A foreign mark is enough for the long way.
    let dscp = (!is_short).then(|| DscpRule { source: [10, 9, 9, 9].into(), value: 8 });
    World {
        config: RulesConfig { backend: Backend::Nftables, compile_policies: true, ..RulesConfig::default() },
        profiles: BTreeMap::from([(
            "all".into(),
            Profile { inbound_rules: rules.clone(), outbound_rules: rules },
        )]),
        workloads: vec![workload("cali1"), workload("cali2")],
        allowed_sources: BTreeMap::from([(
            "cali1".into(),
            vec![ipnet::IpNet::from(IpAddr::V4(ALLOWED_SOURCE))],
        )]),
        dscp: dscp.into_iter().collect(),
        ..World::default()
    }
}

fn all_sets() -> Sets {
    let set = |(id, net): (&str, &str)| {
        let member = IpSetMember::Net(net.parse().expect("a network"));
        (names::ip_set(IpVersion::V4, id), vec![member])
    };
    let nets = [
        (sets::DSCP_SOURCES, "10.9.9.9/32"),
        (sets::NETWORK_POOLS, "10.66.0.0/16"),
        (sets::THIS_HOST, "10.65.0.1/32"),
    ];
    nets.into_iter().map(set).collect()
}

fn simulations(is_short: bool) -> BTreeMap<Table, Simulation> {
    let world = world(is_short);
    let one = |table: Table| {
        let rendered = world.render(table, IpVersion::V4).programmed();
        assert_eq!(
            rendered.kernel.iter().any(|hook| hook.inserted.is_empty() && hook.appended.is_empty()),
            is_short && table == Table::Mangle,
            "{table}"
        );
        let mut simulation = Simulation::new(Backend::Nftables);
        simulation.add_chains(rendered.kernel.iter().map(|hook| rendered.kernel_chain(hook.name)));
        simulation.add_chains(rendered.chains.into_values());
        simulation.add_maps(rendered.maps);
        for (name, members) in all_sets() {
            simulation.add_set(name, members);
        }
        (table, simulation)
    };
    Table::ALL.into_iter().filter(|table| *table != Table::Nat).map(one).collect()
}

/// Whether a packet gets through all chains on its way.
fn passes(simulations: &mut BTreeMap<Table, Simulation>, packet: &Packet) -> bool {
    let mut packet = packet.clone();
    let way: &[(Table, &str)] = match packet.local.1 {
        true => &[(Table::Raw, "PREROUTING"), (Table::Mangle, "PREROUTING"), (Table::Filter, "INPUT")],
        false => &[
            (Table::Raw, "PREROUTING"),
            (Table::Mangle, "PREROUTING"),
            (Table::Filter, "FORWARD"),
            (Table::Mangle, "POSTROUTING"),
        ],
    };
    way.iter().all(|(table, chain)| {
        let verdict = simulations.get_mut(table).expect("a table").run(chain, &mut packet);
        matches!(verdict.expect("a verdict"), Verdict::Accept | Verdict::Continue)
    })
}

#[test]
fn the_short_way_decides_like_the_long_one() {
    let (mut long, mut short) = (simulations(false), simulations(true));
    let (mut passed, mut refused) = (0, 0);
    for source in [Ipv4Addr::new(10, 66, 0, 1), ALLOWED_SOURCE] {
        for (from, to) in [
            ("cali1", "cali2"),
            ("cali1", "eth0"),
            ("cali2", "cali1"),
            ("eth0", "cali2"),
            ("cali9", "cali1"),
            ("eth0", "cali9"),
            ("eth0", "eth1"),
            ("cali1", ""),
            ("eth0", ""),
        ] {
            for tracking in [Tracking::New, Tracking::Established, Tracking::Invalid] {
                for (reverse_path_failed, mark) in
                    [(false, 0), (true, 0), (false, u32::MAX), (true, u32::MAX)]
                {
                    for port in [80, DENIED_PORT] {
                        let packet = Packet {
                            ports: (40_000, port),
                            in_interface: from.into(),
                            out_interface: to.into(),
                            local: (false, to.is_empty()),
                            mark,
                            tracking,
                            reverse_path_failed,
                            ..Packet::new(source.into(), [10, 66, 0, 2].into(), 6)
                        };
                        let wanted = passes(&mut long, &packet);
                        assert_eq!(passes(&mut short, &packet), wanted, "{packet:?}");
                        *if wanted { &mut passed } else { &mut refused } += 1;
                    }
                }
            }
        }
    }
    assert!(passed > 100 && refused > 100, "{passed} passed, {refused} refused");
}

#[test]
fn the_kernel_takes_the_short_way() {
    let tables = [Table::Raw, Table::Mangle, Table::Filter];
    kernel::program(&world(true), &tables, IpVersion::V4, &all_sets(), Program::Nft);
}

#[test]
fn settings_that_need_more_prevent_the_short_way() {
    let has = |change: fn(&mut RulesConfig)| {
        let mut config = world(true).config;
        change(&mut config);
        rules::Renderer::new(config).has_short_way()
    };
    assert!(has(|_| {}));
    assert!(!has(|config| config.backend = Backend::Iptables));
    assert!(!has(|config| config.compile_policies = false));
    assert!(!has(|config| config.flow_logs = true));
    assert!(!has(|config| config.ipvs_support = true));
    assert!(!has(|config| config.istio_ambient_dscp = Some(23)));
}
