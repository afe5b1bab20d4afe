//! Block affinities: IPAM's own records, which users may read. One marked as deleted counts as deleted, and deleting
//! one manually requires the revision that was read.

use super::KindHooks;
use crate::Client;
use crate::any::one_error;
use crate::query::DeleteOptions;
use api::{Kind, Resource};
use async_trait::async_trait;
use datastore::Result;

pub(super) struct Affinity;

#[async_trait]
impl KindHooks for Affinity {
    async fn after_read(&self, _client: &Client, resource: &mut Resource) -> Result<bool> {
        Ok(!matches!(resource, Resource::BlockAffinity(affinity) if affinity.spec.deleted))
    }

    async fn delete(
        &self,
        client: &Client,
        kind: Kind,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Resource> {
        if options.revision.as_deref().unwrap_or_default().is_empty() {
            return Err(one_error("metadata.resourceVersion", "", "must be set to delete a block affinity"));
        }
        client.delete_plain(kind, namespace, name, options).await
    }
}
