//! Typha in place of the datastore: the same events for the same receiver.

use crate::discovery::Discovery;
use crate::machine::Decoder;
use crate::reconnect::{Follower, follow};
use crate::session::Consumer;
use crate::settings::ClientSettings;
use ::follow::{Events, FeedEvent, Make};
use async_trait::async_trait;
use model::convert::Faults;
use model::feed::{FeedEntry, Status};
use telemetry::Pulse;
use tokio::sync::mpsc;
use typha_wire::entries::{self, DecodeError};

/// Decodes Typha's messages to entries of a feed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entries;

impl Decoder for Entries {
    type Item = FeedEntry;

    fn there(
        &mut self,
        path: &str,
        value: &[u8],
        resource_version: &str,
    ) -> Result<Option<FeedEntry>, String> {
        read(path, value, resource_version).map_err(|error| error.to_string())
    }

    fn gone(&mut self, path: &str) -> Option<FeedEntry> {
        entries::gone(path)
    }
}

fn read(path: &str, value: &[u8], resource_version: &str) -> Result<Option<FeedEntry>, DecodeError> {
    let mut faults = Faults::new();
    let entry = entries::entry(path, value, resource_version, &mut faults)?;
    if !faults.is_empty() {
        tracing::warn!(path, %faults, "fields of an entry from Typha cannot be read; they count as missing");
    }
    Ok(entry)
}

/// How many events may wait for the receiver. Each is at most one message of the server.
const WAITING_EVENTS: usize = 16;

struct Told(mpsc::Sender<FeedEvent>);

#[async_trait]
impl Consumer<FeedEntry> for Told {
    async fn updates(&mut self, updates: Vec<FeedEntry>) {
        // When the receiver is gone, the component is about to end.
        let _ = self.0.send(FeedEvent::Entries(updates)).await;
    }

    async fn status(&mut self, status: Status) {
        let _ = self.0.send(FeedEvent::Status(status)).await;
    }
}

/// Follows Typha; returns the same channel of events as a follower of the datastore. Needs a Tokio runtime.
#[must_use]
pub fn follow_feed(
    discovery: Discovery,
    settings: ClientSettings,
    pulse: Pulse,
) -> (Follower, mpsc::Receiver<FeedEvent>) {
    let (sender, events) = mpsc::channel(WAITING_EVENTS);
    (follow(discovery, settings, Entries, Told(sender), pulse), events)
}

/// An entry as received: path, version and value in one piece.
struct Unread {
    bytes: Box<[u8]>,
    path: usize,
    version: usize,
    is_gone: bool,
}

impl Unread {
    fn new(path: &str, version: &str, value: &[u8], is_gone: bool) -> Self {
        let bytes = [path.as_bytes(), version.as_bytes(), value].concat().into();
        Self { bytes, path: path.len(), version: version.len(), is_gone }
    }

    /// Decodes the entry; `None` if it is not needed here. One that cannot be decoded is left out, and its last
    /// reported version stays.
    fn read(&self) -> Option<FeedEntry> {
        let (path, rest) = self.bytes.split_at_checked(self.path)?;
        let (version, value) = rest.split_at_checked(self.version)?;
        let path = std::str::from_utf8(path).ok()?;
        if self.is_gone {
            return entries::gone(path);
        }
        read(path, value, std::str::from_utf8(version).ok()?).unwrap_or_else(|reason| {
            tracing::warn!(path, %reason, "an entry from Typha cannot be read; its last known value stays in force");
            None
        })
    }
}

/// Leaves decoding to the receiver of the entries.
struct Later;

impl Decoder for Later {
    type Item = Unread;

    fn there(&mut self, path: &str, value: &[u8], version: &str) -> Result<Option<Unread>, String> {
        Ok(Some(Unread::new(path, version, value, false)))
    }

    fn gone(&mut self, path: &str) -> Option<Unread> {
        Some(Unread::new(path, "", &[], true))
    }
}

struct ToldLater(mpsc::Sender<Make>);

#[async_trait]
impl Consumer<Unread> for ToldLater {
    async fn updates(&mut self, updates: Vec<Unread>) {
        let make = move || FeedEvent::Entries(updates.iter().filter_map(Unread::read).collect());
        let _ = self.0.send(Box::new(make)).await;
    }

    async fn status(&mut self, status: Status) {
        let _ = self.0.send(Box::new(move || FeedEvent::Status(status))).await;
    }
}

/// How many events with undecoded entries may wait: the next messages are ready while one is being decoded, and no more
/// than that is held. A first snapshot that waited as a whole would stay in the process as free memory between what is
/// kept.
const WAITING_UNREAD: usize = 6;

/// Follows Typha like [`follow_feed`], for a thread that processes many entries: it decodes them itself, while the next
/// ones are received and decompressed. Needs a Tokio runtime.
#[must_use]
pub fn follow_unread(discovery: Discovery, settings: ClientSettings, pulse: Pulse) -> (Follower, Events) {
    let (sender, events) = mpsc::channel(WAITING_UNREAD);
    let follower = follow(discovery, settings, Later, ToldLater(sender), pulse);
    (follower, Events::ToMake(events))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decoded at once or later, an entry is the same; so is a removal, and an entry that cannot be decoded is left
    /// out.
    #[test]
    fn an_entry_decoded_later_is_the_same() {
        let path = "/calico/v1/config/Ready";
        let there = |value: &[u8]| Later.there(path, value, "").unwrap().and_then(|unread| unread.read());
        let direct = Entries.there(path, b"true", "").unwrap();
        assert!(direct.is_some());
        assert_eq!(there(b"true"), direct);
        let gone = Later.gone(path).and_then(|unread| unread.read());
        assert!(gone.as_ref().is_some_and(FeedEntry::is_gone));
        assert_eq!(gone, Entries.gone(path));
        let policy = "/calico/v1/policy/NetworkPolicy/default/web";
        assert!(Entries.there(policy, b"{", "").is_err());
        assert_eq!(Later.there(policy, b"{", "").unwrap().and_then(|unread| unread.read()), None);
    }
}
