//! A real kube-apiserver, and the kinds that are derived from Kubernetes' own objects.

use crate::recorder::Recorder;
use crate::scenario::{Fixture, survive};
use anyhow::{Context as _, Result, bail, ensure};
use api::Kind;
use async_trait::async_trait;
use datastore::kubernetes::{KubernetesBackend, KubernetesConfig};
use datastore::{Backend, WatchOptions};
use follow::feeds::{self, FelixOptions};
use futures::StreamExt as _;
use model::feed::{FeedEntry, FeedKey, NamespacedName};
use model::v1::{PolicyKey, WorkloadEndpointKey};
use model::{ListOptions, ProfileName};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use testkit::roles::RELEASES;
use testkit::{ApiServer, Etcd};

struct KubernetesStore {
    server: Arc<Mutex<ApiServer>>,
    etcd: Etcd,
    config: KubernetesConfig,
}

impl KubernetesStore {
    async fn open() -> Result<Self> {
        let (server, etcd) = tokio::task::spawn_blocking(|| -> Result<(ApiServer, Etcd)> {
            let etcd = Etcd::start()?;
            let server = ApiServer::start(&etcd.endpoint())?;
            server.kubectl_with_input(&["create", "--validate=false", "-f", "-"], &api::crds::to_yaml())?;
            let wait = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=120s"];
            let output = server.kubectl(&wait)?;
            ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Ok((server, etcd))
        })
        .await??;
        let config = KubernetesConfig::from_file(server.kubeconfig());
        let store = Self { server: Arc::new(Mutex::new(server)), etcd, config };
        store.wait_until_served().await?;
        Ok(store)
    }

    /// A definition is established a moment before its objects are served and watched.
    async fn wait_until_served(&self) -> Result<()> {
        let sets = ListOptions::resources(Kind::GlobalNetworkSet);
        for _ in 0..600 {
            let backend = KubernetesBackend::connect(&self.config).await?;
            if backend.ensure_ready().await.is_ok()
                && backend.watch(&sets, WatchOptions::default()).await.is_ok()
            {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("the definitions are never served")
    }

    async fn kubectl(&self, arguments: &[&str], input: &str) -> Result<String> {
        let server = Arc::clone(&self.server);
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let input = input.to_owned();
        tokio::task::spawn_blocking(move || {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            server.lock().unwrap_or_else(PoisonError::into_inner).kubectl_with_input(&arguments, &input)
        })
        .await?
    }
}

#[async_trait]
impl Fixture for KubernetesStore {
    async fn backend(&self) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(KubernetesBackend::connect(&self.config).await?))
    }

    fn is_kubernetes(&self) -> bool {
        true
    }

    fn entries(&self) -> usize {
        200
    }

    async fn stop(&self) -> Result<()> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).kill();
        Ok(())
    }

    async fn start(&self) -> Result<()> {
        let server = Arc::clone(&self.server);
        tokio::task::spawn_blocking(move || server.lock().unwrap_or_else(PoisonError::into_inner).restart())
            .await??;
        self.wait_until_served().await
    }

    /// Compacts the store below; the API server notices when a revision that is not in its memory is requested.
    async fn compact(&self) -> Result<()> {
        let output = self.etcd.etcdctl(&["get", "x", "-w", "json"])?;
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let revision = answer["header"]["revision"].to_string();
        let output = self.etcd.etcdctl(&["compact", &revision])?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }
}

const OBJECTS: &str = r#"
{"apiVersion": "v1", "kind": "List", "items": [
  {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"env": "prod"}}},
  {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "web", "namespace": "shop"}},
  {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-1", "namespace": "shop", "labels": {"app": "web"}},
   "spec": {"nodeName": "n1", "serviceAccountName": "web", "containers": [{"name": "c", "image": "i"}]}},
  {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
   "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}},
  {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "web", "namespace": "shop"},
   "spec": {"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [{"podSelector": {}}]}]}}
]}"#;

async fn native_objects(store: &KubernetesStore) -> Result<()> {
    let options = FelixOptions { kubernetes: true, use_pod_cidr: false, leader: true };
    let (recorder, follower) = Recorder::follow(&store.backend().await?, feeds::felix(options));
    recorder.wait_in_sync().await?;
    store.kubectl(&["create", "--validate=false", "-f", "-"], OBJECTS).await?;
    let status = r#"{"status": {"phase": "Running", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}]}}"#;
    let patch = ["patch", "pod", "web-1", "-n", "shop", "--subresource=status", "--type=merge", "-p", status];
    store.kubectl(&patch, "").await?;
    let endpoint = FeedKey::WorkloadEndpoint(WorkloadEndpointKey {
        host: "n1".into(),
        orchestrator: "k8s".into(),
        workload: "shop/web-1".into(),
        endpoint: "eth0".into(),
    });
    let policy = FeedKey::Policy(PolicyKey {
        kind: Kind::KubernetesNetworkPolicy,
        namespace: "shop".into(),
        name: "web".into(),
    });
    let expected = [
        endpoint.clone(),
        policy.clone(),
        FeedKey::Service(NamespacedName { namespace: "shop".into(), name: "web".into() }),
        FeedKey::ProfileRules("kns.shop".into()),
        FeedKey::Profile("ksa.shop.web".into()),
        FeedKey::Profile("kns.shop".into()),
    ];
    recorder.wait("the objects", |known| expected.iter().all(|key| known.values.contains_key(key))).await?;
    {
        let known = recorder.known();
        let Some(FeedEntry::WorkloadEndpoint(_, Some(pod))) = known.values.get(&endpoint) else {
            bail!("no endpoint")
        };
        ensure!(
            pod.labels.get("app") == Some("web")
                && pod.profile_ids == ["kns.shop", "ksa.shop.web"].map(ProfileName::from),
            "{pod:?}"
        );
        ensure!(pod.ipv4_nets[0].to_string() == "10.1.2.3/32", "{pod:?}");
        let Some(FeedEntry::Policy(_, Some(policy))) = known.values.get(&policy) else { bail!("no policy") };
        ensure!(
            policy.selector.canonical().contains(r#"projectcalico.org/namespace == "shop""#),
            "{policy:?}"
        );
    }
    // Deleted while nothing is connected.
    store.stop().await?;
    store.start().await?;
    store.kubectl(&["delete", "networkpolicy", "web", "-n", "shop"], "").await?;
    store.kubectl(&["delete", "pod", "web-1", "-n", "shop", "--force", "--grace-period=0"], "").await?;
    recorder
        .wait("the deletions", |known| {
            !known.values.contains_key(&policy) && !known.values.contains_key(&endpoint)
        })
        .await?;
    ensure!(recorder.known().complaints.is_empty(), "{:?}", recorder.known().complaints);
    follower.stop().await;
    Ok(())
}

/// More endpoint slices than fit on one page of a list.
async fn pages(store: &KubernetesStore) -> Result<()> {
    let slices: Vec<serde_json::Value> = (0..520)
        .map(|number| {
            serde_json::json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": [],
                "metadata": {"name": format!("slice-{number}"), "namespace": "default"},
            })
        })
        .collect();
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": slices});
    store.kubectl(&["create", "--validate=false", "-f", "-"], &list.to_string()).await?;
    let backend = store.backend().await?;
    let kind = ListOptions::resources(Kind::KubernetesEndpointSlice);
    let whole = backend.list(&kind, None).await?;
    let mut parts = backend.list_parts(&kind, None).await?;
    let (mut keys, mut count) = (std::collections::BTreeSet::new(), 0);
    while let Some(part) = parts.next().await {
        let part = part?;
        ensure!(part.revision >= whole.revision, "{} before {}", part.revision, whole.revision);
        count += 1;
        keys.extend(part.items.into_iter().map(|pair| pair.key));
    }
    ensure!(count > 1 && keys.len() >= 520, "{count} parts, {} entries", keys.len());
    ensure!(whole.items.iter().all(|pair| keys.contains(&pair.key)));
    Ok(())
}

/// Images are replaced while manifests stay: Felix's feed is in sync with the roles of every release, on definitions as
/// old as v3.28's, which know neither tiers nor staged policies.
async fn roles(store: &KubernetesStore) -> Result<()> {
    let newer =
        ["tiers", "stagedglobalnetworkpolicies", "stagednetworkpolicies", "stagedkubernetesnetworkpolicies"];
    let newer = newer.map(|plural| format!("{plural}.crd.projectcalico.org"));
    let mut delete = vec!["delete", "crd"];
    delete.extend(newer.iter().map(String::as_str));
    store.kubectl(&delete, "").await?;
    for manifest in ["calico", "canal", "calico-policy-only"] {
        for release in RELEASES {
            let name = format!("felix-{manifest}-{}", release.replace('.', "-"));
            let server = Arc::clone(&store.server);
            let rules = testkit::roles::rules(manifest, "calico-node", release)?;
            let kubeconfig = tokio::task::spawn_blocking(move || {
                server.lock().unwrap_or_else(PoisonError::into_inner).account(&name, &rules)
            })
            .await??;
            let config = KubernetesConfig::from_file(&kubeconfig);
            let backend: Arc<dyn Backend> = Arc::new(KubernetesBackend::connect(&config).await?);
            let options = FelixOptions { kubernetes: true, use_pod_cidr: manifest != "calico", leader: true };
            let (recorder, follower) = Recorder::follow(&backend, feeds::felix(options));
            recorder.wait_in_sync().await.with_context(|| format!("{manifest}.yaml of {release}"))?;
            follower.stop().await;
        }
    }
    Ok(())
}

/// One server for all: starting it takes longest.
#[tokio::test(flavor = "multi_thread")]
async fn feeds_survive_restarts_of_the_api_server() -> Result<()> {
    let store = KubernetesStore::open().await?;
    native_objects(&store).await?;
    pages(&store).await?;
    survive(&store).await?;
    roles(&store).await
}
