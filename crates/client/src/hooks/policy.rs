//! Policies: the tier must exist when a policy is created. It may be missing later: an update must still be possible
//! then, to move the policy to another tier.

use super::KindHooks;
use crate::Client;
use api::words::DEFAULT_TIER;
use api::{Kind, Resource};
use async_trait::async_trait;
use datastore::{Error, Result};
use model::Key;

pub(super) struct Policy;

#[async_trait]
impl KindHooks for Policy {
    async fn check_create(&self, client: &Client, resource: &Resource) -> Result<()> {
        let tier = tier_of(resource).unwrap_or(DEFAULT_TIER);
        match client.backend().get(&Key::resource(Kind::Tier, "", tier), None).await {
            Err(Error::DoesNotExist { key, .. }) => {
                let reason = format!("{}({}) needs this tier", resource.kind(), resource.name());
                Err(Error::DoesNotExist { key, reason })
            }
            outcome => outcome.map(|_| ()),
        }
    }
}

/// The tier that a policy names; `None` for the default tier and for objects that are not policies.
pub(super) fn tier_of(resource: &Resource) -> Option<&str> {
    let tier = match resource {
        Resource::NetworkPolicy(policy) => &policy.spec.tier,
        Resource::GlobalNetworkPolicy(policy) => &policy.spec.tier,
        Resource::StagedNetworkPolicy(policy) => &policy.spec.tier,
        Resource::StagedGlobalNetworkPolicy(policy) => &policy.spec.tier,
        _ => return None,
    };
    Some(tier.as_str()).filter(|tier| !tier.is_empty())
}
