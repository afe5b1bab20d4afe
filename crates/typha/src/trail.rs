//! The trail of a feed: each step links to the next. A client holds the step that it sent last; steps that are no
//! longer needed are freed. All clients send the same bytes.

use crate::cache::Step;
use bytes::Bytes;
use model::feed::Status;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use typha_wire::outgoing::segment;
use typha_wire::snappy::compressed;
use typha_wire::{Message, Position};

/// A step of a feed in its place in the trail.
#[derive(Debug)]
pub struct Crumb {
    /// Its sequence number.
    pub sequence: u64,
    /// When it was created.
    pub time: Instant,
    /// The status after the step.
    pub status: Status,
    /// The approximate number of bytes of the feed's messages up to here.
    pub offset: u64,
    step: Step,
    /// The message with its changes: plain and compressed, each created on first use.
    messages: [OnceLock<Bytes>; 2],
    /// The message with a client's position: plain and compressed, each created on first use.
    positions: [OnceLock<Bytes>; 2],
    next: OnceLock<Arc<Crumb>>,
}

impl Crumb {
    /// Creates the step before all others.
    #[must_use]
    pub fn first(now: Instant) -> Arc<Self> {
        Arc::new(Self {
            sequence: 0,
            time: now,
            status: Status::WaitForDatastore,
            offset: 0,
            step: Step { changes: Vec::new(), status: Status::WaitForDatastore },
            messages: [const { OnceLock::new() }; 2],
            positions: [const { OnceLock::new() }; 2],
            next: OnceLock::new(),
        })
    }

    /// Appends a step to this one, which must be the last.
    pub fn follow(&self, step: Step, now: Instant) -> Arc<Self> {
        let crumb = Arc::new(Self {
            sequence: self.sequence + 1,
            time: now,
            status: step.status,
            offset: self.offset + step.size() as u64,
            step,
            messages: [const { OnceLock::new() }; 2],
            positions: [const { OnceLock::new() }; 2],
            next: OnceLock::new(),
        });
        let _ = self.next.set(Arc::clone(&crumb));
        crumb
    }

    /// The next step, if there is one yet.
    #[must_use]
    pub fn next(&self) -> Option<&Arc<Self>> {
        self.next.get()
    }

    /// The number of changes in the step.
    #[must_use]
    pub fn changes(&self) -> usize {
        self.step.changes.len()
    }

    /// The message with its changes; empty if it has none. Created on first use and shared by all clients.
    #[must_use]
    pub fn message(&self, compress: bool) -> Bytes {
        let make = || {
            let message = self.step.message();
            if compress && !message.is_empty() { compressed(&message).into() } else { message.into() }
        };
        self.messages[usize::from(compress)].get_or_init(make).clone()
    }

    /// The message with the position of a client at this step.
    #[must_use]
    pub fn position(&self, instance: u64, compress: bool) -> Bytes {
        let make = || {
            let message = segment(&Message::Position(Position { instance, sequence: self.sequence }));
            if compress { compressed(&message).into() } else { message.into() }
        };
        self.positions[usize::from(compress)].get_or_init(make).clone()
    }

    /// Bytes of memory that it keeps.
    #[must_use]
    pub fn size(&self) -> usize {
        let made: usize = self.messages.iter().filter_map(OnceLock::get).map(Bytes::len).sum();
        size_of::<Self>() + self.step.size() + made
    }
}

/// Frees a long trail iteratively: freeing each step from within the previous one would overflow the stack.
impl Drop for Crumb {
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some(mut crumb) = next.and_then(Arc::into_inner) {
            next = crumb.next.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use typha_wire::{Change, EncodedUpdate};

    #[test]
    fn a_long_trail_is_freed() {
        let first = Crumb::first(Instant::now());
        let mut last = Arc::clone(&first);
        let update = EncodedUpdate::new("/a", Some(b"1"), "", "");
        for _ in 0..200_000 {
            let step = Step { changes: vec![(update.clone(), Change::New)], status: Status::InSync };
            last = last.follow(step, Instant::now());
        }
        assert_eq!((last.sequence, last.offset), (200_000, 200_000 * update.size() as u64));
        drop(first);
        assert!(last.next().is_none());
    }
}
