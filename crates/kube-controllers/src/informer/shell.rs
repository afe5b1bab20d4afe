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

/// The longest pause after a refusal: the permission may be given at any time, but rarely is.
const LONGEST_REFUSED_PAUSE: Duration = Duration::from_secs(60);

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
    troubles: Mutex<Troubles>,
}

/// What fails at present. A list that works says nothing about the watch.
#[derive(Clone, Debug, Default)]
struct Troubles {
    list: Option<Trouble>,
    watch: Option<Trouble>,
}

/// What keeps an informer from following its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What failed, in words.
    pub message: String,
    /// Whether a permission is missing.
    pub is_refused: bool,
}

/// The two things that an informer does.
#[derive(Clone, Copy, Debug)]
enum Step {
    List,
    Watch,
}

impl Troubles {
    fn of(&mut self, step: Step) -> &mut Option<Trouble> {
        match step {
            Step::List => &mut self.list,
            Step::Watch => &mut self.watch,
        }
    }
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
            troubles: Mutex::default(),
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

    /// Whether the cluster has the kind and lets us read it; only of interest where it is [`Slim::OPTIONAL`].
    #[must_use]
    pub fn is_served(&self) -> bool {
        *self.inner.is_served.borrow()
    }

    /// Waits until a whole list has been read, or an optional kind turned out to be absent or refused.
    pub async fn synced(&self) {
        // The sender lives in `self`.
        let _ = self.inner.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// What keeps the informer from following its kind.
    #[must_use]
    pub fn trouble(&self) -> Option<Trouble> {
        let troubles = self.inner.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        troubles.list.clone().or_else(|| troubles.watch.clone())
    }

    /// Follows the kind until the end is asked for.
    async fn run(&self, cluster: Cluster, shutdown: Shutdown, strings: Strings) {
        tokio::select! {
            () = self.follow(&cluster, strings) => {}
            () = shutdown.requested() => {}
        }
    }

    async fn follow(&self, cluster: &Cluster, mut strings: Strings) {
        let (mut pause, mut watch_pause) = (SHORTEST_PAUSE, SHORTEST_PAUSE);
        loop {
            let mut revision = match self.list(cluster, &mut strings).await {
                Ok(revision) => revision,
                Err(error) if T::OPTIONAL && error.is_not_found() => {
                    self.absent();
                    tokio::time::sleep(ABSENT_PAUSE).await;
                    continue;
                }
                Err(error) => {
                    if T::OPTIONAL && error.is_forbidden() {
                        self.refused();
                    }
                    self.failed(Step::List, &error, &mut pause).await;
                    continue;
                }
            };
            self.well(Step::List, &mut pause);
            self.inner.is_served.send_replace(true);
            if !self.inner.synced.send_replace(true) {
                tracing::info!(kind = T::COLLECTION.plural, objects = self.len(), "followed");
            }
            // Until the API says that our revision is of no use any more.
            loop {
                match self.watch(cluster, &mut revision, &mut strings, &mut watch_pause).await {
                    Ok(()) => {}
                    Err(error) if error.is_refusal() => {
                        if error.is_expired() {
                            tracing::info!(kind = T::COLLECTION.plural, "the watch expired: listing anew");
                        } else {
                            self.failed(Step::Watch, &error, &mut watch_pause).await;
                        }
                        break;
                    }
                    Err(error) => self.failed(Step::Watch, &error, &mut watch_pause).await,
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
        self.well(Step::Watch, pause);
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

    /// An optional kind that may not be read is not waited for. What was read before stays, but is not relied on.
    fn refused(&self) {
        self.inner.is_served.send_replace(false);
        self.inner.synced.send_replace(true);
    }

    fn well(&self, step: Step, pause: &mut Duration) {
        *pause = SHORTEST_PAUSE;
        *self.inner.troubles.lock().unwrap_or_else(PoisonError::into_inner).of(step) = None;
    }

    async fn failed(&self, step: Step, error: &ClusterError, pause: &mut Duration) {
        let trouble = Trouble { message: error.to_string(), is_refused: error.is_forbidden() };
        let longest = if trouble.is_refused { LONGEST_REFUSED_PAUSE } else { LONGEST_PAUSE };
        let is_news = {
            let mut troubles = self.inner.troubles.lock().unwrap_or_else(PoisonError::into_inner);
            troubles.of(step).replace(trouble.clone()) != Some(trouble)
        };
        // A permission that is missing stays missing: once is enough.
        if is_news {
            tracing::warn!(%error, retry_in = ?pause, "cannot follow the Kubernetes API");
        } else {
            tracing::debug!(%error, retry_in = ?pause, "still cannot follow the Kubernetes API");
        }
        tokio::time::sleep(*pause).await;
        *pause = (*pause * 2).min(longest);
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
    fn trouble(&self) -> Option<Trouble>;
    fn wait(&self) -> BoxFuture<'static, ()>;
    fn as_any(&self) -> &dyn Any;
}

impl<T: Slim> AnyInformer for Informer<T> {
    fn start(&self, cluster: Cluster, shutdown: Shutdown, pod_labels: bool) -> JoinHandle<()> {
        let informer = self.clone();
        let strings = if pod_labels { Strings::with_pod_labels() } else { Strings::default() };
        tokio::spawn(async move { informer.run(cluster, shutdown, strings).await })
    }

    fn trouble(&self) -> Option<Trouble> {
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
