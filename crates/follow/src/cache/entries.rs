//! What a feed has reported about one kind, and what is new.
//!
//! Rules for unreadable entries: the last readable version reported stays; if there never was one, the substitute is
//! reported. Both count as present when a list is complete. A list with an entry whose key cannot be determined deletes
//! nothing at all: it might be any of the missing ones.

use super::Contents;
use crate::ahead::{FeedPart, Looked};
use crate::key_table::{KeyTable, Known};
use crate::keys;
use crate::processor::{Output, Outputs, Processor};
use datastore::{InvalidEntry, WatchEvent, own_revision};
use model::feed::{FeedEntry, FeedKey};
use model::{Key, KvPair};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// News about entries.
#[derive(Debug, PartialEq)]
pub struct News<E = FeedEntry> {
    /// Entries that were added, changed or removed.
    pub entries: Vec<E>,
    /// News about entries that cannot be read.
    pub notes: Vec<Note>,
}

impl<E> Default for News<E> {
    fn default() -> Self {
        Self { entries: Vec::new(), notes: Vec::new() }
    }
}

/// News about an entry that cannot be read, or can be read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The entry.
    pub key: String,
    /// What is wrong with it; `None` once that is over.
    pub reason: Option<String>,
}

/// What a feed has reported about one kind, for a reader that wants entries as `E`.
pub struct Entries<E = FeedEntry> {
    told: KeyTable,
    processor: Box<dyn Processor>,
    news: News<E>,
    /// Buffer for a key.
    key: Vec<u8>,
    /// Buffer for the outputs of one entry.
    outputs: Outputs,
    /// Entries that cannot be read, and why; and whether they were seen since the last list began.
    unread: BTreeMap<String, (String, bool)>,
    nameless: bool,
    owes_deletes: bool,
    is_known: Arc<AtomicBool>,
}

impl<E: From<FeedEntry>> Entries<E> {
    /// Creates an empty set of entries.
    #[must_use]
    pub fn new(processor: Box<dyn Processor>) -> Self {
        Self {
            told: KeyTable::default(),
            processor,
            news: News::default(),
            key: Vec::new(),
            outputs: Outputs::default(),
            unread: BTreeMap::new(),
            nameless: false,
            owes_deletes: false,
            is_known: Arc::new(AtomicBool::new(false)),
        }
    }

    /// Set as soon as a list was complete, or an entry could not be read: entries are not converted ahead any more.
    #[must_use]
    pub fn is_known(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_known)
    }

    /// The number of keys that the feed has reported.
    #[must_use]
    pub fn len(&self) -> usize {
        self.told.len()
    }

    /// Whether the feed has reported nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.told.is_empty()
    }

    /// Bytes of memory used for the keys.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.told.bytes()
    }

    /// Processes an entry that exists.
    fn there(&mut self, pair: KvPair) {
        let mut outputs = std::mem::take(&mut self.outputs);
        let revision = own_revision(&pair.key, &pair.revision);
        self.processor.process(&pair.key, pair.value, revision, &mut outputs);
        if !outputs.faults.is_empty() {
            self.note(pair.key.to_string(), std::mem::take(&mut outputs.faults).to_string());
        } else if !self.unread.is_empty() {
            self.readable_again(&pair.key.to_string());
        }
        for output in outputs.entries.drain(..) {
            self.apply(output);
        }
        self.outputs = outputs;
    }

    /// Processes the removal of an entry.
    fn gone(&mut self, key: &Key) {
        let mut outputs = Outputs::default();
        self.processor.remove(key, &mut outputs);
        if !self.unread.is_empty() {
            self.readable_again(&key.to_string());
        }
        self.apply_all(outputs);
    }

    /// Processes an entry that exists but cannot be read, or only in part.
    fn unreadable(&mut self, entry: InvalidEntry) {
        let name = entry.parsed_key.as_ref().map_or_else(|| entry.key.clone(), ToString::to_string);
        self.nameless |= entry.may_be_any();
        let Some(key) = entry.parsed_key else { return self.note(name, entry.reason) };
        self.processor.keep(&key);
        for known in self.processor.keys(&key) {
            self.key.clear();
            keys::encode(known.borrow(), &mut self.key);
            if let (_, Some(place)) = self.told.find(&self.key) {
                self.told.touch(place);
            }
        }
        let mut reason = entry.reason;
        if let Some(salvaged) = entry.salvaged {
            let mut outputs = Outputs::default();
            let revision = own_revision(&salvaged.key, &salvaged.revision);
            self.processor.process(&salvaged.key, salvaged.value, revision, &mut outputs);
            if !outputs.faults.is_empty() {
                reason = format!("{reason} ({})", outputs.faults);
            }
            for output in &mut outputs.entries {
                output.is_readable = false;
            }
            self.apply_all(outputs);
        }
        self.note(name, reason);
    }

    fn apply_all(&mut self, outputs: Outputs) {
        for output in outputs.entries {
            self.apply(output);
        }
    }

    fn apply(&mut self, output: Output) {
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        let Output { entry, is_readable, revision, replaces } = output;
        keys::encode(entry.key(), &mut key);
        let known = Known { stamp: revision, degraded: !is_readable };
        if self.is_news(&key, entry.is_gone(), known, replaces) {
            self.news.entries.push(entry.into());
        }
        self.key = key;
    }

    /// Records what is known about a key from now on; returns whether it has to be reported.
    fn is_news(&mut self, key: &[u8], is_gone: bool, known: Known, replaces: bool) -> bool {
        let (hash, place) = self.told.find(key);
        match place {
            None if is_gone => return false,
            None => self.told.insert(key, hash, known),
            Some(place) if !known.degraded && is_gone => self.told.remove(place),
            // A readable version that was reported is better than what can be read now.
            Some(place) if known.degraded && (is_gone || !self.told.known(place).degraded) => {
                self.told.touch(place);
                return false;
            }
            Some(place) if self.told.known(place) == known && !replaces => {
                self.told.touch(place);
                return false;
            }
            Some(place) => self.told.set(place, known),
        }
        true
    }

    /// Processes a part that was converted ahead. None of its entries was unreadable before.
    fn looked(&mut self, mut looked: Looked<E>) {
        looked.take_outputs(|key, output| {
            let known = Known { stamp: output.revision, degraded: !output.is_readable };
            if self.is_news(key, output.is_gone, known, output.replaces) {
                self.news.entries.push(output.entry);
            }
        });
        for (key, reason) in looked.faults {
            self.note(key, reason);
        }
        for entry in looked.invalid {
            self.unreadable(entry);
        }
    }

    fn note(&mut self, key: String, reason: String) {
        if self.unread.get_mut(&key).is_some_and(|(known, seen)| {
            *seen = true;
            *known == reason
        }) {
            return;
        }
        self.unread.insert(key.clone(), (reason.clone(), true));
        self.is_known.store(true, Ordering::Relaxed);
        self.news.notes.push(Note { key, reason: Some(reason) });
    }

    fn readable_again(&mut self, key: &str) {
        if self.unread.remove(key).is_some() {
            self.news.notes.push(Note { key: key.to_owned(), reason: None });
        }
    }
}

impl<E: From<FeedEntry>> Contents for Entries<E> {
    type Part = FeedPart<E>;
    type Change = WatchEvent;
    type News = News<E>;

    fn begin(&mut self) {
        self.told.begin();
        self.processor.begin();
        self.unread.values_mut().for_each(|(_, seen)| *seen = false);
        self.nameless = false;
    }

    fn part(&mut self, part: FeedPart<E>) {
        let part = match part {
            FeedPart::Stored(part) => part,
            FeedPart::Looked(looked) => return self.looked(looked),
        };
        for item in part.items {
            self.there(item);
        }
        for entry in part.invalid {
            self.unreadable(entry);
        }
    }

    fn finish(&mut self) {
        self.is_known.store(true, Ordering::Relaxed);
        let mut outputs = Outputs::default();
        if !self.nameless {
            self.processor.finish(&mut outputs);
        }
        self.apply_all(outputs);
        self.owes_deletes = self.nameless;
        if !self.nameless {
            self.news
                .entries
                .extend(self.told.take(false, keys::decode).into_iter().map(FeedKey::gone).map(E::from));
        }
        let over: Vec<String> =
            self.unread.iter().filter(|(_, (_, seen))| !seen).map(|(key, _)| key.clone()).collect();
        for key in over {
            self.readable_again(&key);
        }
    }

    fn change(&mut self, change: WatchEvent) {
        match change {
            WatchEvent::Added(pair) | WatchEvent::Modified { new: pair, .. } => self.there(pair),
            WatchEvent::Deleted(pair) => self.gone(&pair.key),
            WatchEvent::Invalid(entry) => self.unreadable(entry),
            WatchEvent::Bookmark(_) => {}
        }
    }

    fn clear(&mut self) {
        self.processor.begin();
        self.processor.finish(&mut Outputs::default());
        self.news
            .entries
            .extend(self.told.take(true, keys::decode).into_iter().map(FeedKey::gone).map(E::from));
    }

    fn take_news(&mut self) -> Option<News<E>> {
        let news = std::mem::take(&mut self.news);
        (!news.entries.is_empty() || !news.notes.is_empty()).then_some(news)
    }

    fn is_empty(&self) -> bool {
        Self::is_empty(self)
    }

    fn owes_deletes(&self) -> bool {
        self.owes_deletes
    }
}
