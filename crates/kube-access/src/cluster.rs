//! Requests to the Kubernetes API: read one object, a page of a list, watch, write.
//!
//! Answers are decoded straight into the caller's type, so unused fields are never held in memory. An error keeps the
//! API's own message: it names the verb, the resource and the account, which is what the person who repairs the
//! permissions needs. Nothing is retried here.

use crate::KubeAccess;
use futures::stream::{BoxStream, StreamExt as _};
use http::{Method, Request};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Write as _;
use std::time::Duration;

/// How long a request other than a watch may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many objects are on one page of a list.
const PAGE: u32 = 500;

/// How soon the server ends a watch, so that a silently broken connection is noticed.
const WATCH_SECONDS: u64 = 300;

/// The content type of a patch that replaces the fields it names.
pub const MERGE_PATCH: &str = "application/merge-patch+json";

const JSON: &str = "application/json";

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A permission is missing; the API's message names it.
    #[error("cannot {what}: a permission is missing: {message}")]
    Forbidden {
        /// What was attempted.
        what: String,
        /// The API's message.
        message: String,
    },
    /// The API rejected the request for another reason.
    #[error("cannot {what}: the Kubernetes API answered {code}: {message}")]
    Refused {
        /// What was attempted.
        what: String,
        /// The HTTP status.
        code: u16,
        /// The API's message.
        message: String,
    },
    /// There was no readable answer.
    #[error("cannot {what}: {source}")]
    Broken {
        /// What was attempted.
        what: String,
        /// The underlying error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// There was no answer in time.
    #[error("cannot {what}: no answer from the Kubernetes API within {} s", PATIENCE.as_secs())]
    Late {
        /// What was attempted.
        what: String,
    },
}

impl ClusterError {
    /// Whether there is no such object (or no such kind).
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { code: 404, .. })
    }

    /// Whether the object changed in the meantime, or exists already.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { code: 409, .. })
    }

    /// Whether the requested revision is gone, so that a new list is needed.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        matches!(self, Self::Refused { code: 410, .. })
    }

    /// Whether a permission is missing.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Forbidden { .. })
    }

    fn new(what: String, error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::refused(what, status.code, status.message.clone()),
            error => Self::Broken { what, source: Box::new(error) },
        }
    }

    fn refused(what: String, code: u16, message: String) -> Self {
        match code {
            401 | 403 => Self::Forbidden { what, message },
            code => Self::Refused { what, code, message },
        }
    }
}

/// A collection of objects of one kind, across all namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collection {
    /// The group and version: `/api/v1`, `/apis/networking.k8s.io/v1`.
    pub prefix: &'static str,
    /// The resource in the path: `pods`.
    pub plural: &'static str,
}

impl Collection {
    /// The path of all objects in the collection.
    #[must_use]
    pub fn path(self) -> String {
        format!("{}/{}", self.prefix, self.plural)
    }

    /// The path of one object; the namespace is empty for cluster-scoped kinds.
    #[must_use]
    pub fn object(self, namespace: &str, name: &str) -> String {
        match namespace {
            "" => format!("{}/{}/{}", self.prefix, self.plural, encode(name)),
            _ => {
                format!("{}/namespaces/{}/{}/{}", self.prefix, encode(namespace), self.plural, encode(name))
            }
        }
    }
}

/// One page of a list.
#[derive(Debug, Deserialize)]
pub struct Page<T> {
    #[serde(default)]
    metadata: PageMeta,
    /// The objects.
    #[serde(default = "Vec::new")]
    pub items: Vec<T>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PageMeta {
    #[serde(rename = "resourceVersion")]
    revision: String,
    #[serde(rename = "continue")]
    next: Option<String>,
}

impl<T> Page<T> {
    /// The revision of the list.
    #[must_use]
    pub fn revision(&self) -> &str {
        &self.metadata.revision
    }

    /// The token of the next page; `None` on the last one.
    #[must_use]
    pub fn next(&self) -> Option<&str> {
        self.metadata.next.as_deref().filter(|token| !token.is_empty())
    }
}

/// One change of a collection.
#[derive(Clone, Debug, PartialEq)]
pub enum ClusterEvent<T> {
    /// The object was created or changed.
    Present(T),
    /// The object was deleted; its last state.
    Gone(T),
    /// There were no other changes up to this revision.
    Bookmark(String),
}

/// A running watch. An `Err` item is always the last; a stream that ends without one ended normally.
pub type ClusterWatch<T> = BoxStream<'static, Result<ClusterEvent<T>, ClusterError>>;

/// A connection to the Kubernetes API. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    client: kube::Client,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cluster")
    }
}

impl Cluster {
    /// Uses the API over an open connection.
    #[must_use]
    pub fn new(access: &KubeAccess) -> Self {
        Self { client: access.client().clone() }
    }

    /// Uses the API over this client; tests may supply the answers.
    #[must_use]
    pub fn of(client: kube::Client) -> Self {
        Self { client }
    }

    /// Reads the object or list at a path.
    ///
    /// # Errors
    /// When it cannot be read; the error describes the attempt with `what` ("read pod x").
    pub async fn get<T: DeserializeOwned>(&self, what: &str, path: &str) -> Result<T, ClusterError> {
        self.call(what, Method::GET, path, None, JSON).await
    }

    /// Sends a body to a path: POST creates, PUT replaces, PATCH changes according to its content type, DELETE deletes.
    ///
    /// # Errors
    /// When the API rejects the request or cannot be reached.
    pub async fn send<T: DeserializeOwned>(
        &self,
        what: &str,
        method: Method,
        path: &str,
        body: &Value,
        content_type: &'static str,
    ) -> Result<T, ClusterError> {
        self.call(what, method, path, Some(body.to_string().into_bytes()), content_type).await
    }

    /// Creates an object in a collection.
    ///
    /// # Errors
    /// As [`Cluster::send`]; [`ClusterError::is_conflict`] if it exists already.
    pub async fn create<T: DeserializeOwned>(
        &self,
        what: &str,
        path: &str,
        body: &Value,
    ) -> Result<T, ClusterError> {
        self.send(what, Method::POST, path, body, JSON).await
    }

    /// Replaces an object; only the version in the body's `resourceVersion`, if it has one.
    ///
    /// # Errors
    /// As [`Cluster::send`]; [`ClusterError::is_conflict`] if another client was faster.
    pub async fn replace<T: DeserializeOwned>(
        &self,
        what: &str,
        path: &str,
        body: &Value,
    ) -> Result<T, ClusterError> {
        self.send(what, Method::PUT, path, body, JSON).await
    }

    /// Checks that the API reports itself as healthy.
    ///
    /// # Errors
    /// When it reports otherwise, or does not answer.
    pub async fn healthz(&self, patience: Duration) -> Result<(), ClusterError> {
        let what = "check the health of the API server".to_owned();
        let request = Request::get("/healthz").body(Vec::new());
        let request =
            request.map_err(|error| ClusterError::Broken { what: what.clone(), source: error.into() })?;
        match tokio::time::timeout(patience, self.client.request_text(request)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(ClusterError::new(what, error)),
            Err(_) => Err(ClusterError::Late { what }),
        }
    }

    /// Reads one page of a list: the first, or the one that a token names.
    ///
    /// # Errors
    /// As [`Cluster::get`]; [`ClusterError::is_expired`] if the revision of the first page is gone.
    pub async fn page<T: DeserializeOwned>(
        &self,
        collection: Collection,
        token: Option<&str>,
    ) -> Result<Page<T>, ClusterError> {
        let mut path = format!("{}?limit={PAGE}", collection.path());
        if let Some(token) = token {
            // Writing to a string cannot fail.
            let _ = write!(path, "&continue={}", encode(token));
        }
        self.get(&format!("list {}", collection.plural), &path).await
    }

    /// Follows a collection from a revision on.
    ///
    /// # Errors
    /// When the watch cannot be started; later errors arrive as items.
    pub async fn watch<T: DeserializeOwned + Clone + Send + 'static>(
        &self,
        collection: Collection,
        revision: &str,
    ) -> Result<ClusterWatch<T>, ClusterError> {
        self.watch_selected(format!("watch {}", collection.plural), collection, "", revision).await
    }

    /// Follows one object of a collection by its name, from a revision on; from an empty revision, its present state
    /// comes first.
    ///
    /// # Errors
    /// As [`Cluster::watch`].
    pub async fn watch_one<T: DeserializeOwned + Clone + Send + 'static>(
        &self,
        collection: Collection,
        name: &str,
        revision: &str,
    ) -> Result<ClusterWatch<T>, ClusterError> {
        let selector = format!("&fieldSelector={}", encode(&format!("metadata.name={name}")));
        self.watch_selected(format!("watch {name} of {}", collection.plural), collection, &selector, revision)
            .await
    }

    async fn watch_selected<T: DeserializeOwned + Clone + Send + 'static>(
        &self,
        what: String,
        collection: Collection,
        selector: &str,
        revision: &str,
    ) -> Result<ClusterWatch<T>, ClusterError> {
        // A random time keeps many programs from reconnecting in the same second.
        let seconds = WATCH_SECONDS + u64::from(uuid::Uuid::new_v4().as_bytes()[0]);
        let path = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}{selector}&resourceVersion={}",
            collection.path(),
            encode(revision)
        );
        let request = Request::get(path).header(http::header::ACCEPT, JSON).body(Vec::new());
        let request =
            request.map_err(|error| ClusterError::Broken { what: what.clone(), source: error.into() })?;
        let opened = tokio::time::timeout(PATIENCE, self.client.request_events::<T>(request)).await;
        let events: BoxStream<'static, Result<kube::core::WatchEvent<T>, kube::Error>> = match opened {
            Ok(Ok(events)) => events.boxed(),
            Ok(Err(error)) => return Err(ClusterError::new(what, error)),
            Err(_) => return Err(ClusterError::Late { what }),
        };
        let deadline = tokio::time::Instant::now() + Duration::from_secs(seconds + 30);
        let events = futures::stream::unfold(Some((events, what)), move |state| async move {
            use kube::core::WatchEvent as Raw;
            let (mut events, what) = state?;
            let next = match tokio::time::timeout_at(deadline, events.next()).await {
                Ok(next) => next?,
                // The server did not end the watch at the requested time either.
                Err(_) => return Some((Err(ClusterError::Late { what }), None)),
            };
            let event = match next {
                Ok(Raw::Added(object) | Raw::Modified(object)) => ClusterEvent::Present(object),
                Ok(Raw::Deleted(object)) => ClusterEvent::Gone(object),
                Ok(Raw::Bookmark(bookmark)) => ClusterEvent::Bookmark(bookmark.metadata.resource_version),
                Ok(Raw::Error(status)) => {
                    let error = ClusterError::refused(what, status.code, status.message);
                    return Some((Err(error), None));
                }
                Err(error) => return Some((Err(ClusterError::new(what, error)), None)),
            };
            Some((Ok(event), Some((events, what))))
        });
        Ok(events.boxed())
    }

    async fn call<T: DeserializeOwned>(
        &self,
        what: &str,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        content_type: &'static str,
    ) -> Result<T, ClusterError> {
        let mut request = Request::builder().method(method).uri(path).header(http::header::ACCEPT, JSON);
        if body.is_some() {
            request = request.header(http::header::CONTENT_TYPE, content_type);
        }
        let request = request
            .body(body.unwrap_or_default())
            .map_err(|error| ClusterError::Broken { what: what.to_owned(), source: error.into() })?;
        match tokio::time::timeout(PATIENCE, self.client.request::<T>(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(ClusterError::new(what.to_owned(), error)),
            Err(_) => Err(ClusterError::Late { what: what.to_owned() }),
        }
    }
}

/// Percent-encodes text for a path or query.
#[must_use]
pub fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b':') {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    // Dots alone would be path steps.
    if encoded.chars().all(|character| character == '.') { encoded.replace('.', "%2E") } else { encoded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_tokens_are_escaped_in_paths() {
        let pods = Collection { prefix: "/api/v1", plural: "pods" };
        assert_eq!(pods.path(), "/api/v1/pods");
        assert_eq!(pods.object("a", "b.c"), "/api/v1/namespaces/a/pods/b.c");
        assert_eq!(pods.object("", "x/../y"), "/api/v1/pods/x%2F..%2Fy");
        assert_eq!(encode(".."), "%2E%2E");
        assert_eq!(encode("a+b="), "a%2Bb%3D");
    }

    #[test]
    fn errors_are_distinguished_and_keep_the_apis_message() {
        let words = "pods is forbidden: User \"x\" cannot list resource \"pods\"";
        let error = ClusterError::refused("list pods".into(), 403, words.into());
        assert!(error.to_string().contains("a permission is missing") && error.to_string().contains(words));
        assert!(ClusterError::refused("x".into(), 410, String::new()).is_expired());
        assert!(ClusterError::refused("x".into(), 404, String::new()).is_not_found());
        assert!(ClusterError::refused("x".into(), 409, String::new()).is_conflict());
    }
}
