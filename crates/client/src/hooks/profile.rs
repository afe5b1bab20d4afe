//! Profiles: the one that allows everything is built in and always exists.

use super::KindHooks;
use crate::Client;
use crate::query::DeleteOptions;
use api::{DEFAULT_ALLOW_PROFILE, Kind, Resource};
use async_trait::async_trait;
use datastore::{Error, Result};
use model::Key;

pub(super) struct ProfileHooks;

#[async_trait]
impl KindHooks for ProfileHooks {
    async fn prepare_create(&self, _client: &Client, resource: &mut Resource) -> Result<()> {
        if resource.name() == DEFAULT_ALLOW_PROFILE {
            return Err(Error::AlreadyExists { key: key(), existing: None });
        }
        Ok(())
    }

    async fn prepare_update(&self, _client: &Client, resource: &mut Resource) -> Result<()> {
        if resource.name() == DEFAULT_ALLOW_PROFILE { Err(refused("Update")) } else { Ok(()) }
    }

    async fn delete(
        &self,
        client: &Client,
        kind: Kind,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Resource> {
        if name == DEFAULT_ALLOW_PROFILE {
            return Err(refused("Delete"));
        }
        client.delete_plain(kind, namespace, name, options).await
    }
}

fn key() -> String {
    Key::resource(Kind::Profile, "", DEFAULT_ALLOW_PROFILE).to_string()
}

fn refused(operation: &'static str) -> Error {
    Error::NotSupported {
        operation,
        key: key(),
        reason: "this profile is built in and cannot be changed".into(),
    }
}
