//! Start-up on etcd and on the embedded store.

use crate::support::{TestHost, TestNode, on_etcd, revisions};
use api::{
    BGPConfigurationSpec, ClusterInformationSpec, FelixConfigurationSpec, IPAMConfigurationSpec, IPPoolSpec,
    Node, NodeSpec, TierSpec,
};
use client::{Client, ListQuery};
use node::for_tests::startup::{StartupError, run};
use testkit::Etcd;

async fn stored(client: &Client, name: &str) -> Node {
    client.resource::<NodeSpec>().get("", name).await.expect("the node")
}

#[tokio::test]
async fn the_first_start_writes_everything_and_the_second_nothing() {
    let etcd = Etcd::start().expect("etcd");
    let endpoint = etcd.endpoint();
    let variables = on_etcd(
        &endpoint,
        &[
            ("IP", "autodetect"),
            ("AS", "64513"),
            ("CLUSTER_TYPE", "k8s,bgp"),
            ("CALICO_IPV4POOL_IPIP", "Always"),
        ],
    );
    let node = TestNode::new(&variables);
    let started = run(&node.context).await.expect("a start");
    assert_eq!((started.node_name.as_str(), started.node_written), ("node-a", true));

    let client = node.client().await;
    let written = stored(&client, "node-a").await;
    let bgp = written.spec.bgp.expect("bgp");
    assert_eq!(bgp.ipv4_address.as_str(), "10.99.0.11/24");
    assert_eq!(bgp.as_number.map(|number| number.0), Some(64_513));
    assert_eq!(written.spec.interfaces.len(), 1);
    assert_eq!(written.spec.interfaces[0].addresses, ["10.99.0.11"]);
    let pools = client.resource::<IPPoolSpec>().list(&ListQuery::all()).await.expect("pools").items;
    let names: Vec<&str> = pools.iter().map(|pool| pool.metadata.name.as_str()).collect();
    assert_eq!(names, ["default-ipv4-ippool", "default-ipv6-ippool"]);
    assert_eq!(pools[0].spec.cidr.as_str(), "192.168.0.0/16");
    assert_eq!(pools[0].spec.ipip_mode.as_str(), "Always");
    let information =
        client.resource::<ClusterInformationSpec>().get("", "default").await.expect("information");
    assert_eq!(information.spec.cluster_type, "k8s,bgp");
    assert_eq!(
        (information.spec.calico_version.as_str(), information.spec.datastore_ready),
        ("v3.32.1", Some(true))
    );
    let felix = client.resource::<FelixConfigurationSpec>();
    let default = felix.get("", "default").await.expect("Felix's settings");
    assert_eq!(default.spec.log_severity_screen.as_str(), "Info");
    let own = felix.get("", "node.node-a").await.expect("the node's settings");
    assert_eq!(own.spec.default_endpoint_to_host_action.as_str(), "Return");
    client.resource::<BGPConfigurationSpec>().get("", "default").await.expect("BGP's settings");
    let ipam = client.resource::<IPAMConfigurationSpec>().get("", "default").await.expect("IPAM's settings");
    assert!(ipam.spec.auto_allocate_blocks && !ipam.spec.strict_affinity);
    assert_eq!(client.resource::<TierSpec>().list(&ListQuery::all()).await.expect("tiers").items.len(), 3);
    assert_eq!(node.file("/var/lib/calico/nodename"), "node-a");
    assert!(node.context.path("/var/run/calico").is_dir() && node.context.path("/var/log/calico").is_dir());

    let before = revisions(&etcd);
    assert!(before.len() > 8, "{before:?}");
    let started = run(&node.context).await.expect("a second start");
    assert!(!started.node_written);
    assert_eq!(revisions(&etcd), before);
}

#[tokio::test]
async fn addresses_follow_the_machine_and_conflicts_stop_a_node() {
    let etcd = Etcd::start().expect("etcd");
    let endpoint = etcd.endpoint();
    let pools = [("CALICO_IPV6POOL_CIDR", "none"), ("IP", "autodetect")];
    let one = TestNode::new(&on_etcd(&endpoint, &pools));
    run(&one.context).await.expect("a start");
    let client = one.client().await;

    // The machine gets another address, and an unrelated interface.
    one.host.set(&[("eth0", &["10.99.0.12/24"]), ("cali1", &["169.254.1.1/32"])]);
    assert!(run(&one.context).await.expect("a start").node_written);
    assert_eq!(stored(&client, "node-a").await.spec.bgp.expect("bgp").ipv4_address.as_str(), "10.99.0.12/24");

    // Another node with the same address is refused, and writes nothing.
    let same = TestHost::new(&[("eth0", &["10.99.0.12/16"])]);
    let other = TestNode::on(same, &on_etcd(&endpoint, &[pools[0], pools[1], ("NODENAME", "node-b")]));
    let error = run(&other.context).await.expect_err("a conflict");
    assert!(error.to_string().contains("node 'node-a' already uses the IPv4 address 10.99.0.12"), "{error}");
    assert!(client.resource::<NodeSpec>().get("", "node-b").await.expect_err("no node").is_does_not_exist());

    // A node with an address of its own loses it when it detects one that is in use.
    other.host.set(&[("eth0", &["10.99.0.13/24"])]);
    run(&other.context).await.expect("a start");
    other.host.set(&[("eth0", &["10.99.0.12/24"])]);
    assert!(matches!(run(&other.context).await, Err(StartupError::Conflict(_))));
    assert_eq!(stored(&client, "node-b").await.spec.bgp, None);

    // Unless the conflict check is disabled.
    let careless = other.with(&on_etcd(
        &endpoint,
        &[pools[0], pools[1], ("NODENAME", "node-b"), ("DISABLE_NODE_IP_CHECK", "true")],
    ));
    run(&careless.context).await.expect("a start");
    assert_eq!(stored(&client, "node-b").await.spec.bgp.expect("bgp").ipv4_address.as_str(), "10.99.0.12/24");
}

#[tokio::test]
async fn ambiguity_lists_candidates_and_is_settled_by_the_stored_address() {
    let etcd = Etcd::start().expect("etcd");
    let endpoint = etcd.endpoint();
    let method = ("IP_AUTODETECTION_METHOD", "interface=eth.*");
    let cards = TestHost::new(&[("eth0", &["10.99.0.11/24"]), ("eth1", &["10.98.0.11/24"])]);
    let node = TestNode::on(cards, &on_etcd(&endpoint, &[("IP", "autodetect"), method]));
    let error = run(&node.context).await.expect_err("two candidates").to_string();
    assert!(error.contains("10.98.0.11/24 on eth1, 10.99.0.11/24 on eth0"), "{error}");
    // Once the address is known, the start succeeds with it.
    let told = node.with(&on_etcd(&endpoint, &[("IP", "10.99.0.11")]));
    run(&told.context).await.expect("a start");
    let again = told.with(&on_etcd(&endpoint, &[("IP", "autodetect"), method]));
    run(&again.context).await.expect("a start");
    let client = again.client().await;
    assert_eq!(stored(&client, "node-a").await.spec.bgp.expect("bgp").ipv4_address.as_str(), "10.99.0.11/24");
}

#[tokio::test]
async fn without_networking_no_node_is_written() {
    let etcd = Etcd::start().expect("etcd");
    let endpoint = etcd.endpoint();
    let node = TestNode::on(
        TestHost::new(&[]),
        &on_etcd(&endpoint, &[("CALICO_NETWORKING_BACKEND", "none"), ("NO_DEFAULT_POOLS", "true")]),
    );
    let started = run(&node.context).await.expect("a start");
    assert!(!started.node_written);
    let client = node.client().await;
    assert_eq!(client.resource::<IPPoolSpec>().list(&ListQuery::all()).await.expect("pools").items, []);
    client.resource::<ClusterInformationSpec>().get("", "default").await.expect("information");
    assert_eq!(node.file("/var/lib/calico/nodename"), "node-a");
    assert!(!node.context.path("/var/run/calico").exists());
}

#[tokio::test]
async fn many_starts_at_once_agree() {
    let etcd = Etcd::start().expect("etcd");
    let endpoint = etcd.endpoint();
    let nodes: Vec<TestNode> =
        (0..6).map(|_| TestNode::new(&on_etcd(&endpoint, &[("IP", "autodetect")]))).collect();
    let outcomes = futures::future::join_all(nodes.iter().map(|node| run(&node.context))).await;
    for outcome in outcomes {
        outcome.expect("a start");
    }
    let client = nodes[0].client().await;
    assert_eq!(client.resource::<IPPoolSpec>().list(&ListQuery::all()).await.expect("pools").items.len(), 2);
    let before = revisions(&etcd);
    run(&nodes[0].context).await.expect("a start");
    assert_eq!(revisions(&etcd), before);
}

#[tokio::test]
async fn a_node_starts_on_the_embedded_store() {
    let folder = testkit::Folder::new("store").expect("a folder");
    let path = folder.path().join("data").display().to_string();
    let variables =
        [("DATASTORE_TYPE", "embedded"), ("EMBEDDED_PATH", path.as_str()), ("HOSTNAME", "Node-E")];
    let node = TestNode::new(&variables);
    let started = run(&node.context).await.expect("a start");
    assert_eq!(started.node_name, "node-e");
    let client = node.client().await;
    assert_eq!(stored(&client, "node-e").await.spec.bgp.expect("bgp").ipv4_address.as_str(), "10.99.0.11/24");
    client.resource::<FelixConfigurationSpec>().get("", "node.node-e").await.expect("the node's settings");
}
