//! The entries of one list, current while in step with the store: for code that needs them occasionally, and must not
//! read stale data. When out of step (before the first list, while the watch is broken) it returns nothing, and its
//! user reads from the store.
//!
//! Unlike a feed it keeps whole entries, and reports unreadable ones as such: its user decides what to do without them.

use crate::cache::{Cache, CacheOptions, Contents};
use crate::driver::{Driver, Told};
use crate::source::Stored;
use datastore::{Backend, InvalidEntry, KvList, WatchEvent};
use model::{Key, KvPair, ListOptions};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Entries as they were last seen.
#[derive(Debug, Default)]
pub struct Held {
    /// Entries that can be read.
    pub items: BTreeMap<Key, KvPair>,
    invalid: BTreeMap<String, InvalidEntry>,
}

impl Held {
    /// Entries that cannot be read.
    #[must_use]
    pub fn unreadable(&self) -> Vec<InvalidEntry> {
        self.invalid.values().cloned().collect()
    }

    fn put(&mut self, entry: KvPair) {
        self.forget_unreadable(&entry.key);
        self.items.insert(entry.key.clone(), entry);
    }

    fn put_unreadable(&mut self, entry: InvalidEntry) {
        if let Some(key) = &entry.parsed_key {
            self.items.remove(key);
        }
        self.invalid.insert(entry.key.clone(), entry);
    }

    fn forget_unreadable(&mut self, key: &Key) {
        if !self.invalid.is_empty() {
            self.invalid.retain(|_, entry| entry.parsed_key.as_ref() != Some(key));
        }
    }

    fn change(&mut self, event: WatchEvent) {
        match event {
            WatchEvent::Added(entry) | WatchEvent::Modified { new: entry, .. } => self.put(entry),
            WatchEvent::Deleted(entry) => {
                self.forget_unreadable(&entry.key);
                self.items.remove(&entry.key);
            }
            WatchEvent::Invalid(entry) => self.put_unreadable(entry),
            WatchEvent::Bookmark(_) => {}
        }
    }
}

/// A value computed from the entries, kept until they change. Dropping it ends it.
pub struct Snapshot<T> {
    state: Shared<T>,
    changes: watch::Receiver<()>,
    task: JoinHandle<()>,
}

struct State<T> {
    held: Held,
    /// The entries of the list being read.
    listing: Option<Held>,
    /// Whether there ever was a complete list.
    is_listed: bool,
    is_in_step: bool,
    /// Computed from the entries on demand, not at each change.
    made: Option<T>,
    make: fn(&Held) -> T,
}

impl<T: Clone> State<T> {
    fn make(&mut self) -> Option<T> {
        if self.made.is_none() && self.is_listed {
            self.made = Some((self.make)(&self.held));
        }
        self.made.clone()
    }
}

struct Shared<T>(Arc<Mutex<State<T>>>);

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Clone + Send + 'static> Snapshot<T> {
    /// Follows a list. Must be called inside a Tokio runtime with time.
    #[must_use]
    pub fn start(backend: &Arc<dyn Backend>, list: ListOptions, make: fn(&Held) -> T) -> Self {
        let state = State {
            held: Held::default(),
            listing: None,
            is_listed: false,
            is_in_step: false,
            made: None,
            make,
        };
        let state = Shared(Arc::new(Mutex::new(state)));
        let (changed, changes) = watch::channel(());
        let cache = Cache::new(state.clone(), CacheOptions::default());
        let driver = Driver::new(Stored::newest(Arc::clone(backend), list), cache);
        let task = tokio::spawn(keep(driver, state.clone(), changed));
        Self { state, changes, task }
    }

    /// The value computed from the entries; `None` while out of step.
    #[must_use]
    pub fn get(&self) -> Option<T> {
        let mut state = self.state.lock();
        if state.is_in_step { state.make() } else { None }
    }

    /// The value computed from the last known entries, in step or not; `None` before the first complete list.
    #[must_use]
    pub fn last_known(&self) -> Option<T> {
        self.state.lock().make()
    }

    /// Enters the user's own write, which the watch will report, too. Does nothing while out of step.
    pub fn change(&self, change: impl FnOnce(&mut Held)) {
        let mut state = self.state.lock();
        if state.is_in_step {
            change(&mut state.held);
            state.made = None;
        }
    }

    /// Waits for a change, of entries or of being in step, since the last call.
    pub async fn changed(&mut self) {
        // The task ends only with the snapshot.
        if self.changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl<T> Drop for Snapshot<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn keep<T>(mut driver: Driver<Stored, Shared<T>>, state: Shared<T>, changed: watch::Sender<()>) {
    loop {
        let mut is_news = false;
        for event in driver.next().await {
            for told in driver.handle(event) {
                match told {
                    Told::News(()) => is_news = true,
                    Told::Status(_) => {}
                    Told::Away(error) => {
                        tracing::warn!(kind = %driver.source, error, "the datastore cannot be followed");
                    }
                }
            }
        }
        let is_in_step = driver.cache.is_watching();
        let was_in_step = std::mem::replace(&mut state.lock().is_in_step, is_in_step);
        if was_in_step && !is_in_step {
            tracing::info!(kind = %driver.source, "not in step with the datastore; reading instead of following");
        }
        if is_in_step != was_in_step || is_news {
            changed.send_replace(());
        }
    }
}

impl<T> Contents for Shared<T> {
    type Part = KvList;
    type Change = WatchEvent;
    type News = ();

    fn begin(&mut self) {
        self.lock().listing = Some(Held::default());
    }

    fn part(&mut self, part: KvList) {
        let mut state = self.lock();
        let listing = state.listing.get_or_insert_default();
        part.items.into_iter().for_each(|item| listing.put(item));
        part.invalid.into_iter().for_each(|entry| listing.put_unreadable(entry));
    }

    fn finish(&mut self) {
        let mut state = self.lock();
        state.held = state.listing.take().unwrap_or_default();
        state.is_listed = true;
        state.made = None;
    }

    fn change(&mut self, change: WatchEvent) {
        let mut state = self.lock();
        if !matches!(change, WatchEvent::Bookmark(_)) {
            state.made = None;
        }
        state.held.change(change);
    }

    fn clear(&mut self) {
        let mut state = self.lock();
        state.held = Held::default();
        state.made = None;
    }

    /// Returns whether entries changed since the last call.
    fn take_news(&mut self) -> Option<()> {
        self.lock().made.is_none().then_some(())
    }

    fn is_empty(&self) -> bool {
        self.lock().held.items.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{Kind, Resource};

    fn entry(name: &str) -> KvPair {
        let object = serde_json::json!({"metadata": {"name": name}});
        KvPair::resource(Resource::from_value(Kind::GlobalNetworkSet, object).unwrap())
    }

    fn unreadable(name: &str) -> InvalidEntry {
        InvalidEntry {
            key: format!("globalnetworksets/{name}"),
            parsed_key: Some(entry(name).key),
            reason: "broken".to_owned(),
            salvaged: None,
        }
    }

    fn names(held: &Held) -> (Vec<String>, usize) {
        let names = held.items.keys().filter_map(|key| Some(key.as_resource()?.name.clone())).collect();
        (names, held.unreadable().len())
    }

    fn shared() -> Shared<(Vec<String>, usize)> {
        let (held, listing) = (Held::default(), None);
        Shared(Arc::new(Mutex::new(State {
            held,
            listing,
            is_listed: false,
            is_in_step: false,
            made: None,
            make: names,
        })))
    }

    #[test]
    fn an_entry_is_readable_unreadable_or_gone() {
        let mut held = Held::default();
        for (event, expected) in [
            (WatchEvent::Added(entry("a")), (vec!["a"], 0)),
            (WatchEvent::Invalid(unreadable("a")), (vec![], 1)),
            (WatchEvent::Bookmark("7".to_owned()), (vec![], 1)),
            (WatchEvent::Modified { new: entry("a") }, (vec!["a"], 0)),
            (WatchEvent::Invalid(unreadable("b")), (vec!["a"], 1)),
            (WatchEvent::Deleted(entry("b")), (vec!["a"], 0)),
            (WatchEvent::Deleted(entry("a")), (vec![], 0)),
        ] {
            let shown = format!("{event:?}");
            held.change(event);
            let expected = (expected.0.into_iter().map(str::to_owned).collect(), expected.1);
            assert_eq!(names(&held), expected, "{shown}");
        }
    }

    #[test]
    fn a_list_replaces_the_contents_only_when_it_is_complete() {
        let mut contents = shared();
        contents.change(WatchEvent::Added(entry("a")));
        contents.begin();
        contents.part(KvList {
            items: vec![entry("b")],
            invalid: vec![unreadable("c")],
            ..KvList::default()
        });
        assert_eq!(names(&contents.lock().held), (vec!["a".to_owned()], 0));
        // Interrupted, and begun again.
        contents.begin();
        contents.part(KvList { items: vec![entry("d")], ..KvList::default() });
        contents.finish();
        assert_eq!(names(&contents.lock().held), (vec!["d".to_owned()], 0));
    }
}
