//! The task that lists, watches and tells.

use super::store::{Change, Store};
use super::strings::Strings;
use super::{ObjectKey, Slim};
use crate::cluster::{Cluster, ClusterError, ClusterEvent};
use crate::shutdown::Shutdown;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The pauses between attempts.
const SHORTEST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How often a kind that the cluster lacks is looked for again.
const ABSENT_PAUSE: Duration = Duration::from_secs(30);

type Subscriber<T> = Box<dyn Fn(&Change<T>) + Send + Sync>;

/// Follows one kind. Cheap to clone.
pub struct Informer<T> {
    inner: Arc<Inner<T>>,
}

struct Inner<T> {
    store: RwLock<Store<T>>,
    /// Held while a change is stored and told, so that a new subscriber misses nothing and hears nothing twice.
    subscribers: Mutex<Vec<Subscriber<T>>>,
    synced: watch::Sender<bool>,
    is_served: watch::Sender<bool>,
    trouble: Mutex<Option<String>>,
}

impl<T> Clone for Informer<T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<T: Slim> fmt::Debug for Informer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informer").field("kind", &T::COLLECTION.plural).finish_non_exhaustive()
    }
}

impl<T: Slim> Informer<T> {
    /// An informer that knows nothing and follows nothing yet. Controllers take theirs from
    /// [`Informers::of`](super::Informers::of).
    #[must_use]
    pub fn new() -> Self {
        let inner = Inner {
            store: RwLock::new(Store::default()),
            subscribers: Mutex::default(),
            synced: watch::Sender::new(false),
            is_served: watch::Sender::new(true),
            trouble: Mutex::new(None),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Calls `subscriber` for every change from now on, and now for everything that is known. It must not wait.
    pub fn subscribe(&self, subscriber: impl Fn(&Change<T>) + Send + Sync + 'static) {
        let mut subscribers = self.inner.subscribers.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, object) in self.snapshot() {
            subscriber(&Change { key, old: None, new: Some(object) });
        }
        subscribers.push(Box::new(subscriber));
    }

    /// An object, as last seen.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<T>> {
        self.inner.store.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Everything that is known, in no order.
    #[must_use]
    pub fn snapshot(&self) -> Vec<(ObjectKey, Arc<T>)> {
        let store = self.inner.store.read().unwrap_or_else(PoisonError::into_inner);
        store.iter().map(|(key, object)| (key.clone(), Arc::clone(object))).collect()
    }

    /// How many objects are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.store.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether no object is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a whole list has been read.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        *self.inner.synced.borrow()
    }

    /// Whether the cluster has the kind; only of interest where it is [`Slim::OPTIONAL`].
    #[must_use]
    pub fn is_served(&self) -> bool {
        *self.inner.is_served.borrow()
    }

    /// Waits until a whole list has been read.
    pub async fn synced(&self) {
        // The sender lives in `self`.
        let _ = self.inner.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// What keeps the informer from following its kind.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.inner.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Follows the kind until the end is asked for.
    async fn run(&self, cluster: Cluster, shutdown: Shutdown, strings: Strings) {
        tokio::select! {
            () = self.follow(&cluster, strings) => {}
            () = shutdown.requested() => {}
        }
    }

    async fn follow(&self, cluster: &Cluster, mut strings: Strings) {
        let mut pause = SHORTEST_PAUSE;
        loop {
            let mut revision = match self.list(cluster, &mut strings).await {
                Ok(revision) => revision,
                Err(error) if T::OPTIONAL && error.is_not_found() => {
                    self.absent();
                    tokio::time::sleep(ABSENT_PAUSE).await;
                    continue;
                }
                Err(error) => {
                    self.failed(&error, &mut pause).await;
                    continue;
                }
            };
            self.well(&mut pause);
            self.inner.is_served.send_replace(true);
            if !self.inner.synced.send_replace(true) {
                tracing::info!(kind = T::COLLECTION.plural, objects = self.len(), "followed");
            }
            // Until the API says that our revision is of no use any more.
            loop {
                match self.watch(cluster, &mut revision, &mut strings, &mut pause).await {
                    Ok(()) => {}
                    Err(error) if error.is_refusal() => {
                        if error.is_expired() {
                            tracing::info!(kind = T::COLLECTION.plural, "the watch expired: listing anew");
                        } else {
                            self.failed(&error, &mut pause).await;
                        }
                        break;
                    }
                    Err(error) => self.failed(&error, &mut pause).await,
                }
            }
        }
    }

    /// Reads everything; the revision to watch from.
    async fn list(&self, cluster: &Cluster, strings: &mut Strings) -> Result<String, ClusterError> {
        self.write(|store| {
            store.begin_list();
            Vec::new()
        });
        let mut token: Option<String> = None;
        loop {
            let page = cluster.page::<T::Wire>(T::COLLECTION, token.as_deref()).await?;
            let revision = page.revision().to_owned();
            token = page.next().map(str::to_owned);
            self.write(|store| {
                page.items.into_iter().filter_map(|wire| store.put(T::take(wire, strings))).collect()
            });
            if token.is_none() {
                self.write(Store::end_list);
                return Ok(revision);
            }
        }
    }

    /// Follows changes until the watch ends.
    async fn watch(
        &self,
        cluster: &Cluster,
        revision: &mut String,
        strings: &mut Strings,
        pause: &mut Duration,
    ) -> Result<(), ClusterError> {
        let mut events = cluster.watch::<T::Wire>(T::COLLECTION, revision).await?;
        self.well(pause);
        while let Some(event) = events.next().await {
            match event? {
                ClusterEvent::Present(wire) => {
                    let taken = T::take(wire, strings);
                    revision.clone_from(&taken.revision);
                    self.write(|store| store.put(taken).into_iter().collect());
                }
                ClusterEvent::Gone(wire) => {
                    let taken = T::take(wire, strings);
                    *revision = taken.revision;
                    self.write(|store| store.remove(&taken.key).into_iter().collect());
                }
                ClusterEvent::Bookmark(newer) => *revision = newer,
            }
        }
        Ok(())
    }

    /// Changes the store and tells everybody.
    fn write(&self, change: impl FnOnce(&mut Store<T>) -> Vec<Change<T>>) {
        let subscribers = self.inner.subscribers.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = change(&mut self.inner.store.write().unwrap_or_else(PoisonError::into_inner));
        for change in &changes {
            for subscriber in subscribers.iter() {
                subscriber(change);
            }
        }
    }

    fn absent(&self) {
        tracing::debug!(kind = T::COLLECTION.plural, "the cluster does not have this kind");
        self.inner.is_served.send_replace(false);
        self.write(|store| {
            store.begin_list();
            store.end_list()
        });
        self.inner.synced.send_replace(true);
    }

    fn well(&self, pause: &mut Duration) {
        *pause = SHORTEST_PAUSE;
        *self.inner.trouble.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    async fn failed(&self, error: &ClusterError, pause: &mut Duration) {
        tracing::warn!(%error, retry_in = ?pause, "cannot follow the Kubernetes API");
        *self.inner.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
        tokio::time::sleep(*pause).await;
        *pause = (*pause * 2).min(LONGEST_PAUSE);
    }
}

impl<T: Slim> Default for Informer<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// An informer of some kind.
pub(super) trait AnyInformer: Send + Sync {
    fn start(&self, cluster: Cluster, shutdown: Shutdown, pod_labels: bool) -> JoinHandle<()>;
    fn trouble(&self) -> Option<String>;
    fn wait(&self) -> BoxFuture<'static, ()>;
    fn as_any(&self) -> &dyn Any;
}

impl<T: Slim> AnyInformer for Informer<T> {
    fn start(&self, cluster: Cluster, shutdown: Shutdown, pod_labels: bool) -> JoinHandle<()> {
        let informer = self.clone();
        let strings = if pod_labels { Strings::with_pod_labels() } else { Strings::default() };
        tokio::spawn(async move { informer.run(cluster, shutdown, strings).await })
    }

    fn trouble(&self) -> Option<String> {
        Informer::trouble(self)
    }

    fn wait(&self) -> BoxFuture<'static, ()> {
        let informer = self.clone();
        Box::pin(async move { informer.synced().await })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
