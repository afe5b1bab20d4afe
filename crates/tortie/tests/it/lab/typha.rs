//! Typhas between the datastore and the nodes: every agent connects to one, waits for it when it is gone, and finds
//! another if there is a service.

use super::{Lab, TORTIE};
use testkit::Signal;

/// Kills the Typha that listens on this port.
fn kill_typha(lab: &Lab, port: &str) {
    let wanted = format!("TYPHA_SERVERPORT={port}");
    let is_typha = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
    };
    let pids: Vec<u32> = lab.processes().into_iter().filter(is_typha).collect();
    assert!(!pids.is_empty(), "no Typha has the port {port}");
    for pid in pids {
        testkit::signal(pid, Signal::KILL).expect("a kill");
    }
}

/// An agent's report about its connection.
fn state(lab: &Lab, node: &str, feed: &str) -> String {
    let output = lab.run(&["exec", node, "--", "cat", &format!("/var/run/calico/typha/{feed}")]);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn eventually_says(lab: &Lab, node: &str, feed: &str, word: &str) {
    let what = format!("{feed} of {node}: {word}");
    testkit::eventually(&what, || state(lab, node, feed).starts_with(word)).expect(&what);
}

const FEEDS: [&str; 3] = ["bgp", "tunnel-ip-allocation", "node-status"];

#[test]
fn every_agent_follows_typha_and_waits_for_it() {
    let lab = Lab::up(&["--nodes", "2", "--pods", "2", "--bgp", "native", "--typha", "2"]);
    assert_eq!(lab.matrix(&[]), (2 * 2, 0));
    for node in ["node1", "node2"] {
        for feed in FEEDS {
            eventually_says(&lab, node, feed, "connected");
        }
    }
    let health = |node| {
        let arguments =
            ["exec", node, "--", TORTIE, "component", "node", "health", "--felix-ready", "--bird-ready"];
        lab.run(&arguments)
    };
    assert!(health("node1").status.success());
    // The first node's Typha is killed; the other node has another one.
    kill_typha(&lab, "5473");
    for feed in FEEDS {
        eventually_says(&lab, "node1", feed, "not connected");
    }
    let mut said = String::new();
    testkit::eventually("health says so", || {
        said = String::from_utf8_lossy(&health("node1").stdout).into_owned();
        said.contains("bgp: no connection to Typha") && said.contains("felix is not ready")
    })
    .unwrap_or_else(|error| panic!("{error}: {said}"));
    assert!(health("node2").status.success());
    // The programmed state stays.
    assert_eq!(lab.matrix(&[]), (2 * 2, 0));
    lab.succeed(&["down"]);
    lab.assert_gone();
}

#[test]
fn behind_a_service_the_next_one_is_found() {
    let flags = ["--nodes", "1", "--pods", "2", "--datastore", "kubernetes", "--typha", "2"];
    let lab = Lab::up(&flags);
    assert_eq!(lab.matrix(&[]), (2 * 2, 0));
    let felix = || {
        let arguments = ["exec", "node1", "--", TORTIE, "component", "node", "health", "--felix-ready"];
        lab.run(&arguments).status.success()
    };
    eventually_says(&lab, "node1", "node-status", "connected");
    kill_typha(&lab, "5473");
    // No agent is connected to the first one any more.
    testkit::eventually("all are connected again", || {
        let at_the_second = |feed: &&str| state(&lab, "node1", feed).contains(":5474");
        ["tunnel-ip-allocation", "node-status"].iter().all(at_the_second) && felix()
    })
    .expect("a connection to the second Typha");
    // And it delivers changes.
    lab.apply(
        "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata: {name: nothing}\n\
         spec: {selector: all(), types: [Ingress]}\n",
    );
    assert_eq!(lab.matrix(&[]).0, 0);
    lab.succeed(&["down"]);
    lab.assert_gone();
}
