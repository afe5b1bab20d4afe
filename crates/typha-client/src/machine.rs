//! The entries that the consumer knows, and the changes that a connection brings. Pure.
//!
//! A new connection begins with a snapshot. Entries that were reported before and are not in it are removed, but only
//! when the server reports that the snapshot was complete; equal ones are not reported again. A connection that resumes
//! where the last one ended brings only changes.

use follow::{KeyTable, Known};
use model::feed::Status;
use std::collections::HashMap;
use typha_wire::{Position, WireUpdate};

/// Converts paths and bytes to what the consumer works with.
pub trait Decoder: Send {
    /// The consumer's type of entries.
    type Item: Send;

    /// Converts an existing entry. `None` for an entry that the consumer does not need.
    ///
    /// # Errors
    /// A sentence, when the value cannot be read: what was reported before stays.
    fn there(
        &mut self,
        path: &str,
        value: &[u8],
        resource_version: &str,
    ) -> Result<Option<Self::Item>, String>;

    /// Converts the removal of an entry.
    fn gone(&mut self, path: &str) -> Option<Self::Item>;
}

/// The state of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// There is no connection.
    Lost,
    /// A snapshot is being received, and not known to be complete.
    Filling,
    /// All known entries exist on the server.
    Complete,
}

/// The results of a message.
#[derive(Debug, PartialEq, Eq)]
pub struct News<T> {
    /// Entries to report.
    pub items: Vec<T>,
    /// A status to report after them.
    pub status: Option<Status>,
}

impl<T> Default for News<T> {
    fn default() -> Self {
        Self { items: Vec::new(), status: None }
    }
}

/// What is known of the server's entries.
pub struct Machine<D: Decoder> {
    decoder: D,
    known: KeyTable,
    unreadable: HashMap<Box<str>, String>,
    phase: Phase,
    told: Option<Status>,
    position: Option<Position>,
}

impl<D: Decoder> Machine<D> {
    /// Creates a machine that knows nothing.
    #[must_use]
    pub fn new(decoder: D) -> Self {
        Self {
            decoder,
            known: KeyTable::default(),
            unreadable: HashMap::new(),
            phase: Phase::Lost,
            told: None,
            position: None,
        }
    }

    /// The position from which to resume, if the last connection was complete.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        self.position
    }

    /// A connection begins; `resumed` if it continues where the last one ended.
    pub fn connected(&mut self, resumed: bool) -> News<D::Item> {
        if resumed && self.position.is_some() {
            self.phase = Phase::Complete;
        } else {
            self.known.begin();
            self.phase = Phase::Filling;
            self.position = None;
        }
        let first = self.told.is_none();
        if first {
            self.told = Some(Status::WaitForDatastore);
        }
        News { items: Vec::new(), status: first.then_some(Status::WaitForDatastore) }
    }

    /// The connection was lost. Known entries stay. If a snapshot was incomplete, the next one starts from the
    /// beginning.
    pub fn lost(&mut self) {
        if self.phase == Phase::Filling {
            self.position = None;
        }
        self.phase = Phase::Lost;
    }

    /// Processes received entries.
    pub fn updates(&mut self, updates: &[WireUpdate<'_>]) -> News<D::Item> {
        let mut items = Vec::with_capacity(updates.len());
        for update in updates {
            // A key that is not text is unknown: Calico skips it, too.
            let Ok(path) = std::str::from_utf8(update.key) else { continue };
            items.extend(match update.value {
                Some(value) => self.there(path, value, update.v3_resource_version),
                None => self.gone(path),
            });
        }
        News { items, status: None }
    }

    fn there(&mut self, path: &str, value: &[u8], resource_version: &[u8]) -> Option<D::Item> {
        if !self.is_news(path, value) {
            return None;
        }
        let resource_version = std::str::from_utf8(resource_version).unwrap_or_default();
        match self.decoder.there(path, value, resource_version) {
            Ok(item) => {
                if !self.unreadable.is_empty() {
                    self.unreadable.remove(path);
                }
                item
            }
            Err(reason) => {
                tracing::warn!(path, %reason, "an entry from Typha cannot be read; its last known value stays in force");
                self.unreadable.insert(path.into(), reason);
                None
            }
        }
    }

    /// Records an entry; returns whether it is new or has another value.
    fn is_news(&mut self, path: &str, value: &[u8]) -> bool {
        let known = Known { stamp: self.known.fingerprint(value), degraded: false };
        let (hash, place) = self.known.find(path.as_bytes());
        match place {
            None => self.known.insert(path.as_bytes(), hash, known),
            Some(place) if self.known.known(place) == known => {
                self.known.touch(place);
                return false;
            }
            Some(place) => self.known.set(place, known),
        }
        true
    }

    fn gone(&mut self, path: &str) -> Option<D::Item> {
        let place = self.known.find(path.as_bytes()).1?;
        self.known.remove(place);
        self.forgotten(path)
    }

    /// Records the removal of a known entry.
    fn forgotten(&mut self, path: &str) -> Option<D::Item> {
        self.unreadable.remove(path);
        self.decoder.gone(path)
    }

    /// Processes the status that the server sent.
    pub fn status(&mut self, status: Option<Status>) -> News<D::Item> {
        let Some(status) = status else { return News::default() };
        let mut items = Vec::new();
        if status == Status::InSync && self.phase == Phase::Filling {
            self.phase = Phase::Complete;
            let missing = self.known.take(false, |path| String::from_utf8(path.to_owned()).ok());
            items.extend(missing.iter().filter_map(|path| self.forgotten(path)));
        }
        let changed = self.told != Some(status);
        self.told = Some(status);
        News { items, status: changed.then_some(status) }
    }

    /// Records that everything up to this position has been received.
    pub fn reached(&mut self, position: Position) {
        self.position = Some(position);
    }

    /// The number of known entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The number of entries that cannot be read.
    #[must_use]
    pub fn unreadable(&self) -> usize {
        self.unreadable.len()
    }

    /// Whether everything that the server has is known.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.phase == Phase::Complete && self.told == Some(Status::InSync)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use typha_wire::messages::Revision;

    struct Texts;

    impl Decoder for Texts {
        type Item = String;

        fn there(&mut self, path: &str, value: &[u8], _: &str) -> Result<Option<String>, String> {
            let value = std::str::from_utf8(value).unwrap();
            if value == "bad" { Err("bad".to_owned()) } else { Ok(Some(format!("{path}={value}"))) }
        }

        fn gone(&mut self, path: &str) -> Option<String> {
            Some(format!("{path} gone"))
        }
    }

    fn update<'a>(path: &'a str, value: &'a str) -> WireUpdate<'a> {
        WireUpdate {
            key: path.as_bytes(),
            value: (!value.is_empty()).then_some(value.as_bytes()),
            revision: Revision::None,
            v3_resource_version: &[],
            ttl: 0,
            update_type: 1,
        }
    }

    fn texts(news: &News<String>) -> Vec<&str> {
        let mut texts: Vec<&str> = news.items.iter().map(String::as_str).collect();
        texts.sort_unstable();
        texts
    }

    #[test]
    fn a_new_snapshot_reports_only_the_difference() {
        let mut machine = Machine::new(Texts);
        assert_eq!(machine.connected(false).status, Some(Status::WaitForDatastore));
        assert_eq!(
            texts(&machine.updates(&[update("/a", "1"), update("/b", "2"), update("/c", "3")])).len(),
            3
        );
        assert_eq!(machine.status(Some(Status::InSync)).status, Some(Status::InSync));
        machine.lost();
        assert!(!machine.is_complete());
        assert_eq!(machine.connected(false).status, None, "what was reported stays in force");
        assert_eq!(texts(&machine.updates(&[update("/a", "1"), update("/b", "9")])), ["/b=9"]);
        assert_eq!(machine.status(Some(Status::ResyncInProgress)).status, Some(Status::ResyncInProgress));
        let news = machine.status(Some(Status::InSync));
        assert_eq!((texts(&news), news.status), (vec!["/c gone"], Some(Status::InSync)));
        assert!(machine.is_complete());
        assert_eq!(machine.len(), 2);
    }

    #[test]
    fn nothing_is_deleted_before_a_snapshot_is_complete() {
        let mut machine = Machine::new(Texts);
        machine.connected(false);
        machine.updates(&[update("/a", "1")]);
        machine.status(Some(Status::InSync));
        for told in [1, 0, 0] {
            machine.lost();
            machine.connected(false);
            assert_eq!(machine.updates(&[update("/b", "2")]).items.len(), told);
        }
        assert_eq!(machine.len(), 2);
        assert_eq!(texts(&machine.status(Some(Status::InSync))), ["/a gone"]);
    }

    #[test]
    fn a_resumed_connection_deletes_nothing() {
        let mut machine = Machine::new(Texts);
        machine.connected(false);
        machine.updates(&[update("/a", "1"), update("/b", "2")]);
        machine.reached(Position { instance: 5, sequence: 7 });
        machine.status(Some(Status::InSync));
        machine.lost();
        assert_eq!(machine.position(), Some(Position { instance: 5, sequence: 7 }));
        machine.connected(true);
        assert_eq!(texts(&machine.updates(&[update("/b", "")])), ["/b gone"]);
        assert_eq!(texts(&machine.status(Some(Status::InSync))).len(), 0);
        assert!(machine.is_complete());
        machine.lost();
        machine.connected(false);
        machine.lost();
        assert_eq!(machine.position(), None, "the snapshot was not complete");
    }

    #[test]
    fn unreadable_entries_keep_their_last_value() {
        let mut machine = Machine::new(Texts);
        machine.connected(false);
        machine.updates(&[update("/a", "1")]);
        assert!(machine.updates(&[update("/a", "bad")]).items.is_empty());
        assert_eq!(machine.unreadable(), 1);
        machine.status(Some(Status::InSync));
        machine.lost();
        machine.connected(false);
        machine.updates(&[update("/a", "bad")]);
        assert!(machine.status(Some(Status::InSync)).items.is_empty(), "it is there, and not gone");
        assert_eq!(texts(&machine.updates(&[update("/a", "1")])), ["/a=1"]);
        assert_eq!(machine.unreadable(), 0);
        assert_eq!(texts(&machine.updates(&[update("/a", ""), update("/never", "")])), ["/a gone"]);
    }
}
