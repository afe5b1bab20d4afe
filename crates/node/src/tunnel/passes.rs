//! A pass whenever something changed that the decisions depend on: pools, and of the node its labels, keys and addresses.
//!
//! What is followed ([`super::inputs`]) only says that it is time to look; a pass reads for itself, so that no event can be missed or applied
//! twice. A pass that fails is logged and tried again with growing pauses: the node's other services go on.

use super::inputs::Source;
use super::reconcile::reconcile;
use client::Client;
use daemon::{Backoff, Shutdown};
use std::time::Duration;
use typha_client::environment::Plan;

/// How long changes are gathered before they are looked at.
const GATHER: Duration = Duration::from_millis(100);

/// Keeps the addresses right until the end. What says that it is time to look is Typha where one is named.
pub(crate) async fn follow(
    client: &Client,
    node_name: &str,
    host_encryption: bool,
    typha: Option<Plan>,
    shutdown: Shutdown,
) {
    let mut source = Source::start(client, node_name, typha);
    // The inputs of the last pass that succeeded.
    let mut done = None;
    let mut backoff = Backoff::SERVER;
    while !shutdown.is_requested() {
        let inputs = source.inputs();
        if inputs.is_some() && inputs != done {
            // A pass is not interrupted: what it began, it finishes.
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
