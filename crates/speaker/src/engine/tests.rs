//! Tests speakers that are connected over a simulated network.

use crate::engine::LogLine;
use crate::session::StateName;
use crate::simulation::{Simulation, address, block, intent, mesh, session};
use bgp::intent::Remote;
use bgp_wire::Family;
use std::time::Duration;

const MINUTE: Duration = Duration::from_mins(1);

fn established(simulation: &Simulation, node: usize) -> usize {
    let peers = simulation.nodes[node].engine.summary().peers;
    peers.iter().filter(|peer| peer.state == StateName::Established).count()
}

/// The blocks of other nodes in a node's kernel.
fn learnt(simulation: &Simulation, node: usize) -> Vec<String> {
    let own = block(node);
    let routes = simulation.nodes[node].kernel.keys().filter(|prefix| **prefix != own);
    routes.map(ToString::to_string).collect()
}

#[test]
fn a_mesh_comes_up_once_and_stays_up() {
    let mut simulation = mesh(6);
    simulation.run_for(MINUTE);
    for node in 0..6 {
        assert_eq!(established(&simulation, node), 5);
        let others: Vec<String> =
            (0..6).filter(|other| *other != node).map(|other| block(other).to_string()).collect();
        assert_eq!(learnt(&simulation, node), others);
    }
    simulation.run_for(60 * MINUTE);
    for node in &simulation.nodes {
        for peer in node.engine.summary().peers {
            // Both ends connect at once; collision resolution leaves one session.
            assert_eq!(peer.tally.established, 1, "{}", peer.remote);
            // Keepalives continue.
            assert!(peer.tally.received > 40, "{:?}", peer.tally);
        }
    }
}

#[test]
fn a_node_that_is_cut_off_loses_its_routes_and_gets_them_back() {
    let mut simulation = mesh(3);
    simulation.run_for(MINUTE);
    // Both sides announced graceful restart: routes are kept for two minutes.
    simulation.cut.push(2);
    simulation.break_links(2);
    simulation.run_for(MINUTE);
    assert_eq!(learnt(&simulation, 0).len(), 2);
    simulation.run_for(2 * MINUTE);
    assert_eq!(learnt(&simulation, 0), [block(1).to_string()]);
    simulation.cut.clear();
    simulation.run_for(MINUTE);
    assert_eq!(learnt(&simulation, 0).len(), 2);
}

#[test]
fn a_restarted_speaker_keeps_kernel_routes_until_peers_have_sent_theirs() {
    let mut simulation = mesh(4);
    simulation.run_for(MINUTE);
    let (own, before) = (address(1), simulation.nodes[1].kernel.clone());
    let again = simulation.nodes[1].engine.intent().cloned().expect("an intent");
    simulation.restart(1, true);
    simulation.nodes[1].engine.apply(again, simulation.now);
    simulation.settle();
    assert_eq!(simulation.nodes[1].kernel, before);
    assert!(simulation.nodes[1].engine.is_restarting());
    // Other nodes keep its routes in the meantime.
    assert_eq!(learnt(&simulation, 0).len(), 3);
    simulation.run_for(MINUTE);
    assert!(!simulation.nodes[1].engine.is_restarting());
    assert_eq!((simulation.nodes[1].sweeps, simulation.nodes[1].address), (1, own));
    assert_eq!(simulation.nodes[1].kernel, before);
    assert_eq!(learnt(&simulation, 0).len(), 3);
    let whole = simulation.nodes[1].log.contains(&LogLine::Restarted { complete: true });
    assert!(whole, "{:?}", simulation.nodes[1].log);
}

#[test]
fn a_restart_does_not_wait_for_peers_that_are_gone() {
    let mut simulation = mesh(4);
    simulation.run_for(MINUTE);
    simulation.cut.push(3);
    simulation.break_links(3);
    let again = simulation.nodes[1].engine.intent().cloned().expect("an intent");
    simulation.restart(1, true);
    simulation.nodes[1].engine.apply(again, simulation.now);
    simulation.run_for(Duration::from_secs(14));
    assert!(simulation.nodes[1].engine.is_restarting());
    simulation.run_for(Duration::from_secs(4));
    assert!(!simulation.nodes[1].engine.is_restarting());
    // Only routes that just the missing peer had are gone.
    assert_eq!(learnt(&simulation, 1), [block(0).to_string(), block(2).to_string()]);
}

#[test]
fn an_intent_is_applied_as_a_difference() {
    let mut simulation = mesh(3);
    simulation.run_for(MINUTE);
    let own = address(0);
    let sessions = || [session(own, address(1)), session(own, address(2))];
    // One more block: it is announced, and no session restarts.
    let more = intent(own, sessions(), &[block(0), block(9)]);
    simulation.nodes[0].engine.apply(more, simulation.now);
    simulation.settle();
    assert!(learnt(&simulation, 1).contains(&block(9).to_string()));
    // One block fewer.
    simulation.nodes[0].engine.apply(intent(own, sessions(), &[block(9)]), simulation.now);
    simulation.settle();
    assert!(!learnt(&simulation, 1).contains(&block(0).to_string()));
    let ups = |simulation: &Simulation| -> Vec<u64> {
        simulation.nodes[0].engine.summary().peers.iter().map(|peer| peer.tally.established).collect()
    };
    assert_eq!(ups(&simulation), [1, 1]);
    // A different keepalive time: that session restarts, the other one does not.
    let mut changed = sessions();
    changed[0].keepalive_time = Some(bgp::Secs(20));
    simulation.nodes[0].engine.apply(intent(own, changed, &[block(9)]), simulation.now);
    simulation.run_for(MINUTE);
    assert_eq!(established(&simulation, 0), 2);
    let peers = simulation.nodes[1].engine.summary().peers;
    assert_eq!(peers.iter().map(|peer| peer.tally.established).collect::<Vec<_>>(), [2, 1]);
    // A removed session: the peer is notified of the reason, and drops the routes.
    simulation.nodes[0].engine.apply(intent(own, [session(own, address(1))], &[block(9)]), simulation.now);
    simulation.settle();
    assert_eq!(learnt(&simulation, 2), [block(1).to_string()]);
    let peers = simulation.nodes[2].engine.summary().peers;
    assert_eq!(peers[0].reason.as_deref(), Some("Received: Peer de-configured"));
}

#[test]
fn a_range_accepts_any_peer_within_it() {
    let mut simulation = Simulation::default();
    for node in 0..3 {
        simulation.add(address(node), false);
    }
    let mut range = session(address(0), address(1));
    range.remote = Remote::Dynamic { range: "10.0.0.0/24".parse().expect("a network") };
    simulation.nodes[0].engine.apply(intent(address(0), [range], &[block(0)]), simulation.now);
    for node in [1, 2] {
        let own = address(node);
        let intent = intent(own, [session(own, address(0))], &[block(node)]);
        simulation.nodes[node].engine.apply(intent, simulation.now);
    }
    simulation.run_for(MINUTE);
    let peers = simulation.nodes[0].engine.summary().peers;
    let remotes: Vec<&str> = peers.iter().map(|peer| peer.remote.as_str()).collect();
    assert_eq!(remotes, ["10.0.0.2", "10.0.0.3"]);
    assert_eq!(learnt(&simulation, 0), [block(1).to_string(), block(2).to_string()]);
    // One peer leaves for good.
    simulation.nodes[2].engine.shut_down(false, "maintenance", simulation.now);
    simulation.settle();
    assert_eq!(simulation.nodes[0].engine.summary().peers.len(), 1);
    assert_eq!(learnt(&simulation, 0), [block(1).to_string()]);
    let told = simulation.nodes[0].log.iter().any(|line| match line {
        LogLine::State { reason: Some(reason), .. } => {
            reason.to_string() == "Received: Administrative shutdown (\"maintenance\")"
        }
        _ => false,
    });
    assert!(told, "{:?}", simulation.nodes[0].log);
}

#[test]
fn an_unknown_peer_is_refused() {
    let mut simulation = Simulation::default();
    simulation.add(address(0), false);
    simulation.add(address(1), false);
    simulation.nodes[0].engine.apply(intent(address(0), [], &[]), simulation.now);
    let own = address(1);
    simulation.nodes[1].engine.apply(intent(own, [session(own, address(0))], &[]), simulation.now);
    simulation.run_for(MINUTE);
    assert_eq!(established(&simulation, 1), 0);
    assert_eq!(simulation.nodes[0].engine.rib().len(Family::Ipv4).0, 1);
}

/// Two reflectors for six clients.
#[test]
fn reflectors_pass_routes_between_their_clients() {
    let cluster = Some(bgp::ClusterId(std::net::Ipv4Addr::new(224, 0, 0, 1)));
    let mut simulation = Simulation::default();
    for node in 0..8 {
        simulation.add(address(node), false);
    }
    for node in 0..8 {
        let own = address(node);
        let others: Vec<usize> =
            if node < 2 { (0..8).filter(|other| *other != node).collect() } else { vec![0, 1] };
        let sessions = others.into_iter().map(|other| {
            let mut session = session(own, address(other));
            session.reflector_client = cluster.filter(|_| node < 2 && other >= 2);
            session
        });
        let mut wanted = intent(own, sessions, &[block(node)]);
        wanted.cluster_id = cluster.filter(|_| node < 2);
        simulation.nodes[node].engine.apply(wanted, simulation.now);
    }
    simulation.run_for(MINUTE);
    for node in 0..8 {
        let others: Vec<String> =
            (0..8).filter(|other| *other != node).map(|other| block(other).to_string()).collect();
        assert_eq!(learnt(&simulation, node), others, "node {node}");
        // A reflected route still leads to the node that owns it, not to the reflector.
        for (prefix, route) in &simulation.nodes[node].kernel {
            let owner = (0..8).find(|other| block(*other) == *prefix).expect("a node");
            if let rib::KernelTarget::Via(hops) = &route.target {
                let gateways: Vec<_> = hops.iter().map(|hop| hop.gateway).collect();
                assert_eq!(gateways, [address(owner)], "{prefix} on node {node}");
            }
        }
    }
    // One reflector is gone for good: the other one suffices.
    simulation.nodes[0].engine.shut_down(false, "", simulation.now);
    simulation.run_for(MINUTE);
    for node in 2..8 {
        assert_eq!(learnt(&simulation, node).len(), 6, "node {node}");
    }
}

/// A peer that reads nothing for a while gets each changed prefix once.
#[test]
fn a_slow_peer_gets_only_the_final_state() {
    let mut simulation = mesh(2);
    simulation.run_for(MINUTE);
    let own = address(0);
    let before = simulation.nodes[1].engine.summary().peers[0].tally.updates;
    for round in 0..100 {
        let blocks = if round % 2 == 0 { vec![block(0), block(7)] } else { vec![block(0)] };
        simulation.nodes[0].engine.apply(intent(own, [session(own, address(1))], &blocks), simulation.now);
    }
    simulation.nodes[0]
        .engine
        .apply(intent(own, [session(own, address(1))], &[block(0), block(8)]), simulation.now);
    simulation.settle();
    assert_eq!(learnt(&simulation, 1), [block(0).to_string(), block(8).to_string()]);
    let updates = simulation.nodes[1].engine.summary().peers[0].tally.updates - before;
    assert!(updates <= 2, "{updates} UPDATEs");
}
