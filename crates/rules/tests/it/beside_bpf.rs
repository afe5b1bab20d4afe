//! What netfilter does where eBPF programs enforce policy, by mark, interface and what Linux knows of the connection.

use rules::names;
use rules::simulate::{Packet, Simulation, Tracking, Verdict};
use rules::tree::{Action, Chain, InterfacePattern, IpVersion, Rule, Table};
use rules::{Backend, EndpointToHost, Marks, Renderer, RulesConfig};

const SEEN: u32 = 0x0100_0000;
const BYPASS: u32 = 0x0300_0000;
const FALL_THROUGH: u32 = 0x0500_0000;
const ESTABLISHED: u32 = 0x0800_0000;

fn simulation(backend: Backend, version: IpVersion, bpf_serves: bool) -> Simulation {
    let renderer = Renderer::new(RulesConfig {
        backend,
        marks: Marks::beside_bpf(0xffff_0000, false).expect("bits"),
        endpoint_to_host_action: EndpointToHost::Return,
        bpf_serves,
        ..RulesConfig::default()
    });
    let mut simulation = Simulation::new(backend);
    simulation.add_chains(renderer.fixed_chains_beside_bpf(Table::Filter, version));
    let dispatch = renderer.attached_dispatch(&["cali1".into()].into());
    simulation.add_chains(dispatch.chains);
    simulation.add_maps(dispatch.maps);
    // The chains of policy deny everything, so a packet that passes did not go through them.
    let deny = |name| Chain::new(name, vec![Rule::always(Action::Drop)]);
    simulation.add_chains([
        deny(names::FROM_WORKLOAD_DISPATCH),
        deny(names::TO_WORKLOAD_DISPATCH),
        Chain::new(names::FROM_HOST_ENDPOINT_FORWARD, Vec::new()),
        Chain::new(names::TO_HOST_ENDPOINT_FORWARD, Vec::new()),
        Chain::new(names::CIDR_BLOCK, Vec::new()),
    ]);
    simulation
}

/// Chain, interfaces, mark, what Linux knows, whether the destination was translated; verdict, and mark afterwards.
type Case = (&'static str, (&'static str, &'static str), u32, Tracking, bool, Verdict, u32);

#[test]
fn marks_decide() {
    use Tracking::{Established, New};
    use Verdict::{Accept, Continue, Drop, Reject};
    let (forward, input, output) = (names::FORWARD, names::INPUT, names::OUTPUT);
    let cases: &[Case] = &[
        (forward, ("cali1", "eth0"), BYPASS, New, false, Accept, BYPASS),
        (forward, ("cali1", "eth0"), SEEN, New, false, Accept, SEEN),
        (forward, ("cali1", "eth0"), 0, New, false, Drop, 0),
        (forward, ("eth0", "cali1"), SEEN, New, false, Accept, SEEN),
        (forward, ("eth0", "cali1"), 0, New, false, Accept, 0),
        (forward, ("eth0", "cali2"), SEEN, New, false, Drop, SEEN),
        (forward, ("cali1", "cali2"), SEEN, New, false, Drop, SEEN),
        (forward, ("cali1", "eth0"), FALL_THROUGH, New, false, Drop, FALL_THROUGH),
        (forward, ("cali1", "eth0"), FALL_THROUGH, Established, false, Accept, FALL_THROUGH | ESTABLISHED),
        (forward, ("eth0", "cali1"), SEEN, Established, false, Accept, SEEN | ESTABLISHED),
        // The destination was translated after programs saw the packet: policy applies again.
        (forward, ("cali1", "eth0"), SEEN, New, true, Drop, SEEN),
        (forward, ("eth0", "cali1"), SEEN, New, true, Drop, SEEN),
        (forward, ("eth0", "eth1"), SEEN, New, true, Continue, SEEN),
        (forward, ("eth0", "eth1"), 0, New, false, Continue, 0),
        (input, ("eth0", ""), FALL_THROUGH, Established, false, Accept, FALL_THROUGH),
        (input, ("eth0", ""), FALL_THROUGH, New, false, Accept, FALL_THROUGH),
        (input, ("cali1", ""), FALL_THROUGH, New, false, Reject, FALL_THROUGH),
        (input, ("eth0", ""), SEEN, New, false, Continue, SEEN),
        (input, ("cali1", ""), 0, New, false, Drop, 0),
        (input, ("cali1", ""), SEEN, New, false, Continue, SEEN),
        (input, ("cali1", ""), SEEN, Established, false, Accept, SEEN),
        (input, ("cali1", ""), SEEN, New, true, Drop, SEEN),
        (output, ("", "cali1"), 0, New, false, Continue, 0),
        (output, ("", "eth0"), 0, Established, false, Continue, ESTABLISHED),
        (output, ("", "eth0"), 0, New, false, Continue, 0),
    ];
    for backend in [Backend::Nftables, Backend::Iptables] {
        let mut simulation = simulation(backend, IpVersion::V4, false);
        for (number, (chain, (from, to), mark, tracking, is_translated, expected, left)) in
            cases.iter().enumerate()
        {
            let mut packet = Packet {
                in_interface: (*from).into(),
                out_interface: (*to).into(),
                mark: *mark,
                tracking: *tracking,
                is_translated: *is_translated,
                ports: (40000, 80),
                ..Packet::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 6)
            };
            let verdict = simulation.run(chain, &mut packet);
            assert_eq!(verdict, Ok(*expected), "{backend:?}, case {number}: {chain} {from} {to} {mark:#x}");
            assert_eq!(packet.mark, *left, "{backend:?}, case {number}: {chain} {from} {to} {mark:#x}");
        }
    }
}

/// Where programs serve services, packets meet no chain of policy, and the host's own packets to backends pass.
#[test]
fn no_policy_is_left_where_programs_serve_services() {
    use Verdict::{Accept, Continue, Drop};
    for backend in [Backend::Nftables, Backend::Iptables] {
        for (serves, chain, from, to, is_translated, expected) in [
            (false, names::FORWARD, "cali1", "eth0", true, Drop),
            (true, names::FORWARD, "cali1", "eth0", true, Accept),
            (true, names::FORWARD, "eth0", "cali1", true, Accept),
            (true, names::FORWARD, "eth0", "cali2", true, Drop),
            (false, names::FORWARD, "bpfout.cali", "eth0", false, Continue),
            (true, names::FORWARD, "bpfout.cali", "eth0", false, Accept),
            (true, names::FORWARD, "bpfout.cali", "cali2", false, Drop),
            (true, names::INPUT, "bpfout.cali", "", false, Accept),
            (true, names::INPUT, "cali1", "", true, Continue),
        ] {
            let mut packet = Packet {
                in_interface: from.into(),
                out_interface: to.into(),
                mark: SEEN,
                is_translated,
                ports: (40000, 80),
                ..Packet::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 6)
            };
            let verdict = simulation(backend, IpVersion::V4, serves).run(chain, &mut packet);
            assert_eq!(verdict, Ok(expected), "{backend:?} {serves} {chain} {from} {to}");
        }
    }
}

/// Neighbour discovery is for the host and must not be forwarded.
#[test]
fn neighbour_discovery_is_not_forwarded() {
    for backend in [Backend::Nftables, Backend::Iptables] {
        let mut simulation = simulation(backend, IpVersion::V6, false);
        let address = |text: &str| text.parse().expect("an address");
        for (icmp, expected) in [((135, 0), Verdict::Drop), ((128, 0), Verdict::Accept)] {
            let mut packet = Packet {
                in_interface: "cali1".into(),
                out_interface: "eth0".into(),
                mark: SEEN,
                icmp,
                ..Packet::new(address("fd00::1"), address("fd00::2"), 58)
            };
            assert_eq!(simulation.run(names::FORWARD, &mut packet), Ok(expected), "{backend:?} {icmp:?}");
        }
    }
}

#[test]
fn connections_to_services_are_marked_if_configured() {
    for (mark, expected) in [(0, None), (0x4, Some(Action::SetConnectionMark { value: 0x4, mask: 0x4 }))] {
        let renderer = Renderer::new(RulesConfig {
            marks: Marks::beside_bpf(0xffff_0000, false).expect("bits"),
            bpf_serves: true,
            bpf_service_mark: mark,
            ..RulesConfig::default()
        });
        let chains = renderer.fixed_chains_beside_bpf(Table::Mangle, IpVersion::V4);
        let chain = chains.iter().find(|chain| &*chain.name == names::PREROUTING).expect("the chain");
        let found: Vec<_> = chain.rules.iter().filter_map(|rule| rule.action.clone()).collect();
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
    }
}

/// Interface, destination and whether it is this host's, mark; what Linux does with the connection, and the mark
/// afterwards.
type Passing = (&'static str, [u8; 4], bool, u32, Tracking, u32);

/// `BPFHostConntrackBypass`: packets that pass through this host are not tracked, unless Linux has to translate them or
/// is alone in knowing them.
#[test]
fn forwarded_packets_are_not_tracked_if_configured() {
    use Tracking::{New, Untracked};
    const SKIP_FIB: u32 = 0x0110_0000;
    const NAT_OUTGOING: u32 = 0x0180_0000;
    const MASQUERADE: u32 = 0x0360_0000;
    const NO_TRACKING: u32 = 0x0140_0000;
    let cases: &[Passing] = &[
        ("eth0", [10, 0, 0, 2], false, SEEN, Untracked, SEEN),
        ("cali1", [10, 0, 0, 2], false, BYPASS, Untracked, BYPASS),
        ("cali1", [10, 0, 0, 2], false, NO_TRACKING, Untracked, NO_TRACKING),
        // No program has seen the packet, so it is tracked as usual.
        ("virbr0", [10, 0, 0, 2], false, 0, New, 0),
        ("docker0", [10, 0, 0, 2], false, SEEN, New, SEEN),
        ("eth0", [169, 254, 1, 1], false, SEEN, New, SEEN),
        ("eth0", [10, 0, 0, 2], false, SKIP_FIB, New, SKIP_FIB),
        ("eth0", [10, 0, 0, 2], false, FALL_THROUGH, New, FALL_THROUGH),
        ("cali1", [10, 0, 0, 2], false, NAT_OUTGOING, New, NAT_OUTGOING),
        ("eth0", [10, 0, 0, 2], false, MASQUERADE, New, MASQUERADE),
        // Programs are informed that it was for the host, in case it is not after all.
        ("eth0", [192, 0, 2, 1], true, SEEN, New, SKIP_FIB),
        ("cali1", [192, 0, 2, 1], true, 0, New, 0),
    ];
    for (backend, is_wanted, serves) in [
        (Backend::Nftables, true, true),
        (Backend::Iptables, true, true),
        (Backend::Nftables, false, true),
        // Something else translates destinations, and must see every packet.
        (Backend::Nftables, true, false),
    ] {
        let renderer = Renderer::new(RulesConfig {
            backend,
            marks: Marks::beside_bpf(0xffff_0000, false).expect("bits"),
            bpf_serves: serves,
            bpf_bypasses_tracking: is_wanted,
            bpf_tracked_interfaces: vec![InterfacePattern::from_setting("docker+")],
            ..RulesConfig::default()
        });
        let mut simulation = Simulation::new(backend);
        simulation.add_chains(renderer.fixed_chains_beside_bpf(Table::Raw, IpVersion::V4));
        simulation.add_chains(
            [names::RPF_SKIP, names::FROM_HOST_ENDPOINT].map(|name| Chain::new(name, Vec::new())),
        );
        for (number, (from, to, is_local, mark, tracking, left)) in cases.iter().enumerate() {
            let mut packet = Packet {
                in_interface: (*from).into(),
                mark: *mark,
                local: (false, *is_local),
                ports: (40000, 80),
                ..Packet::new([10, 0, 0, 1].into(), (*to).into(), 6)
            };
            simulation.run(names::PREROUTING, &mut packet).expect("a verdict");
            let bypasses = is_wanted && serves;
            let expected = match bypasses || *mark == NO_TRACKING {
                true => (*tracking, *left),
                false => (New, *mark),
            };
            let mask = 0x1ff0_0000;
            let found = (packet.tracking, packet.mark & mask);
            assert_eq!(found, expected, "{backend:?} {is_wanted} {serves}, case {number}");
        }
    }
}
