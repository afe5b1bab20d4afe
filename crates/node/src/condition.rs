//! The `NetworkUnavailable` condition of Kubernetes' node: false once the node is ready, true when it shuts down.
//!
//! Without networking (`CALICO_NETWORKING_BACKEND=none`) the condition belongs to the network provider, and is never
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

/// How long to wait until the node is ready; after that the condition is written anyway.
pub const READY_PATIENCE: Duration = Duration::from_secs(5 * 60);

/// How long start-up retries writing the condition.
const WRITE_PATIENCE: Duration = Duration::from_secs(30);

/// How long one request may take.
const REQUEST_PATIENCE: Duration = Duration::from_secs(2);

/// The pause between two attempts.
const WRITE_PAUSE: Duration = Duration::from_millis(500);
const READY_PAUSE: Duration = Duration::from_secs(1);

/// Why the condition could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ConditionError {
    /// The settings cannot be used.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// The connection to Kubernetes cannot be prepared.
    #[error(transparent)]
    Open(#[from] kube_access::OpenError),
    /// Kubernetes rejected the condition.
    #[error("timed out setting the node's NetworkUnavailable condition; the last error was: {0}")]
    Api(#[source] ApiError),
    /// The file with the time of the shutdown could not be removed.
    #[error("cannot remove {}: {source}", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}

/// The state of the node's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    /// Pods may run here.
    Available,
    /// Pods may not run here.
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

/// Waits until the node is ready, sets the condition, and then waits for the shutdown.
///
/// # Errors
/// When Kubernetes rejects the condition.
pub async fn manage(context: &Context, patience: Duration, shutdown: Shutdown) -> Result<(), ConditionError> {
    wait_until_ready(context, patience, &shutdown).await;
    if !shutdown.is_requested() {
        mark_available(context).await?;
        shutdown.requested().await;
    }
    Ok(())
}

/// Waits until the components on this node are ready, but not forever: a node that cannot become ready should be
/// visible rather than silently kept out.
async fn wait_until_ready(context: &Context, patience: Duration, shutdown: &Shutdown) {
    let deadline = Instant::now() + patience;
    let mut last = Vec::new();
    while !shutdown.is_requested() {
        // Determined in each round: services may be enabled while we wait.
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

/// Marks the node's network as available in Kubernetes, and removes the record of the last shutdown.
///
/// # Errors
/// When Kubernetes rejects the condition, or the file cannot be removed.
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

/// Writes the condition, retrying for this long; forever if there is no limit.
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
