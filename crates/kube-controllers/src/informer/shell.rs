//! Follows one kind: the state machine of crate `follow` over the Kubernetes API, with objects reduced on arrival.

use super::store::{Change, Store};
use super::strings::Strings;
use super::{ObjectKey, Slim, Taken};
use daemon::Shutdown;
use follow::cache::{Cache, CacheOptions, Contents, Event, Failure, FailureClass};
use follow::{Driver, Told};
use futures::future::BoxFuture;
use kube_access::cluster::{Cluster, ClusterEvent};
use kube_access::followed::{Followed, FollowedPage};
use model::feed::Status;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How often to look again for a kind that the cluster lacks.
const ABSENT_PAUSE: Duration = Duration::from_secs(30);

type Subscriber<T> = Box<dyn Fn(&Change<T>) + Send + Sync>;

/// Follows one kind. Cheap to clone.
pub struct Informer<T> {
    inner: Arc<Inner<T>>,
}

struct Inner<T> {
    store: RwLock<Store<T>>,
    /// Held while a change is stored and announced, so that a new subscriber gets every object exactly once.
    subscribers: Mutex<Vec<Subscriber<T>>>,
    synced: watch::Sender<bool>,
    is_served: watch::Sender<bool>,
    troubles: Mutex<Troubles>,
}

/// The present failures. A working list says nothing about the watch.
#[derive(Clone, Debug, Default)]
struct Troubles {
    list: Option<Trouble>,
    watch: Option<Trouble>,
}

/// Why an informer cannot follow its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The error message.
    pub message: String,
    /// Whether a permission is missing.
    pub is_refused: bool,
}

/// The two operations of an informer.
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
    /// Creates an informer that is empty and follows nothing yet. Controllers get theirs from
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

    /// Calls `subscriber` now for every known object, and from now on for every change. It must not block.
    pub fn subscribe(&self, subscriber: impl Fn(&Change<T>) + Send + Sync + 'static) {
        let mut subscribers = self.inner.subscribers.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, object) in self.snapshot() {
            subscriber(&Change { key, old: None, new: Some(object) });
        }
        subscribers.push(Box::new(subscriber));
    }

    /// Returns an object as last seen.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<T>> {
        self.inner.store.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Returns all known objects in no particular order.
    #[must_use]
    pub fn snapshot(&self) -> Vec<(ObjectKey, Arc<T>)> {
        let store = self.inner.store.read().unwrap_or_else(PoisonError::into_inner);
        store.iter().map(|(key, object)| (key.clone(), Arc::clone(object))).collect()
    }

    /// The number of known objects.
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

    /// Whether the cluster has the kind and lets us read it; only relevant for [`Slim::OPTIONAL`] kinds.
    #[must_use]
    pub fn is_served(&self) -> bool {
        *self.inner.is_served.borrow()
    }

    /// Waits until a whole list has been read, or an optional kind turns out to be missing or forbidden.
    pub async fn synced(&self) {
        // The sender is in `self`, so it cannot be dropped here.
        let _ = self.inner.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// Why the informer cannot follow its kind; `None` if it can.
    #[must_use]
    pub fn trouble(&self) -> Option<Trouble> {
        let troubles = self.inner.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        troubles.list.clone().or_else(|| troubles.watch.clone())
    }

    /// Follows the kind until the shutdown.
    async fn run(&self, cluster: Cluster, shutdown: Shutdown, strings: Strings) {
        let options = CacheOptions {
            optional: T::OPTIONAL,
            required: !T::OPTIONAL,
            missing_pause: Some(ABSENT_PAUSE),
            ..CacheOptions::default()
        };
        let strings = Mutex::new(strings);
        let source = Followed::new(cluster, T::COLLECTION, move |wire| {
            T::take(wire, &mut strings.lock().unwrap_or_else(PoisonError::into_inner))
        });
        let mut driver = Driver::new(source, Cache::new(self.clone(), options));
        let work = async {
            loop {
                for event in driver.next().await {
                    self.note(&event);
                    for told in driver.handle(event) {
                        match told {
                            Told::Status(Status::InSync) => self.in_sync(),
                            Told::Status(_) | Told::News(()) => {}
                            Told::Away(error) => {
                                tracing::debug!(kind = %driver.source, error, "cannot be followed");
                            }
                        }
                    }
                }
            }
        };
        tokio::select! {
            () = work => {}
            () = shutdown.requested() => {}
        }
    }

    /// Records failures, and whether the kind exists.
    fn note(&self, event: &Event<FollowedPage<Taken<T>>, ClusterEvent<Taken<T>>>) {
        match event {
            Event::ListFailed(failure) => {
                match failure.class {
                    FailureClass::DoesNotExist if T::OPTIONAL => return self.absent(),
                    // The objects read before are kept, but no longer relied on.
                    FailureClass::Refused if T::OPTIONAL => drop(self.inner.is_served.send_replace(false)),
                    _ => {}
                }
                self.failed(Step::List, failure);
            }
            Event::ListDone { .. } => {
                self.well(Step::List);
                self.inner.is_served.send_replace(true);
            }
            Event::WatchRefused(failure) if failure.class != FailureClass::Expired => {
                self.failed(Step::Watch, failure);
            }
            Event::WatchStarted => self.well(Step::Watch),
            _ => {}
        }
    }

    /// Called when the whole list was read, or an optional kind is not waited for.
    fn in_sync(&self) {
        if !self.inner.synced.send_replace(true) {
            tracing::info!(kind = T::COLLECTION.plural, objects = self.len(), "followed");
        }
    }

    /// Changes the store and calls all subscribers.
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
        self.write(Store::clear);
    }

    fn well(&self, step: Step) {
        *self.inner.troubles.lock().unwrap_or_else(PoisonError::into_inner).of(step) = None;
    }

    fn failed(&self, step: Step, failure: &Failure) {
        let is_refused = failure.class == FailureClass::Refused;
        let trouble = Trouble { message: failure.message.clone(), is_refused };
        let mut troubles = self.inner.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        // A missing permission stays missing: it is reported once.
        if troubles.of(step).as_ref() != Some(&trouble) {
            tracing::warn!(error = trouble.message, "cannot follow the Kubernetes API");
            *troubles.of(step) = Some(trouble);
        }
    }
}

/// Objects are stored, and subscribers called, while the answer is being read.
impl<T: Slim> Contents for Informer<T> {
    type Part = FollowedPage<Taken<T>>;
    type Change = ClusterEvent<Taken<T>>;
    type News = ();

    fn begin(&mut self) {
        self.inner.store.write().unwrap_or_else(PoisonError::into_inner).begin_list();
    }

    fn part(&mut self, page: FollowedPage<Taken<T>>) {
        self.write(|store| page.objects.into_iter().filter_map(|taken| store.put(taken)).collect());
    }

    fn finish(&mut self) {
        self.write(Store::end_list);
    }

    fn change(&mut self, change: ClusterEvent<Taken<T>>) {
        match change {
            ClusterEvent::Present(taken) => self.write(|store| store.put(taken).into_iter().collect()),
            ClusterEvent::Gone(taken) => self.write(|store| store.remove(&taken.key).into_iter().collect()),
            ClusterEvent::Bookmark(_) => {}
        }
    }

    fn clear(&mut self) {
        self.write(Store::clear);
    }

    fn take_news(&mut self) -> Option<()> {
        None
    }

    fn is_empty(&self) -> bool {
        Self::is_empty(self)
    }
}

impl<T: Slim> Default for Informer<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// An informer of any kind, for starting it and checking its state.
pub(super) trait AnyInformer {
    fn start(&self, cluster: Cluster, shutdown: Shutdown, pod_labels: bool) -> JoinHandle<()>;
    fn trouble(&self) -> Option<Trouble>;
    fn wait(&self) -> BoxFuture<'static, ()>;
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
}
