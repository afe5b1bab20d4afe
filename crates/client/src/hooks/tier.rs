//! Tiers: those that come with Calico cannot be deleted, nor can a tier that still has policies.

use super::KindHooks;
use super::policy::tier_of;
use crate::Client;
use crate::query::{DeleteOptions, ListQuery};
use api::{BUILT_IN_TIERS, Kind, Resource};
use async_trait::async_trait;
use datastore::{Error, Result};
use model::Key;

/// The kinds of policies that prevent the deletion of their tier.
const POLICY_KINDS: [Kind; 4] = [
    Kind::NetworkPolicy,
    Kind::GlobalNetworkPolicy,
    Kind::StagedNetworkPolicy,
    Kind::StagedGlobalNetworkPolicy,
];

pub(super) struct TierHooks;

#[async_trait]
impl KindHooks for TierHooks {
    async fn after_read(&self, _client: &Client, resource: &mut Resource) -> Result<bool> {
        // A tier stored by an old version may lack its order and action; their defaults have not changed.
        resource.set_defaults();
        Ok(true)
    }

    async fn delete(
        &self,
        client: &Client,
        kind: Kind,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Resource> {
        let refused = |reason: String| Error::NotSupported { operation: "Delete", key: key(name), reason };
        if BUILT_IN_TIERS.iter().any(|tier| tier.name == name) {
            return Err(refused(format!("Cannot delete {name} tier")));
        }
        for policy_kind in POLICY_KINDS {
            let policies = client.list_any(policy_kind, &ListQuery::all()).await?;
            if let Some(policy) = policies.items.iter().find(|policy| tier_of(policy) == Some(name)) {
                let user = Key::resource(policy_kind, policy.namespace(), policy.name());
                return Err(refused(format!("Cannot delete a non-empty tier: {user} is in it")));
            }
            // A policy that cannot be read may be in this tier.
            if let Some(entry) = policies.invalid.first() {
                let reason = format!(
                    "cannot tell whether the tier is empty: {} cannot be read: {}",
                    entry.key, entry.reason
                );
                return Err(refused(reason));
            }
        }
        client.delete_plain(kind, namespace, name, options).await
    }
}

fn key(name: &str) -> String {
    Key::resource(Kind::Tier, "", name).to_string()
}
