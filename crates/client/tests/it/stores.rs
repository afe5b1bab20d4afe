//! The stores that the scenarios run on.

use client::{Client, ClientConfig, DatastoreType};
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use testkit::{ApiServer, Etcd, Folder};

/// A future returned by a method of a trait object.
pub(crate) type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A store with a client on it.
pub(crate) trait Store: Send + Sync {
    /// Its name in reports.
    fn name(&self) -> &'static str;

    /// The client.
    fn client(&self) -> &Client;

    /// Whether this is the Kubernetes API.
    fn is_kubernetes(&self) -> bool {
        false
    }

    /// Removes all data.
    fn empty(&self) -> Pending<'_, ()> {
        Box::pin(async move { self.client().backend().clean().await.expect("cleaning the store") })
    }

    /// Stores a NetworkPolicy as versions before 3.32 did: under the name `default.NAME`, without recording the real
    /// name.
    fn put_legacy_policy<'a>(&'a self, namespace: &'a str, name: &'a str) -> Pending<'a, ()>;

    /// The names under which the policies of a namespace are actually stored.
    fn stored_policy_names<'a>(&'a self, namespace: &'a str) -> Pending<'a, Vec<String>>;
}

/// A configuration for one type of store.
pub(crate) fn config(datastore_type: DatastoreType) -> ClientConfig {
    ClientConfig {
        datastore_type,
        etcd: Default::default(),
        kubernetes: Default::default(),
        embedded_path: String::new(),
    }
}

const POLICIES: &str = "/calico/resources/v3/projectcalico.org/networkpolicies";

fn legacy_policy(namespace: &str, name: &str) -> String {
    format!(
        r#"{{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{{"name":"default.{name}","namespace":"{namespace}","uid":"48dca345-983e-47eb-8df1-062b86817137","creationTimestamp":"2024-11-15T19:47:49Z"}},"spec":{{"order":200,"selector":"app == 'db'","types":["Ingress"]}}}}"#
    )
}

/// A real etcd.
pub(crate) struct RealEtcd {
    pub(crate) etcd: Etcd,
    client: Client,
}

impl RealEtcd {
    pub(crate) async fn start() -> Self {
        let etcd = Etcd::start().expect("starting etcd");
        let mut config = config(DatastoreType::EtcdV3);
        config.etcd.endpoints = etcd.endpoint();
        let client = Client::open(&config).await.expect("connecting to etcd");
        Self { etcd, client }
    }

    /// All keys below a prefix with their values.
    pub(crate) fn dump(&self, prefix: &str) -> String {
        let output = self.etcd.etcdctl(&["get", "--prefix", prefix]).expect("etcdctl");
        assert!(output.status.success());
        String::from_utf8(output.stdout).expect("text")
    }
}

impl Store for RealEtcd {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn client(&self) -> &Client {
        &self.client
    }

    fn put_legacy_policy<'a>(&'a self, namespace: &'a str, name: &'a str) -> Pending<'a, ()> {
        Box::pin(async move {
            let key = format!("{POLICIES}/{namespace}/default.{name}");
            let output = self.etcd.etcdctl(&["put", &key, &legacy_policy(namespace, name)]).expect("etcdctl");
            assert!(output.status.success());
        })
    }

    fn stored_policy_names<'a>(&'a self, namespace: &'a str) -> Pending<'a, Vec<String>> {
        Box::pin(async move {
            let prefix = format!("{POLICIES}/{namespace}/");
            let output = self.etcd.etcdctl(&["get", "--prefix", "--keys-only", &prefix]).expect("etcdctl");
            let text = String::from_utf8(output.stdout).expect("text");
            text.lines().filter_map(|line| line.strip_prefix(&prefix)).map(str::to_owned).collect()
        })
    }
}

/// The embedded store, opened by this process.
pub(crate) struct Embedded {
    store: std::sync::Arc<kvstore_engine::Store>,
    client: Client,
    _folder: Folder,
}

impl Embedded {
    pub(crate) async fn open() -> Self {
        let folder = Folder::new("client").expect("a folder");
        let store =
            kvstore_engine::Store::open(folder.path().join("data"), kvstore_engine::Options::default())
                .expect("opening");
        let backend = datastore::etcd::EtcdBackend::embedded(store.clone());
        Self { store, client: Client::new(std::sync::Arc::new(backend)), _folder: folder }
    }
}

impl Store for Embedded {
    fn name(&self) -> &'static str {
        "embedded"
    }

    fn client(&self) -> &Client {
        &self.client
    }

    fn put_legacy_policy<'a>(&'a self, namespace: &'a str, name: &'a str) -> Pending<'a, ()> {
        Box::pin(async move {
            let key = format!("{POLICIES}/{namespace}/default.{name}");
            let put = kvstore_engine::PutRequest {
                key: key.into_bytes().into(),
                value: legacy_policy(namespace, name).into_bytes().into(),
                ..Default::default()
            };
            self.store.put(put).await.expect("putting");
        })
    }

    fn stored_policy_names<'a>(&'a self, namespace: &'a str) -> Pending<'a, Vec<String>> {
        Box::pin(async move {
            let prefix = format!("{POLICIES}/{namespace}/");
            let mut end = prefix.clone().into_bytes();
            if let Some(last) = end.last_mut() {
                *last += 1;
            }
            let range = kvstore_engine::RangeRequest {
                key: prefix.clone().into_bytes().into(),
                range_end: end.into(),
                ..Default::default()
            };
            let response = self.store.range(&range).expect("reading");
            let names = response.kvs.iter().map(|entry| String::from_utf8_lossy(&entry.key).into_owned());
            names.filter_map(|key| key.strip_prefix(&prefix).map(str::to_owned)).collect()
        })
    }
}

/// A real kube-apiserver with Calico's CRDs.
pub(crate) struct Kubernetes {
    api_server: ApiServer,
    client: Client,
    _etcd: Etcd,
}

impl Kubernetes {
    pub(crate) async fn start() -> Self {
        let etcd = Etcd::start().expect("starting etcd");
        let api_server = ApiServer::start(&etcd.endpoint()).expect("starting kube-apiserver");
        for definition in api::crds::all() {
            let text = definition.to_string();
            api_server
                .kubectl_with_input(&["apply", "--server-side", "-f", "-"], &text)
                .expect("applying a CRD");
        }
        let wait = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"];
        assert!(
            api_server.kubectl(&wait).expect("kubectl").status.success(),
            "the CRDs were not established"
        );
        for namespace in ["shop", "default"] {
            // `default` may exist already.
            let _ = api_server.kubectl(&["create", "namespace", namespace]).expect("kubectl");
        }
        let client = Self::client_of(&api_server.kubeconfig()).await;
        Self { api_server, client, _etcd: etcd }
    }

    async fn client_of(kubeconfig: &Path) -> Client {
        let mut config = config(DatastoreType::Kubernetes);
        config.kubernetes.kubeconfig = kubeconfig.display().to_string();
        Client::open(&config).await.expect("connecting to Kubernetes")
    }

    /// A client of a user without any rights.
    pub(crate) async fn client_without_rights(&self) -> Client {
        Self::client_of(&self.api_server.kubeconfig_without_rights()).await
    }
}

impl Store for Kubernetes {
    fn name(&self) -> &'static str {
        "kubernetes"
    }

    fn client(&self) -> &Client {
        &self.client
    }

    fn is_kubernetes(&self) -> bool {
        true
    }

    fn put_legacy_policy<'a>(&'a self, namespace: &'a str, name: &'a str) -> Pending<'a, ()> {
        Box::pin(async move {
            let text =
                legacy_policy(namespace, name).replace("projectcalico.org/v3", "crd.projectcalico.org/v1");
            // On Kubernetes those versions always wrote the annotation; it just did not contain the name.
            let annotation =
                r#""annotations":{"projectcalico.org/metadata":"{\"creationTimestamp\":null}"},"uid""#;
            let text = text.replace("\"uid\"", annotation);
            self.api_server.kubectl_with_input(&["create", "-f", "-"], &text).expect("creating");
        })
    }

    fn stored_policy_names<'a>(&'a self, namespace: &'a str) -> Pending<'a, Vec<String>> {
        Box::pin(async move {
            let arguments = ["get", "networkpolicies.crd.projectcalico.org", "-n", namespace, "-o", "name"];
            let output = self.api_server.kubectl(&arguments).expect("kubectl");
            let text = String::from_utf8(output.stdout).expect("text");
            text.lines().filter_map(|line| line.split('/').nth(1)).map(str::to_owned).collect()
        })
    }
}
