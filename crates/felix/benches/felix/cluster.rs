//! The clusters on which Felix is measured, written into an etcd.

use anyhow::{Result, ensure};
use api::{Kind, Resource};
use client::{Client, ClientConfig, DatastoreType};
use model::KvPair;
use serde_json::{Value, json};
use testkit::Etcd;

/// The name of the measured host.
pub(crate) const HOST: &str = "node1";
/// The number of entries in one transaction.
const BATCH: usize = 50;

/// The figures of Calico's Felix for a shape with one packet filter.
pub(crate) struct Calico {
    pub(crate) start_seconds: f64,
    pub(crate) memory_mib: f64,
    /// `None` if this figure was not taken.
    pub(crate) cpu_seconds: Option<f64>,
    pub(crate) update_ms: f64,
}

/// One size of cluster.
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) policies: usize,
    pub(crate) local: usize,
    pub(crate) remote: usize,
    pub(crate) nftables: Calico,
    pub(crate) iptables: Calico,
}

pub(crate) const SHAPES: [Shape; 2] = [
    Shape {
        name: "small",
        policies: 500,
        local: 50,
        remote: 2000,
        nftables: Calico { start_seconds: 0.9, memory_mib: 134.0, cpu_seconds: Some(0.9), update_ms: 13.0 },
        iptables: Calico { start_seconds: 1.1, memory_mib: 135.0, cpu_seconds: None, update_ms: 66.0 },
    },
    Shape {
        name: "large",
        policies: 5000,
        local: 100,
        remote: 10_000,
        nftables: Calico { start_seconds: 5.4, memory_mib: 190.0, cpu_seconds: Some(3.9), update_ms: 24.0 },
        iptables: Calico { start_seconds: 6.4, memory_mib: 189.0, cpu_seconds: None, update_ms: 441.0 },
    },
];

impl Shape {
    /// A shape small enough for a build without optimisation to show in seconds that the benchmark works.
    pub(crate) fn for_this_build(&self) -> (usize, usize, usize) {
        if cfg!(debug_assertions) {
            (self.policies / 50, self.local / 10, self.remote / 50)
        } else {
            (self.policies, self.local, self.remote)
        }
    }
}

/// An etcd with a cluster in it.
pub(crate) struct Cluster {
    pub(crate) etcd: Etcd,
    pub(crate) client: Client,
}

impl Cluster {
    /// Starts an etcd with an initialised but empty cluster.
    pub(crate) async fn start_empty() -> Result<Self> {
        let etcd = tokio::task::spawn_blocking(Etcd::start).await??;
        let config = ClientConfig {
            datastore_type: DatastoreType::EtcdV3,
            etcd: client::config::EtcdSettings { endpoints: etcd.endpoint(), ..Default::default() },
            kubernetes: Default::default(),
            embedded_path: String::new(),
        };
        let client = Client::open(&config).await?;
        client.ensure_initialized("v3.32.0", "bench").await?;
        Ok(Self { etcd, client })
    }

    /// Starts an etcd with a cluster: the host, a pool without tunnels, and a profile.
    pub(crate) async fn start() -> Result<Self> {
        let cluster = Self::start_empty().await?;
        let pool = json!({"metadata": {"name": "pods"},
            "spec": {"cidr": "10.128.0.0/9", "blockSize": 26, "natOutgoing": true, "ipipMode": "Never", "vxlanMode": "Never"}});
        cluster.client.create_any(Resource::from_value(Kind::IPPool, pool)?).await?;
        let node = json!({"metadata": {"name": HOST}, "spec": {"bgp": {"ipv4Address": "10.65.0.1/24"}}});
        cluster.client.create_any(Resource::from_value(Kind::Node, node)?).await?;
        let profile = json!({"metadata": {"name": "kns.shop"},
            "spec": {"ingress": [{"action": "Allow"}], "egress": [{"action": "Allow"}], "labelsToApply": {"pcns.name": "shop"}}});
        cluster.client.create_any(Resource::from_value(Kind::Profile, profile)?).await?;
        Ok(cluster)
    }

    /// Starts an etcd with the endpoints and policies of a shape.
    pub(crate) async fn of(shape: &Shape) -> Result<Self> {
        let (policies, local, remote) = shape.for_this_build();
        let cluster = Self::start().await?;
        let endpoints = (0..local + remote).map(|number| endpoint(number, local));
        cluster.write(endpoints.collect::<Result<_>>()?).await?;
        let all = (0..policies).map(|number| policy(number, local, 8000));
        cluster.write(all.collect::<Result<_>>()?).await?;
        Ok(cluster)
    }

    /// Writes entries in batches.
    pub(crate) async fn write(&self, entries: Vec<KvPair>) -> Result<()> {
        for some in entries.chunks(BATCH) {
            let written = self.client.backend().create_all(some).await?;
            ensure!(written.is_some(), "etcd does not take {BATCH} entries at once");
        }
        Ok(())
    }
}

/// The interface of a local pod.
pub(crate) fn interface(number: usize) -> String {
    format!("cali{number:011x}")
}

/// A pod: the first `local` ones are on this host.
pub(crate) fn endpoint(number: usize, local: usize) -> Result<KvPair> {
    let node = if number < local { HOST.to_owned() } else { format!("node{}", 2 + number % 100) };
    let pod = format!("web-{number}");
    let object = json!({
        "metadata": {
            "name": format!("{node}-k8s-{}-eth0", pod.replace('-', "--")), "namespace": "shop",
            "labels": {"app": format!("app-{}", number % local), "projectcalico.org/orchestrator": "k8s",
                "projectcalico.org/namespace": "shop"},
        },
        "spec": {
            "orchestrator": "k8s", "node": node, "pod": pod, "endpoint": "eth0", "interfaceName": interface(number),
            "profiles": ["kns.shop"], "mac": "ee:ee:ee:ee:ee:ee",
            "ipNetworks": [format!("10.{}.{}.{}/32", 128 + (number >> 16), number >> 8 & 255, number & 255)],
        },
    });
    Ok(KvPair::resource(Resource::from_value(Kind::WorkloadEndpoint, object)?))
}

/// A policy for one application: traffic to some ports from another application, and from some networks.
pub(crate) fn policy(number: usize, local: usize, port: u16) -> Result<KvPair> {
    let (own, other) = (number % local, (number + 1) % local);
    policy_of(
        &format!("policy-{number}"),
        number,
        &format!("app == 'app-{own}'"),
        &json!([
            {"action": "Allow", "protocol": "TCP", "source": {"selector": format!("app == 'app-{other}'")},
                "destination": {"ports": [80, 443, port]}},
            {"action": "Allow", "protocol": "UDP", "source": {"nets": [format!("10.0.{}.0/24", number % 256)]},
                "destination": {"ports": ["6000:6010"]}},
        ]),
    )
}

/// A policy with these ingress rules, which allows all egress.
pub(crate) fn policy_of(name: &str, order: usize, selector: &str, ingress: &Value) -> Result<KvPair> {
    let object = json!({
        "metadata": {"name": name},
        "spec": {"tier": "default", "order": order, "selector": selector, "types": ["Ingress", "Egress"],
            "ingress": ingress, "egress": [{"action": "Allow"}]},
    });
    Ok(KvPair::resource(Resource::from_value(Kind::GlobalNetworkPolicy, object)?))
}
