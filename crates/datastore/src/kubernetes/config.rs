//! The address of the API server and our credentials, according to Calico's configuration (kubeconfig files, inline
//! text, overrides, or the pod's own service account).
//!
//! It reads files, never the environment: the client interprets variables.

use crate::error::{Error, Result};
use crate::secret::Secret;
use futures::FutureExt as _;
use kube::config::{
    Cluster, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext,
};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;

/// How to reach the Kubernetes API. Everything is optional; without any settings, the pod's service account is used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KubernetesConfig {
    /// kubeconfig files, merged in this order: the first value wins.
    pub kubeconfig: Vec<PathBuf>,
    /// A kubeconfig as text. It takes precedence over the files, and no override applies to it.
    pub kubeconfig_inline: Secret,
    /// The context to use instead of the current one.
    pub context: String,
    /// The server's address; overrides the kubeconfig.
    pub api_endpoint: String,
    /// A client certificate; overrides the kubeconfig.
    pub cert_file: String,
    /// The key of that certificate.
    pub key_file: String,
    /// The authority that signed the server's certificate; overrides the kubeconfig.
    pub ca_file: String,
    /// A bearer token; overrides the kubeconfig.
    pub api_token: Secret,
    /// Whether to accept any certificate of the server.
    pub insecure_skip_tls_verify: bool,
    /// How many requests per second Calico's Go client would send. Accepted without effect; this client does not limit
    /// itself, since the API server's own fairness does.
    pub client_qps: f32,
    /// The burst for that rate. Accepted without effect.
    pub client_burst: u32,
    /// Take tunnel addresses from the node's pod CIDR (host-local IPAM); there are no IPAM objects then.
    pub use_pod_cidr: bool,
    /// The API group of Calico's custom resources: `projectcalico.org/v3`, `crd.projectcalico.org/v1`, or empty to
    /// determine it.
    pub calico_api_group: String,
    /// The first part of workload interfaces' names; empty for `cali`.
    pub interface_prefix: String,
}

impl KubernetesConfig {
    /// A configuration from one kubeconfig file.
    #[must_use]
    pub fn from_file(path: impl Into<PathBuf>) -> Self {
        Self { kubeconfig: vec![path.into()], ..Self::default() }
    }

    /// Whether no setting names the server, so that the pod's own service account is used.
    #[must_use]
    pub fn is_in_cluster(&self) -> bool {
        self.kubeconfig.is_empty() && self.kubeconfig_inline.is_empty() && self.api_endpoint.is_empty()
    }

    /// Creates a client. No connection is opened yet.
    ///
    /// # Errors
    /// When a file cannot be read or is invalid.
    pub(crate) async fn client(&self) -> Result<kube::Client> {
        let settings = self.clone();
        let renewal = move || {
            let settings = settings.clone();
            async move { settings.connection().await.map_err(|error| error.to_string()) }.boxed()
        };
        super::repeating::client(self.connection().await?, Arc::new(renewal))
            .map_err(|error| Error::permanent("preparing the connection to Kubernetes", error))
    }

    /// The settings of a connection, with the current contents of all files.
    async fn connection(&self) -> Result<kube::Config> {
        let mut config = self.target().await?;
        config.disable_compression = true;
        Ok(config)
    }

    async fn target(&self) -> Result<kube::Config> {
        let wrong = |error: kube::config::KubeconfigError| Error::permanent("reading the kubeconfig", error);
        if self.is_in_cluster() {
            let mut config = kube::Config::incluster().map_err(|error| {
                Error::permanent("no kubeconfig is given, and this is not a pod either", error)
            })?;
            if !self.api_token.is_empty() {
                config.auth_info = parse(json!({"token": self.api_token.expose()}))?;
            }
            config.accept_invalid_certs = self.insecure_skip_tls_verify;
            return Ok(config);
        }
        let kubeconfig = if self.kubeconfig_inline.is_empty() {
            let mut kubeconfig = self.read_files()?;
            self.apply_overrides(&mut kubeconfig)?;
            kubeconfig
        } else {
            Kubeconfig::from_yaml(self.kubeconfig_inline.expose()).map_err(wrong)?
        };
        let has_proxy = names_a_proxy(&kubeconfig);
        let options = KubeConfigOptions::default();
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(wrong)?;
        if !has_proxy {
            // `kube` also takes one from the environment, but without the exceptions that belong to it.
            config.proxy_url = None;
        }
        Ok(config)
    }

    /// Merges all files. A single file must exist; of several, missing ones are skipped.
    fn read_files(&self) -> Result<Kubeconfig> {
        let mut merged = Kubeconfig::default();
        for path in &self.kubeconfig {
            if self.kubeconfig.len() > 1 && !path.exists() {
                tracing::warn!(path = %path.display(), "kubeconfig file is missing");
                continue;
            }
            let context = || format!("reading the kubeconfig {}", path.display());
            let next = Kubeconfig::read_from(path).map_err(|error| Error::permanent(context(), error))?;
            merged = merged.merge(next).map_err(|error| Error::permanent(context(), error))?;
        }
        Ok(merged)
    }

    fn apply_overrides(&self, kubeconfig: &mut Kubeconfig) -> Result<()> {
        if !self.context.is_empty() {
            kubeconfig.current_context = Some(self.context.clone());
        }
        let (cluster, user) = self.current_entries(kubeconfig)?;
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        if let Some(server) = given(&self.api_endpoint) {
            cluster.server = Some(server);
        }
        if let Some(file) = given(&self.ca_file) {
            cluster.certificate_authority = Some(file);
            cluster.certificate_authority_data = None;
        }
        if self.insecure_skip_tls_verify {
            cluster.insecure_skip_tls_verify = Some(true);
            cluster.certificate_authority = None;
            cluster.certificate_authority_data = None;
        }
        let user = user.auth_info.get_or_insert_default();
        if let Some(file) = given(&self.cert_file) {
            user.client_certificate = Some(file);
            user.client_certificate_data = None;
        }
        if let Some(file) = given(&self.key_file) {
            user.client_key = Some(file);
            user.client_key_data = None;
        }
        if !self.api_token.is_empty() {
            let other: kube::config::AuthInfo = parse(json!({"token": self.api_token.expose()}))?;
            user.token = other.token;
            user.token_file = None;
        }
        Ok(())
    }

    /// The cluster and the user of the current context, created if there is no kubeconfig at all.
    fn current_entries<'a>(
        &self,
        kubeconfig: &'a mut Kubeconfig,
    ) -> Result<(&'a mut Cluster, &'a mut NamedAuthInfo)> {
        const OURS: &str = "calico";
        if self.kubeconfig.is_empty() {
            kubeconfig.current_context = Some(OURS.to_owned());
            let context = parse::<Context>(json!({"cluster": OURS, "user": OURS}))?;
            kubeconfig.contexts.push(parse::<NamedContext>(json!({"name": OURS, "context": context}))?);
        }
        let current = kubeconfig.current_context.clone().unwrap_or_default();
        let context = kubeconfig
            .contexts
            .iter()
            .find(|entry| entry.name == current)
            .and_then(|entry| entry.context.clone())
            .ok_or_else(|| {
                let reason = if current.is_empty() {
                    "no current context is set".to_owned()
                } else {
                    format!("context '{current}' not found")
                };
                Error::permanent("reading the kubeconfig", reason)
            })?;
        let user_name = context.user.unwrap_or_default();
        if !kubeconfig.clusters.iter().any(|entry| entry.name == context.cluster) {
            kubeconfig.clusters.push(parse::<NamedCluster>(json!({"name": context.cluster, "cluster": {}}))?);
        }
        if !kubeconfig.auth_infos.iter().any(|entry| entry.name == user_name) {
            kubeconfig.auth_infos.push(parse::<NamedAuthInfo>(json!({"name": user_name, "user": {}}))?);
        }
        let missing =
            || Error::permanent("reading the kubeconfig", "its current context names no cluster or user");
        let cluster =
            kubeconfig.clusters.iter_mut().find(|entry| entry.name == context.cluster).ok_or_else(missing)?;
        let user =
            kubeconfig.auth_infos.iter_mut().find(|entry| entry.name == user_name).ok_or_else(missing)?;
        Ok((cluster.cluster.get_or_insert_default(), user))
    }
}

fn parse<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> Result<T> {
    serde_json::from_value(value)
        .map_err(|error| Error::permanent("preparing the connection to Kubernetes", error))
}

/// Whether the kubeconfig itself names a proxy.
fn names_a_proxy(kubeconfig: &Kubeconfig) -> bool {
    kubeconfig
        .clusters
        .iter()
        .filter_map(|entry| entry.cluster.as_ref())
        .any(|cluster| cluster.proxy_url.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters:\n- name: c\n  cluster: {server: 'https://1.2.3.4:6443'}\nusers:\n- name: u\n  user: {token: from-file}\ncontexts:\n- name: a\n  context: {cluster: c, user: u}\n- name: b\n  context: {cluster: c2, user: u}\n";

    #[tokio::test]
    async fn overrides_take_precedence_over_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), FILE).unwrap();
        let plain = KubernetesConfig::from_file(file.path());
        assert_eq!(plain.connection().await.unwrap().cluster_url.to_string(), "https://1.2.3.4:6443/");
        let changed = KubernetesConfig {
            api_endpoint: "https://localhost:1".into(),
            insecure_skip_tls_verify: true,
            api_token: Secret::new("other"),
            ..plain.clone()
        };
        let config = changed.connection().await.unwrap();
        assert_eq!(
            (config.cluster_url.to_string().as_str(), config.accept_invalid_certs),
            ("https://localhost:1/", true)
        );
        let unknown = KubernetesConfig { context: "z".into(), ..plain.clone() };
        assert!(unknown.connection().await.unwrap_err().to_string().contains("context 'z' not found"));
        let several =
            KubernetesConfig { kubeconfig: vec!["/nowhere/at/all".into(), file.path().into()], ..plain };
        assert_eq!(several.connection().await.unwrap().cluster_url.to_string(), "https://1.2.3.4:6443/");
        assert!(KubernetesConfig::from_file("/nowhere/at/all").connection().await.is_err());
    }

    #[tokio::test]
    async fn an_endpoint_alone_is_enough() {
        let config =
            KubernetesConfig { api_endpoint: "http://127.0.0.1:8080".into(), ..KubernetesConfig::default() };
        assert_eq!(config.connection().await.unwrap().cluster_url.to_string(), "http://127.0.0.1:8080/");
    }

    #[tokio::test]
    async fn inline_text_takes_precedence_over_files() {
        let config = KubernetesConfig {
            kubeconfig: vec!["/nowhere/at/all".into()],
            kubeconfig_inline: Secret::new(FILE),
            ..KubernetesConfig::default()
        };
        assert_eq!(config.connection().await.unwrap().cluster_url.to_string(), "https://1.2.3.4:6443/");
    }

    #[test]
    fn secrets_are_not_printed() {
        let config = KubernetesConfig {
            api_token: Secret::new("hush"),
            kubeconfig_inline: Secret::new("quiet"),
            ..KubernetesConfig::default()
        };
        let printed = format!("{config:?}");
        assert!(!printed.contains("hush") && !printed.contains("quiet"), "{printed}");
    }
}
