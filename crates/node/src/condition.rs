//! The `NetworkUnavailable` condition of Kubernetes' node: false once the node is ready, true when it goes down.
//!
//! Without networking (`CALICO_NETWORKING_BACKEND=none`) the condition belongs to whoever makes the network, and is never
//! written.

use crate::context::{Context, ContextError};
use crate::health::{self, Checks};
use crate::startup::has_networking;
use client::DatastoreType;
use daemon::Shutdown;
use kube_access::access::NodeCondition;
use kube_access::{ApiError, KubeAccess};
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::Instant;

/// How long to wait until the node is ready; then the condition is written all the same.
pub const READY_PATIENCE: Duration = Duration::from_secs(5 * 60);

/// How long the condition is tried at start-up.
const WRITE_PATIENCE: Duration = Duration::from_secs(30);

/// How long one request may take.
const REQUEST_PATIENCE: Duration = Duration::from_secs(2);

/// The pauses between two attempts.
const WRITE_PAUSE: Duration = Duration::from_millis(500);
const READY_PAUSE: Duration = Duration::from_secs(1);

/// Why the condition is not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum ConditionError {
    /// The settings cannot be used.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// Kubernetes' connection cannot be prepared.
    #[error(transparent)]
    Open(#[from] kube_access::OpenError),
    /// Kubernetes does not take it.
    #[error("timed out setting the node's NetworkUnavailable condition; the last error was: {0}")]
    Api(#[source] ApiError),
    /// The file with the time of the shutdown stays.
    #[error("cannot remove {}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

/// Which way the condition goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    /// Pods may run here.
    Available,
    /// They may not.
    Unavailable,
}

impl Network {
    fn condition<'a>(self, time: &'a str) -> NodeCondition<'a> {
        let (status, reason, message) = match self {
            Self::Available => ("False", "CalicoIsUp", "Calico is running on this node"),
            Self::Unavailable => ("True", "CalicoIsDown", "Calico is shutting down on this node"),
        };
        NodeCondition { kind: "NetworkUnavailable", status, reason, message, time }
    }
}

/// Waits until the node is ready, says so, and stays until the end.
///
/// # Errors
/// When Kubernetes does not take the condition.
pub async fn manage(context: &Context, patience: Duration, shutdown: Shutdown) -> Result<(), ConditionError> {
    wait_until_ready(context, patience, &shutdown).await;
    if !shutdown.is_requested() {
        mark_available(context).await?;
        shutdown.requested().await;
    }
    Ok(())
}

/// Waits until what runs on this node is ready, but not for ever: a node that cannot become ready is better seen than
/// silently kept out.
async fn wait_until_ready(context: &Context, patience: Duration, shutdown: &Shutdown) {
    let deadline = Instant::now() + patience;
    let mut last = Vec::new();
    while !shutdown.is_requested() {
        // Looked at each time: services may be enabled while we wait.
        let checks = Checks {
            felix_ready: context.settings.felix_health,
            bird_ready: health::speaks_bgp(context, model::IpVersion::V4),
            bird6_ready: health::speaks_bgp(context, model::IpVersion::V6),
            ..Checks::default()
        };
        if checks == Checks::default() {
            tracing::info!("nothing on this node shows whether it is ready");
            return;
        }
        match health::check(context, checks, READY_PATIENCE).await {
            Ok(()) => return,
            Err(wrong) if Instant::now() >= deadline => {
                tracing::error!(?wrong, "not ready in time; continuing");
                return;
            }
            Err(wrong) => {
                if wrong != last {
                    tracing::warn!(?wrong, "not ready yet");
                    last = wrong;
                }
                shutdown.sleep(READY_PAUSE).await;
            }
        }
    }
}

/// Tells Kubernetes that pods may run here, and forgets the last shutdown.
///
/// # Errors
/// When Kubernetes does not take it, or the file cannot be removed.
pub async fn mark_available(context: &Context) -> Result<(), ConditionError> {
    if !has_networking(context) {
        tracing::info!("Calico does not manage networking: the NetworkUnavailable condition is not ours");
        return Ok(());
    }
    match KubeAccess::from_environment(&*context.environment).await? {
        Some(access) => {
            let name = context.kubernetes_node(&context.node_name()?);
            set(&access, &name, Network::Available, Some(WRITE_PATIENCE))
                .await
                .map_err(ConditionError::Api)?;
        }
        None if context.client_config()?.datastore_type == DatastoreType::Kubernetes => {
            return Err(kube_access::OpenError::NotInCluster.into());
        }
        None => tracing::info!("no Kubernetes: no NetworkUnavailable condition"),
    }
    let path = context.path(&context.settings.shutdown_file);
    match std::fs::remove_file(&path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(ConditionError::File { path, source })
        }
        _ => {
            tracing::info!("Calico started successfully");
            Ok(())
        }
    }
}

/// Writes the condition, trying for this long; for ever without a limit.
pub(crate) async fn set(
    access: &KubeAccess,
    node: &str,
    network: Network,
    patience: Option<Duration>,
) -> Result<(), ApiError> {
    let access = access.clone().with_patience(REQUEST_PATIENCE);
    let deadline = patience.map(|patience| Instant::now() + patience);
    loop {
        let time = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        match access.set_node_condition(node, &network.condition(&time)).await {
            Ok(()) => return Ok(()),
            Err(error) if deadline.is_some_and(|deadline| Instant::now() >= deadline) => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "could not set the NetworkUnavailable condition; trying again");
                tokio::time::sleep(WRITE_PAUSE).await;
            }
        }
    }
}
