//! Tunnel addresses on etcd: assigned, kept, moved and released.

use crate::support::{TestNode, eventually, on_etcd, revisions};
use api::{IPIPMode, IPPool, IPPoolSpec, Node, NodeSpec, VXLANMode};
use client::{Client, DeleteOptions};
use daemon::ShutdownHandle;
use ipam::{AssignIp, Ipam};
use node::for_tests::{TunnelKind, startup, tunnel};
use testkit::Etcd;

fn pool(name: &str, cidr: &str, change: impl FnOnce(&mut IPPoolSpec)) -> IPPool {
    let mut spec = IPPoolSpec { cidr: cidr.into(), block_size: 26, ..IPPoolSpec::default() };
    change(&mut spec);
    IPPool::new("", name, spec)
}

/// A started node without pools.
async fn node(endpoint: &str) -> (TestNode, Client) {
    let node = TestNode::new(&on_etcd(endpoint, &[("IP", "autodetect"), ("NO_DEFAULT_POOLS", "true")]));
    startup::run(&node.context).await.expect("a start");
    let client = node.client().await;
    (node, client)
}

async fn stored(client: &Client) -> Node {
    client.resource::<NodeSpec>().get("", "node-a").await.expect("the node")
}

async fn address(client: &Client, kind: TunnelKind) -> String {
    kind.address(&stored(client).await).to_string()
}

async fn holder(client: &Client, address: &str) -> Option<String> {
    let address = address.parse().expect("an address");
    let allocation = Ipam::new(client.backend().clone()).allocation(address).await.expect("an answer");
    allocation.and_then(|allocation| allocation.handle_id)
}

async fn create(client: &Client, pool: IPPool) {
    client.resource::<IPPoolSpec>().create(pool).await.expect("a pool");
}

async fn change(client: &Client, name: &str, change: impl Fn(&mut IPPoolSpec) + Send + Sync) {
    let pools = client.resource::<IPPoolSpec>();
    let changed = pools.update_with_retry("", name, |pool| {
        change(&mut pool.spec);
        true
    });
    changed.await.expect("a changed pool");
}

#[tokio::test]
async fn an_address_is_assigned_kept_moved_and_released() {
    let etcd = Etcd::start().expect("etcd");
    let endpoint = etcd.endpoint();
    let (node, client) = node(&endpoint).await;
    tunnel::run_once(&node.context).await.expect("nothing to do");
    create(&client, pool("one", "10.1.0.0/16", |spec| spec.vxlan_mode = VXLANMode::Always)).await;
    create(
        &client,
        pool("six", "fd00:1::/64", |spec| {
            spec.block_size = 122;
            spec.vxlan_mode = VXLANMode::Always;
        }),
    )
    .await;
    tunnel::run_once(&node.context).await.expect("addresses");
    let first = address(&client, TunnelKind::Vxlan).await;
    assert!(first.starts_with("10.1."), "{first}");
    assert!(address(&client, TunnelKind::VxlanV6).await.starts_with("fd00:1:"));
    assert_eq!(holder(&client, &first).await.as_deref(), Some("vxlan-tunnel-addr-node-a"));

    // If nothing changes, nothing is written.
    let before = revisions(&etcd);
    tunnel::run_once(&node.context).await.expect("nothing to do");
    assert_eq!(revisions(&etcd), before);

    // Another pool and another tunnel: the old address is released.
    change(&client, "one", |spec| spec.vxlan_mode = VXLANMode::Never).await;
    create(&client, pool("two", "10.2.0.0/16", |spec| spec.ipip_mode = IPIPMode::CrossSubnet)).await;
    tunnel::run_once(&node.context).await.expect("addresses");
    assert_eq!(address(&client, TunnelKind::Vxlan).await, "");
    assert_eq!(holder(&client, &first).await, None);
    let second = address(&client, TunnelKind::Ipip).await;
    assert!(second.starts_with("10.2."), "{second}");

    // The pool is disabled: its address is replaced by one of the other pool.
    change(&client, "two", |spec| spec.disabled = true).await;
    change(&client, "one", |spec| spec.ipip_mode = IPIPMode::Always).await;
    tunnel::run_once(&node.context).await.expect("addresses");
    let third = address(&client, TunnelKind::Ipip).await;
    assert!(third.starts_with("10.1."), "{third}");
    assert_eq!(holder(&client, &second).await, None);
}

#[tokio::test]
async fn addresses_of_other_holders_are_left_alone() {
    let etcd = Etcd::start().expect("etcd");
    let endpoint = etcd.endpoint();
    let (node, client) = node(&endpoint).await;
    create(&client, pool("one", "10.1.0.0/16", |spec| spec.ipip_mode = IPIPMode::Always)).await;
    let ipam = Ipam::new(client.backend().clone());
    let taken = "10.1.0.7".parse().expect("an address");
    let pod = AssignIp { handle: Some("pod".into()), ..AssignIp::new(taken, "node-a") };
    ipam.assign_ip(&pod).await.expect("an address for the pod");
    let nodes = client.resource::<NodeSpec>();
    let set = |text: &'static str| {
        nodes.update_with_retry("", "node-a", move |node| {
            TunnelKind::Ipip.set_address(node, text.into());
            true
        })
    };
    set("10.1.0.7").await.expect("a wrong address");
    tunnel::run_once(&node.context).await.expect("addresses");
    let got = address(&client, TunnelKind::Ipip).await;
    assert!(!got.is_empty() && got != "10.1.0.7", "{got}");
    assert_eq!(holder(&client, "10.1.0.7").await.as_deref(), Some("pod"));

    // An address from before handles were used gets one.
    let old = "10.1.0.9".parse().expect("an address");
    ipam.assign_ip(&AssignIp::new(old, "node-a")).await.expect("an old address");
    set("10.1.0.9").await.expect("an old address");
    tunnel::run_once(&node.context).await.expect("addresses");
    assert_eq!(address(&client, TunnelKind::Ipip).await, "10.1.0.9");
    assert_eq!(holder(&client, "10.1.0.9").await.as_deref(), Some("ipip-tunnel-addr-node-a"));

    // If the resource has lost its address, it is found again by its handle: nothing leaks.
    set("").await.expect("a lost address");
    tunnel::run_once(&node.context).await.expect("addresses");
    let ours = ipam.ips_by_handle(&"ipip-tunnel-addr-node-a".into()).await.expect("addresses of the handle");
    assert_eq!(ours.len(), 1);
    assert_eq!(address(&client, TunnelKind::Ipip).await, ours[0].to_string());
}

#[tokio::test]
async fn a_pool_without_space_is_an_error_and_leaks_nothing() {
    let etcd = Etcd::start().expect("etcd");
    let endpoint = etcd.endpoint();
    let (node, client) = node(&endpoint).await;
    create(
        &client,
        pool("tiny", "10.1.0.0/32", |spec| {
            spec.block_size = 32;
            spec.vxlan_mode = VXLANMode::Always;
        }),
    )
    .await;
    let ipam = Ipam::new(client.backend().clone());
    let only = "10.1.0.0".parse().expect("an address");
    let pod = AssignIp { handle: Some("pod".into()), ..AssignIp::new(only, "node-a") };
    ipam.assign_ip(&pod).await.expect("the only address");
    let error = tunnel::run_once(&node.context).await.expect_err("no space").to_string();
    assert!(error.contains("vxlanTunnelAddress of node node-a") && error.contains("10.1.0.0/32"), "{error}");
    assert_eq!(address(&client, TunnelKind::Vxlan).await, "");
    assert!(ipam.ips_by_handle(&"vxlan-tunnel-addr-node-a".into()).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_followed_through_an_outage() {
    let mut etcd = Etcd::start().expect("etcd");
    let endpoint = etcd.endpoint();
    let (node, client) = node(&endpoint).await;
    let (handle, shutdown) = ShutdownHandle::new();
    let context = node.context.clone();
    let following = tokio::spawn(async move { tunnel::run(&context, shutdown).await });
    create(&client, pool("one", "10.1.0.0/16", |spec| spec.vxlan_mode = VXLANMode::Always)).await;
    eventually("the node has an address", || async { !address(&client, TunnelKind::Vxlan).await.is_empty() })
        .await;
    etcd.kill();
    etcd.restart().expect("etcd again");
    eventually("the pool is gone", || async {
        client.resource::<IPPoolSpec>().delete("", "one", &DeleteOptions::default()).await.is_ok_and(|_| true)
            || client
                .resource::<IPPoolSpec>()
                .get("", "one")
                .await
                .is_err_and(|error| error.is_does_not_exist())
    })
    .await;
    eventually("the node has no address", || async { address(&client, TunnelKind::Vxlan).await.is_empty() })
        .await;
    handle.request();
    following.await.expect("no panic").expect("an orderly end");
}

/// An entry that is not JSON: its pool is not used, and an address that may belong to it is not released.
#[tokio::test]
async fn an_unreadable_pool_stops_nothing_and_releases_nothing() {
    let etcd = Etcd::start().expect("etcd");
    let endpoint = etcd.endpoint();
    let (node, client) = node(&endpoint).await;
    create(&client, pool("one", "10.1.0.0/16", |spec| spec.vxlan_mode = VXLANMode::Always)).await;
    tunnel::run_once(&node.context).await.expect("an address");
    let before = address(&client, TunnelKind::Vxlan).await;
    let handle = holder(&client, &before).await;
    assert!(handle.is_some(), "{before} is not allocated");

    // Written directly, because our own checks would reject it.
    let put = |name: &str, text: &str| {
        let key = format!("/calico/resources/v3/projectcalico.org/ippools/{name}");
        assert!(etcd.etcdctl(&["put", &key, text]).expect("etcdctl").status.success());
    };
    let two = |change: &dyn Fn(&mut IPPoolSpec)| {
        serde_json::to_string(&pool("two", "10.2.0.0/16", change)).expect("JSON")
    };
    // The pool of the address becomes unreadable, first alone and then along with another pool.
    put("one", "{not JSON");
    for _ in 0..2 {
        tunnel::run_once(&node.context).await.expect("a pass beside a pool that cannot be read");
        assert_eq!(address(&client, TunnelKind::Vxlan).await, before);
        assert_eq!(holder(&client, &before).await, handle);
        put("two", &two(&|spec| spec.vxlan_mode = VXLANMode::Always));
    }
    // A device without an address gets one from a readable pool.
    put("two", &two(&|spec| spec.ipip_mode = IPIPMode::Always));
    tunnel::run_once(&node.context).await.expect("an address beside a pool that cannot be read");
    assert!(address(&client, TunnelKind::Ipip).await.starts_with("10.2."));
    assert_eq!(address(&client, TunnelKind::Vxlan).await, before);
}
