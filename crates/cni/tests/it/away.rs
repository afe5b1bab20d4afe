//! The datastore becomes unreachable and returns during the calls.

use crate::world::{Cluster, Node, Pod, add_node, pool, refusal, told};
use anyhow::{Result, ensure};
use serde_json::json;
use std::time::{Duration, Instant};

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
    // ADD cannot be postponed.
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

/// A folder through which a test holds a program at a named step.
struct Hold {
    folder: testkit::Folder,
}

impl Hold {
    fn new() -> Result<Self> {
        Ok(Self { folder: testkit::Folder::new("hold")? })
    }

    fn variables(&self) -> [(&'static str, String); 2] {
        let [at, folder] = cni::for_tests::HOLD_VARIABLES;
        [(at, "due-listed".to_owned()), (folder, self.folder.path().display().to_string())]
    }

    fn wait_until_held(&self) -> Result<()> {
        testkit::eventually("the program comes to the step", || {
            self.folder.path().join("due-listed").exists()
        })
    }

    fn let_go(&self) -> Result<()> {
        Ok(std::fs::remove_file(self.folder.path().join("due-listed"))?)
    }
}

fn is_attached(cluster: &Cluster, network: &str, container: &str) -> Result<bool> {
    let stored = cluster.dump()?;
    let has = |end: String| stored.keys().any(|key| key.ends_with(&end));
    Ok(has(format!("/handle/{network}.{container}")) && has(format!("node--a-cni-{container}-eth0")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_release_does_not_hit_a_container_that_runs_again() -> Result<()> {
    let mut cluster = Cluster::start(&[pool("pool", "10.10.0.0/16", 26)]).await?;
    add_node(&cluster.client, "node-a").await?;
    let mut node = Node::on_etcd("node-a", &cluster.etcd)?;
    let pods = [Pod::new("aa1")?, Pod::new("aa2")?, Pod::new("ccc")?, Pod::new("cc2")?];
    for pod in &pods {
        node.add(pod, json!({}))?;
    }
    cluster.etcd.kill();
    for pod in &pods {
        node.del(pod, json!({}))?;
    }
    cluster.etcd.restart()?;
    // A plugin that has read what is due, and is slow to carry it out.
    let hold = Hold::new()?;
    node.variables.extend(hold.variables().map(|(name, value)| (name.to_owned(), value)));
    let other = Pod::new("ddd")?;
    let plugin = node.root().join("bin/calico");
    let slow = node.start(&plugin, &other.call("ADD"), &node.configuration(json!({})))?;
    hold.wait_until_held()?;
    node.variables.clear();
    // Meanwhile two of these containers run again, one of them in another network.
    let calm = json!({"agent_socket": "none"});
    let second = json!({"agent_socket": "none", "name": "net.two"});
    node.add(&pods[2], calm.clone())?;
    node.add(&pods[3], second.clone())?;
    hold.let_go()?;
    let output = slow.wait_with_output()?;
    ensure!(output.status.success(), "{}", told(&output));
    ensure!(is_attached(&cluster, "k8s-pod-network", "ccc")?, "{:?}", cluster.dump()?);
    ensure!(is_attached(&cluster, "net.two", "cc2")?, "{:?}", cluster.dump()?);
    node.del(&pods[2], calm.clone())?;
    node.del(&pods[3], second)?;
    node.del(&other, calm)?;
    assert_eq!(std::fs::read_dir(node.root().join("var/lib/calico/cni-pending"))?.count(), 0);
    assert_eq!(std::fs::read_dir(node.root().join("var/run/calico/cni/turns"))?.count(), 0);
    node.assert_bare()?;
    cluster.assert_bare()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agents_late_release_does_not_hit_a_container_that_runs_again() -> Result<()> {
    let mut cluster = Cluster::start(&[pool("pool", "10.10.0.0/16", 26)]).await?;
    add_node(&cluster.client, "node-a").await?;
    let node = Node::on_etcd("node-a", &cluster.etcd)?;
    let (pod, last) = (Pod::new("ccc")?, Pod::new("zzz")?);
    node.add(&pod, json!({}))?;
    node.add(&last, json!({}))?;
    cluster.etcd.kill();
    node.del(&pod, json!({}))?;
    node.del(&last, json!({}))?;
    cluster.etcd.restart()?;
    let hold = Hold::new()?;
    let variables = hold.variables();
    let variables: Vec<(&str, &str)> =
        variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let agent = crate::agent::Agent::start(&node, &variables)?;
    hold.wait_until_held()?;
    node.add(&pod, json!({}))?;
    hold.let_go()?;
    // The agent continues with what it had read, and is done when the last release is carried out.
    let deadline = Instant::now() + Duration::from_secs(120);
    while std::fs::read_dir(node.root().join("var/lib/calico/cni-pending"))?.count() > 0 {
        ensure!(Instant::now() < deadline, "the release is still due");
        std::thread::sleep(Duration::from_millis(20));
    }
    ensure!(is_attached(&cluster, "k8s-pod-network", "ccc")?, "{:?}", cluster.dump()?);
    node.del(&pod, json!({}))?;
    agent.kill()?;
    node.assert_bare()?;
    cluster.assert_bare()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_plugins_get_their_addresses_back_without_a_datastore() -> Result<()> {
    let mut cluster = Cluster::start(&[pool("pool", "10.10.0.0/16", 26)]).await?;
    add_node(&cluster.client, "node-a").await?;
    let node = Node::on_etcd("node-a", &cluster.etcd)?;
    let data = node.root().join("host-local");
    let local = json!({"ipam": {"type": "host-local", "subnet": "10.99.0.0/24", "dataDir": data}});
    let leases = || -> Result<usize> {
        let found = std::fs::read_dir(data.join("k8s-pod-network"))?.flatten();
        Ok(found.filter(|entry| entry.file_name().to_string_lossy().starts_with("10.")).count())
    };
    let pod = Pod::new("c1")?;
    node.add(&pod, local.clone())?;
    assert_eq!(leases()?, 1);
    cluster.etcd.kill();
    node.del(&pod, local.clone())?;
    assert_eq!(leases()?, 0, "the lease is left");
    cluster.etcd.restart()?;
    // The next call removes the endpoint, whatever its network.
    let other = Pod::new("c2")?;
    node.add(&other, json!({}))?;
    ensure!(!cluster.dump()?.keys().any(|key| key.contains("c1-eth0")), "{:?}", cluster.dump()?);
    node.del(&other, json!({}))?;
    cluster.assert_bare()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_that_cannot_be_carried_out_do_not_delay_others() -> Result<()> {
    let mut cluster = Cluster::start(&[pool("pool", "10.10.0.0/16", 26)]).await?;
    add_node(&cluster.client, "node-a").await?;
    let node = Node::on_etcd("node-a", &cluster.etcd)?;
    // Eight releases for a datastore that is gone for good; their names sort first.
    let gone = json!({"etcd_endpoints": "http://127.0.0.1:1"});
    for number in 0..8 {
        node.del(&Pod::new(&format!("a{number}"))?, gone.clone())?;
    }
    let pod = Pod::new("z1")?;
    node.add(&pod, json!({}))?;
    cluster.etcd.kill();
    node.del(&pod, json!({}))?;
    cluster.etcd.restart()?;
    let other = Pod::new("z2")?;
    node.add(&other, json!({}))?;
    ensure!(!cluster.dump()?.keys().any(|key| key.contains("z1")), "{:?}", cluster.dump()?);
    assert_eq!(std::fs::read_dir(node.root().join("var/lib/calico/cni-pending"))?.count(), 8);
    node.del(&other, json!({}))?;
    cluster.assert_bare()
}
