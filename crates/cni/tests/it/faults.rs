//! kill -9 at every step of ADD: a following DEL leaves nothing, nor does a repeated ADD followed by a DEL.

use crate::world::{Cluster, Node, Pod, add_node, address_of, pool, told};
use anyhow::{Result, ensure};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_every_step() -> Result<()> {
    let cluster = Cluster::start(&[pool("v4", "10.10.0.0/16", 26), pool("v6", "fd00:10::/48", 122)]).await?;
    add_node(&cluster.client, "node-a").await?;
    let node = Node::on_etcd("node-a", &cluster.etcd)?;
    let configuration = node.configuration(json!({"ipam": {"assign_ipv6": "true"}}));
    let both = json!({"ipam": {"assign_ipv6": "true"}});
    for step in cni::for_tests::STEPS {
        for repeat in [false, true] {
            let pod = Pod::new(&format!("{}{repeat}", step.replace('-', "")))?;
            let mut command = node.command(&node.root().join("bin/calico"), &pod.call("ADD"));
            command.env("TORTIE_CNI_DIE_AT", step);
            let output = run(&node, command, &configuration.to_string())?;
            ensure!(output.status.code().is_none(), "{step}: the plugin was not killed: {}", told(&output));
            if repeat {
                let result = node.add(&pod, both.clone())?;
                let inside = pod.netns.ip(&["addr", "show", "eth0"])?;
                ensure!(inside.contains(&address_of(&result)?), "{step}: {inside}");
            }
            node.del(&pod, both.clone())?;
            ensure!(!pod.netns.links()?.contains(&"eth0".to_owned()), "{step}: eth0 is left");
            node.assert_bare()?;
            cluster.assert_bare()?;
        }
    }
    Ok(())
}

fn run(node: &Node, mut command: std::process::Command, input: &str) -> Result<std::process::Output> {
    use std::io::Write as _;
    command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut child = node.host.namespace.run(move || command.spawn())??;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    Ok(child.wait_with_output()?)
}
