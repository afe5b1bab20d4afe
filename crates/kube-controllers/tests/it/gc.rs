//! Garbage collection of addresses, with Calico's data in Kubernetes and in etcd.

use crate::stage::{Stage, Store, eventually};
use anyhow::{Result, ensure};
use api::{NodeSpec, Object, OrchRef};
use ipam::Owner;
use kube_controllers::for_tests::IpamGc;
use model::{AffinityType, ListOptions};
use serde_json::json;
use std::net::IpAddr;
use std::time::Duration;

/// Short, but long enough that nothing is released by mistake on a busy machine.
const GRACE: Duration = Duration::from_secs(3);

async fn blocks_of(stage: &Stage, node: &str) -> Result<usize> {
    let list = ListOptions::BlockAffinity {
        host: Some(node.to_owned()),
        affinity_type: Some(AffinityType::Host),
        ip_version: None,
    };
    Ok(stage.client.backend().list(&list, None).await?.items.len())
}

async fn until_free(stage: &Stage, what: &str, address: IpAddr) -> Result<()> {
    eventually(what, || async move { Ok(!stage.is_taken(address).await?) }).await
}

async fn collector(stage: &Stage) -> crate::stage::Running {
    let context = stage.context();
    let collector = IpamGc::new(&context, Some(GRACE));
    stage.run(&context, vec![Box::new(collector)])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaks_blocks_and_nodes_are_collected_from_kubernetes() -> Result<()> {
    let mut stage = Stage::start(Store::Kubernetes).await?;
    stage.namespace("shop").await?;
    stage.pool("pods", json!({"cidr": "10.65.0.0/16", "blockSize": 28})).await?;
    for node in ["gc-1", "gc-2"] {
        stage.node(node).await?;
    }
    let web = stage.take("gc-1", "k8s-pod-network.web", "shop", "web").await?;
    let old = stage.take("gc-1", "k8s-pod-network.old", "shop", "old").await?;
    let early = stage.take("gc-1", "k8s-pod-network.early", "shop", "early").await?;
    stage.pod("shop", "web", "gc-1", &[web]).await?;
    // A pod that has not reported its address yet.
    stage.pod("shop", "early", "gc-1", &[]).await?;

    let running = collector(&stage).await;
    until_free(&stage, "the address of a pod that is not there", old).await?;
    ensure!(stage.is_taken(web).await? && stage.is_taken(early).await?, "pods that are there keep theirs");
    for figure in [
        r#"ipam_allocations_in_use{ippool="pods",node="gc-1"} 2"#,
        r#"ipam_allocations_gc_reclamations{ippool="pods",node="gc-1"} 1"#,
        r#"ipam_ippool_size{ippool="pods"} 65536"#,
        r#"ipam_blocks_per_node{node="gc-1"} 1"#,
        r#"ipam_allocations_in_use{ippool="pods",node="gc-2"} 0"#,
    ] {
        let metrics = running.metrics.clone();
        eventually(figure, || std::future::ready(Ok(metrics.page().contains(figure)))).await?;
    }

    // A pod that restarts with another address leaves the old one behind.
    let again = stage.take("gc-1", "k8s-pod-network.web2", "shop", "web").await?;
    stage.report("shop", "web", &[again]).await?;
    until_free(&stage, "the address of an earlier start", web).await?;

    // While the controllers are stopped, a pod is deleted without releasing its address. Its deletion is never seen.
    running.stop().await;
    stage.delete("/api/v1/namespaces/shop/pods/web").await?;
    let running = collector(&stage).await;
    until_free(&stage, "the address of a pod that went unseen", again).await?;

    // An idle block is released, but not the last one.
    let owner = Owner { affinity_type: AffinityType::Host, host: "gc-1".to_owned() };
    stage.ipam.claim_affinity("10.65.200.0/28".parse()?, &owner).await?;
    ensure!(blocks_of(&stage, "gc-1").await? == 2);
    eventually("an idle block is given up", || async { Ok(blocks_of(&stage, "gc-1").await? == 1) }).await?;
    ensure!(stage.is_taken(early).await?);

    // The API server goes away and comes back; changes in the meantime are found.
    let lost = stage.take("gc-1", "k8s-pod-network.lost", "shop", "lost").await?;
    stage.api.kill();
    stage.api.restart()?;
    until_free(&stage, "a leak during an outage", lost).await?;

    // A node is deleted; a pod of it stays in the API for a while, and it has leaked addresses and a tunnel address.
    // That pod is created before its address: a busy machine may need longer for all of them than the grace period.
    stage.pod("shop", "p0", "gc-2", &[]).await?;
    let mut addresses = Vec::new();
    for number in 0..20 {
        let (pod, handle) = (format!("p{number}"), format!("k8s-pod-network.p{number}"));
        addresses.push(stage.take("gc-2", &handle, "shop", &pod).await?);
    }
    let tunnel: IpAddr = "10.65.77.1".parse()?;
    stage.take_tunnel("gc-2", tunnel).await?;
    stage.report("shop", "p0", &addresses[..1]).await?;
    stage.delete("/api/v1/nodes/gc-2").await?;
    for address in &addresses[1..] {
        until_free(&stage, "an address of a node that is gone", *address).await?;
    }
    ensure!(stage.is_taken(addresses[0]).await?, "a pod of the node is still there");
    ensure!(stage.is_taken(tunnel).await?, "and so the tunnel address stays");
    stage.delete("/api/v1/namespaces/shop/pods/p0").await?;
    until_free(&stage, "the last pod's address", addresses[0]).await?;
    until_free(&stage, "the tunnel address", tunnel).await?;
    eventually("the node's blocks", || async { Ok(blocks_of(&stage, "gc-2").await? == 0) }).await?;
    ensure!(stage.is_taken(early).await?, "nothing of the other node was touched");
    running.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renamed_and_foreign_nodes_are_distinguished_in_etcd() -> Result<()> {
    let stage = Stage::start(Store::Etcd).await?;
    stage.namespace("shop").await?;
    stage.pool("pods", json!({"cidr": "10.66.0.0/16", "blockSize": 28})).await?;
    stage.node("kube-1").await?;
    let orchestrated = |name: &str| NodeSpec {
        orch_refs: vec![OrchRef {
            node_name: name.to_owned(),
            orchestrator: "k8s".to_owned(),
            ..OrchRef::default()
        }],
        ..NodeSpec::default()
    };
    let nodes = stage.client.resource::<NodeSpec>();
    nodes.create(Object::new("", "cal-1", orchestrated("kube-1"))).await?;
    nodes.create(Object::new("", "cal-2", orchestrated("kube-2"))).await?;
    nodes.create(Object::new("", "bare", NodeSpec::default())).await?;
    let web = stage.take("cal-1", "net.web", "shop", "web").await?;
    stage.pod("shop", "web", "kube-1", &[web]).await?;
    let old = stage.take("cal-1", "net.old", "shop", "old").await?;
    let gone = stage.take("cal-2", "net.gone", "shop", "gone").await?;
    let bare = stage.take("bare", "net.bare", "shop", "bare").await?;

    let running = collector(&stage).await;
    until_free(&stage, "the address on a node that Kubernetes does not have", gone).await?;
    until_free(&stage, "a leak", old).await?;
    eventually("blocks of the node that is gone", || async { Ok(blocks_of(&stage, "cal-2").await? == 0) })
        .await?;
    ensure!(stage.is_taken(web).await? && stage.is_taken(bare).await?);
    ensure!(blocks_of(&stage, "cal-1").await? == 1 && blocks_of(&stage, "bare").await? == 1);
    running.stop().await;
    Ok(())
}
