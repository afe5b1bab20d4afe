//! The controller of IP pools: writes the conditions and finalizers that [`decide`] determines.

use super::PREFIX;
use super::objects::{write_condition, write_finalizer};
use super::pool_plan::{ALLOCATABLE, Finalizer, PoolFacts, decide};
use crate::controller::{Context, Controller};
use crate::informer::kinds::null_as_default;
use crate::informer::{Informer, ObjectKey, Slim, Strings, Taken};
use crate::queue::{Outcome, RETRY, WorkQueue};
use async_trait::async_trait;
use client::Client;
use daemon::Shutdown;
use ipam::Ipam;
use ipnet::IpNet;
use kube_access::cluster::{Cluster, Collection};
use model::{Key, ListOptions};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;

/// The finalizer that keeps a pool until its last block is gone.
pub(crate) const FINALIZER: &str = api::words::POOL_FINALIZER;

/// How often everything is compared: this also covers work that was given up after several failures.
const PERIOD: Duration = Duration::from_secs(300);

const POOLS: Collection = Collection { prefix: PREFIX, plural: "ippools" };

/// The parts of a pool that are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pool(PoolFacts);

/// The fields of a pool that are decoded.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WirePool {
    metadata: WirePoolMeta,
    spec: WirePoolSpec,
    #[serde(deserialize_with = "null_as_default")]
    status: WirePoolStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WirePoolMeta {
    name: String,
    resource_version: String,
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<serde::de::IgnoredAny>,
    #[serde(deserialize_with = "null_as_default")]
    finalizers: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WirePoolSpec {
    cidr: String,
    disabled: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WirePoolStatus {
    #[serde(deserialize_with = "null_as_default")]
    conditions: Vec<WireCondition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

impl Slim for Pool {
    const COLLECTION: Collection = POOLS;
    type Wire = WirePool;

    fn take(wire: WirePool, _strings: &mut Strings) -> Taken<Self> {
        let WirePool { metadata, spec, status } = wire;
        let condition = status.conditions.iter().find(|condition| condition.kind == ALLOCATABLE);
        let facts = PoolFacts {
            cidr: spec.cidr.parse::<IpNet>().ok().map(|cidr| cidr.trunc()),
            disabled: spec.disabled,
            is_deleting: metadata.deletion_timestamp.is_some(),
            created: metadata.creation_timestamp.unwrap_or_default(),
            allocatable: condition.and_then(|condition| match condition.status.as_str() {
                "True" => Some(true),
                "False" => Some(false),
                _ => None,
            }),
            has_finalizer: metadata.finalizers.iter().any(|entry| entry == FINALIZER),
        };
        let key = ObjectKey::new("", &metadata.name);
        Taken { key, revision: metadata.resource_version, object: Self(facts) }
    }
}

/// The controller.
#[derive(Debug)]
pub struct PoolController {
    pools: Informer<Pool>,
    /// One key for everything: whether a pool is open depends on all pools.
    queue: WorkQueue<()>,
    cluster: Cluster,
    client: Client,
    ipam: Ipam,
}

impl PoolController {
    /// Subscribes to pools and to deleted blocks.
    #[must_use]
    pub fn new(context: &Context) -> Self {
        let queue = WorkQueue::new(RETRY);
        let pools = context.informers.of::<Pool>();
        let news = queue.clone();
        pools.subscribe(move |_| news.add(()));
        let news = queue.clone();
        context.feed.follow(ListOptions::Block { ip_version: None }, move |entry| {
            if entry.is_gone() {
                news.add(());
            }
        });
        Self {
            pools,
            queue,
            cluster: context.cluster.clone(),
            client: context.client.clone(),
            ipam: Ipam::new(Arc::clone(context.client.backend())),
        }
    }

    /// Compares everything. Returns false if something could not be done.
    async fn reconcile(&self) -> bool {
        let snapshot = self.pools.snapshot();
        let pools = snapshot.iter().map(|(key, pool)| (key.name.to_string(), pool.0.clone())).collect();
        let mut is_done = true;
        for (name, decision) in decide(&pools) {
            if let Err(error) = write_condition(&self.cluster, POOLS, &name, &decision.condition).await {
                tracing::warn!(pool = name, %error, "the condition of a pool was not written");
                is_done = false;
                // The finalizer depends on the condition.
                continue;
            }
            if let Err(error) = self.finalize(&name, decision.finalizer).await {
                tracing::warn!(
                    pool = name,
                    error = format!("{error:#}"),
                    "the finalizer of a pool is not as it should be"
                );
                is_done = false;
            }
        }
        is_done
    }

    async fn finalize(&self, name: &str, finalizer: Finalizer) -> anyhow::Result<()> {
        match finalizer {
            Finalizer::Keep => {}
            Finalizer::Add => write_finalizer(&self.cluster, POOLS, name, FINALIZER, true).await?,
            Finalizer::Remove => write_finalizer(&self.cluster, POOLS, name, FINALIZER, false).await?,
            Finalizer::RemoveWithLastBlock(cidr) => {
                self.ipam.release_pool_affinities(cidr).await?;
                if self.has_blocks(cidr).await? {
                    tracing::info!(pool = name, "a pool that is being deleted still has blocks in use");
                } else {
                    write_finalizer(&self.cluster, POOLS, name, FINALIZER, false).await?;
                }
            }
        }
        Ok(())
    }

    /// Whether there is a block in this range, according to the store: a cache may be outdated.
    async fn has_blocks(&self, pool: IpNet) -> anyhow::Result<bool> {
        let found = self.client.backend().list(&ListOptions::Block { ip_version: None }, None).await?;
        let keys = found.items.iter().map(|entry| &entry.key);
        let is_inside = |key: &Key| matches!(key, Key::Block { cidr } if pool.contains(&cidr.network()));
        // An unreadable block counts as well; if its name is unknown, it may be anywhere.
        let unreadable = found.invalid.iter().any(|entry| entry.parsed_key.as_ref().is_none_or(is_inside));
        Ok(keys.into_iter().any(is_inside) || unreadable)
    }
}

#[async_trait]
impl Controller for PoolController {
    fn name(&self) -> &'static str {
        "IPPool"
    }

    async fn run(self: Box<Self>, shutdown: Shutdown) -> anyhow::Result<()> {
        tokio::select! {
            () = self.pools.synced() => {}
            () = shutdown.requested() => return Ok(()),
        }
        self.queue.add(());
        let mut period = tokio::time::interval(PERIOD);
        loop {
            tokio::select! {
                () = self.queue.take() => {}
                _ = period.tick() => {
                    self.queue.add(());
                    continue;
                }
                () = shutdown.requested() => return Ok(()),
            }
            let outcome = if self.reconcile().await { Outcome::Done } else { Outcome::Failed };
            self.queue.finish(&(), outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pool_is_reduced_to_the_relevant_fields() {
        let object = json!({
            "metadata": {
                "name": "p", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z",
                "deletionTimestamp": "2026-01-02T00:00:00Z", "finalizers": ["x", FINALIZER],
            },
            "spec": {"cidr": "10.0.0.1/16", "blockSize": 26},
            "status": {"conditions": [{"type": "Allocatable", "status": "True"}]},
        });
        let taken = Pool::take(serde_json::from_value(object).expect("a pool"), &mut Strings::default());
        let Pool(facts) = taken.object;
        assert_eq!(facts.cidr.map(|cidr| cidr.to_string()).as_deref(), Some("10.0.0.0/16"));
        assert!(facts.is_deleting && facts.has_finalizer && !facts.disabled);
        assert_eq!(facts.allocatable, Some(true));
    }
}
