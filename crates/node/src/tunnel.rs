//! The addresses of the node's tunnel devices: taken from the pools that use the tunnel, and released when none does.
//!
//! - [`kind`]: the five devices, their handles, and where their address is in the node's resource.
//! - [`decision`]: what to do about one device, as a function of values.
//! - [`reconcile`]: carries it out once, for all devices.
//! - [`follow()`]: carries it out again whenever the datastore or Typha reports changed pools or a changed node.
//!
//! With host-local addresses (`USE_POD_CIDR`) there is nothing to do: the devices have the first address of the node's
//! own range, which the datastore computes.

pub(crate) mod decision;
mod inputs;
pub(crate) mod kind;
mod passes;
mod reconcile;

pub(crate) use passes::follow;
pub(crate) use reconcile::{TunnelError, reconcile};

use crate::context::Context;
use client::Client;
use daemon::Shutdown;
use typha_wire::SyncerType;

/// Carries out the decisions once.
///
/// # Errors
/// When a device failed. Addresses taken in this run are released.
pub async fn run_once(context: &Context) -> Result<(), TunnelError> {
    let config = context.client_config()?;
    if config.kubernetes.use_pod_cidr {
        tracing::debug!("addresses are host-local: tunnel devices need none from pools");
        return Ok(());
    }
    let client = Client::open(&config).await?;
    reconcile(&client, &context.node_name()?, context.settings.wireguard_host_encryption).await
}

/// Keeps the addresses up to date until the shutdown.
///
/// # Errors
/// When the settings cannot be used. Errors of the datastore are retried.
pub async fn run(context: &Context, shutdown: Shutdown) -> Result<(), TunnelError> {
    let config = context.client_config()?;
    if config.kubernetes.use_pod_cidr {
        shutdown.requested().await;
        return Ok(());
    }
    let client = context.client::<TunnelError>().await?;
    let node_name = context.node_name()?;
    let typha = context.typha(SyncerType::TunnelIpAllocation, &node_name).await?;
    follow(&client, &node_name, context.settings.wireguard_host_encryption, typha, shutdown).await;
    Ok(())
}
