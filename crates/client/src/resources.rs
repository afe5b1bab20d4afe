//! Typed access: the operations of [`any`](crate::any) for the type of one kind.

use crate::Client;
use crate::query::{DeleteOptions, ListQuery, ResourceList, ResourceWatch};
use api::{Object, Resource, Spec};
use datastore::{Error, Result};
use futures::StreamExt as _;
use std::fmt;
use std::marker::PhantomData;

/// The number of attempts of [`Typed::update_with_retry`]: enough for any real contention, and an end to a dispute
/// between two programs that undo each other's work.
const MAX_ATTEMPTS: usize = 100;

/// A spec whose objects can be [`Resource`]s; holds for every spec of the `api` crate.
pub trait Storable: Spec {
    /// Converts the object to one of any kind.
    fn wrap(object: Object<Self>) -> Resource;

    /// Converts the object to its own type; `None` if it is of another kind.
    fn unwrap(resource: Resource) -> Option<Object<Self>>;
}

impl<S: Spec> Storable for S
where
    Resource: From<Object<S>>,
    Object<S>: TryFrom<Resource>,
{
    fn wrap(object: Object<Self>) -> Resource {
        object.into()
    }

    fn unwrap(resource: Resource) -> Option<Object<Self>> {
        resource.try_into().ok()
    }
}

/// The resources of one kind. Namespaces are empty for kinds without namespaces.
pub struct Typed<'a, S> {
    client: &'a Client,
    spec: PhantomData<fn() -> S>,
}

// Written out, because a derived implementation would require a clonable spec.
impl<S> Clone for Typed<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Typed<'_, S> {}

impl<S: Storable> fmt::Debug for Typed<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Typed").field("kind", &S::KIND).finish_non_exhaustive()
    }
}

impl<'a, S: Storable> Typed<'a, S> {
    pub(crate) fn new(client: &'a Client) -> Self {
        Self { client, spec: PhantomData }
    }

    /// Stores a new object; returns it as stored.
    ///
    /// # Errors
    /// [`Error::Validation`], [`Error::AlreadyExists`], and those of the store.
    pub async fn create(&self, object: Object<S>) -> Result<Object<S>> {
        unwrap(self.client.create_any(S::wrap(object)).await?)
    }

    /// Replaces an object that was read before; returns it as stored.
    ///
    /// # Errors
    /// [`Error::Validation`], [`Error::DoesNotExist`], [`Error::UpdateConflict`], and those of the store.
    pub async fn update(&self, object: Object<S>) -> Result<Object<S>> {
        unwrap(self.client.update_any(S::wrap(object)).await?)
    }

    /// Replaces the status of an object that was read before.
    ///
    /// # Errors
    /// As [`Typed::update`].
    pub async fn update_status(&self, object: Object<S>) -> Result<Object<S>> {
        unwrap(self.client.update_status_any(S::wrap(object)).await?)
    }

    /// Deletes an object and returns its last state.
    ///
    /// # Errors
    /// [`Error::DoesNotExist`], [`Error::UpdateConflict`], [`Error::NotSupported`] where the object is protected.
    pub async fn delete(&self, namespace: &str, name: &str, options: &DeleteOptions) -> Result<Object<S>> {
        unwrap(self.client.delete_any(S::KIND, namespace, name, options).await?)
    }

    /// Reads one object.
    ///
    /// # Errors
    /// [`Error::DoesNotExist`], and those of the store.
    pub async fn get(&self, namespace: &str, name: &str) -> Result<Object<S>> {
        unwrap(self.client.get_any(S::KIND, namespace, name, None).await?)
    }

    /// Reads all objects that `query` selects.
    ///
    /// # Errors
    /// Those of the store. An object that cannot be read is in [`ResourceList::invalid`].
    pub async fn list(&self, query: &ListQuery) -> Result<ResourceList<Object<S>>> {
        let list = self.client.list_any(S::KIND, query).await?;
        let items = list.items.into_iter().map(unwrap).collect::<Result<Vec<_>>>()?;
        Ok(ResourceList { items, revision: list.revision, invalid: list.invalid })
    }

    /// Watches the objects that `query` selects.
    ///
    /// # Errors
    /// When the watch cannot be started.
    pub async fn watch(&self, query: &ListQuery) -> Result<ResourceWatch<Object<S>>> {
        let events = self.client.watch_any(S::KIND, query).await?;
        Ok(events.map(|event| event.and_then(|event| event.try_map(unwrap))).boxed())
    }

    /// Reads an object, applies `change`, writes it back, and starts over if another writer was faster. `change`
    /// returns whether there is anything to write.
    ///
    /// # Errors
    /// Those of [`Typed::get`] and [`Typed::update`]; a conflict only after a hundred attempts.
    pub async fn update_with_retry(
        &self,
        namespace: &str,
        name: &str,
        mut change: impl FnMut(&mut Object<S>) -> bool + Send,
    ) -> Result<Object<S>> {
        let mut attempt = 1;
        loop {
            let mut object = self.get(namespace, name).await?;
            if !change(&mut object) {
                return Ok(object);
            }
            match self.update(object).await {
                Err(error) if error.is_conflict() && attempt < MAX_ATTEMPTS => attempt += 1,
                outcome => return outcome,
            }
        }
    }
}

fn unwrap<S: Storable>(resource: Resource) -> Result<Object<S>> {
    let key = format!("{}({})", resource.kind(), resource.name());
    S::unwrap(resource)
        .ok_or_else(|| Error::Parse { key, reason: format!("expected an object of kind {}", S::KIND) })
}
