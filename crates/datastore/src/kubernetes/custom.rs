//! Calico's kinds as custom resources.
//!
//! Policies of the default tier may still be stored under the name that releases before v3.32 gave them,
//! `default.NAME`. The rules are those of the etcd backend: the plain name wins; an update or delete applies to the
//! object where it is, in place; nothing is created beside an old object of the same name; entries carry the key they
//! are stored under.

mod rename;

use super::feed::{Conversion, Feed, bare, invalid_entry};
use super::group::{ApiGroup, resource_of};
use super::path::{Address, ApiResource};
use super::transport::{Failure, ListQuery, Transport};
use crate::backend::{InvalidEntry, KvList, Watch, WatchOptions};
use crate::error::{Error, Result};
use api::{Kind, Resource};
use http::Method;
use model::{Key, KvPair, ListOptions, ResourceKey};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeSet;
use std::sync::Arc;

const JSON: &str = "application/json";

/// The former prefix of stored names of policies in the default tier.
const OLD_PREFIX: &str = "default.";

/// How many times an unconditional write is retried when other clients write concurrently.
const APPLY_ATTEMPTS: usize = 20;

/// How many objects one clean-up request deletes: few enough that the server answers in time.
const CLEARED_AT_ONCE: &str = "2000";

/// The custom resources of one server.
#[derive(Clone, Debug)]
pub(crate) struct CustomResources {
    pub(crate) transport: Transport,
    pub(crate) group: ApiGroup,
}

impl CustomResources {
    pub(crate) async fn create(&self, entry: &KvPair) -> Result<KvPair> {
        let (key, resource) = self.identify(&entry.key)?;
        refuse_settings(entry)?;
        if let Some(existing) = self.get_old(key).await? {
            let existing = Some(Box::new(existing));
            return Err(Error::AlreadyExists { key: entry.key.to_string(), existing });
        }
        let body = self.body(entry, key, &key.name, "")?;
        self.write(Method::POST, &resource.collection(&key.namespace), body, "create", key).await
    }

    pub(crate) async fn update(&self, entry: &KvPair) -> Result<KvPair> {
        refuse_settings(entry)?;
        self.replace(entry, None).await
    }

    pub(crate) async fn update_status(&self, entry: &KvPair) -> Result<KvPair> {
        let (key, _) = self.identify(&entry.key)?;
        let status = ApiGroup::has_status(key.kind).then_some("status");
        self.replace(entry, status).await
    }

    async fn replace(&self, entry: &KvPair, subresource: Option<&str>) -> Result<KvPair> {
        let (key, resource) = self.identify(&entry.key)?;
        require_revision(entry)?;
        let mut missing = None;
        for name in self.stored_names(key) {
            let body = self.body(entry, key, &name, &entry.revision)?;
            let mut address = resource.object(&key.namespace, &name);
            if let Some(subresource) = subresource {
                address = address.segment(subresource);
            }
            if missing.is_some() && self.get_old(key).await?.is_none() {
                // The object stored under the old name is another policy.
                break;
            }
            match self.write(Method::PUT, &address, body, "update", key).await {
                Err(error @ Error::DoesNotExist { .. }) => _ = missing.get_or_insert(error),
                outcome => return outcome,
            }
        }
        Err(missing.unwrap_or_else(|| not_there(&entry.key, "")))
    }

    /// Stores an entry whether or not it exists: creates it, or replaces it at its current revision.
    pub(crate) async fn apply(&self, entry: &KvPair) -> Result<KvPair> {
        for _ in 0..APPLY_ATTEMPTS {
            match self.create(entry).await {
                Err(Error::AlreadyExists { .. }) => {}
                outcome => return outcome,
            }
            let current = match self.get(&entry.key).await {
                Err(error) if error.is_does_not_exist() => continue,
                current => current?,
            };
            let mut entry = entry.clone();
            entry.key = current.key;
            entry.revision = current.revision;
            if let model::Value::Resource(resource) = &mut entry.value {
                resource.metadata_mut().uid = current.uid.unwrap_or_default();
            }
            match self.update(&entry).await {
                Err(error) if error.is_conflict() || error.is_does_not_exist() => {}
                outcome => return outcome,
            }
        }
        Err(Error::transient(format!("apply {}", entry.key), "the object keeps changing concurrently"))
    }

    pub(crate) async fn get(&self, key: &Key) -> Result<KvPair> {
        let (key, resource) = self.identify(key)?;
        match self.read(key, &resource.object(&key.namespace, &key.name)).await {
            Err(error) if error.is_does_not_exist() => self.get_old(key).await?.ok_or(error),
            outcome => outcome,
        }
    }

    /// The entry under the name that an earlier release would have given it, if it is the same policy.
    async fn get_old(&self, key: &ResourceKey) -> Result<Option<KvPair>> {
        let (Some(name), Some(resource)) = (self.old_name(key), self.group.resource(key.kind)) else {
            return Ok(None);
        };
        match self.read(key, &resource.object(&key.namespace, &name)).await {
            Ok(pair) => Ok(Some(pair).filter(|pair| is_named(pair, &key.name))),
            Err(error) if error.is_does_not_exist() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes an entry, only at the given revision and uid, if any. Unreadable entries can be deleted, too.
    pub(crate) async fn delete(
        &self,
        key: &Key,
        revision: Option<&str>,
        uid: Option<&str>,
    ) -> Result<KvPair> {
        let (key, resource) = self.identify(key)?;
        let (name, existing) = match self.read(key, &resource.object(&key.namespace, &key.name)).await {
            Err(error) if error.is_does_not_exist() => match self.get_old(key).await? {
                Some(pair) => (self.old_name(key).unwrap_or_default(), pair),
                None => return Err(error),
            },
            Err(Error::Parse { reason, .. }) => {
                tracing::warn!(%key, %reason, "deleting an object that cannot be read");
                let bare = bare(&Key::Resource(key.clone()), "");
                (key.name.clone(), bare.ok_or_else(|| Error::Parse { key: key.to_string(), reason })?)
            }
            outcome => (key.name.clone(), outcome?),
        };
        let uid = uid.or(existing.uid.as_deref()).map(|uid| self.group.stored_uid(uid)).transpose()?;
        let address = resource.object(&key.namespace, &name);
        match self
            .transport
            .delete(&address, uid.as_deref(), revision.filter(|revision| !revision.is_empty()))
            .await
        {
            Ok(()) => Ok(existing),
            Err(failure) => Err(self.error("delete", failure, key)),
        }
    }

    pub(crate) async fn list(&self, list: &ListOptions, revision: Option<&str>) -> Result<KvList> {
        let (feed, selection) = self.feed(list)?;
        feed.list(&self.transport, &ListQuery { revision, ..selection.query() }, list).await
    }

    pub(crate) async fn watch(&self, list: &ListOptions, options: &WatchOptions) -> Result<Watch> {
        let (feed, selection) = self.feed(list)?;
        feed.watch(&self.transport, &selection.query(), list, options).await
    }

    fn feed(&self, list: &ListOptions) -> Result<(Feed<Box<RawValue>>, Selection)> {
        let ListOptions::Resource { kind, namespace, name, name_is_prefix } = list else {
            return Err(Error::NotSupported {
                operation: "List",
                key: list.to_string(),
                reason: String::new(),
            });
        };
        let (kind, resource) = (*kind, self.group.resource(*kind).ok_or_else(|| not_custom("List", list))?);
        let old_names = kind.is_tiered_policy() && self.group.has_old_names();
        let selection = Selection {
            namespace: namespace.clone().unwrap_or_default(),
            // The server can search for one name, but the object may be stored under an old name.
            name: name.clone().filter(|_| !name_is_prefix && !old_names),
        };
        let group = self.group;
        let mut feed =
            Feed::new(resource, Some(kind), list, move |object: Box<RawValue>| decode(group, kind, &object));
        if old_names && name.is_some() {
            let list = list.clone();
            feed.selects = Arc::new(move |pair| {
                let own = pair
                    .as_resource()
                    .map(|resource| Key::resource(kind, resource.namespace(), resource.name()));
                list.matches(&pair.key) || own.is_some_and(|key| list.matches(&key))
            });
        }
        Ok((feed, selection))
    }

    /// Deletes all objects of a kind, some at a time. A kind whose definition is not installed has none.
    pub(crate) async fn clear(&self, kind: Kind) -> Result<()> {
        let Some(resource) = self.group.resource(kind) else { return Ok(()) };
        loop {
            let list = self.list(&ListOptions::resources(kind), None).await?;
            let readable = list.items.iter().map(|pair| &pair.key);
            let unreadable = list.invalid.iter().filter_map(|entry| entry.parsed_key.as_ref());
            let namespaces: BTreeSet<&str> = readable
                .chain(unreadable)
                .filter_map(Key::as_resource)
                .map(|key| key.namespace.as_str())
                .collect();
            if namespaces.is_empty() {
                return Ok(());
            }
            for namespace in namespaces {
                let address = resource.collection(namespace).with("limit", CLEARED_AT_ONCE);
                let outcome = self.transport.delete(&address, None, None).await;
                outcome.map_err(|failure| {
                    failure.into_error(&format!("delete all {resource}"), kind.as_str())
                })?;
            }
        }
    }

    fn identify<'a>(&self, key: &'a Key) -> Result<(&'a ResourceKey, ApiResource)> {
        let resource_key = key.as_resource().ok_or_else(|| not_custom("Access", key))?;
        if resource_key.name.is_empty() {
            return Err(Error::InsufficientIdentifiers { missing: "name".to_owned() });
        }
        if resource_key.kind.is_namespaced() && resource_key.namespace.is_empty() {
            return Err(Error::InsufficientIdentifiers { missing: "namespace".to_owned() });
        }
        let resource = self.group.resource(resource_key.kind).ok_or_else(|| not_custom("Access", key))?;
        Ok((resource_key, resource))
    }

    /// The names under which a resource may be stored, the current one first.
    fn stored_names(&self, key: &ResourceKey) -> impl Iterator<Item = String> + use<> {
        std::iter::once(key.name.clone()).chain(self.old_name(key))
    }

    fn old_name(&self, key: &ResourceKey) -> Option<String> {
        let may_be =
            self.group.has_old_names() && key.kind.is_tiered_policy() && !key.name.starts_with(OLD_PREFIX);
        may_be.then(|| format!("{OLD_PREFIX}{}", key.name))
    }

    fn body(&self, entry: &KvPair, key: &ResourceKey, stored_name: &str, revision: &str) -> Result<Vec<u8>> {
        let mut resource = resource_of(entry, revision)?;
        if resource.kind() != key.kind {
            return Err(Error::permanent(
                format!("cannot store {key}"),
                format!("the value is a {}", resource.kind()),
            ));
        }
        key.namespace.clone_into(&mut resource.metadata_mut().namespace);
        if revision.is_empty() {
            // A new object gets a uid from the server; and a status is written separately.
            resource.metadata_mut().uid.clear();
        }
        let mut object = self.group.encode(&resource)?;
        object["metadata"]["name"] = stored_name.into();
        Ok(object.to_string().into_bytes())
    }

    async fn read(&self, key: &ResourceKey, address: &Address) -> Result<KvPair> {
        let object =
            self.transport.get::<Value>(address).await.map_err(|failure| self.error("get", failure, key))?;
        self.group.decode(key.kind, object).map_err(|reason| Error::Parse { key: key.to_string(), reason })
    }

    async fn write(
        &self,
        method: Method,
        address: &Address,
        body: Vec<u8>,
        verb: &str,
        key: &ResourceKey,
    ) -> Result<KvPair> {
        let outcome = self.transport.send::<Value>(method, address, body, JSON).await;
        let object = outcome.map_err(|failure| self.error(verb, failure, key))?;
        self.group.decode(key.kind, object).map_err(|reason| Error::Parse { key: key.to_string(), reason })
    }

    fn error(&self, verb: &str, failure: Failure, key: &ResourceKey) -> Error {
        let unknown = failure.refusal().is_some_and(super::status::Refusal::is_unknown_type);
        if let (true, Some(resource)) = (unknown, self.group.resource(key.kind)) {
            let reason = format!("the API server does not know {resource}: its definition is not installed");
            return Error::DoesNotExist { key: key.to_string(), reason };
        }
        failure.into_error(&format!("{verb} {key}"), &key.to_string())
    }
}

/// The part of a selection that the server can evaluate.
struct Selection {
    namespace: String,
    name: Option<String>,
}

impl Selection {
    fn query(&self) -> ListQuery<'_> {
        ListQuery { namespace: &self.namespace, name: self.name.as_deref(), ..ListQuery::default() }
    }
}

/// Decodes a stored object to an entry.
pub(crate) fn decode(group: ApiGroup, kind: Kind, object: &RawValue) -> Conversion {
    match group.decode_text(kind, object.get()) {
        Ok(pair) => Conversion::Entry(Box::new(pair)),
        Err(reason) => {
            let object: Value = serde_json::from_str(object.get()).unwrap_or_default();
            let text = |pointer: &str| {
                object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
            };
            let (namespace, name, revision) =
                (text("/metadata/namespace"), text("/metadata/name"), text("/metadata/resourceVersion"));
            let has_rules = model::convert::salvage::has_rules(kind);
            let salvaged = if has_rules { group.salvage(kind, object).map(Box::new) } else { None };
            Conversion::Invalid(
                InvalidEntry { salvaged, ..invalid_entry(kind, &namespace, &name, reason) },
                bare(&Key::resource(kind, &namespace, &name), &revision).map(Box::new),
            )
        }
    }
}

/// Whether the entry at the old name is the policy that users know by this name; it may be another one, whose name
/// really begins like that.
fn is_named(pair: &KvPair, name: &str) -> bool {
    pair.as_resource().is_some_and(|resource| resource.name() == name)
}

fn require_revision(entry: &KvPair) -> Result<()> {
    if !entry.revision.is_empty() {
        return Ok(());
    }
    let mut errors = api::FieldErrors::new();
    errors.add(api::FieldPath::new("metadata.resourceVersion"), "", "must be set for an update");
    Err(Error::Validation(errors))
}

/// In Kubernetes, a node's labels are Kubernetes' own: their synchronisation cannot be switched off.
fn refuse_settings(entry: &KvPair) -> Result<()> {
    let Some(Resource::KubeControllersConfiguration(config)) = entry.as_resource() else { return Ok(()) };
    let Ok(spec) = api::codec::to_value(&config.spec) else { return Ok(()) };
    if spec.pointer("/controllers/node/syncLabels").and_then(Value::as_str) == Some("Disabled") {
        let mut errors = api::FieldErrors::new();
        let path = api::FieldPath::new("spec.controllers.node.syncLabels");
        errors.add(path, "Disabled", "cannot be disabled when the datastore is Kubernetes");
        return Err(Error::Validation(errors));
    }
    Ok(())
}

fn not_custom(operation: &'static str, key: &dyn std::fmt::Display) -> Error {
    Error::NotSupported { operation, key: key.to_string(), reason: String::new() }
}

fn not_there(key: &Key, reason: &str) -> Error {
    Error::DoesNotExist { key: key.to_string(), reason: reason.to_owned() }
}
