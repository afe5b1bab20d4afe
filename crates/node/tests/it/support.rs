//! Simulated machines, variables from tables, and nodes on real stores.

use async_trait::async_trait;
use client::{Client, ClientConfig};
use daemon::Variables;
use model::IpVersion;
use node::Context;
use node::for_tests::{Host, HostError, Interface};
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use testkit::{Etcd, Folder};

/// A machine whose interfaces are set by the test.
#[derive(Default)]
pub(crate) struct TestHost {
    interfaces: Mutex<Vec<Interface>>,
}

impl TestHost {
    /// A machine with these interfaces; their indices start at 2.
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

    async fn reach(&self, destination: &str, _family: IpVersion) -> Result<IpAddr, String> {
        Err(format!("{destination} is nowhere"))
    }

    fn name(&self) -> String {
        "Test-Host".to_owned()
    }

    fn has_ipv6(&self) -> bool {
        true
    }
}

/// A node: its context, and a client for checking what it wrote.
pub(crate) struct TestNode {
    pub(crate) context: Context,
    pub(crate) host: Arc<TestHost>,
    pub(crate) folder: Folder,
}

impl TestNode {
    /// A node with these variables on a machine with one interface.
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
    Context::new(Arc::new(Variables::new(variables.iter().copied())), host, root.to_owned(), "v3.32.1")
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

/// Waits until a condition holds.
pub(crate) async fn eventually(what: &str, holds: impl AsyncFnMut() -> bool) {
    testkit::eventually_async(what, holds).await.unwrap();
}
