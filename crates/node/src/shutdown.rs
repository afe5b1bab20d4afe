//! `node shutdown`: what a pod's `preStop` hook runs. Writes down when, and tells Kubernetes that pods may not come here.

use crate::condition::{Network, set};
use crate::context::{Context, ContextError};
use crate::startup::has_networking;
use kube_access::KubeAccess;

/// Why Kubernetes does not know of a shutdown.
#[derive(Debug, thiserror::Error)]
pub enum ShutdownError {
    /// The settings cannot be used.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// Kubernetes' connection cannot be prepared.
    #[error(transparent)]
    Open(#[from] kube_access::OpenError),
    /// Kubernetes does not take it.
    #[error(transparent)]
    Api(#[from] kube_access::ApiError),
}

/// Announces the shutdown. The condition is tried until it is taken or this process is killed: how long that may take is the
/// pod's grace period, which only the kubelet knows.
///
/// # Errors
/// When the settings cannot be used, or Kubernetes refuses.
pub async fn run(context: &Context) -> Result<(), ShutdownError> {
    let path = context.path(&context.settings.shutdown_file);
    let time = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    // First of all, and whatever else happens: we may be killed at any moment.
    if let Err(error) = daemon::files::write(&path, time.as_bytes(), 0o644) {
        tracing::error!(%error, path = %path.display(), "could not write down the time of the shutdown");
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
