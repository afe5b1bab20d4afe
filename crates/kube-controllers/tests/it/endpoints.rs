//! Labels of pods are copied to their endpoints in the etcd datastore.

use crate::world::{World, eventually, servers};
use anyhow::Result;
use api::{Object, WorkloadEndpoint, WorkloadEndpointSpec};
use serde_json::json;

fn endpoint(node: &str, pod: &str) -> WorkloadEndpoint {
    let spec = WorkloadEndpointSpec {
        orchestrator: "k8s".to_owned(),
        node: node.to_owned(),
        pod: pod.to_owned(),
        endpoint: "eth0".to_owned(),
        service_account_name: "default".to_owned(),
        interface_name: "cali0123456789a".to_owned(),
        ip_networks: vec!["10.65.0.1/32".into()],
        profiles: vec!["kns.labelled".to_owned()],
        ..WorkloadEndpointSpec::default()
    };
    let name = format!("{}-k8s-{pod}-eth0", node.replace('-', "--"));
    let mut endpoint = Object::new("labelled", &name, spec);
    for (label, value) in [
        ("projectcalico.org/namespace", "labelled"),
        ("projectcalico.org/orchestrator", "k8s"),
        ("projectcalico.org/serviceaccount", "default"),
        ("app", "old"),
    ] {
        endpoint.metadata.labels.insert(label.to_owned(), value.to_owned());
    }
    endpoint
}

#[tokio::test]
async fn endpoints_follow_their_pods() -> Result<()> {
    let servers = servers()?;
    let world = World::embedded(&servers.api_server).await?;
    let endpoints = world.client.resource::<WorkloadEndpointSpec>();
    world.client.ensure_initialized("", "").await?;
    world.create_namespace("labelled", &json!({})).await?;
    let pods = "/api/v1/namespaces/labelled/pods";
    for (name, app) in [("here", "old"), ("drifted", "new"), ("elsewhere", "old"), ("none", "old")] {
        let pod = json!({
            "metadata": {"name": name, "labels": {"app": app}},
            "spec": {"nodeName": "node-1", "serviceAccountName": "default", "containers": [{"name": "c", "image": "i"}]},
        });
        world.create(pods, &pod).await?;
        let status =
            json!({"status": {"phase": "Running", "podIP": "10.65.0.1", "podIPs": [{"ip": "10.65.0.1"}]}});
        world.patch(&format!("{pods}/{name}/status"), &status).await?;
    }
    // One node has different names in Calico and Kubernetes; one pod has no endpoint.
    for (node, pod) in [("node-1", "here"), ("node-1", "drifted"), ("other", "elsewhere")] {
        endpoints.create(endpoint(node, pod)).await?;
    }
    let app = async |name: &str| -> Result<String> {
        let endpoint = endpoints.get("labelled", name).await?;
        Ok(endpoint.metadata.labels.get("app").cloned().unwrap_or_default())
    };
    let running = world.start(&[("ENABLED_CONTROLLERS", "workloadendpoint")]);
    eventually("earlier changes are applied", async || Ok(app("node--1-k8s-drifted-eth0").await? == "new"))
        .await?;
    for name in ["here", "elsewhere", "none"] {
        let patch = json!({"metadata": {"labels": {"app": "new", "more": "1"}}});
        world.patch(&format!("{pods}/{name}"), &patch).await?;
    }
    eventually("endpoints have the new labels", async || {
        Ok(app("node--1-k8s-here-eth0").await? == "new" && app("other-k8s-elsewhere-eth0").await? == "new")
    })
    .await?;
    let here = endpoints.get("labelled", "node--1-k8s-here-eth0").await?;
    assert_eq!(here.metadata.labels.len(), 5);
    assert_eq!(here.spec.ip_networks.len(), 1, "the rest is as the plugin wrote it");
    let all = endpoints.list(&client::ListQuery::in_namespace("labelled")).await?;
    assert_eq!(all.items.len(), 3, "none is created");
    world.delete(&format!("{pods}/here")).await?;
    running.stop().await?;
    assert!(endpoints.get("labelled", "node--1-k8s-here-eth0").await.is_ok(), "none is deleted");
    Ok(())
}
