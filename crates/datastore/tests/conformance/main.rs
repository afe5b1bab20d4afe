//! The integration tests of this crate, in one program.
//!
//! - One suite of cases (`cases`), run unchanged on every store: real etcd, the embedded engine in this process,
//!   `tortie datastore` on its socket, and a real kube-apiserver on real etcd and on the embedded store.
//!   `TORTIE_CASE=<text>` runs only the cases whose name contains the text.
//! - `datastore_process`: the server as a process of its own (`examples/embedded_store`), so that it can be killed.
//! - Features of single stores: certificates, users and several members of etcd (`etcd_access`, `etcd_members`), data
//!   written by Calico itself (`captures`), and situations that only a purpose-built store can show (`etcd_edges`). The
//!   runs on Kubernetes are in `kubernetes_store`.

mod captures;
mod cases;
mod datastore_process;
mod etcd_access;
mod etcd_edges;
mod etcd_members;
mod fixture;
mod harness;
mod kubernetes_native;
mod kubernetes_renewal;
mod kubernetes_store;
mod kubernetes_validation;
mod stores;

use anyhow::Result;
use std::sync::Arc;

use datastore_process::DatastoreProcess;
use stores::{EmbeddedStore, EtcdStore};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conformance_on_etcd() -> Result<()> {
    harness::run("etcd", Arc::new(EtcdStore::start().await?)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conformance_on_the_embedded_store() -> Result<()> {
    harness::run("embedded", Arc::new(EmbeddedStore::open()?)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conformance_on_tortie_datastore() -> Result<()> {
    harness::run("tortie datastore", Arc::new(DatastoreProcess::start().await?)).await
}
