//! Full meshes and a reflector's clients in one process over a simulated network, with real messages; a large table
//! compared with BIRD 2 and GoBGP, each as a process that receives it from one peer and passes it on to another.
//!
//! The lower bound for a table is parsing its messages, which any speaker has to do.

#![expect(clippy::print_stdout, reason = "the table is this program's output")]

mod daemons;
mod tester;

use anyhow::Result;
use bgp_wire::{Attributes, Family, NextHop, Nlri, SessionOptions, UpdateWriter, decode, frame};
use daemons::Daemon;
use ipnet::{IpNet, Ipv4Net};
use speaker::for_tests::{Direction, Node, Simulation, StateName, address, block, intent, mesh, session};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use testkit::Report;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().collect();
    if let Some(place) = words.iter().position(|word| word == "--speaker") {
        return daemons::run_speaker(words.get(place + 1).map_or("", String::as_str));
    }
    let mut report = Report::new("speaker");
    for count in [50, 200] {
        converge(&mut mesh(count), &format!("mesh of {count}"), &mut report);
    }
    converge(&mut reflector(500), "one reflector with 500 clients", &mut report);
    for count in [100_000, 800_000] {
        import(count, &mut report);
    }
    mesh_node(&mut report)?;
    pass_on(&mut report)?;
    print!("{}", report.markdown());
    report.record()
}

/// A node that reflects, and its clients, each with a block.
fn reflector(clients: usize) -> Simulation {
    let mut simulation = Simulation::default();
    let cluster = Some(bgp::ClusterId(Ipv4Addr::new(224, 0, 0, 1)));
    for node in 0..=clients {
        simulation.add(address(node), false);
    }
    for node in 0..=clients {
        let own = address(node);
        let others = if node == 0 { 1..clients + 1 } else { 0..1 };
        let sessions = others.map(|other| {
            let mut session = session(own, address(other));
            session.reflector_client = cluster.filter(|_| node == 0);
            session
        });
        let mut wanted = intent(own, sessions, &[block(node)]);
        wanted.cluster_id = cluster.filter(|_| node == 0);
        simulation.nodes[node].engine.apply(wanted, simulation.now);
    }
    simulation
}

/// A table received from one peer and passed on to another, by three speakers in turn.
fn pass_on(report: &mut Report) -> Result<()> {
    for (count, shared, what) in [
        (100_000, 1_000_000, "100,000 routes with equal attributes"),
        (800_000, 1_000_000, "800,000 routes with equal attributes"),
        (800_000, 10, "800,000 routes, ten with equal attributes each"),
    ] {
        eprintln!("{what}: the native speaker");
        let ours = daemons::pass_on(Daemon::Native, count, shared)?;
        for (daemon, name, goal) in [(Daemon::Bird, "BIRD 2", 1.0), (Daemon::GoBgp, "GoBGP", 0.5)] {
            eprintln!("{what}: {name}");
            let theirs = match daemons::pass_on(daemon, count, shared) {
                Ok(theirs) => theirs,
                Err(error) => {
                    report.note(format!("{what}: {name} was not done in time ({error:#})."));
                    continue;
                }
            };
            let mut row = |figure: &str, unit: &str, digits: usize, one: f64, other: f64| {
                report.row(
                    &format!("{what}, from one peer to another: {figure}"),
                    &format!("{one:.digits$} {unit}"),
                    &format!("{name}: {other:.digits$} {unit}"),
                    &if other > 0.0 { format!("{:.2}", one / other) } else { String::new() },
                    &format!("{goal}"),
                );
            };
            row("time", "s", 2, ours.time, theirs.time);
            row("CPU", "s", 2, ours.cpu, theirs.cpu);
            row("memory", "MiB", 1, ours.memory, theirs.memory);
            row("one of them changes, until the other peer knows", "µs", 0, ours.flap, theirs.flap);
            let together = "the same, all processes on one processor";
            row(together, "µs", 0, ours.flap_together, theirs.flap_together);
            row("CPU in three idle seconds", "s", 2, ours.idle, theirs.idle);
        }
        // Printed now, in case a later part takes too long.
        print!("{}", report.markdown());
        report.record()?;
    }
    Ok(())
}

/// A node of a mesh of 200, as its own process.
fn mesh_node(report: &mut Report) -> Result<()> {
    let (ours, theirs) =
        (daemons::node_of_mesh(Daemon::Native, 200)?, daemons::node_of_mesh(Daemon::Bird, 200)?);
    let mut row = |figure: &str, unit: &str, digits: usize, one: f64, other: f64, goal: &str| {
        report.row(
            &format!("a node of a mesh of 200: {figure}"),
            &format!("{one:.digits$} {unit}"),
            &format!("BIRD 2: {other:.digits$} {unit}"),
            &if other > 0.0 { format!("{:.2}", one / other) } else { String::new() },
            goal,
        );
    };
    row("memory of the speaker", "MiB", 1, ours.memory, theirs.memory, "under 10 MiB");
    row("CPU until all is there", "s", 2, ours.cpu, theirs.cpu, "1");
    row("CPU in three idle seconds", "s", 2, ours.idle, theirs.idle, "0");
    Ok(())
}

/// From a cold start to every node's route on every node.
fn converge(simulation: &mut Simulation, what: &str, report: &mut Report) {
    let begin = Instant::now();
    simulation.run_for(Duration::from_secs(30));
    let taken = begin.elapsed();
    let count = simulation.nodes.len();
    let established = |node: &Node| {
        node.engine.summary().peers.iter().filter(|peer| peer.state == StateName::Established).count()
    };
    let sessions: usize = simulation.nodes.iter().map(established).sum();
    assert!(simulation.nodes.iter().all(|node| node.kernel.len() == count));
    report.row(
        &format!("{what}: all {} sessions up, all routes everywhere", sessions / 2),
        &format!("{:.2} s", taken.as_secs_f64()),
        &format!("{:.0} µs per session", taken.as_secs_f64() * 1e6 / (sessions as f64 / 2.0)),
        "",
        "",
    );
}

/// A peer's table: parsing, best paths, kernel routes.
fn import(count: u32, report: &mut Report) {
    let mut simulation = Simulation::default();
    for node in 0..2 {
        simulation.add(address(node), false);
        let own = address(node);
        let peer = session(own, address(1 - node));
        simulation.nodes[node].engine.apply(intent(own, [peer], &[]), Duration::ZERO);
    }
    simulation.run_for(Duration::from_secs(30));
    let peer = simulation.nodes[0].engine.summary().peers[0].clone();
    let options = SessionOptions {
        four_byte_as: true,
        extended_messages: true,
        families: [true, false],
        ..SessionOptions::default()
    };
    let prefixes = (0..count).map(|number| {
        let net = Ipv4Net::new(Ipv4Addr::from(0x1400_0000 + (number << 8)), 24).expect("a length");
        Nlri::new(IpNet::V4(net))
    });
    let mut bytes = Vec::new();
    let next_hop = NextHop::from(address(1));
    UpdateWriter::new(options)
        .announce(
            &mut bytes,
            &Attributes { local_pref: Some(100), ..Attributes::default() },
            &next_hop,
            prefixes,
        )
        .expect("short attributes");
    let begin = Instant::now();
    let mut rest = bytes.as_slice();
    while let Ok(Some(found)) = frame(rest, &options) {
        decode(&found, &options).expect("a message");
        rest = &rest[found.length..];
    }
    let floor = begin.elapsed();
    let begin = Instant::now();
    for part in bytes.chunks(64 * 1024) {
        for direction in [Direction::Outgoing, Direction::Incoming] {
            simulation.nodes[0].engine.received(peer.id, direction, part, simulation.now);
        }
        simulation.nodes[0].engine.take_kernel();
    }
    let taken = begin.elapsed();
    assert_eq!(simulation.nodes[0].engine.rib().counts(peer.id, Family::Ipv4).imported, count as usize);
    report.row(
        &format!("import of {count} routes with equal attributes: messages to kernel changes"),
        &format!("{:.3} s", taken.as_secs_f64()),
        &format!("{:.3} s to read the messages alone", floor.as_secs_f64()),
        &format!("{:.1}", taken.as_secs_f64() / floor.as_secs_f64()),
        "",
    );
}
