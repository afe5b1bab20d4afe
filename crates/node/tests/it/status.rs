//! Requests for a node's status with a fake BIRD, on etcd.

use crate::health::bird;
use crate::support::{TestNode, eventually, on_etcd};
use api::{CalicoNodeStatus, CalicoNodeStatusSpec, NodeStatusClass};
use client::{Client, DeleteOptions};
use daemon::ShutdownHandle;
use node::for_tests::status;
use testkit::Etcd;

async fn question(client: &Client, name: &str) -> CalicoNodeStatus {
    client.resource::<CalicoNodeStatusSpec>().get("", name).await.expect("the question")
}

fn ask(name: &str, node: &str, classes: &[NodeStatusClass], period: u32) -> CalicoNodeStatus {
    let spec = CalicoNodeStatusSpec {
        node: node.to_owned(),
        classes: classes.to_vec(),
        update_period_seconds: Some(period),
        ..CalicoNodeStatusSpec::default()
    };
    CalicoNodeStatus::new("", name, spec)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_answered_changed_and_removed() {
    let etcd = Etcd::start().expect("etcd");
    let endpoint = etcd.endpoint();
    let node = TestNode::new(&on_etcd(&endpoint, &[]));
    bird(&node, "1002-Mesh_10_0_0_2 BGP      master   up     19:30:00  Established\n");
    let client = node.client().await;
    client.ensure_initialized("", "").await.expect("a datastore");
    let questions = client.resource::<CalicoNodeStatusSpec>();
    questions.create(ask("early", "node-a", &[NodeStatusClass::Agent], 0)).await.expect("a question");
    let (handle, shutdown) = ShutdownHandle::new();
    let context = node.context.clone();
    let reporting = tokio::spawn(async move { status::run(&context, shutdown).await });
    eventually("the early question is answered", || async {
        question(&client, "early").await.status.agent.bird_v4.state.as_str() == "Ready"
    })
    .await;
    let answer = question(&client, "early").await.status;
    assert_eq!(answer.agent.bird_v4.router_id, "10.0.0.1");
    assert_eq!(answer.agent.bird_v6.state.as_str(), "NotReady");
    assert!(answer.last_updated.is_some() && answer.bgp.peers_v4.is_empty());

    // A request that asks for more is answered at once; one for another node is not.
    let all = [NodeStatusClass::Agent, NodeStatusClass::BGP, NodeStatusClass::Routes];
    questions.create(ask("other", "node-b", &all, 0)).await.expect("a question");
    let more = questions.update_with_retry("", "early", |question| {
        question.spec.classes = all.to_vec();
        true
    });
    more.await.expect("a changed question");
    eventually("all of it is answered", || async {
        let answer = question(&client, "early").await.status;
        answer.bgp.number_established_v4 == 1 && answer.routes.routes_v4.len() == 1
    })
    .await;
    let answer = question(&client, "early").await.status;
    assert_eq!(answer.bgp.peers_v4[0].peer_ip, "10.0.0.2");
    assert_eq!(answer.bgp.peers_v4[0].kind.as_str(), "NodeMesh");
    assert_eq!(answer.routes.routes_v4[0].learned_from.source_type.as_str(), "NodeMesh");
    assert_eq!(question(&client, "other").await.status.agent.bird_v4.state.as_str(), "");
    questions.delete("", "early", &DeleteOptions::default()).await.expect("a deletion");
    handle.request();
    reporting.await.expect("no panic").expect("an orderly end");
}

#[tokio::test]
async fn the_status_is_shown_as_tables() {
    let node = TestNode::new(&[]);
    bird(&node, "1002-Mesh_10_0_0_2 BGP      master   up     19:30:00  Established\n");
    let text = status::show(&node.context).await;
    assert!(text.contains("bird v4 status\n+-"), "{text}");
    assert!(text.contains("| 10.0.0.2     | Mesh      | up    | 19:30:00 | Established |"), "{text}");
    assert!(text.contains("| 10.1.0.0/26 | 10.0.0.2 | eth0  | Mesh_10_0_0_2 | *       |"), "{text}");
    assert!(text.contains("unable to connect to BIRDv6 socket"), "{text}");
}
