//! An etcd with as many entries as a large cluster.

use anyhow::{Result, ensure};
use api::{Kind, Resource};
use client::config::{ClientConfig, EtcdSettings, KubernetesSettings};
use datastore::Backend;
use futures::stream::{self, TryStreamExt as _};
use model::KvPair;
use serde_json::json;
use std::sync::Arc;
use testkit::Etcd;

/// The shape of Calico's own measurement: 5,000 policies and 50,000 endpoints.
pub(crate) const POLICIES: usize = 5_000;
pub(crate) const FEWER_ENDPOINTS: usize = 50_000;
/// The size for the other figures.
pub(crate) const ENDPOINTS: usize = 100_000;
/// How many entries are written in one transaction, and how many transactions at once.
const BATCH: usize = 100;
const AT_ONCE: usize = 8;

/// The store.
pub(crate) struct Filled {
    pub(crate) etcd: Etcd,
    pub(crate) backend: Arc<dyn Backend>,
}

impl Filled {
    /// Starts an etcd with the smaller number of entries.
    pub(crate) async fn start() -> Result<Self> {
        let etcd = Etcd::start()?;
        let config = ClientConfig {
            datastore_type: client::DatastoreType::EtcdV3,
            etcd: EtcdSettings { endpoints: etcd.endpoint(), ..EtcdSettings::default() },
            kubernetes: KubernetesSettings::default(),
            embedded_path: String::new(),
        };
        let store = Self { backend: client::open_backend(&config).await?, etcd };
        store.write((0..POLICIES).map(policy)).await?;
        store.write((0..FEWER_ENDPOINTS).map(|number| endpoint(number, "0"))).await?;
        Ok(store)
    }

    /// Writes the rest of the entries.
    pub(crate) async fn fill_up(&self) -> Result<()> {
        self.write((FEWER_ENDPOINTS..ENDPOINTS).map(|number| endpoint(number, "0"))).await
    }

    async fn write(&self, entries: impl Iterator<Item = Result<KvPair>>) -> Result<()> {
        let entries: Vec<KvPair> = entries.collect::<Result<_>>()?;
        stream::iter(entries.chunks(BATCH).map(anyhow::Ok))
            .try_for_each_concurrent(AT_ONCE, |batch| async move {
                let made = self.backend.create_all(batch).await?;
                ensure!(made.is_some(), "the store does not take {BATCH} at once");
                anyhow::Ok(())
            })
            .await
    }
}

/// An endpoint; `mark` is a label.
pub(crate) fn endpoint(number: usize, mark: &str) -> Result<KvPair> {
    let (node, pod) = (number % 1000, format!("web-5d4f8c7b9-{number}"));
    let object = json!({
        "metadata": {
            "name": format!("node--{node}-k8s-{}-eth0", pod.replace('-', "--")),
            "namespace": format!("shop-{}", number % 500),
            "labels": {
                "app": "web", "pod-template-hash": "5d4f8c7b9", "mark": mark, "projectcalico.org/orchestrator": "k8s",
                "projectcalico.org/namespace": format!("shop-{}", number % 500),
            },
        },
        "spec": {
            "orchestrator": "k8s", "node": format!("node-{node}"), "pod": pod, "endpoint": "eth0",
            "interfaceName": format!("cali{number:011x}"), "profiles": ["kns.shop", "ksa.shop.default"],
            "ipNetworks": [format!("10.{}.{}.{}/32", number >> 16, number >> 8 & 255, number & 255)],
        },
    });
    Ok(KvPair::resource(Resource::from_value(Kind::WorkloadEndpoint, object)?))
}

fn policy(number: usize) -> Result<KvPair> {
    let object = json!({
        "metadata": {"name": format!("default.web-{number}"), "namespace": format!("shop-{}", number % 500)},
        "spec": {
            "tier": "default", "order": 100, "selector": format!("app == 'web-{}'", number % 100),
            "types": ["Ingress"],
            "ingress": [{
                "action": "Allow", "protocol": "TCP", "source": {"selector": format!("app == 'api-{}'", number % 100)},
                "destination": {"ports": [80, 443]},
            }],
        },
    });
    Ok(KvPair::resource(Resource::from_value(Kind::NetworkPolicy, object)?))
}
