//! Calico's own data, followed once for all controllers: whoever needs a kind says so before the start, and is called for
//! every entry of it that comes, changes or goes.
//!
//! It keeps no values. A feed that nobody asked for is not started.

use async_trait::async_trait;
use model::feed::{Status, Update};
use model::{Key, ListOptions};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use syncer::processor::Raw;
use syncer::{FollowedKind, Sink, Syncer};

type UpdateListener = Box<dyn Fn(&Update) + Send + Sync>;
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
    /// Calls `listener` for every entry that `list` selects, values as they are stored. To be called before the start; the
    /// listener must not wait.
    pub fn follow(&self, list: ListOptions, listener: impl Fn(&Update) + Send + Sync + 'static) {
        self.listeners().updates.push((list, Box::new(listener)));
    }

    /// Calls `listener` for how far the whole feed has come.
    pub fn on_status(&self, listener: impl Fn(Status) + Send + Sync + 'static) {
        self.listeners().status.push(Box::new(listener));
    }

    /// Starts following what was asked for; nothing when nobody asked. Dropping the syncer ends it.
    #[must_use]
    pub fn start(&self, backend: &Arc<dyn datastore::Backend>) -> Option<Syncer> {
        let mut kinds: Vec<ListOptions> = Vec::new();
        for (list, _) in &self.listeners().updates {
            if !kinds.contains(list) {
                kinds.push(list.clone());
            }
        }
        if kinds.is_empty() {
            return None;
        }
        let kinds = kinds.into_iter().map(|list| FollowedKind::new(list, Raw)).collect();
        Some(syncer::start(backend, kinds, self.clone()))
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

#[async_trait]
impl Sink for DataFeed {
    async fn updates(&mut self, updates: Vec<Update>) {
        let listeners = self.listeners();
        for update in &updates {
            for (list, listener) in &listeners.updates {
                if selects(list, &update.key) {
                    listener(update);
                }
            }
        }
    }

    async fn status(&mut self, status: Status) {
        tracing::debug!(status = status.as_str(), "feed of Calico's data");
        for listener in &self.listeners().status {
            listener(status);
        }
    }

    async fn failed(&mut self, error: String) {
        tracing::warn!(error, "cannot follow Calico's data");
    }
}

/// Whether an entry is of the sort that a list names.
fn selects(list: &ListOptions, key: &Key) -> bool {
    match (list, key) {
        (ListOptions::Resource { kind, .. }, Key::Resource(resource)) => *kind == resource.kind,
        (ListOptions::Block { .. }, Key::Block { .. })
        | (ListOptions::BlockAffinity { .. }, Key::BlockAffinity(_)) => true,
        _ => false,
    }
}
