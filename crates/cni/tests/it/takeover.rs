//! `calico-ipam -upgrade`: Calico takes over the addresses of `host-local`, on a real kube-apiserver with the real
//! plugin.

use crate::kubernetes::World;
use crate::world::{Pod, address_of, pool, told};
use anyhow::{Context as _, Result, ensure};
use ipam::Ipam;
use serde_json::json;
use std::process::{Command, Output};

fn upgrade(world: &World) -> Result<Output> {
    let node = &world.node;
    let mut command = Command::new(node.root().join("bin/calico-ipam"));
    command
        .arg("-upgrade")
        .env_clear()
        .env("TORTIE_HOST_ROOT", node.root())
        .env("KUBERNETES_NODE_NAME", &node.name)
        .env("KUBECONFIG", world.api.kubeconfig())
        .env("CALICO_API_GROUP", "crd.projectcalico.org/v1");
    let output = node.host.namespace.run(move || command.output())??;
    ensure!(output.status.success(), "{}", told(&output));
    Ok(output)
}

async fn is_ready(world: &World) -> Result<bool> {
    let found = world.client.resource::<api::ClusterInformationSpec>().get("", "default").await?;
    Ok(found.spec.datastore_ready == Some(true))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_of_host_local_are_taken_over() -> Result<()> {
    let world = World::start().await?;
    let node = &world.node;
    let wanted: api::IPPool = serde_json::from_value(pool("pool-c", "10.30.0.0/16", 26))?;
    world.client.resource::<api::IPPoolSpec>().create(wanted).await?;
    ensure!(told(&upgrade(&world)?).contains("nothing to take over"), "there was something to take over");

    let networks = node.root().join("var/lib/cni/networks");
    let local = json!({"ipam": {"type": "host-local", "subnet": "usePodCidr", "dataDir": networks}});
    let pods: Vec<Pod> = ["one", "two"]
        .iter()
        .map(|name| world.pod(name, &format!("cid-{name}"), &json!({})))
        .collect::<Result<_>>()?;
    let mut addresses = Vec::new();
    for pod in &pods {
        addresses.push(address_of(&node.add(pod, local.clone())?)?);
    }
    let folder = networks.join("k8s-pod-network");
    ensure!(folder.join(&addresses[0]).is_file(), "host-local keeps its addresses elsewhere");
    // A file that was not removed with its pod.
    std::fs::write(folder.join("10.30.0.77"), "gone\r\neth0")?;
    // Older plugins must not assign addresses in the meantime. A first run that was killed has locked the datastore.
    let old = node.root().join("host/opt/cni/bin");
    std::fs::create_dir_all(&old)?;
    std::fs::write(old.join("calico"), "")?;
    let close = |information: &mut api::ClusterInformation| {
        information.spec.datastore_ready = Some(false);
        true
    };
    world.client.resource::<api::ClusterInformationSpec>().update_with_retry("", "default", close).await?;

    let output = upgrade(&world)?;
    ensure!(told(&output).contains("took over 2 addresses"), "{}", told(&output));
    ensure!(!folder.exists() && !old.join("calico").exists(), "something of host-local is left");
    ensure!(is_ready(&world).await?, "the datastore is still closed");
    let ipam = Ipam::new(world.client.backend().clone());
    for (pod, address) in pods.iter().zip(&addresses) {
        let record = ipam.allocation(address.parse()?).await?.context("the address is free")?;
        assert_eq!(record.handle_id, Some(format!("k8s-pod-network.{}", pod.container)));
        let name = pod.container.replace("cid-", "");
        let has = |name: &str| record.active_owner_attrs.get(name).cloned().unwrap_or_default();
        assert_eq!(
            (has("pod"), has("namespace"), has("node")),
            (name, "shop".to_owned(), "node-a".to_owned())
        );
    }
    assert!(ipam.allocation("10.30.0.77".parse()?).await?.is_none());
    // The tunnel keeps the address that it had with host-local: the first of the node's range.
    let stored = world.client.resource::<api::NodeSpec>().get("", "node-a").await?;
    let tunnel = stored.spec.bgp.map(|bgp| bgp.ipv4_ipip_tunnel_addr.to_string()).unwrap_or_default();
    assert_eq!(tunnel, "10.30.0.1");
    let record = ipam.allocation("10.30.0.1".parse()?).await?.context("the tunnel has no address")?;
    assert_eq!(record.handle_id.as_deref(), Some("ipip-tunnel-addr-node-a"));
    ensure!(told(&upgrade(&world)?).contains("nothing to take over"), "it was not over");

    // From now on Calico releases these addresses, and they are not assigned twice.
    let other =
        world.pod("three", "cid-three", &json!({"cni.projectcalico.org/ipv4pools": "[\"pool-c\"]"}))?;
    let third = address_of(&node.add(&other, json!({}))?)?;
    ensure!(!addresses.contains(&third) && third != tunnel, "{third} was given out twice");
    for pod in pods.iter().chain([&other]) {
        node.del(pod, json!({}))?;
    }
    ipam.release_by_handle(&"ipip-tunnel-addr-node-a".into()).await?;
    world.assert_bare().await
}
