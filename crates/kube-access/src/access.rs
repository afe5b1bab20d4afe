//! A connection to the Kubernetes API, and the few requests that it offers.
//!
//! The API's address comes from `KUBECONFIG` or from the pod's service account, and from nothing else: a kubeconfig in
//! a home directory is for people, not for agents. If both are missing, that is an answer, not an error.

use api::kubernetes::Node;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use daemon::Environment;
use datastore::kubernetes::repeating::{self, WaitLimit};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Method, Request};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The folder of a pod's service account.
pub const SERVICE_ACCOUNT_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// How long one request may take, unless the caller sets another limit.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The kubeconfig cannot be used.
    #[error("cannot use the kubeconfig {origin}: {source}")]
    Kubeconfig {
        /// The file or variable that names it.
        origin: String,
        /// What is wrong with it.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// No client can be built from the settings.
    #[error("cannot prepare the connection to Kubernetes: {0}")]
    Client(#[source] Box<kube::Error>),
    /// This is not a pod.
    #[error(
        "this is not a pod of a cluster (KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT and {SERVICE_ACCOUNT_DIR} are \
         needed), and KUBECONFIG is not set"
    )]
    NotInCluster,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The API rejected the request.
    #[error("{what}: the Kubernetes API answered {code}: {message}")]
    Refused {
        /// The request.
        what: String,
        /// The HTTP status.
        code: u16,
        /// The API's message.
        message: String,
    },
    /// There was no readable answer.
    #[error("{what}: {source}")]
    Broken {
        /// The request.
        what: String,
        /// The underlying error.
        #[source]
        source: Box<kube::Error>,
    },
    /// There was no answer in time.
    #[error("{what}: no answer from the Kubernetes API within {} s", patience.as_secs())]
    Late {
        /// The request.
        what: String,
        /// The time limit.
        patience: Duration,
    },
    /// The request could not be built.
    #[error("{what}: {reason}")]
    Question {
        /// The request.
        what: String,
        /// The reason.
        reason: String,
    },
}

impl ApiError {
    /// Whether the object does not exist, according to the API.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { code: 404, .. })
    }

    /// Whether the API does not permit the request.
    #[must_use]
    pub fn is_unauthorized(&self) -> bool {
        matches!(self, Self::Refused { code: 401 | 403, .. })
    }
}

/// A connection to one API server. Cheap to clone.
#[derive(Clone)]
pub struct KubeAccess {
    client: kube::Client,
    server: String,
    authority: String,
    patience: Duration,
}

impl std::fmt::Debug for KubeAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubeAccess").field("server", &self.server).finish_non_exhaustive()
    }
}

impl KubeAccess {
    /// Connects to the API that the environment names; `None` if it names none.
    ///
    /// # Errors
    /// When the named API cannot be used.
    pub async fn from_environment(
        environment: &(dyn Environment + Send + Sync),
    ) -> Result<Option<Self>, OpenError> {
        match Self::open(environment, Path::new(SERVICE_ACCOUNT_DIR)).await {
            Err(OpenError::NotInCluster) => Ok(None),
            outcome => outcome.map(Some),
        }
    }

    /// Connects to the API that the environment names, with the service account in this folder if `KUBECONFIG` is not
    /// set.
    ///
    /// # Errors
    /// When the environment names no API, or one that cannot be used.
    pub fn open<'a>(
        environment: &'a (dyn Environment + Send + Sync),
        service_account: &'a Path,
    ) -> BoxFuture<'a, Result<Self, OpenError>> {
        // Boxed: an async function would be compiled again in every crate that awaits it.
        async move {
            match variable(environment, "KUBECONFIG") {
                Some(path) => {
                    let file = path.clone();
                    Self::from_kubeconfig(&path, move || Kubeconfig::read_from(&file)).await
                }
                None => Self::in_cluster(environment, service_account).await,
            }
        }
        .boxed()
    }

    /// Connects to the API of the cluster that this pod runs in.
    ///
    /// # Errors
    /// When this is not a pod, or its files cannot be used.
    pub async fn in_cluster(
        environment: &(dyn Environment + Send + Sync),
        service_account: &Path,
    ) -> Result<Self, OpenError> {
        let token = service_account.join("token");
        let authority = service_account.join("ca.crt");
        let (Some(host), Some(port), true) = (
            variable(environment, "KUBERNETES_SERVICE_HOST"),
            variable(environment, "KUBERNETES_SERVICE_PORT"),
            environment.exists(&token),
        ) else {
            return Err(OpenError::NotInCluster);
        };
        let mut cluster = json!({"server": format!("https://{}", join_host_port(&host, &port))});
        if environment.exists(&authority) {
            cluster["certificate-authority"] = json!(authority);
        }
        // The file is read again when its token is about to expire.
        let kubeconfig = json!({
            "current-context": "pod",
            "clusters": [{"name": "pod", "cluster": cluster}],
            "users": [{"name": "pod", "user": {"tokenFile": token}}],
            "contexts": [{"name": "pod", "context": {"cluster": "pod", "user": "pod"}}],
        });
        let origin = format!("of the service account in {}", service_account.display());
        match serde_json::from_value::<Kubeconfig>(kubeconfig) {
            Ok(kubeconfig) => Self::from_kubeconfig(&origin, move || Ok(kubeconfig.clone())).await,
            // Only a path that is not valid UTF-8 cannot be expressed in JSON.
            Err(_) => Err(OpenError::NotInCluster),
        }
    }

    /// Connects with `kubeconfig`, which is called again when the server no longer accepts the credentials.
    async fn from_kubeconfig<F>(origin: &str, kubeconfig: F) -> Result<Self, OpenError>
    where
        F: Fn() -> Result<Kubeconfig, KubeconfigError> + Clone + Send + Sync + 'static,
    {
        let config = settings(kubeconfig.clone()).await.map_err(|source| OpenError::Kubeconfig {
            origin: origin.to_owned(),
            source: Box::new(source),
        })?;
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let authority = pem(config.root_cert.as_deref().unwrap_or_default());
        let renewal = move || {
            let settings = settings(kubeconfig.clone());
            async move { settings.await.map_err(|error| error.to_string()) }.boxed()
        };
        let client = repeating::client(config, Arc::new(renewal))
            .map_err(|error| OpenError::Client(Box::new(error)))?;
        Ok(Self { client, server, authority, patience: PATIENCE })
    }

    /// Sets another time limit for requests.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The client, for components with their own requests.
    #[must_use]
    pub fn client(&self) -> &kube::Client {
        &self.client
    }

    /// The address of the API.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The certificates of the authority that signed the server's, in PEM; empty if the system's authorities are used.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Reads the texts of a ConfigMap.
    ///
    /// # Errors
    /// When it cannot be read; [`ApiError::is_not_found`] if it does not exist.
    pub async fn config_map(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<BTreeMap<String, String>, ApiError> {
        #[derive(Deserialize)]
        struct ConfigMap {
            #[serde(default)]
            data: Option<BTreeMap<String, String>>,
        }
        let what = format!("reading config map {namespace}/{name}");
        let path = format!("/api/v1/namespaces/{}/configmaps/{}", segment(namespace), segment(name));
        let found: ConfigMap = self.request(what, Method::GET, &path, None, JSON).await?;
        Ok(found.data.unwrap_or_default())
    }

    /// Reads a node from Kubernetes.
    ///
    /// # Errors
    /// When it cannot be read; [`ApiError::is_not_found`] if it does not exist.
    pub async fn node(&self, name: &str) -> Result<Node, ApiError> {
        let what = format!("reading Kubernetes node {name}");
        self.request(what, Method::GET, &format!("/api/v1/nodes/{}", segment(name)), None, JSON).await
    }

    /// Sets a condition of a node; its other conditions are kept.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn set_node_condition(
        &self,
        name: &str,
        condition: &NodeCondition<'_>,
    ) -> Result<(), ApiError> {
        let what = format!("setting condition {} of Kubernetes node {name}", condition.kind);
        let path = format!("/api/v1/nodes/{}/status", segment(name));
        let patch = json!({"status": {"conditions": [{
            "type": condition.kind,
            "status": condition.status,
            "reason": condition.reason,
            "message": condition.message,
            "lastHeartbeatTime": condition.time,
            "lastTransitionTime": condition.time,
        }]}});
        let body = Some(patch.to_string().into_bytes());
        let _: serde::de::IgnoredAny =
            self.request(what, Method::PATCH, &path, body, STRATEGIC_MERGE).await?;
        Ok(())
    }

    /// Sends a request and reads the answer.
    pub(crate) async fn request<T: DeserializeOwned>(
        &self,
        what: String,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        content_type: &'static str,
    ) -> Result<T, ApiError> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::ACCEPT, JSON)
            .header(http::header::CONTENT_TYPE, content_type)
            // A server that is busy for longer than the time limit is reported as busy, not as silent.
            .extension(WaitLimit(self.patience / 2))
            .body(body.unwrap_or_default());
        let request = match request {
            Ok(request) => request,
            Err(error) => return Err(ApiError::Question { what, reason: error.to_string() }),
        };
        match tokio::time::timeout(self.patience, self.client.request::<T>(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) => {
                Err(ApiError::Refused { what, code: status.code, message: status.message })
            }
            Ok(Err(error)) => Err(ApiError::Broken { what, source: Box::new(error) }),
            Err(_) => Err(ApiError::Late { what, patience: self.patience }),
        }
    }
}

pub(crate) const JSON: &str = "application/json";
const STRATEGIC_MERGE: &str = "application/strategic-merge-patch+json";

/// A condition of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCondition<'a> {
    /// The type of the condition.
    pub kind: &'a str,
    /// `True` or `False`.
    pub status: &'a str,
    /// The reason, in one word.
    pub reason: &'a str,
    /// A message for people.
    pub message: &'a str,
    /// The time of the observation, in Kubernetes' format.
    pub time: &'a str,
}

/// Builds the settings of a connection from the present contents of all files.
async fn settings(
    kubeconfig: impl Fn() -> Result<Kubeconfig, KubeconfigError>,
) -> Result<kube::Config, KubeconfigError> {
    let kubeconfig = kubeconfig()?;
    let has_proxy = kubeconfig
        .clusters
        .iter()
        .filter_map(|entry| entry.cluster.as_ref())
        .any(|cluster| cluster.proxy_url.is_some());
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.disable_compression = true;
    if !has_proxy {
        // `kube` also reads a proxy from the environment, but not the exceptions that belong to it.
        config.proxy_url = None;
    }
    Ok(config)
}

/// A variable that is set and not empty.
fn variable(environment: &dyn Environment, name: &str) -> Option<String> {
    environment.variable(name)?.into_string().ok().filter(|value| !value.is_empty())
}

/// Joins a host and a port; an IPv6 address needs brackets.
#[must_use]
pub fn join_host_port(host: &str, port: &str) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Encodes a name for a path. Names of Kubernetes' objects have no special characters there, except by mistake or in an
/// attack.
pub(crate) fn segment(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b':') {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    // Dots alone would be path steps.
    if text.chars().all(|character| character == '.') { text.replace('.', "%2E") } else { text }
}

/// Encodes certificates as PEM text.
fn pem(certificates: &[Vec<u8>]) -> String {
    let mut text = String::new();
    for certificate in certificates {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let encoded = STANDARD.encode(certificate);
        for line in encoded.as_bytes().chunks(64) {
            text.push_str(&String::from_utf8_lossy(line));
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_place_in_the_path() {
        for (name, expected) in
            [("node-1.example", "node-1.example"), ("a/b", "a%2Fb"), ("..", "%2E%2E"), ("a?b#c", "a%3Fb%23c")]
        {
            assert_eq!(segment(name), expected);
        }
    }

    async fn access(server: &testkit::ScriptedServer) -> KubeAccess {
        let kubeconfig = json!({
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server.url()}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}],
        });
        let kubeconfig: Kubeconfig = serde_json::from_value(kubeconfig).expect("a kubeconfig");
        KubeAccess::from_kubeconfig("of the test", move || Ok(kubeconfig.clone()))
            .await
            .expect("a connection")
    }

    #[tokio::test]
    async fn requests_to_a_busy_api_are_retried_and_finally_reported() {
        let busy = "429 Too Many Requests\r\n";
        let server = testkit::ScriptedServer::start(&[busy, busy, "200 OK\r\n\r\n{\"data\":{\"a\":\"b\"}}"])
            .expect("a server");
        let found =
            access(&server).await.config_map("kube-system", "kubeadm-config").await.expect("an answer");
        assert_eq!(found.get("a").map(String::as_str), Some("b"));
        assert_eq!(server.requests().len(), 3, "{:?}", server.requests());

        let server = testkit::ScriptedServer::start(&[
            "429 Too Many Requests\r\n\r\n{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"status\":\"Failure\",\"message\":\"slow down\",\"code\":429}",
        ])
        .expect("a server");
        let access = access(&server).await.with_patience(Duration::from_secs(2));
        let error = access.node("n1").await.expect_err("a refusal").to_string();
        assert!(error.contains("429") && error.contains("slow down"), "{error}");
        assert!(server.requests().len() > 1, "{:?}", server.requests());
    }

    #[test]
    fn ipv6_hosts_get_brackets() {
        assert_eq!(join_host_port("10.0.0.1", "443"), "10.0.0.1:443");
        assert_eq!(join_host_port("fd00::1", "443"), "[fd00::1]:443");
    }

    #[test]
    fn certificates_become_pem_with_short_lines() {
        let text = pem(&[vec![1; 100]]);
        assert!(text.starts_with("-----BEGIN CERTIFICATE-----\nAQEB"));
        assert!(text.lines().all(|line| line.len() <= 64));
        assert_eq!(pem(&[]), "");
    }
}
