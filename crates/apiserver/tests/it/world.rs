//! A server in this process, called without a network, and one behind a real kube-apiserver.

use anyhow::{Context as _, Result, bail};
use apiserver::for_tests::{Access, App, Namespaces, handle};
use bytes::Bytes;
use client::Client;
use daemon::{Shutdown, ShutdownHandle};
use datastore::etcd::{EtcdBackend, EtcdConfig};
use futures::StreamExt as _;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use testkit::Etcd;

/// A server on an etcd of its own, where every client may do everything.
pub(crate) struct World {
    pub(crate) app: Arc<App>,
    pub(crate) etcd: Etcd,
    _handle: ShutdownHandle,
}

/// A client on this etcd.
pub(crate) async fn client(etcd: &Etcd) -> Result<Client> {
    let backend = EtcdBackend::connect(&EtcdConfig::for_endpoints(&etcd.endpoint())).await?;
    Ok(Client::new(Arc::new(backend)))
}

impl World {
    pub(crate) async fn start() -> Result<Self> {
        let etcd = Etcd::start()?;
        let (handle, shutdown) = ShutdownHandle::new();
        let app = open_app(&etcd, shutdown).await?;
        app.store.client().ensure_initialized("v3.32.1", "").await?;
        Ok(Self { app, etcd, _handle: handle })
    }

    /// Sends a request, and returns the code and the body.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: &str) -> Result<(u16, Value)> {
        self.ask_with(method, path, "application/json", "application/json", body).await
    }

    pub(crate) async fn ask_with(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        accept: &str,
        body: &str,
    ) -> Result<(u16, Value)> {
        let answer = handle(&self.app, &[], request(method, path, content_type, accept, body)?).await;
        let code = answer.status().as_u16();
        let bytes = answer.into_body().collect().await?.to_bytes();
        Ok((code, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
    }

    /// The code and the warnings of a request.
    pub(crate) async fn warnings(&self, method: &str, path: &str, body: &str) -> Result<(u16, Vec<String>)> {
        let answer = handle(&self.app, &[], request(method, path, "application/json", "", body)?).await;
        let warnings = answer.headers().get_all("Warning").iter();
        let warnings = warnings.map(|value| Ok(value.to_str()?.to_owned())).collect::<Result<_>>()?;
        Ok((answer.status().as_u16(), warnings))
    }

    /// Writes directly to etcd, bypassing every check.
    pub(crate) fn put(&self, key: &str, value: &str) -> Result<()> {
        let etcdctl = testkit::program("etcdctl", "install Debian's etcd-client")?;
        let output = std::process::Command::new(etcdctl)
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.etcd.endpoint(), "put", key, value])
            .output()?;
        if !output.status.success() {
            bail!("{output:?}");
        }
        Ok(())
    }

    /// Begins a watch.
    pub(crate) async fn watch(&self, path: &str) -> Result<Watched> {
        let answer = handle(&self.app, &[], request("GET", path, "", "", "")?).await;
        if answer.status() != 200 {
            let code = answer.status();
            let bytes = answer.into_body().collect().await?.to_bytes();
            bail!("{code}: {}", String::from_utf8_lossy(&bytes));
        }
        Ok(Watched { body: answer.into_body().into_data_stream().boxed_local(), rest: Vec::new() })
    }
}

pub(crate) async fn open_app(etcd: &Etcd, shutdown: Shutdown) -> Result<Arc<App>> {
    let app = App::new(client(etcd).await?, Access::Open, Namespaces::new(None), shutdown);
    app.is_initialized.store(true, Ordering::Relaxed);
    Ok(Arc::new(app))
}

fn request(
    method: &str,
    path: &str,
    content_type: &str,
    accept: &str,
    body: &str,
) -> Result<Request<Full<Bytes>>> {
    let path = match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("/apis/projectcalico.org/v3/{path}"),
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("Content-Type", content_type)
        .header("Accept", accept)
        .header("User-Agent", "test/1.0");
    Ok(request.body(Full::new(Bytes::from(body.to_owned())))?)
}

/// The events of a watch.
pub(crate) struct Watched {
    body: futures::stream::LocalBoxStream<'static, Result<Bytes, std::convert::Infallible>>,
    rest: Vec<u8>,
}

impl Watched {
    /// The next event; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            match tokio::time::timeout(testkit::PATIENCE, self.body.next()).await.context("an event")? {
                Some(Ok(bytes)) => self.rest.extend_from_slice(&bytes),
                _ => return Ok(None),
            }
        }
    }

    /// The next events as `WORD name`.
    pub(crate) async fn words(&mut self, count: usize) -> Result<Vec<String>> {
        let mut words = Vec::new();
        for _ in 0..count {
            let event = self.next().await?.context("the watch ended")?;
            let text =
                |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
            words.push(format!("{} {}", text("/type"), text("/object/metadata/name")));
        }
        Ok(words)
    }
}
