//! The objects of one kind in the store and their recent changes: one follow for all lists and watches.
//!
//! A pure core ([`State`]) and the channel around it. Objects are encoded on arrival, changes when the first watcher
//! takes them; all watchers share the bytes.

use crate::entry::{Entry, Filter, Place, number};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::watch;

/// How many changes are kept for resuming watches.
const WINDOW: usize = 8192;
/// How many bytes of objects the kept changes may retain.
const WINDOW_BYTES: usize = 8 << 20;

/// A change of one object.
#[derive(Debug)]
pub struct Change {
    /// The revision of the change.
    pub revision: u64,
    /// The object before the change.
    pub old: Option<Arc<Entry>>,
    /// The object after the change; `None` if it was deleted.
    pub new: Option<Arc<Entry>>,
    /// The old object with the revision of its deletion.
    last: OnceLock<Arc<Entry>>,
    /// The event line that most watchers get.
    line: OnceLock<Bytes>,
}

/// The meaning of a change for one watcher.
#[derive(Debug, PartialEq)]
pub enum Told {
    /// An object came into view.
    Added(Arc<Entry>),
    /// An object in view changed.
    Modified(Arc<Entry>),
    /// An object was deleted, or went out of view.
    Deleted(Arc<Entry>),
}

impl Change {
    fn new(revision: u64, old: Option<Arc<Entry>>, new: Option<Arc<Entry>>) -> Self {
        Self { revision, old, new, last: OnceLock::new(), line: OnceLock::new() }
    }

    fn size(&self) -> usize {
        self.old.as_ref().map_or(0, |entry| entry.json.len())
    }

    /// The object before and after the change.
    pub fn sides(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.old.iter().chain(&self.new)
    }

    /// The event for a watcher with this filter; `None` if it sees neither side.
    #[must_use]
    pub fn told(&self, filter: &Filter) -> Option<Told> {
        let before = self.old.as_ref().filter(|entry| filter.passes(entry));
        let after = self.new.as_ref().filter(|entry| filter.passes(entry));
        Some(match (before, after) {
            (None, None) => return None,
            (None, Some(new)) => Told::Added(Arc::clone(new)),
            (Some(_), Some(new)) => Told::Modified(Arc::clone(new)),
            // The new object is not visible to this watcher: it gets the last visible one.
            (Some(old), None) => {
                let last = || Arc::new(old.at_revision(&self.revision.to_string()));
                Told::Deleted(Arc::clone(self.last.get_or_init(last)))
            }
        })
    }

    /// The event line for this watcher. Watchers with the same event as most others share its bytes.
    #[must_use]
    pub fn line(&self, told: &Told) -> Bytes {
        let common = match (&self.old, &self.new) {
            (None, _) => "ADDED",
            (Some(_), Some(_)) => "MODIFIED",
            (Some(_), None) => "DELETED",
        };
        if told.parts().0 == common { self.line.get_or_init(|| told.line()).clone() } else { told.line() }
    }
}

impl Told {
    /// The type of the event and its object.
    #[must_use]
    pub fn parts(&self) -> (&'static str, &Arc<Entry>) {
        match self {
            Self::Added(entry) => ("ADDED", entry),
            Self::Modified(entry) => ("MODIFIED", entry),
            Self::Deleted(entry) => ("DELETED", entry),
        }
    }

    /// The event as a line of a watch.
    #[must_use]
    pub fn line(&self) -> Bytes {
        let (word, entry) = self.parts();
        line(word, &entry.json)
    }
}

/// An event of a watch as a line.
#[must_use]
pub(crate) fn line(word: &str, object: &[u8]) -> Bytes {
    let mut text = Vec::with_capacity(object.len() + 32);
    text.extend_from_slice(b"{\"type\":\"");
    text.extend_from_slice(word.as_bytes());
    text.extend_from_slice(b"\",\"object\":");
    text.extend_from_slice(object);
    text.extend_from_slice(b"}\n");
    Bytes::from(text)
}

/// The known objects and recent changes.
#[derive(Debug, Default)]
pub struct State {
    items: BTreeMap<Place, Arc<Entry>>,
    /// All objects as a list, built since the last change.
    listed: OnceLock<Arc<Vec<Arc<Entry>>>>,
    changes: VecDeque<Arc<Change>>,
    bytes: usize,
    /// The number of the oldest kept change.
    first: u64,
    /// The revision up to which everything is known.
    revision: u64,
    /// Every change after this revision is kept.
    window: u64,
    /// The revision of the last change.
    changed: u64,
    has_begun: bool,
    is_live: bool,
    is_unordered: bool,
}

/// The changes available to a watcher.
#[derive(Debug)]
pub enum Since {
    /// These changes, and the number of the next one.
    Changes(Vec<Arc<Change>>, u64),
    /// Some of the changes are no longer kept.
    Lost,
}

impl State {
    /// Processes a whole list of this revision. If it differs from the known objects, changes were missed, and a list
    /// does not show them all: watchers must start again.
    pub fn replace(&mut self, entries: Vec<Arc<Entry>>, revision: u64) {
        if !self.has_begun || !self.has_exactly(&entries) {
            self.listed = OnceLock::new();
            self.items = entries.into_iter().map(|entry| (entry.place.clone(), entry)).collect();
            // Skips one number more than there were changes, so that even a watcher that has seen them all notices.
            self.first += u64::try_from(self.changes.len()).unwrap_or_default() + u64::from(self.has_begun);
            self.changes.clear();
            self.bytes = 0;
            self.window = revision;
            self.changed = revision;
            self.revision = revision;
        }
        self.revision = self.revision.max(revision);
        self.has_begun = true;
        self.is_live = true;
    }

    /// Adds or changes an object.
    pub fn put(&mut self, entry: Arc<Entry>) {
        let revision = number(&entry.revision).unwrap_or(self.revision);
        self.listed = OnceLock::new();
        let old = self.items.insert(entry.place.clone(), Arc::clone(&entry));
        if old.as_ref().is_some_and(|old| old.revision == entry.revision) {
            return;
        }
        self.push(Change::new(revision, old, Some(entry)));
        self.revision = self.revision.max(revision);
    }

    /// Removes an object.
    pub fn remove(&mut self, place: &Place, revision: Option<u64>) {
        let revision = revision.unwrap_or(self.revision);
        if let Some(old) = self.items.remove(place) {
            self.listed = OnceLock::new();
            self.push(Change::new(revision, Some(old), None));
        }
        self.revision = self.revision.max(revision);
    }

    /// Records that there were no changes up to this revision.
    pub fn advance(&mut self, revision: u64) {
        self.revision = self.revision.max(revision);
    }

    /// Records that the store cannot be followed right now.
    pub fn lose(&mut self) {
        self.is_live = false;
    }

    /// Records that the follow resumed where it ended.
    pub fn resume(&mut self) {
        self.is_live = self.has_begun;
    }

    /// Drops everything, because revisions of this kind cannot be compared.
    pub fn give_up(&mut self) {
        *self = Self { is_unordered: true, ..Self::default() };
    }

    /// Whether nothing is kept, because revisions of this kind cannot be compared.
    #[must_use]
    pub fn is_unordered(&self) -> bool {
        self.is_unordered
    }

    fn push(&mut self, change: Change) {
        self.changed = self.changed.max(change.revision);
        self.bytes += change.size();
        self.changes.push_back(Arc::new(change));
        while self.changes.len() > WINDOW || (self.bytes > WINDOW_BYTES && self.changes.len() > 1) {
            if let Some(oldest) = self.changes.pop_front() {
                self.bytes -= oldest.size();
                self.first += 1;
                self.window = oldest.revision;
            }
        }
    }

    /// Whether the state reflects the store.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.is_live
    }

    /// The revision up to which everything is known.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether the objects have not changed since this revision.
    #[must_use]
    pub fn is_same_since(&self, revision: u64) -> bool {
        self.is_live && revision >= self.changed
    }

    /// All objects.
    #[must_use]
    pub fn entries(&self) -> Arc<Vec<Arc<Entry>>> {
        Arc::clone(self.listed.get_or_init(|| Arc::new(self.items.values().cloned().collect())))
    }

    /// Whether an object was created after this revision, as far as is known.
    #[must_use]
    pub fn has_new_after(&self, revision: u64) -> bool {
        let later = self.changes.iter().rev().take_while(|change| change.revision > revision);
        let mut made = later.filter(|change| change.old.is_none());
        // Changes that are no longer kept are unknown, so assume there was a creation.
        made.next().is_some() || (self.has_begun && self.window > revision)
    }

    /// Returns one object.
    #[must_use]
    pub fn entry(&self, place: &Place) -> Option<&Arc<Entry>> {
        self.items.get(place)
    }

    /// Whether these are exactly the known objects.
    #[must_use]
    pub fn has_exactly(&self, entries: &[Arc<Entry>]) -> bool {
        entries.len() == self.items.len()
            && entries.iter().all(|entry| {
                self.items.get(&entry.place).is_some_and(|known| known.revision == entry.revision)
            })
    }

    /// The number of the first change after this revision; `None` if it may no longer be kept.
    #[must_use]
    pub fn position(&self, revision: u64) -> Option<u64> {
        if !self.has_begun || revision < self.window {
            return None;
        }
        let before = self.changes.partition_point(|change| change.revision <= revision);
        Some(self.first + u64::try_from(before).unwrap_or(u64::MAX))
    }

    /// The changes from a number on, at most `most`.
    #[must_use]
    pub fn since(&self, next: u64, most: usize) -> Since {
        let Some(skip) = next.checked_sub(self.first) else { return Since::Lost };
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let found: Vec<Arc<Change>> = self.changes.iter().skip(skip).take(most).cloned().collect();
        let next = next + u64::try_from(found.len()).unwrap_or_default();
        Since::Changes(found, next)
    }
}

/// A state shared by many readers.
#[derive(Debug)]
pub struct Cache {
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

impl Default for Cache {
    fn default() -> Self {
        Self { state: Mutex::default(), changed: watch::Sender::new(()) }
    }
}

impl Cache {
    /// Locks the state for reading.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes its subscribers.
    pub fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.changed.send_replace(());
        result
    }

    /// Notifies of changes to the state.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn entry(name: &str, revision: u64, label: &str) -> Arc<Entry> {
        Arc::new(Entry {
            place: (String::new(), name.to_owned()),
            revision: revision.to_string(),
            labels: (&BTreeMap::from([("l".to_owned(), label.to_owned())])).into(),
            tier: String::new(),
            json: Bytes::from(format!("{{\"metadata\":{{\"name\":\"{name}\"}}}}")),
        })
    }

    fn words(state: &State, from: u64, filter: &Filter) -> Vec<String> {
        let Since::Changes(changes, _) = state.since(from, 100) else { return vec!["lost".into()] };
        let told = changes.iter().filter_map(|change| change.told(filter));
        told.map(|told| format!("{} {} {}", told.parts().0, told.parts().1.place.1, told.parts().1.revision))
            .collect()
    }

    #[test]
    fn changes_are_delivered_from_a_revision_on() {
        let mut state = State::default();
        assert_eq!(state.position(5), None);
        state.replace(vec![entry("a", 3, "x")], 5);
        assert_eq!((state.position(4), state.position(5)), (None, Some(0)));
        state.put(entry("b", 7, "x"));
        state.put(entry("a", 9, "y"));
        state.remove(&(String::new(), "b".into()), Some(11));
        assert_eq!(words(&state, 0, &Filter::default()), ["ADDED b 7", "MODIFIED a 9", "DELETED b 11"]);
        assert_eq!(
            words(&state, state.position(7).unwrap(), &Filter::default()),
            ["MODIFIED a 9", "DELETED b 11"]
        );
        let filter =
            Filter { labels: crate::selectors::LabelSelector::parse("l=x").unwrap(), ..Filter::default() };
        // An object whose labels no longer fit goes out of view.
        assert_eq!(words(&state, 0, &filter), ["ADDED b 7", "DELETED a 9", "DELETED b 11"]);
        assert_eq!(state.revision(), 11);
        assert!(state.is_same_since(11) && !state.is_same_since(10));
    }

    #[test]
    fn a_different_list_ends_watches() {
        let mut state = State::default();
        state.replace(vec![entry("a", 3, "x"), entry("b", 4, "x")], 5);
        state.put(entry("a", 6, "x"));
        let next = 1;
        state.lose();
        // The same list again: nothing was missed.
        state.replace(vec![entry("a", 6, "x"), entry("b", 4, "x")], 8);
        assert_eq!(words(&state, 0, &Filter::default()), ["MODIFIED a 6"]);
        assert_eq!((state.position(5), state.revision()), (Some(0), 8));
        // b was deleted and created again: no list shows the deletion.
        state.replace(vec![entry("a", 6, "x"), entry("b", 10, "x")], 11);
        assert_eq!(words(&state, next, &Filter::default()), ["lost"]);
        assert_eq!((state.position(8), state.position(11).is_some()), (None, true));
        // The store was restored to an earlier state.
        state.replace(vec![entry("b", 4, "x")], 5);
        assert_eq!((state.revision(), state.position(5).is_some(), state.entries().len()), (5, true, 1));
    }

    #[test]
    fn a_watcher_that_falls_behind_is_cut_off() {
        let mut state = State::default();
        state.replace(Vec::new(), 1);
        for revision in 2..u64::try_from(WINDOW).unwrap() + 10 {
            state.put(entry("a", revision, "x"));
        }
        assert!(matches!(state.since(0, 1), Since::Lost));
        assert_eq!(state.position(2), None);
        assert!(state.position(20).is_some());
    }
}
