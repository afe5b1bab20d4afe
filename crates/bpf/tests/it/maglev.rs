//! Walks to services with Maglev: the backend is derived from the packet, as by Calico's programs, even in the middle
//! of a connection that another node has begun.

use crate::bench::{DENIES, DROP, Direction, FALL_THROUGH, NEXT, SEEN};
use crate::packets::{ACK, SYN, tcp, udp};
use crate::world::{BACKEND, CLIENT, POD, SERVICE, World};
use Direction::{In, Out};
use anyhow::Result;
use bpf::Table;
use bpf::interface::{Kind, Options};
use bpf::layout::conntrack::flags;
use bpf::layout::nat::{Backend, BackendKey, Frontend};
use bpf::layout::{V4, V6};

const TCP: u8 = 6;
const UDP: u8 = 17;
const PLACES: u16 = 503;
/// The port of the backend at the first position of the table.
const FIRST: u16 = 10_000;

/// Ports and protocol of a packet from the client to the service, and its position among 503 according to Calico's own
/// code (felix/bpf-gpl/jenkins_hash.h at 87c15906f, compiled for this machine), for IPv4 and IPv6.
const PLACES_OF: [(u16, u16, u8, [u16; 2]); 7] = [
    (4000, 80, TCP, [83, 393]),
    (4001, 80, TCP, [466, 404]),
    (4002, 80, TCP, [378, 102]),
    (65535, 80, TCP, [60, 447]),
    (4000, 80, UDP, [349, 87]),
    (1, 80, UDP, [217, 248]),
    (80, 4000, TCP, [197, 107]),
];

fn options() -> Options {
    Options { maglev_places: PLACES.into(), ..Options::default() }
}

/// A service with a table in which every position is another port of one backend, and no ordinary backends.
fn with_table<F: World>() -> Result<crate::bench::Bench> {
    let bench = F::bench()?;
    let value = Frontend { id: 7, count: 1, flags: Frontend::MAGLEV, ..Frontend::default() };
    for (port, protocol) in [(80, TCP), (80, UDP), (4000, TCP)] {
        F::frontend(&bench, (SERVICE, port, protocol), None, value)?;
    }
    let table = Table::<BackendKey, Backend<F>>::new(bench.map(&F::map("mglv2"))?)?;
    for place in 0..PLACES {
        let backend = Backend { address: F::address(BACKEND), port: FIRST + place };
        table.set(&BackendKey { id: 7, ordinal: place.into() }, &backend)?;
    }
    Ok(bench)
}

fn says(protocol: u8, ports: (u16, u16), flags: u8) -> Vec<u8> {
    if protocol == TCP { tcp(ports.0, ports.1, flags, 100, 0) } else { udp(ports.0, ports.1) }
}

fn place_of<F: World>(places: [u16; 2]) -> u16 {
    FIRST + places[usize::from(F::NUMBER == 6)]
}

#[test]
fn packets_go_to_the_backends_that_calico_chooses() -> Result<()> {
    same::<V4>()?;
    same::<V6>()
}

fn same<F: World>() -> Result<()> {
    let bench = with_table::<F>()?;
    let host = F::host(&bench, &options())?;
    for (from, to, protocol, places) in PLACES_OF {
        let request = F::frame(CLIENT, SERVICE, protocol, &says(protocol, (from, to), SYN));
        let port = place_of::<F>(places);
        let behind = F::frame(CLIENT, BACKEND, protocol, &says(protocol, (from, port), SYN));
        assert_eq!(host.send(In, &request, 0)?, ((NEXT, SEEN), behind), "{from} {to} {protocol}");
        let entry = F::entry(&bench, protocol, (CLIENT, from), (BACKEND, port))?;
        assert_eq!(entry.flags & flags::MAGLEV, flags::MAGLEV);
    }
    // A tunnel's device also belongs to the host.
    let tunnel = F::host(&bench, &Options { kind: Kind::Tunnel, ..options() })?;
    let request = F::frame(CLIENT, SERVICE, UDP, &udp(1, 80));
    let behind = F::frame(CLIENT, BACKEND, UDP, &udp(1, place_of::<F>([217, 248])));
    assert_eq!(tunnel.send(In, &request, 0)?.1, behind);
    Ok(())
}

#[test]
fn workloads_get_any_backend() -> Result<()> {
    let bench = with_table::<V4>()?;
    V4::backend(&bench, 7, 0, BACKEND, 8080)?;
    let workload = V4::workload(&bench, &options())?;
    let request = V4::frame(POD, SERVICE, TCP, &tcp(4000, 80, SYN, 100, 0));
    let behind = V4::frame(POD, BACKEND, TCP, &tcp(4000, 8080, SYN, 100, 0));
    assert_eq!(workload.send(In, &request, 0)?, ((NEXT, SEEN), behind));
    let middle = V4::frame(POD, SERVICE, TCP, &tcp(4001, 80, ACK, 100, 1));
    assert_eq!(workload.send(In, &middle, 0)?, ((NEXT, FALL_THROUGH), middle));
    Ok(())
}

#[test]
fn a_connection_of_another_node_continues_here() -> Result<()> {
    taken_over::<V4>()?;
    taken_over::<V6>()
}

fn taken_over<F: World>() -> Result<()> {
    let bench = with_table::<F>()?;
    let (workload, host) = (F::workload(&bench, &options())?, F::host(&bench, &options())?);
    let port = place_of::<F>([83, 393]);
    let middle = F::frame(CLIENT, SERVICE, TCP, &tcp(4000, 80, ACK, 101, 501));
    let behind = F::frame(CLIENT, BACKEND, TCP, &tcp(4000, port, ACK, 101, 501));
    // It is new to this node: its policy is evaluated, on either side.
    bench.lists(&[(2, DENIES)])?;
    assert_eq!(host.send(In, &middle, 0)?.0.0, DROP);
    bench.lists(&[(0, DENIES)])?;
    assert_eq!(host.send(In, &middle, 0)?, ((NEXT, SEEN), behind.clone()));
    assert_eq!(workload.send(Out, &behind, SEEN)?.0.0, DROP);
    bench.lists(&[(0, crate::bench::ALLOWS)])?;
    assert_eq!(workload.send(Out, &behind, SEEN)?.0.0, NEXT);
    let tracking = F::tracking(&bench, TCP, (CLIENT, 4000), (BACKEND, port))?;
    for leg in [&tracking.a_to_b, &tracking.b_to_a] {
        assert!(leg.approved && leg.syn && leg.ack, "{leg:?}");
    }
    let answer = F::frame(BACKEND, CLIENT, TCP, &tcp(port, 4000, ACK, 501, 102));
    let shown = F::frame(SERVICE, CLIENT, TCP, &tcp(80, 4000, ACK, 501, 102));
    assert_eq!(workload.send(In, &answer, 0)?.0, (NEXT, SEEN));
    assert_eq!(host.send(Out, &answer, SEEN)?.1, shown);

    // Without a Maglev table it is too late to choose a backend, whether for this service or all services.
    F::frontend(&bench, (SERVICE, 81, TCP), None, Frontend { id: 7, count: 1, ..Frontend::default() })?;
    F::backend(&bench, 7, 0, BACKEND, 8080)?;
    let plain = F::frame(CLIENT, SERVICE, TCP, &tcp(4000, 81, ACK, 101, 501));
    assert_eq!(host.send(In, &plain, 0)?, ((NEXT, FALL_THROUGH), plain));
    let other = F::frame(CLIENT, SERVICE, TCP, &tcp(4009, 80, ACK, 101, 501));
    let without = F::host(&bench, &Options::default())?;
    assert_eq!(without.send(In, &other, 0)?, ((NEXT, FALL_THROUGH), other.clone()));
    // Untracked policy has no opinion about it; then the rest applies as above.
    let asked = F::host(&bench, &Options { asks_untracked: true, ..options() })?;
    assert_eq!(asked.send(In, &other, 0)?.0, (NEXT, SEEN));
    let unknown = F::frame(CLIENT, POD, TCP, &tcp(4010, 80, ACK, 101, 501));
    assert_eq!(asked.send(In, &unknown, 0)?, ((NEXT, FALL_THROUGH), unknown));
    Ok(())
}
