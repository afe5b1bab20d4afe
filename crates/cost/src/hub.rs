//! Typha's part of the work, in bytes: what it keeps, and what it sends to one client.

use model::feed::{FeedEntry, Status};
use std::sync::Arc;
use std::time::Instant;
use typha::for_tests::{Cache, Crumb, Snapshot, Step, compressed, inputs};

/// The largest step, as in Typha's default.
const LARGEST_STEP: usize = 100;

/// A feed of Typha without followers and clients.
pub struct Hub {
    cache: Cache,
    last: Arc<Crumb>,
}

impl Hub {
    /// An empty feed.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { cache: Cache::new(LARGEST_STEP), last: Crumb::first(now) }
    }

    /// Adds entries; returns the messages that every client receives for them, as bytes.
    pub fn publish(&mut self, entries: &[FeedEntry], now: Instant) -> Vec<Vec<u8>> {
        let steps = self.cache.apply(inputs(entries));
        steps.into_iter().map(|step| self.follow(step, now)).collect()
    }

    /// Marks the feed as completely listed.
    pub fn in_sync(&mut self, now: Instant) {
        if let Some(step) = self.cache.set_status(Status::InSync) {
            self.follow(step, now);
        }
    }

    fn follow(&mut self, step: Step, now: Instant) -> Vec<u8> {
        self.last = self.last.follow(step, now);
        self.last.message(true).to_vec()
    }

    /// What a new client receives first.
    #[must_use]
    pub fn snapshot(&self, now: Instant) -> Snapshot {
        let entries: Vec<_> = self.cache.entries().cloned().collect();
        compressed(Arc::clone(&self.last), &entries, now)
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.cache.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cache.is_empty()
    }
}
