//! The plugin's kubeconfig, with a token of its own service account. Only in a pod; elsewhere no token can be obtained.

use crate::settings::Settings;
use daemon::Environment;
use kube_access::access::join_host_port;
use kube_access::kubeconfig::{self, Trust};
use kube_access::{KubeAccess, OpenError, TokenError, token};
use std::io;
use std::path::{Path, PathBuf};

/// The name of the file.
pub(crate) const FILE: &str = "calico-kubeconfig";

/// Why the kubeconfig was not written.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The pod's own connection cannot be prepared.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// No token could be obtained.
    #[error("cannot get a token for the CNI plugin's kubeconfig: {0}")]
    Token(#[from] TokenError),
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// The pod's connection to its cluster.
#[derive(Debug)]
pub(crate) struct Credentials {
    access: KubeAccess,
    namespace: String,
    own_token: PathBuf,
}

impl Credentials {
    /// Opens the connection of this pod; `None` outside a pod.
    ///
    /// # Errors
    /// When this is a pod and its files cannot be used.
    pub(crate) async fn open(
        environment: &(dyn Environment + Send + Sync),
        account: &Path,
    ) -> Result<Option<Self>, CredentialError> {
        let own_token = account.join("token");
        if !own_token.is_file() {
            return Ok(None);
        }
        let access = KubeAccess::in_cluster(environment, account).await?;
        let path = account.join("namespace");
        let namespace =
            std::fs::read_to_string(&path).map_err(|source| CredentialError::File { path, source })?;
        Ok(Some(Self { access, namespace: namespace.trim().to_owned(), own_token }))
    }

    /// Gets a new token and writes the file. Returns when the token expires.
    ///
    /// # Errors
    /// When no token is available, or the file cannot be written.
    pub(crate) async fn renew(
        &self,
        settings: &Settings,
        net_folder: &Path,
    ) -> Result<jiff::Timestamp, CredentialError> {
        let token =
            token::fetch(&self.access, &self.namespace, &settings.service_account, &self.own_token).await?;
        let server = format!(
            "{}://{}",
            settings.service_protocol,
            join_host_port(&settings.service_host, &settings.service_port)
        );
        let trust = match settings.skip_tls_verify {
            true => Trust::Nothing,
            false => Trust::Authority(self.access.authority()),
        };
        let path = net_folder.join(FILE);
        kubeconfig::write(&path, &kubeconfig::render(&server, trust, &token.text))
            .map_err(|source| CredentialError::File { path: path.clone(), source })?;
        tracing::info!(path = %path.display(), expires = %token.expires, "installed the CNI plugin's kubeconfig");
        Ok(token.expires)
    }
}

/// The pod's own token, for templates that use it; empty outside a pod.
#[must_use]
pub(crate) fn own_token(account: &Path) -> String {
    std::fs::read_to_string(account.join("token")).unwrap_or_default()
}
