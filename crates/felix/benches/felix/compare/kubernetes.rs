//! A random cluster in a real kube-apiserver: Calico's own definitions, and the objects of Kubernetes that become nodes,
//! profiles, endpoints and policies.

use super::clusters::random_definitions;
use super::{ETCD_PORT, Ground, Servers, create_all};
use crate::host;
use anyhow::Result;
use client::{Client, ClientConfig, DatastoreType};
use daemon::Variables;
use http::Method;
use kube_access::KubeAccess;
use kube_access::cluster::{Cluster, MERGE_PATCH};
use model::names::interface_name;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use testkit::random_kubernetes::{LOCAL, Request, pod_name, requests};
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
    let requests = requests(&mut dice, with_vxlan);
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
        let mut refused = 0;
        for request in &requests {
            if let Err(refusal) = send(&cluster, request).await {
                println!("case {case}: left out: {refusal:#}\n  {}", request.body);
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
        _servers: Servers { _etcd: etcd, _kubernetes: Some((api, folder)) },
    })
}

/// Sends a request, again while the definition of its kind is not served yet.
async fn send(cluster: &Cluster, request: &Request) -> Result<()> {
    let content = if request.method == "PATCH" { MERGE_PATCH } else { "application/json" };
    let method: Method = request.method.parse()?;
    for _ in 0..TRIES {
        let sent: Result<IgnoredAny, _> =
            cluster.send("fill the cluster", method.clone(), &request.path, &request.body, content).await;
        match sent {
            Err(error) if error.is_not_found() => tokio::time::sleep(Duration::from_millis(100)).await,
            other => return other.map(drop).map_err(Into::into),
        }
    }
    anyhow::bail!("{} is not served", request.path)
}
