//! One kind, followed: the machine of crate `follow` over the Kubernetes API, with objects cut down on the way.

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

/// How often a kind that the cluster lacks is looked for again.
const ABSENT_PAUSE: Duration = Duration::from_secs(30);

type Subscriber<T> = Box<dyn Fn(&Change<T>) + Send + Sync>;

/// Follows one kind. Cheap to clone.
pub struct Informer<T> {
    inner: Arc<Inner<T>>,
}

struct Inner<T> {
    store: RwLock<Store<T>>,
    /// Held while a change is stored and announced, so that a new subscriber misses nothing and hears nothing twice.
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

    /// Keeps the record of what fails, and of whether the kind is there.
    fn note(&self, event: &Event<FollowedPage<Taken<T>>, ClusterEvent<Taken<T>>>) {
        match event {
            Event::ListFailed(failure) => {
                match failure.class {
                    FailureClass::DoesNotExist if T::OPTIONAL => return self.absent(),
                    // What was read before stays, but is not relied on.
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

    /// The whole list was read, or an optional kind is not waited for.
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
        // A permission that is missing stays missing: once is enough.
        if troubles.of(step).as_ref() != Some(&trouble) {
            tracing::warn!(error = trouble.message, "cannot follow the Kubernetes API");
            *troubles.of(step) = Some(trouble);
        }
    }
}

/// Objects are stored, and subscribers called, while the answer is taken in.
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

/// An informer of some kind, for those who only start it and ask how it is.
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
