//! `calicoctl datastore migrate-policy-names`: renames policies of the default tier that releases before v3.32 stored
//! as `default.NAME` to their own names. Policies of other tiers always had their own names and are left alone.

use crate::context::{ConfigFlag, Context};
use crate::failure::{Failure, Result};
use crate::version_gate::Access;
use api::Kind;
use client::Client;
use model::ListOptions;
use model::names::policy_tier;

const KINDS: [Kind; 4] = [
    Kind::NetworkPolicy,
    Kind::GlobalNetworkPolicy,
    Kind::StagedNetworkPolicy,
    Kind::StagedGlobalNetworkPolicy,
];

/// Runs the command.
///
/// # Errors
/// When the datastore cannot be read or written. Policies that were moved stay moved; the command can be run again.
pub(crate) async fn run(config: &ConfigFlag, context: &mut Context) -> Result<()> {
    let client = context.connect_for(config, Access::Write).await?;
    let count = migrate(&client).await?;
    context.print(&format!("Policy name migration complete, migrated {count} policies.\n"))
}

async fn migrate(client: &Client) -> Result<usize> {
    let mut count = 0;
    for kind in KINDS {
        let failed = |error: client::Error| Failure::new(format!("list {kind}: {error}"));
        let list = client.backend().list(&ListOptions::resources(kind), None).await.map_err(failed)?;
        if let Some(entry) = list.invalid.first() {
            return Err(Failure::new(format!(
                "list {kind}: {} cannot be read: {}; repair or delete it first",
                entry.key, entry.reason
            )));
        }
        for entry in list.items {
            let in_default_tier = entry
                .as_resource()
                .and_then(policy_tier)
                .is_some_and(|tier| matches!(tier, "" | api::words::DEFAULT_TIER));
            if in_default_tier {
                let key = entry.key.to_string();
                let moved = client.backend().store_under_own_name(&entry).await;
                count += usize::from(moved.map_err(|error| Failure::new(format!("rename {key}: {error}")))?);
            }
        }
    }
    Ok(count)
}
