//! Follows one kind of the store into its [`Cache`], with the state machine of crate `follow`.
//!
//! Only the store's own history has every change: after an outage the watch resumes where it ended. A new list is the
//! last resort, because it ends clients' watches if it differs from what was known.

use crate::cache::{Cache, State};
use crate::entry::{Entry, encoded, number, place_of};
use crate::kinds::Served;
use api::Resource;
use client::{Client, ListQuery, ResourceEvent, ResourceList};
use daemon::Shutdown;
use follow::cache::{Cache as Machine, CacheOptions, Contents, Failure, FailureClass};
use follow::source::Items;
use follow::{Driver, Source};
use futures::StreamExt as _;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How often to look again for a kind that the store lacks.
const ABSENT_PAUSE: Duration = Duration::from_secs(10);

/// Follows a kind for as long as the server runs, unless its revisions cannot be compared.
pub(crate) async fn follow(client: Client, served: &'static Served, cache: Arc<Cache>, shutdown: Shutdown) {
    let options = CacheOptions { missing_pause: Some(ABSENT_PAUSE), ..CacheOptions::default() };
    let contents = Followed { served, cache: Arc::clone(&cache), listing: Default::default() };
    let mut driver = Driver::new(ServedSource { client, served }, Machine::new(contents, options));
    while !cache.state().is_unordered() {
        let events = tokio::select! {
            events = driver.next() => events,
            () = shutdown.requested() => return,
        };
        for event in events {
            driver.handle(event);
        }
        let was_live = cache.state().is_live();
        match (was_live, driver.cache.is_watching()) {
            (false, true) => cache.change(State::resume),
            (true, false) => cache.change(State::lose),
            _ => {}
        }
    }
}

/// A kind of the store.
struct ServedSource {
    client: Client,
    served: &'static Served,
}

impl fmt::Display for ServedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.served.plural())
    }
}

impl Source for ServedSource {
    type Part = ResourceList<Resource>;
    type Change = ResourceEvent<Resource>;

    async fn list(&self, _revision: &str) -> Result<Items<Self::Part>, Failure> {
        let served = self.served;
        let failed = move |error| failure(served, error);
        let parts = self.client.list_parts_any(served.kind, &ListQuery::all()).await.map_err(failed)?;
        Ok(parts.map(move |part| part.map_err(failed)).boxed())
    }

    async fn watch(&self, revision: &str) -> Result<Items<Self::Change>, Failure> {
        let served = self.served;
        let failed = move |error| failure(served, error);
        let query = ListQuery::all().at(revision);
        let watch = self.client.watch_any(served.kind, &query).await.map_err(failed)?;
        // A store restored to an earlier state would report nothing for a long time.
        let newest = self.client.backend().newest_revision().await.ok().flatten();
        let newest = newest.as_deref().and_then(number);
        if newest.zip(number(revision)).is_some_and(|(newest, at)| newest < at) {
            let message = format!("the store is at a revision before {revision}");
            return Err(Failure { class: FailureClass::Expired, message, retry_after: None });
        }
        Ok(watch.map(move |event| event.map_err(failed)).boxed())
    }
}

fn failure(served: &Served, error: datastore::Error) -> Failure {
    tracing::info!(kind = %served.kind, %error, "cannot follow; trying again");
    error.into()
}

/// Puts the output of the state machine into the cache.
struct Followed {
    served: &'static Served,
    cache: Arc<Cache>,
    /// The list in progress, encoded.
    listing: (Vec<Arc<Entry>>, String),
}

impl Contents for Followed {
    type Part = ResourceList<Resource>;
    type Change = ResourceEvent<Resource>;
    type News = ();

    fn begin(&mut self) {
        self.listing.0.clear();
    }

    fn part(&mut self, part: ResourceList<Resource>) {
        self.listing.0.extend(part.items.into_iter().filter_map(encoded));
        self.listing.1 = part.revision;
    }

    fn finish(&mut self) {
        let (entries, revision) = std::mem::take(&mut self.listing);
        self.cache.change(|state| match number(&revision) {
            Some(revision) => state.replace(entries, revision),
            // Revisions that cannot be compared: each watch follows the store itself.
            None => state.give_up(),
        });
    }

    fn change(&mut self, change: ResourceEvent<Resource>) {
        let (place, revision, entry) = match change {
            ResourceEvent::Added(resource) | ResourceEvent::Modified { new: resource } => {
                (place_of(&resource), resource.metadata().resource_version.clone(), encoded(resource))
            }
            ResourceEvent::Deleted(resource) => {
                (place_of(&resource), resource.metadata().resource_version.clone(), None)
            }
            ResourceEvent::Bookmark(revision) => {
                return self.cache.change(|state| state.advance(number(&revision).unwrap_or_default()));
            }
            // An unreadable object is not in lists either.
            ResourceEvent::Invalid(entry) => {
                tracing::warn!(key = entry.key, reason = entry.reason, "an object cannot be read");
                let key = entry.parsed_key.as_ref().and_then(model::Key::as_resource);
                let Some(key) = key.filter(|key| key.kind == self.served.kind) else { return };
                ((key.namespace.to_string(), key.name.to_string()), String::new(), None)
            }
        };
        self.cache.change(|state| match entry {
            Some(entry) => state.put(entry),
            None => state.remove(&place, number(&revision)),
        });
    }

    fn clear(&mut self) {
        self.cache.change(State::lose);
    }

    fn take_news(&mut self) -> Option<()> {
        None
    }

    fn is_empty(&self) -> bool {
        self.cache.state().entries().is_empty()
    }
}
