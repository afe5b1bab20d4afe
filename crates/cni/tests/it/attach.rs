//! Attaching and detaching containers: both families, repetition, versions, errors, other IPAM plugins, CHECK, GC.

use crate::world::{Call, Cluster, Node, Pod, add_node, address_of, answer, pool, reach, refusal, told};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

async fn world(pools: &[Value]) -> Result<(Cluster, Node)> {
    let cluster = Cluster::start(pools).await?;
    add_node(&cluster.client, "node-a").await?;
    let node = Node::on_etcd("node-a", &cluster.etcd)?;
    Ok((cluster, node))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_pods_reach_each_other_and_leave_nothing() -> Result<()> {
    let (cluster, node) = world(&[pool("pool", "10.10.0.0/16", 26)]).await?;
    let (one, two) = (Pod::new("one")?, Pod::new("two")?);
    let first = address_of(&node.add(&one, json!({}))?)?;
    let second = address_of(&node.add(&two, json!({}))?)?;
    reach(&one.netns, &two.netns, &second)?;
    reach(&two.netns, &one.netns, &first)?;
    // A repeated call gets the same answer.
    assert_eq!(address_of(&node.add(&one, json!({}))?)?, first);
    reach(&one.netns, &two.netns, &second)?;
    node.del(&one, json!({}))?;
    assert!(!node.host.ip(&["route"])?.contains(&first));
    node.del(&one, json!({}))?;
    node.del(&two, json!({}))?;
    node.assert_bare()?;
    cluster.assert_bare()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dual_stack_with_settings_of_the_pod() -> Result<()> {
    let (cluster, node) = world(&[pool("v4", "10.10.0.0/16", 26), pool("v6", "fd00:10::/48", 122)]).await?;
    let (one, two) = (Pod::new("one")?, Pod::new("two")?);
    let both = json!({"ipam": {"assign_ipv6": "true"}, "container_settings": {"allow_ip_forwarding": true}});
    let result = node.add(&one, both.clone())?;
    let other = node.add(&two, both.clone())?;
    assert_eq!(result["ips"].as_array().map(Vec::len), Some(2));
    let v6 = other["ips"][1]["address"].as_str().context("no IPv6 address")?.replace("/128", "");
    reach(&one.netns, &two.netns, &v6)?;
    reach(&one.netns, &two.netns, &address_of(&other)?)?;
    let routes = one.netns.ip(&["-6", "route"])?;
    assert!(routes.contains("default via fe80::ecee:eeff:feee:eeee dev eth0"), "{routes}");
    for (path, value) in [
        ("net/ipv4/ip_forward", "1"),
        ("net/ipv6/conf/all/forwarding", "1"),
        ("net/ipv6/conf/eth0/accept_dad", "0"),
    ] {
        assert_eq!(one.netns.namespace.run(|| netlink::sysctl::read(path))??, value, "{path}");
    }
    for name in ["accept_ra", "accept_dad", "disable_ipv6"] {
        let value =
            node.host.namespace.run(|| netlink::sysctl::read(&format!("net/ipv6/conf/calione/{name}")))??;
        assert_eq!(value, "0", "{name}");
    }
    // Only IPv6.
    node.del(&two, both.clone())?;
    let only = json!({"ipam": {"assign_ipv4": "false", "assign_ipv6": "true"}});
    let result = node.add(&two, only.clone())?;
    assert_eq!(result["ips"].as_array().map(Vec::len), Some(1));
    node.del(&two, only)?;
    node.del(&one, both)?;
    node.assert_bare()?;
    cluster.assert_bare()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_version_of_the_protocol() -> Result<()> {
    let (cluster, node) = world(&[pool("pool", "10.10.0.0/16", 26)]).await?;
    for version in ["", "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let pod = Pod::new(&format!("v{}", version.replace('.', "")))?;
        let changes =
            if version.is_empty() { json!({"cniVersion": null}) } else { json!({"cniVersion": version}) };
        let result = node.add(&pod, changes.clone())?;
        let told = if version.is_empty() { "0.2.0" } else { version };
        assert_eq!(result["cniVersion"], told);
        assert_eq!(result.get("ip4").is_some(), told < "0.3.0", "{result}");
        node.del(&pod, changes)?;
    }
    let pod = Pod::new("c")?;
    let output = node.call(&pod.call("ADD"), &node.configuration(json!({"cniVersion": "1.2.0"})))?;
    assert_eq!(refusal(&output)?.0, 1);
    let output = node.call(&pod.call("VERSION"), &json!(null))?;
    let versions = answer(&output)?;
    assert_eq!(versions["supportedVersions"].as_array().map(Vec::len), Some(7));
    node.assert_bare()?;
    cluster.assert_bare()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_are_reported_and_undone() -> Result<()> {
    // A pool of two addresses.
    let (cluster, node) = world(&[pool("pool", "10.10.0.0/31", 31)]).await?;
    let pods = [Pod::new("c1")?, Pod::new("c2")?, Pod::new("c3")?];
    node.add(&pods[0], json!({}))?;
    node.add(&pods[1], json!({}))?;
    let output = node.call(&pods[2].call("ADD"), &node.configuration(json!({})))?;
    let (code, message) = refusal(&output)?;
    assert_eq!(code, 103, "{message}");
    assert!(
        message.starts_with("failed to request IPv4 addresses: Assigned 0 out of 1 requested IPv4 addresses"),
        "{message}"
    );
    assert!(!node.host.links()?.contains(&"calic3".to_owned()), "{}", told(&output));
    assert!(!pods[2].netns.links()?.contains(&"eth0".to_owned()));

    // A foreign route uses the address of the first pod: nothing of the ADD may stay.
    node.del(&pods[0], json!({}))?;
    let free = if node.host.ip(&["route"])?.contains("10.10.0.0 ") { "10.10.0.1" } else { "10.10.0.0" };
    node.host.ip(&["link", "add", "stranger", "type", "bridge"])?;
    node.host.ip(&["link", "set", "stranger", "up"])?;
    node.host.ip(&["route", "add", free, "dev", "stranger", "scope", "link"])?;
    let output = node.call(&pods[2].call("ADD"), &node.configuration(json!({})))?;
    let (code, message) = refusal(&output)?;
    assert_eq!(code, 104, "{message}");
    assert!(
        message.contains("already exists for an interface other than 'calic3'")
            && message.contains("Iface: stranger"),
        "{message}"
    );
    assert!(!node.host.links()?.contains(&"calic3".to_owned()));
    node.host.ip(&["link", "del", "stranger"])?;
    node.del(&pods[1], json!({}))?;
    cluster.assert_bare()?;

    // Not ready: the node's start-up, the datastore, the settings.
    std::fs::rename(node.root().join("var/lib/calico/nodename"), node.root().join("aside"))?;
    let add = |changes: Value| -> Result<(u64, String)> {
        refusal(&node.call(&pods[0].call("ADD"), &node.configuration(changes))?)
    };
    let (code, message) = add(json!({}))?;
    assert!(code == 106 && message.contains("check that the calico/node container is running"), "{message}");
    std::fs::rename(node.root().join("aside"), node.root().join("var/lib/calico/nodename"))?;
    for (changes, code, part) in [
        (json!({"require_mtu_file": true}), 106, "failed to read MTU file"),
        (json!({"device_type": "tap"}), 2, "unknown device_type"),
        (json!({"dataplane_options": {"type": "vpp"}}), 2, "invalid dataplane type: vpp"),
        (
            json!({"feature_control": {"ip_addrs_no_ipam": true}}),
            2,
            "requested feature is not supported for this runtime",
        ),
        (json!({"ipam": {"type": "no-such-ipam"}}), 107, "failed to find plugin \"no-such-ipam\" in path"),
        (json!({"ipam": {"ipv4_pools": ["nope"]}}), 7, "error parsing pool \"nope\""),
        (json!({"policy_setup_timeout_seconds": -1}), 7, "invalid pod startup delay of -1"),
        (json!({"name": "a b"}), 7, "invalid characters detected in the given network name."),
    ] {
        let (found, message) = add(changes)?;
        assert!(found == code && message.contains(part), "{found} {message}");
    }
    node.assert_bare()?;
    cluster.assert_bare()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_local_and_calico_ipam_as_programs() -> Result<()> {
    let (cluster, node) = world(&[pool("pool", "10.10.0.0/16", 26)]).await?;
    let data = node.root().join("host-local");
    let local = json!({"ipam": {"type": "host-local", "subnet": "10.99.0.0/24", "dataDir": data,
        "routes": [{"dst": "10.0.0.0/8"}]}, "include_default_routes": true});
    let (one, two) = (Pod::new("one")?, Pod::new("two")?);
    let result = node.add(&one, local.clone())?;
    let first = address_of(&result)?;
    assert!(first.starts_with("10.99.0."), "{result}");
    assert_eq!(result["ips"][0]["address"], format!("{first}/32"));
    assert_eq!(result["ips"][0].get("gateway"), None);
    let second = address_of(&node.add(&two, local.clone())?)?;
    reach(&one.netns, &two.netns, &second)?;
    // Custom routes are for pods of Kubernetes; other containers get a default route.
    assert!(one.netns.ip(&["route"])?.contains("default via 169.254.1.1"));
    node.del(&one, local.clone())?;
    node.del(&two, local)?;
    let left: Vec<_> = std::fs::read_dir(data.join("k8s-pod-network"))?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("10."))
        .collect();
    assert!(left.is_empty(), "{left:?}");

    // The IPAM plugin by itself, as another main plugin would call it.
    let ipam = node.root().join("bin/calico-ipam");
    let pod = Pod::new("solo")?;
    let call = |command: &'static str| -> Result<std::process::Output> {
        Ok(node.start(&ipam, &pod.call(command), &node.configuration(json!({})))?.wait_with_output()?)
    };
    let result = answer(&call("ADD")?)?;
    assert!(result["ips"][0]["address"].as_str().is_some_and(|it| it.ends_with("/26")), "{result}");
    assert_eq!(result["routes"][0]["dst"], result["ips"][0]["address"]);
    let output = call("DEL")?;
    ensure!(output.status.success(), "{}", told(&output));
    let mut asking = pod.call("ADD");
    asking.args = "IP=10.10.3.7";
    let output = node.start(&ipam, &asking, &node.configuration(json!({})))?.wait_with_output()?;
    assert_eq!(answer(&output)?["ips"][0]["address"], "10.10.3.7/32");
    let output = call("DEL")?;
    ensure!(output.status.success(), "{}", told(&output));
    node.assert_bare()?;
    cluster.assert_bare()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_finds_differences_and_gc_cleans_up() -> Result<()> {
    let (cluster, node) = world(&[pool("pool", "10.10.0.0/16", 26)]).await?;
    let (keep, lose) = (Pod::new("keep")?, Pod::new("lose")?);
    let version = json!({"cniVersion": "1.1.0"});
    let result = node.add(&keep, version.clone())?;
    node.add(&lose, version.clone())?;
    let check = json!({"cniVersion": "1.1.0", "prevResult": result});
    let output = node.call(&keep.call("CHECK"), &node.configuration(check.clone()))?;
    ensure!(output.status.success(), "{}", told(&output));
    keep.netns.ip(&["route", "del", "default"])?;
    node.host.ip(&["route", "flush", "dev", "calikeep"])?;
    let output = node.call(&keep.call("CHECK"), &node.configuration(check))?;
    let (code, message) = refusal(&output)?;
    assert_eq!(code, 108);
    for part in ["the pod has no route to 0.0.0.0/0 via 169.254.1.1", "the host has no route to"] {
        assert!(message.contains(part), "{message}");
    }
    let output = node.call(&keep.call("CHECK"), &node.configuration(version.clone()))?;
    assert!(refusal(&output)?.1.contains("prevResult"));

    let status = Call { command: "STATUS", container: "", netns: "", ifname: "", args: "" };
    let output = node.call(&status, &node.configuration(version.clone()))?;
    ensure!(output.status.success(), "{}", told(&output));

    let gc = Call { command: "GC", ..status };
    let valid = json!({"cniVersion": "1.1.0",
        "cni.dev/valid-attachments": [{"containerID": "keep", "ifname": "eth0"}]});
    let output = node.call(&gc, &node.configuration(valid))?;
    ensure!(output.status.success(), "{}", told(&output));
    let left = cluster.dump()?;
    assert!(left.keys().any(|key| key.ends_with("/handle/k8s-pod-network.keep")));
    assert!(!left.keys().any(|key| key.contains("lose")), "{left:?}");
    node.del(&keep, version.clone())?;
    node.del(&lose, version)?;
    node.assert_bare()?;
    cluster.assert_bare()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_namespace_and_a_new_one() -> Result<()> {
    let (cluster, node) = world(&[pool("pool", "10.10.0.0/16", 26)]).await?;
    let pod = Pod::new("c1")?;
    let first = address_of(&node.add(&pod, json!({}))?)?;
    // The runtime created a new namespace for the same container and repeats the call: same address, wired again.
    let pod = Pod::new("c1")?;
    assert_eq!(address_of(&node.add(&pod, json!({}))?)?, first);
    assert!(pod.netns.ip(&["addr", "show", "eth0"])?.contains(&first));
    // The namespace is gone at DEL.
    let call = Call {
        command: "DEL",
        container: "c1",
        netns: "/var/run/netns/cni-no-such-namespace",
        ifname: "eth0",
        args: "",
    };
    drop(pod);
    let output = node.call(&call, &node.configuration(json!({})))?;
    ensure!(output.status.success(), "{}", told(&output));
    cluster.assert_bare()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gc_of_one_network_leaves_the_others_alone() -> Result<()> {
    let (cluster, node) = world(&[pool("pool", "10.10.0.0/16", 26)]).await?;
    let version = json!({"cniVersion": "1.1.0"});
    let dotted = json!({"cniVersion": "1.1.0", "name": "net.two"});
    let plain = json!({"cniVersion": "1.1.0", "name": "net"});
    let web = Pod::of_kubernetes("web1", "shop", "web")?;
    let (one, two) = (Pod::new("aaaa")?, Pod::new("bbbb")?);
    node.add(&web, version.clone())?;
    node.add(&one, plain.clone())?;
    node.add(&two, dotted.clone())?;
    let gc = |name: &str, valid: Value| -> Result<()> {
        let call = Call { command: "GC", container: "", netns: "", ifname: "", args: "" };
        let changes = json!({"cniVersion": "1.1.0", "name": name, "cni.dev/valid-attachments": valid});
        let output = node.call(&call, &node.configuration(changes))?;
        ensure!(output.status.success(), "{}", told(&output));
        Ok(())
    };
    let before = cluster.dump()?;
    gc("second-net", json!([]))?;
    gc("net", json!([{"containerID": "aaaa", "ifname": "eth0"}]))?;
    gc("net.two", json!([{"containerID": "bbbb", "ifname": "eth0"}]))?;
    let changed: Vec<String> = cluster.dump()?.into_keys().filter(|key| !before.contains_key(key)).collect();
    assert!(changed.is_empty() && cluster.dump()?.len() == before.len(), "{:?}", cluster.dump()?);
    // GC of its own network removes it.
    gc("net", json!([]))?;
    let left = cluster.dump()?;
    assert!(!left.keys().any(|key| key.contains("aaaa")), "{left:?}");
    assert!(left.keys().any(|key| key.ends_with("/handle/net.two.bbbb")), "{left:?}");
    gc("net.two", json!([]))?;
    gc("k8s-pod-network", json!([]))?;
    cluster.assert_bare()?;
    node.del(&web, version)?;
    node.del(&one, plain)?;
    node.del(&two, dotted)?;
    node.assert_bare()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handle_of_calico_2_is_not_confused_with_another_network() -> Result<()> {
    let (cluster, node) = world(&[pool("pool", "10.10.0.0/16", 26)]).await?;
    let shop = json!({"name": "shop"});
    let (live, pod) = (Pod::new("web")?, Pod::of_kubernetes("c1", "shop", "web")?);
    node.add(&live, shop.clone())?;
    node.add(&pod, json!({}))?;
    // Calico 2 would have named the pod's handle like that of the container of network `shop`.
    node.del(&pod, json!({}))?;
    let left = cluster.dump()?;
    assert!(left.keys().any(|key| key.ends_with("/handle/shop.web")), "{left:?}");
    node.del(&live, shop)?;
    node.assert_bare()?;
    cluster.assert_bare()
}
