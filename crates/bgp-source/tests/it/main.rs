//! The source on real stores: etcd with Felix's status files, etcd with Kubernetes beside it, and Kubernetes alone.

mod typha;

use anyhow::{Context as _, Result, bail};
use bgp::Intent;
use bgp_source::{Latest, Options, Source};
use client::Client;
use daemon::Variables;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use testkit::{ApiServer, Etcd, Folder};

const PATIENCE: Duration = Duration::from_secs(120);

fn resource(kind: &str, name: &str, spec: &Value) -> Result<api::Resource> {
    let document = json!({
        "apiVersion": "projectcalico.org/v3", "kind": kind, "metadata": {"name": name}, "spec": spec,
    });
    let text = document.to_string();
    let documents = api::document::read("test", text.as_bytes(), api::document::Checks::Everything);
    let documents = documents.map_err(|errors| anyhow::anyhow!("{errors:?}"))?;
    Ok(documents.into_iter().next().context("one document")?.resource)
}

/// A source with its store.
struct Site {
    client: Client,
    source: Source,
}

impl Site {
    async fn start(variables: &Variables) -> Result<Self> {
        let mut options = Options::read(variables, None)?;
        // Not the machine's own folder.
        options.typha_folder = options.status_folder.parent().context("a folder")?.to_owned();
        let client = Client::new(client::open_backend(&options.client).await?);
        let source = bgp_source::start(options, variables).await?;
        Ok(Self { client, source })
    }

    async fn create(&self, kind: &str, name: &str, spec: &Value) -> Result<()> {
        self.client.create_any(resource(kind, name, spec)?).await?;
        Ok(())
    }

    /// Waits for an intent that meets a condition.
    async fn intent(&self, what: &str, is_right: impl Fn(&Intent) -> bool) -> Result<Arc<Intent>> {
        let mut latest = self.source.latest();
        let right = latest.wait_for(|latest| matches!(latest, Latest::Intent(intent) if is_right(intent)));
        match tokio::time::timeout(PATIENCE, right).await {
            Ok(found) => match &*found? {
                Latest::Intent(intent) => Ok(Arc::clone(intent)),
                other => bail!("{other:?}"),
            },
            Err(_) => bail!("not within {PATIENCE:?}: {what}; last: {:?}", *self.source.latest().borrow()),
        }
    }
}

fn node(number: u8) -> Value {
    json!({"bgp": {"ipv4Address": format!("10.65.0.{number}/24")}})
}

fn etcd_variables(etcd: &Etcd, folder: &Folder) -> Variables {
    Variables::new([
        ("NODENAME", "n1".to_owned()),
        ("DATASTORE_TYPE", "etcdv3".to_owned()),
        ("ETCD_ENDPOINTS", etcd.endpoint()),
        ("CALICO_ENDPOINT_STATUS_PATH_PREFIX", folder.path().display().to_string()),
    ])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_and_workloads_on_etcd() -> Result<()> {
    let (etcd, folder) = (Etcd::start()?, Folder::new("source")?);
    let site = Site::start(&etcd_variables(&etcd, &folder)).await?;
    let mut latest = site.source.latest();
    let missing = latest.wait_for(|latest| matches!(latest, Latest::NodeMissing(_)));
    tokio::time::timeout(PATIENCE, missing).await.context("the node is missing")??;

    site.create("Node", "n1", &node(1)).await?;
    site.intent("the node", |intent| intent.sessions().count() == 0).await?;
    site.create("Node", "n2", &node(2)).await?;
    site.intent("the mesh", |intent| intent.sessions().count() == 1).await?;

    let key = model::Key::BlockAffinity(model::BlockAffinityKey {
        cidr: "10.66.1.0/26".parse()?,
        host: "n1".to_owned(),
        affinity_type: model::AffinityType::Host,
    });
    let affinity = serde_json::from_value(json!({"state": "confirmed"}))?;
    let entry = model::KvPair::new(key, model::Value::BlockAffinity(affinity));
    site.client.backend().create(&entry).await?;
    site.intent("the block", |intent| intent.v4.export.blocks.len() == 1).await?;

    let peer = json!({"node": "n1", "localWorkloadSelector": "app == 'router'", "asNumber": 65401});
    site.create("BGPPeer", "child", &peer).await?;
    let status = folder.path().join("endpoint-status");
    std::fs::create_dir_all(&status)?;
    let file = status.join("k8s shop%2Frouter eth0");
    std::fs::write(&file, r#"{"ipv4Nets":["10.66.1.5/32"],"bgpPeerName":"child"}"#)?;
    let has_workload = |intent: &Intent| intent.sessions().any(|session| session.peer_as.0 == 65401);
    site.intent("the workload", has_workload).await?;
    std::fs::remove_file(&file)?;
    site.intent("no workload", |intent| !has_workload(intent)).await?;
    Ok(())
}

/// A service with an endpoint on this node, and a secret.
fn kubernetes_objects(server: &ApiServer) -> Result<()> {
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"},
         "spec": {"type": "NodePort", "externalTrafficPolicy": "Local", "ports": [{"port": 80}],
                  "externalIPs": ["203.0.113.7"]}},
        {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
         "metadata": {"name": "web-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "web"}},
         "addressType": "IPv4", "ports": [{"port": 80}],
         "endpoints": [{"addresses": ["10.66.1.5"], "nodeName": "n1", "conditions": {"ready": true}}]},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bgp", "namespace": "kube-system"},
         "stringData": {"mesh": "a secret"}},
    ]});
    server.kubectl_with_input(&["apply", "-f", "-"], &objects.to_string())?;
    Ok(())
}

async fn services_and_passwords(site: &Site, server: &ApiServer) -> Result<()> {
    site.create(
        "BGPConfiguration",
        "default",
        &json!({
            "serviceExternalIPs": [{"cidr": "203.0.113.0/24"}],
            "nodeMeshPassword": {"secretKeyRef": {"name": "bgp", "key": "mesh"}},
        }),
    )
    .await?;
    let has_service = |intent: &Intent| {
        intent.v4.export.services.iter().any(|prefix| prefix.to_string() == "203.0.113.7/32")
    };
    let has_password = |intent: &Intent, password: &str| {
        intent.sessions().all(|session| session.password.as_ref().is_some_and(|has| has.expose() == password))
    };
    let both = |intent: &Intent| has_service(intent) && has_password(intent, "a secret");
    let intent = site.intent("the service and the password", both).await?;
    assert_eq!(intent.sessions().count(), 1);
    assert!(!format!("{intent:?}").contains("a secret"), "an intent can be printed");

    server.kubectl(&[
        "-n",
        "kube-system",
        "patch",
        "secret",
        "bgp",
        "-p",
        r#"{"stringData":{"mesh":"new"}}"#,
    ])?;
    site.intent("the new password", |intent| has_password(intent, "new")).await?;
    server.kubectl(&["delete", "endpointslice", "web-1"])?;
    site.intent("no endpoint", |intent| !has_service(intent)).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_and_passwords_beside_etcd() -> Result<()> {
    let (etcd, folder) = (Etcd::start()?, Folder::new("source")?);
    let server = ApiServer::start(&etcd.endpoint())?;
    kubernetes_objects(&server)?;
    let kubeconfig = [("KUBECONFIG", server.kubeconfig())];
    let site = Site::start(&etcd_variables(&etcd, &folder).with(kubeconfig)).await?;
    site.create("Node", "n1", &node(1)).await?;
    site.create("Node", "n2", &node(2)).await?;
    services_and_passwords(&site, &server).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_on_kubernetes() -> Result<()> {
    let (etcd, folder) = (Etcd::start()?, Folder::new("source")?);
    let server = ApiServer::start(&etcd.endpoint())?;
    server.kubectl_with_input(&["create", "--validate=false", "-f", "-"], &api::crds::to_yaml())?;
    server.kubectl(&["wait", "--for=condition=Established", "--timeout=120s", "crd", "--all"])?;
    kubernetes_objects(&server)?;
    for number in [1, 2] {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {
            "name": format!("n{number}"),
            "annotations": {"projectcalico.org/IPv4Address": format!("10.65.0.{number}/24")},
        }});
        server.kubectl_with_input(&["create", "-f", "-"], &node.to_string())?;
    }
    let variables = Variables::new([
        ("NODENAME", "n1".to_owned()),
        ("DATASTORE_TYPE", "kubernetes".to_owned()),
        ("KUBECONFIG", server.kubeconfig().display().to_string()),
        ("CALICO_ENDPOINT_STATUS_PATH_PREFIX", folder.path().display().to_string()),
    ]);
    let site = Site::start(&variables).await?;
    site.intent("the mesh", |intent| intent.sessions().count() == 1).await?;
    services_and_passwords(&site, &server).await
}
