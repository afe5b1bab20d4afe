//! The time from the deletion of a node until its 100 addresses and its blocks are free, with Calico's data in
//! Kubernetes and in etcd, compared with the minimum: the same release done directly, without checking whether anything
//! is in use.

#![expect(clippy::print_stdout, reason = "the table is this program's output")]

#[expect(dead_code, reason = "tests use more of it")]
#[path = "../tests/it/stage.rs"]
mod stage;

use anyhow::{Result, ensure};
use api::{NodeSpec, Object, OrchRef};
use futures::StreamExt as _;
use ipam::{AssignIp, Owner, Release};
use kube_controllers::for_tests::IpamGc;
use model::{AffinityType, ListOptions};
use serde_json::json;
use stage::{Stage, Store, eventually};
use std::net::IpAddr;
use std::time::{Duration, Instant};
use testkit::{Report, median};

const ROUNDS: usize = 5;
const PODS: u8 = 100;

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut report = Report::new("gc");
        for (name, store) in [("Kubernetes", Store::Kubernetes), ("etcd", Store::Etcd)] {
            measure(name, store, &mut report).await?;
        }
        print!("{}", report.markdown());
        report.record()
    })
}

async fn measure(name: &str, store: Store, report: &mut Report) -> Result<()> {
    let stage = Stage::start(store).await?;
    stage.namespace("shop").await?;
    stage.pool("pods", json!({"cidr": "10.64.0.0/14", "blockSize": 26})).await?;
    let context = stage.context();
    let collector = IpamGc::new(&context, Some(Duration::from_secs(900)));
    let running = stage.run(&context, vec![Box::new(collector)]);
    let (mut ours, mut floors) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let node = format!("node-{round}");
        let addresses = populate(&stage, store, &node, u8::try_from(round)?).await?;
        let pods = (0..PODS).map(|pod| format!("/api/v1/namespaces/shop/pods/{node}-{pod}"));
        let stage_of_pods = &stage;
        let deletions: Vec<_> = pods.map(|path| async move { stage_of_pods.delete(&path).await }).collect();
        let outcomes: Vec<Result<()>> = futures::stream::iter(deletions).buffer_unordered(8).collect().await;
        outcomes.into_iter().collect::<Result<Vec<()>>>()?;
        for address in &addresses {
            ensure!(stage.is_taken(*address).await?, "the node is there, so nothing is certain yet");
        }
        let begin = Instant::now();
        stage.delete(&format!("/api/v1/nodes/{node}")).await?;
        eventually("everything is free", || async { Ok(claims(&stage, &node).await? == 0) }).await?;
        let ours_now = begin.elapsed();
        for address in &addresses {
            ensure!(!stage.is_taken(*address).await?);
        }
        let floor = direct(&stage, store, &format!("floor-{round}"), u8::try_from(round)?).await?;
        // The first round is for warming up.
        if round > 0 {
            ours.push(ours_now.as_secs_f64() * 1000.0);
            floors.push(floor.as_secs_f64() * 1000.0);
        }
    }
    let (ours, floor) = (median(ours), median(floors));
    report.row(
        &format!("addresses and blocks of a deleted node with {PODS} pods, {name}"),
        &format!("{ours:.0} ms"),
        &format!("the same release without any check: {floor:.0} ms"),
        &format!("{:.2}", ours / floor),
        "below 10",
    );
    running.stop().await;
    Ok(())
}

/// Creates a node with pods that have addresses.
async fn populate(stage: &Stage, store: Store, node: &str, round: u8) -> Result<Vec<IpAddr>> {
    stage.node(node).await?;
    if store == Store::Etcd {
        let orchestrated =
            OrchRef { node_name: node.to_owned(), orchestrator: "k8s".to_owned(), ..OrchRef::default() };
        let spec = NodeSpec { orch_refs: vec![orchestrated], ..NodeSpec::default() };
        stage.client.resource::<NodeSpec>().create(Object::new("", node, spec)).await?;
    }
    let mut addresses = Vec::new();
    for pod in 0..PODS {
        let address = IpAddr::from([10, 64, round, pod]);
        assign(stage, node, &format!("{node}-{pod}"), address).await?;
        stage.pod("shop", &format!("{node}-{pod}"), node, &[address]).await?;
        addresses.push(address);
    }
    Ok(addresses)
}

async fn assign(stage: &Stage, node: &str, pod: &str, address: IpAddr) -> Result<()> {
    let attributes = [("node", node), ("namespace", "shop"), ("pod", pod)];
    let request = AssignIp {
        handle: Some(format!("k8s-pod-network.{pod}").into()),
        attributes: attributes.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        ..AssignIp::new(address, node)
    };
    Ok(stage.ipam.assign_ip(&request).await?)
}

async fn claims(stage: &Stage, node: &str) -> Result<usize> {
    let list = ListOptions::BlockAffinity {
        host: Some(node.to_owned()),
        affinity_type: Some(AffinityType::Host),
        ip_version: None,
    };
    Ok(stage.client.backend().list(&list, None).await?.items.len())
}

/// Releases the same directly, without any check.
async fn direct(stage: &Stage, store: Store, node: &str, round: u8) -> Result<Duration> {
    // The node must exist, or the collector would be faster.
    stage.node(node).await?;
    if store == Store::Etcd {
        stage.client.resource::<NodeSpec>().create(Object::new("", node, NodeSpec::default())).await?;
    }
    let mut releases = Vec::new();
    for pod in 0..PODS {
        let address = IpAddr::from([10, 65, round, pod]);
        assign(stage, node, &format!("{node}-{pod}"), address).await?;
        releases.push(Release {
            handle: Some(format!("k8s-pod-network.{node}-{pod}").into()),
            ..Release::of(address)
        });
    }
    let begin = Instant::now();
    let outcome = stage.ipam.release_ips(&releases).await?;
    ensure!(outcome.failure.is_none(), "{:?}", outcome.failure);
    let owner = Owner { affinity_type: AffinityType::Host, host: node.to_owned() };
    stage.ipam.release_host_affinities(&owner, true).await?;
    Ok(begin.elapsed())
}
