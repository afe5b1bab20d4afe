//! The objects of one kind as the store has them, and what happened to them lately: one follow for all who list and watch.
//!
//! A pure core ([`State`]) and the channel around it. Objects are encoded when they come, changes when the first watcher
//! takes them; everybody shares the bytes.

use crate::entry::{Entry, Filter, Place, number};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::watch;

/// How many changes are kept for those who resume.
const WINDOW: usize = 8192;
/// How many bytes of objects the kept changes may hold on to.
const WINDOW_BYTES: usize = 8 << 20;

/// One change of one object.
#[derive(Debug)]
pub struct Change {
    /// The revision of the change.
    pub revision: u64,
    /// What the object was.
    pub old: Option<Arc<Entry>>,
    /// What it is now; nothing if it is gone.
    pub new: Option<Arc<Entry>>,
    /// What it was, under the revision of its end.
    last: OnceLock<Arc<Entry>>,
    /// The line that most watchers get.
    line: OnceLock<Bytes>,
}

/// What a change means to one watcher.
#[derive(Debug, PartialEq)]
pub enum Told {
    /// An object came into view.
    Added(Arc<Entry>),
    /// An object in view changed.
    Modified(Arc<Entry>),
    /// An object went, or went out of view.
    Deleted(Arc<Entry>),
}

impl Change {
    fn new(revision: u64, old: Option<Arc<Entry>>, new: Option<Arc<Entry>>) -> Self {
        Self { revision, old, new, last: OnceLock::new(), line: OnceLock::new() }
    }

    fn size(&self) -> usize {
        self.old.as_ref().map_or(0, |entry| entry.json.len())
    }

    /// What the object was and what it is.
    pub fn sides(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.old.iter().chain(&self.new)
    }

    /// What it means to a watcher with this filter; nothing if it sees neither side.
    #[must_use]
    pub fn told(&self, filter: &Filter) -> Option<Told> {
        let before = self.old.as_ref().filter(|entry| filter.passes(entry));
        let after = self.new.as_ref().filter(|entry| filter.passes(entry));
        Some(match (before, after) {
            (None, None) => return None,
            (None, Some(new)) => Told::Added(Arc::clone(new)),
            (Some(_), Some(new)) => Told::Modified(Arc::clone(new)),
            // What it has become is not for this watcher: it gets what it could see.
            (Some(old), None) => {
                let last = || Arc::new(old.at_revision(&self.revision.to_string()));
                Told::Deleted(Arc::clone(self.last.get_or_init(last)))
            }
        })
    }

    /// The line of a watcher to whom it means this. Those to whom it means what it means to everybody share their bytes.
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
    /// The word of the event and the object.
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

/// What is known.
#[derive(Debug, Default)]
pub struct State {
    items: BTreeMap<Place, Arc<Entry>>,
    /// All items as a list, since the last change.
    listed: OnceLock<Arc<Vec<Arc<Entry>>>>,
    changes: VecDeque<Arc<Change>>,
    bytes: usize,
    /// The number of the first change that is kept.
    first: u64,
    /// Everything up to here is known.
    revision: u64,
    /// Every change after this one is kept.
    window: u64,
    /// The revision of the last change.
    changed: u64,
    has_begun: bool,
    is_live: bool,
    is_unordered: bool,
}

/// What a watcher finds.
#[derive(Debug)]
pub enum Since {
    /// These changes, and the number of the next one.
    Changes(Vec<Arc<Change>>, u64),
    /// Some are gone already.
    Lost,
}

impl State {
    /// A whole list of this revision. Where it differs from what was known, changes were missed, and a list does not have them all:
    /// watchers have to begin again.
    pub fn replace(&mut self, entries: Vec<Arc<Entry>>, revision: u64) {
        if !self.has_begun || !self.has_exactly(&entries) {
            self.listed = OnceLock::new();
            self.items = entries.into_iter().map(|entry| (entry.place.clone(), entry)).collect();
            // One more than there were, so that even a watcher who had seen all of them notices.
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

    /// An object is new or has changed.
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

    /// An object is gone.
    pub fn remove(&mut self, place: &Place, revision: Option<u64>) {
        let revision = revision.unwrap_or(self.revision);
        if let Some(old) = self.items.remove(place) {
            self.listed = OnceLock::new();
            self.push(Change::new(revision, Some(old), None));
        }
        self.revision = self.revision.max(revision);
    }

    /// Nothing happened up to this revision.
    pub fn advance(&mut self, revision: u64) {
        self.revision = self.revision.max(revision);
    }

    /// The store cannot be followed right now.
    pub fn lose(&mut self) {
        self.is_live = false;
    }

    /// The store is followed again, where it was left.
    pub fn resume(&mut self) {
        self.is_live = self.has_begun;
    }

    /// Revisions of this kind cannot be compared: nothing is kept.
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

    /// Whether it is known what the store has.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.is_live
    }

    /// Everything up to here is known.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether the objects are the same at all revisions from this one on.
    #[must_use]
    pub fn is_same_since(&self, revision: u64) -> bool {
        self.is_live && revision >= self.changed
    }

    /// All objects.
    #[must_use]
    pub fn entries(&self) -> Arc<Vec<Arc<Entry>>> {
        Arc::clone(self.listed.get_or_init(|| Arc::new(self.items.values().cloned().collect())))
    }

    /// Whether an object was made after this revision, as far as that is known.
    #[must_use]
    pub fn has_new_after(&self, revision: u64) -> bool {
        let later = self.changes.iter().rev().take_while(|change| change.revision > revision);
        let mut made = later.filter(|change| change.old.is_none());
        // Of changes that are not kept any more nothing is known: better to say yes.
        made.next().is_some() || (self.has_begun && self.window > revision)
    }

    /// One object.
    #[must_use]
    pub fn entry(&self, place: &Place) -> Option<&Arc<Entry>> {
        self.items.get(place)
    }

    /// Whether these are exactly the objects that are known.
    #[must_use]
    pub fn has_exactly(&self, entries: &[Arc<Entry>]) -> bool {
        entries.len() == self.items.len()
            && entries.iter().all(|entry| {
                self.items.get(&entry.place).is_some_and(|known| known.revision == entry.revision)
            })
    }

    /// The number of the first change after this revision; nothing if it may be gone.
    #[must_use]
    pub fn position(&self, revision: u64) -> Option<u64> {
        if !self.has_begun || revision < self.window {
            return None;
        }
        let before = self.changes.partition_point(|change| change.revision <= revision);
        Some(self.first + u64::try_from(before).unwrap_or(u64::MAX))
    }

    /// The changes from a number on, at most so many.
    #[must_use]
    pub fn since(&self, next: u64, most: usize) -> Since {
        let Some(skip) = next.checked_sub(self.first) else { return Since::Lost };
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let found: Vec<Arc<Change>> = self.changes.iter().skip(skip).take(most).cloned().collect();
        let next = next + u64::try_from(found.len()).unwrap_or_default();
        Since::Changes(found, next)
    }
}

/// A state that many look at.
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
    /// The state, to look at.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes those who wait.
    pub fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.changed.send_replace(());
        result
    }

    /// Tells when the state has changed.
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
    fn a_new_list_that_differs_ends_watches() {
        let mut state = State::default();
        state.replace(vec![entry("a", 3, "x"), entry("b", 4, "x")], 5);
        state.put(entry("a", 6, "x"));
        let next = 1;
        state.lose();
        // The same again: nothing was missed.
        state.replace(vec![entry("a", 6, "x"), entry("b", 4, "x")], 8);
        assert_eq!(words(&state, 0, &Filter::default()), ["MODIFIED a 6"]);
        assert_eq!((state.position(5), state.revision()), (Some(0), 8));
        // b went and came back: no list says that it went.
        state.replace(vec![entry("a", 6, "x"), entry("b", 10, "x")], 11);
        assert_eq!(words(&state, next, &Filter::default()), ["lost"]);
        assert_eq!((state.position(8), state.position(11).is_some()), (None, true));
        // A store that was put back to an earlier moment.
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
