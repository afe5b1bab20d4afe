//! Machines that do not exist, variables from tables, and nodes on real stores.

use async_trait::async_trait;
use client::config::Environment;
use client::{Client, ClientConfig};
use node::Context;
use node::autodetect::Interface;
use node::family::Family;
use node::host::{Host, HostError};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use testkit::{Etcd, Folder};

/// Variables from a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variables(BTreeMap<String, OsString>);

impl Variables {
    pub(crate) fn new(variables: &[(&str, &str)]) -> Self {
        Self(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect())
    }
}

impl Environment for Variables {
    fn variable(&self, name: &str) -> Option<OsString> {
        self.0.get(name).cloned()
    }

    fn read_file(&self, path: &Path) -> io::Result<String> {
        std::fs::read_to_string(path)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }
}

/// A machine whose interfaces the test decides.
#[derive(Default)]
pub(crate) struct TestHost {
    interfaces: Mutex<Vec<Interface>>,
}

impl TestHost {
    /// A machine with these interfaces, counted from 2.
    pub(crate) fn new(interfaces: &[(&str, &[&str])]) -> Arc<Self> {
        let host = Arc::new(Self::default());
        host.set(interfaces);
        host
    }

    pub(crate) fn set(&self, interfaces: &[(&str, &[&str])]) {
        let made = interfaces.iter().zip(2..).map(|((name, addresses), index)| Interface {
            index,
            name: (*name).to_owned(),
            addresses: addresses.iter().map(|text| text.parse().expect("a network")).collect(),
        });
        *self.interfaces.lock().expect("the machine") = made.collect();
    }
}

#[async_trait]
impl Host for TestHost {
    fn interfaces(&self) -> Result<Vec<Interface>, HostError> {
        Ok(self.interfaces.lock().expect("the machine").clone())
    }

    async fn reach(&self, destination: &str, _family: Family) -> Result<IpAddr, String> {
        Err(format!("{destination} is nowhere"))
    }

    fn name(&self) -> String {
        "Test-Host".to_owned()
    }

    fn has_ipv6(&self) -> bool {
        true
    }
}

/// A node: its context, and a client to look at what it wrote.
pub(crate) struct TestNode {
    pub(crate) context: Context,
    pub(crate) host: Arc<TestHost>,
    pub(crate) folder: Folder,
}

impl TestNode {
    /// A node with these variables on a machine with one card.
    pub(crate) fn new(variables: &[(&str, &str)]) -> Self {
        Self::on(TestHost::new(&[("eth0", &["10.99.0.11/24"])]), variables)
    }

    /// A node with these variables on this machine.
    pub(crate) fn on(host: Arc<TestHost>, variables: &[(&str, &str)]) -> Self {
        let folder = Folder::new("node").expect("a folder");
        let context = context(host.clone(), folder.path(), variables);
        Self { context, host, folder }
    }

    /// The same node with other variables.
    pub(crate) fn with(self, variables: &[(&str, &str)]) -> Self {
        let context = context(self.host.clone(), self.folder.path(), variables);
        Self { context, ..self }
    }

    pub(crate) async fn client(&self) -> Client {
        let config: ClientConfig = self.context.client_config().expect("usable settings");
        Client::open(&config).await.expect("a client")
    }

    pub(crate) fn file(&self, path: &str) -> String {
        std::fs::read_to_string(self.context.path(path)).unwrap_or_default()
    }
}

fn context(host: Arc<TestHost>, root: &Path, variables: &[(&str, &str)]) -> Context {
    Context::new(Arc::new(Variables::new(variables)), host, root.to_owned(), "v3.32.1")
        .expect("usable variables")
}

/// The variables of a node on this etcd.
pub(crate) fn on_etcd<'a>(endpoint: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut variables =
        vec![("DATASTORE_TYPE", "etcdv3"), ("ETCD_ENDPOINTS", endpoint), ("NODENAME", "node-a")];
    variables.retain(|(name, _)| !more.iter().any(|(other, _)| other == name));
    variables.extend_from_slice(more);
    variables
}

/// Every key of Calico's with the revision of its last change.
pub(crate) fn revisions(etcd: &Etcd) -> Vec<(String, i64)> {
    let output = etcd.etcdctl(&["get", "--prefix", "/calico", "-w", "json"]).expect("etcdctl");
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let entries = answer["kvs"].as_array().cloned().unwrap_or_default();
    let entry = |entry: &serde_json::Value| {
        (
            entry["key"].as_str().unwrap_or_default().to_owned(),
            entry["mod_revision"].as_i64().unwrap_or_default(),
        )
    };
    entries.iter().map(entry).collect()
}

/// Waits until something holds; the deadline only ends a test that would never end.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds().await {
        assert!(Instant::now() < deadline, "this never came true: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
