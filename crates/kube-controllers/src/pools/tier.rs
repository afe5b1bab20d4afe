//! The controller of tiers: a tier that is being deleted is kept, with a condition, until its last policy is gone.

use super::PREFIX;
use super::objects::{Wanted, write_condition, write_finalizer};
use crate::controller::{Context, Controller};
use crate::informer::kinds::null_as_default;
use crate::informer::{Informer, ObjectKey, Slim, Strings, Taken};
use crate::queue::{Outcome, RETRY, WorkQueue};
use api::words::DEFAULT_TIER;
use async_trait::async_trait;
use daemon::Shutdown;
use kube_access::cluster::{Cluster, ClusterError, Collection, Page};
use serde::Deserialize;
use std::sync::Arc;

/// The finalizer that keeps a tier until its last policy is gone.
pub(crate) const FINALIZER: &str = api::TIER_FINALIZER;

const TIERS: Collection = Collection { prefix: PREFIX, plural: "tiers" };

/// The parts of a tier that are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tier {
    is_deleting: bool,
    has_finalizer: bool,
}

/// The fields of a tier that are decoded.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireTier {
    metadata: WireTierMeta,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireTierMeta {
    name: String,
    resource_version: String,
    deletion_timestamp: Option<serde::de::IgnoredAny>,
    #[serde(deserialize_with = "null_as_default")]
    finalizers: Vec<String>,
}

impl Slim for Tier {
    const COLLECTION: Collection = TIERS;
    type Wire = WireTier;

    fn take(wire: WireTier, _strings: &mut Strings) -> Taken<Self> {
        let metadata = wire.metadata;
        let object = Self {
            is_deleting: metadata.deletion_timestamp.is_some(),
            has_finalizer: metadata.finalizers.iter().any(|entry| entry == FINALIZER),
        };
        Taken { key: ObjectKey::new("", &metadata.name), revision: metadata.resource_version, object }
    }
}

/// The fields of a policy that are decoded: its tier.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireTiered {
    metadata: WireTieredMeta,
    spec: WireTieredSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireTieredMeta {
    namespace: String,
    name: String,
    resource_version: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireTieredSpec {
    tier: String,
}

impl WireTiered {
    fn tier(&self) -> &str {
        if self.spec.tier.is_empty() { DEFAULT_TIER } else { &self.spec.tier }
    }
}

macro_rules! tiered_kinds {
    ($($name:ident = $plural:literal,)*) => {
        $(
            #[doc = concat!("The tier of one of the `", $plural, "`.")]
            #[derive(Clone, Debug, PartialEq, Eq)]
            pub(crate) struct $name(Arc<str>);

            impl Slim for $name {
                const COLLECTION: Collection = Collection { prefix: PREFIX, plural: $plural };
                type Wire = WireTiered;

                fn take(wire: WireTiered, strings: &mut Strings) -> Taken<Self> {
                    let object = Self(strings.share(wire.tier()));
                    let metadata = wire.metadata;
                    let namespace = strings.share(&metadata.namespace);
                    let key = ObjectKey { namespace, name: metadata.name.as_str().into() };
                    Taken { key, revision: metadata.resource_version, object }
                }
            }
        )*

        /// Queues each tier that loses a policy.
        fn follow_policies(context: &Context, queue: &WorkQueue<String>) {
            $({
                let news = queue.clone();
                context.informers.of::<$name>().subscribe(move |change| {
                    let Some(old) = &change.old else { return };
                    if change.new.as_ref().is_none_or(|new| new != old) {
                        news.add(old.0.to_string());
                    }
                });
            })*
        }

        /// The kinds of policies, in the order in which they are counted.
        const KINDS: &[Collection] = &[$(<$name as Slim>::COLLECTION,)*];
    };
}

tiered_kinds! {
    GlobalPolicyTier = "globalnetworkpolicies",
    PolicyTier = "networkpolicies",
    StagedGlobalPolicyTier = "stagedglobalnetworkpolicies",
    StagedPolicyTier = "stagednetworkpolicies",
}

/// The singular and plural name of each kind.
const NAMES: [(&str, &str); 4] = [
    ("GlobalNetworkPolicy", "GlobalNetworkPolicies"),
    ("NetworkPolicy", "NetworkPolicies"),
    ("StagedGlobalNetworkPolicy", "StagedGlobalNetworkPolicies"),
    ("StagedNetworkPolicy", "StagedNetworkPolicies"),
];

/// What to do about a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing.
    Nothing,
    /// Add the finalizer.
    AddFinalizer,
    /// Remove the finalizer, so that the tier is deleted.
    RemoveFinalizer,
    /// Keep waiting, and write this condition.
    Wait(Wanted),
}

/// Whether the policies of a tier must be counted.
#[must_use]
pub(crate) fn has_to_count(tier: &Tier) -> bool {
    tier.is_deleting && tier.has_finalizer
}

/// Decides about a tier, given the number of its policies of each kind.
#[must_use]
pub(crate) fn decide(tier: &Tier, counts: [usize; 4]) -> Step {
    match (tier.is_deleting, tier.has_finalizer) {
        (false, false) => Step::AddFinalizer,
        (false, true) | (true, false) => Step::Nothing,
        (true, true) if counts == [0; 4] => Step::RemoveFinalizer,
        (true, true) => {
            let parts = counts.iter().zip(NAMES).filter(|(count, _)| **count > 0);
            let words: Vec<String> = parts
                .map(|(count, (one, many))| format!("{count} {}", if *count == 1 { one } else { many }))
                .collect();
            let message = format!("Waiting for policies to be removed: {}", words.join(", "));
            Step::Wait(Wanted { kind: "Ready", status: false, reason: "Terminating", message })
        }
    }
}

/// The controller.
#[derive(Debug)]
pub struct TierController {
    tiers: Informer<Tier>,
    queue: WorkQueue<String>,
    cluster: Cluster,
}

impl TierController {
    /// Subscribes to tiers, and to policies that leave one.
    #[must_use]
    pub fn new(context: &Context) -> Self {
        let queue = WorkQueue::new(RETRY);
        let tiers = context.informers.of::<Tier>();
        let news = queue.clone();
        tiers.subscribe(move |change| news.add(change.key.name.to_string()));
        follow_policies(context, &queue);
        Self { tiers, queue, cluster: context.cluster.clone() }
    }

    async fn reconcile(&self, name: &str) -> Result<(), ClusterError> {
        let Some(tier) = self.tiers.get(&ObjectKey::new("", name)) else { return Ok(()) };
        let counts = if has_to_count(&tier) { self.count(name).await? } else { [0; 4] };
        match decide(&tier, counts) {
            Step::Nothing => Ok(()),
            Step::AddFinalizer => write_finalizer(&self.cluster, TIERS, name, FINALIZER, true).await,
            Step::RemoveFinalizer => write_finalizer(&self.cluster, TIERS, name, FINALIZER, false).await,
            Step::Wait(condition) => write_condition(&self.cluster, TIERS, name, &condition).await,
        }
    }

    /// Counts the policies of a tier in the API itself: if a tier is deleted too early, the order of its policies is
    /// lost.
    async fn count(&self, tier: &str) -> Result<[usize; 4], ClusterError> {
        let mut counts = [0; 4];
        for (count, collection) in counts.iter_mut().zip(KINDS) {
            let mut token: Option<String> = None;
            loop {
                let page: Page<WireTiered> = self.cluster.page(*collection, token.as_deref()).await?;
                *count += page.items.iter().filter(|policy| policy.tier() == tier).count();
                token = page.next().map(str::to_owned);
                if token.is_none() {
                    break;
                }
            }
        }
        Ok(counts)
    }
}

#[async_trait]
impl Controller for TierController {
    fn name(&self) -> &'static str {
        "Tier"
    }

    async fn run(self: Box<Self>, shutdown: Shutdown) -> anyhow::Result<()> {
        loop {
            let name = tokio::select! {
                name = self.queue.take() => name,
                () = shutdown.requested() => return Ok(()),
            };
            let outcome = match self.reconcile(&name).await {
                Ok(()) => Outcome::Done,
                Err(error) => {
                    tracing::warn!(tier = name, %error, "a tier is not as it should be");
                    Outcome::Failed
                }
            };
            self.queue.finish(&name, outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_waits_for_its_policies() {
        let tier = |is_deleting, has_finalizer| Tier { is_deleting, has_finalizer };
        assert_eq!(decide(&tier(false, false), [0; 4]), Step::AddFinalizer);
        assert_eq!(decide(&tier(false, true), [1, 0, 0, 0]), Step::Nothing);
        assert_eq!(decide(&tier(true, false), [1, 0, 0, 0]), Step::Nothing);
        assert_eq!(decide(&tier(true, true), [0; 4]), Step::RemoveFinalizer);
        let Step::Wait(condition) = decide(&tier(true, true), [3, 1, 0, 0]) else { panic!("it waits") };
        assert_eq!(
            condition.message,
            "Waiting for policies to be removed: 3 GlobalNetworkPolicies, 1 NetworkPolicy"
        );
        assert_eq!((condition.kind, condition.reason, condition.status), ("Ready", "Terminating", false));
    }

    #[test]
    fn policies_without_a_tier_are_in_the_default_one() {
        let policy = serde_json::from_value(serde_json::json!({"metadata": {"name": "a"}, "spec": {}}));
        let taken = PolicyTier::take(policy.expect("a policy"), &mut Strings::default());
        assert_eq!(&*taken.object.0, "default");
    }
}
