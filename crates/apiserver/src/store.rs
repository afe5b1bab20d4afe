//! The objects behind this API: reads that are as new as the store, one follow per kind, and lists that many share.
//!
//! A list must not be older than the moment it was asked for. Where the store tells its newest revision for the price of a
//! small request, a list comes from memory whenever nothing can have been missed; otherwise the store is listed, once for all
//! who asked before that list began.

use crate::cache::Cache;
use crate::entry::{Entry, number};
use crate::kinds::{SERVED, Served};
use crate::request::Moment;
use crate::status::{Outcome, Refusal};
use api::{Kind, Resource};
use client::{Client, ListQuery, ResourceEvent};
use daemon::{Backoff, Shutdown};
use futures::StreamExt as _;
use model::Key;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// How long a request waits for a revision that the store has and we have not seen yet, as Kubernetes' servers do.
const CATCH_UP: Duration = Duration::from_secs(3);

/// How long a request waits for the first list of a kind before it asks the store itself.
const FIRST_LIST: Duration = Duration::from_secs(10);

/// How long to wait between two attempts to follow.
const SHORTEST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How many watches may fail, or bring nothing, at a store that answers otherwise, before it is listed again.
const FAILURES: u32 = 3;

/// Objects of a kind at one moment.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The objects, in the order of namespace and name.
    pub entries: Arc<Vec<Arc<Entry>>>,
    /// The moment.
    pub revision: String,
}

/// When a list began, its revision, and its objects while anybody has them.
type Last = (Instant, String, Weak<Vec<Arc<Entry>>>);

/// The last list of a kind that went to the store.
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
    /// The objects that this client sees. Follows end with `shutdown`.
    #[must_use]
    pub fn new(client: Client, shutdown: Shutdown) -> Self {
        Self {
            client,
            shutdown,
            caches: std::array::from_fn(|_| OnceLock::new()),
            shared: std::array::from_fn(|_| Shared::default()),
        }
    }

    /// The client.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// What is known about a kind. The first who asks begins to follow it.
    #[must_use]
    pub fn cache(&self, served: &'static Served) -> Arc<Cache> {
        let begin = || {
            let cache = Arc::new(Cache::default());
            tokio::spawn(follow(self.client.clone(), served, Arc::clone(&cache), self.shutdown.clone()));
            cache
        };
        Arc::clone(self.caches[served.index()].get_or_init(begin))
    }

    /// Ends when a tier is made after this revision.
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
    /// When there is none or the store cannot be asked.
    pub async fn get(&self, served: &Served, namespace: &str, name: &str) -> Outcome<Resource> {
        let found = self.client.get_any(served.kind, namespace, name, None).await;
        found.map_err(|error| Refusal::from_store(served, name, error))
    }

    /// The objects of a kind at this moment.
    ///
    /// # Errors
    /// When the store cannot be asked, or does not have the moment.
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
                    // The store may be past it already, in other kinds.
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

    /// What is known, if it is known what the store has.
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

    /// A list of the store that began after this instant, shared by all who wait for one.
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

    /// A list of the store. Objects that are known are not encoded again.
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
                let place = (resource.namespace().to_owned(), resource.name().to_owned());
                let known = cache.and_then(|cache| {
                    let state = cache.state();
                    state
                        .entry(&place)
                        .filter(|entry| entry.revision == resource.metadata().resource_version)
                        .cloned()
                });
                match known {
                    Some(entry) => entries.push(entry),
                    None => entries.extend(Entry::new(resource).map_err(Refusal::internal)?.map(Arc::new)),
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

/// Follows a kind for as long as the server runs.
async fn follow(client: Client, served: &'static Served, cache: Arc<Cache>, shutdown: Shutdown) {
    let mut pause = Backoff::new(SHORTEST_PAUSE, LONGEST_PAUSE);
    loop {
        tokio::select! {
            () = shutdown.requested() => return,
            outcome = list_and_watch(&client, served, &cache) => {
                cache.change(crate::cache::State::lose);
                if cache.state().is_unordered() {
                    return;
                }
                if let Err(error) = outcome {
                    tracing::info!(kind = %served.kind, error = %error.message, "cannot follow; trying again");
                } else {
                    pause.reset();
                }
            }
        }
        if !shutdown.sleep(pause.pause()).await {
            return;
        }
    }
}

/// One list and the watches after it, until the store wants another list. `Ok` after some success.
async fn list_and_watch(client: &Client, served: &'static Served, cache: &Cache) -> Outcome<()> {
    let refused = |error| Refusal::from_store(served, "", error);
    let mut parts = client.list_parts_any(served.kind, &ListQuery::all()).await.map_err(refused)?;
    let (mut entries, mut revision) = (Vec::new(), String::new());
    while let Some(part) = parts.next().await {
        let part = part.map_err(refused)?;
        revision = part.revision;
        for resource in part.items {
            entries.extend(Entry::new(resource).map_err(Refusal::internal)?.map(Arc::new));
        }
    }
    drop(parts);
    let Some(at) = number(&revision) else {
        // Revisions that cannot be compared: whoever watches follows the store itself.
        cache.change(crate::cache::State::give_up);
        return Ok(());
    };
    cache.change(|state| state.replace(entries, at));
    watch_on(client, served, cache).await;
    Ok(())
}

/// Watches from where the list ended, again after every outage: only the store's own history has every change. Ends when that does
/// not reach far enough any more.
async fn watch_on(client: &Client, served: &'static Served, cache: &Cache) {
    let mut pause = Backoff::new(SHORTEST_PAUSE, LONGEST_PAUSE);
    let mut failures = 0;
    while failures < FAILURES {
        let at = cache.state().revision();
        match client.watch_any(served.kind, &ListQuery::all().at(&at.to_string())).await {
            Ok(mut watch) => {
                // A store that was put back to an earlier moment would be silent for a long time.
                if newest(client).await.is_some_and(|newest| newest < at) {
                    return;
                }
                cache.change(crate::cache::State::resume);
                while let Some(event) = watch.next().await {
                    match event {
                        Ok(event) => apply(served, cache, event),
                        Err(error) if error.is_transient() => break,
                        Err(_) => return,
                    }
                }
                if cache.change(|state| {
                    state.lose();
                    state.revision()
                }) > at
                {
                    failures = 0;
                    pause.reset();
                    continue;
                }
            }
            Err(error) if error.is_transient() => {}
            Err(_) => return,
        }
        // A store that is away is waited for. One that answers everything but this wants another list.
        let look = client.get_any(Kind::ClusterInformation, "", api::words::GLOBAL_NAME, None);
        if matches!(tokio::time::timeout(CATCH_UP, look).await, Ok(found) if found.is_ok()) {
            failures += 1;
        }
        tokio::time::sleep(pause.pause()).await;
    }
}

/// The newest revision of the store, where it tells it cheaply.
async fn newest(client: &Client) -> Option<u64> {
    number(&client.backend().newest_revision().await.ok()??)
}

fn apply(served: &Served, cache: &Cache, event: ResourceEvent<Resource>) {
    match event {
        ResourceEvent::Added(resource) | ResourceEvent::Modified { new: resource } => {
            let place = (resource.namespace().to_owned(), resource.name().to_owned());
            let revision = number(&resource.metadata().resource_version);
            match Entry::new(resource) {
                Ok(Some(entry)) => cache.change(|state| state.put(Arc::new(entry))),
                Ok(None) | Err(_) => cache.change(|state| state.remove(&place, revision)),
            }
        }
        ResourceEvent::Deleted(resource) => {
            let place = (resource.namespace().to_owned(), resource.name().to_owned());
            let revision = number(&resource.metadata().resource_version);
            cache.change(|state| state.remove(&place, revision));
        }
        ResourceEvent::Bookmark(revision) => {
            if let Some(revision) = number(&revision) {
                cache.change(|state| state.advance(revision));
            }
        }
        // It cannot be read, so lists do not have it either.
        ResourceEvent::Invalid(entry) => {
            tracing::warn!(key = entry.key, reason = entry.reason, "an object cannot be read");
            if let Some(datastore_key) = entry.parsed_key
                && let Some(place) = place_of(served, &datastore_key)
            {
                cache.change(|state| state.remove(&place, None));
            }
        }
    }
}

fn place_of(served: &Served, key: &Key) -> Option<(String, String)> {
    let key = key.as_resource().filter(|key| key.kind == served.kind)?;
    Some((key.namespace.to_string(), key.name.to_string()))
}
