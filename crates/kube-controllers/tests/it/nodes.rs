//! Nodes: labels, deletion and host endpoints, with the etcd and the Kubernetes datastore.

use crate::world::{World, eventually, servers};
use anyhow::Result;
use api::{
    HostEndpointSpec, KubeControllersConfigurationSpec, NodeBGPSpec, NodeSpec, Object, OrchRef,
    WorkloadEndpointSpec,
};
use client::{Client, DeleteOptions, ListQuery};
use serde_json::json;

const NODES: &[(&str, &str)] = &[("ENABLED_CONTROLLERS", "node")];

async fn calico_node(client: &Client, name: &str, kubernetes_name: &str) -> Result<()> {
    let reference = OrchRef {
        node_name: kubernetes_name.to_owned(),
        orchestrator: "k8s".to_owned(),
        ..OrchRef::default()
    };
    let spec = NodeSpec {
        bgp: Some(NodeBGPSpec { ipv4_address: "172.16.1.1/24".into(), ..NodeBGPSpec::default() }),
        orch_refs: if kubernetes_name.is_empty() { Vec::new() } else { vec![reference] },
        ..NodeSpec::default()
    };
    let mut node = Object::new("", name, spec);
    node.metadata.labels.insert("mine".to_owned(), "1".to_owned());
    client.resource::<NodeSpec>().create(node).await?;
    Ok(())
}

async fn has_node(client: &Client, name: &str) -> Result<bool> {
    match client.resource::<NodeSpec>().get("", name).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_does_not_exist() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

async fn label(client: &Client, name: &str, label: &str) -> Result<Option<String>> {
    Ok(client.resource::<NodeSpec>().get("", name).await?.metadata.labels.get(label).cloned())
}

async fn endpoints(client: &Client) -> Result<Vec<String>> {
    let list = client.resource::<HostEndpointSpec>().list(&ListQuery::all()).await?;
    Ok(list.items.into_iter().map(|endpoint| endpoint.metadata.name).collect())
}

#[tokio::test]
async fn calico_nodes_follow_kubernetes_nodes() -> Result<()> {
    let servers = servers()?;
    let world = World::embedded(&servers.api_server).await?;
    let client = &world.client;
    client.ensure_initialized("", "").await?;
    for name in ["etcd-here", "etcd-gone", "etcd-later"] {
        let node = json!({"metadata": {"name": name, "labels": {"zone": "a"}}});
        world.create("/api/v1/nodes", &node).await?;
    }
    // Calico's name may differ; a node without an orchestrator is left alone.
    calico_node(client, "calico-here", "etcd-here").await?;
    calico_node(client, "etcd-gone", "etcd-gone").await?;
    calico_node(client, "etcd-later", "etcd-later").await?;
    calico_node(client, "bare-metal", "").await?;
    let endpoint = WorkloadEndpointSpec {
        orchestrator: "k8s".to_owned(),
        node: "etcd-gone".to_owned(),
        pod: "p".to_owned(),
        endpoint: "eth0".to_owned(),
        interface_name: "cali1".to_owned(),
        ..WorkloadEndpointSpec::default()
    };
    let workloads = client.resource::<WorkloadEndpointSpec>();
    workloads.create(Object::new("default", "etcd--gone-k8s-p-eth0", endpoint)).await?;

    let running = world.start(NODES);
    eventually("labels are copied", async || {
        Ok(label(client, "calico-here", "zone").await?.as_deref() == Some("a"))
    })
    .await?;
    let patch = json!({"metadata": {"labels": {"zone": null, "disk": "ssd"}}});
    world.patch("/api/v1/nodes/etcd-here", &patch).await?;
    eventually("labels are changed and removed", async || {
        Ok(label(client, "calico-here", "zone").await?.is_none()
            && label(client, "calico-here", "disk").await?.as_deref() == Some("ssd")
            && label(client, "calico-here", "mine").await?.as_deref() == Some("1"))
    })
    .await?;
    world.delete("/api/v1/nodes/etcd-gone").await?;
    eventually("a node is deleted with everything that belongs to it", async || {
        let left = workloads.list(&ListQuery::in_namespace("default")).await?.items.len();
        Ok(!has_node(client, "etcd-gone").await? && left == 0)
    })
    .await?;
    running.stop().await?;

    // Deleted while the controllers are stopped.
    world.delete("/api/v1/nodes/etcd-later").await?;
    let running = world.start(NODES);
    eventually("a missed deletion is handled", async || Ok(!has_node(client, "etcd-later").await?)).await?;
    assert!(has_node(client, "calico-here").await? && has_node(client, "bare-metal").await?);
    running.stop().await
}

#[tokio::test]
async fn host_endpoints_follow_the_configuration() -> Result<()> {
    let servers = servers()?;
    let world = World::embedded(&servers.api_server).await?;
    let client = &world.client;
    client.ensure_initialized("", "").await?;
    world.create("/api/v1/nodes", &json!({"metadata": {"name": "heps"}})).await?;
    calico_node(client, "heps", "heps").await?;
    let hosts = client.resource::<HostEndpointSpec>();
    let mine = HostEndpointSpec {
        node: "heps".to_owned(),
        interface_name: "eth9".to_owned(),
        ..HostEndpointSpec::default()
    };
    hosts.create(Object::new("", "mine", mine)).await?;

    // The configuration is created by the controllers, and changed while they run.
    let running = world.start(NODES);
    let configurations = client.resource::<KubeControllersConfigurationSpec>();
    eventually("a configuration is there, with its status", async || {
        match configurations.get("", "default").await {
            Ok(found) => Ok(found.status.running_config.is_some()),
            Err(error) if error.is_does_not_exist() => Ok(false),
            Err(error) => Err(error.into()),
        }
    })
    .await?;
    assert_eq!(endpoints(client).await?, ["mine"]);
    let configure = async |host_endpoint: serde_json::Value| -> Result<()> {
        let host_endpoint: Option<api::AutoHostEndpointConfig> = serde_json::from_value(host_endpoint)?;
        let set = |found: &mut Object<KubeControllersConfigurationSpec>| {
            if let Some(node) = &mut found.spec.controllers.node {
                node.host_endpoint.clone_from(&host_endpoint);
            }
            true
        };
        configurations.update_with_retry("", "default", set).await?;
        Ok(())
    };
    configure(json!({"autoCreate": "Enabled", "createDefaultHostEndpoint": "Enabled"})).await?;
    eventually("the endpoint is made", async || Ok(endpoints(client).await? == ["heps-auto-hep", "mine"]))
        .await?;
    let made = hosts.get("", "heps-auto-hep").await?;
    assert_eq!(made.spec.interface_name, "*");
    assert_eq!(
        made.spec.expected_ips.iter().map(api::scalars::Ip::as_str).collect::<Vec<_>>(),
        ["172.16.1.1"]
    );
    assert_eq!(made.metadata.labels.get("mine").map(String::as_str), Some("1"));

    // The endpoint is changed and deleted by others, and the node changes.
    let spoil = |endpoint: &mut Object<HostEndpointSpec>| {
        endpoint.spec.expected_ips.clear();
        true
    };
    hosts.update_with_retry("", "heps-auto-hep", spoil).await?;
    eventually("it is mended", async || {
        Ok(hosts.get("", "heps-auto-hep").await?.spec.expected_ips.len() == 1)
    })
    .await?;
    hosts.delete("", "heps-auto-hep", &DeleteOptions::default()).await?;
    eventually("it is created again", async || Ok(endpoints(client).await? == ["heps-auto-hep", "mine"]))
        .await?;
    let tunnel = |node: &mut Object<NodeSpec>| {
        node.spec.ipv4_vxlan_tunnel_addr = "192.168.0.1".into();
        true
    };
    client.resource::<NodeSpec>().update_with_retry("", "heps", tunnel).await?;
    eventually("it has the new address", async || {
        Ok(hosts.get("", "heps-auto-hep").await?.spec.expected_ips.len() == 2)
    })
    .await?;

    configure(json!({
        "autoCreate": "Enabled", "createDefaultHostEndpoint": "Disabled",
        "templates": [{"generateName": "t", "interfaceCIDRs": ["192.168.0.0/16"], "labels": {"from": "template"}}],
    }))
    .await?;
    eventually("templates take over", async || Ok(endpoints(client).await? == ["heps-t-auto-hep", "mine"]))
        .await?;
    assert!(running.is_running(), "a new configuration is not a new process");
    configure(json!({"autoCreate": "Disabled", "createDefaultHostEndpoint": "Enabled"})).await?;
    eventually("ours go, others stay", async || Ok(endpoints(client).await? == ["mine"])).await?;
    running.stop().await
}

#[tokio::test]
async fn host_endpoints_follow_nodes_in_the_kubernetes_datastore() -> Result<()> {
    let servers = servers()?;
    let world = World::kubernetes(&servers.api_server).await?;
    let client = &world.client;
    let node = json!({
        "metadata": {"name": "kdd-node", "labels": {"zone": "a"}, "annotations": {"projectcalico.org/IPv4Address": "172.16.9.1/24"}},
    });
    world.create("/api/v1/nodes", &node).await?;
    let running = world.start(&[("ENABLED_CONTROLLERS", "node"), ("AUTO_HOST_ENDPOINTS", "enabled")]);
    let hosts = client.resource::<HostEndpointSpec>();
    eventually("the endpoint is made", async || {
        Ok(endpoints(client).await?.contains(&"kdd-node-auto-hep".to_owned()))
    })
    .await?;
    let made = hosts.get("", "kdd-node-auto-hep").await?;
    assert_eq!(made.metadata.labels.get("zone").map(String::as_str), Some("a"));
    let configuration = client.resource::<KubeControllersConfigurationSpec>().get("", "default").await?;
    let variables = &configuration.status.environment_vars;
    assert_eq!(variables.get("DATASTORE_TYPE").map(String::as_str), Some("kubernetes"));
    assert_eq!(variables.get("AUTO_HOST_ENDPOINTS").map(String::as_str), Some("enabled"));
    world.patch("/api/v1/nodes/kdd-node", &json!({"metadata": {"labels": {"zone": "b"}}})).await?;
    eventually("it follows the labels", async || {
        let found = hosts.get("", "kdd-node-auto-hep").await?;
        Ok(found.metadata.labels.get("zone").map(String::as_str) == Some("b"))
    })
    .await?;
    world.delete("/api/v1/nodes/kdd-node").await?;
    eventually("it goes with its node", async || {
        Ok(!endpoints(client).await?.contains(&"kdd-node-auto-hep".to_owned()))
    })
    .await?;
    running.stop().await
}
