//! Operating a real API server: manifests, installing, inspecting, migrating. There are no kubelets: the tests write
//! what controllers and kubelets would write.

mod controllers;
mod doctor;
mod install;
mod manifests;
mod migrate;
mod rights;

use anyhow::{Context as _, Result};
use operate::for_tests::Target;
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};
use testkit::{ApiServer, Etcd};

/// A control plane for one test.
pub(crate) struct World {
    pub(crate) api_server: ApiServer,
    _etcd: Etcd,
}

static TURN: Mutex<()> = Mutex::new(());

impl World {
    pub(crate) fn start() -> Result<Self> {
        // Two control planes that start at once are slower than one after the other.
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let etcd = Etcd::start()?;
        let api_server = ApiServer::start(&etcd.endpoint())?;
        let world = Self { api_server, _etcd: etcd };
        testkit::eventually("the namespace kube-system", || {
            world.json(&["get", "namespace", "kube-system"]).map(drop).is_ok()
        })?;
        Ok(world)
    }

    pub(crate) async fn target(&self) -> Result<Target> {
        Target::open(Some(&self.api_server.kubeconfig())).await
    }

    /// The output of `kubectl ... -o json`.
    pub(crate) fn json(&self, arguments: &[&str]) -> Result<Value> {
        let output = self.api_server.kubectl(&[arguments, &["-o", "json"]].concat())?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        serde_json::from_slice(&output.stdout).with_context(|| format!("kubectl {arguments:?}: {text}"))
    }

    pub(crate) fn apply(&self, object: &Value) -> Result<String> {
        self.api_server.kubectl_with_input(&["apply", "-f", "-"], &object.to_string())
    }

    /// Writes the status of an object.
    pub(crate) fn set_status(&self, kind: &str, name: &str, status: &Value) -> Result<()> {
        let patch = serde_json::json!({"status": status}).to_string();
        let arguments =
            ["patch", kind, name, "-n", "kube-system", "--subresource=status", "--type=merge", "-p", &patch];
        let output = self.api_server.kubectl(&arguments)?;
        anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }
}

/// The output as text.
pub(crate) fn told(out: &[u8]) -> String {
    String::from_utf8_lossy(out).into_owned()
}

/// State that tests and their controllers share.
pub(crate) type Shared<T> = Arc<Mutex<T>>;
