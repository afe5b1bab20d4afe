//! A real kube-apiserver as a store under test, on real etcd or on the embedded store, with Calico's definitions
//! installed.

use crate::fixture::{Abilities, Fixture, KUBERNETES};
use crate::harness::{self, Store};
use crate::{cases, stores};
use anyhow::{Context as _, Result, bail};
use api::Kind;
use async_trait::async_trait;
use datastore::kubernetes::{KubernetesBackend, KubernetesConfig};
use datastore::{Backend, WatchOptions};
use model::{Key, ListOptions};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use testkit::{ApiServer, Etcd, Folder};
use tokio::net::{TcpListener, TcpStream};

/// One API server at a time: three of them would mostly wait for each other.
static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Waits until no other test of this program runs an API server.
pub(crate) async fn alone() -> tokio::sync::MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conformance_on_kubernetes_on_etcd() -> Result<()> {
    let _alone = alone().await;
    let store = KubernetesStore::on_etcd(&api::crds::to_yaml()).await?;
    harness::run("kubernetes on etcd", Arc::new(store)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conformance_on_kubernetes_on_the_embedded_store() -> Result<()> {
    let _alone = alone().await;
    let store = KubernetesStore::on_embedded(&api::crds::to_yaml()).await?;
    harness::run("kubernetes on embedded", Arc::new(store)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conformance_on_kubernetes_with_v3_definitions() -> Result<()> {
    let _alone = alone().await;
    let fixture: Arc<dyn Fixture> = Arc::new(KubernetesStore::on_etcd(&api::crds::to_yaml_v3()).await?);
    let store = Store { backend: fixture.backend().await?, abilities: fixture.abilities(), fixture };
    for name in SAME_WITH_V3_DEFINITIONS {
        let (_, case) =
            cases::ALL.iter().find(|(case, _)| case == name).with_context(|| format!("no case '{name}'"))?;
        case(&store).await.with_context(|| format!("case '{name}'"))?;
        store.backend.clean().await?;
        eprintln!("conformance kubernetes with v3 definitions: ok {name}");
    }
    Ok(())
}

/// Objects under `projectcalico.org/v3` are stored unchanged: they never had other names, and carry no bookkeeping that
/// could be unreadable. Scale and disconnection do not depend on the group.
const SAME_WITH_V3_DEFINITIONS: &[&str] = &[
    "every kind round-trips",
    "create refuses what exists",
    "update refuses what does not exist",
    "update refuses a stale revision",
    "delete refuses a wrong revision",
    "delete refuses a wrong uid",
    "lists select by namespace, name and prefix",
    "watch from a revision",
    "a policy named default.x is another one",
    "blocks, affinities and handles",
    "IPAM settings",
    "compare and swap of blocks",
    "update of a status",
];

/// The store below the API server.
enum Below {
    Etcd(Box<Etcd>),
    Embedded { endpoint: String, stop: Option<tokio::sync::oneshot::Sender<()>>, _folder: Folder },
}

impl Below {
    fn endpoint(&self) -> String {
        match self {
            Self::Etcd(etcd) => etcd.endpoint(),
            Self::Embedded { endpoint, .. } => endpoint.clone(),
        }
    }
}

impl Drop for Below {
    fn drop(&mut self) {
        if let Self::Embedded { stop, .. } = self
            && let Some(stop) = stop.take()
        {
            // The server may have ended with its runtime.
            let _ = stop.send(());
        }
    }
}

/// A kube-apiserver with Calico's definitions.
pub(crate) struct KubernetesStore {
    server: Arc<Mutex<ApiServer>>,
    below: Below,
    config: KubernetesConfig,
    proxy: Proxy,
}

impl KubernetesStore {
    /// Starts on a real etcd, with these definitions.
    pub(crate) async fn on_etcd(definitions: &str) -> Result<Self> {
        let etcd = tokio::task::spawn_blocking(Etcd::start).await??;
        Self::start(Below::Etcd(Box::new(etcd)), definitions).await
    }

    /// Starts on the embedded store's own server, in this process.
    pub(crate) async fn on_embedded(definitions: &str) -> Result<Self> {
        let folder = Folder::new("embedded-below")?;
        let mut config = kvstore::server::Config::new(folder.path().join("data"));
        config.listen = vec!["http://127.0.0.1:0".parse()?];
        let server = kvstore::server::Server::start(config).await?;
        let endpoint = server.endpoints().get(1).context("the server listens nowhere")?.to_string();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        tokio::spawn(server.serve(async {
            // An error means that the sender is gone, which is a request to stop, too.
            let _ = stopped.await;
        }));
        Self::start(Below::Embedded { endpoint, stop: Some(stop), _folder: folder }, definitions).await
    }

    async fn start(below: Below, definitions: &str) -> Result<Self> {
        let (endpoint, definitions) = (below.endpoint(), definitions.to_owned());
        let server = tokio::task::spawn_blocking(move || -> Result<ApiServer> {
            let server = ApiServer::start(&endpoint)?;
            server.kubectl_with_input(&["create", "--validate=false", "-f", "-"], &definitions)?;
            let wait = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=120s"];
            let output = server.kubectl(&wait)?;
            if !output.status.success() {
                bail!("the definitions are not accepted: {}", String::from_utf8_lossy(&output.stderr));
            }
            Ok(server)
        })
        .await??;
        let proxy = Proxy::start(server.endpoint().trim_start_matches("https://")).await?;
        let config = KubernetesConfig {
            api_endpoint: format!("https://{}", proxy.address),
            ..KubernetesConfig::from_file(server.kubeconfig())
        };
        let store = Self { server: Arc::new(Mutex::new(server)), below, config, proxy };
        store.wait_until_served().await?;
        Ok(store)
    }

    /// A definition is established a moment before its objects are served.
    async fn wait_until_served(&self) -> Result<()> {
        let mut last = None;
        for _ in 0..600 {
            let backend = KubernetesBackend::connect(&self.config).await?;
            let everything = ListOptions::resources(Kind::NetworkSet);
            match backend.ensure_ready().await {
                // Watches may take a little longer still.
                Ok(()) => match backend.watch(&everything, WatchOptions::default()).await {
                    Ok(_) => return Ok(()),
                    Err(error) => last = Some(error),
                },
                Err(error) => last = Some(error),
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        bail!("the definitions are never served: {last:?}")
    }

    /// The configuration of an administrator.
    pub(crate) fn config(&self) -> KubernetesConfig {
        self.config.clone()
    }

    /// The configuration of a user without any rights.
    pub(crate) fn config_without_rights(&self) -> KubernetesConfig {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        KubernetesConfig::from_file(server.kubeconfig_without_rights())
    }

    /// The file of the authority that signed the server's certificate.
    pub(crate) fn authority(&self) -> std::path::PathBuf {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).ca_certificate()
    }

    /// The server's address.
    pub(crate) fn endpoint(&self) -> String {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).endpoint()
    }

    /// Runs `kubectl` as administrator, with this standard input; fails if it fails.
    pub(crate) async fn kubectl(&self, arguments: &[&str], input: &str) -> Result<String> {
        let server = Arc::clone(&self.server);
        let (arguments, input): (Vec<String>, String) =
            (arguments.iter().map(|argument| (*argument).to_owned()).collect(), input.to_owned());
        tokio::task::spawn_blocking(move || {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            server.lock().unwrap_or_else(PoisonError::into_inner).kubectl_with_input(&arguments, &input)
        })
        .await?
    }

    /// Creates an object unchanged.
    pub(crate) async fn create(&self, object: &Value) -> Result<()> {
        self.kubectl(&["create", "--validate=false", "-f", "-"], &object.to_string()).await?;
        Ok(())
    }

    fn custom_resource(key: &Key, metadata: &Value, spec: &Value) -> Result<Value> {
        let key = key.as_resource().context("not a resource")?;
        let mut object = json!({
            "apiVersion": "crd.projectcalico.org/v1", "kind": key.kind.as_str(), "metadata": metadata, "spec": spec,
        });
        object["metadata"]["name"] = key.name.clone().into();
        if key.kind.is_namespaced() {
            object["metadata"]["namespace"] = key.namespace.clone().into();
        }
        Ok(object)
    }
}

#[async_trait]
impl Fixture for KubernetesStore {
    async fn backend(&self) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(KubernetesBackend::connect(&self.config).await?))
    }

    fn abilities(&self) -> Abilities {
        KUBERNETES
    }

    async fn namespace(&self, name: &str) -> Result<()> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.kubectl(&["apply", "-f", "-"], &namespace.to_string()).await?;
        Ok(())
    }

    /// Releases before v3.32 kept all metadata in the annotation, the name only from v3.30 on.
    async fn put_raw(&self, key: &Key, json: &str) -> Result<()> {
        let mut object: Value = serde_json::from_str(json)?;
        let mut stored = object["metadata"].take();
        let fields = stored.as_object_mut().context("no metadata")?;
        for field in ["name", "namespace", "uid"] {
            fields.remove(field);
        }
        let annotation = stored.pointer("/annotations/projectcalico.org~1metadata").and_then(Value::as_str);
        let name =
            annotation.map(serde_json::from_str::<Value>).transpose()?.map(|stored| stored["name"].clone());
        if let Some(name) = name {
            stored["name"] = name;
            stored.as_object_mut().context("no metadata")?.remove("annotations");
        }
        let metadata = json!({"annotations": {"projectcalico.org/metadata": stored.to_string()}});
        self.create(&Self::custom_resource(key, &metadata, &object["spec"])?).await
    }

    async fn put_unreadable(&self, key: &Key) -> Result<()> {
        let metadata = json!({"annotations": {"projectcalico.org/metadata": "{"}});
        self.create(&Self::custom_resource(key, &metadata, &json!({}))?).await
    }

    /// The API server keeps recent history itself, so the store below is compacted and the server restarted.
    async fn compact(&self) -> Result<()> {
        stores::compact(&self.below.endpoint()).await?;
        let server = Arc::clone(&self.server);
        tokio::task::spawn_blocking(move || server.lock().unwrap_or_else(PoisonError::into_inner).restart())
            .await??;
        self.wait_until_served().await
    }

    /// A restarted API server has lost its history and sends every client to a new list. What every client must
    /// survive, and what this tests, is that the connection to a server breaks, and is restored.
    async fn stop(&self) -> Result<()> {
        self.proxy.stop().await;
        Ok(())
    }

    async fn start(&self) -> Result<()> {
        self.proxy.resume().await
    }
}

/// A breakable path to the API server.
struct Proxy {
    address: String,
    target: String,
    running: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

impl Proxy {
    async fn start(target: &str) -> Result<Self> {
        let address = format!("127.0.0.1:{}", testkit::free_port()?);
        let proxy = Self { address, target: target.to_owned(), running: Mutex::new(None) };
        proxy.resume().await?;
        Ok(proxy)
    }

    async fn resume(&self) -> Result<()> {
        let listener = TcpListener::bind(&self.address).await?;
        let target = self.target.clone();
        let running = tokio::spawn(async move {
            // Ending this task ends every connection with it.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                let target = target.clone();
                connections.spawn(async move {
                    if let Ok(mut server) = TcpStream::connect(&target).await {
                        // Either side may end at any time.
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
        Ok(())
    }

    async fn stop(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(running) = running {
            running.abort();
            // Cancelled, as intended.
            let _ = running.await;
        }
    }
}
