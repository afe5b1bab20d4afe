//! A random cluster in a real kube-apiserver: Calico's own definitions, and the objects of Kubernetes that become nodes,
//! profiles, endpoints and policies.

use super::clusters::random_definitions;
use super::kubernetes_objects::{Object, made, pod_name};
use super::{ETCD_PORT, Ground, LOCAL, create_all};
use crate::host;
use anyhow::{Context as _, Result};
use client::{Client, ClientConfig, DatastoreType};
use daemon::Variables;
use http::Method;
use kube_access::KubeAccess;
use kube_access::cluster::{Cluster, MERGE_PATCH};
use model::names::interface_name;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use testkit::{ApiServer, Dice, Etcd, Folder};
use tokio::runtime::Runtime;

/// How often a definition that is not served yet is asked for.
const TRIES: usize = 100;

pub(super) fn make(runtime: &Runtime, case: u64) -> Result<Ground> {
    // Without a default route kube-apiserver finds no address of its own.
    host::make_uplink()?;
    let etcd = Etcd::start()?;
    let api = ApiServer::start(&etcd.endpoint())?;
    let folder = Folder::new("kubernetes")?;
    let kubeconfig = api.kubeconfig();
    let mut dice = Dice::of(case);
    let (random, with_vxlan) = random_definitions(&mut dice)?;
    let objects = made(&mut dice, with_vxlan);
    let refused = runtime.block_on(async {
        let config = ClientConfig {
            datastore_type: DatastoreType::Kubernetes,
            etcd: Default::default(),
            kubernetes: client::config::KubernetesSettings {
                kubeconfig: kubeconfig.display().to_string(),
                ..Default::default()
            },
            embedded_path: String::new(),
        };
        let client = Client::open(&config).await?;
        client.backend().install().await?;
        client.ensure_initialized("v3.32.0", "bench").await?;
        let variables = BTreeMap::from([("KUBECONFIG".to_owned(), kubeconfig.display().to_string())]);
        let access = KubeAccess::open(&Variables::new(&variables), Path::new("/nowhere")).await?;
        let cluster = Cluster::new(&access);
        define_cluster_policies(&cluster).await?;
        let mut refused = 0;
        for object in &objects {
            if let Err(refusal) = create(&cluster, object).await {
                println!("case {case}: left out: {refusal:#}\n  {}", object.1);
                refused += 1;
            }
        }
        refused += create_all(&client, case, &random.objects).await?;
        for entry in random.entries {
            client.backend().create(&entry).await?;
        }
        anyhow::Ok(refused)
    })?;
    // Each Felix reaches the server through a relay in its own network.
    let endpoint = api.endpoint();
    let text =
        std::fs::read_to_string(&kubeconfig)?.replace(&endpoint, &format!("https://127.0.0.1:{ETCD_PORT}"));
    let relayed = folder.path().join("kubeconfig");
    std::fs::write(&relayed, text)?;
    Ok(Ground {
        endpoint: endpoint.replacen("https:", "http:", 1),
        settings: vec![
            ("DATASTORETYPE", "kubernetes".to_owned()),
            ("KUBECONFIG", relayed.display().to_string()),
        ],
        interfaces: (0..LOCAL)
            .map(|number| {
                let (namespace, name) = pod_name(number);
                interface_name("cali", namespace, &name)
            })
            .collect(),
        about: format!("Kubernetes, {}", random.about),
        refused,
        _servers: Box::new((api, etcd, folder)),
    })
}

/// Creates an object with its status, and deletes it again where it should be found half gone.
async fn create(cluster: &Cluster, (collection, object): &Object) -> Result<()> {
    let mut object = object.clone();
    let fields = object.as_object_mut().context("not an object")?;
    let (status, deleted) = (fields.remove("status"), fields.remove("deleted"));
    let name = fields["metadata"]["name"].as_str().context("no name")?.to_owned();
    let _: IgnoredAny = cluster.create("fill the cluster", collection, &object).await?;
    let path = format!("{collection}/{name}");
    if let Some(status) = status {
        let patch = json!({"status": status});
        let _: IgnoredAny = cluster
            .send("set a status", Method::PATCH, &format!("{path}/status"), &patch, MERGE_PATCH)
            .await?;
    }
    if deleted.is_some() {
        let options = json!({"gracePeriodSeconds": 600});
        let _: IgnoredAny =
            cluster.send("delete", Method::DELETE, &path, &options, "application/json").await?;
    }
    Ok(())
}

/// The definition of ClusterNetworkPolicy without its rules: both Felixes meet whatever an API server accepted.
async fn define_cluster_policies(cluster: &Cluster) -> Result<()> {
    let (group, plural) = ("policy.networking.k8s.io", "clusternetworkpolicies");
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition: Value = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}"), "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
        "spec": {"group": group, "scope": "Cluster",
            "names": {"plural": plural, "singular": "clusternetworkpolicy", "kind": "ClusterNetworkPolicy", "listKind": "ClusterNetworkPolicyList"},
            "versions": [{"name": "v1alpha2", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    let _: IgnoredAny = cluster
        .create("define", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition)
        .await?;
    let path = format!("/apis/{group}/v1alpha2/{plural}");
    for _ in 0..TRIES {
        if cluster.get::<IgnoredAny>("wait for the definition", &path).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("{path} is not served")
}
