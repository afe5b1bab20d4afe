//! Chains with the reference plugins: our result goes to portmap, bandwidth and tuning as a runtime hands it on.

use crate::world::{Cluster, Node, Pod, add_node, address_of, answer, pool, told};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::path::Path;

const REFERENCE: &str = "/usr/lib/cni";
const REMEDY: &str = "install Debian's containernetworking-plugins (`make setup` does)";

fn chained(
    node: &Node,
    pod: &Pod,
    command: &str,
    plugin: &str,
    mut configuration: Value,
    previous: &Value,
) -> Result<Value> {
    let program = Path::new(REFERENCE).join(plugin);
    ensure!(program.is_file(), "this test needs {}: {REMEDY}", program.display());
    configuration["prevResult"] = previous.clone();
    configuration["cniVersion"] = "1.0.0".into();
    configuration["name"] = "k8s-pod-network".into();
    configuration["type"] = plugin.into();
    let output = node.start(&program, &pod.call(command), &configuration)?.wait_with_output()?;
    if command == "ADD" {
        return answer(&output).with_context(|| plugin.to_owned());
    }
    ensure!(output.status.success(), "{plugin} {command}: {}", told(&output));
    Ok(Value::Null)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn portmap_bandwidth_and_tuning_take_our_result() -> Result<()> {
    let cluster = Cluster::start(&[pool("pool", "10.10.0.0/16", 26)]).await?;
    add_node(&cluster.client, "node-a").await?;
    let node = Node::on_etcd("node-a", &cluster.etcd)?;
    let (server, client) = (Pod::new("server")?, Pod::new("client")?);
    let result = node.add(&server, json!({}))?;
    node.add(&client, json!({}))?;
    let address = address_of(&result)?;
    let portmap = json!({"snat": true, "capabilities": {"portMappings": true},
        "runtimeConfig": {"portMappings": [{"hostPort": 18080, "containerPort": 80, "protocol": "tcp"}]}});
    let bandwidth = json!({"capabilities": {"bandwidth": true},
        "runtimeConfig": {"bandwidth": {"ingressRate": 10_000_000, "ingressBurst": 1_000_000, "egressRate": 10_000_000, "egressBurst": 1_000_000}}});
    let tuning = json!({"sysctl": {"net.core.somaxconn": "512"}});
    let mapped = chained(&node, &server, "ADD", "portmap", portmap.clone(), &result)?;
    assert_eq!(mapped["ips"], result["ips"]);
    chained(&node, &server, "ADD", "tuning", tuning.clone(), &result)?;
    // The kernel of a test machine may lack token buckets or the devices that shape the other direction.
    let shaped = chained(&node, &server, "ADD", "bandwidth", bandwidth.clone(), &result);
    match &shaped {
        Ok(_) => assert!(node.host.run("tc", &["qdisc", "show", "dev", "caliserver"])?.contains("tbf")),
        Err(error) => {
            let text = format!("{error:#}");
            ensure!(text.contains("not supported") || text.contains("no such file"), "bandwidth: {text}");
        }
    }
    let rules = node
        .host
        .run("iptables-save", &["-t", "nat"])
        .or_else(|_| node.host.run("nft", &["list", "ruleset"]))?;
    assert!(rules.contains("18080") && rules.contains(&address), "{rules}");
    let somaxconn = server.netns.namespace.run(|| netlink::sysctl::read("net/core/somaxconn"))??;
    assert_eq!(somaxconn, "512");
    if shaped.is_ok() {
        chained(&node, &server, "DEL", "bandwidth", bandwidth, &result)?;
    }
    chained(&node, &server, "DEL", "portmap", portmap, &result)?;
    node.del(&server, json!({"prevResult": result}))?;
    node.del(&client, json!({}))?;
    node.assert_bare()?;
    cluster.assert_bare()
}
