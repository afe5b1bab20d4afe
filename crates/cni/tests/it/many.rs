//! Two hundred containers at once, with nothing leaked.

use crate::world::{Cluster, Node, Pod, add_node, address_of, answer, pool, told};
use anyhow::{Result, ensure};
use serde_json::json;
use std::collections::BTreeSet;

const COUNT: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_at_once() -> Result<()> {
    let cluster = Cluster::start(&[pool("pool", "10.10.0.0/16", 26)]).await?;
    add_node(&cluster.client, "node-a").await?;
    let node = Node::on_etcd("node-a", &cluster.etcd)?;
    let pods: Vec<Pod> = (0..COUNT).map(|number| Pod::new(&format!("c{number}"))).collect::<Result<_>>()?;
    let configuration = node.configuration(json!({}));
    let everybody = |command: &'static str| -> Result<Vec<std::process::Output>> {
        let plugin = node.root().join("bin/calico");
        let started: Vec<_> = pods
            .iter()
            .map(|pod| node.start(&plugin, &pod.call(command), &configuration))
            .collect::<Result<_>>()?;
        started.into_iter().map(|child| Ok(child.wait_with_output()?)).collect()
    };
    let mut addresses = BTreeSet::new();
    for output in everybody("ADD")? {
        addresses.insert(address_of(&answer(&output)?)?);
    }
    assert_eq!(addresses.len(), COUNT);
    let routes = node.host.ip(&["route"])?;
    assert_eq!(routes.lines().filter(|line| line.contains(" dev cali")).count(), COUNT);
    for output in everybody("DEL")? {
        ensure!(output.status.success(), "{}", told(&output));
    }
    node.assert_bare()?;
    cluster.assert_bare()
}
