//! What single kinds need beyond defaults and validation: rules that look at other objects, and deletions in steps.
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

/// The extra rules of a kind. Each step sees the object after the step before.
#[async_trait]
pub(crate) trait KindHooks: Send + Sync {
    /// Before the defaults of a new object: refusals that come before everything else.
    async fn prepare_create(&self, _client: &Client, _resource: &mut Resource) -> Result<()> {
        Ok(())
    }

    /// Before the defaults of a changed object.
    async fn prepare_update(&self, _client: &Client, _resource: &mut Resource) -> Result<()> {
        Ok(())
    }

    /// After validation of a new object: what depends on other objects.
    async fn check_create(&self, _client: &Client, _resource: &Resource) -> Result<()> {
        Ok(())
    }

    /// After validation of a changed object.
    async fn check_update(&self, _client: &Client, _resource: &Resource) -> Result<()> {
        Ok(())
    }

    /// After a new or changed object is stored: what other places must know of it.
    async fn after_write(&self, _client: &Client, _resource: &Resource) -> Result<()> {
        Ok(())
    }

    /// After an object was read; false when it counts as gone.
    async fn after_read(&self, _client: &Client, _resource: &mut Resource) -> Result<bool> {
        Ok(true)
    }

    /// Deletes the object, with everything that belongs to it.
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

/// The extra rules of this kind.
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
