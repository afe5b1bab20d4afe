//! Racks with routers that speak BGP: pods reach each other without encapsulation, by routes that were learnt.

use super::{Lab, TORTIE};
use serde_json::Value;
use testkit::eventually;

/// Three nodes in two racks: all pods reach each other, and the kernel uses learnt routes.
fn check(lab: &Lab, speaker: &str) {
    // Four pods, each to three others, on two ports.
    assert_eq!(lab.matrix(&[]), (4 * 3 * 2, 0));
    for place in ["node1", "node3", "tor1", "tor2"] {
        let routes = lab.succeed(&["exec", place, "--", "ip", "route", "show", "proto", "bird"]);
        assert!(routes.contains("172.16."), "{place} by {speaker}: {routes}");
    }
    let status = lab.succeed(&["exec", "node1", "--", TORTIE, "ctl", "node", "status"]);
    assert!(status.contains("10.65.0.254") && status.contains("Established"), "{speaker}: {status}");
    let health =
        ["exec", "node1", "--", TORTIE, "component", "node", "health", "--bird-live", "--bird-ready"];
    lab.succeed(&health);
}

/// Checks that nodes report their sessions and routes on request, and that the tool shows them for all nodes.
fn reports(lab: &Lab) {
    for node in ["node1", "node2", "node3"] {
        let spec = format!("{{node: {node}, classes: [Agent, BGP, Routes], updatePeriodSeconds: 1}}");
        lab.apply(&format!(
            "apiVersion: projectcalico.org/v3\nkind: CalicoNodeStatus\nmetadata: {{name: {node}}}\nspec: {spec}\n"
        ));
    }
    let status = |node: &str| -> Value {
        let shown = lab.succeed(&["ctl", "get", "caliconodestatus", node, "-o", "json"]);
        serde_json::from_str::<Value>(&shown).expect("JSON")["status"].take()
    };
    for (node, router) in [("node1", "10.65.0.254"), ("node3", "10.65.1.254")] {
        let learnt = |status: &Value| {
            let routes = status["routes"]["routesV4"].as_array();
            routes.into_iter().flatten().any(|route| {
                route["learnedFrom"]["peerIP"] == router
                    && route["type"] == "FIB"
                    && route["interface"] == "eth0"
                    && route["destination"].as_str().is_some_and(|net| net.starts_with("172.16."))
            })
        };
        eventually(&format!("{node} reports what it learnt"), || learnt(&status(node))).expect("a report");
        let status = status(node);
        assert_eq!(status["agent"]["birdV4"]["state"], "Ready", "{status}");
        assert!(status["agent"]["birdV4"]["routerID"].as_str().is_some_and(|id| !id.is_empty()), "{status}");
        assert_eq!(status["bgp"]["numberEstablishedV4"], 1, "{status}");
        let peer = &status["bgp"]["peersV4"][0];
        assert_eq!((&peer["peerIP"], &peer["state"]), (&router.into(), &"Established".into()), "{status}");
    }
    let peers = lab.succeed(&["ctl", "bgp", "peers"]);
    let routes = lab.succeed(&["ctl", "bgp", "routes"]);
    let summary = lab.succeed(&["ctl", "bgp", "summary"]);
    for node in ["node1", "node2", "node3"] {
        let says =
            |text: &str, word: &str| text.lines().any(|line| line.starts_with(node) && line.contains(word));
        assert!(says(&peers, "Established"), "{peers}");
        assert!(says(&routes, "172.16."), "{routes}");
        assert!(says(&summary, "1") && !says(&summary, "not reported"), "{summary}");
    }
}

#[test]
fn racks_with_the_native_speaker() {
    let lab = Lab::up(&["--nodes", "3", "--pods", "4", "--bgp", "native"]);
    check(&lab, "native");
    let protocols = lab.succeed(&[
        "exec",
        "node1",
        "--",
        "birdcl",
        "-s",
        "/var/run/calico/bird.ctl",
        "show",
        "protocols",
    ]);
    assert!(protocols.contains("Node_10_65_0_254 BGP      master   up"), "{protocols}");
    let routes =
        lab.succeed(&["exec", "node1", "--", "birdcl", "-s", "/var/run/calico/bird.ctl", "show", "route"]);
    assert!(routes.contains("[Node_10_65_0_254 ") && routes.contains("blackhole [static1 "), "{routes}");
    reports(&lab);
    lab.succeed(&["down"]);
    lab.assert_gone();
}

#[test]
fn racks_with_bird() {
    let lab = Lab::up(&["--nodes", "3", "--pods", "4", "--bgp", "bird"]);
    check(&lab, "bird");
    lab.succeed(&["down"]);
    lab.assert_gone();
}

#[test]
fn native_speakers_and_bird_in_one_cluster() {
    let lab = Lab::new();
    let file = lab.folder.path().join("mixed.yaml");
    let bird = "environment: {TORTIE_BGP_SPEAKER: bird}";
    let text = format!(
        "bgp: native\npodCount: 4\nnodes:\n- {{name: node1, subnet: 0}}\n- {{name: node2, subnet: 0, {bird}}}\n- {{name: \
         node3, subnet: 1, {bird}}}\n"
    );
    std::fs::write(&file, text).expect("a file");
    lab.succeed(&["up", "--quiet", "--file", &file.display().to_string()]);
    check(&lab, "both");
    lab.succeed(&["down"]);
    lab.assert_gone();
}
