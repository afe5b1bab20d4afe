//! Copies Kubernetes objects into Calico's datastore one to one: the shell that all such controllers share.
//!
//! A [`Copied`] kind defines the copy's contents; [`decide`] determines what to do about an existing or missing copy.
//! The shell compares everything at the start and once per period, follows changes in between, and handles one key at a
//! time: with one request if the object is new, with two if it changed.
//!
//! A copy is deleted only after Kubernetes itself, not our cache, has confirmed that the original is gone. Objects
//! whose names are not those of copies are never touched.

mod decide;

pub(crate) use decide::{Step, complete, decide, is_same};

use crate::config::SyncConfig;
use crate::controller::{Context, Controller};
use crate::informer::{Informer, ObjectKey, Slim};
use crate::queue::{Outcome, RETRY, WorkQueue};
use crate::workers;
use api::{Object, Spec as _};
use async_trait::async_trait;
use client::Storable;
use daemon::Shutdown;
use datastore::{Backend, Error};
use futures::StreamExt as _;
use kube_access::cluster::ClusterError;
use model::{Key, KvPair, ListOptions, Value};
use std::collections::HashSet;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A kind of object that is copied.
pub(crate) trait Copied: Send + Sync + 'static {
    /// The original in Kubernetes.
    type Source: Slim;
    /// The copy in Calico's datastore.
    type Spec: Storable;

    /// The controller's name.
    const NAME: &'static str;

    /// The namespace and name of the copy.
    fn copy_of(source: &ObjectKey) -> (String, String);

    /// The original of the copy with this namespace and name; `None` for objects that are not copies.
    fn source_of(namespace: &str, name: &str) -> Option<ObjectKey>;

    /// The desired copy.
    ///
    /// # Errors
    /// When the original cannot be copied; the error says why.
    fn desired(key: &ObjectKey, source: &Self::Source) -> Result<Object<Self::Spec>, String>;
}

/// The controller of one kind.
pub(crate) struct Copier<C: Copied> {
    inner: Arc<Inner<C>>,
    config: SyncConfig,
}

struct Inner<C: Copied> {
    context: Context,
    informer: Informer<C::Source>,
    queue: WorkQueue<ObjectKey>,
    /// Whether changes are followed; before that, the first comparison finds them all.
    is_live: AtomicBool,
    /// Keys that have no copy as far as is known: creating one is tried without reading first.
    new: Mutex<HashSet<ObjectKey>>,
    kind: PhantomData<fn() -> C>,
}

/// Why a key could not be synchronised.
#[derive(Debug, thiserror::Error)]
enum SyncError {
    #[error(transparent)]
    Datastore(#[from] Error),
    #[error(transparent)]
    Cluster(#[from] ClusterError),
}

impl<C: Copied> Copier<C> {
    /// Creates the controller, ready to run.
    #[must_use]
    pub(crate) fn new(context: &Context, config: SyncConfig) -> Self {
        let inner = Arc::new(Inner {
            context: context.clone(),
            informer: context.informers.of::<C::Source>(),
            queue: WorkQueue::new(RETRY),
            is_live: AtomicBool::new(false),
            new: Mutex::default(),
            kind: PhantomData::<fn() -> C>,
        });
        let follower = Arc::clone(&inner);
        inner.informer.subscribe(move |change| {
            if follower.is_live.load(Ordering::Acquire) {
                if change.old.is_none() {
                    follower.is_new(change.key.clone());
                }
                follower.queue.add(change.key.clone());
            }
        });
        Self { inner, config }
    }
}

#[async_trait]
impl<C: Copied> Controller for Copier<C> {
    fn name(&self) -> &'static str {
        C::NAME
    }

    async fn run(self: Box<Self>, shutdown: Shutdown) -> anyhow::Result<()> {
        let inner = &self.inner;
        let work = async {
            inner.informer.synced().await;
            inner.is_live.store(true, Ordering::Release);
            workers::run(C::NAME, &self.config, || inner.work(), || inner.compare()).await;
        };
        tokio::select! {
            () = work => {}
            () = shutdown.requested() => {}
        }
        Ok(())
    }
}

impl<C: Copied> Inner<C> {
    /// Finds missing, wrong and leftover copies. Returns how many objects were checked, and how many need work.
    async fn compare(&self) -> Result<(usize, usize), Error> {
        // Taken before the list: anything copied in the meantime is in the list, and anything deleted in the meantime
        // is verified.
        let sources = self.informer.snapshot();
        let mut missing: HashSet<ObjectKey> = sources.iter().map(|(key, _)| key.clone()).collect();
        let (mut checked, mut wrong) = (sources.len(), 0);
        drop(sources);
        let list = ListOptions::resources(C::Spec::KIND);
        let mut parts = self.backend().list_parts(&list, None).await?;
        while let Some(part) = parts.next().await {
            let part = part?;
            for entry in part.items {
                let Some((key, actual)) = self.copy(entry) else { continue };
                missing.remove(&key);
                let source = self.informer.get(&key);
                let is_right = source.is_some_and(|source| match C::desired(&key, &source) {
                    Ok(desired) => is_same(&desired, &actual),
                    // Handled by a worker, which reports the reason.
                    Err(_) => false,
                });
                if !is_right {
                    checked += usize::from(self.informer.get(&key).is_none());
                    wrong += 1;
                    self.queue.add(key);
                }
            }
            for entry in part.invalid {
                let resource = entry.parsed_key.as_ref().and_then(Key::as_resource);
                if let Some(key) = resource.and_then(|key| C::source_of(&key.namespace, &key.name)) {
                    tracing::warn!(%key, reason = entry.reason, "a copy cannot be read and is replaced");
                    missing.remove(&key);
                    wrong += 1;
                    self.queue.add(key);
                }
            }
        }
        wrong += missing.len();
        for key in missing {
            self.is_new(key.clone());
            self.queue.add(key);
        }
        Ok((checked, wrong))
    }

    /// Converts an entry to a copy; `None` if it is not one.
    fn copy(&self, entry: KvPair) -> Option<(ObjectKey, Object<C::Spec>)> {
        let Value::Resource(resource) = entry.value else { return None };
        let metadata = resource.metadata();
        let key = C::source_of(&metadata.namespace, &metadata.name)?;
        let mut object = C::Spec::unwrap(resource)?;
        object.metadata.resource_version = entry.revision;
        Some((key, object))
    }

    async fn work(&self) {
        loop {
            let key = self.queue.take().await;
            let outcome = match self.sync(&key).await {
                Ok(()) => Outcome::Done,
                Err(SyncError::Datastore(error)) if error.is_conflict() => {
                    tracing::debug!(controller = C::NAME, %key, %error, "another client was faster");
                    Outcome::Failed
                }
                Err(error) => {
                    tracing::warn!(controller = C::NAME, %key, %error, "cannot copy; trying again");
                    Outcome::Failed
                }
            };
            self.queue.finish(&key, outcome);
        }
    }

    /// Synchronises one copy.
    async fn sync(&self, key: &ObjectKey) -> Result<(), SyncError> {
        let (namespace, name) = C::copy_of(key);
        let place = Key::resource(C::Spec::KIND, &namespace, &name);
        let desired = match self.informer.get(key).map(|source| C::desired(key, &source)) {
            None => None,
            Some(Ok(desired)) => Some(desired),
            Some(Err(reason)) => {
                tracing::error!(controller = C::NAME, %key, reason, "cannot be copied; an existing copy is kept");
                return Ok(());
            }
        };
        let is_new = self.new.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        if let (Some(desired), true) = (&desired, is_new) {
            match self.backend().create(&new_entry(desired)).await {
                Err(error) if error.is_already_exists() => {}
                outcome => {
                    if outcome.is_err() {
                        self.is_new(key.clone());
                    }
                    outcome?;
                    tracing::debug!(controller = C::NAME, %key, "copied");
                    return Ok(());
                }
            }
        }
        let actual = match self.backend().get(&place, None).await {
            Ok(entry) => self.copy(entry).map(|(_, actual)| actual),
            Err(error) if error.is_does_not_exist() => None,
            Err(Error::Parse { .. }) => return self.replace_unreadable(key, &place, desired).await,
            Err(error) => return Err(error.into()),
        };
        match decide(desired, actual) {
            Step::Nothing => {}
            Step::Create(desired) => {
                self.backend().create(&new_entry(&desired)).await?;
                tracing::debug!(controller = C::NAME, %key, "copied");
            }
            Step::Update(changed) => {
                let revision = changed.metadata.resource_version.clone();
                let mut entry = KvPair::resource(C::Spec::wrap(changed));
                entry.set_revision(&revision);
                self.backend().update(&entry).await?;
                tracing::debug!(controller = C::NAME, %key, "copied again");
            }
            Step::Delete { revision } => {
                if !self.is_gone(key).await? {
                    tracing::info!(controller = C::NAME, %key, "Kubernetes has it, but not our cache: the copy is kept");
                    return Ok(());
                }
                match self.backend().delete(&place, Some(&revision)).await {
                    Err(error) if error.is_does_not_exist() => {}
                    outcome => drop(outcome?),
                }
                tracing::debug!(controller = C::NAME, %key, "copy deleted");
            }
        }
        Ok(())
    }

    /// Replaces or deletes an unreadable copy: it contains nothing that must be kept.
    async fn replace_unreadable(
        &self,
        key: &ObjectKey,
        place: &Key,
        desired: Option<Object<C::Spec>>,
    ) -> Result<(), SyncError> {
        match desired {
            Some(desired) => drop(self.backend().apply(&new_entry(&desired)).await?),
            None if self.is_gone(key).await? => drop(self.backend().delete(place, None).await?),
            None => {}
        }
        Ok(())
    }

    /// Whether the object does not exist, according to Kubernetes.
    async fn is_gone(&self, key: &ObjectKey) -> Result<bool, ClusterError> {
        let path = <C::Source as Slim>::COLLECTION.object(&key.namespace, &key.name);
        let what = format!("look for {} {key}", <C::Source as Slim>::COLLECTION.plural);
        match self.context.cluster.get::<serde::de::IgnoredAny>(&what, &path).await {
            Ok(_) => Ok(false),
            Err(error) if error.is_not_found() => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn is_new(&self, key: ObjectKey) {
        self.new.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
    }

    fn backend(&self) -> &Arc<dyn Backend> {
        self.context.client.backend()
    }
}

/// A new copy as it is stored: with its own identity, and without the checks that catch users' mistakes. Kubernetes has
/// accepted the original, and a policy that is rejected here would not be enforced.
fn new_entry<S: Storable>(desired: &Object<S>) -> KvPair {
    let mut object = complete(desired.clone());
    object.metadata.uid = uuid::Uuid::new_v4().to_string();
    let now = jiff::Timestamp::now();
    object.metadata.creation_timestamp =
        Some(api::meta::Time::new(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()));
    KvPair::resource(S::wrap(object))
}
