//! A small matrix by hand: expectations from manifests, measurements made up.

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
fn what_was_measured_is_compared_and_shown() {
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

#[test]
fn letters_go_on_after_z() {
    assert_eq!([0, 25, 26, 27, 701, 702].map(letter), ["A", "Z", "AA", "AB", "ZZ", "AAA"]);
}
