//! Renames policies of the default tier that releases before v3.32 stored as `default.NAME`.
//!
//! Begins when every calico-node runs a version that knows the new names: an older Felix would treat the new entry as a
//! second policy. Policies of other tiers always had their own names and are left alone. Failures are retried on the
//! next change, and every five minutes.

use crate::controller::{Context, Controller};
use api::{Kind, Resource};
use async_trait::async_trait;
use daemon::{Backoff, Shutdown};
use datastore::Backend;
use kube_access::cluster::Cluster;
use model::feed::{FeedEntry, Status};
use model::names::policy_tier;
use model::{Key, KvPair, ListOptions, Value};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// The kinds that may be stored under old names.
pub(crate) const KINDS: [Kind; 4] = [
    Kind::NetworkPolicy,
    Kind::GlobalNetworkPolicy,
    Kind::StagedNetworkPolicy,
    Kind::StagedGlobalNetworkPolicy,
];

/// The namespace of calico-node if nothing else is known.
pub(crate) const DEFAULT_NAMESPACE: &str = "calico-system";

/// How often the roll-out is checked.
const ROLLOUT_PAUSE: Duration = Duration::from_secs(5);

/// The pauses after the roll-out could not be checked: roles of releases before 3.32 forbid that.
const ROLLOUT: Backoff = Backoff::new(ROLLOUT_PAUSE, Duration::from_secs(300));

/// How often failures are retried.
const PERIOD: Duration = Duration::from_secs(300);

/// Whether a policy is stored under a name that is not its own.
#[must_use]
pub(crate) fn needs_move(key: &Key, policy: &Resource) -> bool {
    let Some(stored) = key.as_resource() else { return false };
    // A policy that names no tier is in the default one.
    let is_default = policy_tier(policy).is_some_and(|tier| matches!(tier, "" | api::words::DEFAULT_TIER));
    is_default && stored.name != policy.name()
}

/// The fields of calico-node's DaemonSet that are decoded.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DaemonSet {
    metadata: Meta,
    status: Rollout,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Meta {
    generation: i64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Rollout {
    observed_generation: i64,
    current_number_scheduled: i64,
    desired_number_scheduled: i64,
    updated_number_scheduled: i64,
    number_unavailable: i64,
    number_misscheduled: i64,
}

impl DaemonSet {
    /// What the roll-out is still waiting for; `None` if it is complete.
    #[must_use]
    pub(crate) fn waits_for(&self) -> Option<&'static str> {
        let status = &self.status;
        let desired = status.desired_number_scheduled;
        if status.observed_generation != self.metadata.generation {
            Some("its latest version to be observed")
        } else if status.current_number_scheduled != desired {
            Some("all pods to be scheduled")
        } else if status.updated_number_scheduled != desired {
            Some("all pods to be updated")
        } else if status.number_unavailable > 0 {
            Some("all pods to be available")
        } else if status.number_misscheduled > 0 {
            Some("pods to leave nodes where they do not belong")
        } else {
            None
        }
    }
}

/// The controller.
pub struct PolicyNames {
    shared: Arc<Shared>,
    backend: Arc<dyn Backend>,
    cluster: Cluster,
    /// The namespace of calico-node.
    namespace: String,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Debug, Default)]
struct State {
    pending: BTreeMap<Key, KvPair>,
    is_in_sync: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self, entry: &FeedEntry) {
        let FeedEntry::Resource(key, policy) = entry else { return };
        let key = Key::Resource(key.clone());
        let mut state = self.state();
        match policy {
            Some(policy) if needs_move(&key, policy) => {
                let mut pair = KvPair::new(key.clone(), Value::Resource(policy.as_ref().clone()));
                pair.revision.clone_from(&policy.metadata().resource_version);
                state.pending.insert(key, pair);
                self.news.notify_one();
            }
            _ => drop(state.pending.remove(&key)),
        }
    }
}

impl PolicyNames {
    /// Subscribes to policies. `namespace` is our own, which is also calico-node's; [`DEFAULT_NAMESPACE`] if it is
    /// unknown.
    #[must_use]
    pub fn new(context: &Context, namespace: Option<String>) -> Self {
        let shared = Arc::new(Shared::default());
        for kind in KINDS {
            let listener = Arc::clone(&shared);
            context.feed.follow(ListOptions::resources(kind), move |update| listener.changed(update));
        }
        let listener = Arc::clone(&shared);
        context.feed.on_status(move |status| {
            listener.state().is_in_sync = status == Status::InSync;
            listener.news.notify_one();
        });
        let backend = Arc::clone(context.client.backend());
        let namespace = namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
        Self { shared, backend, cluster: context.cluster.clone(), namespace }
    }

    /// Waits until every calico-node knows the new names. Returns false if the shutdown was requested first.
    async fn wait_for_rollout(&self, shutdown: &Shutdown) -> bool {
        let namespace = kube_access::cluster::encode(&self.namespace);
        let path = format!("/apis/apps/v1/namespaces/{namespace}/daemonsets/calico-node");
        let mut backoff = ROLLOUT;
        loop {
            match self.cluster.get::<DaemonSet>("read the DaemonSet calico-node", &path).await {
                Ok(set) => match set.waits_for() {
                    None => return true,
                    Some(waits_for) => {
                        backoff.reset();
                        tracing::info!(
                            waits_for,
                            "names of policies stay as they are until calico-node is rolled out"
                        );
                    }
                },
                Err(error) => {
                    let pause = backoff.pause();
                    tracing::warn!(%error, retry_in = ?pause, "names of policies stay unchanged: cannot determine whether calico-node is rolled out");
                    if !shutdown.sleep(pause).await {
                        return false;
                    }
                    continue;
                }
            }
            if !shutdown.sleep(ROLLOUT_PAUSE).await {
                return false;
            }
        }
    }

    async fn move_pending(&self) {
        let pending: Vec<KvPair> = {
            let state = self.shared.state();
            if !state.is_in_sync {
                return;
            }
            state.pending.values().cloned().collect()
        };
        for entry in pending {
            match self.backend.store_under_own_name(&entry).await {
                Ok(_) => {
                    let own = entry.as_resource().map(|policy| policy.name().to_owned());
                    tracing::info!(stored = %entry.key, own, "a policy is now stored under its own name");
                    let mut state = self.shared.state();
                    // Unless it has changed in the meantime.
                    if state.pending.get(&entry.key) == Some(&entry) {
                        state.pending.remove(&entry.key);
                    }
                }
                Err(error) if error.is_does_not_exist() => {}
                Err(error) => {
                    tracing::warn!(stored = %entry.key, %error, "a policy could not be renamed yet");
                }
            }
        }
    }
}

impl std::fmt::Debug for PolicyNames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PolicyNames").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

#[async_trait]
impl Controller for PolicyNames {
    fn name(&self) -> &'static str {
        "NetworkPolicyMigrator"
    }

    async fn run(self: Box<Self>, shutdown: Shutdown) -> anyhow::Result<()> {
        if !self.wait_for_rollout(&shutdown).await {
            return Ok(());
        }
        loop {
            self.move_pending().await;
            tokio::select! {
                () = self.shared.news.notified() => {}
                () = tokio::time::sleep(PERIOD) => {}
                () = shutdown.requested() => return Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{NetworkPolicy, NetworkPolicySpec, Object};
    use serde_json::json;

    #[test]
    fn only_old_names_of_the_default_tier_are_changed() {
        for (stored, own, tier, moves) in [
            ("default.web", "web", "default", true),
            ("default.web", "web", "", true),
            ("web", "web", "default", false),
            ("default.web", "default.web", "default", false),
            ("platform.web", "platform.web", "platform", false),
            ("default.web", "web", "platform", false),
        ] {
            let spec = NetworkPolicySpec { tier: tier.into(), ..NetworkPolicySpec::default() };
            let policy: NetworkPolicy = Object::new("shop", own, spec);
            let key = Key::resource(Kind::NetworkPolicy, "shop", stored);
            assert_eq!(needs_move(&key, &policy.into()), moves, "{stored} {own} {tier}");
        }
    }

    #[test]
    fn a_rollout_is_complete_when_nothing_is_left_to_wait_for() {
        let set = |change: serde_json::Value| -> DaemonSet {
            let mut status = json!({
                "observedGeneration": 3, "currentNumberScheduled": 5, "desiredNumberScheduled": 5,
                "updatedNumberScheduled": 5,
            });
            for (field, value) in change.as_object().into_iter().flatten() {
                status[field] = value.clone();
            }
            serde_json::from_value(json!({"metadata": {"generation": 3}, "status": status})).expect("a set")
        };
        assert_eq!(set(json!({})).waits_for(), None);
        for (change, word) in [
            (json!({"observedGeneration": 2}), "observed"),
            (json!({"currentNumberScheduled": 4}), "scheduled"),
            (json!({"updatedNumberScheduled": 4}), "updated"),
            (json!({"numberUnavailable": 1}), "available"),
            (json!({"numberMisscheduled": 1}), "belong"),
        ] {
            let waits_for = set(change).waits_for().expect("something to wait for");
            assert!(waits_for.contains(word), "{waits_for}");
        }
    }
}
