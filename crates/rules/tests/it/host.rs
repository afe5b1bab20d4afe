//! Host endpoints and the host itself, table by table: failsafe ports, policy before connection tracking and before
//! destination NAT, the host's own packets, packets from workloads to the host, spoofed source addresses.

use crate::shop;
use messages::IpSetMember;
use rules::names::{self, sets};
use rules::simulate::{Packet, Simulation, Tracking, Verdict};
use rules::tree::{InterfaceName, IpVersion, Table};
use rules::{Backend, Marks};

fn simulation(backend: Backend, table: Table) -> Simulation {
    let rendered = shop::world(backend).render(table, IpVersion::V4).programmed();
    let mut simulation = Simulation::new(backend);
    let kernel: Vec<_> = rendered.kernel.iter().map(|chain| rendered.kernel_chain(chain.name)).collect();
    simulation.add_chains(kernel);
    simulation.add_chains(rendered.chains.into_values());
    simulation.add_maps(rendered.maps);
    let mut add = |id: &str, nets: &[&str]| {
        let member = |net: &&str| IpSetMember::Net(net.parse().expect("a network"));
        simulation.add_set(names::ip_set(IpVersion::V4, id), nets.iter().map(member).collect());
    };
    add(sets::ALL_VXLAN, &["10.65.0.2/32"]);
    add(sets::DSCP_SOURCES, &[]);
    add(sets::NETWORK_POOLS, &["10.66.0.0/16"]);
    add(sets::MASQUERADED_POOLS, &["10.66.0.0/16"]);
    add(sets::THIS_HOST, &["10.65.0.1/32"]);
    add("s:PXyzBfQ3KPvs-S88FMY1DW-", &["192.0.2.0/24", "198.51.100.7/32"]);
    add("s:VU_cp95rDyNVyXI5hW7714L", &["10.66.2.9/32"]);
    add("s:lJBhNRljR9R5cj5JnoqyWyA", &["10.66.1.1/32"]);
    add("s:5X2SPVSOxbc4v-E1NhPgRV6", &["10.66.0.0/16"]);
    simulation
}

#[derive(Clone, Copy)]
struct Case {
    what: &'static str,
    table: Table,
    hook: &'static str,
    from: (&'static str, &'static str),
    to: (&'static str, &'static str),
    protocol: u8,
    ports: (u16, u16),
    expected: Verdict,
}

const HOST: &str = "10.65.0.1";
const NEIGHBOUR: &str = "10.65.0.77";
const STRANGER: &str = "203.0.114.9";
const BLOCKED: &str = "192.0.2.9";

/// From an outside address through `eth0` to the host.
fn incoming(
    what: &'static str,
    table: Table,
    source: &'static str,
    protocol: u8,
    port: u16,
    expected: Verdict,
) -> Case {
    let hook = if table == Table::Filter { "INPUT" } else { "PREROUTING" };
    Case {
        what,
        table,
        hook,
        from: (source, "eth0"),
        to: (HOST, ""),
        protocol,
        ports: (33333, port),
        expected,
    }
}

fn outgoing(
    what: &'static str,
    destination: &'static str,
    protocol: u8,
    port: u16,
    expected: Verdict,
) -> Case {
    Case {
        what,
        table: Table::Filter,
        hook: "OUTPUT",
        from: (HOST, ""),
        to: (destination, "eth0"),
        protocol,
        ports: (33333, port),
        expected,
    }
}

fn run(
    simulation: &mut Simulation,
    case: &Case,
) -> (Result<Verdict, rules::simulate::SimulateError>, Packet) {
    let parse = |text: &str| text.parse().expect("an address");
    let mut packet = Packet {
        ports: case.ports,
        in_interface: InterfaceName::from(case.from.1),
        out_interface: InterfaceName::from(case.to.1),
        local: (case.from.0 == HOST, case.to.0 == HOST),
        ..Packet::new(parse(case.from.0), parse(case.to.0), case.protocol)
    };
    let verdict = simulation.run(case.hook, &mut packet);
    (verdict, packet)
}

#[test]
fn every_table_does_its_part() {
    use Verdict::{Accept, Continue, Drop};
    let cases = [
        incoming("a failsafe port", Table::Filter, STRANGER, 6, 22, Accept),
        incoming("a failsafe port of DHCP", Table::Filter, STRANGER, 17, 68, Accept),
        incoming("nothing allows it", Table::Filter, STRANGER, 6, 80, Drop),
        incoming("policy refuses it, but it is failsafe", Table::Filter, BLOCKED, 6, 22, Accept),
        incoming("policy refuses it", Table::Filter, BLOCKED, 6, 80, Drop),
        incoming("VXLAN of a node", Table::Filter, "10.65.0.2", 17, 4789, Accept),
        incoming("VXLAN of a stranger", Table::Filter, STRANGER, 17, 4789, Drop),
        outgoing("policy allows it", STRANGER, 6, 80, Accept),
        outgoing("policy refuses it", "203.0.113.5", 6, 80, Drop),
        outgoing("policy refuses it, but it is failsafe", "203.0.113.5", 17, 53, Accept),
        incoming("before NAT: a node port for a stranger", Table::Mangle, STRANGER, 6, 30001, Drop),
        incoming("before NAT: a node port for a neighbour", Table::Mangle, NEIGHBOUR, 6, 30001, Accept),
        incoming("before NAT: anything else", Table::Mangle, STRANGER, 17, 30001, Accept),
        incoming("untracked policy allows it", Table::Raw, STRANGER, 17, 4000, Accept),
        incoming("untracked policy says nothing", Table::Raw, STRANGER, 17, 4001, Continue),
        Case {
            what: "a workload's packet to the host",
            table: Table::Filter,
            hook: "INPUT",
            from: ("10.66.1.3", "cali12345678903"),
            to: (HOST, ""),
            protocol: 6,
            ports: (33333, 80),
            expected: Drop,
        },
        Case {
            what: "the host's packet to a workload",
            table: Table::Filter,
            hook: "OUTPUT",
            from: (HOST, ""),
            to: ("10.66.1.1", "cali00000000001"),
            protocol: 6,
            ports: (33333, 80),
            expected: Continue,
        },
        Case {
            what: "a workload's packet to the outside gets the host's address",
            table: Table::Nat,
            hook: "POSTROUTING",
            from: ("10.66.1.1", "cali00000000001"),
            to: (STRANGER, "eth0"),
            protocol: 6,
            ports: (33333, 80),
            expected: Accept,
        },
        Case {
            what: "a workload's packet to a workload keeps its address",
            table: Table::Nat,
            hook: "POSTROUTING",
            from: ("10.66.1.1", "cali00000000001"),
            to: ("10.66.2.9", "eth0"),
            protocol: 6,
            ports: (33333, 80),
            expected: Continue,
        },
    ];
    for backend in [Backend::Iptables, Backend::Nftables] {
        for case in cases {
            let (verdict, packet) = run(&mut simulation(backend, case.table), &case);
            assert_eq!(verdict, Ok(case.expected), "{backend:?}: {}", case.what);
            let untracked = case.table == Table::Raw && case.expected == Accept;
            assert_eq!(packet.tracking == Tracking::Untracked, untracked, "{backend:?}: {}", case.what);
        }
    }
}

/// A packet that policy before NAT accepted is not evaluated again.
#[test]
fn an_accepted_packet_stays_accepted() {
    let before_nat = incoming("accepted before NAT", Table::Mangle, NEIGHBOUR, 6, 80, Verdict::Accept);
    for backend in [Backend::Iptables, Backend::Nftables] {
        let (_, mut packet) = run(&mut simulation(backend, Table::Mangle), &before_nat);
        assert_eq!(packet.mark & Marks::default().accept, Marks::default().accept);
        let verdict = simulation(backend, Table::Filter).run("INPUT", &mut packet);
        assert_eq!(verdict, Ok(Verdict::Accept), "{backend:?}");
    }
}

/// A workload cannot use addresses whose route back leads elsewhere; others can.
#[test]
fn stolen_source_addresses() {
    for backend in [Backend::Iptables, Backend::Nftables] {
        for (interface, expected) in [("cali00000000001", Verdict::Drop), ("eth1", Verdict::Continue)] {
            let mut packet = Packet {
                in_interface: interface.into(),
                reverse_path_failed: true,
                ..Packet::new([10, 66, 1, 99].into(), [10, 66, 1, 2].into(), 6)
            };
            let verdict = simulation(backend, Table::Raw).run("PREROUTING", &mut packet);
            assert_eq!(verdict, Ok(expected), "{backend:?} {interface}");
        }
    }
}
