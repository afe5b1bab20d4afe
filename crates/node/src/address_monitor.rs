//! The address monitor: checks the node's addresses periodically, and keeps its resource up to date.
//!
//! It repeats start-up's work on addresses. If the node's address is gone or used by another node, the monitor ends
//! with that error: the whole node must then be restarted.

use crate::context::Context;
use crate::startup::{Cluster, StartupError, internal_addresses, registration::register};
use client::Client;
use daemon::Shutdown;
use kube_access::KubeAccess;

/// Checks the addresses until the shutdown.
///
/// # Errors
/// When the node has lost its address, or shares it. Temporary errors of the datastore or Kubernetes are retried at the
/// next check.
pub(crate) async fn run(context: &Context, shutdown: Shutdown) -> Result<(), StartupError> {
    let client = context.client::<StartupError>().await?;
    let node_name = context.node_name()?;
    let access = KubeAccess::from_environment(&*context.environment).await?;
    loop {
        shutdown.sleep(context.settings.poll_interval).await;
        if shutdown.is_requested() {
            return Ok(());
        }
        match look(context, &client, access.as_ref(), &node_name).await {
            Ok(true) => tracing::info!("updated the node's addresses"),
            Ok(false) => {}
            Err(error) if is_passing(&error) => {
                tracing::error!(%error, "could not check the node's addresses; trying again later");
            }
            Err(error) => return Err(error),
        }
    }
}

async fn look(
    context: &Context,
    client: &Client,
    access: Option<&KubeAccess>,
    node_name: &str,
) -> Result<bool, StartupError> {
    let mut cluster = Cluster::default();
    if let Some(access) = access {
        cluster.internal_addresses =
            Some(internal_addresses(access, &context.kubernetes_node(node_name)).await?);
    }
    register(context, client, &cluster, node_name).await
}

fn is_passing(error: &StartupError) -> bool {
    match error {
        StartupError::Kubernetes(error) => !error.is_not_found(),
        StartupError::Datastore { source, .. } => source.is_transient() || source.is_conflict(),
        _ => false,
    }
}
