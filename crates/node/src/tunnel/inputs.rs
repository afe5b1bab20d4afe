//! The inputs of the decisions, from the datastore or a Typha: pools, and the node's labels, keys and addresses.
//!
//! They only indicate that a pass is needed; the pass reads for itself. Typha's protocol does not transmit a pool's
//! node selector, so a change of only that is noticed with the next change of anything else, as in Calico.

use super::kind::TunnelKind;
use api::meta::StringMap;
use api::scalars::Ip;
use api::{Kind, Node, Resource};
use client::Client;
use follow::{FeedEvent, Held, Snapshot};
use ipnet::IpNet;
use model::feed::{FeedEntry, IpPool, Status};
use model::{KvPair, ListOptions, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::mpsc;
use typha_client::environment::Plan;

/// The parts of a node that the decisions depend on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NodeInputs {
    labels: StringMap,
    keys: [String; 2],
    addresses: Vec<Ip>,
}

impl NodeInputs {
    fn new(node: &Node) -> Self {
        Self {
            labels: node.metadata.labels.clone(),
            keys: [node.status.wireguard_public_key.clone(), node.status.wireguard_public_key_v6.clone()],
            addresses: TunnelKind::ALL.iter().map(|kind| kind.address(node)).collect(),
        }
    }

    fn of(held: &Held) -> Option<Arc<Self>> {
        held.items.values().find_map(|pair| match &pair.value {
            Value::Resource(Resource::Node(node)) => Some(Arc::new(Self::new(node))),
            _ => None,
        })
    }
}

/// The stored pools with their revisions.
type StoredPools = Arc<Vec<KvPair>>;

/// All inputs at one moment, for comparison.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Inputs {
    Stored(StoredPools, Option<Arc<NodeInputs>>),
    Told(BTreeMap<IpNet, Box<IpPool>>, Option<Arc<NodeInputs>>),
}

/// The source of the inputs.
pub(super) enum Source {
    Datastore { pools: Snapshot<StoredPools>, node: Snapshot<Option<Arc<NodeInputs>>> },
    Typha(Told),
}

/// The state received from Typha.
pub(super) struct Told {
    _follower: typha_client::Follower,
    events: mpsc::Receiver<FeedEvent>,
    node_name: String,
    pools: BTreeMap<IpNet, Box<IpPool>>,
    node: Option<Arc<NodeInputs>>,
    in_sync: bool,
}

impl Told {
    fn apply(&mut self, event: FeedEvent) {
        match event {
            FeedEvent::Entries(entries) => {
                for entry in entries {
                    match entry {
                        FeedEntry::IpPool(cidr, Some(pool)) => _ = self.pools.insert(cidr, pool),
                        FeedEntry::IpPool(cidr, None) => _ = self.pools.remove(&cidr),
                        FeedEntry::Node(name, node) if *name == *self.node_name => {
                            self.node = node.as_deref().map(|node| Arc::new(NodeInputs::new(&node.object)));
                        }
                        _ => {}
                    }
                }
            }
            // The known state stays in force while everything is read again.
            FeedEvent::Status(status) => self.in_sync |= status == Status::InSync,
            FeedEvent::Away(_) => {}
        }
    }

    async fn changed(&mut self) {
        match self.events.recv().await {
            Some(event) => self.apply(event),
            // Happens only at shutdown.
            None => std::future::pending().await,
        }
        while let Ok(event) = self.events.try_recv() {
            self.apply(event);
        }
    }
}

impl Source {
    /// Follows Typha if one is configured, and the datastore otherwise.
    pub(super) fn start(client: &Client, node_name: &str, typha: Option<Plan>) -> Self {
        if let Some(plan) = typha {
            let (follower, events) = plan.start();
            return Self::Typha(Told {
                _follower: follower,
                events,
                node_name: node_name.to_owned(),
                pools: BTreeMap::new(),
                node: None,
                in_sync: false,
            });
        }
        let node = ListOptions::Resource {
            kind: Kind::Node,
            namespace: None,
            name: Some(node_name.to_owned()),
            name_is_prefix: false,
        };
        Self::Datastore {
            pools: Snapshot::start(client.backend(), ListOptions::resources(Kind::IPPool), |held| {
                Arc::new(held.items.values().cloned().collect())
            }),
            node: Snapshot::start(client.backend(), node, NodeInputs::of),
        }
    }

    /// The present inputs; `None` until they are complete.
    pub(super) fn inputs(&self) -> Option<Inputs> {
        match self {
            Self::Datastore { pools, node } => Some(Inputs::Stored(pools.get()?, node.get()?)),
            Self::Typha(told) => told.in_sync.then(|| Inputs::Told(told.pools.clone(), told.node.clone())),
        }
    }

    /// Waits until the inputs may have changed.
    pub(super) async fn changed(&mut self) {
        match self {
            Self::Datastore { pools, node } => tokio::select! {
                () = pools.changed() => {}
                () = node.changed() => {}
            },
            Self::Typha(told) => told.changed().await,
        }
    }
}
