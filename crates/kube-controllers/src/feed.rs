//! Follows Calico's own data once for all controllers: each registers for the kinds it needs before the start, and is
//! called for every added, changed or removed entry.
//!
//! No values are kept. A feed without listeners is not started.

use follow::processor::Stored;
use follow::{FeedEvent, FollowedKind, Follower};
use model::ListOptions;
use model::feed::{FeedEntry, FeedKeyRef, Status};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

type UpdateListener = Box<dyn Fn(&FeedEntry) + Send + Sync>;
type StatusListener = Box<dyn Fn(Status) + Send + Sync>;

/// The feed, before and after its start. Cheap to clone.
#[derive(Clone, Default)]
pub struct DataFeed {
    listeners: Arc<Mutex<Listeners>>,
}

#[derive(Default)]
struct Listeners {
    updates: Vec<(ListOptions, UpdateListener)>,
    status: Vec<StatusListener>,
}

impl DataFeed {
    /// Calls `listener` for every entry that `list` selects, with values as they are stored. Must be called before the
    /// start; the listener must not block.
    pub fn follow(&self, list: ListOptions, listener: impl Fn(&FeedEntry) + Send + Sync + 'static) {
        self.listeners().updates.push((list, Box::new(listener)));
    }

    /// Calls `listener` with the status of the whole feed.
    pub fn on_status(&self, listener: impl Fn(Status) + Send + Sync + 'static) {
        self.listeners().status.push(Box::new(listener));
    }

    /// Starts following what was registered; `None` if nothing was. Dropping the follower ends it.
    #[must_use]
    pub fn start(&self, backend: &Arc<dyn datastore::Backend>) -> Option<Follower> {
        let mut kinds: Vec<ListOptions> = Vec::new();
        for (list, _) in &self.listeners().updates {
            if !kinds.contains(list) {
                kinds.push(list.clone());
            }
        }
        if kinds.is_empty() {
            return None;
        }
        let kinds = kinds.into_iter().map(|list| FollowedKind::new(list, Stored)).collect();
        let (follower, mut events) = follow::follow(backend, kinds);
        let feed = self.clone();
        tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                feed.take(event);
            }
        });
        Some(follower)
    }

    fn take(&self, event: FeedEvent) {
        let listeners = self.listeners();
        match event {
            FeedEvent::Entries(entries) => {
                for entry in &entries {
                    for (list, listener) in &listeners.updates {
                        if selects(list, entry.key()) {
                            listener(entry);
                        }
                    }
                }
            }
            FeedEvent::Status(status) => {
                tracing::debug!(status = status.as_str(), "feed of Calico's data");
                listeners.status.iter().for_each(|listener| listener(status));
            }
            FeedEvent::Away(error) => tracing::warn!(error, "cannot follow Calico's data"),
        }
    }

    fn listeners(&self) -> std::sync::MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for DataFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataFeed")
    }
}

/// Whether a list selects this entry.
fn selects(list: &ListOptions, key: FeedKeyRef<'_>) -> bool {
    match (list, key) {
        (ListOptions::Resource { kind, .. }, FeedKeyRef::Resource(resource)) => *kind == resource.kind,
        (ListOptions::Block { .. }, FeedKeyRef::Block(_))
        | (ListOptions::BlockAffinity { .. }, FeedKeyRef::BlockAffinity(_)) => true,
        _ => false,
    }
}
