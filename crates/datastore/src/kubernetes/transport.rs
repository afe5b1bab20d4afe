//! Requests to the API server and their raw answers.
//!
//! `kube` provides configuration, TLS and credentials; requests and decoding are ours, so that a list of ten thousand
//! objects is decoded once, straight from the bytes, into types with only the fields we use. The client itself repeats
//! requests that the server turned away ([`super::repeating`]); no other request is repeated.

use super::path::{Address, ApiResource};
use super::status::{Refusal, Status};
use crate::error::Error;
use bytes::{Bytes, BytesMut};
use futures::stream::{BoxStream, StreamExt as _};
use http::{Method, Request, Response, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::time::Duration;

/// How long a request other than a watch may take. The API server itself gives up after a minute.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(90);

/// The longest watch event that is accepted. etcd keeps objects below 1.5 MiB unless it is configured otherwise.
const LONGEST_EVENT: usize = 64 << 20;

/// Number of objects per page of a list.
const PAGE: &str = "500";

/// A connection to one API server, cheap to clone.
#[derive(Clone)]
pub(crate) struct Transport {
    client: kube::Client,
}

/// Why a call failed: the server refused, or could not be reached.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server's answer.
    Refused(Box<Refusal>),
    /// No answer, or an unreadable one.
    Broken(Box<dyn std::error::Error + Send + Sync>),
}

impl Failure {
    /// Calico's class for this failure.
    pub(crate) fn into_error(self, attempt: &str, key: &str) -> Error {
        match self {
            Self::Refused(refusal) => refusal.into_error(attempt, key),
            Self::Broken(source) => {
                // A connection may recover; an answer that is not JSON will not become valid.
                let transient = !source.is::<serde_json::Error>();
                Error::Datastore { context: attempt.to_owned(), source, transient, retry_after: None }
            }
        }
    }

    /// The refusal, if the server refused.
    pub(crate) fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            Self::Broken(_) => None,
        }
    }

    /// Whether the server reports that the object does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        self.refusal().is_some_and(Refusal::is_not_found)
    }
}

/// The answer to a call.
pub(crate) type Answer<T> = Result<T, Failure>;

/// The parameters of a list.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListQuery<'a> {
    /// Empty for all namespaces.
    pub(crate) namespace: &'a str,
    /// Only the object with this name.
    pub(crate) name: Option<&'a str>,
    /// Only objects with these labels.
    pub(crate) label_selector: Option<&'a str>,
    /// Not older than this revision.
    pub(crate) revision: Option<&'a str>,
}

impl ListQuery<'_> {
    fn address(&self, resource: ApiResource) -> Address {
        let name = self.name.map(|name| format!("metadata.name={name}"));
        resource
            .collection(self.namespace)
            .with_optional("fieldSelector", name.as_deref())
            .with_optional("labelSelector", self.label_selector)
    }
}

/// An object that exists but cannot be read.
#[derive(Debug)]
pub(crate) struct Unreadable {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) revision: String,
    pub(crate) reason: String,
}

/// An object, or why it cannot be read.
pub(crate) type Item<T> = Result<T, Unreadable>;

/// One page of a list; `T` decodes one item.
#[derive(Debug, Deserialize)]
struct Page<T> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default = "Vec::new", bound(deserialize = "T: Deserialize<'de>"))]
    items: Vec<T>,
}

impl<T: DeserializeOwned> Page<T> {
    /// Decodes all items at once; if that fails, each on its own, so that one bad object does not hide the others.
    fn decode(bytes: &[u8]) -> Answer<Page<Item<T>>> {
        if let Ok(page) = serde_json::from_slice::<Page<T>>(bytes) {
            return Ok(Page { metadata: page.metadata, items: page.items.into_iter().map(Ok).collect() });
        }
        let page: Page<&RawValue> = serde_json::from_slice(bytes).map_err(broken)?;
        let items = page.items.into_iter().map(|item| decode_item(item.get().as_bytes())).collect();
        Ok(Page { metadata: page.metadata, items })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ListMeta {
    #[serde(rename = "resourceVersion")]
    resource_version: String,
    #[serde(rename = "continue")]
    next: Option<String>,
}

/// The result of a list.
#[derive(Debug)]
pub(crate) struct Listed<T> {
    pub(crate) items: Vec<Item<T>>,
    pub(crate) revision: String,
}

/// One line of a watch.
#[derive(Debug)]
pub(crate) enum RawEvent<T> {
    Added(Item<T>),
    Modified(Item<T>),
    Deleted(Item<T>),
    Bookmark(String),
}

impl Transport {
    pub(crate) fn new(client: kube::Client) -> Self {
        Self { client }
    }

    /// Reads one object.
    pub(crate) async fn get<T: DeserializeOwned>(&self, address: &Address) -> Answer<T> {
        decode(&self.call(Method::GET, address, None, "application/json").await?)
    }

    /// Creates, replaces or patches an object.
    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        address: &Address,
        body: Vec<u8>,
        content_type: &'static str,
    ) -> Answer<T> {
        decode(&self.call(method, address, Some(body), content_type).await?)
    }

    /// Deletes an object, under preconditions.
    pub(crate) async fn delete(
        &self,
        address: &Address,
        uid: Option<&str>,
        revision: Option<&str>,
    ) -> Answer<()> {
        let mut options = serde_json::json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        let mut preconditions = serde_json::Map::new();
        if let Some(uid) = uid {
            preconditions.insert("uid".into(), uid.into());
        }
        if let Some(revision) = revision {
            preconditions.insert("resourceVersion".into(), revision.into());
        }
        if !preconditions.is_empty() {
            options["preconditions"] = preconditions.into();
        }
        let body = options.to_string().into_bytes();
        self.call(Method::DELETE, address, Some(body), "application/json").await.map(drop)
    }

    /// Lists objects page by page, all of one revision.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        resource: ApiResource,
        query: &ListQuery<'_>,
    ) -> Answer<Listed<T>> {
        let base = query.address(resource);
        let mut first = base.clone().with("limit", PAGE);
        if let Some(revision) = query.revision.filter(|revision| !revision.is_empty()) {
            first = first.with("resourceVersion", revision).with("resourceVersionMatch", "NotOlderThan");
        }
        let mut page = self.page(&first).await?;
        let mut listed = Listed { items: page.items, revision: page.metadata.resource_version };
        while let Some(token) = page.metadata.next.filter(|token| !token.is_empty()) {
            page = match self.page(&base.clone().with("limit", PAGE).with("continue", &token)).await {
                Ok(page) => page,
                // The revision of the first page has expired: read one big page, now.
                Err(failure) if failure.refusal().is_some_and(Refusal::is_expired) => {
                    let whole = self.page(&base).await?;
                    return Ok(Listed { items: whole.items, revision: whole.metadata.resource_version });
                }
                Err(failure) => return Err(failure),
            };
            listed.items.append(&mut page.items);
        }
        Ok(listed)
    }

    /// Reads one page of a list: the first, or the one named by a token. Returns the token of the next one.
    pub(crate) async fn list_page<T: DeserializeOwned>(
        &self,
        resource: ApiResource,
        query: &ListQuery<'_>,
        token: Option<&str>,
    ) -> Answer<(Listed<T>, Option<String>)> {
        let mut address = query.address(resource).with("limit", PAGE);
        match (token, query.revision.filter(|revision| !revision.is_empty())) {
            (Some(token), _) => address = address.with("continue", token),
            (None, Some(revision)) => {
                address =
                    address.with("resourceVersion", revision).with("resourceVersionMatch", "NotOlderThan");
            }
            (None, None) => {}
        }
        let page = self.page(&address).await?;
        let next = page.metadata.next.filter(|token| !token.is_empty());
        Ok((Listed { items: page.items, revision: page.metadata.resource_version }, next))
    }

    /// Watches a collection from a revision on. The stream always ends with an error item.
    pub(crate) async fn watch<T: DeserializeOwned + Send + 'static>(
        &self,
        resource: ApiResource,
        query: &ListQuery<'_>,
    ) -> Answer<BoxStream<'static, Answer<RawEvent<T>>>> {
        // The server ends a watch after a while so that load spreads again; a random time limit keeps many clients from
        // reconnecting in the same second. If even that end does not arrive, the connection is dead.
        let seconds = 300 + u64::from(uuid::Uuid::new_v4().as_bytes()[0]);
        let address = query
            .address(resource)
            .with("watch", "true")
            .with("allowWatchBookmarks", "true")
            .with("timeoutSeconds", &seconds.to_string())
            .with_optional("resourceVersion", query.revision);
        let response = timed(self.exchange(Method::GET, &address, None, "application/json")).await?;
        let deadline = tokio::time::Instant::now() + Duration::from_secs(seconds + 30);
        let lines = Lines { body: response.into_body(), buffer: BytesMut::new(), searched: 0, deadline };
        let events = futures::stream::unfold(Some(lines), |state| async move {
            let mut lines = state?;
            match lines.next().await {
                Ok(Some(line)) => match read_event(&line) {
                    Ok(event) => Some((Ok(event), Some(lines))),
                    Err(failure) => Some((Err(failure), None)),
                },
                Ok(None) => Some((Err(Failure::Broken("the server ended the watch".into())), None)),
                Err(failure) => Some((Err(failure), None)),
            }
        });
        Ok(events.boxed())
    }

    async fn page<T: DeserializeOwned>(&self, address: &Address) -> Answer<Page<Item<T>>> {
        Page::decode(&self.call(Method::GET, address, None, "application/json").await?)
    }

    async fn call(
        &self,
        method: Method,
        address: &Address,
        body: Option<Vec<u8>>,
        content_type: &'static str,
    ) -> Answer<Bytes> {
        timed(async {
            let response = self.exchange(method, address, body, content_type).await?;
            Ok(response.into_body().collect().await.map_err(broken)?.to_bytes())
        })
        .await
    }

    /// Sends a request; a refusal becomes an error.
    async fn exchange(
        &self,
        method: Method,
        address: &Address,
        body: Option<Vec<u8>>,
        content_type: &'static str,
    ) -> Answer<Response<Body>> {
        let mut request = Request::builder()
            .method(method)
            .uri(address.to_string())
            .header(header::ACCEPT, "application/json")
            .header(header::ACCEPT_ENCODING, "identity");
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        let request = request.body(Body::from(body.unwrap_or_default())).map_err(broken)?;
        let response = self.client.send(request).await.map_err(broken)?;
        if response.status().is_success() {
            return Ok(response);
        }
        let code = response.status();
        let retry_after = response
            .headers()
            .get(header::RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.parse().ok())
            .map(Duration::from_secs);
        let body = response.into_body().collect().await.map_err(broken)?.to_bytes();
        Err(Failure::Refused(Box::new(Refusal::new(code, retry_after, &body))))
    }
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Transport")
    }
}

fn broken(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Failure {
    Failure::Broken(error.into())
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Answer<T> {
    serde_json::from_slice(bytes).map_err(broken)
}

fn decode_item<T: DeserializeOwned>(bytes: &[u8]) -> Item<T> {
    serde_json::from_slice(bytes).map_err(|error| {
        /// Enough to identify the object.
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Named {
            metadata: Name,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Name {
            namespace: String,
            name: String,
            #[serde(rename = "resourceVersion")]
            resource_version: String,
        }
        let metadata = serde_json::from_slice::<Named>(bytes).unwrap_or_default().metadata;
        Unreadable {
            namespace: metadata.namespace,
            name: metadata.name,
            revision: metadata.resource_version,
            reason: error.to_string(),
        }
    })
}

async fn timed<T>(call: impl Future<Output = Answer<T>>) -> Answer<T> {
    match tokio::time::timeout(REQUEST_TIMEOUT, call).await {
        Ok(answer) => answer,
        Err(_) => Err(broken(format!("no answer within {} s", REQUEST_TIMEOUT.as_secs()))),
    }
}

/// The lines of a response body.
struct Lines {
    body: Body,
    buffer: BytesMut,
    searched: usize,
    deadline: tokio::time::Instant,
}

impl Lines {
    /// The next line, or `None` at the end of the body. An unfinished last line counts as the end: its event was never
    /// delivered completely.
    async fn next(&mut self) -> Answer<Option<Bytes>> {
        loop {
            if let Some(end) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(self.searched + end + 1).freeze();
                self.searched = 0;
                let line = line.slice(..line.len() - 1);
                if !line.is_empty() {
                    return Ok(Some(line));
                }
                continue;
            }
            self.searched = self.buffer.len();
            if self.buffer.len() > LONGEST_EVENT {
                return Err(broken(format!("a watch event of more than {LONGEST_EVENT} bytes")));
            }
            let frame = match tokio::time::timeout_at(self.deadline, self.body.frame()).await {
                Ok(Some(frame)) => frame.map_err(broken)?,
                Ok(None) => return Ok(None),
                Err(_) => return Err(broken("the watch fell silent")),
            };
            if let Ok(data) = frame.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }
}

fn read_event<T: DeserializeOwned>(line: &[u8]) -> Answer<RawEvent<T>> {
    /// The object stays text until the type is known.
    #[derive(Deserialize)]
    struct Line<'a> {
        #[serde(rename = "type")]
        kind: String,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    #[derive(Deserialize)]
    struct Marker {
        metadata: ListMeta,
    }
    let line: Line<'_> = serde_json::from_slice(line).map_err(broken)?;
    let object = line.object.get().as_bytes();
    match line.kind.as_str() {
        "ADDED" => Ok(RawEvent::Added(decode_item(object))),
        "MODIFIED" => Ok(RawEvent::Modified(decode_item(object))),
        "DELETED" => Ok(RawEvent::Deleted(decode_item(object))),
        "BOOKMARK" => Ok(RawEvent::Bookmark(decode::<Marker>(object)?.metadata.resource_version)),
        "ERROR" => Err(Failure::Refused(Box::new(Refusal::from_status(decode::<Status>(object)?)))),
        other => Err(broken(format!("the server sent a watch event of unknown type '{other}'"))),
    }
}
