//! Typha in the place of the datastore: the same events for the same receiver.

use crate::discovery::Discovery;
use crate::machine::Decoder;
use crate::reconnect::{Follower, follow};
use crate::session::Consumer;
use crate::settings::ClientSettings;
use ::follow::FeedEvent;
use async_trait::async_trait;
use model::feed::{FeedEntry, Status};
use telemetry::Pulse;
use tokio::sync::mpsc;
use typha_wire::entries;

/// Reads what Typha sends as entries of a feed.
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
        entries::entry(path, value, resource_version).map_err(|error| error.to_string())
    }

    fn gone(&mut self, path: &str) -> Option<FeedEntry> {
        entries::gone(path)
    }
}

/// How many events may wait for the receiver. Each has at most one message of the server.
const WAITING_EVENTS: usize = 16;

struct Told(mpsc::Sender<FeedEvent>);

#[async_trait]
impl Consumer<FeedEntry> for Told {
    async fn updates(&mut self, updates: Vec<FeedEntry>) {
        // When nobody listens any more, the component is about to end.
        let _ = self.0.send(FeedEvent::Entries(updates)).await;
    }

    async fn status(&mut self, status: Status) {
        let _ = self.0.send(FeedEvent::Status(status)).await;
    }
}

/// Follows Typha; the events come one after the other, as those of the datastore would. Needs a Tokio runtime.
#[must_use]
pub fn follow_feed(
    discovery: Discovery,
    settings: ClientSettings,
    pulse: Pulse,
) -> (Follower, mpsc::Receiver<FeedEvent>) {
    let (sender, events) = mpsc::channel(WAITING_EVENTS);
    (follow(discovery, settings, Entries, Told(sender), pulse), events)
}
