//! Moves policies that releases before v3.32 stored as `default.NAME` to their own name.
//!
//! Kubernetes does not support renaming: the new object is created first, so that the policy is never missing, then the
//! old one is removed at the revision that was read. The plain name always wins, so the two do not conflict meanwhile.

use super::{CustomResources, JSON};
use crate::error::{Error, Result};
use http::Method;
use model::{KvPair, ResourceKey};

impl CustomResources {
    pub(crate) async fn store_under_own_name(&self, entry: &KvPair) -> Result<bool> {
        let (old, resource) = self.identify(&entry.key)?;
        let Some(policy) = entry.as_resource() else { return Ok(false) };
        if !old.kind.is_tiered_policy() || policy.name() == old.name {
            return Ok(false);
        }
        let own = ResourceKey { name: policy.name().to_owned(), ..old.clone() };
        let body = self.body(entry, &own, &own.name, "")?;
        let collection = resource.collection(&own.namespace);
        let is_created =
            match self.transport.send::<serde_json::Value>(Method::POST, &collection, body, JSON).await {
                Ok(_) => true,
                Err(failure) => match self.error("create", failure, &own) {
                    Error::AlreadyExists { .. } => false,
                    error => return Err(error),
                },
            };
        let uid = entry.uid.as_deref().map(|uid| self.group.stored_uid(uid)).transpose()?;
        let revision = Some(entry.revision.as_str()).filter(|revision| !revision.is_empty());
        let address = resource.object(&old.namespace, &old.name);
        match self.transport.delete(&address, uid.as_deref(), revision).await {
            Ok(()) => Ok(true),
            Err(failure) if failure.is_not_found() => Ok(true),
            Err(failure) => {
                if is_created {
                    // The old object was changed meanwhile: our copy is outdated and must not win over it.
                    let copy = resource.object(&own.namespace, &own.name);
                    if let Err(failure) = self.transport.delete(&copy, None, None).await {
                        tracing::warn!(key = %own, ?failure, "could not remove an outdated copy of a policy");
                    }
                }
                Err(self.error("delete", failure, old))
            }
        }
    }
}
