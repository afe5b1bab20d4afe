//! What a feed has told about one kind, and what is new.
//!
//! The rules about the unreadable: what was told last, readable, stays; where nothing readable ever was, the substitute
//! is told. Both count as there when a list is complete. A list with an entry that cannot even be named deletes nothing
//! at all: any of those that are missing might be the one.

use super::Note;
use crate::index::{Index, Known, Place, stamp};
use crate::processor::{Content, Output, Outputs, Processor};
use datastore::InvalidEntry;
use model::feed::{Change, FeedValue, Update};
use model::kubernetes::profile::{ProfileOwner, profile_owner, split_revision};
use model::{Key, KvPair};
use std::collections::BTreeMap;

pub(super) struct Entries {
    index: Index,
    processor: Box<dyn Processor>,
    updates: Vec<Update>,
    notes: Vec<Note>,
    /// What cannot be read, and why; whether it was seen since the last list began.
    unread: BTreeMap<String, (String, bool)>,
    nameless: bool,
    owes_deletes: bool,
}

impl Entries {
    pub(super) fn new(processor: Box<dyn Processor>) -> Self {
        Self {
            index: Index::new(),
            processor,
            updates: Vec::new(),
            notes: Vec::new(),
            unread: BTreeMap::new(),
            nameless: false,
            owes_deletes: false,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.index.len() == 0
    }

    pub(super) fn bytes(&self) -> usize {
        self.index.bytes()
    }

    /// Whether a list left deletions undone, so that another list is due.
    pub(super) fn owes_deletes(&self) -> bool {
        self.owes_deletes
    }

    /// What is new since the last time.
    pub(super) fn take_news(&mut self) -> (Vec<Update>, Vec<Note>) {
        (std::mem::take(&mut self.updates), std::mem::take(&mut self.notes))
    }

    /// A list begins.
    pub(super) fn begin(&mut self) {
        self.index.begin();
        self.processor.begin();
        self.unread.values_mut().for_each(|(_, seen)| *seen = false);
        self.nameless = false;
    }

    pub(super) fn list_page(&mut self, items: Vec<KvPair>, invalid: Vec<InvalidEntry>) {
        for item in items {
            self.there(item);
        }
        for entry in invalid {
            self.unreadable(entry);
        }
    }

    /// The list is complete.
    pub(super) fn finish(&mut self) {
        let mut outputs = Outputs::default();
        if !self.nameless {
            self.processor.finish(&mut outputs);
        }
        self.apply_all(outputs);
        self.owes_deletes = self.nameless;
        if !self.nameless {
            for key in self.index.take(false) {
                self.updates.push(deletion(key));
            }
        }
        let over: Vec<String> =
            self.unread.iter().filter(|(_, (_, seen))| !seen).map(|(key, _)| key.clone()).collect();
        for key in over {
            self.readable_again(&key);
        }
    }

    /// An entry is there.
    pub(super) fn there(&mut self, pair: KvPair) {
        let mut outputs = Outputs::default();
        self.processor.process(&pair.key, pair.value, &pair.revision, &mut outputs);
        if !outputs.faults.is_empty() {
            self.note(pair.key.to_string(), outputs.faults.to_string());
        } else if !self.unread.is_empty() {
            self.readable_again(&pair.key.to_string());
        }
        self.apply_all(outputs);
    }

    /// An entry is gone.
    pub(super) fn gone(&mut self, key: &Key) {
        let mut outputs = Outputs::default();
        self.processor.remove(key, &mut outputs);
        if !self.unread.is_empty() {
            self.readable_again(&key.to_string());
        }
        self.apply_all(outputs);
    }

    /// An entry is there and cannot be read, or only in part.
    pub(super) fn unreadable(&mut self, entry: InvalidEntry) {
        let name = entry.parsed_key.as_ref().map_or_else(|| entry.key.clone(), ToString::to_string);
        let Some(key) = entry.parsed_key else {
            // A path of etcd that is no key of ours can never have been told about.
            self.nameless |= !entry.key.starts_with('/');
            return self.note(name, entry.reason);
        };
        self.processor.keep(&key);
        for known in self.processor.keys(&key) {
            if let Some(place) = self.index.find(&known) {
                self.index.touch(place);
            }
        }
        let mut reason = entry.reason;
        if let Some(salvaged) = entry.salvaged {
            let mut outputs = Outputs::default();
            self.processor.process(&salvaged.key, salvaged.value, &salvaged.revision, &mut outputs);
            if !outputs.faults.is_empty() {
                reason = format!("{reason} ({})", outputs.faults);
            }
            for output in &mut outputs.entries {
                let content = std::mem::replace(&mut output.content, Content::Gone);
                output.content = match content {
                    Content::Value(value) => Content::Unreadable(Some(value)),
                    Content::Gone => Content::Unreadable(None),
                    unreadable @ Content::Unreadable(_) => unreadable,
                };
            }
            self.apply_all(outputs);
        }
        self.note(name, reason);
    }

    /// Everything is gone, as far as the feed is concerned.
    pub(super) fn delete_everything(&mut self) {
        self.processor.begin();
        self.processor.finish(&mut Outputs::default());
        for key in self.index.take(true) {
            self.updates.push(deletion(key));
        }
    }

    fn apply_all(&mut self, outputs: Outputs) {
        for output in outputs.entries {
            self.apply(output);
        }
    }

    fn apply(&mut self, output: Output) {
        let Output { key, content, revision, replaces } = output;
        let place = self.index.find(&key);
        let stamp = stamp(own_revision(&key, &revision));
        match (content, place) {
            (Content::Gone | Content::Unreadable(None), None) => {}
            (Content::Gone, Some(place)) => {
                self.index.remove(place);
                self.updates.push(deletion(key));
            }
            (Content::Value(value), place) => {
                self.tell(key, value, revision, Known { stamp, degraded: false }, place, replaces);
            }
            // What was told, readable, is better than what can be read now.
            (Content::Unreadable(_), Some(place)) if !self.index.known(place).degraded => {
                self.index.touch(place);
            }
            (Content::Unreadable(None), Some(place)) => self.index.touch(place),
            (Content::Unreadable(Some(value)), place) => {
                self.tell(key, value, revision, Known { stamp, degraded: true }, place, replaces);
            }
        }
    }

    fn tell(
        &mut self,
        key: Key,
        value: FeedValue,
        revision: String,
        known: Known,
        place: Option<Place>,
        replaces: bool,
    ) {
        let change = match place {
            None => {
                self.index.insert(&key, known);
                Change::New
            }
            Some(place) if self.index.known(place) == known && !replaces => {
                self.index.touch(place);
                return;
            }
            Some(place) => {
                self.index.set(place, known);
                Change::Updated
            }
        };
        self.updates.push(Update { key, value: Some(value), revision, change });
    }

    fn note(&mut self, key: String, reason: String) {
        if self.unread.get_mut(&key).is_some_and(|(known, seen)| {
            *seen = true;
            *known == reason
        }) {
            return;
        }
        self.unread.insert(key.clone(), (reason.clone(), true));
        self.notes.push(Note { key, reason: Some(reason) });
    }

    fn readable_again(&mut self, key: &str) {
        if self.unread.remove(key).is_some() {
            self.notes.push(Note { key: key.to_owned(), reason: None });
        }
    }
}

fn deletion(key: Key) -> Update {
    Update { key, value: None, revision: String::new(), change: Change::Deleted }
}

/// The part of a revision that is the object's own. A list of profiles spans two kinds of objects; an event's revision
/// says how far both have come, and only one half of it is about the profile.
fn own_revision<'a>(key: &Key, revision: &'a str) -> &'a str {
    use model::V1Key::{ProfileLabels, ProfileRules};
    let name = match key {
        Key::V1(ProfileLabels { name } | ProfileRules { name }) => name,
        Key::Resource(resource) if resource.kind == api::Kind::Profile => &resource.name,
        _ => return revision,
    };
    match (split_revision(revision), profile_owner(name)) {
        (Some((namespaces, _)), Some(ProfileOwner::Namespace(_))) => namespaces,
        (Some((_, accounts)), Some(ProfileOwner::ServiceAccount { .. })) => accounts,
        _ => revision,
    }
}
