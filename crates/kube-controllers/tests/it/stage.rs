//! A cluster for controllers: a real kube-apiserver on a real etcd, with Calico's data in either of them.

use anyhow::{Context as _, Result};
use api::{IPPoolSpec, Object};
use client::{Client, ClientConfig, DatastoreType};
use daemon::ShutdownHandle;
use daemon::Variables;
use follow::Follower;
use ipam::{AssignIp, AutoAssign, IntendedUse, Ipam};
use kube_access::KubeAccess;
use kube_access::cluster::{Cluster, ClusterError, MERGE_PATCH};
use kube_controllers::for_tests::{Context, Controller, DataFeed, Informers};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use telemetry::Metrics;
use testkit::{ApiServer, Etcd};
use tokio::task::JoinSet;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// The store of Calico's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// In custom resources of the classic group.
    Kubernetes,
    /// In custom resources of `projectcalico.org/v3`.
    V3,
    /// In etcd, alongside the API server's data.
    Etcd,
}

/// The cluster.
pub(crate) struct Stage {
    pub(crate) api: ApiServer,
    pub(crate) etcd: Etcd,
    pub(crate) client: Client,
    pub(crate) cluster: Cluster,
    pub(crate) ipam: Ipam,
    datastore: DatastoreType,
}

/// Controllers that run until this is dropped or stopped.
pub(crate) struct Running {
    end: ShutdownHandle,
    tasks: JoinSet<()>,
    feed: Option<Follower>,
    pub(crate) metrics: Metrics,
}

impl Running {
    /// Ends the controllers and waits for that.
    pub(crate) async fn stop(mut self) {
        self.end.request();
        drop(self.feed.take());
        while self.tasks.join_next().await.is_some() {}
    }
}

impl Stage {
    pub(crate) async fn start(store: Store) -> Result<Self> {
        let etcd = Etcd::start()?;
        let api = ApiServer::start(&etcd.endpoint())?;
        let kubeconfig = api.kubeconfig().display().to_string();
        let datastore = match store {
            Store::Etcd => DatastoreType::EtcdV3,
            Store::Kubernetes | Store::V3 => DatastoreType::Kubernetes,
        };
        let mut config = ClientConfig {
            datastore_type: datastore,
            etcd: client::config::EtcdSettings::default(),
            kubernetes: client::config::KubernetesSettings::default(),
            embedded_path: String::new(),
        };
        config.etcd.endpoints = etcd.endpoint();
        config.kubernetes.kubeconfig.clone_from(&kubeconfig);
        if store == Store::V3 {
            api.kubectl_with_input(&["create", "-f", "-"], &api::crds::to_yaml_v3())?;
            config.kubernetes.calico_api_group = "projectcalico.org/v3".to_owned();
        }
        let client = Client::open(&config).await?;
        if store == Store::Kubernetes {
            client.backend().install().await?;
        }
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = client.ensure_initialized("", "k8s").await {
            if Instant::now() > deadline {
                return Err(error).context("initialising the datastore");
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let environment = Variables::new([("KUBECONFIG", kubeconfig)]);
        let access = KubeAccess::open(&environment, Path::new("/nonexistent")).await?;
        let ipam = Ipam::new(Arc::clone(client.backend()));
        Ok(Self { api, etcd, cluster: Cluster::new(&access), client, ipam, datastore })
    }

    /// The context that controllers are created with.
    pub(crate) fn context(&self) -> Context {
        Context {
            client: self.client.clone(),
            cluster: self.cluster.clone(),
            informers: Informers::default(),
            feed: DataFeed::default(),
            metrics: Metrics::default(),
            datastore: self.datastore,
        }
    }

    /// Runs controllers that were created with this context.
    pub(crate) fn run(&self, context: &Context, controllers: Vec<Box<dyn Controller>>) -> Running {
        let (end, shutdown) = ShutdownHandle::new();
        let mut tasks = JoinSet::new();
        for informer in context.informers.start(&self.cluster, &shutdown) {
            tasks.spawn(async move { informer.await.expect("an informer") });
        }
        for controller in controllers {
            let shutdown = shutdown.clone();
            tasks.spawn(async move { controller.run(shutdown).await.expect("a controller") });
        }
        let feed = context.feed.start(self.client.backend());
        Running { end, tasks, feed, metrics: context.metrics.clone() }
    }

    pub(crate) async fn create(&self, path: &str, object: &Value) -> Result<Value> {
        Ok(self.cluster.create(&format!("create {path}"), path, object).await?)
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Option<Value>> {
        match self.cluster.get(&format!("read {path}"), path).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) async fn patch(&self, path: &str, patch: &Value) -> Result<Value> {
        let what = format!("patch {path}");
        Ok(self.cluster.send(&what, http::Method::PATCH, path, patch, MERGE_PATCH).await?)
    }

    /// Deletes an object at once, without a grace period.
    pub(crate) async fn delete(&self, path: &str) -> Result<()> {
        let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0});
        let outcome: Result<Value, ClusterError> = self
            .cluster
            .send(&format!("delete {path}"), http::Method::DELETE, path, &body, "application/json")
            .await;
        match outcome {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }

    pub(crate) async fn namespace(&self, name: &str) -> Result<()> {
        self.create("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await.map(drop)
    }

    pub(crate) async fn node(&self, name: &str) -> Result<()> {
        self.create("/api/v1/nodes", &json!({"metadata": {"name": name}})).await.map(drop)
    }

    /// Creates a pod on a node that reports these addresses.
    pub(crate) async fn pod(
        &self,
        namespace: &str,
        name: &str,
        node: &str,
        addresses: &[IpAddr],
    ) -> Result<()> {
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        let pod = json!({
            "metadata": {"name": name},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
        });
        self.create(&path, &pod).await?;
        self.report(namespace, name, addresses).await
    }

    /// Reports a pod's addresses like the kubelet.
    pub(crate) async fn report(&self, namespace: &str, name: &str, addresses: &[IpAddr]) -> Result<()> {
        let list: Vec<Value> = addresses.iter().map(|address| json!({"ip": address})).collect();
        let mut status = json!({"phase": "Running", "podIPs": list});
        if let Some(first) = addresses.first() {
            status["podIP"] = json!(first);
        }
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/status");
        self.patch(&path, &json!({"status": status})).await.map(drop)
    }

    pub(crate) async fn pool(&self, name: &str, spec: Value) -> Result<()> {
        let spec: IPPoolSpec = serde_json::from_value(spec)?;
        self.client.resource::<IPPoolSpec>().create(Object::new("", name, spec)).await?;
        Ok(())
    }

    /// Takes an address like the CNI plugin.
    pub(crate) async fn take(&self, node: &str, handle: &str, namespace: &str, pod: &str) -> Result<IpAddr> {
        let attributes = [("node", node), ("namespace", namespace), ("pod", pod)];
        let request = AutoAssign {
            handle: Some(handle.into()),
            attributes: attributes.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            num4: 1,
            ..AutoAssign::new(node, IntendedUse::Workload)
        };
        let assigned = self.ipam.auto_assign(&request).await?;
        assigned.addresses().next().context("an address")
    }

    /// Takes a node's tunnel address.
    pub(crate) async fn take_tunnel(&self, node: &str, address: IpAddr) -> Result<()> {
        let attributes = [("node", node), ("type", "vxlanTunnelAddress")];
        let request = AssignIp {
            handle: Some(format!("vxlan-tunnel-addr-{node}").into()),
            attributes: attributes.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            ..AssignIp::new(address, node)
        };
        Ok(self.ipam.assign_ip(&request).await?)
    }

    /// Whether an address is taken.
    pub(crate) async fn is_taken(&self, address: IpAddr) -> Result<bool> {
        Ok(self.ipam.allocation(address).await?.is_some())
    }
}

pub(crate) use testkit::eventually_async as eventually;
