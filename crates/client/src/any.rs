//! The operations on objects of any kind, and the rules that apply to all of them.
//!
//! Steps of a write: fill in and look up what the kind needs (its hook), defaults, validation, further checks of the
//! kind, store. On Kubernetes the API server fills in the defaults of the schema; elsewhere that is done here, with the
//! same schema.

use crate::Client;
use crate::hooks::{KindHooks, hooks};
use crate::query::{DeleteOptions, ListQuery, ResourceEvent, ResourceList, ResourceWatch};
use api::meta::Time;
use api::schema::{apply_defaults, for_kind, property};
use api::{FieldErrors, FieldPath, Kind, ObjectMeta, Resource};
use datastore::{Error, Result, WatchEvent, WatchOptions};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use model::{Key, KvPair, ListOptions};

impl Client {
    /// Stores a new object; returns it as stored.
    ///
    /// # Errors
    /// [`Error::Validation`], [`Error::AlreadyExists`], and those of the store.
    pub async fn create_any(&self, mut resource: Resource) -> Result<Resource> {
        let hooks = storable(resource.kind(), "Create")?;
        hooks.prepare_create(self, &mut resource).await?;
        let mut resource = self.with_defaults(resource)?;
        self.check_new(&resource)?;
        hooks.check_create(self, &resource).await?;
        let stored = self.store_new(&mut resource).await?;
        hooks.after_write(self, &stored).await?;
        Ok(stored)
    }

    /// Returns what [`Client::create_any`] would store, after the same checks, without storing it.
    ///
    /// # Errors
    /// As [`Client::create_any`].
    pub async fn try_create_any(&self, mut resource: Resource) -> Result<Resource> {
        let hooks = storable(resource.kind(), "Create")?;
        hooks.prepare_create(self, &mut resource).await?;
        let resource = self.with_defaults(resource)?;
        self.check_new(&resource)?;
        hooks.check_create(self, &resource).await?;
        let key = Key::resource(resource.kind(), resource.namespace(), resource.name());
        match self.backend().get(&key, None).await {
            Err(error) if error.is_does_not_exist() => Ok(resource),
            Err(error) => Err(error),
            Ok(existing) => {
                Err(Error::AlreadyExists { key: key.to_string(), existing: Some(Box::new(existing)) })
            }
        }
    }

    /// Returns what [`Client::update_any`] would store, after the same checks, without storing it.
    ///
    /// # Errors
    /// As [`Client::update_any`].
    pub async fn try_update_any(&self, mut resource: Resource) -> Result<Resource> {
        let hooks = storable(resource.kind(), "Update")?;
        hooks.prepare_update(self, &mut resource).await?;
        let resource = self.with_defaults(resource)?;
        let mut errors = FieldErrors::new();
        check_update(resource.kind(), resource.metadata(), &mut errors);
        validate(&resource, errors)?;
        hooks.check_update(self, &resource).await?;
        let key = Key::resource(resource.kind(), resource.namespace(), resource.name());
        let current = self.backend().get(&key, None).await?;
        if current.revision != resource.metadata().resource_version {
            return Err(Error::UpdateConflict { key: key.to_string(), existing: Some(Box::new(current)) });
        }
        Ok(resource)
    }

    /// Replaces an object that was read before; returns it as stored.
    ///
    /// # Errors
    /// [`Error::Validation`], [`Error::DoesNotExist`], [`Error::UpdateConflict`], and those of the store.
    pub async fn update_any(&self, mut resource: Resource) -> Result<Resource> {
        let hooks = storable(resource.kind(), "Update")?;
        hooks.prepare_update(self, &mut resource).await?;
        let mut resource = self.with_defaults(resource)?;
        let mut errors = FieldErrors::new();
        check_update(resource.kind(), resource.metadata(), &mut errors);
        validate(&resource, errors)?;
        hooks.check_update(self, &resource).await?;
        resource.metadata_mut().self_link.clear();
        let stored = readable(self.backend().update(&KvPair::resource(resource)).await?)?;
        hooks.after_write(self, &stored).await?;
        Ok(stored)
    }

    /// Replaces the status of an object that was read before. Where the store does not separate the status, the whole
    /// object is replaced, unchecked, as Calico does.
    ///
    /// # Errors
    /// As [`Client::update_any`].
    pub async fn update_status_any(&self, mut resource: Resource) -> Result<Resource> {
        storable(resource.kind(), "UpdateStatus")?;
        let mut errors = FieldErrors::new();
        check_update(resource.kind(), resource.metadata(), &mut errors);
        errors.into_result()?;
        resource.metadata_mut().self_link.clear();
        let stored = self.backend().update_status(&KvPair::resource(resource)).await?;
        readable(stored)
    }

    /// Deletes an object and returns its last state.
    ///
    /// # Errors
    /// [`Error::DoesNotExist`], [`Error::UpdateConflict`], [`Error::NotSupported`] where the object is protected.
    pub async fn delete_any(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Resource> {
        let hooks = storable(kind, "Delete")?;
        check_identity(kind, namespace, name)?;
        hooks.delete(self, kind, namespace, name, options).await
    }

    /// Reads one object, now or as of a revision.
    ///
    /// # Errors
    /// [`Error::DoesNotExist`], and those of the store.
    pub async fn get_any(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        revision: Option<&str>,
    ) -> Result<Resource> {
        check_identity(kind, namespace, name)?;
        let key = Key::resource(kind, namespace, name);
        let mut resource = readable(self.backend().get(&key, revision).await?)?;
        if !hooks(kind).after_read(self, &mut resource).await? {
            return Err(Error::DoesNotExist { key: key.to_string(), reason: "it is being deleted".into() });
        }
        Ok(resource)
    }

    /// Reads all objects of a kind that `query` selects.
    ///
    /// # Errors
    /// Those of the store. An object that cannot be read is in [`ResourceList::invalid`].
    pub async fn list_any(&self, kind: Kind, query: &ListQuery) -> Result<ResourceList<Resource>> {
        let list = self.backend().list(&list_options(kind, query)?, query.revision.as_deref()).await?;
        let mut items = Vec::with_capacity(list.items.len());
        for entry in list.items {
            let mut resource = readable(entry)?;
            if hooks(kind).after_read(self, &mut resource).await? {
                items.push(resource);
            }
        }
        Ok(ResourceList { items, revision: list.revision, invalid: list.invalid })
    }

    /// Reads all objects of a kind that `query` selects in parts, all of one revision: a caller that needs each object
    /// only once need not hold all of them.
    ///
    /// # Errors
    /// Those of the store, before the first part or as the last item.
    pub async fn list_parts_any(
        &self,
        kind: Kind,
        query: &ListQuery,
    ) -> Result<BoxStream<'static, Result<ResourceList<Resource>>>> {
        let parts = self.backend().list_parts(&list_options(kind, query)?, query.revision.as_deref()).await?;
        let client = self.clone();
        Ok(parts
            .then(move |part| {
                let client = client.clone();
                async move {
                    let part = part?;
                    let mut items = Vec::with_capacity(part.items.len());
                    for entry in part.items {
                        let mut resource = readable(entry)?;
                        if hooks(kind).after_read(&client, &mut resource).await? {
                            items.push(resource);
                        }
                    }
                    Ok(ResourceList { items, revision: part.revision, invalid: part.invalid })
                }
            })
            .boxed())
    }

    /// Watches the objects of a kind that `query` selects.
    ///
    /// # Errors
    /// When the watch cannot be started.
    pub async fn watch_any(&self, kind: Kind, query: &ListQuery) -> Result<ResourceWatch<Resource>> {
        let options =
            WatchOptions { revision: query.revision.clone(), bookmarks: true, ..WatchOptions::default() };
        let events = self.backend().watch(&list_options(kind, query)?, options).await?;
        Ok(events.map(|event| event.and_then(converted)).boxed())
    }

    /// Checks a new object on its own, after its defaults were filled in.
    pub(crate) fn check_new(&self, resource: &Resource) -> Result<()> {
        let mut errors = FieldErrors::new();
        check_create(resource.kind(), resource.metadata(), &mut errors);
        validate(resource, errors)
    }

    /// Stores an object that was checked, assigning an identity if it has none.
    pub(crate) async fn store_new(&self, resource: &mut Resource) -> Result<Resource> {
        let metadata = resource.metadata_mut();
        if metadata.creation_timestamp.as_ref().is_none_or(Time::is_empty) {
            metadata.creation_timestamp = Some(Time::new(now()));
        }
        if metadata.uid.is_empty() {
            metadata.uid = uuid::Uuid::new_v4().to_string();
        }
        metadata.self_link.clear();
        let stored = self.backend().create(&KvPair::resource(resource.clone())).await?;
        readable(stored)
    }

    /// Deletes without the kind's own rules.
    pub(crate) async fn delete_plain(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Resource> {
        let key = Key::resource(kind, namespace, name);
        let Some(uid) = &options.uid else {
            return readable(self.backend().delete(&key, options.revision.as_deref()).await?);
        };
        // Not every store can compare uids, but all compare revisions: find the revision that has this uid.
        loop {
            let current = self.backend().get(&key, None).await?;
            let is_same = current.as_resource().is_some_and(|resource| resource.metadata().uid == *uid);
            if !is_same {
                let reason = format!("no object with uid {uid}");
                return Err(Error::DoesNotExist { key: key.to_string(), reason });
            }
            let revision = options.revision.as_deref().unwrap_or(&current.revision);
            match self.backend().delete(&key, Some(revision)).await {
                Err(error) if error.is_conflict() && options.revision.is_none() => {}
                outcome => return readable(outcome?),
            }
        }
    }

    /// Fills in the typed client's defaults and, where no API server does it, those of the schema.
    pub(crate) fn with_defaults(&self, mut resource: Resource) -> Result<Resource> {
        resource.set_defaults();
        if self.backend().is_kubernetes() {
            return Ok(resource);
        }
        let kind = resource.kind();
        let Some(schema) = property(for_kind(kind), "spec") else { return Ok(resource) };
        let unreadable = |error: serde_json::Error| Error::Parse {
            key: format!("{kind}({})", resource.name()),
            reason: error.to_string(),
        };
        let mut value = resource.to_value().map_err(unreadable)?;
        if let Some(spec) = value.get_mut("spec") {
            apply_defaults(schema, spec);
        }
        Resource::from_value(kind, value).map_err(unreadable)
    }
}

/// Converts an entry to the object that callers get.
fn readable(entry: KvPair) -> Result<Resource> {
    let key = entry.key.to_string();
    let model::Value::Resource(mut resource) = entry.value else {
        return Err(Error::Parse { key, reason: "its value is not a resource".into() });
    };
    let metadata = resource.metadata_mut();
    metadata.self_link.clear();
    metadata.resource_version = entry.revision;
    resource.set_read_defaults();
    Ok(resource)
}

fn converted(event: WatchEvent) -> Result<ResourceEvent<Resource>> {
    let event = match event {
        WatchEvent::Added(entry) => ResourceEvent::Added(entry),
        WatchEvent::Modified { new } => ResourceEvent::Modified { new },
        WatchEvent::Deleted(entry) => ResourceEvent::Deleted(entry),
        WatchEvent::Bookmark(revision) => ResourceEvent::Bookmark(revision),
        WatchEvent::Invalid(entry) => ResourceEvent::Invalid(entry),
    };
    event.try_map(readable)
}

/// The current time as Kubernetes writes it: UTC, whole seconds.
fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The kind's hooks, unless the kind exists in feeds only.
fn storable(kind: Kind, operation: &'static str) -> Result<&'static dyn KindHooks> {
    if kind.info().stored {
        return Ok(hooks(kind));
    }
    let reason = "objects of this kind are derived from other objects and are not stored".into();
    Err(Error::NotSupported { operation, key: kind.to_string(), reason })
}

fn list_options(kind: Kind, query: &ListQuery) -> Result<ListOptions> {
    let namespace = query.namespace.clone().filter(|namespace| !namespace.is_empty());
    if namespace.is_some() && !kind.is_namespaced() {
        return Err(one_error("metadata.namespace", namespace.unwrap_or_default(), not_namespaced(kind)));
    }
    let name = query.name.clone().filter(|name| !name.is_empty());
    Ok(ListOptions::Resource { kind, namespace, name, name_is_prefix: query.name_is_prefix })
}

fn validate(resource: &Resource, mut errors: FieldErrors) -> Result<()> {
    if let Err(more) = resource.validate() {
        // A missing name is reported once, by the general rule.
        let name_is_missing = resource.name().is_empty();
        for error in more.as_slice() {
            if !(name_is_missing && error.path.as_str() == "metadata.name") {
                errors.add(error.path.clone(), &error.value, error.reason.clone());
            }
        }
    }
    Ok(errors.into_result()?)
}

fn check_create(kind: Kind, metadata: &ObjectMeta, errors: &mut FieldErrors) {
    if metadata.name.is_empty() {
        let hint = if metadata.generate_name.is_empty() { "" } else { " (generateName is not supported)" };
        errors.add(FieldPath::new("metadata.name"), "", format!("must be set to create an object{hint}"));
    }
    if !metadata.resource_version.is_empty() {
        let reason = "must not be set to create an object";
        errors.add(FieldPath::new("metadata.resourceVersion"), &metadata.resource_version, reason);
    }
    check_namespace(kind, &metadata.namespace, errors);
}

fn check_update(kind: Kind, metadata: &ObjectMeta, errors: &mut FieldErrors) {
    let has_time = metadata.creation_timestamp.as_ref().is_some_and(|time| !time.is_empty());
    let needed = [
        ("metadata.name", !metadata.name.is_empty()),
        ("metadata.resourceVersion", !metadata.resource_version.is_empty()),
        ("metadata.creationTimestamp", has_time),
        ("metadata.uid", !metadata.uid.is_empty()),
    ];
    for (path, is_set) in needed {
        errors.require(is_set, FieldPath::new(path), "", "must be set to update an object");
    }
    check_namespace(kind, &metadata.namespace, errors);
}

fn check_namespace(kind: Kind, namespace: &str, errors: &mut FieldErrors) {
    let path = FieldPath::new("metadata.namespace");
    match (kind.is_namespaced(), namespace.is_empty()) {
        (true, true) => errors.add(path, "", format!("must be set: a {kind} belongs to a namespace")),
        (false, false) => errors.add(path, namespace, not_namespaced(kind)),
        _ => {}
    }
}

fn not_namespaced(kind: Kind) -> String {
    format!("must not be set: a {kind} belongs to no namespace")
}

fn check_identity(kind: Kind, namespace: &str, name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::InsufficientIdentifiers { missing: "name".into() });
    }
    let mut errors = FieldErrors::new();
    check_namespace(kind, namespace, &mut errors);
    Ok(errors.into_result()?)
}

/// One error about one field.
pub(crate) fn one_error(path: &str, value: impl std::fmt::Display, reason: impl Into<String>) -> Error {
    let mut errors = FieldErrors::new();
    errors.add(FieldPath::new(path), value, reason);
    Error::Validation(errors)
}
