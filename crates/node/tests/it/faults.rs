//! A datastore that is unreachable, rejects requests, or is written by others at the same time.

use crate::support::{TestNode, on_etcd};
use api::NodeSpec;
use node::for_tests::startup::{StartupError, run};
use testkit::Etcd;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_waits_for_its_datastore() {
    let mut etcd = Etcd::start().expect("etcd");
    let endpoint = etcd.endpoint();
    etcd.kill();
    // In etcd's place, a server that closes every connection: a second attempt shows that the first one has failed.
    let place = endpoint.trim_start_matches("http://").to_owned();
    let hangs_up = tokio::net::TcpListener::bind(&place).await.expect("etcd's port");
    let node = TestNode::new(&on_etcd(&endpoint, &[("WAIT_FOR_DATASTORE", "true"), ("IP", "autodetect")]));
    let context = node.context.clone();
    let starting = tokio::spawn(async move { run(&context).await });
    for _ in 0..2 {
        drop(hangs_up.accept().await.expect("an attempt"));
    }
    assert!(!starting.is_finished(), "a node without a datastore has started");
    drop(hangs_up);
    etcd.restart().expect("etcd again");
    let started = starting.await.expect("no panic").expect("a start");
    assert_eq!(started.node_name, "node-a");
    node.client().await.resource::<NodeSpec>().get("", "node-a").await.expect("the node");
}

#[tokio::test]
async fn invalid_settings_fail_at_once() {
    let node = TestNode::new(&[
        ("DATASTORE_TYPE", "kubernetes"),
        ("KUBECONFIG", "/nowhere/at/all"),
        ("WAIT_FOR_DATASTORE", "true"),
    ]);
    let error = run(&node.context).await.expect_err("no kubeconfig");
    assert!(matches!(error, StartupError::Open(_)), "{error}");
    assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_may_write_the_node_at_the_same_time() {
    let etcd = Etcd::start().expect("etcd");
    let endpoint = etcd.endpoint();
    let node = TestNode::new(&on_etcd(&endpoint, &[("IP", "autodetect")]));
    run(&node.context).await.expect("a start");
    let client = node.client().await;
    let writer = {
        let client = client.clone();
        tokio::spawn(async move {
            let nodes = client.resource::<NodeSpec>();
            for round in 0..200 {
                let labelled = nodes.update_with_retry("", "node-a", |node| {
                    node.metadata.labels.insert("round".into(), round.to_string());
                    true
                });
                labelled.await.expect("a label");
            }
        })
    };
    for last in 1..=5 {
        let address = format!("10.99.0.{}/24", 20 + last);
        node.host.set(&[("eth0", &[address.as_str()])]);
        assert!(run(&node.context).await.expect("a start").node_written);
    }
    writer.await.expect("no panic");
    let stored = client.resource::<NodeSpec>().get("", "node-a").await.expect("the node");
    assert_eq!(stored.spec.bgp.expect("bgp").ipv4_address.as_str(), "10.99.0.25/24");
    assert_eq!(stored.metadata.labels.get("round").map(String::as_str), Some("199"));
}
