//! The node's services behind a Typha: they wait for it, follow only it, and report when it is missing.

use crate::health::bird;
use crate::support::{TestNode, eventually, on_etcd};
use api::{CalicoNodeStatus, CalicoNodeStatusSpec, IPPool, IPPoolSpec, NodeSpec, NodeStatusClass, VXLANMode};
use client::Client;
use daemon::ShutdownHandle;
use node::for_tests::{TunnelKind, health, startup, status, tunnel};
use std::net::SocketAddr;
use std::sync::Arc;
use testkit::Etcd;
use tokio::net::TcpListener;
use typha::for_tests::{
    ConnectionFigures, Feed, FeedOptions, Server, ServerParts, ServerSettings, Source, SourceOptions,
    follow_store,
};
use typha_wire::SyncerType;

/// A Typha on the node's store. Each run has its own number.
struct Typha {
    _server: Server,
    _sources: Vec<Source>,
}

impl Typha {
    async fn start(client: &Client, address: SocketAddr, run: u64) -> Self {
        let listener = loop {
            match TcpListener::bind(address).await {
                Ok(listener) => break listener,
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
            }
        };
        let feeds: Vec<Arc<Feed>> =
            SyncerType::ALL.iter().map(|kind| Feed::new(*kind, run, FeedOptions::default())).collect();
        let options = SourceOptions { kubernetes: false, use_pod_cidr: false };
        let sources = feeds.iter().map(|feed| follow_store(client.backend(), feed, options)).collect();
        let parts = ServerParts {
            feeds,
            settings: ServerSettings::default(),
            version: String::new(),
            tls: None,
            figures: Arc::new(ConnectionFigures::default()),
        };
        Self { _server: Server::start(listener, parts), _sources: sources }
    }
}

fn pool(name: &str, cidr: &str) -> IPPool {
    let spec = IPPoolSpec {
        cidr: cidr.into(),
        block_size: 26,
        vxlan_mode: VXLANMode::Always,
        ..IPPoolSpec::default()
    };
    IPPool::new("", name, spec)
}

async fn address(client: &Client) -> String {
    let node = client.resource::<NodeSpec>().get("", "node-a").await.expect("the node");
    TunnelKind::Vxlan.address(&node).to_string()
}

/// The node's health report about its services.
async fn unhealthy(node: &TestNode) -> String {
    let checks = health::Checks { felix_ready: true, bird_ready: true, ..health::Checks::default() };
    let outcome = health::check(&node.context, checks, health::THRESHOLD).await;
    outcome.expect_err("there is no Felix here").join("\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_wait_for_typha_and_never_bypass_it() {
    let etcd = Etcd::start().expect("etcd");
    let endpoint = etcd.endpoint();
    let place = SocketAddr::from(([127, 0, 0, 1], testkit::free_port().expect("a port")));
    let named = place.to_string();
    let more = [("IP", "autodetect"), ("NO_DEFAULT_POOLS", "true"), ("FELIX_TYPHAADDR", named.as_str())];
    let node = TestNode::new(&on_etcd(&endpoint, &more));
    startup::run(&node.context).await.expect("a start");
    bird(&node, "1002-Mesh_10_0_0_2 BGP      master   up     19:30:00  Established\n");
    let client = node.client().await;
    client.resource::<IPPoolSpec>().create(pool("one", "10.1.0.0/16")).await.expect("a pool");
    let mut question = CalicoNodeStatusSpec { node: "node-a".into(), ..CalicoNodeStatusSpec::default() };
    question.classes = vec![NodeStatusClass::Agent];
    question.update_period_seconds = Some(1);
    let question = CalicoNodeStatus::new("", "q", question);
    client.resource::<CalicoNodeStatusSpec>().create(question).await.expect("a question");

    let (handle, shutdown) = ShutdownHandle::new();
    let (context, end) = (node.context.clone(), shutdown.clone());
    let tunnels = tokio::spawn(async move { tunnel::run(&context, end).await });
    let context = node.context.clone();
    let reporter = tokio::spawn(async move { status::run(&context, shutdown).await });

    // Without a Typha nothing is done, and health reports why.
    let waiting = "tunnel-ip-allocation: no connection to Typha (";
    eventually("health says what is missing", async || {
        let said = unhealthy(&node).await;
        said.contains(waiting) && said.contains("node-status: no connection to Typha (")
    })
    .await;
    assert_eq!(address(&client).await, "");

    let typha = Typha::start(&client, place, 1).await;
    eventually("the node has an address", async || address(&client).await.starts_with("10.1.")).await;
    eventually("the question is answered", async || {
        let question = client.resource::<CalicoNodeStatusSpec>().get("", "q").await.expect("the question");
        question.status.last_updated.is_some()
    })
    .await;
    eventually("health is content", async || !unhealthy(&node).await.contains("Typha")).await;

    // Typha goes away. The services keep their state; changes in the meantime are handled when it is back.
    drop(typha);
    eventually("health says that it went", async || unhealthy(&node).await.contains(waiting)).await;
    let pools = client.resource::<IPPoolSpec>();
    let closed = pools.update_with_retry("", "one", |pool| {
        pool.spec.vxlan_mode = VXLANMode::Never;
        true
    });
    closed.await.expect("a changed pool");
    assert!(address(&client).await.starts_with("10.1."), "the change is not known yet");
    let _typha = Typha::start(&client, place, 2).await;
    eventually("the address is given back", async || address(&client).await.is_empty()).await;
    handle.request();
    tunnels.await.expect("no panic").expect("an orderly end");
    reporter.await.expect("no panic").expect("an orderly end");
}

#[tokio::test]
async fn incomplete_tls_settings_keep_a_service_from_starting() {
    let etcd = Etcd::start().expect("etcd");
    let endpoint = etcd.endpoint();
    let more = [("CALICO_TYPHAADDR", "127.0.0.1:1"), ("CALICO_TYPHACN", "typha-server")];
    let node = TestNode::new(&on_etcd(&endpoint, &more));
    let (_handle, shutdown) = ShutdownHandle::new();
    let error = tunnel::run(&node.context, shutdown).await.expect_err("half of TLS").to_string();
    assert!(error.contains("only some of them are set"), "{error}");
}
