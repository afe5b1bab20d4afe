//! One secret, read and watched. A role that names the secret is enough: it is listed and watched by its name.
//!
//! This does not use the state machine of crate `follow`, which keeps a whole collection in step: for one object there
//! is nothing to keep. Whatever the watch reports, even its end, the secret is read again, so that no event can be
//! misinterpreted.

use crate::access::{ApiError, JSON, KubeAccess, segment};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use datastore::Secret;
use futures::AsyncBufReadExt as _;
use http::{Method, Request};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a server keeps a watch open.
const WATCH: Duration = Duration::from_secs(300);

/// The state of a secret.
#[derive(Debug)]
pub struct FoundSecret {
    /// Its keys; `None` if the secret does not exist. Values that are not text are left out.
    pub keys: Option<BTreeMap<String, Secret>>,
    /// The revision to watch from.
    pub revision: String,
}

#[derive(Deserialize)]
struct List {
    metadata: ListMetadata,
    #[serde(default)]
    items: Vec<Item>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    #[serde(default)]
    resource_version: String,
}

#[derive(Deserialize)]
struct Item {
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
}

impl KubeAccess {
    /// Reads a secret.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn secret(&self, namespace: &str, name: &str) -> Result<FoundSecret, ApiError> {
        let what = format!("reading secret {namespace}/{name}");
        let list: List = self.request(what, Method::GET, &path(namespace, name, ""), None, JSON).await?;
        let text = |value: String| {
            let bytes = BASE64_STANDARD.decode(value).ok()?;
            String::from_utf8(bytes).ok().map(Secret::new)
        };
        let keys = list.items.into_iter().next().map(|item| {
            let data = item.data.unwrap_or_default().into_iter();
            data.filter_map(|(key, value)| Some((key, text(value)?))).collect()
        });
        Ok(FoundSecret { keys, revision: list.metadata.resource_version })
    }

    /// Waits until a secret may have changed since `revision`; the caller reads it again.
    ///
    /// # Errors
    /// When it cannot be watched.
    pub async fn secret_changed(&self, namespace: &str, name: &str, revision: &str) -> Result<(), ApiError> {
        let what = || format!("watching secret {namespace}/{name}");
        let seconds = WATCH.as_secs();
        let query = format!("&watch=1&timeoutSeconds={seconds}&resourceVersion={}", segment(revision));
        let request =
            Request::builder().uri(path(namespace, name, &query)).header(http::header::ACCEPT, JSON);
        let request = request
            .body(Vec::new())
            .map_err(|error| ApiError::Question { what: what(), reason: error.to_string() })?;
        let broken = |source: kube::Error| ApiError::Broken { what: what(), source: Box::new(source) };
        let stream = self.client().request_stream(request).await.map_err(broken)?;
        let mut stream = Box::pin(stream);
        // Any event, or the end of the watch: the secret is read again.
        let mut line = String::new();
        let _ = tokio::time::timeout(WATCH + Duration::from_secs(30), stream.read_line(&mut line)).await;
        Ok(())
    }
}

fn path(namespace: &str, name: &str, query: &str) -> String {
    let selector = format!("fieldSelector=metadata.name%3D{}", segment(name));
    format!("/api/v1/namespaces/{}/secrets?{selector}{query}", segment(namespace))
}
