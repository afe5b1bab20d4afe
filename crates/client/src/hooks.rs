//! Rules of single kinds beyond defaults and validation: rules that depend on other objects, and deletions in steps.
//!
//! One module per kind (or family) that has such rules; every other kind uses the defaults of [`KindHooks`].

mod affinity;
mod ipam_configuration;
mod ippool;
mod node;
mod peer;
mod policy;
mod profile;
mod tier;

use crate::Client;
use crate::query::DeleteOptions;
use api::{Kind, Resource};
use async_trait::async_trait;
use datastore::Result;

/// The extra rules of a kind. Each step sees the object after the previous step.
#[async_trait]
pub(crate) trait KindHooks: Send + Sync {
    /// Runs before the defaults of a new object are set: refusals that precede everything else.
    async fn prepare_create(&self, _client: &Client, _resource: &mut Resource) -> Result<()> {
        Ok(())
    }

    /// Runs before the defaults of a changed object are set.
    async fn prepare_update(&self, _client: &Client, _resource: &mut Resource) -> Result<()> {
        Ok(())
    }

    /// Runs after validation of a new object: checks that depend on other objects.
    async fn check_create(&self, _client: &Client, _resource: &Resource) -> Result<()> {
        Ok(())
    }

    /// Runs after validation of a changed object.
    async fn check_update(&self, _client: &Client, _resource: &Resource) -> Result<()> {
        Ok(())
    }

    /// Runs after a new or changed object is stored: updates data derived from it.
    async fn after_write(&self, _client: &Client, _resource: &Resource) -> Result<()> {
        Ok(())
    }

    /// Runs after an object was read; returns false if it counts as deleted.
    async fn after_read(&self, _client: &Client, _resource: &mut Resource) -> Result<bool> {
        Ok(true)
    }

    /// Deletes the object and everything that belongs to it.
    async fn delete(
        &self,
        client: &Client,
        kind: Kind,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Resource> {
        client.delete_plain(kind, namespace, name, options).await
    }
}

/// A kind without extra rules.
struct Plain;

impl KindHooks for Plain {}

/// Returns the extra rules of this kind.
pub(crate) fn hooks(kind: Kind) -> &'static dyn KindHooks {
    match kind {
        Kind::BGPPeer => &peer::Peer,
        Kind::BlockAffinity => &affinity::Affinity,
        Kind::IPAMConfiguration => &ipam_configuration::IpamSettings,
        Kind::IPPool => &ippool::Pool,
        Kind::Node => &node::NodeHooks,
        Kind::Profile => &profile::ProfileHooks,
        Kind::Tier => &tier::TierHooks,
        kind if kind.is_tiered_policy() => &policy::Policy,
        _ => &Plain,
    }
}
