//! A pass whenever something changed that the decisions depend on: pools, and of the node its labels, keys and addresses.
//!
//! Watches only say that it is time to look; what is looked at is read anew, so that no event can be missed or applied
//! twice. Trouble of any kind is told and tried again with growing pauses: the node's other services go on.

use super::kind::TunnelKind;
use super::reconcile::reconcile;
use crate::shutdown_signal::Shutdown;
use api::meta::StringMap;
use api::scalars::Ip;
use api::{IPPool, IPPoolSpec, Node, NodeSpec};
use client::{Client, ListQuery, ResourceWatch};
use futures::StreamExt as _;
use std::time::Duration;

/// How long changes are gathered before they are looked at.
const GATHER: Duration = Duration::from_millis(100);

/// The pauses after trouble.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Everything that the decisions depend on.
#[derive(Clone, Debug, PartialEq)]
struct Inputs {
    pools: Vec<IPPool>,
    labels: StringMap,
    keys: [String; 2],
    addresses: Vec<Ip>,
}

impl Inputs {
    fn new(pools: Vec<IPPool>, node: &Node) -> Self {
        Self {
            pools,
            labels: node.metadata.labels.clone(),
            keys: [node.status.wireguard_public_key.clone(), node.status.wireguard_public_key_v6.clone()],
            addresses: TunnelKind::ALL.iter().map(|kind| kind.address(node)).collect(),
        }
    }
}

/// Keeps the addresses right until the end.
pub async fn follow(client: &Client, node_name: &str, host_encryption: bool, shutdown: Shutdown) {
    let mut follower = Follower { client, node_name, host_encryption, done: None };
    let mut pause = SHORTEST_PAUSE;
    while !shutdown.is_requested() {
        match follower.look_and_wait(&shutdown).await {
            Ok(()) => pause = SHORTEST_PAUSE,
            Err(error) => {
                tracing::error!(error, "tunnel addresses: trying again in {} s", pause.as_secs());
                shutdown.sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

struct Follower<'a> {
    client: &'a Client,
    node_name: &'a str,
    host_encryption: bool,
    /// The inputs of the last pass that succeeded.
    done: Option<Inputs>,
}

impl Follower<'_> {
    /// Looks, makes a pass if there is anything new, and waits for a change. A watch that ended is no trouble.
    async fn look_and_wait(&mut self, shutdown: &Shutdown) -> Result<(), String> {
        let text = |error: client::Error| error.to_string();
        let list = self.client.resource::<IPPoolSpec>().list(&ListQuery::all()).await.map_err(text)?;
        let pool_query = ListQuery::all().at(&list.revision);
        let node = self.client.resource::<NodeSpec>().get("", self.node_name).await.map_err(text)?;
        let node_query = ListQuery::named(self.node_name).at(&node.metadata.resource_version);
        let inputs = Inputs::new(list.items, &node);
        if self.done.as_ref() != Some(&inputs) {
            // A pass is not interrupted: what it began, it finishes.
            reconcile(self.client, self.node_name, self.host_encryption)
                .await
                .map_err(|error| error.to_string())?;
            self.done = Some(inputs);
        }
        let mut pools = self.client.resource::<IPPoolSpec>().watch(&pool_query).await.map_err(text)?;
        let mut nodes = self.client.resource::<NodeSpec>().watch(&node_query).await.map_err(text)?;
        tokio::select! {
            () = next(&mut pools) => {}
            () = next(&mut nodes) => {}
            () = shutdown.requested() => return Ok(()),
        }
        shutdown.sleep(GATHER).await;
        Ok(())
    }
}

/// Waits until a watch says anything, or ends.
async fn next<T>(watch: &mut ResourceWatch<T>) {
    if let Some(Err(error)) = watch.next().await {
        tracing::debug!(%error, "a watch ended");
        // A watch that ends at once must not become a busy loop.
        tokio::time::sleep(SHORTEST_PAUSE).await;
    }
}
