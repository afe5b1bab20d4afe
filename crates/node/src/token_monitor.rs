//! Keeps the CNI plugin's kubeconfig fresh: with a new token long before the old one expires, and at once when the
//! kubelet renews this pod's own token (which also happens when the cluster's signing key changes, which invalidates
//! all tokens).

use crate::context::Context;
use daemon::FolderWatch;
use daemon::Shutdown;
use kube_access::access::SERVICE_ACCOUNT_DIR;
use kube_access::kubeconfig::{self, Trust};
use kube_access::{KubeAccess, token};
use std::path::PathBuf;

/// The kubeconfig in the host's CNI folder, as mounted.
const KUBECONFIG: &str = "/host/etc/cni/net.d/calico-kubeconfig";

/// Why the kubeconfig cannot be kept fresh.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// The connection to Kubernetes cannot be prepared.
    #[error(transparent)]
    Open(#[from] kube_access::OpenError),
    /// The pod's namespace cannot be read.
    #[error("cannot read this pod's namespace from {}: {source}", path.display())]
    Namespace {
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}

/// Keeps the kubeconfig fresh until the shutdown. Without Kubernetes there is nothing to do.
///
/// # Errors
/// When the connection or the pod's namespace is unknown. Failed requests are retried.
pub async fn run(context: &Context, shutdown: Shutdown) -> Result<(), MonitorError> {
    let account = context.path(SERVICE_ACCOUNT_DIR);
    let access = match KubeAccess::open(&*context.environment, &account).await {
        Ok(access) => access,
        Err(kube_access::OpenError::NotInCluster) => {
            tracing::info!("no Kubernetes: the CNI plugin needs no token");
            shutdown.requested().await;
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    let path = account.join("namespace");
    let namespace =
        std::fs::read_to_string(&path).map_err(|source| MonitorError::Namespace { path, source })?;
    let monitor =
        Monitor { context, access, namespace: namespace.trim().to_owned(), own_token: account.join("token") };
    let mut renewed = match FolderWatch::new(&account) {
        Ok(watch) => Some(watch),
        Err(error) => {
            tracing::warn!(%error, "cannot watch this pod's token: renewing by time alone");
            None
        }
    };
    while !shutdown.is_requested() {
        let expires = monitor.renew().await;
        let interval = context.settings.cni_token_interval;
        let pause = token::pause_now(expires, interval);
        let changed = async {
            match &mut renewed {
                Some(watch) => watch.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = shutdown.sleep(pause) => {}
            outcome = changed => match outcome {
                Ok(()) => tracing::info!("this pod's token was renewed: renewing the CNI plugin's"),
                Err(error) => {
                    tracing::warn!(%error, "can no longer watch this pod's token: renewing by time alone");
                    renewed = None;
                }
            },
        }
    }
    Ok(())
}

struct Monitor<'a> {
    context: &'a Context,
    access: KubeAccess,
    namespace: String,
    own_token: PathBuf,
}

impl Monitor<'_> {
    /// Fetches a token and writes the file. Returns when the token expires; `None` if something failed.
    async fn renew(&self) -> Option<jiff::Timestamp> {
        let account = &self.context.settings.cni_service_account;
        let token = match token::fetch(&self.access, &self.namespace, account, &self.own_token).await {
            Ok(token) => token,
            Err(error) => {
                tracing::error!(%error, "no token for the CNI plugin; trying again");
                return None;
            }
        };
        let path = self.context.path(KUBECONFIG);
        let text =
            kubeconfig::render(self.access.server(), Trust::Authority(self.access.authority()), &token.text);
        if let Err(error) = kubeconfig::write(&path, &text) {
            tracing::error!(%error, path = %path.display(), "could not write the CNI plugin's kubeconfig");
            return None;
        }
        tracing::info!(path = %path.display(), expires = %token.expires, "wrote the CNI plugin's kubeconfig");
        Some(token.expires)
    }
}
