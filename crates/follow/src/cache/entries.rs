//! What a feed has told about one kind, and what is new.
//!
//! The rules about the unreadable: what was told last, readable, stays; where nothing readable ever was, the substitute
//! is reported. Both count as there when a list is complete. A list with an entry that cannot even be named deletes nothing
//! at all: any of those that are missing might be the one.

use super::Contents;
use crate::index::{Index, Known};
use crate::processor::{Output, Outputs, Processor};
use datastore::{InvalidEntry, KvList, WatchEvent, own_revision};
use model::feed::{FeedEntry, FeedKey};
use model::{Key, KvPair};
use std::collections::BTreeMap;

/// News about entries.
#[derive(Debug, Default, PartialEq)]
pub struct News {
    /// Entries that came, changed or went.
    pub entries: Vec<FeedEntry>,
    /// What is known about entries that cannot be read.
    pub notes: Vec<Note>,
}

/// News about an entry that cannot be read, or could not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The entry.
    pub key: String,
    /// What is wrong with it; none when that is over.
    pub reason: Option<String>,
}

/// What a feed has told about one kind.
pub struct Entries {
    index: Index,
    processor: Box<dyn Processor>,
    news: News,
    /// Room for what comes of one entry.
    outputs: Outputs,
    /// What cannot be read, and why; whether it was seen since the last list began.
    unread: BTreeMap<String, (String, bool)>,
    nameless: bool,
    owes_deletes: bool,
}

impl Entries {
    /// Nothing yet.
    #[must_use]
    pub fn new(processor: Box<dyn Processor>) -> Self {
        Self {
            index: Index::new(),
            processor,
            news: News::default(),
            outputs: Outputs::default(),
            unread: BTreeMap::new(),
            nameless: false,
            owes_deletes: false,
        }
    }

    /// How many keys the feed has told about.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether the feed has told about nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.len() == 0
    }

    /// How many bytes are kept for that.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.index.bytes()
    }

    /// An entry is there.
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

    /// An entry is gone.
    fn gone(&mut self, key: &Key) {
        let mut outputs = Outputs::default();
        self.processor.remove(key, &mut outputs);
        if !self.unread.is_empty() {
            self.readable_again(&key.to_string());
        }
        self.apply_all(outputs);
    }

    /// An entry is there and cannot be read, or only in part.
    fn unreadable(&mut self, entry: InvalidEntry) {
        let name = entry.parsed_key.as_ref().map_or_else(|| entry.key.clone(), ToString::to_string);
        self.nameless |= entry.may_be_any();
        let Some(key) = entry.parsed_key else { return self.note(name, entry.reason) };
        self.processor.keep(&key);
        for known in self.processor.keys(&key) {
            if let Some(place) = self.index.find(known.borrow()) {
                self.index.touch(place);
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
        let Output { entry, is_readable, revision, replaces } = output;
        let place = self.index.find(entry.key());
        let known = Known { stamp: revision, degraded: !is_readable };
        match place {
            None if entry.is_gone() => return,
            None => self.index.insert(entry.key(), known),
            Some(place) if is_readable && entry.is_gone() => self.index.remove(place),
            // What was reported, readable, is better than what can be read now.
            Some(place) if !is_readable && (entry.is_gone() || !self.index.known(place).degraded) => {
                return self.index.touch(place);
            }
            Some(place) if self.index.known(place) == known && !replaces => return self.index.touch(place),
            Some(place) => self.index.set(place, known),
        }
        self.news.entries.push(entry);
    }

    fn note(&mut self, key: String, reason: String) {
        if self.unread.get_mut(&key).is_some_and(|(known, seen)| {
            *seen = true;
            *known == reason
        }) {
            return;
        }
        self.unread.insert(key.clone(), (reason.clone(), true));
        self.news.notes.push(Note { key, reason: Some(reason) });
    }

    fn readable_again(&mut self, key: &str) {
        if self.unread.remove(key).is_some() {
            self.news.notes.push(Note { key: key.to_owned(), reason: None });
        }
    }
}

impl Contents for Entries {
    type Part = KvList;
    type Change = WatchEvent;
    type News = News;

    fn begin(&mut self) {
        self.index.begin();
        self.processor.begin();
        self.unread.values_mut().for_each(|(_, seen)| *seen = false);
        self.nameless = false;
    }

    fn part(&mut self, part: KvList) {
        for item in part.items {
            self.there(item);
        }
        for entry in part.invalid {
            self.unreadable(entry);
        }
    }

    fn finish(&mut self) {
        let mut outputs = Outputs::default();
        if !self.nameless {
            self.processor.finish(&mut outputs);
        }
        self.apply_all(outputs);
        self.owes_deletes = self.nameless;
        if !self.nameless {
            self.news.entries.extend(self.index.take(false).into_iter().map(FeedKey::gone));
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
        self.news.entries.extend(self.index.take(true).into_iter().map(FeedKey::gone));
    }

    fn take_news(&mut self) -> Option<News> {
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
