//! The objects behind this API: reads as new as the store, one follow per kind, and shared lists.
//!
//! A list must not be older than the moment of its request. Where a small request is enough to learn the store's newest
//! revision, a list comes from memory whenever nothing can have been missed; otherwise the store is listed, once for
//! all requests that were made before that list began.

use crate::cache::Cache;
use crate::entry::{Entry, encoded, number, place_of};
use crate::following::follow;
use crate::kinds::{SERVED, Served};
use crate::request::Moment;
use crate::status::{Outcome, Refusal};
use api::{Kind, Resource};
use client::{Client, ListQuery};
use daemon::Shutdown;
use futures::StreamExt as _;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// How long a request waits for a revision that the store has but we have not seen yet, as in Kubernetes' servers.
const CATCH_UP: Duration = Duration::from_secs(3);

/// How long a request waits for the first list of a kind before it reads the store itself.
const FIRST_LIST: Duration = Duration::from_secs(10);

/// Objects of a kind at one moment.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The objects, in the order of namespace and name.
    pub entries: Arc<Vec<Arc<Entry>>>,
    /// The revision of the list.
    pub revision: String,
}

/// When a list began, its revision, and its objects for as long as any request uses them.
type Last = (Instant, String, Weak<Vec<Arc<Entry>>>);

/// The last list of a kind that was read from the store.
#[derive(Default)]
struct Shared {
    turn: tokio::sync::Mutex<()>,
    last: Mutex<Option<Last>>,
}

/// The store of this API.
pub struct Store {
    client: Client,
    shutdown: Shutdown,
    caches: [OnceLock<Arc<Cache>>; SERVED.len()],
    shared: [Shared; SERVED.len()],
}

impl Store {
    /// Serves the objects that this client sees. The follows end with `shutdown`.
    #[must_use]
    pub fn new(client: Client, shutdown: Shutdown) -> Self {
        Self {
            client,
            shutdown,
            caches: std::array::from_fn(|_| OnceLock::new()),
            shared: std::array::from_fn(|_| Shared::default()),
        }
    }

    /// The client of the datastore.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The cache of a kind. The first call starts to follow the kind.
    #[must_use]
    pub fn cache(&self, served: &'static Served) -> Arc<Cache> {
        let begin = || {
            let cache = Arc::new(Cache::default());
            tokio::spawn(follow(self.client.clone(), served, Arc::clone(&cache), self.shutdown.clone()));
            cache
        };
        Arc::clone(self.caches[served.index()].get_or_init(begin))
    }

    /// Completes when a tier is created after this revision.
    pub fn tier_after(&self, revision: u64) -> impl Future<Output = ()> + Send + 'static {
        let cache = Served::from_plural(Kind::Tier.plural()).map(|tiers| self.cache(tiers));
        async move {
            let Some(cache) = cache else { return std::future::pending().await };
            let mut changed = cache.subscribe();
            loop {
                let is_made = cache.state().has_new_after(revision);
                if is_made || changed.changed().await.is_err() {
                    return;
                }
            }
        }
    }

    /// One object, as new as the store.
    ///
    /// # Errors
    /// When the object does not exist or the store cannot be read.
    pub async fn get(&self, served: &Served, namespace: &str, name: &str) -> Outcome<Resource> {
        let found = self.client.get_any(served.kind, namespace, name, None).await;
        found.map_err(|error| Refusal::from_store(served, name, error))
    }

    /// The objects of a kind at this moment.
    ///
    /// # Errors
    /// When the store cannot be read, or does not have the moment.
    pub async fn list(&self, served: &'static Served, moment: &Moment) -> Outcome<Listed> {
        match moment {
            Moment::Newest => self.newest(served).await,
            Moment::Any => match self.known(served).await {
                Some(listed) => Ok(listed),
                None => self.newest(served).await,
            },
            Moment::NotOlderThan(revision) => self.not_older(served, *revision).await,
            Moment::Exact(revision) => self.read(served, Some(revision)).await,
        }
    }

    async fn newest(&self, served: &'static Served) -> Outcome<Listed> {
        let asked = Instant::now();
        let newest = self.client.backend().newest_revision().await;
        let newest = newest.map_err(|error| Refusal::from_store(served, "", error))?;
        if let Some(newest) = newest.as_deref().and_then(number)
            && let Some(listed) = self.known(served).await
            && number(&listed.revision).is_some_and(|known| known >= newest)
        {
            return Ok(listed);
        }
        self.read_once(served, asked).await
    }

    async fn not_older(&self, served: &'static Served, revision: u64) -> Outcome<Listed> {
        let cache = self.cache(served);
        let mut changed = cache.subscribe();
        let deadline = Instant::now() + CATCH_UP;
        loop {
            let newest = {
                let state = cache.state();
                if state.is_live() && state.revision() >= revision {
                    return Ok(listed(state.entries(), state.revision().to_string()));
                }
                state.revision()
            };
            tokio::select! {
                _ = changed.changed() => {}
                () = tokio::time::sleep_until(deadline) => {
                    // Nothing of this kind may have happened since; then the store itself is new enough.
                    let read = self.read_once(served, deadline).await?;
                    return match number(&read.revision) {
                        Some(found) if found < revision => Err(Refusal::too_new(revision, found.max(newest))),
                        _ => Ok(read),
                    };
                }
                () = async {
                    // The store may be past that revision already, through changes to other kinds.
                    if let Ok(Some(found)) = self.client.backend().newest_revision().await
                        && number(&found).is_some_and(|found| found >= revision) {
                        return;
                    }
                    std::future::pending::<()>().await;
                } => return self.newest(served).await,
            }
        }
    }

    /// Waits until a kind is followed, or cannot be.
    pub async fn warm(&self, served: &'static Served) {
        let _ = self.known(served).await;
    }

    /// The cached objects, if the cache reflects the store.
    async fn known(&self, served: &'static Served) -> Option<Listed> {
        let cache = self.cache(served);
        let mut changed = cache.subscribe();
        let live = async {
            loop {
                {
                    let state = cache.state();
                    if state.is_unordered() {
                        return None;
                    }
                    if state.is_live() {
                        return Some(listed(state.entries(), state.revision().to_string()));
                    }
                }
                changed.changed().await.ok()?;
            }
        };
        tokio::time::timeout(FIRST_LIST, live).await.ok().flatten()
    }

    /// A list of the store that began after this instant, shared by all requests waiting for one.
    async fn read_once(&self, served: &'static Served, asked: Instant) -> Outcome<Listed> {
        let shared = &self.shared[served.index()];
        let _turn = shared.turn.lock().await;
        if let Some((began, revision, entries)) = &*shared.last.lock().unwrap_or_else(PoisonError::into_inner)
            && *began >= asked
            && let Some(entries) = entries.upgrade()
        {
            return Ok(Listed { entries, revision: revision.clone() });
        }
        let began = Instant::now();
        let read = self.read(served, None).await?;
        let last = (began, read.revision.clone(), Arc::downgrade(&read.entries));
        *shared.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
        if let Some(revision) = number(&read.revision) {
            let cache = self.cache(served);
            let is_same = cache.state().is_live() && cache.state().has_exactly(&read.entries);
            if is_same {
                cache.state().advance(revision);
            }
        }
        Ok(read)
    }

    /// Lists the store. Objects that are known already are not encoded again.
    async fn read(&self, served: &'static Served, revision: Option<&str>) -> Outcome<Listed> {
        let refused = |error| Refusal::from_store(served, "", error);
        let query = ListQuery { revision: revision.map(str::to_owned), ..ListQuery::all() };
        let mut parts = self.client.list_parts_any(served.kind, &query).await.map_err(refused)?;
        let cache = self.caches[served.index()].get();
        let (mut entries, mut found) = (Vec::new(), String::new());
        while let Some(part) = parts.next().await {
            let part = part.map_err(refused)?;
            found = part.revision;
            for resource in part.items {
                let known = cache.and_then(|cache| cache.state().entry(&place_of(&resource)).cloned());
                match known.filter(|entry| entry.revision == resource.metadata().resource_version) {
                    Some(entry) => entries.push(entry),
                    None => entries.extend(encoded(resource)),
                }
            }
        }
        entries.sort_by(|a, b| a.place.cmp(&b.place));
        Ok(listed(Arc::new(entries), found))
    }
}

fn listed(entries: Arc<Vec<Arc<Entry>>>, revision: String) -> Listed {
    Listed { entries, revision }
}
