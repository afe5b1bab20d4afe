//! `node shutdown`: run by a pod's `preStop` hook. Records the time, and reports to Kubernetes that pods can no longer
//! run here.

use crate::condition::{Network, set};
use crate::context::{Context, ContextError};
use crate::startup::has_networking;
use kube_access::KubeAccess;

/// Why a shutdown could not be reported to Kubernetes.
#[derive(Debug, thiserror::Error)]
pub enum ShutdownError {
    /// The settings cannot be used.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// The connection to Kubernetes cannot be prepared.
    #[error(transparent)]
    Open(#[from] kube_access::OpenError),
    /// Kubernetes rejected the condition.
    #[error(transparent)]
    Api(#[from] kube_access::ApiError),
}

/// Announces the shutdown. Writing the condition is retried until it succeeds or this process is killed: the time limit
/// is the pod's grace period, which only the kubelet knows.
///
/// # Errors
/// When the settings cannot be used, or Kubernetes rejects the condition.
pub async fn run(context: &Context) -> Result<(), ShutdownError> {
    let path = context.path(&context.settings.shutdown_file);
    let time = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    // This comes first, whatever else happens: we may be killed at any moment.
    if let Err(error) = daemon::files::write(&path, time.as_bytes(), 0o644) {
        tracing::error!(%error, path = %path.display(), "could not record the time of the shutdown");
    }
    let node_name = context.node_name()?;
    tracing::info!(node = node_name, "shutting down");
    if !has_networking(context) {
        return Ok(());
    }
    if let Some(access) = KubeAccess::from_environment(&*context.environment).await? {
        set(&access, &context.kubernetes_node(&node_name), Network::Unavailable, None).await?;
    }
    Ok(())
}
