//! The datastore goes away and comes back in the middle.

use crate::world::{Cluster, Node, Pod, add_node, pool, refusal, told};
use anyhow::{Result, ensure};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn del_without_a_datastore_is_carried_out_later() -> Result<()> {
    let mut cluster = Cluster::start(&[pool("pool", "10.10.0.0/16", 26)]).await?;
    add_node(&cluster.client, "node-a").await?;
    let node = Node::on_etcd("node-a", &cluster.etcd)?;
    let pods = [Pod::new("c1")?, Pod::new("c2")?, Pod::new("c3")?];
    for pod in &pods {
        node.add(pod, json!({}))?;
    }
    cluster.etcd.kill();
    for pod in &pods[..2] {
        node.del(pod, json!({}))?;
        ensure!(!pod.netns.links()?.contains(&"eth0".to_owned()), "the device is left");
    }
    let pending = || -> Result<usize> {
        Ok(std::fs::read_dir(node.root().join("var/lib/calico/cni-pending"))?.count())
    };
    assert_eq!(pending()?, 2);
    // ADD cannot be put off.
    let fresh = Pod::new("c4")?;
    let output = node.call(&fresh.call("ADD"), &node.configuration(json!({})))?;
    let (code, _) = refusal(&output)?;
    assert_eq!(code, 11, "{}", told(&output));
    cluster.etcd.restart()?;
    assert!(cluster.dump()?.keys().any(|key| key.ends_with("handle/k8s-pod-network.c1")));
    // The next plugin carries out what is due.
    node.del(&pods[2], json!({}))?;
    assert_eq!(pending()?, 0);
    node.assert_bare()?;
    cluster.assert_bare()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_that_comes_back_before_its_release() -> Result<()> {
    let mut cluster = Cluster::start(&[pool("pool", "10.10.0.0/16", 26)]).await?;
    add_node(&cluster.client, "node-a").await?;
    let node = Node::on_etcd("node-a", &cluster.etcd)?;
    let pod = Pod::new("c1")?;
    node.add(&pod, json!({}))?;
    cluster.etcd.kill();
    node.del(&pod, json!({}))?;
    cluster.etcd.restart()?;
    // The release of its first life must not hit its second.
    node.add(&pod, json!({}))?;
    let other = Pod::new("c2")?;
    node.add(&other, json!({}))?;
    node.del(&other, json!({}))?;
    let left = cluster.dump()?;
    assert!(left.keys().any(|key| key.ends_with("handle/k8s-pod-network.c1")), "{left:?}");
    assert!(left.keys().any(|key| key.ends_with("node--a-cni-c1-eth0")), "{left:?}");
    node.del(&pod, json!({}))?;
    node.assert_bare()?;
    cluster.assert_bare()
}
