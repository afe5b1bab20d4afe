//! Chains with the reference plugins: our result is passed to portmap, bandwidth and tuning as a runtime does.

use crate::world::{Cluster, Netns, Node, Pod, add_node, address_of, answer, pool, told};
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

/// Whether this kernel supports what the plugin needs: token buckets, an ingress queue, a redirecting filter, and the
/// devices that it redirects to.
fn can_shape() -> Result<bool> {
    let probe = Netns::new("probe")?;
    let steps: [&[&str]; 5] = [
        &["ip", "link", "add", "shape0", "type", "ifb"],
        &["ip", "link", "set", "shape0", "up"],
        &[
            "tc", "qdisc", "add", "dev", "shape0", "root", "tbf", "rate", "1mbit", "burst", "10k", "latency",
            "25ms",
        ],
        &["tc", "qdisc", "add", "dev", "lo", "ingress"],
        &[
            "tc", "filter", "add", "dev", "lo", "parent", "ffff:", "u32", "match", "u32", "0", "0", "action",
            "mirred", "egress", "redirect", "dev", "shape0",
        ],
    ];
    Ok(steps.iter().all(|step| probe.run(step[0], &step[1..]).is_ok()))
}

/// Checks that traffic to the pod is shaped on the host's end of its device, and traffic from it on the device that it
/// is redirected to.
fn shapes_both_directions(node: &Node) -> Result<()> {
    let towards = node.host.run("tc", &["qdisc", "show", "dev", "caliserver"])?;
    ensure!(
        towards.contains("tbf") && towards.contains("10Mbit") && towards.contains("ingress"),
        "{towards}"
    );
    let filter = node.host.run("tc", &["filter", "show", "dev", "caliserver", "parent", "ffff:"])?;
    ensure!(filter.contains("mirred"), "{filter}");
    let links = node.host.run("ip", &["-details", "link", "show", "type", "ifb"])?;
    let device = links.split(": ").nth(1).context("no device for the other direction")?;
    let back = node.host.run("tc", &["qdisc", "show", "dev", device])?;
    ensure!(back.contains("tbf") && back.contains("10Mbit"), "{back}");
    Ok(())
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
    let can_shape = can_shape()?;
    let shaped = chained(&node, &server, "ADD", "bandwidth", bandwidth.clone(), &result);
    match &shaped {
        Ok(chained) => {
            ensure!(can_shape, "the probe says that this kernel cannot shape, and the plugin could");
            assert_eq!(chained["ips"], result["ips"]);
            shapes_both_directions(&node)?;
        }
        Err(error) => {
            // The kernel lacks token buckets, or the devices that shape the other direction.
            ensure!(!can_shape, "this kernel can shape, and the plugin could not: {error:#}");
            ensure!(format!("{error:#}").contains("not supported"), "bandwidth: {error:#}");
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
        ensure!(
            node.host.run("ip", &["link", "show", "type", "ifb"])?.is_empty(),
            "a shaping device is left"
        );
    }
    chained(&node, &server, "DEL", "portmap", portmap, &result)?;
    node.del(&server, json!({"prevResult": result}))?;
    node.del(&client, json!({}))?;
    node.assert_bare()?;
    cluster.assert_bare()
}
