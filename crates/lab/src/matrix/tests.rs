//! A small hand-made matrix: expectations from manifests, invented measurements.

use super::*;
use explain::Cluster;
use serde_json::json;

fn cluster() -> Cluster {
    let mut cluster = Cluster::new();
    for (name, address) in [("web", "10.0.0.1"), ("db", "10.0.0.2")] {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "shop", "labels": {"app": name}},
            "spec": {"nodeName": "n1"}, "status": {"podIP": address, "podIPs": [{"ip": address}]},
        });
        cluster.add_manifest(pod).unwrap();
    }
    let closed = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "closed", "namespace": "shop"},
        "spec": {"podSelector": {"matchLabels": {"app": "db"}}, "policyTypes": ["Ingress"]},
    });
    cluster.add_manifest(closed).unwrap();
    cluster.complete();
    cluster
}

fn matrix() -> Matrix {
    let cluster = cluster();
    let party = |name: &str, address: &str| Party {
        name: format!("shop/{name}"),
        node: "n1".to_owned(),
        addresses: vec![address.parse().unwrap()],
        ports: vec![80],
    };
    let parties = [party("db", "10.0.0.2"), party("web", "10.0.0.1")];
    Matrix::expect(&parties, &Columns::default(), &World::new(&cluster)).unwrap()
}

#[test]
fn expectations_come_with_reasons() {
    let matrix = matrix();
    assert_eq!(matrix.cells[0][1].expected, Verdict::Allow);
    assert_eq!(matrix.cells[1][0].expected, Verdict::Deny);
    assert!(matrix.cells[1][0].decided_by.contains("closed"), "{}", matrix.cells[1][0].decided_by);
    assert!(matrix.agrees(), "nothing was measured yet");
}

#[test]
fn measurements_are_compared_and_shown() {
    let mut matrix = matrix();
    matrix.cells[0][1].reached = Some(true);
    matrix.cells[1][0].reached = Some(false);
    assert!(matrix.agrees());
    assert_eq!(matrix.counts(), (1, 1, 0));
    let text = matrix.to_text(false);
    assert!(text.contains("  A  shop/db") && text.contains("  1  "), "{text}");
    assert!(text.contains("closed"), "{text}");
    matrix.cells[1][0].reached = Some(true);
    assert!(!matrix.agrees());
    let text = matrix.to_text(false);
    assert!(text.contains("+!") && text.contains("shop/web -> shop/db:80: reached"), "{text}");
    let html = crate::html::page("t", Vec::new(), &matrix);
    assert!(html.contains("shop/web") && html.contains("class=\"odd\""), "{html}");
}

/// A matrix of invented pods, everything reached.
fn wide(names: &[&str], ports: &[u16], versions: usize) -> Matrix {
    let mut receivers = Vec::new();
    for name in names {
        for version in 0..versions {
            let address = if version == 0 { "10.0.0.1" } else { "fd00::1" }.parse().unwrap();
            for protocol in [Protocol::Tcp, Protocol::Udp] {
                receivers.extend(ports.iter().map(|port| Receiver {
                    pod: (*name).to_owned(),
                    node: "node1".to_owned(),
                    address,
                    port: *port,
                    protocol,
                }));
            }
        }
    }
    let cell = Cell { reached: Some(true), expected: Verdict::Allow, decided_by: "it".to_owned() };
    let senders: Vec<Sender> =
        names.iter().map(|name| Sender { pod: (*name).to_owned(), node: "node1".to_owned() }).collect();
    let cells = vec![vec![cell; receivers.len()]; senders.len()];
    Matrix { senders, receivers, cells, ended: Vec::new() }
}

#[test]
fn a_wide_matrix_is_folded_to_the_terminal() {
    let names =
        ["billing/ledger", "billing/report", "ops/monitor", "shop/cart", "shop/database", "shop/frontend"];
    let matrix = wide(&names, &[80, 8080], 2);
    for width in [60, 80, 100, 132, 300] {
        let text = matrix.to_text_within(false, Some(width));
        let grid: Vec<&str> = text.lines().take_while(|line| !line.contains("+ reached")).collect();
        let widest = grid.iter().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= width, "{widest} > {width}:\n{text}");
        let cells = grid.iter().map(|line| line.matches(" +").count()).sum::<usize>();
        assert_eq!(cells, 6 * 48, "every cell is there once:\n{text}");
        assert!(text.contains("u: UDP") && text.contains("v4, v6: the version of IP"), "{text}");
    }
    // A pod's columns stay together.
    let text = matrix.to_text_within(false, Some(100));
    assert_eq!(text.lines().next().unwrap().matches(" A").count(), 8, "{text}");
    // Output to a file is not folded.
    assert_eq!(matrix.to_text(false).lines().filter(|line| line.contains("from")).count(), 1);
    let plain = wide(&names, &[80], 1);
    let text = plain.to_text(false);
    assert!(text.contains("u: UDP") && !text.contains("v4"), "{text}");
}

#[test]
fn bands_end_with_a_namespace_where_that_wastes_little() {
    let matrix = wide(&["a/one", "a/two", "b/one", "b/two", "b/three"], &[80], 1);
    // Seven columns fit: two pods of the first namespace and one and a half of the second.
    let text = matrix.to_text_within(false, Some(5 + 7 + 3 + 5 + 7 * 5));
    let first = text.lines().next().unwrap();
    assert!(first.contains('B') && !first.contains('C'), "{text}");
}

#[test]
fn a_responder_that_ended_is_named_and_counted_separately() {
    let mut matrix = matrix();
    matrix.cells[0][1].reached = Some(false);
    matrix.cells[1][0].reached = Some(false);
    matrix.ended = vec!["shop/web".to_owned()];
    assert_eq!(matrix.counts(), (0, 1, 1));
    let text = matrix.to_text(false);
    assert!(text.contains("refused (1)"), "{text}");
    assert!(text.contains("1 cell is not as expected"), "{text}");
    assert!(text.contains("the responder of shop/web ended"), "{text}");
    assert!(!matrix.reasons().iter().any(|reason| reason.contains("Allow")), "{text}");
}

#[test]
fn letters_continue_after_z() {
    assert_eq!([0, 25, 26, 27, 701, 702].map(letter), ["A", "Z", "AA", "AB", "ZZ", "AAA"]);
}
