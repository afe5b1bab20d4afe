//! Runs a pass whenever the inputs of the decisions change: pools, and the node's labels, keys and addresses.
//!
//! The followed inputs ([`super::inputs`]) only indicate that a pass is needed; the pass reads for itself, so that no
//! event can be missed or applied twice. A failed pass is logged and retried with growing pauses, while the node's
//! other services keep running.

use super::inputs::Source;
use super::reconcile::reconcile;
use client::Client;
use daemon::{Backoff, Shutdown};
use std::time::Duration;
use typha_client::environment::Plan;

/// How long changes are collected before a pass.
const GATHER: Duration = Duration::from_millis(100);

/// Keeps the addresses up to date until the shutdown. Changes are reported by Typha if one is configured.
pub(crate) async fn follow(
    client: &Client,
    node_name: &str,
    host_encryption: bool,
    typha: Option<Plan>,
    shutdown: Shutdown,
) {
    let mut source = Source::start(client, node_name, typha);
    // The inputs of the last successful pass.
    let mut done = None;
    let mut backoff = Backoff::SERVER;
    while !shutdown.is_requested() {
        let inputs = source.inputs();
        if inputs.is_some() && inputs != done {
            // A pass is not interrupted, so that it finishes its work.
            match reconcile(client, node_name, host_encryption).await {
                Ok(()) => {
                    done = inputs;
                    backoff.reset();
                }
                Err(error) => {
                    let pause = backoff.pause();
                    tracing::error!(%error, "tunnel addresses: trying again in {} s", pause.as_secs());
                    shutdown.sleep(pause).await;
                    continue;
                }
            }
        }
        tokio::select! {
            () = source.changed() => {}
            () = shutdown.requested() => return,
        }
        shutdown.sleep(GATHER).await;
    }
}
