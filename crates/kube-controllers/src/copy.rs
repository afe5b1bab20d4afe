//! Kubernetes objects copied into Calico's datastore, one for one: the shell that all such controllers share.
//!
//! What a copy should be is a [`Copied`] kind's business; what to do about a copy that is there, or is not, is
//! [`decide`]'s. The shell compares everything at the start and every period, follows changes in between, and works on
//! one key at a time: with one request where the object is new, with two where it changed.
//!
//! A copy is deleted only after Kubernetes itself, not our memory of it, has said that the original is gone. It refuses to
//! touch objects whose names are not those of copies.

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
    /// What it is copied from.
    type Source: Slim;
    /// What it is copied to.
    type Spec: Storable;

    /// The controller's name.
    const NAME: &'static str;

    /// The namespace and name of the copy.
    fn copy_of(source: &ObjectKey) -> (String, String);

    /// Whose copy has this namespace and name; `None` for what is not a copy.
    fn source_of(namespace: &str, name: &str) -> Option<ObjectKey>;

    /// What the copy should be.
    ///
    /// # Errors
    /// When there is no such copy; the sentence says why.
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
    /// Keys whose copy is not there as far as anybody knows: worth trying to create without looking first.
    new: Mutex<HashSet<ObjectKey>>,
    kind: PhantomData<fn() -> C>,
}

/// Why a key could not be brought into step.
#[derive(Debug, thiserror::Error)]
enum SyncError {
    #[error(transparent)]
    Datastore(#[from] Error),
    #[error(transparent)]
    Cluster(#[from] ClusterError),
}

impl<C: Copied> Copier<C> {
    /// The controller, ready to run.
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
    /// Looks for copies that are missing, wrong or left over. How many were checked, and how many are to be worked on.
    async fn compare(&self) -> Result<(usize, usize), Error> {
        // Taken before the list: what is copied in between is in the list, and what goes in between is asked about.
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
                    // Worked on below, where the reason is reported.
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

    /// An entry as the copy that it is; `None` when it is none.
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

    /// Brings one copy into step.
    async fn sync(&self, key: &ObjectKey) -> Result<(), SyncError> {
        let (namespace, name) = C::copy_of(key);
        let place = Key::resource(C::Spec::KIND, &namespace, &name);
        let desired = match self.informer.get(key).map(|source| C::desired(key, &source)) {
            None => None,
            Some(Ok(desired)) => Some(desired),
            Some(Err(reason)) => {
                tracing::error!(controller = C::NAME, %key, reason, "cannot be copied; what is there stays");
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
                    tracing::info!(controller = C::NAME, %key, "not known to us, and yet there: its copy stays");
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

    /// A copy that cannot be read has nothing that must be kept.
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

    /// Whether Kubernetes says that there is no such object.
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

/// A new copy as it is stored: with an identity of its own, and without the checks that are for people's mistakes.
/// Kubernetes has accepted the original, and a policy that is refused here would be a policy that is not enforced.
fn new_entry<S: Storable>(desired: &Object<S>) -> KvPair {
    let mut object = complete(desired.clone());
    object.metadata.uid = uuid::Uuid::new_v4().to_string();
    let now = jiff::Timestamp::now();
    object.metadata.creation_timestamp =
        Some(api::meta::Time::new(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()));
    KvPair::resource(S::wrap(object))
}
