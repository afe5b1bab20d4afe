//! Scenarios in clusters, with the native speaker, with BIRD, and with both: one table of scenarios, checked in the
//! kernel.

use crate::cluster::Backend::{Bird, Native};
use crate::cluster::{Backend, Cluster, block};
use crate::harness::wait_for;
use crate::traffic::Traffic;
use anyhow::Result;
use serde_json::json;

/// A mesh in which all nodes have their routes.
fn mesh(backends: &[Backend]) -> Result<Cluster> {
    let mut cluster = Cluster::new(backends)?;
    cluster.start_all()?;
    cluster.wait_whole(&(0..backends.len()).collect::<Vec<_>>())?;
    Ok(cluster)
}

fn node_added_and_removed(backends: [Backend; 4]) -> Result<()> {
    let mut cluster = Cluster::new(&backends)?;
    cluster.members = vec![0, 1, 2];
    for node in 0..3 {
        cluster.start(node, false)?;
    }
    cluster.wait_whole(&[0, 1, 2])?;
    let before = cluster.establishments(0)?;
    cluster.members.push(3);
    cluster.start(3, false)?;
    cluster.apply()?;
    cluster.wait_whole(&[0, 1, 2, 3])?;
    // The node is turned off, and deleted from the datastore.
    cluster.members = vec![0, 1, 2];
    cluster.blocks = vec![0, 1, 2];
    cluster.stop(3)?;
    cluster.apply()?;
    for node in 0..3 {
        wait_for("the routes to the removed node to go", || Ok(!cluster.routes(node)?.contains(&block(3))))?;
    }
    cluster.wait_whole(&[0, 1, 2])?;
    // The sessions between the other nodes were not affected.
    assert_eq!(cluster.establishments(0)?, before);
    Ok(())
}

#[test]
fn a_node_is_added_and_removed() -> Result<()> {
    node_added_and_removed([Native; 4])?;
    node_added_and_removed([Native, Bird, Bird, Native])
}

#[test]
fn a_node_is_added_and_removed_with_bird() -> Result<()> {
    node_added_and_removed([Bird; 4])
}

/// Packets keep flowing while a node's speaker restarts, with either implementation at either end.
fn restart(backends: [Backend; 2]) -> Result<()> {
    let mut cluster = mesh(&backends)?;
    let traffic = Traffic::start(&cluster, 0, 1)?;
    cluster.stop(1)?;
    // The other end keeps the learnt routes without a speaker; packets flow for a while like that.
    std::thread::sleep(std::time::Duration::from_secs(1));
    cluster.start(1, true)?;
    for node in 0..2 {
        wait_for("the restart to be over", || cluster.is_settled(node))?;
    }
    cluster.wait_whole(&[0, 1])?;
    let losses = traffic.finish()?;
    assert_eq!((losses.refused, losses.unanswered), (0, 0), "{backends:?}: of {} packets", losses.sent);
    assert!(losses.sent > 100, "{losses:?}");
    Ok(())
}

#[test]
fn the_native_speaker_restarts_under_traffic() -> Result<()> {
    restart([Native, Native])?;
    restart([Bird, Native])
}

#[test]
fn bird_restarts_under_traffic() -> Result<()> {
    restart([Native, Bird])?;
    restart([Bird, Bird])
}

/// A link and an announcement that flap: in the end everything is as before.
fn flapping(backends: [Backend; 3]) -> Result<()> {
    let mut cluster = mesh(&backends)?;
    for round in 0..5 {
        // The kernel drops routes of a link that goes down; the speaker has to create them again.
        cluster.nodes[1].namespace.batch("link set eth0 down")?;
        wait_for("the kernel to forget", || Ok(!cluster.knows(1, 0)?))?;
        cluster.nodes[1].namespace.batch("link set eth0 up")?;
        cluster.blocks = if round % 2 == 0 { vec![0, 1] } else { vec![0, 1, 2] };
        cluster.apply()?;
    }
    cluster.wait_whole(&[0, 1])?;
    for node in 0..2 {
        wait_for("the withdrawal", || Ok(!cluster.knows(node, 2)?))?;
    }
    for round in 0..20 {
        cluster.blocks = if round % 2 == 0 { vec![0, 1, 2] } else { vec![0, 1] };
        cluster.apply()?;
    }
    cluster.blocks = vec![0, 1, 2];
    cluster.apply()?;
    cluster.wait_whole(&[0, 1, 2])
}

#[test]
fn flaps_leave_nothing_behind() -> Result<()> {
    flapping([Native; 3])?;
    flapping([Native, Bird, Native])
}

/// Effects of a filter that withholds and tags routes are visible on the other side.
fn filters(backends: [Backend; 3]) -> Result<()> {
    let mut cluster = Cluster::new(&backends)?;
    cluster
        .objects
        .insert(("BGPConfiguration", "default".to_owned()), json!({"nodeToNodeMeshEnabled": false}));
    let filter = json!({"exportV4": [
        {"action": "Reject", "matchOperator": "Equal", "cidr": block(0)},
        {"action": "Accept", "matchOperator": "In", "cidr": "10.66.0.0/16",
         "operations": [{"addCommunity": {"value": "65000:7"}}, {"addCommunity": {"value": "65000:7:9"}}]},
    ]});
    cluster.objects.insert(("BGPFilter", "hide-and-mark".to_owned()), filter);
    let peer = json!({"peerSelector": "all()", "filters": ["hide-and-mark"], "reversePeering": "Manual"});
    cluster.objects.insert(("BGPPeer", "all".to_owned()), peer);
    cluster.start_all()?;
    wait_for("the route that passes", || cluster.knows(1, 2))?;
    wait_for("all sessions", || {
        Ok(cluster.is_settled(0)? && cluster.is_settled(1)? && cluster.is_settled(2)?)
    })?;
    let shown = cluster.ask(1, &format!("show route all {}", block(2)))?;
    assert!(shown.contains("(65000,7)") && shown.contains("(65000, 7, 9)"), "{shown}");
    // Node 0's session is up, but its own block never arrived.
    assert!(!cluster.routes(1)?.contains(&block(0)), "{}", cluster.routes(1)?);
    Ok(())
}

#[test]
fn filters_are_seen_on_the_other_side() -> Result<()> {
    filters([Native, Bird, Native])?;
    filters([Bird, Bird, Bird])
}

/// Two reflectors, six clients, no mesh.
fn reflectors(backends: [Backend; 8]) -> Result<()> {
    let mut cluster = Cluster::new(&backends)?;
    cluster.reflectors = vec![0, 1];
    for node in 0..8 {
        let role = if node < 2 { "reflector" } else { "client" };
        cluster.labels.insert(node, json!({"role": role}));
    }
    cluster
        .objects
        .insert(("BGPConfiguration", "default".to_owned()), json!({"nodeToNodeMeshEnabled": false}));
    for (name, nodes) in [("clients", "role == 'client'"), ("reflectors", "role == 'reflector'")] {
        let spec = json!({"nodeSelector": nodes, "peerSelector": "role == 'reflector'"});
        cluster.objects.insert(("BGPPeer", name.to_owned()), spec);
    }
    // The last client gets its block later.
    cluster.blocks.pop();
    cluster.start_all()?;
    // Next hops are the owners, not the reflectors.
    cluster.wait_whole(&[0, 1, 2, 3, 4, 5, 6])?;
    // One reflector fails. Clients keep their routes, and new ones still reach all of them.
    cluster.stop(0)?;
    for client in 2..8 {
        for owner in (0..7).filter(|owner| *owner != client) {
            assert!(cluster.knows(client, owner)?, "{client} has forgotten {owner}");
        }
    }
    cluster.blocks.push(7);
    cluster.apply()?;
    cluster.wait_whole(&[1, 2, 3, 4, 5, 6, 7])?;
    // It is back, and neither reflector announces a block that was released.
    cluster.start(0, true)?;
    cluster.wait_whole(&[0, 1, 2, 3, 4, 5, 6, 7])?;
    cluster.blocks.pop();
    cluster.apply()?;
    for node in 0..7 {
        wait_for("the withdrawal", || Ok(!cluster.knows(node, 7)?))?;
    }
    Ok(())
}

#[test]
fn reflectors_serve_six_clients() -> Result<()> {
    reflectors([Native; 8])
}

#[test]
fn reflectors_of_one_kind_and_clients_of_both() -> Result<()> {
    reflectors([Native, Bird, Native, Bird, Native, Bird, Native, Bird])
}
